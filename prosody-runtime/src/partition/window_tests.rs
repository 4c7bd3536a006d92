//! Every event runs once, in the order of its key, within the bounds.

use super::*;
use crate::partition::event::Position;
use crate::partition::offset_map::OffsetMap;
use bytes::Bytes;
use proptest::prelude::*;
use prosody_state::{Time, TimerId, Writer};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// Keys of records to push; `None` is a record that is skipped.
    Push(Vec<Option<u8>>),
    /// A timer of a key is due.
    Fire(u8),
    Finish(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![4 => (0..12u8).prop_map(Some), 2 => Just(Some(0)), 1 => Just(None)];
    prop_oneof![
        2 => prop::collection::vec(key, 0..40).prop_map(Step::Push),
        2 => (0..4u8).prop_map(Step::Fire),
        12 => any::<prop::sample::Index>().prop_map(Step::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_runs_once_in_order_of_its_key_within_the_bounds(
        max in 1..20usize,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), max, 7);
        let mut next = 0i64;
        let mut last: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        // Each key's timers, with the first offset that was not read when they became due.
        let mut timers: BTreeMap<Vec<u8>, VecDeque<(u32, i64)>> = BTreeMap::new();
        let (mut out, mut ready, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Push(keys) => {
                    let mut records = Vec::new();
                    for key in keys.into_iter().take(window.room()) {
                        if let Some(key) = key {
                            records.push(Record::test(next, &format!("k{key}"), Some("1")));
                            unfinished.push(next);
                        }
                        next += 1;
                    }
                    prop_assert_eq!(window.push(&mut records, next, 0), Dropped::default());
                    window.admit(&mut ready);
                }
                Step::Fire(key) => {
                    let key = format!("k{key}").into_bytes();
                    let due = due_timer(&key, number);
                    timers.entry(key).or_default().push_back((number, next));
                    prop_assert!(window.fire(due, &mut ready));
                }
                Step::Finish(which) if !out.is_empty() => {
                    let Admitted { slot, event, .. } = out.swap_remove(which.index(out.len()));
                    unfinished.retain(|offset| Some(*offset) != event.ticket().map(Ticket::offset));
                    window.finish(slot, event.ticket(), Ending::Done, &mut ready);
                }
                Step::Finish(_) => {}
            }
            for admitted in ready.drain(..) {
                let Admitted { event, .. } = &admitted;
                let key = event.key().to_vec();
                prop_assert!(out.iter().all(|other: &Admitted| other.event.key() != key.as_slice()));
                let waits = timers.entry(key.clone()).or_default();
                match event.position() {
                    Position::Offset(offset) => {
                        prop_assert!(last.insert(key, offset).is_none_or(|last| last < offset));
                        prop_assert!(waits.iter().all(|(_, read)| offset < *read), "a timer came before it");
                    }
                    Position::Due(time) => {
                        prop_assert_eq!(waits.pop_front().map(|(number, _)| number), Some(time));
                    }
                }
                out.push(admitted);
            }
            let messages = out.iter().filter(|admitted: &&Admitted| admitted.event.is_message()).count();
            prop_assert_eq!(window.out(), out.len());
            prop_assert!(messages <= max && window.keys.in_progress() <= max);
            prop_assert!(window.prepared.len() + window.keys.parked() <= LOOK_AHEAD);
            prop_assert_eq!(window.offsets().watermark(), unfinished.first().copied().unwrap_or(next));
            // Nothing sleeps while there is room: either the window is full or nothing is prepared.
            prop_assert!(window.keys.in_progress() == max || window.prepared.is_empty());
        }
        while let Some(Admitted { slot, event, .. }) = out.pop() {
            if let Position::Due(_) = event.position() {
                timers.entry(event.key().to_vec()).or_default().pop_front();
            }
            window.finish(slot, event.ticket(), Ending::Done, &mut out);
        }
        prop_assert_eq!((window.offsets().watermark(), window.offsets().outstanding()), (next, 0));
    }
}

fn due_timer(key: &[u8], number: u32) -> DueTimer {
    let id = TimerId::application(Time::from_seconds(number));
    DueTimer { key: Bytes::copy_from_slice(key), id, nonce: 1, slab: 0, writer: Writer(1) }
}

fn filled(records: usize) -> (Window, Vec<Admitted>) {
    let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
    let mut out = Vec::new();
    let mut batch =
        (0..records).map(|at| Record::test(at as i64, &format!("k{}", at % 3), Some("1"))).collect();
    window.push(&mut batch, records as i64, 0);
    window.admit(&mut out);
    (window, out)
}

#[test]
fn what_waits_long_lets_go_of_its_batch() {
    let (batch, mut out) = (bytes::Bytes::from(vec![b'k'; 10_000]), Vec::new());
    let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
    let mut records = (0..600).map(|at| Record::in_batch(at, &batch)).collect();
    window.push(&mut records, 600, 0);
    window.admit(&mut out);
    assert_eq!((out.len(), window.prepared.len()), (1, 0), "one key: one is out, the others wait");
    window.age();
    assert!(!batch.is_unique());
    window.age();
    drop(out);
    assert!(batch.is_unique(), "only the record that is out held it");
}

/// A slow handler of large messages: what had waited for a second was copied, and as much was read again.
#[test]
fn copies_of_what_waits_are_bounded_over_all_partitions() {
    let (batch, copies) = (bytes::Bytes::from(vec![b'k'; 10_000]), Copies::bounded(900));
    // Each copy has nine bytes, those of its key.
    let filled = |count: i64| {
        let offsets = Offsets::new(OffsetMap::empty(None, 0), 0);
        let (mut window, mut out) = (Window::new(offsets, 1, 7).within(copies.of_another()), Vec::new());
        let mut records = (0..count).map(|at| Record::in_batch(at, &batch)).collect();
        window.push(&mut records, count, 0);
        window.admit(&mut out);
        (window, out)
    };
    let (mut full, mut out) = filled(121);
    assert!(full.room() > 0);
    full.age();
    assert!(full.room() > 0, "nothing has waited for long");
    full.age();
    assert_eq!(full.room(), 0, "1,080 bytes");
    let (mut other, _out) = filled(10);
    assert!(other.room() > 0, "it has no copies");
    other.age();
    other.age();
    assert_eq!(other.room(), 0, "now it has");
    for _ in 0..29 {
        let one = out.remove(0);
        full.finish(one.slot, one.event.ticket(), Ending::Done, &mut out);
        assert_eq!(full.room(), 0);
    }
    let one = out.remove(0);
    full.finish(one.slot, one.event.ticket(), Ending::Done, &mut out);
    assert!(full.room() > 0 && other.room() > 0, "90 and 9 are left");
    let (mut third, _out) = filled(121);
    third.age();
    third.age();
    assert_eq!(other.room(), 0);
    third.drain();
    assert!(other.room() > 0);
}

#[test]
fn draining_starts_nothing_new_and_keeps_what_waited_uncommitted() {
    let (mut window, mut out) = filled(30);
    assert_eq!(out.len(), 3);
    window.drain();
    let first = out.remove(0);
    window.finish(first.slot, first.event.ticket(), Ending::Done, &mut out);
    assert_eq!((out.len(), window.out()), (2, 2), "its key had more records, none of which may start");
    assert_eq!(window.offsets().watermark(), 1);
    assert_eq!(window.room(), 0);
}

#[test]
fn what_ends_after_the_partition_was_given_up_counts_for_nothing() {
    let (mut window, mut out) = filled(3);
    window.close();
    let first = out.remove(0);
    window.finish(first.slot, first.event.ticket(), Ending::Done, &mut out);
    assert_eq!(window.offsets().watermark(), 0);
}

#[test]
fn a_hot_key_holds_an_eighth_of_the_window_and_others_pass_it() {
    let mut window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 64, 7);
    let mut out = Vec::new();
    let mut batch: Vec<Record> = (0..200).map(|at| Record::test(at, "hot", Some("1"))).collect();
    batch.extend((200..220).map(|at| Record::test(at, &format!("k{at}"), Some("1"))));
    window.push(&mut batch, 220, 0);
    window.admit(&mut out);
    assert_eq!((out.len(), window.keys.in_progress(), window.keys.parked()), (21, 28, 192));
}
