//! Do crashes, lost answers and second owners change nothing about the end? A small owner of one key, played step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prosody_base::Clock;

use crate::{
    Category, Committed, DeferredMessage, Fault, Faulty, KeyBatch, KeyImage, KeyStore, Last, Overlay,
    Resolution, SegmentFacts, SegmentId, SlabPosition, SlabRow, StoreError, Time, TimerId, Writer, resolve,
};

const KEY: &[u8] = b"key";
const SLAB: u32 = 100;
/// Messages of the script; each replaces or adds timers, some are deferred.
const MESSAGES: i64 = 6;

fn facts() -> SegmentFacts {
    SegmentFacts {
        topic: [7; 16],
        partition: 0,
        partitions: 1,
        committed: None,
        slab_seconds: SLAB,
        now: Time::from_seconds(0),
    }
}

fn last(offset: i64) -> Last {
    Last { log: [7; 16], leader_epoch: 1, offset, idempotence: 1, time: Time::from_seconds(1) }
}

/// What message `offset` does: a different mix for each.
fn batch_of(image: &KeyImage, offset: i64, writer: Writer) -> KeyBatch {
    let mut overlay = Overlay::new(Arc::new(image.clone()), None);
    let time = |n: i64| Time::from_seconds(u32::try_from(n).unwrap_or(0) * 70);
    let none = Bytes::new();
    if offset % 3 == 2 {
        overlay.clear_and_schedule(time(offset), &none).expect("one timer");
    } else {
        overlay.schedule(time(offset), &none).expect("few timers");
        overlay.schedule(time(offset + 1), &none).expect("few timers");
    }
    if offset % 2 == 1 {
        overlay.unschedule(time(offset - 1));
    }
    // Nonces that two owners never share.
    let mut nonce = u64::try_from(writer.0).unwrap_or(0) << 32 | u64::try_from(offset).unwrap_or(0) << 8;
    let mut batch = overlay.into_batch(|| {
        nonce += 1;
        nonce
    });
    for put in &mut batch.put_timers {
        put.facts.slab = put.id.time.slab(SLAB);
    }
    batch.last = Some(last(offset));
    if offset % 2 == 0 {
        batch.append_messages.push(DeferredMessage { leader_epoch: 1, offset, writer });
    }
    batch
}

fn rows(batch: &KeyBatch, writer: Writer) -> Vec<SlabRow> {
    let row = |put: &crate::PutTimer| {
        let (slab, nonce) = (put.facts.slab, put.facts.nonce);
        let at = SlabPosition { slab, id: put.id, key: Bytes::from_static(KEY), nonce };
        SlabRow { at, writer, trace: Bytes::new() }
    };
    batch.put_timers.iter().map(row).collect()
}

/// Processes the messages from the first one on, as after a restart without a committed offset.
async fn own(store: &dyn KeyStore, segment: SegmentId, writer: Writer) -> Result<(), StoreError> {
    retried(|| store.acquire(segment, facts())).await?;
    let mut image = retried(|| store.load(segment, KEY)).await?;
    for offset in 0..MESSAGES {
        if image.is_done(&last(offset), std::time::Duration::MAX) {
            continue;
        }
        let batch = batch_of(&image, offset, writer);
        let new = rows(&batch, writer);
        retried(|| store.slab_put(segment, &new)).await?;
        loop {
            match store.commit(segment, KEY, image.version, writer, &batch).await {
                Ok(Committed::Applied) => {}
                Ok(Committed::Lost(_)) => panic!("nobody else writes"),
                Err(error) if error.category() == Category::Transient => {
                    let found = retried(|| store.load(segment, KEY)).await?;
                    match resolve(image.version, writer, &found) {
                        Resolution::Applied => {}
                        Resolution::SendAgain => continue,
                        Resolution::Conflict => panic!("nobody else writes"),
                    }
                }
                Err(error) => return Err(error),
            }
            break;
        }
        image.apply(&batch, writer);
        let gone: Vec<SlabPosition> = batch
            .delete_timers
            .iter()
            .map(|gone| SlabPosition {
                slab: gone.slab,
                id: gone.id,
                key: Bytes::from_static(KEY),
                nonce: gone.nonce,
            })
            .collect();
        retried(|| store.slab_delete(segment, &gone)).await?;
    }
    Ok(())
}

async fn retried<'a, T>(statement: impl Fn() -> crate::StoreFuture<'a, T>) -> Result<T, StoreError> {
    for _ in 0..3 {
        match statement().await {
            Err(error) if error.category() == Category::Transient => {}
            answer => return answer,
        }
    }
    statement().await
}

/// What a user can tell: no versions, nonces and writers.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    last: Option<Last>,
    timers: Vec<TimerId>,
    messages: BTreeMap<u64, i64>,
    batches: u64,
}

async fn look(store: &dyn KeyStore, segment: SegmentId) -> Seen {
    let image = store.load(segment, KEY).await.expect("a record");
    let messages = store.deferred_messages(segment, KEY, 0, 100).await.expect("messages");
    // Every pending timer has its row.
    let rows = store.slab_load(segment, &SlabPosition::start_of(0), u32::MAX, 1_000).await.expect("rows");
    for (id, facts) in &image.timers {
        let has_row =
            rows.iter().any(|row| (row.at.id, row.at.nonce, row.at.slab) == (*id, facts.nonce, facts.slab));
        assert!(has_row, "{id:?} is pending and no row says so: it would never fire");
    }
    Seen {
        last: image.last,
        timers: image.timers.into_keys().collect(),
        messages: messages.into_iter().map(|(number, entry)| (number, entry.offset)).collect(),
        batches: image.version,
    }
}

/// A crash before or after any statement, an error or a lost answer: the next owner comes to the same end.
pub async fn crash_anywhere(store: Arc<dyn KeyStore>, clock: &Clock) {
    let segment = |name: &str, at| SegmentId::new("suite", "crash", name, at);
    own(&*store, segment("none", 0), Writer(1)).await.expect("no faults");
    let whole = look(&*store, segment("none", 0)).await;
    assert_eq!(whole.batches, MESSAGES.unsigned_abs());
    let faults = [
        ("fail", Fault::Fail),
        ("time-out", Fault::ApplyThenTimeOut),
        ("crash-before", Fault::Hang),
        ("crash-after", Fault::ApplyThenHang),
    ];
    for (name, fault) in faults {
        for at in 0.. {
            let count = Arc::new(AtomicU64::new(0));
            let hook = {
                let count = Arc::clone(&count);
                move |statement: crate::Statement| {
                    count.store(statement.number, Ordering::Relaxed);
                    if statement.number == at { fault } else { Fault::None }
                }
            };
            let segment = segment(name, i32::try_from(at).expect("few statements"));
            let faulty = Faulty::new(Arc::clone(&store), clock.clone(), Arc::new(hook));
            let patience = clock.now() + std::time::Duration::from_secs(60);
            let crashed = clock.until(patience, own(&faulty, segment, Writer(1))).await.is_err();
            assert!(!crashed || name.starts_with("crash"), "{name} at {at} never ended");
            own(&*store, segment, Writer(2)).await.expect("no faults any more");
            assert_eq!(look(&*store, segment).await, whole, "{name} at statement {at}");
            if count.load(Ordering::Relaxed) < at {
                assert!(at > 15, "the script has only {at} statements");
                break;
            }
        }
    }
}

/// An owner whose steps somebody else decides.
struct Owner {
    writer: Writer,
    image: KeyImage,
    applied: Option<bool>,
}

impl Owner {
    /// The steps are: load, put rows, commit.
    async fn step(&mut self, store: &dyn KeyStore, segment: SegmentId, step: usize) {
        let batch = batch_of(&self.image, self.image.last.map_or(0, |last| last.offset + 1), self.writer);
        match step {
            0 => self.image = store.load(segment, KEY).await.expect("a record"),
            1 => store.slab_put(segment, &rows(&batch, self.writer)).await.expect("rows"),
            _ => {
                let committed = store.commit(segment, KEY, self.image.version, self.writer, &batch).await;
                self.applied = Some(committed.expect("an answer") == Committed::Applied);
            }
        }
    }
}

/// Every interleaving of two owners' statements: the one whose batch comes second on one version writes nothing.
pub async fn two_owners(store: Arc<dyn KeyStore>) {
    // A one in the mask is a step of the new owner.
    for mask in (0..64u32).filter(|mask| mask.count_ones() == 3) {
        let segment = SegmentId::new("suite", "owners", "two", i32::try_from(mask).expect("small"));
        store.acquire(segment, facts()).await.expect("a segment");
        let owner = |writer| Owner { writer: Writer(writer), image: KeyImage::default(), applied: None };
        let (mut owners, mut steps) = ([owner(1), owner(2)], [0, 0]);
        let (mut commits, mut loaded) = (0u64, [0, 0]);
        for at in 0..6 {
            let who = usize::from(mask >> at & 1 == 1);
            let step = steps[who];
            owners[who].step(&*store, segment, step).await;
            steps[who] += 1;
            match step {
                0 => loaded[who] = commits,
                2 => {
                    let fresh = loaded[who] == commits;
                    assert_eq!(owners[who].applied, Some(fresh), "owner {who} of interleaving {mask:06b}");
                    commits += u64::from(fresh);
                }
                _ => {}
            }
        }
        let image = store.load(segment, KEY).await.expect("a record");
        assert_eq!(
            (image.version, image.last.map(|last| last.offset)),
            (commits, Some(commits.cast_signed() - 1))
        );
    }
}
