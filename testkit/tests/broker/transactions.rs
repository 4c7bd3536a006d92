//! Transactions by the APIs a transactional producer uses: what is written, seen, fenced and refused.

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic,
};
use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};
use prosody_testkit::Cluster;
use prosody_testkit::broker::batch::NewBatch;
use prosody_testkit::broker::keys::code;

use crate::common::{Client, cluster, text};

type Producer = (i64, i16);

fn id() -> TransactionalId {
    TransactionalId(text("tx"))
}

async fn init(client: &mut Client) -> Producer {
    let request = InitProducerIdRequest::default().with_transactional_id(Some(id()));
    let answer = client.call(2, &request.with_transaction_timeout_ms(60_000)).await;
    assert_eq!(answer.error_code, code::NONE);
    (answer.producer_id.0, answer.producer_epoch)
}

/// The error of each partition.
async fn add(client: &mut Client, producer: Producer, partitions: &[i32]) -> Vec<i16> {
    add_by(client, 0, producer, partitions).await;
    add_by(client, 3, producer, partitions).await
}

async fn add_by(client: &mut Client, version: i16, producer: Producer, partitions: &[i32]) -> Vec<i16> {
    let topic = AddPartitionsToTxnTopic::default().with_name(TopicName(text("t")));
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id())
        .with_v3_and_below_producer_id(ProducerId(producer.0))
        .with_v3_and_below_producer_epoch(producer.1)
        .with_v3_and_below_topics(vec![topic.with_partitions(partitions.to_vec())]);
    let answer = client.call(version, &request).await;
    let topic = &answer.results_by_topic_v3_and_below[0];
    topic.results_by_partition.iter().map(|one| one.partition_error_code).collect()
}

async fn produce(client: &mut Client, producer: Producer, partition: i32, sequence: i32) -> i16 {
    let batch = NewBatch {
        attributes: 0x10,
        producer_id: producer.0,
        producer_epoch: producer.1,
        base_sequence: sequence,
        timestamp: 1,
        records: &[(None, Some(b"x"))],
    };
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.encode()));
    let topic = TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_transactional_id(Some(id())).with_acks(-1);
    let answer = client.call(9, &request.with_topic_data(vec![topic])).await;
    answer.responses[0].partition_responses[0].error_code
}

async fn end(client: &mut Client, producer: Producer, commit: bool) -> i16 {
    end_by(client, 3, producer, commit).await
}

async fn end_by(client: &mut Client, version: i16, producer: Producer, commit: bool) -> i16 {
    let request = EndTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_committed(commit);
    client.call(version, &request).await.error_code
}

/// The last stable offset, and the first offsets of aborted transactions, of a reader of committed data.
async fn committed(client: &mut Client, partition: i32) -> (i64, Vec<i64>) {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(-1)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(TopicName(text("t"))).with_partitions(vec![partition]);
    let request =
        FetchRequest::default().with_isolation_level(1).with_session_epoch(-1).with_max_bytes(1 << 20);
    let answer = client.call(11, &request.with_topics(vec![topic])).await;
    let one = &answer.responses[0].partitions[0];
    let aborted = one.aborted_transactions.iter().flatten().map(|one| one.first_offset).collect();
    (one.last_stable_offset, aborted)
}

fn ready() -> (Cluster, Client) {
    let cluster = cluster(1);
    cluster.create_topic("t", 2).unwrap();
    let client = Client::new(&cluster, 1);
    (cluster, client)
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_seen_and_what_is_aborted_is_named() {
    let (cluster, mut client) = ready();
    let producer = init(&mut client).await;
    assert_eq!(add(&mut client, producer, &[0, 1]).await, [0, 0]);
    assert_eq!(produce(&mut client, producer, 0, 0).await, code::NONE);
    assert_eq!(produce(&mut client, producer, 1, 0).await, code::NONE);
    assert_eq!(committed(&mut client, 0).await, (0, vec![]), "it is open");
    assert_eq!(end(&mut client, producer, true).await, code::NONE);
    assert_eq!(end(&mut client, producer, true).await, code::NONE, "the answer may have been lost");
    assert_eq!(end(&mut client, producer, false).await, code::INVALID_TXN_STATE);
    assert_eq!(committed(&mut client, 0).await, (2, vec![]));
    assert_eq!(add(&mut client, producer, &[0]).await, [0]);
    assert_eq!(produce(&mut client, producer, 0, 1).await, code::NONE);
    assert_eq!(end(&mut client, producer, false).await, code::NONE);
    assert_eq!(committed(&mut client, 0).await, (4, vec![2]));
    assert_eq!(committed(&mut client, 1).await, (2, vec![]), "it took no part");
    assert_eq!(cluster.log("t", 0).len(), 2, "markers are no records");
    assert_eq!(cluster.violations(), []);
}

#[tokio::test(start_paused = true)]
async fn a_second_producer_of_the_same_id_aborts_and_fences_the_first() {
    let (cluster, mut client) = ready();
    let first = init(&mut client).await;
    assert_eq!(add(&mut client, first, &[0]).await, [0]);
    assert_eq!(produce(&mut client, first, 0, 0).await, code::NONE);
    let second = init(&mut client).await;
    assert_eq!((second.0, second.1), (first.0, first.1 + 1));
    assert_eq!(committed(&mut client, 0).await, (2, vec![0]));
    assert_eq!(add(&mut client, first, &[0]).await, [code::PRODUCER_FENCED]);
    assert_eq!(end(&mut client, first, true).await, code::PRODUCER_FENCED);
    assert_eq!(add(&mut client, second, &[0]).await, [0]);
    assert_eq!(produce(&mut client, first, 0, 1).await, code::INVALID_PRODUCER_EPOCH);
    assert_eq!(produce(&mut client, second, 0, 0).await, code::NONE);
    assert_eq!(end(&mut client, second, true).await, code::NONE);
    assert_eq!(cluster.log("t", 0).len(), 2, "the sequence 0 of the second is no duplicate of the first's");
}

/// The same words as Apache Kafka 4.2, which says it to older clients as it was before KIP-588.
#[tokio::test(start_paused = true)]
async fn a_producer_that_was_replaced_is_told_in_the_words_of_its_version() {
    let (_cluster, mut client) = ready();
    let (first, second) = (init(&mut client).await, init(&mut client).await);
    assert_ne!(first, second);
    for version in 0..=5 {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(id()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(if version < 3 { -1 } else { first.0 }))
            .with_producer_epoch(if version < 3 { -1 } else { first.1 });
        let answer = client.call(version, &request).await;
        let said = match version {
            0..3 => code::NONE,
            3 => code::INVALID_PRODUCER_EPOCH,
            _ => code::PRODUCER_FENCED,
        };
        assert_eq!(answer.error_code, said, "InitProducerId v{version}");
        let half = client.call(version, &request.with_producer_epoch(-1)).await.error_code;
        assert_eq!(half, if version < 3 { code::NONE } else { code::INVALID_REQUEST }, "v{version}");
    }
    for version in 0..=4 {
        let said = if version < 2 { code::INVALID_PRODUCER_EPOCH } else { code::PRODUCER_FENCED };
        assert_eq!(end_by(&mut client, version, first, true).await, said, "EndTxn v{version}");
        if version < 4 {
            assert_eq!(
                add_by(&mut client, version, first, &[0]).await,
                [said],
                "AddPartitionsToTxn v{version}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_transaction_holds_is_refused() {
    let (cluster, mut client) = ready();
    let producer = init(&mut client).await;
    assert_eq!(produce(&mut client, producer, 0, 0).await, code::INVALID_TXN_STATE);
    assert_eq!(end(&mut client, producer, true).await, code::INVALID_TXN_STATE, "nothing was begun");
    let unknown = (producer.0 + 7, 0);
    assert_eq!(add(&mut client, unknown, &[0]).await, [code::INVALID_PRODUCER_ID_MAPPING]);
    let some = add(&mut client, producer, &[0, 9]).await;
    assert_eq!(some, [code::OPERATION_NOT_ATTEMPTED, code::UNKNOWN_TOPIC_OR_PARTITION], "all or nothing");
    assert_eq!(produce(&mut client, producer, 0, 0).await, code::INVALID_TXN_STATE);
    assert_eq!(cluster.log("t", 0).len(), 0);
}
