//! A user's timer did not fire for hours: an owner that had lost the partition put it where the next one had already read,
//! and that one had ended the same message without writing anything.
use prosody_state::{Committed, PutTimer, SlabRow, TimerFacts};

use super::*;

/// When the timer is due, in seconds after the beginning of a slab.
const DUE: i64 = 300;
/// Seconds after the beginning of that slab: before and after the looks of the new owner, after the timer's time, after the slab's end.
const WHEN: [u64; 4] = [1, 200, 800, 1_400];
/// The slab has been trimmed.
const TOO_LATE: u64 = 2_000;

#[derive(Debug, PartialEq, Eq)]
enum End {
    Refused,
    Fired,
    Pending,
}

struct Late {
    world: Arc<World>,
    begin: i64,
    key: Bytes,
    id: TimerId,
}

impl Late {
    async fn new(due: i64) -> Late {
        let doors = Doors::simulated(1);
        let memory = Arc::new(MemoryStore::new(doors.clock.clone()));
        let world = World::new(doors, Arc::clone(&memory), memory, Arc::default());
        let slab = i64::from(SLAB) * 1_000;
        let rest = slab - world.now() % slab;
        world.doors.clock.sleep(Duration::from_millis(rest.unsigned_abs())).await;
        let begin = world.now();
        let id = TimerId::application(Time::from_unix_millis(begin + due * 1_000));
        Late { world, begin, key: Bytes::from_static(b"a"), id }
    }

    async fn until(&self, seconds: u64) {
        let clock = &self.world.doors.clock;
        let at = self.begin + i64::try_from(seconds).unwrap() * 1_000;
        clock.sleep(Duration::from_millis((at - clock.unix_millis()).max(0).unsigned_abs())).await;
    }

    /// The former owner puts the row and commits its batch at these times, on the record as it was before.
    async fn former(&self, put: u64, commit: u64) -> Committed {
        let World { memory, segment, .. } = &*self.world;
        let facts = TimerFacts { nonce: 7, slab: self.id.time.slab(SLAB), trace: Bytes::new() };
        let at = SlabPosition { slab: facts.slab, id: self.id, key: self.key.clone(), nonce: 7 };
        self.until(put).await;
        memory.slab_put(*segment, &[SlabRow { at, writer: Writer(1), trace: Bytes::new() }]).await.unwrap();
        self.until(commit).await;
        let batch = prosody_state::KeyBatch {
            put_timers: vec![PutTimer { id: self.id, facts }],
            ..Default::default()
        };
        memory.commit(*segment, &self.key, 0, Writer(1), &batch).await.unwrap()
    }

    fn send(&self, owner: &Running, key: Bytes, times: Vec<Time>) {
        let message = Message { offset: 1, key, clear: false, times, unschedule: None };
        self.world.unfinished.lock().unwrap().insert(1, message.clone());
        assert!(owner.send.try_send(Event::Message(message)).is_ok());
    }

    async fn is_pending(&self) -> bool {
        let image = self.world.memory.load(self.world.segment, &self.key).await.unwrap();
        image.timers.contains_key(&self.id)
    }

    async fn end(&self, committed: Committed) -> End {
        match committed {
            Committed::Lost(_) => End::Refused,
            Committed::Applied if self.is_pending().await => End::Pending,
            Committed::Applied => End::Fired,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_former_owner_puts_late_fires_or_is_refused_at_every_interleaving() {
    for (at, put) in WHEN.into_iter().enumerate() {
        for commit in WHEN[at..].iter().copied().chain([TOO_LATE]) {
            let late = Late::new(DUE).await;
            let _owner = late.world.start(2).await;
            let committed = late.former(put, commit).await;
            if commit == 1 {
                late.until(302).await;
                assert!(!late.is_pending().await, "it is found in time");
            }
            late.until(3 * 3_600).await;
            let end = late.end(committed).await;
            // Whoever judged the row first wins: the batch, or the new owner that finds no timer for it.
            let refused =
                [(1, 800), (1, 1_400), (1, TOO_LATE), (200, TOO_LATE), (800, TOO_LATE), (1_400, TOO_LATE)];
            let expected = if refused.contains(&(put, commit)) { End::Refused } else { End::Fired };
            assert_eq!(end, expected, "put at {put} s, committed at {commit} s");
            assert!(late.world.problems.lock().unwrap().is_empty());
        }
    }
}

/// Timers were overdue by up to half a minute more when their owner had something to delete before it looked again, and
/// until their slab was trimmed when handlers of the former owner had gone on for longer than the look waited.
#[tokio::test(start_paused = true)]
async fn a_late_timer_is_overdue_until_a_former_owner_has_stopped_and_no_longer() {
    // It is put, the new owner deletes another one, it is found.
    for (put, busy, found) in [(20, 45, 60), (70, 90, 105)] {
        let late = Late::new(10).await;
        let owner = late.world.start(2).await;
        assert_eq!(late.former(put, put).await, Committed::Applied);
        late.until(busy).await;
        late.send(&owner, Bytes::from_static(b"b"), vec![Time::from_unix_millis(late.begin)]);
        late.until(found - 1).await;
        assert!(late.is_pending().await, "put at {put} s");
        late.until(found + 1).await;
        assert!(!late.is_pending().await, "put at {put} s, it is found after {found} s");
    }
}

/// What docs/adr/0014 leaves: a process that stood still, between two of its statements, for longer than the slab was there.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_slab_was_trimmed_fires_when_its_key_is_loaded() {
    let late = Late::new(DUE).await;
    let owner = late.world.start(2).await;
    let committed = late.former(TOO_LATE, TOO_LATE).await;
    late.until(3_600).await;
    assert_eq!(late.end(committed).await, End::Pending);
    late.send(&owner, late.key.clone(), Vec::new());
    late.until(3_602).await;
    assert!(!late.is_pending().await);
}
