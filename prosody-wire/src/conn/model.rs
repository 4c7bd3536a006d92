//! Does the machine keep its promises under every sequence of events? Compared with what the peer and the callers see.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use proptest::prelude::*;

use super::Body;
use super::machine::*;
use crate::error::{Error, ErrorKind};
use crate::proto::ApiKey;

/// What can happen to a connection.
#[derive(Clone, Debug)]
enum Event {
    Call { timeout_ms: u64 },
    Write,
    Answer,
    Throttle { ms: u64 },
    Pass { ms: u64 },
    Stranger { off_by: i32 },
    Close,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..50u64).prop_map(|timeout_ms| Event::Call { timeout_ms }),
        4 => Just(Event::Write),
        4 => Just(Event::Answer),
        1 => (0..40u64).prop_map(|ms| Event::Throttle { ms }),
        3 => (0..10u64).prop_map(|ms| Event::Pass { ms }),
        1 => (1..5i32).prop_map(|off_by| Event::Stranger { off_by }),
        1 => Just(Event::Close),
    ]
}

const CAP: usize = 3;
const QUEUE: usize = 5;

fn response(correlation: i32) -> Bytes {
    let mut frame = bytes::BytesMut::new();
    frame.put_i32(correlation);
    frame.put_i32(correlation);
    frame.freeze()
}

/// The peer's view: correlation ids in the order they were written.
fn written(out: &mut VecDeque<Bytes>) -> Vec<(i32, u8)> {
    let frames: Vec<Bytes> = out.drain(..).collect();
    let id = |head: &Bytes| i32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
    frames.chunks(2).map(|frame| (id(&frame[0]), frame[1][0])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Every call ends exactly once, with its own answer or an error that says rightly whether it was written;
    /// frames leave in call order, never more than the cap, never while throttled, never after the end.
    #[test]
    fn every_call_ends_once_and_in_order(events in prop::collection::vec(event(), 1..80)) {
        let start = prosody_base::Clock::system().now();
        let mut now = start;
        let bounds = Bounds { in_flight: CAP, queued: QUEUE, throttle: Duration::from_millis(30) };
        let mut machine: Machine<u8> = Machine::new("broker 1".into(), "me".into(), bounds, now);
        let mut out = VecDeque::new();
        let mut calls = 0u8;
        let mut ended: BTreeMap<u8, &'static str> = BTreeMap::new();
        let mut open: VecDeque<(i32, u8)> = VecDeque::new(); // at the peer
        let mut sent: Vec<u8> = Vec::new();
        let mut quiet_until = start;
        let mut closed = false;
        for event in events {
            match event {
                Event::Call { timeout_ms } => {
                    let waiter = calls;
                    calls += 1;
                    let body = Body::new(vec![Bytes::from(vec![waiter])]);
                    let timeout = Duration::from_millis(timeout_ms);
                    if let Err((waiter, error)) =
                        machine.enqueue(ApiKey::Heartbeat, 2, body, now, timeout, waiter)
                    {
                        prop_assert!(!error.maybe_sent());
                        prop_assert!(closed || matches!(error.kind(), ErrorKind::Full(_)));
                        prop_assert_eq!(ended.insert(waiter, "refused"), None);
                    }
                }
                Event::Write => {
                    machine.ready(now, &mut out);
                    let frames = written(&mut out);
                    prop_assert!(frames.is_empty() || (now >= quiet_until && !closed));
                    for (correlation, waiter) in frames {
                        prop_assert!(sent.last().is_none_or(|last| *last < waiter), "call order");
                        sent.push(waiter);
                        open.push_back((correlation, waiter));
                    }
                    prop_assert!(open.len() <= CAP);
                }
                Event::Answer => {
                    if let Some((correlation, waiter)) = open.pop_front() {
                        let (answered, body) = machine.received(response(correlation), now).expect("expected");
                        prop_assert_eq!(answered, waiter);
                        prop_assert_eq!(&body[..], &correlation.to_be_bytes());
                        prop_assert_eq!(ended.insert(waiter, "answered"), None);
                    }
                }
                Event::Stranger { off_by } => {
                    let expected = open.front().map_or(-1, |oldest| oldest.0);
                    prop_assert!(machine.received(response(expected + off_by), now).is_err());
                }
                Event::Throttle { ms } => {
                    machine.throttle(now, Duration::from_millis(ms));
                    quiet_until = quiet_until.max(now + Duration::from_millis(ms.min(30)));
                }
                Event::Pass { ms } => {
                    now += Duration::from_millis(ms);
                    match machine.expire(now) {
                        Ok(late) => for (waiter, error) in late {
                            prop_assert!(!error.maybe_sent() && !sent.contains(&waiter));
                            prop_assert_eq!(ended.insert(waiter, "late"), None);
                        },
                        Err(error) => {
                            for (waiter, error) in machine.close(&error) {
                                prop_assert_eq!(error.maybe_sent(), sent.contains(&waiter));
                                prop_assert_eq!(ended.insert(waiter, "cut"), None);
                            }
                            closed = true;
                            open.clear();
                        }
                    }
                    prop_assert!(machine.wake_at(now).is_none_or(|at| at > now), "or the writer would spin");
                }
                Event::Close => {
                    let cause = Error::new("a test", ErrorKind::Closed("closed"));
                    for (waiter, error) in machine.close(&cause) {
                        prop_assert_eq!(error.maybe_sent(), sent.contains(&waiter));
                        prop_assert_eq!(ended.insert(waiter, "closed"), None);
                    }
                    closed = true;
                    open.clear();
                }
            }
        }
        // An hour later nobody waits any more.
        now += Duration::from_secs(3_600);
        if let Err(error) = machine.expire(now).map(|late| late.into_iter().for_each(|(waiter, _)| {
            ended.insert(waiter, "late");
        })) {
            machine.close(&error).into_iter().for_each(|(waiter, _)| {
                ended.insert(waiter, "cut");
            });
        }
        prop_assert_eq!(ended.len(), usize::from(calls));
    }
}
