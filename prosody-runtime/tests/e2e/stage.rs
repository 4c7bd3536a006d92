//! Clients that share a store, and a handler that does what the payloads of its messages say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prosody_base::{Clock, Doors};
use prosody_runtime::{Client, ClientBuilder, Context, Handler, HandlerError, Message, Timer};
use prosody_state::{Fault, Faulty, KeyStore, MemoryStore, Statement};
use prosody_testkit::ClusterConfig;
use prosody_wire::PipeConnector;

use crate::world::World;

/// What a handler saw, and what its calls said.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub seen: Seen,
    /// Milliseconds since the stage was built.
    pub at: i64,
    pub ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    Message(String),
    /// Seconds since the stage was built.
    Timer(i64),
    Listed(Vec<i64>),
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    running: BTreeMap<String, usize>,
    overlaps: usize,
    attempts: BTreeMap<(String, Seen), usize>,
    contexts: Vec<Context>,
}

/// How often each statement of a store was made.
#[derive(Clone, Default)]
pub struct Statements(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Statements {
    /// Of each of these, since the last call.
    pub fn take<const N: usize>(&self, names: [&str; N]) -> [usize; N] {
        let counted = std::mem::take(&mut *self.0.lock().unwrap());
        names.map(|name| counted.get(name).copied().unwrap_or_default())
    }
}

/// A cluster with one clock for all its clients, and their store.
pub struct Stage {
    pub world: World,
    pub store: Arc<dyn KeyStore>,
    pub clock: Clock,
    base: i64,
    seed: Mutex<u64>,
    log: Arc<Mutex<Log>>,
    /// What happens when a timer of a key fires: attempts, separated by `|`.
    on_fire: Arc<Mutex<BTreeMap<(String, i64), String>>>,
}

impl Stage {
    pub fn new(partitions: i32) -> Stage {
        Stage::with(ClusterConfig::default(), partitions)
    }

    pub fn with(config: ClusterConfig, partitions: i32) -> Stage {
        let world = World::with(config, &[("t", partitions), ("dead", 1)]);
        let clock = world.clock.clone();
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let base = clock.unix_millis() / 1_000 * 1_000;
        let (seed, log) = (Mutex::new(100), Arc::default());
        Stage { world, store, clock, base, seed, log, on_fire: Arc::default() }
    }

    /// A process of its own.
    pub fn process(&self) -> (ClientBuilder, Doors) {
        let seed = {
            let mut seed = self.seed.lock().unwrap();
            *seed += 1;
            *seed
        };
        let doors = Doors { clock: self.clock.clone(), ..Doors::simulated(seed) };
        let connector = Arc::new(PipeConnector(self.world.cluster.network()));
        let builder = self.world.builder().store(Arc::clone(&self.store));
        (builder.transport(connector, doors.clone()), doors)
    }

    pub fn client(&self) -> Client {
        self.process().0.build().unwrap()
    }

    /// Says what a timer does when it fires, attempt by attempt.
    pub fn on_fire(&self, key: &str, seconds: i64, script: &str) {
        self.on_fire.lock().unwrap().insert((key.to_owned(), seconds), script.to_owned());
    }

    pub async fn send(&self, client: &Client, key: &str, script: &str) {
        client.send("t", key, format!("{script:?}").as_bytes()).await.unwrap();
    }

    /// A message with an id.
    pub async fn send_as(&self, client: &Client, key: &str, id: &str, script: &str) {
        let payload = serde_json::json!({ "id": id, "do": script }).to_string();
        client.send("t", key, payload.as_bytes()).await.unwrap();
    }

    /// From now on the store fails as `hook` says, and its statements are counted by name.
    pub fn watch_store(&mut self, hook: impl Fn(Statement) -> Fault + Send + Sync + 'static) -> Statements {
        let statements = Statements::default();
        let counted = statements.clone();
        let counting = move |statement: Statement| {
            *counted.0.lock().unwrap().entry(statement.name).or_default() += 1;
            hook(statement)
        };
        self.store = Arc::new(Faulty::new(Arc::clone(&self.store), self.clock.clone(), Arc::new(counting)));
        statements
    }

    /// Milliseconds since the stage was built.
    pub fn now(&self) -> i64 {
        self.clock.unix_millis() - self.base
    }

    pub async fn until_second(&self, seconds: i64) {
        while self.now() < seconds * 1_000 {
            self.clock.sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn handler(&self) -> Player {
        Player {
            log: Arc::clone(&self.log),
            on_fire: Arc::clone(&self.on_fire),
            clock: self.clock.clone(),
            base: self.base,
        }
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.log.lock().unwrap().entries.clone()
    }

    pub fn overlaps(&self) -> usize {
        self.log.lock().unwrap().overlaps
    }

    /// The contexts of all attempts so far.
    pub fn contexts(&self) -> Vec<Context> {
        self.log.lock().unwrap().contexts.clone()
    }

    /// Seconds and keys of timers whose handler returned ok, in order.
    pub fn fired(&self) -> Vec<(i64, String)> {
        let timers = self.entries().into_iter().filter(|entry| entry.ended);
        let timers = timers.filter_map(|entry| match entry.seen {
            Seen::Timer(seconds) => Some((seconds, entry.key)),
            _ => None,
        });
        timers.collect()
    }

    pub fn messages(&self) -> usize {
        let ended = self.entries().into_iter().filter(|entry| entry.ended);
        ended.filter(|entry| matches!(entry.seen, Seen::Message(_))).count()
    }

    pub fn lists(&self) -> Vec<Vec<i64>> {
        let lists = self.entries().into_iter().filter_map(|entry| match entry.seen {
            Seen::Listed(times) => Some(times),
            _ => None,
        });
        lists.collect()
    }
}

/// See [`Stage::handler`].
pub struct Player {
    log: Arc<Mutex<Log>>,
    on_fire: Arc<Mutex<BTreeMap<(String, i64), String>>>,
    clock: Clock,
    base: i64,
}

impl Handler for Player {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        let payload: serde_json::Value = serde_json::from_slice(message.payload())?;
        let script = payload.as_str().or_else(|| payload.get("do")?.as_str()).unwrap_or_default().to_owned();
        self.play(context, message.key(), Seen::Message(script.clone()), &script).await
    }

    async fn on_timer(&self, context: Context, timer: Timer) -> Result<(), HandlerError> {
        let time = timer.time.duration_since(UNIX_EPOCH)?.as_secs();
        let seconds = i64::try_from(time)? - self.base / 1_000;
        let early = self.clock.unix_millis() - self.base < seconds * 1_000;
        assert!(!early, "a timer of {} is early", timer.key);
        let script = self.on_fire.lock().unwrap().get(&(timer.key.clone(), seconds)).cloned();
        self.play(context, &timer.key, Seen::Timer(seconds), &script.unwrap_or_default()).await
    }
}

/// Leaves the running ones however the attempt ends.
struct Leave<'a>(&'a Mutex<Log>, &'a str);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap().running.get_mut(self.1).unwrap() -= 1;
    }
}

impl Player {
    async fn play(&self, context: Context, key: &str, seen: Seen, script: &str) -> Result<(), HandlerError> {
        let (number, attempt) = {
            let mut log = self.log.lock().unwrap();
            let running = log.running.entry(key.to_owned()).or_default();
            *running += 1;
            let overlap = usize::from(*running > 1);
            log.overlaps += overlap;
            let attempts = log.attempts.entry((key.to_owned(), seen.clone())).or_default();
            *attempts += 1;
            let attempt = *attempts - 1;
            log.contexts.push(context.clone());
            log.entries.push(self.entry(key, seen));
            (log.entries.len() - 1, attempt)
        };
        let _leave = Leave(&self.log, key);
        let script = script.split('|').nth(attempt).unwrap_or_default();
        for word in script.split_whitespace() {
            self.step(&context, key, word).await?;
        }
        self.log.lock().unwrap().entries[number].ended = true;
        Ok(())
    }

    async fn step(&self, context: &Context, key: &str, word: &str) -> Result<(), HandlerError> {
        let (what, number) = word.split_at(1);
        let number: f64 = number.parse().unwrap_or_default();
        let millis = self.base + (number * 1_000.0) as i64;
        let time = UNIX_EPOCH + Duration::from_millis(u64::try_from(millis)?);
        match what {
            "s" => context.schedule(time).await?,
            "r" => context.clear_and_schedule(time).await?,
            "u" => context.unschedule(time).await?,
            "c" => context.clear_scheduled().await?,
            "l" => {
                let times = context.scheduled()?;
                let base = self.base;
                let seconds = |time: SystemTime| {
                    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap() - base / 1_000
                };
                let listed = Seen::Listed(times.into_iter().map(seconds).collect());
                self.log.lock().unwrap().entries.push(self.entry(key, listed));
            }
            "w" => self.clock.sleep(Duration::from_secs_f64(number)).await,
            "x" => return Err(HandlerError::transient("not now")),
            "p" => return Err(HandlerError::permanent("never")),
            "C" => {
                context.cancelled().await;
                return Err(HandlerError::transient("cancelled"));
            }
            other => panic!("no step {other}"),
        }
        Ok(())
    }

    fn entry(&self, key: &str, seen: Seen) -> Entry {
        Entry { key: key.to_owned(), seen, at: self.clock.unix_millis() - self.base, ended: false }
    }
}
