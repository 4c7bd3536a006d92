//! What happens to versions that are not served?

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use prosody_base::Doors;
use prosody_testkit::{Cluster, ClusterConfig};

use crate::common::{Client, cluster};

#[tokio::test(start_paused = true)]
async fn an_unknown_version_of_api_versions_is_answered_in_the_oldest_format() {
    let cluster = cluster(1);
    let mut client = Client::new(&cluster, 1);
    // API 18, version 99, correlation 5, client id "x", no tags, and a body nobody knows.
    client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 5, 0, 1, b'x', 0, 7, 7, 7]).await;
    let frame = client.frame().await.expect("an answer");
    assert_eq!(&frame[..6], &[0, 0, 0, 5, 0, 35], "correlation 5, error 35");
    let answer = client.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(frame.len(), 4 + 2 + 4 + answer.api_keys.len() * 6, "the list is there too");
}

#[tokio::test(start_paused = true)]
async fn an_old_release_serves_what_it_served() {
    let config = ClusterConfig::default().as_version("2.1");
    let cluster = Cluster::start(config, Doors::simulated(1));
    let mut client = Client::new(&cluster, 1);
    let answer = client.call(2, &ApiVersionsRequest::default()).await;
    let newest = |key| answer.api_keys.iter().find(|api| api.api_key == key).map(|api| api.max_version);
    assert_eq!((newest(1), newest(3), newest(60)), (Some(10), Some(7), None));
    client.send(8, &MetadataRequest::default()).await;
    assert!(client.frame().await.is_none(), "a version that is not served closes the connection");
}

/// Kafka 4.0 dropped what no client since 2.1 asks for (KIP-896).
#[tokio::test(start_paused = true)]
async fn a_current_release_does_not_serve_what_it_dropped() {
    let oldest = async |release: &str| {
        let config = ClusterConfig::default().as_version(release);
        let cluster = Cluster::start(config, Doors::simulated(1));
        let answer = Client::new(&cluster, 1).call(3, &ApiVersionsRequest::default()).await;
        let oldest = |key| answer.api_keys.iter().find(|api| api.api_key == key).map(|api| api.min_version);
        [1, 8, 11, 19, 23].map(|key| oldest(key).expect("an API that is served"))
    };
    let current = oldest("4.2").await;
    assert_eq!(current, [4, 2, 2, 2, 2]);
    assert!(oldest("3.9").await.iter().zip(current).any(|(before, now)| *before < now));
}

/// The header of each API's file says which versions are served.
#[tokio::test(start_paused = true)]
async fn the_first_line_of_each_file_is_true() {
    let cluster = cluster(1);
    let answer = Client::new(&cluster, 1).call(3, &ApiVersionsRequest::default()).await;
    let mut seen = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/broker/api")).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let line = source.lines().next().unwrap();
        let Some((key, rest)) = line.strip_prefix("//! API ").and_then(|rest| rest.split_once(", ")) else {
            continue;
        };
        // Of Produce more is advertised than served.
        let rest = rest.split_once(" served, ").map_or(rest, |(_, advertised)| advertised);
        let mut numbers = rest.split(|one: char| !one.is_ascii_digit()).filter_map(|word| word.parse().ok());
        let low: i16 = numbers.next().expect(line);
        let high = if line.contains("versions ") { numbers.next().expect(line) } else { low };
        let api = answer.api_keys.iter().find(|api| api.api_key.to_string() == key).expect(line);
        assert_eq!((api.min_version, api.max_version), (low, high), "{line}");
        seen += 1;
    }
    assert_eq!(seen, answer.api_keys.len());
}
