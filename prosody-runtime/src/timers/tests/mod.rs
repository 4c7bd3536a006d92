//! A partition's timers over a store that fails, through crashes and handovers, on a paused clock.
//!
//! `Life` is what the partition will be: it runs one event at a time, judges a due timer by its key's record and commits
//! with the version it knows. A life may go on as a zombie when the next one has begun.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use prosody_base::{Doors, Lane, Rng, Task};
use prosody_state::{
    Fault, Faulty, KeyImage, KeyStore, Last, MemoryStore, Overlay, SegmentFacts, SegmentId, SlabPosition,
    StoreFuture, Time, TimerId, TimerKind, Writer,
};
use tokio::sync::mpsc;

use super::index::Limits;
use super::*;

const SLAB: u32 = 900;
const BUDGET: usize = 2;
/// With the defaults: a session, a shutdown, a statement.
const LATE_FOR: Duration = Duration::from_secs(45 + 30 + 30);
const LIMITS: Limits = Limits { resident: 6, page: 2 };

mod late;
mod life;

use life::Life;

#[derive(Clone, Debug)]
enum Step {
    /// A message of a key that schedules timers at these seconds from now, after clearing or not.
    Message {
        key: u8,
        clear: bool,
        times: Vec<i32>,
        unschedule: Option<prop::sample::Index>,
    },
    Sleep(u32),
    Faults(bool),
    /// The partition gets another owner; the old one is dead, or only believed to be.
    Handover {
        zombie: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let times = prop::collection::vec(
        prop_oneof![2 => -2_000..10, 4 => 0..700, 3 => 0..8_000, 1 => Just(i32::MAX)],
        0..4,
    );
    let message = (0..3u8, prop::bool::weighted(0.2), times, prop::option::of(any::<prop::sample::Index>()));
    prop_oneof![
        6 => message.prop_map(|(key, clear, times, unschedule)| Step::Message { key, clear, times, unschedule }),
        3 => prop_oneof![0..3u32, 0..300u32, 0..5_000u32].prop_map(Step::Sleep),
        1 => any::<bool>().prop_map(Step::Faults),
        1 => any::<bool>().prop_map(|zombie| Step::Handover { zombie }),
    ]
}

/// What a message does, fixed when it is sent.
#[derive(Clone, Debug)]
struct Message {
    offset: i64,
    key: Bytes,
    clear: bool,
    times: Vec<Time>,
    unschedule: Option<prop::sample::Index>,
}

enum Event {
    Message(Message),
    Timer(DueTimer),
}

/// What all lives share.
struct World {
    memory: Arc<MemoryStore>,
    store: Arc<dyn KeyStore>,
    segment: SegmentId,
    doors: Doors,
    faults: Arc<AtomicBool>,
    /// Messages that no life has finished, as Kafka keeps them.
    unfinished: Mutex<BTreeMap<i64, Message>>,
    /// From then on nothing fails and nobody crashes: timers are on time.
    calm_since: Mutex<Option<i64>>,
    problems: Mutex<Vec<String>>,
    fired: AtomicUsize,
}

struct Running {
    send: mpsc::Sender<Event>,
    _tasks: [Task<()>; 2],
}

impl World {
    fn new(
        doors: Doors,
        memory: Arc<MemoryStore>,
        store: Arc<dyn KeyStore>,
        faults: Arc<AtomicBool>,
    ) -> Arc<World> {
        Arc::new(World {
            memory,
            store,
            segment: SegmentId::new("c", "g", "t", 0),
            doors,
            faults,
            unfinished: Mutex::default(),
            calm_since: Mutex::new(None),
            problems: Mutex::default(),
            fired: AtomicUsize::new(0),
        })
    }

    fn now(&self) -> i64 {
        self.doors.clock.unix_millis()
    }

    fn problem(&self, what: String) {
        self.problems.lock().unwrap().push(what);
    }

    async fn retried<'a, T>(&self, statement: impl Fn() -> StoreFuture<'a, T>) -> T {
        loop {
            if let Ok(answer) = statement().await {
                return answer;
            }
            self.doors.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Begins to own the partition.
    async fn start(self: &Arc<World>, number: u128) -> Running {
        let facts = SegmentFacts {
            topic: [1; 16],
            partition: 0,
            partitions: 1,
            committed: None,
            slab_seconds: SLAB,
            now: Time::floor(self.now()),
        };
        let row = self.retried(|| self.store.acquire(self.segment, facts)).await;
        let writer = Writer(number);
        let config =
            TimersConfig { segment: self.segment, writer, max_uncommitted: BUDGET, row, late_for: LATE_FOR };
        let timers = Timers::with_limits(Arc::clone(&self.store), &self.doors, config, LIMITS);
        let (send, mut events) = mpsc::channel(1_000);
        let life = Arc::new(Life {
            send: send.clone(),
            world: Arc::clone(self),
            timers: Arc::clone(&timers),
            writer,
            out: [AtomicUsize::new(0), AtomicUsize::new(0)],
            since: Mutex::new(self.now()),
        });
        let redelivered: Vec<Message> = self.unfinished.lock().unwrap().values().cloned().collect();
        for message in redelivered {
            send.try_send(Event::Message(message)).expect("few messages");
        }
        let offer = {
            let life = Arc::clone(&life);
            move |timer| life.offer(timer)
        };
        let work = async move {
            let mut images = BTreeMap::new();
            while let Some(event) = events.recv().await {
                if !life.run(event, &mut images).await {
                    life.timers.drain();
                    return;
                }
            }
        };
        let spawner = &self.doors.spawner;
        let tasks = [spawner.spawn(Lane::Work, timers.drive(offer)), spawner.spawn(Lane::Work, work)];
        Running { send, _tasks: tasks }
    }
}

fn last(offset: i64) -> Last {
    Last { log: [1; 16], leader_epoch: 0, offset, idempotence: 0, time: Time::from_seconds(0) }
}

impl Message {
    fn batch(&self, image: &KeyImage, rng: &Rng) -> prosody_state::KeyBatch {
        let mut overlay = Overlay::new(Arc::new(image.clone()), None);
        if self.clear {
            overlay.clear();
        }
        let scheduled = overlay.scheduled();
        if let Some(index) = self.unschedule.filter(|_| !scheduled.is_empty()) {
            overlay.unschedule(*index.get(&scheduled));
        }
        for time in &self.times {
            overlay.schedule(*time, &Bytes::new()).expect("few timers");
        }
        let mut batch = overlay.into_batch(|| rng.next_u64());
        // Some are retries of deferred messages: they have a budget of their own.
        if self.offset % 3 == 0 {
            for put in &mut batch.put_timers {
                put.id = TimerId { kind: TimerKind::DeferredMessage, ..put.id };
            }
        }
        batch
    }
}

async fn play(steps: &[Step], seed: u64) -> Result<(), String> {
    let doors = Doors::simulated(seed);
    let memory = Arc::new(MemoryStore::new(doors.clock.clone()));
    let faults = Arc::new(AtomicBool::new(false));
    let hook = {
        let (faults, rng) = (Arc::clone(&faults), doors.rng.fork());
        move |_: prosody_state::Statement| {
            let time = Duration::from_millis(rng.below(3_000));
            match rng.below(10) {
                _ if !faults.load(Ordering::Relaxed) => Fault::None,
                0 | 1 => Fault::Fail,
                2 => Fault::ApplyThenTimeOut,
                3 | 4 => Fault::Delay(time),
                5 | 6 => Fault::ApplyThenDelay(time),
                _ => Fault::None,
            }
        }
    };
    let inner: Arc<dyn KeyStore> = Arc::clone(&memory) as Arc<dyn KeyStore>;
    let store = Arc::new(Faulty::new(inner, doors.clock.clone(), Arc::new(hook)));
    let world = World::new(doors, memory, store, faults);
    let mut number = 1;
    let mut zombies = Vec::new();
    let mut life = world.start(number).await;
    let mut offset = 0;
    for step in steps {
        match step {
            Step::Message { key, clear, times, unschedule } => {
                let now = world.now();
                let times = times.iter().map(|time| Time::from_unix_millis(now + i64::from(*time) * 1_000));
                let message = Message {
                    offset,
                    key: Bytes::copy_from_slice(&[b'a' + key]),
                    clear: *clear,
                    times: times.collect(),
                    unschedule: *unschedule,
                };
                world.unfinished.lock().unwrap().insert(offset, message.clone());
                offset += 1;
                let _ = life.send.try_send(Event::Message(message));
            }
            Step::Sleep(seconds) => {
                world.doors.clock.sleep(Duration::from_secs((*seconds).into())).await;
            }
            Step::Faults(on) => world.faults.store(*on, Ordering::Relaxed),
            Step::Handover { zombie } => {
                number += 1;
                let next = world.start(number).await;
                let old = std::mem::replace(&mut life, next);
                if *zombie {
                    zombies.push(old);
                }
            }
        }
    }
    // The last owner begins when everything heals; zombies may still be there.
    world.faults.store(false, Ordering::Relaxed);
    number += 1;
    let old = std::mem::replace(&mut life, world.start(number).await);
    zombies.push(old);
    world.doors.clock.sleep(Duration::from_secs(120)).await;
    zombies.clear();
    *world.calm_since.lock().unwrap() = Some(world.now());
    // Everything but the timers of 2094 has fired by then, and every slab but theirs is trimmed.
    world.doors.clock.sleep(Duration::from_secs(3 * 3_600)).await;
    world.end(Time::floor(world.now())).await
}

impl World {
    async fn end(&self, now: Time) -> Result<(), String> {
        let mut problems = std::mem::take(&mut *self.problems.lock().unwrap());
        if !self.unfinished.lock().unwrap().is_empty() {
            problems.push(format!("unfinished: {:?}", self.unfinished.lock().unwrap()));
        }
        let rows = self.memory.slab_load(self.segment, &SlabPosition::start_of(0), u32::MAX, 10_000).await;
        let rows = rows.expect("rows");
        for key in [b"a", b"b", b"c"] {
            let image = self.memory.load(self.segment, key).await.expect("a record");
            for (id, facts) in image.timers {
                if id.time <= now {
                    problems.push(format!("lost: {id:?} of {key:?}"));
                }
                let row = |row: &prosody_state::SlabRow| {
                    (row.at.id, row.at.nonce, &row.at.key[..]) == (id, facts.nonce, &key[..])
                };
                if !rows.iter().any(row) {
                    problems.push(format!("a timer of {key:?} without a row: {id:?}"));
                }
            }
        }
        if let Some(row) = rows.iter().find(|row| row.at.slab + 2 < now.slab(SLAB)) {
            problems.push(format!("not trimmed: {row:?} at {now:?}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn no_timer_is_early_lost_or_late_whatever_fails(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        if let Err(what) = runtime.block_on(play(&steps, seed)) {
            return Err(TestCaseError::fail(what));
        }
    }
}
