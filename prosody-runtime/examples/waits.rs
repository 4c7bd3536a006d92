//! How long does a message wait for its handler? Run by `cargo xtask bench`. Each verb ends with one JSON line.
//!
//! | verb and options | what it measures |
//! |---|---|
//! | `idle --bootstrap --topic --group --count` | from `send` to the handler, one message at a time; `p50_us`, `p99_us` |
//! | `idle-mock --count` | the same on the broker in this process |
//! | `hot --seconds --hot-rate` | the wait of messages of 1,000 keys with handlers of 5 ms, beside one key of 100 ms; `p50_us`, `p99_us` |
//!
//! `hot` runs at the default options on the broker in this process. 4,000 messages a second keep three quarters of the
//! permits busy; `--hot-rate` is how many a second the hot key gets, and above 10 it falls behind.
#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "a bench owns its process")]

#[allow(unreachable_pub, reason = "a file of other programs too, which are libraries of their own")]
#[path = "../../benches/common.rs"]
mod common;

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Options;
use prosody_runtime::{Client, Context, Handler, HandlerError, Message};
use tokio::sync::Notify;

const SHORT_KEYS: u64 = 1_000;
/// Messages of short keys a second.
const SHORT_RATE: u64 = 4_000;
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(100);
const HOT: &str = "hot";
/// Between two messages of an idle client.
const PAUSE: Duration = Duration::from_millis(3);

/// Notes how long each message waited. Its payload is the microsecond in which it was sent.
struct Waits {
    origin: Instant,
    /// Whether handlers take their time.
    works: bool,
    waits: Mutex<Vec<f64>>,
    one: Notify,
}

impl Waits {
    fn new(works: bool) -> Arc<Waits> {
        let (waits, one) = (Mutex::default(), Notify::new());
        Arc::new(Waits { origin: Instant::now(), works, waits, one })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn count(&self) -> usize {
        self.waits.lock().expect("no panic").len()
    }

    fn report(&self) {
        let mut waits = std::mem::take(&mut *self.waits.lock().expect("no panic"));
        waits.sort_by(f64::total_cmp);
        let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or(f64::NAN);
        println!("{{\"waits\":{},\"p50_us\":{:.1},\"p99_us\":{:.1}}}", waits.len(), at(50), at(99));
    }
}

struct Noting(Arc<Waits>);

impl Handler for Noting {
    async fn on_message(&self, _: Context, message: Message) -> Result<(), HandlerError> {
        let sent: u64 = std::str::from_utf8(message.payload())?.parse()?;
        if message.key() == HOT {
            tokio::time::sleep(LONG).await;
            return Ok(());
        }
        let wait = self.0.now().saturating_sub(sent);
        self.0.waits.lock().expect("no panic").push(wait as f64);
        if self.0.works {
            tokio::time::sleep(SHORT).await;
        } else {
            self.0.one.notify_one();
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (verb, options) = Options::from_args();
    let mock = || Client::builder().mock(true).group_id("waits").subscribed_topics(["waits"]);
    match verb.as_str() {
        "idle" => {
            let client = Client::builder()
                .bootstrap_servers(options.text("bootstrap").split(','))
                .group_id(options.text("group"))
                .subscribed_topics([options.text("topic")])
                .configure(|options| options.probe_port = Some(0));
            idle(&client.source_system("bench").build()?, &options.text("topic"), &options).await
        }
        "idle-mock" => idle(&mock().source_system("bench").build()?, "waits", &options).await,
        "hot" => hot(&mock().source_system("bench").build()?, &options).await,
        _ => Err("the first word is idle, idle-mock or hot".into()),
    }
}

async fn idle(client: &Client, topic: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let waits = Waits::new(false);
    client.subscribe(Noting(Arc::clone(&waits))).await?;
    for number in 0..options.number("count") {
        drop(client.send(topic, &format!("key-{}", number % SHORT_KEYS), waits.now().to_string().as_bytes()));
        waits.one.notified().await;
        if number == 99 {
            // Joining, connecting and the first of everything are another row.
            waits.waits.lock().expect("no panic").clear();
        }
        tokio::time::sleep(PAUSE).await;
    }
    client.unsubscribe().await?;
    waits.report();
    Ok(())
}

async fn hot(client: &Client, options: &Options) -> Result<(), Box<dyn Error>> {
    let (seconds, hot_rate) = (options.number("seconds"), options.number("hot-rate"));
    let waits = Waits::new(true);
    client.subscribe(Noting(Arc::clone(&waits))).await?;
    client.send("waits", "first", b"0").await?;
    while waits.count() == 0 {
        tokio::time::sleep(PAUSE).await;
    }
    waits.waits.lock().expect("no panic").clear();
    let (start, mut sent, mut sent_hot) = (Instant::now(), 0, 0);
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while start.elapsed() < Duration::from_secs(seconds) {
        tick.tick().await;
        let elapsed = u64::try_from(start.elapsed().as_micros())?;
        while sent < elapsed * SHORT_RATE / 1_000_000 {
            let key = format!("key-{:04}", sent * 7_919 % SHORT_KEYS);
            drop(client.send("waits", &key, waits.now().to_string().as_bytes()));
            sent += 1;
        }
        while sent_hot < elapsed * hot_rate / 1_000_000 {
            drop(client.send("waits", HOT, b"0"));
            sent_hot += 1;
        }
    }
    while waits.count() < usize::try_from(sent)? {
        tokio::time::sleep(PAUSE).await;
    }
    waits.report();
    // What is left of the hot key is not waited for.
    std::process::exit(0)
}
