//! Mock clusters: what clients of one name share, and clusters whose clock somebody moves. On real threads.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use prosody_runtime::{
    Admin, Client, Context, ErrorKind, Handler, HandlerError, Message, Mode, Options, Timer, VirtualCluster,
};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::Limits;
use tokio::sync::mpsc;

use crate::stage::Stage;
use crate::world::{Diary, Said, World, quick, set};

const MINUTE: Duration = Duration::from_secs(60);

/// Tells of every call, and does what the payload says.
struct Tells {
    time: Option<VirtualCluster>,
    tell: mpsc::UnboundedSender<(String, SystemTime)>,
    failed: Mutex<BTreeSet<String>>,
}

type Told = mpsc::UnboundedReceiver<(String, SystemTime)>;

fn tells(time: Option<&VirtualCluster>) -> (Tells, Told) {
    let (tell, told) = mpsc::unbounded_channel();
    (Tells { time: time.cloned(), tell, failed: Mutex::default() }, told)
}

impl Tells {
    fn now(&self) -> SystemTime {
        self.time.as_ref().map_or(SystemTime::UNIX_EPOCH, VirtualCluster::now)
    }
}

impl Handler for Tells {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        self.tell.send((text.clone(), self.now())).unwrap();
        if text.contains("every ten minutes") {
            context.schedule(self.now() + 10 * MINUTE).await?;
        }
        if text.contains("fails once") && self.failed.lock().unwrap().insert(text) {
            return Err(HandlerError::transient("not now"));
        }
        Ok(())
    }

    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        // Time that a handler takes is none on this clock.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.tell.send(("timer".to_owned(), self.now())).unwrap();
        context.schedule(timer.time + 10 * MINUTE).await
    }
}

fn client(bootstrap: &str, group: &str) -> Client {
    let client = Client::builder().bootstrap_servers([bootstrap]).group_id(group).source_system("tests");
    // A fetch that finds nothing ends after this time; each one is a step of the clock.
    let client = client.subscribed_topics(["t"]).configure(|o| o.poll_interval = Some(MINUTE / 6));
    client.build().unwrap()
}

/// What was told, in order, with whole minutes since `start`.
fn all(told: &mut Told, start: SystemTime) -> Vec<(String, u64)> {
    let next = || told.try_recv().ok();
    let minutes = |at: SystemTime| (at.duration_since(start).unwrap().as_secs_f64() / 60.0).round() as u64;
    std::iter::from_fn(next).map(|(what, at)| (what, minutes(at))).collect()
}

/// Joining, the first message and sending take no time at all on a clock that stands still; timers come one by one, each
/// when its time has come and the one before it has run.
#[tokio::test]
async fn a_virtual_clock_moves_only_when_told_and_past_no_event_that_runs() {
    let time = VirtualCluster::open("virtual-timers").unwrap();
    let client = client("mock://virtual-timers", "g");
    let (handler, mut told) = tells(Some(&time));
    let start = time.now();
    client.subscribe(handler).await.unwrap();
    client.send("t", "a", b"\"every ten minutes\"").await.unwrap();
    assert_eq!(told.recv().await.unwrap().0, "\"every ten minutes\"");
    assert_eq!(time.now(), start);
    time.advance(10 * MINUTE - Duration::from_secs(2)).await;
    assert_eq!(all(&mut told, start), []);
    time.advance(20 * MINUTE + Duration::from_secs(4)).await;
    assert_eq!(all(&mut told, start), [10, 20, 30].map(|minute| ("timer".to_owned(), minute)));
    assert_eq!(time.now(), start + 30 * MINUTE + Duration::from_secs(2));
    client.unsubscribe().await.unwrap();
    assert_eq!(time.now(), start + 30 * MINUTE + Duration::from_secs(2), "stopping takes none, either");
    client.close().await.unwrap();
}

#[tokio::test]
async fn retries_and_remembered_ids_go_by_the_virtual_clock() {
    let time = VirtualCluster::open("virtual-retries").unwrap();
    let start = time.now();
    let client =
        Client::builder().bootstrap_servers(["mock://virtual-retries"]).group_id("g").source_system("s");
    let client = client.subscribed_topics(["t"]).configure(set(&[
        ("PollInterval", "10s"),
        ("DeferBase", "5m"),
        ("IdempotenceTtl", "30m"),
    ]));
    let client = client.build().unwrap();
    let (handler, mut told) = tells(Some(&time));
    client.subscribe(handler).await.unwrap();
    client.send("t", "a", b"{\"id\":\"1\",\"do\":\"fails once\"}").await.unwrap();
    assert!(told.recv().await.unwrap().0.contains("fails once"));
    time.advance(4 * MINUTE).await;
    assert_eq!(all(&mut told, start), []);
    time.advance(2 * MINUTE).await;
    let ran = all(&mut told, start);
    assert!(ran.len() == 1 && ran[0].1 == 5, "{ran:?}");
    for (minutes, runs) in [(20, 0), (20, 1)] {
        time.advance(minutes * MINUTE).await;
        client.send("t", "a", b"{\"id\":\"1\"}").await.unwrap();
        time.advance(Duration::from_secs(1)).await;
        assert_eq!(all(&mut told, start).len(), runs, "after {minutes} minutes more");
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_goes_by_the_machines_clock_gets_no_other() {
    let first = client("mock://not-virtual", "g");
    let error = VirtualCluster::open("not-virtual").unwrap_err().to_string();
    assert!(error.contains("not-virtual") && error.contains("before its first client"), "{error}");
    first.close().await.unwrap();
}

/// Broker and store: what one client sent and stored is there for the next one of the same name, and for no other.
#[tokio::test]
async fn clients_of_one_name_share_broker_and_store_and_others_do_not() {
    let (one, other) = (client("mock://named-one", "g"), client("mock://named-other", "g"));
    let (handler, mut told) = tells(None);
    one.send("t", "a", b"{\"id\":\"1\"}").await.unwrap();
    one.subscribe(handler).await.unwrap();
    assert!(told.recv().await.is_some());
    one.unsubscribe().await.unwrap();
    one.close().await.unwrap();
    let next = client("mock://named-one", "g");
    let ((handler, mut told), (others, mut others_told)) = (tells(None), tells(None));
    next.subscribe(handler).await.unwrap();
    other.subscribe(others).await.unwrap();
    for client in [&next, &other] {
        // A duplicate where the id is known; and then something to wait for.
        client.send("t", "a", b"{\"id\":\"1\"}").await.unwrap();
        client.send("t", "a", b"\"end\"").await.unwrap();
    }
    assert_eq!(told.recv().await.unwrap().0, "\"end\"");
    assert_eq!(others_told.recv().await.unwrap().0, "{\"id\":\"1\"}");
    assert_eq!((next.insight().duplicates, other.insight().duplicates), (1, 0));
    next.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn topics_have_four_partitions_unless_they_were_created_with_another_number() {
    let mut options = Options::default();
    options.bootstrap_servers = Some(vec!["named-topics".into()]);
    let variables = [("PROSODY_MOCK".to_owned(), "true".to_owned())];
    let admin = Admin::new(options, variables).unwrap();
    admin.create_topic("seven", 7, 1).await.unwrap();
    for (topic, partitions) in [("seven", 7), ("four", 4)] {
        let client = Client::builder().mock(true).bootstrap_servers(["named-topics"]).group_id(topic);
        let client = client.subscribed_topics([topic]).build().unwrap();
        let mut assignment = client.assignment();
        client.subscribe(tells(None).0).await.unwrap();
        while assignment.changed().await.unwrap().len() != partitions {}
        client.close().await.unwrap();
    }
    admin.close().await;
}

/// Also those that are only written to. What a real cluster refuses is refused all the same.
#[tokio::test]
async fn topics_are_created_on_demand_and_every_other_check_is_that_of_production() {
    let of = |group: &str, topic: &str| {
        let client = Client::builder().bootstrap_servers(["mock://on-demand"]).group_id(group);
        client.source_system("tests").subscribed_topics([topic])
    };
    let client = of("g", "read").mode(Mode::LowLatency).failure_topic("failed").max_retries(0);
    let client = client.configure(|options: &mut Options| {
        options.set("TelemetryEnabled", "true").unwrap();
        options.set("TelemetryTopic", "events").unwrap();
    });
    let client = client.build().unwrap();
    let (handler, _told) = tells(None);
    client.send("sent-to", "k", b"1").await.unwrap();
    client.subscribe(handler).await.unwrap();
    client.send("read", "k", b"\"fails once\"").await.unwrap();
    for (topic, first) in [("failed", "\"fails once\""), ("sent-to", "1"), ("events", "\"prosody.message.")] {
        let (reader, (handler, mut told)) = (of(topic, topic).build().unwrap(), tells(None));
        reader.subscribe(handler).await.unwrap();
        let text = told.recv().await.unwrap().0;
        assert!(text.contains(first), "{topic}: {text}");
        reader.close().await.unwrap();
    }
    assert_eq!(client.send("no topic", "k", b"1").await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut options = Options::default();
    options.bootstrap_servers = Some(vec!["mock://on-demand".into()]);
    let admin = Admin::new(options, Vec::new()).unwrap();
    for (refused, code) in [
        (admin.create_topic("read", 4, 1).await, "TOPIC_ALREADY_EXISTS"),
        (admin.create_topic("no topic", 4, 1).await, "INVALID_TOPIC_EXCEPTION"),
        (admin.create_topic("none", 0, 1).await, "INVALID_PARTITIONS"),
        (admin.delete_topic("missing").await, "UNKNOWN_TOPIC_OR_PARTITION"),
    ] {
        assert_eq!(refused.unwrap_err().code(), Some(code));
    }
    admin.close().await;
    client.close().await.unwrap();
}

/// On the paused clock, which moves for whatever waits: nothing of joining does for long.
#[tokio::test(start_paused = true)]
async fn the_first_message_comes_within_50_ms_of_subscribing_also_for_the_second_time() {
    let world = World::new(&[("t", 4)]);
    let (client, diary) = (world.client(), Diary::default());
    for round in 1..=3 {
        client.send("t", "k", b"{}").await.unwrap();
        let before = world.clock.now();
        client.subscribe(quick(&diary)).await.unwrap();
        world.until("the message", || diary.ended().len() == round).await;
        let took = world.clock.now() - before;
        assert!(took < Duration::from_millis(50), "round {round}: {took:?}");
        client.unsubscribe().await.unwrap();
    }
    // With the store, and by another client of the group.
    let stage = Stage::new(4);
    for round in 1..=2 {
        let client = stage.client();
        stage.send(&client, "a", "s9000").await;
        let before = stage.now();
        client.subscribe(stage.handler()).await.unwrap();
        stage.world.until("the message", || stage.messages() == round).await;
        assert!(stage.now() - before < 50, "round {round}: {} ms", stage.now() - before);
        client.unsubscribe().await.unwrap();
    }
}

/// What was set aside is in the log alone; a test that sends more than a log keeps would lose it.
#[tokio::test]
async fn a_full_log_keeps_what_is_set_aside() {
    let time = VirtualCluster::open("full-log").unwrap();
    let start = time.now();
    let build = || {
        let client =
            Client::builder().bootstrap_servers(["mock://full-log"]).group_id("g").source_system("s");
        let client =
            client.subscribed_topics(["t"]).configure(set(&[("DeferBase", "5m"), ("Compression", "none")]));
        client.build().unwrap()
    };
    let mut options = Options::default();
    options.bootstrap_servers = Some(vec!["mock://full-log".into()]);
    let admin = Admin::new(options, [("PROSODY_MOCK".to_owned(), "true".to_owned())]).unwrap();
    admin.create_topic("t", 1, 1).await.unwrap();
    admin.close().await;
    let client = build();
    let (handler, mut told) = tells(Some(&time));
    client.subscribe(handler).await.unwrap();
    client.send("t", "a", b"\"fails once\"").await.unwrap();
    assert!(told.recv().await.unwrap().0.contains("fails once"));
    client.close().await.unwrap();
    // Another process, which has nothing in memory.
    let client = build();
    let filler = vec![b'1'; 1_000_000];
    for _ in 0..70 {
        client.send("t", "b", &filler).await.unwrap();
    }
    let (handler, mut told) = tells(Some(&time));
    client.subscribe(handler).await.unwrap();
    time.advance(5 * MINUTE + Duration::from_secs(1)).await;
    let mut ran: Vec<(String, u64)> = all(&mut told, start);
    let others = ran.extract_if(.., |(what, _)| what.starts_with('1')).count();
    assert_eq!(ran, [("\"fails once\"".to_owned(), 5)]);
    assert!((60..68).contains(&others), "the oldest of the others are gone: {others}");
    assert_eq!(client.insight().deferred_gone, 0);
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_log_lets_its_oldest_records_go_with_one_warning() {
    assert_eq!(Limits::default().log_bytes, 64 << 20);
    let (said, _guard) = Said::listen();
    let limits = Limits { log_bytes: 1_000, ..Limits::default() };
    let world = World::with(ClusterConfig { limits, ..ClusterConfig::default() }, &[("t", 1)]);
    for _ in 0..50 {
        world.cluster.append("t", 0, &[(Some(b"k"), Some(&[b'1'; 50]))]).unwrap();
    }
    let log = world.cluster.log("t", 0);
    assert!((3..20).contains(&log.len()), "{}", log.len());
    assert_eq!(log.last().unwrap().offset, 49);
    let text = said.text();
    assert_eq!(text.matches("is full").count(), 1, "{text}");
    assert!(text.contains("t[0]") && text.contains("1000"), "{text}");
}
