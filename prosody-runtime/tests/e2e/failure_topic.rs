//! What goes to the failure topic, what it looks like there, and what happens while it cannot be written.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use prosody_runtime::{
    Client, ClientBuilder, Context, ErrorClass, ErrorKind, Handler, HandlerError, Message, Mode,
};
use prosody_testkit::broker::batch::Record;
use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};
use prosody_wire::{ClientConfig, PipeConnector};

use crate::failures::failing;
use crate::world::{Call, Diary, Script, World, quick, send_numbered};

fn low_latency(world: &World) -> ClientBuilder {
    world.builder().mode(Mode::LowLatency).failure_topic("dead")
}

fn world() -> World {
    World::new(&[("t", 1), ("dead", 1)])
}

/// The values of a record's headers of that name.
fn header(record: &Record, name: &str) -> Vec<String> {
    let named = record.headers.iter().filter(|(key, _)| key == name.as_bytes());
    named
        .map(|(_, value)| String::from_utf8_lossy(value.as_deref().unwrap_or(b"(null)")).into_owned())
        .collect()
}

/// Sends a record with headers of any kind.
pub async fn send_raw(world: &World, record: OutgoingRecord<'_>) {
    let connector = Arc::new(PipeConnector(world.cluster.network()));
    let seeds = world.cluster.bootstrap();
    let client = ClientConfig::new(seeds.split(','));
    let client = prosody_wire::Client::new(client, connector, Doors::simulated(77)).unwrap();
    Producer::new(&client, ProducerConfig::default()).send(record, None).await.unwrap();
}

fn always(diary: &Diary, error: fn() -> HandlerError) -> impl Handler {
    failing(diary, usize::MAX, |_| true, move || Err(error()))
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_there_as_it_was_sent_with_where_it_came_from_and_why() {
    let world = world();
    let headers: [(&[u8], Option<&[u8]>); 6] = [
        (b"traceparent", Some(b"00-1-2-3")),
        (b"twice", Some(b"1")),
        (b"twice", None),
        (b"\xff\x00", Some(b"\xfe")),
        (b"source-system", Some(b"the sender")),
        (b"source-topic", Some(b"an earlier one")),
    ];
    let sent = OutgoingRecord {
        topic: "t",
        partition: Some(0),
        key: Some(b"key"),
        value: Some(b"{\"n\": 1}"),
        headers: &headers,
        timestamp: Some(1_700_000_000_123),
    };
    send_raw(&world, sent).await;
    let (client, diary) = (low_latency(&world).build().unwrap(), Diary::default());
    client.subscribe(always(&diary, || HandlerError::transient("the database is away"))).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    assert_eq!(diary.started().len(), 4, "three retries are four attempts");
    let log = world.cluster.log("dead", 0);
    assert_eq!(log.len(), 1);
    let record = &log[0];
    assert_eq!(
        (record.key.as_deref(), record.value.as_deref()),
        (Some(&b"key"[..]), Some(&b"{\"n\": 1}"[..]))
    );
    let kept: Vec<_> = record.headers[..5].iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
    let expected: Vec<_> = headers.into_iter().filter(|(key, _)| *key != b"source-system").collect();
    assert_eq!(kept, expected, "every header of the sender, in order");
    for (name, value) in [
        ("source-system", "tests"),
        ("source-kind", "message"),
        ("source-partition", "0"),
        ("source-offset", "0"),
        ("source-timestamp", "2023-11-14T22:13:20.123Z"),
        ("source-group-id", "g"),
        ("source-error", "the database is away"),
        ("source-attempts", "4"),
    ] {
        assert_eq!(header(record, name), [value], "{name}");
    }
    assert_eq!(header(record, "source-topic"), ["an earlier one", "t"], "the last one counts");
    let insight = client.insight();
    assert_eq!((insight.routed, insight.failed_attempts, insight.given_up), (1, 4, 0));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_goes_there_at_once_and_a_retry_that_succeeds_does_not() {
    for (retries, class, attempts, routed) in [
        (3, ErrorClass::Permanent, 10 + 10, 10),
        (0, ErrorClass::Transient, 10 + 10, 10),
        (1, ErrorClass::Transient, 10 + 20, 10),
        (2, ErrorClass::Transient, 10 + 30, 0),
    ] {
        let world = world();
        let (client, diary) = (low_latency(&world).max_retries(retries).build().unwrap(), Diary::default());
        send_numbered(&client, 20, 4).await;
        let handler =
            failing(&diary, 2, |call| call.offset % 2 == 1, move || Err(HandlerError::new(class, "no")));
        client.subscribe(handler).await.unwrap();
        world.until("committed", || world.committed_sum() == 20).await;
        assert_eq!((diary.started().len(), client.insight().routed), (attempts, routed), "{retries}");
        assert!(diary.in_order());
        let log = world.cluster.log("dead", 0);
        let offsets: Vec<_> = log.iter().map(|record| header(record, "source-offset").concat()).collect();
        let mut expected: Vec<_> =
            (0..20).filter(|at| at % 2 == 1 && routed > 0).map(|at| at.to_string()).collect();
        let mut found = offsets.clone();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "each once");
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_any_length_fits() {
    let world = world();
    let (client, diary) = (low_latency(&world).max_retries(0).build().unwrap(), Diary::default());
    send_numbered(&client, 1, 1).await;
    let long = failing(&diary, usize::MAX, |_| true, || panic!("{}", "ż".repeat(100_000)));
    client.subscribe(long).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    let error = header(&world.cluster.log("dead", 0)[0], "source-error").concat();
    assert!(error.len() <= 4_096 && error.len() > 4_000 && error.starts_with("the handler panicked: żż"));
    client.unsubscribe().await.unwrap();
}

/// Fails for a tombstone.
struct NoTombstones;

impl Handler for NoTombstones {
    async fn on_message(&self, _: Context, _: Message) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn on_tombstone(&self, _: Context, _: Message) -> Result<(), HandlerError> {
        Err(HandlerError::permanent("no tombstones"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_stays_one() {
    let world = world();
    world.cluster.append("t", 0, &[(Some(b"k"), None)]).unwrap();
    let client = low_latency(&world).build().unwrap();
    client.subscribe(NoTombstones).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    let log = world.cluster.log("dead", 0);
    assert_eq!((log.len(), log[0].key.as_deref(), log[0].value.as_deref()), (1, Some(&b"k"[..]), None));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_write_is_repeated_and_nothing_is_committed_before_it_is_acknowledged() {
    let world = world();
    let builder = low_latency(&world).max_retries(0).max_concurrency(1);
    let (client, diary) = (builder.build().unwrap(), Diary::default());
    send_numbered(&client, 30, 10).await;
    let refused = Match::api(ApiKey::PRODUCE).topic("dead");
    let rule = world.cluster.control().on(refused, Action::Error(code::INVALID_RECORD));
    let error = || Err(HandlerError::transient("no"));
    client.subscribe(failing(&diary, usize::MAX, |call| call.offset == 3, error)).await.unwrap();
    // A permit is all there is, and the write does not hold it; its key waits, the others go on.
    world.until("the other keys", || diary.ended().len() == 27).await;
    world.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!((world.committed_sum(), diary.ended().len()), (3, 27), "it is neither lost nor passed");
    assert!(client.insight().failed_routes >= 5, "{:?}", client.insight());
    world.cluster.control().lift(rule);
    world.until("committed", || world.committed_sum() == 30).await;
    assert_eq!((diary.started().len(), diary.ended().len()), (30, 29), "the handler ran once");
    assert!(diary.in_order());
    assert_eq!((world.cluster.log("dead", 0).len(), client.insight().routed), (1, 1));
    client.unsubscribe().await.unwrap();
}

/// A client one of whose messages waits for a write that no broker answers.
async fn waiting(world: &World) -> (Client, Diary) {
    let (client, diary) = (low_latency(world).max_retries(0).build().unwrap(), Diary::default());
    send_numbered(&client, 10, 10).await;
    let error = || Err(HandlerError::transient("no"));
    client.subscribe(failing(&diary, usize::MAX, |call| call.offset == 3, error)).await.unwrap();
    world.until("the others", || diary.ended().len() == 9).await;
    (client, diary)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_succeed_ends_with_its_partition_and_the_message_runs_again() {
    let world = world();
    let rule = world.cluster.control().on(Match::api(ApiKey::PRODUCE).topic("dead"), Action::Hang);
    let (client, _) = waiting(&world).await;
    let start = world.clock.now();
    client.unsubscribe().await.unwrap();
    let took = world.clock.now() - start;
    assert!(took < Duration::from_secs(7), "a stuck write does not use the drain up: {took:?}");
    assert_eq!((world.committed_sum(), client.insight().routed), (3, 0));

    world.cluster.control().lift(rule);
    let again = Diary::default();
    client.subscribe(quick(&again)).await.unwrap();
    world.until("committed", || world.committed_sum() == 10).await;
    assert_eq!(again.ended().iter().map(|call| call.offset).collect::<Vec<_>>(), [3]);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutting_down_while_the_cluster_is_away_keeps_its_budget_and_commits_nothing() {
    let world = world();
    let rule = world.cluster.control().on(Match::api(ApiKey::PRODUCE).topic("dead"), Action::Hang);
    let (client, _) = waiting(&world).await;
    world.until("committed", || world.committed_sum() == 3).await;
    for broker in world.cluster.brokers() {
        world.cluster.stop_broker(broker);
    }
    let start = world.clock.now();
    let _ = client.unsubscribe().await;
    let took = world.clock.now() - start;
    assert!(took < Duration::from_secs(30), "{took:?}");
    world.cluster.control().lift(rule);
    for broker in world.cluster.brokers() {
        world.cluster.start_broker(broker);
    }
    assert_eq!(world.committed_sum(), 3, "what is in no topic is not done");
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_ends_before_its_partition_is_given_up() {
    let world = world();
    let slow = Action::Delay(Duration::from_secs(2));
    world.cluster.control().on(Match::api(ApiKey::PRODUCE).topic("dead"), slow);
    let (client, _) = waiting(&world).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((world.committed_sum(), client.insight().routed), (10, 1), "nothing is left to repeat");
    assert_eq!(world.cluster.log("dead", 0).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_fails_while_its_partition_drains_is_left_to_the_next_owner_unless_nothing_can_help() {
    let world = world();
    let (client, diary) = (low_latency(&world).max_retries(0).build().unwrap(), Diary::default());
    send_numbered(&client, 2, 2).await;
    let clock = world.clock.clone();
    let fails_late = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(2)).await;
                Err(if call.offset == 0 {
                    HandlerError::permanent("never")
                } else {
                    HandlerError::transient("no")
                })
            }
        },
    };
    client.subscribe(fails_late).await.unwrap();
    world.until("they run", || diary.started().len() == 2).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((world.committed_sum(), client.insight().routed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn records_that_are_no_messages_go_there_raw_in_every_mode() {
    let records: [(Option<&[u8]>, Option<&[u8]>); 6] = [
        (None, Some(b"{}")),
        (Some(b"\xff\xfe"), Some(b"{}")),
        (Some(b"k"), Some(b"not json")),
        (None, None),
        (Some(b"k"), Some(b"{\"n\":1,\"x\":nope}")),
        (Some(b"k"), Some(b"{\"n\":1}")),
    ];
    for mode in [Mode::Pipeline, Mode::LowLatency, Mode::BestEffort] {
        let world = world();
        world.cluster.append("t", 0, &records).unwrap();
        let rule = world.cluster.control().on(Match::api(ApiKey::PRODUCE).topic("dead"), Action::Hang);
        let (client, diary) =
            (world.builder().mode(mode).failure_topic("dead").build().unwrap(), Diary::default());
        let fail = || Err(HandlerError::transient("wrong shape").unreadable());
        let handler = failing(&diary, usize::MAX, |call| call.payload.contains("nope"), fail);
        client.subscribe(handler).await.unwrap();
        world.clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(world.committed_sum(), 0, "not before they are written");
        world.cluster.control().lift(rule);
        world.until("committed", || world.committed_sum() == 6).await;
        let mut log = world.cluster.log("dead", 0);
        log.sort_by_key(|record| header(record, "source-offset"));
        let found: Vec<_> = log.iter().map(|one| (one.key.as_deref(), one.value.as_deref())).collect();
        assert_eq!(found, records[..5], "{mode:?}");
        for (record, (why, attempts)) in log.iter().zip([
            ("it has no key", "0"),
            ("its key is not UTF-8", "0"),
            ("its payload is not JSON", "0"),
            ("it has no key", "0"),
            ("its payload is not JSON", "1"),
        ]) {
            assert_eq!(header(record, "source-kind"), ["poison"]);
            assert_eq!(header(record, "source-error"), [why]);
            assert_eq!(header(record, "source-attempts"), [attempts]);
        }
        let insight = client.insight();
        assert_eq!((insight.poison, insight.routed, insight.given_up, insight.failed_attempts), (5, 5, 0, 0));
        assert_eq!(diary.payloads(), ["{\"n\":1}"]);
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_do_not_wait_for_each_other() {
    let world = world();
    world.cluster.append("t", 0, &[(None, Some(&b"{}"[..])); 60]).unwrap();
    let slow = Action::Delay(Duration::from_secs(1));
    world.cluster.control().on(Match::api(ApiKey::PRODUCE).topic("dead"), slow);
    let client = low_latency(&world).build().unwrap();
    let start = world.clock.now();
    client.subscribe(quick(&Diary::default())).await.unwrap();
    world.until("committed", || world.committed_sum() == 60).await;
    assert!(world.clock.now() - start < Duration::from_secs(10), "{:?}", world.clock.now() - start);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failure_topic_that_does_not_exist_is_named_with_the_other_missing_ones() {
    let world = World::new(&[("t", 1)]);
    for mode in [Mode::Pipeline, Mode::LowLatency, Mode::BestEffort] {
        let builder = world.builder().mode(mode).failure_topic("dead").subscribed_topics(["t", "missing"]);
        let refused = builder.build().unwrap().subscribe(quick(&Diary::default())).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.topics()),
            (ErrorKind::MissingTopics, ["missing", "dead"].map(str::to_owned).as_slice())
        );
    }
}
