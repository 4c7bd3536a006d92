//! Does anything a peer sends take the broker down, or other connections with it?
use crate::common::{Client, batch, cluster, text};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ApiVersionsRequest, ProduceRequest, TopicName};
use proptest::prelude::*;
use prosody_base::Rng;
use prosody_testkit::Cluster;
use prosody_testkit::broker::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn alive(cluster: &Cluster) {
    let answer = Client::new(cluster, 1).call(3, &ApiVersionsRequest::default()).await;
    assert_eq!(answer.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_request_end_their_connection_only() {
    let cluster = cluster(1);
    let huge = |api: u8, version: u8, body: &[u8]| {
        let flexible: &[u8] = if version >= 3 { &[0] } else { &[] };
        let mut frame = vec![0, api, 0, version, 0, 0, 0, 1, 255, 255];
        frame.extend_from_slice(flexible);
        frame.extend_from_slice(body);
        let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
        bytes.extend(frame);
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("a negative length", vec![255, 255, 255, 255]),
        ("a length over the limit", vec![127, 255, 255, 255]),
        ("an empty frame", vec![0, 0, 0, 0]),
        ("half a header", vec![0, 0, 0, 5, 0, 18, 0, 3, 0]),
        ("an unknown API", huge(99, 0, &[])),
        ("a version that does not exist", huge(3, 77, &[])),
        ("a client id longer than its frame", vec![0, 0, 0, 10, 0, 3, 0, 0, 0, 0, 0, 1, 127, 255]),
        ("a metadata request of two thousand million topics", huge(3, 1, &[127, 255, 255, 255])),
        ("a fetch of as many topics", huge(1, 4, &[&[0; 17][..], &[127, 255, 255, 255]].concat())),
        ("an ApiVersions whose name is endless", huge(18, 3, &[255, 255, 255, 255, 15])),
    ];
    for (what, bytes) in cases {
        let mut stream = cluster.network().connect("b1:9092").unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut rest = Vec::new();
        let ended = crate::common::within(stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok() && rest.is_empty(), "{what}: the connection is closed without an answer");
        alive(&cluster).await;
    }
    let entries = cluster.journal();
    assert!(entries.iter().any(|entry| entry.outcome == Outcome::Undecodable));
    assert!(entries.iter().any(|entry| entry.outcome == Outcome::UnsupportedVersion));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_lies_is_refused_with_its_own_error() {
    let cluster = cluster(1);
    cluster.create_topic("t", 1).unwrap();
    let good = batch(-1, -1, -1, 2);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        bytes
    };
    let cases: [(&str, Vec<u8>, i16); 8] = [
        ("empty", Vec::new(), 2),
        ("cut short", good[..good.len() - 1].to_vec(), 2),
        ("two batches", [&good[..], &good[..]].concat(), 2),
        ("magic 1", changed(16, 1), 87),
        ("a flipped bit", changed(70, 0x55), 2),
        ("a negative count", changed(57, 0x80), 87),
        ("a length of its own", changed(11, 3), 2),
        ("a last offset far away", changed(26, 9), 87),
    ];
    let mut client = Client::new(&cluster, 1);
    for (what, records, expected) in cases {
        let data = PartitionProduceData::default().with_records(Some(records.into()));
        let topic =
            TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![data]);
        let answer =
            client.call(9, &ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, expected, "{what}");
    }
    assert!(cluster.log("t", 0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random bodies behind valid headers: whatever comes of it, the next connection is served.
    #[test]
    fn random_bodies_are_survived(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cluster = cluster(1);
            cluster.create_topic("t", 1).unwrap();
            let rng = Rng::seeded(seed);
            for _ in 0..40 {
                let api = rng.below(61) as u8;
                let mut frame = vec![0, api, 0, rng.below(14) as u8, 0, 0, 0, 1, 255, 255];
                frame.extend((0..rng.below(60)).map(|_| {
                    // Small numbers make plausible counts and lengths.
                    if rng.below(3) == 0 { rng.next_u64() as u8 } else { rng.below(4) as u8 }
                }));
                let mut client = Client::new(&cluster, 1);
                client.send_frame(&frame).await;
                client.stream.shutdown().await.unwrap();
                let mut rest = Vec::new();
                let _ = crate::common::within(client.stream.read_to_end(&mut rest)).await;
            }
            alive(&cluster).await;
        });
    }
}
