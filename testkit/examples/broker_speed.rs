//! What does the broker itself cost? Batches in, batches out, over pipes, without a client's work.
//!
//! `cargo run --release -p prosody-testkit --example broker_speed` prints records per second for two batch sizes.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement")]

use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, ProduceRequest, RequestHeader, TopicName};
use kafka_protocol::protocol::{Encodable, Request, StrBytes};
use prosody_base::{Doors, PipeStream};
use prosody_testkit::broker::batch::{NewBatch, header};
use prosody_testkit::{Cluster, ClusterConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const VALUE: &[u8] = &[b'x'; 100];
const RECORDS: usize = 2_000_000;

fn frame<R: Request>(version: i16, request: &R) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .encode(&mut frame, R::header_version(version))
        .unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

async fn answer(stream: &mut PipeStream) -> Bytes {
    let length = stream.read_u32().await.unwrap();
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes.into()
}

async fn run(per_batch: usize) {
    let cluster = Cluster::start(ClusterConfig::default(), Doors::simulated(1));
    cluster.create_topic("t", 1).unwrap();
    let topic = || TopicName(StrBytes::from_static_str("t"));
    let records = vec![(Some(&b"key-of-ten"[..]), Some(VALUE)); per_batch];
    let batch = NewBatch {
        attributes: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        timestamp: 1,
        records: &records,
    }
    .encode();
    let data = PartitionProduceData::default().with_records(Some(batch));
    let produce = TopicProduceData::default().with_name(topic()).with_partition_data(vec![data]);
    let produce = frame(9, &ProduceRequest::default().with_acks(-1).with_topic_data(vec![produce]));
    let mut producer = cluster.network().connect("b1:9092").unwrap();
    let mut consumer = cluster.network().connect("b1:9092").unwrap();
    let start = Instant::now();
    let producing = tokio::spawn(async move {
        for _ in 0..RECORDS / per_batch {
            producer.write_all(&produce).await.unwrap();
            answer(&mut producer).await;
        }
    });
    let mut next = 0;
    while (next as usize) < RECORDS / per_batch * per_batch {
        let partition = FetchPartition::default().with_fetch_offset(next).with_partition_max_bytes(1 << 20);
        let fetch = FetchTopic::default().with_topic(topic()).with_partitions(vec![partition]);
        let request = FetchRequest::default().with_max_wait_ms(500).with_min_bytes(1).with_max_bytes(8 << 20);
        consumer
            .write_all(&frame(11, &request.with_session_epoch(-1).with_topics(vec![fetch])))
            .await
            .unwrap();
        let mut bytes = answer(&mut consumer).await;
        // Everything in front of the records of the only partition of a version 11 answer, its topic named "t".
        bytes.advance(4 + 4 + 2 + 4 + 4 + 3 + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4);
        let mut records = bytes.split_to(4).get_u32() as usize;
        while records > 0 {
            let found = header(&bytes).unwrap();
            next = found.base_offset + i64::from(found.last_offset_delta) + 1;
            bytes.advance(found.length);
            records -= found.length;
        }
    }
    producing.await.unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!("{per_batch} records a batch: {:.0} records/s in and out", next as f64 / seconds);
    assert!(cluster.violations().is_empty());
}

#[tokio::main]
async fn main() {
    for per_batch in [10, 1_000] {
        run(per_batch).await;
    }
}
