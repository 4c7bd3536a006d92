//! Logs that end, or have gaps, without records: compaction, transactions.

use std::time::Duration;

use kafka_protocol::messages as m;
use kafka_protocol::protocol::StrBytes;
use prosody_testkit::broker::batch::NewBatch;
use prosody_wire::fetch::{FetchItem, PartitionReader};
use prosody_wire::produce::{Producer, ProducerConfig};

use crate::raw::{ask, text};
use crate::stage::{CLASSIC, PATIENCE, Stage, next, play};

/// FindCoordinator's `key_type` of transactions.
const TRANSACTION: i8 = 1;
const NOT_ONE_OF_THEM: &str = "the log ends elsewhere";

/// Reads until the end of the log; every batch begins where the one before it ended. Offsets and values of the records.
async fn read_to(reader: &mut PartitionReader, end: i64) -> Vec<(i64, String)> {
    let (mut seen, mut at) = (Vec::new(), 0);
    while at < end {
        let FetchItem::Batch(batch) = next(reader).await else { panic!("{NOT_ONE_OF_THEM}") };
        assert!(batch.base_offset() >= at, "{} comes after {at}", batch.base_offset());
        at = batch.last_offset() + 1;
        seen.extend(batch.records().map(|record| {
            let record = record.unwrap();
            (record.offset(), String::from_utf8(record.value().unwrap_or_default().to_vec()).unwrap())
        }));
    }
    seen
}

async fn end(stage: &Stage) -> i64 {
    let admin = stage.client.admin();
    let ends = admin.offsets(&stage.topic, prosody_wire::OffsetAt::Latest, stage.deadline());
    ends.await.unwrap()[&0]
}

/// Polls came back empty for ever at the tail of a compacted partition: the position was put behind the last record, and
/// offsets without records follow it. Here it is put behind the last offset of the batch.
#[test]
fn a_compacted_tail_is_passed() {
    play("compacted", 1, CLASSIC, |stage| async move {
        let settings = [
            ("cleanup.policy", "compact"),
            ("segment.ms", "100"),
            ("min.cleanable.dirty.ratio", "0.001"),
            ("delete.retention.ms", "0"),
        ];
        stage.create(1, &settings).await;
        let producer = Producer::new(&stage.client, ProducerConfig::default());
        let mut round = 0;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            // Batches in which all but the first record are overwritten by the next one.
            let values: Vec<String> = (0..10).map(|n| format!("{round}-{n}")).collect();
            let own = format!("own-{round}");
            let sends: Vec<_> = values
                .iter()
                .enumerate()
                .map(|(n, value)| {
                    let key = if n == 0 { own.as_bytes() } else { b"same" };
                    let record = stage.record(0, value);
                    producer.send(prosody_wire::produce::OutgoingRecord { key: Some(key), ..record }, None)
                })
                .collect();
            for send in sends {
                send.await.unwrap();
            }
            round += 1;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let end = end(&stage).await;
            let seen = read_to(&mut stage.reader(0, 0), end).await;
            // The newest record of every key is there, and the log was compacted.
            assert_eq!(seen.last().map(|one| one.1.clone()), Some(format!("{}-9", round - 1)));
            if (seen.len() as i64) < end {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "the cleaner never ran");
        }
    });
}

/// Endless empty polls at a marker: what a transaction leaves at the end of a log is no record.
/// Here markers are passed, committed records seen and aborted ones not.
#[test]
fn markers_are_passed() {
    play("markers", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let name = m::TransactionalId(text(&stage.topic));
        let topic = m::TopicName(text(&stage.topic));
        let find = m::FindCoordinatorRequest::default()
            .with_key_type(TRANSACTION)
            .with_coordinator_keys(vec![StrBytes::clone(&name.0)]);
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let coordinator = loop {
            // The topic of transactions is created by the first who asks.
            let found = ask(&stage.brokers[0], 4, &find).await.coordinators[0].clone();
            if found.error_code == 0 {
                break format!("{}:{}", found.host, found.port);
            }
            assert!(tokio::time::Instant::now() < deadline, "{found:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let leader = {
            let wanted = m::metadata_request::MetadataRequestTopic::default().with_name(Some(topic.clone()));
            let request = m::MetadataRequest::default().with_topics(Some(vec![wanted]));
            let answer = ask(&stage.brokers[0], 12, &request).await;
            let id = answer.topics[0].partitions[0].leader_id;
            let node = answer.brokers.iter().find(|one| one.node_id == id).unwrap();
            format!("{}:{}", node.host, node.port)
        };
        for (sequence, commit) in [true, false, true, false].into_iter().enumerate() {
            let id = retried(async || {
                let init = m::InitProducerIdRequest::default().with_transactional_id(Some(name.clone()));
                let answer = ask(&coordinator, 2, &init.with_transaction_timeout_ms(60_000)).await;
                (answer.error_code, (answer.producer_id, answer.producer_epoch))
            })
            .await;
            let (producer, epoch) = id;
            retried(async || {
                let all = m::add_partitions_to_txn_request::AddPartitionsToTxnTopic::default();
                let add = m::AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(name.clone())
                    .with_v3_and_below_producer_id(producer)
                    .with_v3_and_below_producer_epoch(epoch)
                    .with_v3_and_below_topics(vec![all.with_name(topic.clone()).with_partitions(vec![0])]);
                let answer = ask(&coordinator, 3, &add).await;
                (answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, ())
            })
            .await;
            let values = [format!("{commit}-{sequence}a"), format!("{commit}-{sequence}b")];
            let batch = NewBatch {
                attributes: 0x10,
                producer_id: producer.0,
                producer_epoch: epoch,
                base_sequence: 0,
                timestamp: 1_700_000_000_000,
                records: &[(None, Some(values[0].as_bytes())), (None, Some(values[1].as_bytes()))],
            };
            let data = m::produce_request::PartitionProduceData::default().with_records(Some(batch.encode()));
            let row = m::produce_request::TopicProduceData::default().with_name(topic.clone());
            let produce = m::ProduceRequest::default()
                .with_transactional_id(Some(name.clone()))
                .with_acks(-1)
                .with_timeout_ms(10_000)
                .with_topic_data(vec![row.with_partition_data(vec![data])]);
            let answer = ask(&leader, 9, &produce).await;
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "{answer:?}");
            retried(async || {
                let end = m::EndTxnRequest::default()
                    .with_transactional_id(name.clone())
                    .with_producer_id(producer)
                    .with_producer_epoch(epoch)
                    .with_committed(commit);
                (ask(&coordinator, 3, &end).await.error_code, ())
            })
            .await;
        }
        // Two records and a marker each; the last marker is the tail.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while end(&stage).await < 12 {
            assert!(tokio::time::Instant::now() < deadline, "{}", end(&stage).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let seen = read_to(&mut stage.reader(0, 0), 12).await;
        let seen: Vec<_> = seen.iter().map(|(offset, value)| (*offset, value.as_str())).collect();
        assert_eq!(seen, [(0, "true-0a"), (1, "true-0b"), (6, "true-2a"), (7, "true-2b")]);
    });
}

/// Asks again while the answer is one that passes: the coordinator is loading, or still writes markers.
async fn retried<T>(what: impl AsyncFn() -> (i16, T)) -> T {
    const PASSES: [i16; 4] = [14, 15, 51, 16];
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (code, answer) = what().await;
        if code == 0 {
            return answer;
        }
        assert!(PASSES.contains(&code) && tokio::time::Instant::now() < deadline, "error {code}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
