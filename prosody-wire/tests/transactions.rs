#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]
//! Do our readers see of a transactional producer what it committed, whole, and nothing it aborted?
//!
//! We have no transactional producer: its requests are written here, and the broker ends the transactions as a
//! coordinator does.

mod common;

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages as m;
use kafka_protocol::protocol::{Encodable, Request, StrBytes};
use prosody_testkit::broker::batch::NewBatch;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher};
use prosody_wire::{IsolationLevel, TopicPartition};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use common::{World, at};

/// Sends one request and drops its answer, which the logs show better.
async fn ask<R: Request>(world: &World, version: i16, request: R) {
    let mut stream = world.cluster.network().connect("b1:9092").unwrap();
    let mut frame = BytesMut::new();
    let head = m::RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    head.encode(&mut frame, R::header_version(version)).unwrap();
    request.encode(&mut frame, version).unwrap();
    let mut bytes = BytesMut::new();
    bytes.put_i32(frame.len() as i32);
    bytes.put_slice(&frame);
    stream.write_all(&bytes).await.unwrap();
    let length = stream.read_i32().await.unwrap();
    stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
}

fn id(name: &'static str) -> m::TransactionalId {
    m::TransactionalId(StrBytes::from_static_str(name))
}

/// A transaction that writes these values to both partitions.
async fn transaction(
    world: &World,
    name: &'static str,
    producer: i64,
    epoch: i16,
    values: &[String],
    commit: bool,
) {
    let topic = m::TopicName(StrBytes::from_static_str("t"));
    let init = m::InitProducerIdRequest::default().with_transactional_id(Some(id(name)));
    ask(world, 2, init.with_transaction_timeout_ms(60_000)).await;
    let all = m::add_partitions_to_txn_request::AddPartitionsToTxnTopic::default().with_name(topic.clone());
    let add = m::AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id(name))
        .with_v3_and_below_producer_id(m::ProducerId(producer))
        .with_v3_and_below_producer_epoch(epoch)
        .with_v3_and_below_topics(vec![all.with_partitions(vec![0, 1])]);
    ask(world, 3, add).await;
    for partition in [0, 1] {
        for (sequence, value) in (0..).zip(values) {
            let batch = NewBatch {
                attributes: 0x10,
                producer_id: producer,
                producer_epoch: epoch,
                base_sequence: sequence,
                timestamp: 1,
                records: &[(None, Some(value.as_bytes()))],
            };
            let data = m::produce_request::PartitionProduceData::default().with_index(partition);
            let data = data.with_records(Some(batch.encode()));
            let topic = m::produce_request::TopicProduceData::default().with_name(topic.clone());
            let produce = m::ProduceRequest::default().with_transactional_id(Some(id(name))).with_acks(-1);
            ask(world, 9, produce.with_topic_data(vec![topic.with_partition_data(vec![data])])).await;
        }
    }
    let end = m::EndTxnRequest::default()
        .with_transactional_id(id(name))
        .with_producer_id(m::ProducerId(producer))
        .with_producer_epoch(epoch);
    ask(world, 3, end.with_committed(commit)).await;
}

#[tokio::test(start_paused = true)]
async fn committed_transactions_are_read_whole_and_aborted_ones_not_at_all() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    let values = |name: &str| -> Vec<String> { (0..3).map(|at| format!("{name}{at}")).collect() };
    // Producer ids and epochs as the broker gives them: ids in order, an epoch more for each start.
    for (at, commit) in (0..).zip([true, false, true]) {
        transaction(&world, "a", 1_000, at, &values(&format!("a{at}-")), commit).await;
        transaction(&world, "b", 1_001, at, &values(&format!("b{at}-")), !commit).await;
    }
    let expected: Vec<String> = ["a0-", "b1-", "a2-"].iter().flat_map(|name| values(name)).collect();
    for partition in [0, 1] {
        assert_eq!(world.cluster.log("t", partition).len(), 18, "all of it is in the log");
        let config = FetchConfig { isolation: IsolationLevel::ReadCommitted, ..FetchConfig::default() };
        let mut reader = Fetcher::new(&world.client, config).open(TopicPartition::new("t", partition), at(0));
        let mut seen = Vec::new();
        let end = world.cluster.log_end("t", partition).unwrap().end;
        let mut next = 0;
        while next < end {
            let FetchItem::Batch(batch) = reader.next().await else { panic!() };
            for record in batch.records() {
                seen.push(String::from_utf8(record.unwrap().value().unwrap().to_vec()).unwrap());
            }
            next = batch.last_offset() + 1;
        }
        assert_eq!(seen, expected);
    }
}
