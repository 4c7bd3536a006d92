//! How fast are timers? Over the broker and the memory store inside this process; run by `cargo xtask bench`. Each verb
//! ends with one JSON line.
//!
//! | verb and options | what it measures |
//! |---|---|
//! | `none --count --keys` | messages whose handlers do nothing, beside the next row |
//! | `replace --count --keys` | messages whose handlers call `clear_and_schedule`, producing included |
//! | `late --count --resident` | how late timers are that are due in one second, beside others that are not; `p50_ms`, `p99_ms`, `most_ms` |
#![allow(clippy::expect_used, clippy::disallowed_methods, reason = "an example measures real time")]

#[allow(unreachable_pub, reason = "a file of other programs too, which are libraries of their own")]
#[path = "../../benches/common.rs"]
mod common;

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Meter, Options};
use prosody_runtime::{Client, Context, Handler, HandlerError, Message, Timer};

/// Sends that wait for their acknowledgement at once.
const IN_FLIGHT: usize = 20_000;
/// Timers that each message schedules which fills the index.
const SPREAD: u64 = 100;
/// From the first message to the second in which its timers are due.
const LEAD: u64 = 5;
/// Polls of what the handlers have done.
const LOOK: Duration = Duration::from_millis(1);

/// What happened so far. A message asks for nothing, one timer in place of all others, or timers at seconds in a row.
#[derive(Default)]
struct Seen {
    handled: AtomicU64,
    late: Mutex<Vec<Duration>>,
}

struct Work(Arc<Seen>);

impl Handler for Work {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        let text = std::str::from_utf8(message.payload())?;
        let mut words = text.trim_matches('"').split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("replace"), Some(at), _) => {
                context.clear_and_schedule(UNIX_EPOCH + Duration::from_secs(at.parse()?)).await?;
            }
            (Some("spread"), Some(from), Some(count)) => {
                let (from, count): (u64, u64) = (from.parse()?, count.parse()?);
                for second in 0..count {
                    context.schedule(UNIX_EPOCH + Duration::from_secs(from + second)).await?;
                }
            }
            _ => {}
        }
        self.0.handled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn on_timer(&self, _context: Context, timer: Timer) -> Result<(), HandlerError> {
        let late = SystemTime::now().duration_since(timer.time).unwrap_or_default();
        self.0.late.lock().expect("no panic").push(late);
        Ok(())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Sends `count` messages and waits until they are handled.
async fn handle(
    client: &Client,
    seen: &Seen,
    count: u64,
    keys: u64,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let before = seen.handled.load(Ordering::Relaxed);
    let payload = format!("\"{text}\"");
    let mut waiting = VecDeque::with_capacity(IN_FLIGHT);
    for number in 0..count {
        waiting.push_back(client.send("t", &format!("key-{:06}", number % keys), payload.as_bytes()));
        if waiting.len() >= IN_FLIGHT
            && let Some(sent) = waiting.pop_front()
        {
            sent.await?;
        }
    }
    for sent in waiting {
        sent.await?;
    }
    while seen.handled.load(Ordering::Relaxed) < before + count {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (verb, options) = Options::from_args();
    let count = options.number("count");
    let client =
        Client::builder().mock(true).group_id("timers").source_system("bench").subscribed_topics(["t"]);
    let (client, seen) = (client.build()?, Arc::new(Seen::default()));
    client.subscribe(Work(Arc::clone(&seen))).await?;
    match verb.as_str() {
        "none" | "replace" => {
            // Far away, so that none of them becomes due.
            let text = format!("{verb} {}", now() + 100_000);
            let meter = Meter::start();
            handle(&client, &seen, count, options.number("keys"), &text).await?;
            meter.report(count, "");
        }
        "late" => {
            let resident = options.number("resident");
            if resident > 0 {
                let messages = resident / SPREAD;
                handle(&client, &seen, messages, messages, &format!("spread {} {SPREAD}", now() + 400))
                    .await?;
            }
            // A key of its own for each: one key has one timer at a time.
            handle(&client, &seen, count, count, &format!("spread {} 1", now() + LEAD)).await?;
            let wanted = usize::try_from(count)?;
            while seen.late.lock().expect("no panic").len() < wanted {
                tokio::time::sleep(LOOK).await;
            }
            let mut late = std::mem::take(&mut *seen.late.lock().expect("no panic"));
            late.sort_unstable();
            let at = |share: usize| {
                let at = (late.len() * share / 100).min(late.len().saturating_sub(1));
                late.get(at).map_or(f64::NAN, |late| late.as_secs_f64() * 1e3)
            };
            println!("{{\"p50_ms\":{:.2},\"p99_ms\":{:.2},\"most_ms\":{:.2}}}", at(50), at(99), at(100));
        }
        _ => return Err("the first word is none, replace or late".into()),
    }
    client.unsubscribe().await?;
    Ok(())
}
