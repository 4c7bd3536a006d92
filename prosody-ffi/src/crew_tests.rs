//! Is every call heard, and does the end come at the end?

use super::*;
use crate::abi::PrEvent;
use std::sync::mpsc;
use std::thread;

const LONG: Duration = Duration::from_secs(30);

extern "C" fn run(_: *const PrEvent) -> i32 {
    0
}

fn crew() -> Arc<Crew> {
    Arc::new(Crew::new(Doors::process().expect("threads"), Box::new(|_| None)))
}

fn done(op: u64) -> Event {
    Event::Done { op, ended: Ok(0) }
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Two threads with small batches against four writers: nothing is lost, doubled, or left behind by a call that
/// went to the wrong thread. Without the call for leftovers this hangs.
#[test]
fn no_call_is_lost() {
    const EACH: u64 = 20_000;
    let crew = crew();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let crew = Arc::clone(&crew);
            thread::spawn(move || {
                let mut seen = Vec::new();
                let mut see = |event| match event {
                    Event::Done { op, .. } => seen.push(op),
                    Event::Cancel(token) => seen.push(token.0),
                    Event::Fault | Event::Token(_) | Event::TokenCancel(_) => {}
                };
                while crew.wait(run, 3, LONG, &mut see) != Waited::Closed {}
                seen
            })
        })
        .collect();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let crew = Arc::clone(&crew);
            thread::spawn(move || {
                for n in writer * EACH..(writer + 1) * EACH {
                    crew.push(if n % 5 == 0 { Event::Cancel(Token(n)) } else { done(n) });
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("wrote"));
    crew.close();
    let mut seen: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().expect("saw")).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..4 * EACH).collect::<Vec<_>>());
    let state = crew.lock();
    assert_eq!((state.attending, state.parked, state.called, state.holding), (0, 0, 0, 0));
}

#[test]
fn a_cancellation_comes_alone_and_in_order() {
    let crew = crew();
    for event in [done(1), done(2), Event::Cancel(Token(3)), Event::Cancel(Token(4)), done(5)] {
        crew.push(event);
    }
    let batches: Vec<Waited> = (0..4).map(|_| crew.wait(run, 9, LONG, |_| {})).collect();
    assert_eq!(batches, [2, 1, 1, 1].map(Waited::Events));
}

/// Whoever hears that all is over fails what .NET still waits for, so nobody may hold a result then.
#[test]
fn it_is_over_only_when_every_end_is_dealt_with() {
    let crew = crew();
    crew.push(done(1));
    let (go, gone) = mpsc::sync_channel::<()>(1);
    let holder = {
        let crew = Arc::clone(&crew);
        thread::spawn(move || {
            assert_eq!(crew.wait(run, 9, LONG, |_| {}), Waited::Events(1));
            gone.recv().expect("told");
            crew.wait(run, 9, LONG, |_| {})
        })
    };
    until(|| crew.lock().holding == 1);
    let other = {
        let crew = Arc::clone(&crew);
        thread::spawn(move || crew.wait(run, 9, LONG, |_| {}))
    };
    until(|| crew.lock().parked == 1);
    crew.close();
    thread::yield_now();
    assert!(!other.is_finished());
    go.send(()).expect("waits");
    assert_eq!(holder.join().expect("ended"), Waited::Closed);
    assert_eq!(other.join().expect("ended"), Waited::Closed);
}

#[test]
fn of_two_idle_threads_one_may_go() {
    let crew = crew();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let crew = Arc::clone(&crew);
            thread::spawn(move || crew.wait(run, 1, Duration::from_millis(5), |_| {}))
        })
        .collect();
    until(|| threads.iter().any(thread::JoinHandle::is_finished));
    until(|| crew.lock().parked == 1);
    crew.close();
    let mut ends: Vec<Waited> = threads.into_iter().map(|thread| thread.join().expect("ended")).collect();
    ends.sort_by_key(|end| *end == Waited::Closed);
    assert_eq!(ends, [Waited::TimedOut, Waited::Closed]);
}
