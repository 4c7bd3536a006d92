//! Timer calls of attempts over a key, against a set of times.
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::key_batch::DeleteTimer;
use crate::key_image::{DeferredTimer, Writer};

#[derive(Clone, Debug)]
enum Call {
    Schedule(u32),
    Unschedule(u32),
    Clear,
    ClearAndSchedule(u32),
}

#[derive(Clone, Debug)]
struct Attempt {
    calls: Vec<Call>,
    /// Which of the key's timers is firing, if any.
    firing: Option<prop::sample::Index>,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    Ok,
    Permanent,
    /// Nothing of it becomes durable.
    Transient,
    /// The timer that is firing fails and goes to the queue.
    Deferred,
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let call = prop_oneof![
        6 => (0..12u32).prop_map(Call::Schedule),
        3 => (0..12u32).prop_map(Call::Unschedule),
        1 => Just(Call::Clear),
        1 => (0..12u32).prop_map(Call::ClearAndSchedule),
    ];
    let end = prop_oneof![5 => Just(End::Ok), 1 => Just(End::Permanent), 1 => Just(End::Transient), 2 => Just(End::Deferred)];
    (prop::collection::vec(call, 0..10), prop::option::of(any::<prop::sample::Index>()), end)
        .prop_map(|(calls, firing, end)| Attempt { calls, firing, end })
}

fn time(seconds: u32) -> Time {
    Time::from_seconds(seconds)
}

/// All application timers of an image with how they fire.
fn timers(image: &KeyImage) -> Vec<(Time, Firing)> {
    let pending = image.timers.keys().filter(|id| id.kind == TimerKind::Application);
    let deferred =
        image.deferred_timers.iter().map(|(number, entry)| (entry.time, Firing::Deferred(*number)));
    pending.map(|id| (id.time, Firing::Pending(*id))).chain(deferred).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_calls_add_up_to_what_a_set_of_times_does(attempts in prop::collection::vec(attempt(), 1..12)) {
        let mut image = KeyImage::default();
        // A retry timer, which is nobody's business.
        let retry = TimerId { time: time(3), kind: TimerKind::DeferredMessage };
        image.timers.insert(retry, TimerFacts { nonce: 77, slab: 0, trace: Bytes::new() });
        let mut nonce = 100;
        let mut model: BTreeSet<Time> = BTreeSet::new();
        for attempt in attempts {
            let all = timers(&image);
            let firing = attempt.firing.filter(|_| !all.is_empty()).map(|index| *index.get(&all));
            let mut overlay = Overlay::new(Arc::new(image.clone()), firing.map(|(_, firing)| firing));
            let mut during = model.clone();
            if let Some((time, _)) = firing {
                during.remove(&time);
            }
            for call in &attempt.calls {
                match call {
                    Call::Schedule(at) => {
                        overlay.schedule(time(*at), &Bytes::new()).unwrap();
                        during.insert(time(*at));
                    }
                    Call::Unschedule(at) => {
                        overlay.unschedule(time(*at));
                        during.remove(&time(*at));
                    }
                    Call::Clear => {
                        overlay.clear();
                        during.clear();
                    }
                    Call::ClearAndSchedule(at) => {
                        overlay.clear_and_schedule(time(*at), &Bytes::new()).unwrap();
                        during = BTreeSet::from([time(*at)]);
                    }
                }
                prop_assert_eq!(overlay.scheduled(), during.iter().copied().collect::<Vec<_>>());
            }
            let before = image.clone();
            let nonces = || { nonce += 1; nonce };
            let batch = match attempt.end {
                End::Ok => { model = during; overlay.into_batch(nonces) }
                End::Permanent => {
                    if let Some((time, _)) = firing { model.remove(&time); }
                    overlay.discard()
                }
                End::Transient => continue,
                End::Deferred => {
                    let mut batch = overlay.discard();
                    if let Some((time, _)) = firing {
                        batch.append_timers.push(DeferredTimer { time, trace: Bytes::new() });
                    }
                    batch
                }
            };
            image.apply(&batch, Writer(1));
            let is: BTreeSet<Time> = timers(&image).into_iter().map(|(time, _)| time).collect();
            prop_assert_eq!(timers(&image).len(), is.len(), "one time, one timer");
            prop_assert_eq!(&is, &model);
            prop_assert!(image.holds(retry, 77), "retry timers are not the handler's");
            // A timer that stayed keeps its nonce, or its row would be void; one that fired and was scheduled again
            // has another, or the row that fired would be live.
            for (id, facts) in &image.timers {
                let old = before.timers.get(id).map(|facts| facts.nonce);
                let fired = firing.is_some_and(|(_, firing)| firing == Firing::Pending(*id));
                prop_assert!(!fired || old != Some(facts.nonce));
                if let (Some(old), false) = (old, batch.delete_timers.iter().any(|gone| gone.id == *id)) {
                    prop_assert_eq!(old, facts.nonce);
                }
            }
        }
    }
}

#[test]
fn the_limit_of_timers_counts_pending_deferred_and_new_ones_and_not_the_firing_one() {
    let mut image = KeyImage::default();
    for at in 0..u32::try_from(MAX_TIMERS).unwrap() - 1 {
        let facts = TimerFacts { nonce: 1, slab: 0, trace: Bytes::new() };
        image.timers.insert(TimerId::application(time(at)), facts);
    }
    image.deferred_timers.insert(0, DeferredTimer { time: time(99_999), trace: Bytes::new() });
    let full = Arc::new(image);
    let mut overlay = Overlay::new(Arc::clone(&full), None);
    overlay.schedule(time(5), &Bytes::new()).unwrap();
    let error = overlay.schedule(time(100_000), &Bytes::new()).unwrap_err();
    assert_eq!(error.category(), Category::Transient);
    assert!(error.to_string().contains("16384"), "{error}");
    overlay.unschedule(time(5));
    overlay.schedule(time(100_000), &Bytes::new()).unwrap();
    assert!(overlay.schedule(time(5), &Bytes::new()).is_err(), "its place is taken");
    let mut overlay = Overlay::new(full, Some(Firing::Deferred(0)));
    overlay.schedule(time(100_000), &Bytes::new()).unwrap();
    assert!(overlay.schedule(time(99_999), &Bytes::new()).is_err());
}

#[test]
fn a_delete_that_comes_late_spares_a_timer_of_another_nonce() {
    let mut image = KeyImage::default();
    let id = TimerId::application(time(1));
    let put = |nonce| PutTimer { id, facts: TimerFacts { nonce, slab: 0, trace: Bytes::new() } };
    image.apply(&KeyBatch { put_timers: vec![put(2)], ..KeyBatch::default() }, Writer(1));
    let late = KeyBatch { delete_timers: vec![DeleteTimer { id, nonce: 1, slab: 0 }], ..KeyBatch::default() };
    image.apply(&late, Writer(1));
    assert!(image.holds(id, 2) && !image.holds(id, 1));
}
