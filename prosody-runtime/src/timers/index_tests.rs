//! What the index does with reads, trims and budgets, case by case.
use super::*;
use prosody_state::{PutTimer, TimerFacts};

const LIMITS: Limits = Limits { resident: 2, page: 1 };

fn index() -> Index {
    from(0)
}

fn from(watermark: u32) -> Index {
    let (topic, committed, incarnation) = ([0; 16], None, 0);
    let row = SegmentRow {
        marked: true,
        topic,
        partitions: 1,
        committed,
        incarnation,
        slab_seconds: 100,
        watermark,
    };
    Index::new(row, Writer(1), 10, LIMITS, Looks::new(0, Duration::from_secs(90)))
}

fn put(index: &mut Index, seconds: u32, now: i64) -> (KeyBatch, Vec<SlabRow>) {
    let facts = TimerFacts { nonce: seconds.into(), slab: 0, trace: Bytes::new() };
    let id = TimerId::application(Time::from_seconds(seconds));
    let mut batch = KeyBatch { put_timers: vec![PutTimer { id, facts }], ..KeyBatch::default() };
    let rows = index.place(&Bytes::from_static(b"k"), &mut batch, now);
    (batch, rows)
}

fn read_to_the_end(index: &mut Index, now: i64) {
    while let Some(Step::Read { until, limit, .. }) = index.next_step(now) {
        index.read(Some(Vec::new()), until, limit);
    }
}

#[test]
fn reading_begins_where_the_past_was_trimmed_and_a_hundred_thousand_timers_are_kept_in_mind() {
    let Some(Step::Read { after, .. }) = from(7).next_step(1_000_000) else { panic!("nothing to read") };
    assert_eq!(after, SlabPosition::start_of(7));
    assert_eq!(Limits::default().resident, 100_000);
}

/// The next step behind looks that find nothing.
fn looked(index: &mut Index, now: i64) -> Option<Step> {
    loop {
        match index.next_step(now) {
            Some(Step::Look { limit, .. }) => index.looked(Some(Vec::new()), limit),
            step => return step,
        }
    }
}

#[test]
fn a_slab_is_not_trimmed_while_the_end_of_a_batch_is_unknown() {
    let (mut index, key) = (index(), Bytes::from_static(b"k"));
    let (batch, rows) = put(&mut index, 150, 0);
    assert_eq!(rows[0].at.slab, 1);
    let late = 2_000_000;
    index.reading = Reading::Yes;
    index.read(Some(Vec::new()), 26, 1);
    assert_eq!(looked(&mut index, late), Some(Step::Trim(1)), "slab 0 is over, slab 1 is in doubt");
    assert_eq!(looked(&mut index, late), None);
    index.lost(&key, &batch, &KeyImage::default());
    assert_eq!(looked(&mut index, late), Some(Step::Delete(vec![rows[0].at.clone()])));
    assert_eq!(looked(&mut index, late), Some(Step::Trim(14)));
    // Whatever the clock says from now on, nothing is put where it was trimmed.
    assert_eq!(put(&mut index, 150, 0).1[0].at.slab, 14);
}

#[test]
fn a_row_that_is_let_go_while_a_page_is_read_is_read_again() {
    let (mut index, key) = (index(), Bytes::from_static(b"k"));
    let batches = [30, 20, 10].map(|seconds| put(&mut index, seconds, 0));
    let Some(Step::Read { after, until, limit }) = index.next_step(0) else { panic!("nothing to read") };
    for (batch, _) in &batches {
        index.applied(&key, batch);
    }
    assert_eq!(index.residents.len(), 2);
    // The page was made before any of them was there.
    index.read(Some(Vec::new()), until, limit);
    assert!(index.cursor < batches[0].1[0].at && index.cursor == after);
}

#[test]
fn retries_and_timers_of_handlers_do_not_take_each_others_room() {
    let mut index = index();
    (index.budget, index.limits.resident) = (1, 100);
    read_to_the_end(&mut index, 0);
    let key = Bytes::from_static(b"k");
    for seconds in [1, 2, 3] {
        let (mut batch, _) = put(&mut index, seconds, 0);
        index.applied(&key, &batch);
        for put in &mut batch.put_timers {
            put.id.kind = TimerKind::DeferredMessage;
        }
        index.applied(&key, &batch);
    }
    let out: Vec<DueTimer> = std::iter::from_fn(|| index.offer(10_000)).collect();
    let kinds: Vec<_> = out.iter().map(|timer| (timer.id.kind, timer.id.time.seconds())).collect();
    assert_eq!(kinds, [(TimerKind::Application, 1), (TimerKind::DeferredMessage, 1)]);
    index.ended(&out[1], TimerEnd::Fired);
    assert_eq!(index.offer(10_000).map(|timer| timer.id.kind), Some(TimerKind::DeferredMessage));
    assert_eq!(index.offer(10_000), None);
    assert_eq!(index.sizes(10_000), (5, 5, Some(Time::from_seconds(1))), "what is out counts");
    assert_eq!(index.sizes(2_999).1, 3, "what is out counts");
    index.ended(&out[0], TimerEnd::Kept);
    assert_eq!(index.offer(1_999), None);
    assert_eq!(index.offer(2_000).map(|timer| timer.id.time.seconds()), Some(2));
}

/// Rows of a former owner come while their page is full, one by one, and are not passed over.
#[test]
fn a_look_goes_on_until_there_are_no_more_rows_and_takes_up_what_is_not_its_own() {
    let mut index = index();
    index.limits.resident = 100;
    read_to_the_end(&mut index, 0);
    let (_, own) = put(&mut index, 10, 0);
    let foreign = |nonce: u64| {
        let at = SlabPosition { nonce, ..own[0].at.clone() };
        SlabRow { at, writer: Writer(2), trace: Bytes::new() }
    };
    assert_eq!(index.next_step(59_999), None);
    let mut asked = Vec::new();
    for page in [vec![own[0].clone()], vec![foreign(20)], vec![foreign(30)], Vec::new()] {
        let Some(Step::Look { after, until: 7, limit: 1 }) = index.next_step(60_000) else {
            panic!("no look")
        };
        asked.push(after.nonce);
        index.looked(Some(page), 1);
    }
    assert_eq!(asked, [0, 10, 20, 30]);
    assert_eq!((index.next_step(89_999), index.next_look()), (None, Some(90_000)));
    let Some(Step::Look { limit, .. }) = index.next_step(90_000) else { panic!("no last look") };
    index.looked(Some(vec![foreign(40)]), limit);
    index.looked(Some(Vec::new()), limit);
    assert_eq!((index.next_step(95_000), index.next_look()), (None, None), "enough until a slab ends");
    let out: Vec<u64> = std::iter::from_fn(|| index.offer(95_000)).map(|timer| timer.nonce).collect();
    assert_eq!(out, [20, 30, 40]);
}
