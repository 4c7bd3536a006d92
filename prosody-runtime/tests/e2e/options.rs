//! Options that only the Kafka layer reads get there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prosody_runtime::{Client, ErrorKind, HandlerError, Value};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::ApiKey;
use prosody_testkit::broker::batch::NewBatch;
use prosody_testkit::broker::group::MemberView;

use crate::failures::failing;
use crate::world::{Diary, Script, World, quick, send_numbered, set};

/// A client that has handled a message, so everything it does by itself has begun.
async fn at_work(world: &World, pairs: &[(&str, &str)]) -> Client {
    let (client, diary) = (world.builder().configure(set(pairs)).build().unwrap(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    send_numbered(&client, 1, 1).await;
    world.until("a message", || diary.ended().len() == 1).await;
    client
}

#[tokio::test(start_paused = true)]
async fn batches_are_idempotent_and_compressed_as_asked() {
    let value = format!("\"{}\"", "text ".repeat(1_000));
    for (compression, code) in [("", 3), ("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)] {
        let world = World::new(&[("t", 1)]);
        let client = world.builder().configure(set(&[("Compression", compression)])).build().unwrap();
        client.send("t", "k", value.as_bytes()).await.unwrap();
        let batch = world.cluster.batches("t", 0).remove(0);
        let attributes = i16::from_be_bytes([batch[21], batch[22]]);
        let producer = i64::from_be_bytes(batch[43..51].try_into().unwrap());
        assert_eq!((attributes & 7, producer >= 0), (code, true), "{compression}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_chooses_its_partition_as_dotnet_or_java_would() {
    for (partitioner, keys) in [("", [2, 9, 8]), ("crc32", [2, 9, 8]), ("murmur2", [0, 6, 7])] {
        let world = World::new(&[("t", 10)]);
        let client = world.builder().configure(set(&[("Partitioner", partitioner)])).build().unwrap();
        for (key, partition) in ["21", "foobar", "abc"].into_iter().zip(keys) {
            assert_eq!(client.send("t", key, b"{}").await.unwrap().partition, partition, "{partitioner}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_aborted_is_handled_only_on_request() {
    for (isolation, expected) in [("", vec!["2"]), ("read_uncommitted", vec!["1", "2"])] {
        let world = World::new(&[("t", 1)]);
        let records: [(Option<&[u8]>, Option<&[u8]>); 1] = [(Some(b"k"), Some(b"1"))];
        let transactional = NewBatch {
            attributes: 0x10,
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            timestamp: 5,
            records: &records,
        };
        world.cluster.append_batch("t", 0, &transactional).unwrap();
        world.cluster.end_transaction("t", 0, (7, 0), false);
        world.cluster.append("t", 0, &[(Some(b"k"), Some(b"2"))]).unwrap();
        let client = world.builder().configure(set(&[("IsolationLevel", isolation)])).build().unwrap();
        let diary = Diary::default();
        client.subscribe(quick(&diary)).await.unwrap();
        world.until("all committed", || world.committed(0) == Some(3)).await;
        assert_eq!(diary.payloads(), expected, "{isolation}");
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_are_read_from_the_rack_of_the_client() {
    for (rack, broker) in [("", 1), ("b", 2), ("c", 3)] {
        let racks = ["a", "b", "c"].map(str::to_owned).to_vec();
        let world = World::with(ClusterConfig { brokers: 3, racks, ..ClusterConfig::default() }, &[]);
        world.cluster.create_topic_with("t", 1, 3, BTreeMap::new()).unwrap();
        world.cluster.move_leader("t", 0, 1);
        let client = at_work(&world, &[("ClientRack", rack)]).await;
        world.clock.sleep(Duration::from_secs(1)).await;
        world.cluster.clear_journal();
        world.clock.sleep(Duration::from_secs(1)).await;
        let asked: BTreeSet<i32> =
            world.cluster.requests(ApiKey::FETCH).iter().map(|one| one.broker).collect();
        assert_eq!(asked, BTreeSet::from([broker]), "{rack}");
        client.unsubscribe().await.unwrap();
    }
}

/// The members of the group, without their ids.
fn members(world: &World) -> Vec<MemberView> {
    world.cluster.group("g").map(|group| group.members.into_values().collect()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_static_member_stays_in_its_group_when_it_stops() {
    for protocol in ["classic", "consumer"] {
        for (instance, left) in [("", 0), ("i-1", 1)] {
            let world = World::new(&[("t", 1)]);
            let client = at_work(&world, &[("GroupProtocol", protocol), ("GroupInstanceId", instance)]).await;
            let named = members(&world).remove(0).instance;
            assert_eq!(named.as_deref().unwrap_or_default(), instance, "{protocol}");
            client.unsubscribe().await.unwrap();
            assert_eq!(members(&world).len(), left, "{protocol} {instance}");
        }
    }
}

/// Longer than a drain, or the group would go on without members that let their handlers end.
#[tokio::test(start_paused = true)]
async fn a_rebalance_waits_for_longer_than_a_shutdown_takes() {
    for protocol in ["classic", "consumer"] {
        for (shutdown, seconds) in [("30s", 60), ("45s", 60), ("100s", 115)] {
            let world = World::new(&[("t", 1)]);
            let client = at_work(&world, &[("GroupProtocol", protocol), ("ShutdownTimeout", shutdown)]).await;
            let waits = members(&world).remove(0).rebalance_timeout;
            assert_eq!(waits, Duration::from_secs(seconds), "{protocol} {shutdown}");
            client.unsubscribe().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_holds_a_fetch_back_for_the_poll_interval() {
    for (interval, expected) in [("", 80..=110), ("1s", 8..=12)] {
        let world = World::new(&[("t", 1)]);
        let client = at_work(&world, &[("PollInterval", interval)]).await;
        world.clock.sleep(Duration::from_secs(2)).await;
        world.cluster.clear_journal();
        world.clock.sleep(Duration::from_secs(10)).await;
        let fetches = world.cluster.requests(ApiKey::FETCH).len();
        assert!(expected.contains(&fetches), "{interval}: {fetches}");
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_fetched_than_fits_into_the_buffer() {
    // As much again is copied out of it.
    for (size, expected) in [("1MiB", 1_000_000..4_000_000), ("", 10_000_000..22_000_000)] {
        let world = World::new(&[("t", 1)]);
        let value = vec![b'1'; 50_000];
        for _ in 0..400 {
            world.cluster.append("t", 0, &[(Some(b"k"), Some(&value))]).unwrap();
        }
        let settings = [("FetchBufferSize", size), ("MaxUncommitted", "1"), ("ShutdownTimeout", "1s")];
        let client = world.builder().configure(set(&settings)).build().unwrap();
        let (diary, stuck) = (Diary::default(), |_, _| std::future::pending());
        client.subscribe(Script { diary: diary.clone(), play: stuck }).await.unwrap();
        world.clock.sleep(Duration::from_secs(30)).await;
        let metrics = client.metrics();
        let bytes = metrics.samples.iter().filter(|sample| {
            sample.metric.name == "prosody_broker_bytes_total"
                && sample.labels.ends_with(&["received".to_owned()])
        });
        let bytes: f64 =
            bytes.map(|sample| if let Value::Number(bytes) = sample.value { bytes } else { 0.0 }).sum();
        assert!(expected.contains(&(bytes as usize)), "{size}: {bytes}");
        assert_eq!(diary.started().len(), 1, "MaxUncommitted");
        client.unsubscribe().await.unwrap();
    }
}

/// It is copied out of its batch, or a few messages that always fail would fill the buffer.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_retry_takes_no_room_of_the_buffer() {
    let world = World::new(&[("t", 1)]);
    let value = vec![b'1'; 60_000];
    for n in 0..60 {
        world.cluster.append("t", 0, &[(Some(format!("key-{n}").as_bytes()), Some(&value))]).unwrap();
    }
    let settings = [("FetchBufferSize", "1MiB"), ("RetryBase", "1h"), ("MaxRetryDelay", "1h")];
    let client = world.builder().configure(set(&settings)).build().unwrap();
    let diary = Diary::default();
    let fail = || Err(HandlerError::transient("not now"));
    client.subscribe(failing(&diary, usize::MAX, |call| call.offset < 30, fail)).await.unwrap();
    world.until("those behind them", || diary.ended().len() == 30).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_looked_for_as_long_as_subscribe_timeout_says() {
    let world = World::new(&[("t", 1)]);
    world.cluster.stop_broker(1);
    let client = world.builder().configure(set(&[("SubscribeTimeout", "5s")])).build().unwrap();
    let start = world.clock.now();
    let refused = client.subscribe(quick(&Diary::default())).await.unwrap_err();
    let took = world.clock.now() - start;
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    assert!((4..=6).contains(&took.as_secs()), "{took:?}");
}
