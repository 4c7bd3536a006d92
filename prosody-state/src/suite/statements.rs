//! Do any statements do what a naive model does? Random traces of two writers over a few keys.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::{
    Committed, DeferredMessage, DeferredTimer, DeleteTimer, EventId, KeyBatch, KeyStore, Last, PutTimer,
    SegmentFacts, SegmentId, SlabPosition, SlabRow, Time, TimerFacts, TimerId, TimerKind, Writer,
};

const KEYS: [&[u8]; 3] = [b"a", b"b", b"\0\xff"];
const SLAB: u32 = 100;

#[derive(Clone, Debug)]
enum Step {
    /// A batch of what may happen, on the version that is there or on one that is not.
    Commit {
        key: usize,
        writer: u8,
        stale: bool,
        parts: Parts,
    },
    SlabPut(Vec<(u8, usize)>),
    SlabDelete(Vec<(u8, usize)>),
    SlabTrim(u8),
    Remember(u8),
    Acquire,
}

#[derive(Clone, Debug)]
struct Parts {
    last: Option<u8>,
    put: Vec<(u8, u8)>,
    delete: Vec<(u8, bool)>,
    append_messages: u8,
    remove_message: Option<prop::sample::Index>,
    append_timers: u8,
    remove_timer: Option<prop::sample::Index>,
    retries: Option<u8>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let index = || prop::option::of(any::<prop::sample::Index>());
    let put = prop::collection::vec((0..8u8, any::<u8>()), 0..3);
    let delete = prop::collection::vec((0..8u8, any::<bool>()), 0..3);
    (prop::option::of(0..9u8), put, delete, 0..3u8, index(), 0..3u8, index(), prop::option::of(0..9u8))
        .prop_map(
            |(last, put, delete, append_messages, remove_message, append_timers, remove_timer, retries)| {
                Parts {
                    last,
                    put,
                    delete,
                    append_messages,
                    remove_message,
                    append_timers,
                    remove_timer,
                    retries,
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let rows = || prop::collection::vec((0..40u8, 0..KEYS.len()), 1..6);
    prop_oneof![
        10 => (0..KEYS.len(), 0..2u8, prop::bool::weighted(0.2), parts())
            .prop_map(|(key, writer, stale, parts)| Step::Commit { key, writer, stale, parts }),
        4 => rows().prop_map(Step::SlabPut),
        2 => rows().prop_map(Step::SlabDelete),
        1 => (0..6u8).prop_map(Step::SlabTrim),
        1 => any::<u8>().prop_map(Step::Remember),
        1 => Just(Step::Acquire),
    ]
}

/// What the model knows of a key: no queue facts, only what is there.
#[derive(Debug, Default)]
struct Key {
    version: u64,
    writer: Writer,
    last: Option<Last>,
    timers: BTreeMap<TimerId, TimerFacts>,
    messages: VecDeque<(u64, DeferredMessage)>,
    timer_queue: VecDeque<(u64, DeferredTimer)>,
    appended: (u64, u64),
    retries: (u32, u32),
}

#[derive(Debug)]
struct Model {
    acquired: SegmentFacts,
    without_offset: u32,
    keys: BTreeMap<usize, Key>,
    rows: BTreeMap<SlabPosition, SlabRow>,
    watermark: u32,
    remembered: BTreeSet<EventId>,
    marked: bool,
}

/// Runs `cases` random traces, each in a segment of its own.
pub async fn any_statements(store: Arc<dyn KeyStore>, cases: u32) {
    let mut runner = TestRunner::deterministic();
    let traces = prop::collection::vec(step(), 1..30);
    for case in 0..cases {
        let trace = traces.new_tree(&mut runner).expect("a trace").current();
        if let Err(what) = play(&*store, case, &trace).await {
            panic!("case {case}: {what}\n{trace:#?}");
        }
    }
}

fn facts() -> SegmentFacts {
    SegmentFacts {
        topic: [1; 16],
        partition: 0,
        partitions: 4,
        committed: None,
        slab_seconds: SLAB,
        now: Time::from_seconds(0),
    }
}

async fn play(store: &dyn KeyStore, case: u32, trace: &[Step]) -> Result<(), String> {
    let segment = SegmentId::new("suite", "statements", "any", i32::try_from(case).unwrap_or(-1));
    let mut model = Model {
        acquired: facts(),
        without_offset: 1,
        keys: BTreeMap::new(),
        rows: BTreeMap::new(),
        watermark: 0,
        remembered: BTreeSet::new(),
        marked: false,
    };
    store.acquire(segment, facts()).await.map_err(|error| error.to_string())?;
    for step in trace {
        match step {
            Step::Commit { key, writer, stale, parts } => {
                commit(store, segment, &mut model, *key, Writer(u128::from(*writer) + 1), *stale, parts)
                    .await?;
            }
            Step::SlabPut(rows) => {
                let rows: Vec<SlabRow> = rows.iter().map(|(at, key)| row(*at, *key)).collect();
                store.slab_put(segment, &rows).await.map_err(|error| error.to_string())?;
                model.rows.extend(rows.into_iter().map(|row| (row.at.clone(), row)));
            }
            Step::SlabDelete(rows) => {
                let rows: Vec<SlabPosition> = rows.iter().map(|(at, key)| row(*at, *key).at).collect();
                store.slab_delete(segment, &rows).await.map_err(|error| error.to_string())?;
                model.rows.retain(|at, _| !rows.contains(at));
            }
            Step::SlabTrim(watermark) => {
                store.slab_trim(segment, (*watermark).into()).await.map_err(|error| error.to_string())?;
                model.watermark = model.watermark.max((*watermark).into());
                model.rows.retain(|at, _| at.slab >= model.watermark);
            }
            Step::Remember(id) => {
                let id = EventId(u128::from(case) << 8 | u128::from(*id));
                store.remember(&[id], Duration::from_secs(3_600)).await.map_err(|error| error.to_string())?;
                model.remembered.insert(id);
            }
            Step::Acquire => {
                let (last, times) = (model.acquired, model.without_offset);
                let partitions = last.partitions + 1;
                let committed = (partitions % 2 == 0).then_some(partitions.into());
                model.acquired = SegmentFacts { partitions, committed, ..last };
                model.without_offset += u32::from(committed.is_none());
                let changed = SegmentFacts { slab_seconds: 7, now: Time::MAX, ..model.acquired };
                let row = store.acquire(segment, changed).await.map_err(|error| error.to_string())?;
                let is = (row.marked, row.slab_seconds, row.watermark);
                same("segment", &is, &(model.marked, SLAB, model.watermark))?;
                let was = (row.partitions, row.committed, row.incarnation);
                same("the last time", &was, &(last.partitions, last.committed, times))?;
            }
        }
        compare(store, segment, &model, case).await?;
    }
    Ok(())
}

fn row(at: u8, key: usize) -> SlabRow {
    let (time, kind) = (Time::from_seconds(u32::from(at % 10) * 40), TimerKind::Application);
    let slab = time.slab(SLAB) + u32::from(at / 20);
    let key = Bytes::from_static(KEYS[key]);
    let at = SlabPosition { slab, id: TimerId { time, kind }, key, nonce: u64::from(at / 10 % 2) };
    SlabRow { at, writer: Writer(9), trace: Bytes::from_static(b"trace") }
}

async fn commit(
    store: &dyn KeyStore,
    segment: SegmentId,
    model: &mut Model,
    at: usize,
    writer: Writer,
    stale: bool,
    parts: &Parts,
) -> Result<(), String> {
    let key = model.keys.entry(at).or_default();
    let batch = batch(key, writer, parts);
    let expected = match key.version {
        version if !stale => version,
        0 => 1,
        version => version - 1,
    };
    let committed = store.commit(segment, KEYS[at], expected, writer, &batch).await;
    match committed.map_err(|error| error.to_string())? {
        Committed::Lost(image) => {
            same("stale", &stale, &true)?;
            return same("the version that is there", &image.version, &key.version);
        }
        Committed::Applied => same("stale", &stale, &false)?,
    }
    model.marked = true;
    (key.version, key.writer) = (key.version + 1, writer);
    key.last = batch.last.or(key.last);
    for gone in &batch.delete_timers {
        key.timers.retain(|id, facts| (*id, facts.nonce) != (gone.id, gone.nonce));
    }
    for put in batch.put_timers {
        key.timers.insert(put.id, put.facts);
    }
    key.messages.retain(|(number, _)| !batch.remove_messages.contains(number));
    for entry in batch.append_messages {
        key.messages.push_back((key.appended.0, entry));
        key.appended.0 += 1;
    }
    key.timer_queue.retain(|(number, _)| !batch.remove_timers.contains(number));
    for entry in batch.append_timers {
        key.timer_queue.push_back((key.appended.1, entry));
        key.appended.1 += 1;
    }
    let retries = (batch.message_retries, batch.timer_retries);
    key.retries = (retries.0.unwrap_or(key.retries.0), retries.1.unwrap_or(key.retries.1));
    Ok(())
}

fn batch(key: &Key, writer: Writer, parts: &Parts) -> KeyBatch {
    let kinds = [TimerKind::Application, TimerKind::DeferredMessage, TimerKind::DeferredTimer];
    let id = |at: u8| TimerId { time: Time::from_seconds((at / 3).into()), kind: kinds[usize::from(at % 3)] };
    let delete = |(at, right): &(u8, bool)| {
        let nonce = key.timers.get(&id(*at)).map_or(0, |facts| facts.nonce) + u64::from(!right);
        DeleteTimer { id: id(*at), nonce, slab: 0 }
    };
    let put = |(at, nonce): &(u8, u8)| {
        let facts = TimerFacts { nonce: (*nonce).into(), slab: 3, trace: Bytes::from_static(b"t") };
        PutTimer { id: id(*at), facts }
    };
    let number = |index: Option<prop::sample::Index>, numbers: Vec<u64>| {
        index.filter(|_| !numbers.is_empty()).map(|index| *index.get(&numbers)).into_iter().collect()
    };
    let last = |offset| Last {
        log: [2; 16],
        leader_epoch: 1,
        offset: i64::from(offset),
        idempotence: 5,
        time: Time::from_seconds(6),
    };
    let message = |n| DeferredMessage { leader_epoch: 0, offset: i64::from(n), writer };
    let timer = |n: u8| DeferredTimer { time: Time::from_seconds(n.into()), trace: Bytes::new() };
    KeyBatch {
        last: parts.last.map(last),
        delete_timers: parts.delete.iter().map(delete).collect(),
        put_timers: parts.put.iter().map(put).collect(),
        append_messages: (0..parts.append_messages).map(message).collect(),
        remove_messages: number(
            parts.remove_message,
            key.messages.iter().map(|(number, _)| *number).collect(),
        ),
        message_retries: parts.retries.map(u32::from),
        append_timers: (0..parts.append_timers).map(timer).collect(),
        remove_timers: number(
            parts.remove_timer,
            key.timer_queue.iter().map(|(number, _)| *number).collect(),
        ),
        timer_retries: parts.retries.map(|retries| u32::from(retries) + 1),
    }
}

async fn compare(store: &dyn KeyStore, segment: SegmentId, model: &Model, case: u32) -> Result<(), String> {
    let nothing = Key::default();
    for (at, key) in KEYS.iter().enumerate() {
        let image = store.load(segment, key).await.map_err(|error| error.to_string())?;
        let known = model.keys.get(&at).unwrap_or(&nothing);
        same("version", &(image.version, image.writer), &(known.version, known.writer))?;
        same("last", &image.last, &known.last)?;
        same("timers", &image.timers, &known.timers)?;
        let deferred: VecDeque<_> = image.deferred_timers.into_iter().collect();
        same("deferred timers", &deferred, &known.timer_queue)?;
        same("retries", &(image.messages.retries, image.timer_queue.retries), &known.retries)?;
        same("counts", &(image.messages.count as usize), &known.messages.len())?;
        same("counts", &(image.timer_queue.count as usize), &known.timer_queue.len())?;
        same("tails", &(image.messages.tail, image.timer_queue.tail), &known.appended)?;
        // From the head on everything is found, in pages, too.
        let (mut from, mut found) = (image.messages.head, VecDeque::new());
        loop {
            let page =
                store.deferred_messages(segment, key, from, 2).await.map_err(|error| error.to_string())?;
            let Some((last, _)) = page.last() else { break };
            from = last + 1;
            found.extend(page);
        }
        same("deferred messages", &found, &known.messages)?;
    }
    let (mut after, mut found) = (SlabPosition::start_of(0), Vec::new());
    loop {
        let page = store.slab_load(segment, &after, 3, 2).await.map_err(|error| error.to_string())?;
        let full = page.len() == 2;
        after = page.last().map_or(after, |row| row.at.clone());
        found.extend(page);
        if !full {
            break;
        }
    }
    let rows: Vec<SlabRow> = model.rows.values().filter(|row| row.at.slab <= 3).cloned().collect();
    same("rows", &found, &rows)?;
    let ids: Vec<EventId> = (0..=255).map(|id| EventId(u128::from(case) << 8 | id)).collect();
    let seen = store.seen(&ids).await.map_err(|error| error.to_string())?;
    let known: Vec<bool> = ids.iter().map(|id| model.remembered.contains(id)).collect();
    same("seen", &seen, &known)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?} and not {should:?}")) }
}
