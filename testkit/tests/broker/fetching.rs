//! Does a fetch return what Kafka would return, when Kafka would return it?
use std::time::Duration;

use crate::common::{Client, batch, cluster, text};
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProduceRequest, TopicName};
use prosody_base::Clock;
use prosody_testkit::Cluster;
use prosody_testkit::broker::batch::{NewBatch, records};
use uuid::Uuid;

/// Partition, offset, leader epoch.
type Want = (i32, i64, i32);

fn fetch(wants: &[Want]) -> FetchRequest {
    let partition = |(index, offset, epoch): &Want| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_current_leader_epoch(*epoch)
            .with_partition_max_bytes(1 << 20)
    };
    let topics = match wants {
        [] => Vec::new(),
        _ => vec![
            FetchTopic::default()
                .with_topic(TopicName(text("t")))
                .with_partitions(wants.iter().map(partition).collect()),
        ],
    };
    FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(topics)
}

fn all(answer: &FetchResponse) -> Vec<&PartitionData> {
    answer.responses.iter().flat_map(|topic| &topic.partitions).collect()
}

fn offsets(data: &PartitionData) -> Vec<i64> {
    let mut rest = data.records.clone().unwrap_or_default();
    let mut offsets = Vec::new();
    while !rest.is_empty() {
        let length = 12 + i32::from_be_bytes(rest[8..12].try_into().unwrap()) as usize;
        offsets.extend(records(&rest.split_to(length)).unwrap().iter().map(|record| record.offset));
    }
    offsets
}

fn ready(partitions: i32) -> Cluster {
    let cluster = cluster(2);
    cluster.create_topic_with("t", partitions, 2, Default::default()).unwrap();
    for index in 0..partitions {
        cluster.move_leader("t", index, 1);
    }
    cluster
}

fn append(cluster: &Cluster, partition: i32, count: usize) {
    let records = vec![(None, Some(&b"value"[..])); count];
    cluster.append("t", partition, &records).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_fetch_waits_exactly_as_long_as_it_may_and_not_longer_than_it_must() {
    let cluster = ready(2);
    let clock = Clock::system();
    let mut client = Client::new(&cluster, 1);
    let start = clock.now();
    let answer = client.call(11, &fetch(&[(0, 0, -1)])).await;
    assert_eq!((clock.now() - start, all(&answer).len()), (Duration::from_millis(500), 1));

    client.send(11, &fetch(&[(0, 0, -1), (1, 0, -1)])).await;
    clock.sleep(Duration::from_millis(123)).await;
    let start = clock.now();
    append(&cluster, 1, 3);
    let answer = client.receive::<FetchRequest>(11).await;
    assert_eq!((clock.now() - start, offsets(all(&answer)[1])), (Duration::ZERO, vec![0, 1, 2]));

    let start = clock.now();
    let bytes = all(&answer)[1].records.as_ref().unwrap().len() as i32;
    client.send(11, &fetch(&[(0, 0, -1)]).with_min_bytes(2 * bytes)).await;
    append(&cluster, 0, 3);
    clock.sleep(Duration::from_millis(200)).await;
    append(&cluster, 0, 3);
    let answer = client.receive::<FetchRequest>(11).await;
    assert_eq!(clock.now() - start, Duration::from_millis(200), "the second append makes it enough");
    assert_eq!(offsets(all(&answer)[0]), (0..6).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_produce_of_another_connection_ends_the_wait_at_once() {
    let cluster = ready(2);
    let clock = Clock::system();
    let (mut reader, mut writer) = (Client::new(&cluster, 1), Client::new(&cluster, 1));
    let start = clock.now();
    reader.send(11, &fetch(&[(0, 0, -1), (1, 0, -1)])).await;
    clock.sleep(Duration::from_millis(7)).await;
    let data = PartitionProduceData::default().with_index(1).with_records(Some(batch(5, 0, 0, 4)));
    let topic = TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![data]);
    writer.call(9, &ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])).await;
    let answer = reader.receive::<FetchRequest>(11).await;
    assert_eq!((clock.now() - start, offsets(all(&answer)[1]).len()), (Duration::from_millis(7), 4));
}

#[tokio::test(start_paused = true)]
async fn waiting_on_one_connection_holds_up_no_other_and_answers_keep_their_order() {
    let cluster = ready(1);
    let (mut waiting, mut other) = (Client::new(&cluster, 1), Client::new(&cluster, 1));
    let clock = Clock::system();
    let start = clock.now();
    waiting.send(11, &fetch(&[(0, 0, -1)])).await;
    waiting.send(11, &fetch(&[(0, 5, -1)])).await;
    let answer = other.call(11, &fetch(&[(0, 7, -1)])).await;
    assert_eq!((all(&answer)[0].error_code, clock.now() - start), (1, Duration::ZERO));
    let first = waiting.frame().await.unwrap();
    let second = waiting.frame().await.unwrap();
    assert_eq!((first[3], second[3]), (1, 2), "correlation ids in order");
}

#[tokio::test(start_paused = true)]
async fn batches_are_whole_and_the_first_one_comes_whatever_its_size() {
    let cluster = ready(2);
    for _ in 0..3 {
        append(&cluster, 0, 10);
    }
    append(&cluster, 1, 10);
    let mut client = Client::new(&cluster, 1);
    let answer = client.call(11, &fetch(&[(0, 14, -1), (1, 0, -1)]).with_max_bytes(1)).await;
    assert_eq!(
        offsets(all(&answer)[0]),
        (10..20).collect::<Vec<_>>(),
        "the batch that holds offset 14, alone"
    );
    assert!(offsets(all(&answer)[1]).is_empty(), "nothing fits behind it");
    let answer = client.call(11, &fetch(&[(0, 0, -1)])).await;
    assert_eq!(offsets(all(&answer)[0]).len(), 30);
    let mut small = fetch(&[(0, 30, -1), (1, 0, -1)]);
    small.topics[0].partitions[1].partition_max_bytes = 1;
    let answer = client.call(11, &small).await;
    assert_eq!(
        offsets(all(&answer)[1]).len(),
        10,
        "an empty partition before it does not count as the first"
    );
}

#[tokio::test(start_paused = true)]
async fn epochs_fence_both_ways_and_the_end_of_an_epoch_is_known() {
    let cluster = ready(1);
    append(&cluster, 0, 4);
    let mut client = Client::new(&cluster, 1);
    cluster.move_leader("t", 0, 2);
    let mut by_id = fetch(&[(0, 0, -1)]);
    by_id.topics[0].topic_id = Uuid::from_bytes(cluster.topic_id("t").unwrap());
    let answer = client.call(16, &by_id).await;
    let told = all(&answer)[0];
    assert_eq!(
        (told.error_code, told.current_leader.leader_id.0, told.current_leader.leader_epoch),
        (6, 2, 2)
    );
    assert_eq!((answer.node_endpoints[0].host.as_str(), answer.node_endpoints[0].port), ("b2", 9_092));

    cluster.move_leader("t", 0, 1);
    append(&cluster, 0, 4);
    for (epoch, expected) in [(3, 0), (2, 74), (4, 75), (-1, 0)] {
        let answer = client.call(12, &fetch(&[(0, 0, epoch)])).await;
        assert_eq!(all(&answer)[0].error_code, expected, "epoch {epoch}");
    }
    let mut truncated = fetch(&[(0, 6, -1)]);
    truncated.topics[0].partitions[0].last_fetched_epoch = 1;
    let answer = client.call(12, &truncated).await;
    let diverging = &all(&answer)[0].diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (1, 4));
    let epochs: Vec<_> = cluster.batches("t", 0).iter().map(|batch| batch[15]).collect();
    assert_eq!(epochs, [1, 3], "an append stamps the leader's epoch");
}

#[tokio::test(start_paused = true)]
async fn a_session_remembers_and_says_only_what_is_new() {
    let cluster = ready(3);
    append(&cluster, 0, 1);
    let mut client = Client::new(&cluster, 1);
    let open = fetch(&[(0, 0, -1), (1, 0, -1), (2, 0, -1)]).with_session_epoch(0);
    let answer = client.call(11, &open).await;
    let session = answer.session_id;
    assert!(session != 0 && all(&answer).len() == 3);
    let next = |epoch, wants: &[Want]| fetch(wants).with_session_id(session).with_session_epoch(epoch);

    let answer = client.call(11, &next(1, &[(0, 1, -1)])).await;
    assert_eq!((answer.session_id, all(&answer).len()), (session, 0), "nothing new, nothing said");
    append(&cluster, 2, 2);
    let answer = client.call(11, &next(2, &[])).await;
    assert_eq!(all(&answer).iter().map(|one| one.partition_index).collect::<Vec<_>>(), [2]);
    let answer = client.call(11, &next(3, &[(2, 99, -1)])).await;
    assert_eq!((all(&answer).len(), all(&answer)[0].error_code), (1, 1), "an error is always said");
    let forget = ForgottenTopic::default().with_topic(TopicName(text("t"))).with_partitions(vec![2]);
    let answer = client.call(11, &next(4, &[]).with_forgotten_topics_data(vec![forget])).await;
    assert_eq!(all(&answer).len(), 0);

    assert_eq!(client.call(11, &next(4, &[])).await.error_code, 71, "an epoch that was used");
    assert_eq!(client.call(11, &next(6, &[])).await.error_code, 71, "an epoch that is not due");
    let unknown = fetch(&[]).with_session_id(session.wrapping_add(1)).with_session_epoch(1);
    assert_eq!(client.call(11, &unknown).await.error_code, 70);
    assert_eq!(client.call(13, &next(5, &[])).await.error_code, 106, "ids in a session of names");
    assert_eq!(client.call(11, &next(5, &[])).await.error_code, 0, "errors change nothing");
    client.call(11, &next(-1, &[(0, 0, -1)])).await;
    assert_eq!(client.call(11, &next(6, &[])).await.error_code, 70, "the session was closed");
}

#[tokio::test(start_paused = true)]
async fn committed_readers_see_neither_open_nor_hidden_aborted_transactions() {
    let cluster = ready(1);
    let transactional = |producer, sequence| NewBatch {
        attributes: 0x10,
        producer_id: producer,
        producer_epoch: 0,
        base_sequence: sequence,
        timestamp: 1,
        records: &[(None, Some(b"x"))],
    };
    append(&cluster, 0, 1);
    assert_eq!(cluster.append_batch("t", 0, &transactional(7, 0)), Some(1));
    append(&cluster, 0, 1);
    let mut client = Client::new(&cluster, 1);
    let committed = fetch(&[(0, 0, -1)]).with_isolation_level(1);
    let answer = client.call(11, &committed).await;
    assert_eq!((offsets(all(&answer)[0]), all(&answer)[0].last_stable_offset), (vec![0], 1));
    let answer = client.call(11, &fetch(&[(0, 0, -1)])).await;
    assert_eq!((offsets(all(&answer)[0]), &all(&answer)[0].aborted_transactions), (vec![0, 1, 2], &None));

    client.send(11, &fetch(&[(0, 1, -1)]).with_isolation_level(1)).await;
    assert!(cluster.end_transaction("t", 0, (7, 0), false));
    let answer = client.receive::<FetchRequest>(11).await;
    let aborted = all(&answer)[0].aborted_transactions.clone().unwrap();
    assert_eq!((aborted[0].producer_id.0, aborted[0].first_offset), (7, 1));
    assert_eq!(offsets(all(&answer)[0]), [1, 2, 3]);
    assert_eq!(cluster.append_batch("t", 0, &transactional(7, 1)), Some(4));
    assert!(cluster.end_transaction("t", 0, (7, 0), true));
    let answer = client.call(11, &committed).await;
    assert_eq!(all(&answer)[0].last_stable_offset, 6);
    assert_eq!(cluster.log("t", 0).len(), 4, "markers are no records");
}

#[tokio::test(start_paused = true)]
async fn deleting_moves_the_start_and_recreating_changes_the_id() {
    let cluster = ready(1);
    append(&cluster, 0, 5);
    append(&cluster, 0, 5);
    let mut client = Client::new(&cluster, 1);
    assert!(cluster.delete_records("t", 0, 7));
    let answer = client.call(11, &fetch(&[(0, 6, -1)])).await;
    assert_eq!((all(&answer)[0].error_code, all(&answer)[0].log_start_offset), (1, 7));
    let answer = client.call(11, &fetch(&[(0, 7, -1)])).await;
    assert_eq!(offsets(all(&answer)[0]), [5, 6, 7, 8, 9], "a batch that straddles the start stays whole");

    let old = Uuid::from_bytes(cluster.topic_id("t").unwrap());
    let mut by_id = fetch(&[(0, 10, -1)]);
    by_id.topics[0].topic_id = old;
    client.send(13, &by_id).await;
    Clock::system().sleep(Duration::from_millis(1)).await;
    cluster.recreate_topic("t").unwrap();
    assert_ne!(Uuid::from_bytes(cluster.topic_id("t").unwrap()), old);
    let answer = client.receive::<FetchRequest>(13).await;
    assert_ne!(all(&answer)[0].error_code, 0, "a fetch that waits learns of it at once");
    assert_eq!(all(&client.call(13, &by_id).await)[0].error_code, 100, "then the id is unknown");
}

#[tokio::test(start_paused = true)]
async fn bytes_stored_raw_come_back_as_they_are() {
    let cluster = ready(1);
    let junk = Bytes::from_static(b"not a batch");
    assert!(cluster.append_raw("t", 0, junk.clone(), 9));
    append(&cluster, 0, 1);
    let answer = Client::new(&cluster, 1).call(11, &fetch(&[(0, 3, -1)])).await;
    let got = all(&answer)[0].records.clone().unwrap();
    assert_eq!(&got[..junk.len()], &junk[..]);
    assert_eq!(&got[junk.len()..junk.len() + 8], &10i64.to_be_bytes());
    assert_eq!(batch(1, 0, 0, 1).len() + junk.len(), got.len() + 3, "no key");
}
