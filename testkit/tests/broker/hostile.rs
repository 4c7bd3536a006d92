//! Does anything a peer sends take the broker down, or other connections with it?
use crate::common::{Client, cluster};
use kafka_protocol::messages::ApiVersionsRequest;
use proptest::prelude::*;
use prosody_base::Rng;
use prosody_testkit::Cluster;
use prosody_testkit::hostile::{Attack, attack_broker, rows};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn alive(cluster: &Cluster) {
    let answer = Client::new(cluster, 1).call(3, &ApiVersionsRequest::default()).await;
    assert_eq!(answer.error_code, 0);
}

/// Frames, headers, requests and batches of the table of bad inputs. The tests of the client play them too, with the memory
/// of a small process.
#[tokio::test(start_paused = true)]
async fn every_row_for_a_broker_ends_in_its_named_error_and_others_are_served() {
    let mut played = 0;
    for row in rows() {
        let said = match row.attack {
            Attack::Client(bytes) => attack_broker(&bytes).await,
            Attack::ClientBomb(make) => attack_broker(&make()).await,
            _ => continue,
        };
        let said = said.expect_err(row.name);
        assert!(said.contains(row.text), "{}: {said}", row.name);
        played += 1;
    }
    assert!(played >= 60, "{played}");
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
