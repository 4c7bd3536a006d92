//! A cluster and clients on a paused clock, over pipes, all in one thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Clock, Doors};
use prosody_runtime::{Client, ClientBuilder, Context, Handler, HandlerError, Message, Options};
use prosody_testkit::broker::{Cluster, ClusterConfig};
use prosody_wire::PipeConnector;

/// Sets options from text.
pub fn set<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl FnOnce(&mut Options) + 'a {
    move |options| {
        for (name, text) in pairs {
            options.set(name, text).unwrap();
        }
    }
}

pub struct World {
    pub cluster: Cluster,
    pub clock: Clock,
    seed: Mutex<u64>,
}

impl World {
    pub fn new(topics: &[(&str, i32)]) -> World {
        World::with(ClusterConfig::default(), topics)
    }

    pub fn with(config: ClusterConfig, topics: &[(&str, i32)]) -> World {
        let doors = Doors::simulated(1);
        let clock = doors.clock.clone();
        let cluster = Cluster::start(config, doors);
        for (name, partitions) in topics {
            cluster.create_topic(name, *partitions).unwrap();
        }
        World { cluster, clock, seed: Mutex::new(1) }
    }

    /// A process of its own, with the group `g` on topic `t` unless changed.
    pub fn process(&self) -> (ClientBuilder, Doors) {
        let seed = {
            let mut seed = self.seed.lock().unwrap();
            *seed += 1;
            *seed
        };
        let doors = Doors::simulated(seed);
        let builder = Client::builder()
            .bootstrap_servers(self.cluster.bootstrap().split(','))
            .group_id("g")
            .source_system("tests")
            .subscribed_topics(["t"])
            .transport(Arc::new(PipeConnector(self.cluster.network())), doors.clone());
        (builder, doors)
    }

    pub fn builder(&self) -> ClientBuilder {
        self.process().0
    }

    pub fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// Waits until a condition holds, at most two minutes of the run's own time.
    pub async fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        self.until_within(Duration::from_secs(120), what, holds).await;
    }

    pub async fn until_within(&self, time: Duration, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = self.clock.now() + time;
        while !holds() {
            assert!(self.clock.now() < deadline, "waited for {what}");
            self.clock.sleep(Duration::from_millis(5)).await;
        }
    }

    /// What the group committed for a partition of topic `t`.
    pub fn committed(&self, partition: i32) -> Option<i64> {
        let group = self.cluster.group("g")?;
        group.offsets.get(&(Arc::from("t"), partition)).map(|committed| committed.offset)
    }

    /// The text that was committed with the offset of a partition of topic `t`.
    pub fn metadata(&self, partition: i32) -> String {
        let group = self.cluster.group("g").unwrap();
        group.offsets[&(Arc::from("t"), partition)].metadata.clone()
    }

    /// Sum of what was committed for all partitions of topic `t`.
    pub fn committed_sum(&self) -> i64 {
        (0..self.cluster.partitions("t").unwrap()).filter_map(|partition| self.committed(partition)).sum()
    }
}

/// Whether the calls of each key are in offset order, repeated offsets apart.
pub fn in_order(calls: &[Call]) -> bool {
    let mut last: BTreeMap<(i32, &str), i64> = BTreeMap::new();
    calls.iter().all(|call| {
        let last = last.entry((call.partition, &call.key)).or_insert(-1);
        let fits = call.offset >= *last;
        *last = call.offset;
        fits
    })
}

/// What a handler was called with.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub payload: String,
}

/// What handlers did, in order.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    started: Vec<Call>,
    ended: Vec<Call>,
    running: BTreeMap<(i32, String), usize>,
    most_running: usize,
    overlaps: usize,
}

impl Diary {
    pub fn started(&self) -> Vec<Call> {
        self.0.lock().unwrap().started.clone()
    }
    pub fn ended(&self) -> Vec<Call> {
        self.0.lock().unwrap().ended.clone()
    }
    pub fn payloads(&self) -> Vec<String> {
        self.ended().into_iter().map(|call| call.payload).collect()
    }
    pub fn most_running(&self) -> usize {
        self.0.lock().unwrap().most_running
    }
    pub fn overlaps(&self) -> usize {
        self.0.lock().unwrap().overlaps
    }
    /// Whether the calls of each key started in offset order, repeated offsets apart.
    pub fn in_order(&self) -> bool {
        in_order(&self.started())
    }
    fn start(&self, call: &Call) {
        let mut inner = self.0.lock().unwrap();
        inner.started.push(call.clone());
        let same = inner.running.entry((call.partition, call.key.clone())).or_default();
        *same += 1;
        inner.overlaps += usize::from(*same > 1);
        inner.most_running = inner.most_running.max(inner.running.values().sum());
    }
    fn stop(&self, call: Call, ended: bool) {
        let mut inner = self.0.lock().unwrap();
        if let Some(same) = inner.running.get_mut(&(call.partition, call.key.clone())) {
            *same -= 1;
        }
        if ended {
            inner.ended.push(call);
        }
    }
}

/// Removes a call from the diary's running ones however it ends.
struct Leave(Diary, Option<Call>);

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(call) = self.1.take() {
            self.0.stop(call, false);
        }
    }
}

/// A handler made of a function; its calls are written in a diary.
pub struct Script<F> {
    pub diary: Diary,
    pub play: F,
}

impl<F, R> Handler for Script<F>
where
    F: Fn(Context, Call) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        let call = Call {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().to_owned(),
            payload: String::from_utf8_lossy(message.payload()).into_owned(),
        };
        self.diary.start(&call);
        let mut leave = Leave(self.diary.clone(), Some(call.clone()));
        let result = (self.play)(context, call).await;
        let call = leave.1.take().unwrap();
        self.diary.stop(call, result.is_ok());
        result
    }
}

/// A handler that takes `wait` for each message.
pub fn sleepy(diary: &Diary, clock: &Clock, wait: Duration) -> impl Handler {
    let clock = clock.clone();
    Script {
        diary: diary.clone(),
        play: move |_, _| {
            let clock = clock.clone();
            async move {
                clock.sleep(wait).await;
                Ok(())
            }
        },
    }
}

/// A handler that is done at once.
pub fn quick(diary: &Diary) -> impl Handler {
    Script { diary: diary.clone(), play: |_, _| async { Ok(()) } }
}

/// Sends `count` numbered messages over `keys` keys and waits for the acknowledgements.
pub async fn send_numbered(client: &Client, count: usize, keys: usize) {
    let mut sent = Vec::new();
    for number in 0..count {
        let key = format!("key-{}", number % keys);
        sent.push(client.send("t", &key, format!(r#"{{"n":{number}}}"#).as_bytes()));
    }
    for sent in sent {
        sent.await.unwrap();
    }
}

/// What was logged.
#[derive(Clone, Default)]
pub struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    /// Takes down warnings and errors of this thread until the guard is dropped.
    pub fn listen() -> (Said, tracing::subscriber::DefaultGuard) {
        let said = Said::default();
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
        let writer = said.clone();
        let guard = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
        (said, guard)
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
