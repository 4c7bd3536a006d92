//! One owner of the partition: it runs one event at a time and commits with the version it knows.
use prosody_state::{Committed, Firing, Resolution, resolve};

use super::*;

pub(super) struct Life {
    pub(super) world: Arc<World>,
    pub(super) timers: Arc<Timers>,
    pub(super) send: mpsc::Sender<Event>,
    pub(super) writer: Writer,
    pub(super) out: [AtomicUsize; 2],
    /// When timers of this life were committed that were due already.
    pub(super) since: Mutex<i64>,
}

impl Life {
    fn lane(timer: &DueTimer) -> usize {
        usize::from(timer.id.kind != TimerKind::Application)
    }

    pub(super) fn offer(&self, timer: DueTimer) -> bool {
        let now = self.world.now();
        if !timer.id.time.is_due(now) {
            self.world.problem(format!("early: {timer:?} at {now}"));
        }
        let out = &self.out[Life::lane(&timer)];
        if out.fetch_add(1, Ordering::Relaxed) >= BUDGET {
            self.world.problem(format!("{timer:?} is out above the budget"));
        }
        self.send.try_send(Event::Timer(timer)).is_ok()
    }

    fn ended(&self, timer: &DueTimer, end: TimerEnd) {
        self.out[Life::lane(timer)].fetch_sub(1, Ordering::Relaxed);
        self.timers.ended(timer, end, |next| self.offer(next));
    }

    /// Runs an event to its end; `false` when the partition turned out to be somebody else's.
    pub(super) async fn run(&self, event: Event, images: &mut BTreeMap<Bytes, KeyImage>) -> bool {
        let world = &self.world;
        let key = match &event {
            Event::Message(message) => message.key.clone(),
            Event::Timer(timer) => timer.key.clone(),
        };
        if !images.contains_key(&key) {
            let image = world.retried(|| world.store.load(world.segment, &key)).await;
            self.timers.loaded(&key, &image);
            images.insert(key.clone(), image);
        }
        for _ in 0..10 {
            let image = images.get_mut(&key).expect("loaded");
            let mut batch = match &event {
                Event::Timer(timer) if !image.holds(timer.id, timer.nonce) => {
                    if timer.writer == self.writer {
                        self.ended(timer, TimerEnd::Void);
                        return true;
                    }
                    prosody_state::KeyBatch::default()
                }
                Event::Timer(timer) => {
                    self.check_lateness(timer);
                    let firing = Some(Firing::Pending(timer.id));
                    let overlay = Overlay::new(Arc::new(image.clone()), firing);
                    overlay.into_batch(|| world.doors.rng.next_u64())
                }
                Event::Message(message) => {
                    let last = last(message.offset);
                    if image.is_done(&last, Duration::MAX) {
                        world.unfinished.lock().unwrap().remove(&message.offset);
                        return true;
                    }
                    let mut batch = message.batch(image, &world.doors.rng);
                    batch.last = Some(last);
                    batch
                }
            };
            if self.timers.prepare(&key, &mut batch).await.is_err() {
                return false;
            }
            match self.commit(&key, image, &batch).await {
                None => {
                    image.apply(&batch, self.writer);
                    *self.since.lock().unwrap() = world.now();
                    self.timers.applied(&key, &batch);
                    match &event {
                        Event::Message(message) => {
                            world.unfinished.lock().unwrap().remove(&message.offset);
                        }
                        Event::Timer(timer) if batch.delete_timers.is_empty() => {
                            self.ended(timer, TimerEnd::Void);
                        }
                        Event::Timer(timer) => {
                            world.fired.fetch_add(1, Ordering::Relaxed);
                            self.ended(timer, TimerEnd::Fired);
                        }
                    }
                    return true;
                }
                Some(found) => {
                    self.timers.lost(&key, &batch, &found);
                    *image = found;
                }
            }
        }
        false
    }

    /// Commits, whatever it takes; what was found when it is lost.
    async fn commit(
        &self,
        key: &Bytes,
        image: &KeyImage,
        batch: &prosody_state::KeyBatch,
    ) -> Option<KeyImage> {
        let World { store, segment, .. } = &*self.world;
        loop {
            match store.commit(*segment, key, image.version, self.writer, batch).await {
                Ok(Committed::Applied) => return None,
                Ok(Committed::Lost(found)) => return Some(found),
                Err(_) => {
                    let found = self.world.retried(|| store.load(*segment, key)).await;
                    match resolve(image.version, self.writer, &found) {
                        Resolution::Applied => return None,
                        Resolution::SendAgain => {}
                        Resolution::Conflict => return Some(found),
                    }
                }
            }
        }
    }

    /// In a calm time a timer fires within a second of the latest of: its time, the calm, and what ran before it.
    fn check_lateness(&self, timer: &DueTimer) {
        let Some(calm) = *self.world.calm_since.lock().unwrap() else { return };
        let since = timer.id.time.unix_millis().max(calm).max(*self.since.lock().unwrap());
        let late = self.world.now() - since;
        if late > 1_000 {
            self.world.problem(format!("late: {timer:?} by {late} ms"));
        }
    }
}
