//! How fast are timers? Over the broker and the memory store inside this process: `timers [--messages N]`.
//!
//! Rows: messages whose handlers call `clear_and_schedule`, beside messages that do nothing; how late timers are when
//! 10,000 are due in one second; the same when 100,000 others are kept in mind.
#![allow(clippy::expect_used, clippy::disallowed_methods, reason = "an example measures real time")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prosody_runtime::{Client, Context, Handler, HandlerError, Message, Timer};

/// Keys of messages.
const KEYS: usize = 1_000;
/// Timers of one second, each of a key of its own: one key has one timer at a time.
const BURST: usize = 10_000;

/// What a message asks for: nothing, one timer far away, or timers at a second.
struct Work {
    handled: Arc<AtomicUsize>,
    late: Arc<Mutex<Vec<Duration>>>,
}

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
        self.handled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn on_timer(&self, _context: Context, timer: Timer) -> Result<(), HandlerError> {
        let late = SystemTime::now().duration_since(timer.time).unwrap_or_default();
        self.late.lock().expect("no panic").push(late);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages = std::env::args().skip_while(|word| word != "--messages").nth(1);
    let messages: usize = messages.map_or(Ok(20_000), |text| text.parse())?;
    let (handled, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let client =
        Client::builder().mock(true).group_id("timers").source_system("bench").subscribed_topics(["t"]);
    let client = client.build()?;
    client.subscribe(Work { handled: Arc::clone(&handled), late: Arc::clone(&late) }).await?;
    let send_all = async |count: usize, keys: usize, text: String| {
        let (before, start) = (handled.load(Ordering::Relaxed), Instant::now());
        let mut sends = Vec::new();
        for number in 0..count {
            let (client, payload) = (client.clone(), format!("\"{text}\""));
            let key = format!("key-{}", number % keys);
            sends.push(tokio::spawn(
                async move { client.send("t", &key, payload.as_bytes()).await.map(drop) },
            ));
        }
        for send in sends {
            send.await.expect("no panic").expect("the mock cluster takes it");
        }
        while handled.load(Ordering::Relaxed) < before + count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        start.elapsed()
    };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let far = now() + 100_000;
    for (name, word) in [("nothing", "none".to_owned()), ("clear_and_schedule", format!("replace {far}"))] {
        let took = send_all(messages, KEYS, word).await;
        let rate = messages as f64 / took.as_secs_f64();
        println!("messages, {name}: {rate:.0} a second, {:.1} µs each", 1e6 / rate);
    }
    for (name, resident) in [("nothing else", 0), ("100,000 others in mind", 100)] {
        if resident > 0 {
            send_all(KEYS, KEYS, format!("spread {} {resident}", now() + 400)).await;
        }
        late.lock().expect("no panic").clear();
        send_all(BURST, BURST, format!("spread {} 1", now() + 10)).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while late.lock().expect("no panic").len() < BURST && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut late = late.lock().expect("no panic").clone();
        late.sort_unstable();
        let at = |share: usize| late.get((late.len() * share / 100).min(late.len().saturating_sub(1)));
        println!(
            "lateness of {} timers, {name}: p50 {:?}, p99 {:?}, most {:?}",
            late.len(),
            at(50),
            at(99),
            late.last()
        );
    }
    client.unsubscribe().await?;
    Ok(())
}
