//! Measures the runtime; run by `cargo xtask bench`. Each verb ends with one JSON line.
//!
//! | verb and options | what it measures |
//! |---|---|
//! | `consume --bootstrap --topic --group --count --keys` | no-op handler over records that are there, until `count` are handled |
//! | `mock --count --keys --size --partitions` | the same on the broker in this process, producing included |
//! | `work --bootstrap --topic --group --count --work-ms` | handlers that wait; adds `mean_ms`, `per_second` and `share` of MaxConcurrency / mean |
//! | `work-mock --count --keys --work-ms` | the same on the broker in this process |
//! | `send --bootstrap --topic --count` | one awaited send at a time; adds `p50_us` |
//! | `sends --bootstrap --topic --count --tasks` | tasks that each await their send before the next |
//! | `first --bootstrap --topic --group` | from building a client with a group to its first message, `first_ms`, and from there to the end of unsubscribing, `close_ms` |
//!
//! All but `send` and `first` print `records`, `seconds`, `cpu_seconds` (all threads) and `peak_rss_kib`; what handles
//! messages checks that each came once and in the order of its key.
#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "a bench owns its process")]

#[allow(unreachable_pub, reason = "a file of other programs too, which are libraries of their own")]
#[path = "../../benches/common.rs"]
mod common;

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Meter, Options, Records, median};
use prosody_runtime::{Client, ClientBuilder, Context, Handler, HandlerError, Message};
use tokio::sync::Notify;

/// Handlers that run at once, at defaults.
const MAX_CONCURRENCY: f64 = 32.0;
/// Sends that wait for their acknowledgement at once.
const IN_FLIGHT: usize = 20_000;

/// What the handler saw.
struct Seen {
    wanted: u64,
    handled: AtomicU64,
    disorder: AtomicU64,
    /// Offset of the last message of each key.
    last: Vec<AtomicI64>,
    worked_us: AtomicU64,
    enough: Notify,
    first: Notify,
}

impl Seen {
    fn new(wanted: u64, keys: u64) -> Arc<Seen> {
        Arc::new(Seen {
            wanted,
            handled: AtomicU64::new(0),
            disorder: AtomicU64::new(0),
            last: (0..keys).map(|_| AtomicI64::new(-1)).collect(),
            worked_us: AtomicU64::new(0),
            enough: Notify::new(),
            first: Notify::new(),
        })
    }

    fn note(&self, message: &Message) {
        let key: usize = message.key().strip_prefix("key-").and_then(|key| key.parse().ok()).unwrap_or(0);
        if let Some(last) = self.last.get(key)
            && last.swap(message.offset(), Ordering::Relaxed) >= message.offset()
        {
            self.disorder.fetch_add(1, Ordering::Relaxed);
        }
        let handled = self.handled.fetch_add(1, Ordering::Relaxed) + 1;
        if handled == 1 {
            self.first.notify_one();
        }
        if handled == self.wanted {
            self.enough.notify_one();
        }
    }

    fn check(&self) -> Result<(), Box<dyn Error>> {
        let (handled, disorder) =
            (self.handled.load(Ordering::Relaxed), self.disorder.load(Ordering::Relaxed));
        if handled == self.wanted && disorder == 0 {
            return Ok(());
        }
        Err(format!("{handled} of {} handled, {disorder} out of order", self.wanted).into())
    }
}

struct Noop(Arc<Seen>);

impl Handler for Noop {
    async fn on_message(&self, _: Context, message: Message) -> Result<(), HandlerError> {
        self.0.note(&message);
        Ok(())
    }
}

struct Work(Arc<Seen>, Duration);

impl Handler for Work {
    async fn on_message(&self, _: Context, message: Message) -> Result<(), HandlerError> {
        let start = Instant::now();
        tokio::time::sleep(self.1).await;
        self.0.worked_us.fetch_add(u64::try_from(start.elapsed().as_micros())?, Ordering::Relaxed);
        self.0.note(&message);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (verb, options) = Options::from_args();
    match verb.as_str() {
        "consume" => consume(&options).await,
        "mock" => mock(&options).await,
        "work" => {
            let client = real(&options).group_id(options.text("group")).build()?;
            work(client, &options).await
        }
        "work-mock" => {
            let client = in_process().build()?;
            let (count, keys) = (options.number("count"), options.number("keys"));
            produce(&client, "bench", &Records::new(keys, 100), count).await?;
            work(client, &options).await
        }
        "send" => send(&options).await,
        "sends" => sends(&options).await,
        "first" => first(&options).await,
        _ => Err("the first word is consume, mock, work, work-mock, send, sends or first".into()),
    }
}

fn real(options: &Options) -> ClientBuilder {
    Client::builder()
        .bootstrap_servers(options.text("bootstrap").split(','))
        .source_system("bench")
        .subscribed_topics([options.text("topic")])
        .configure(|options| options.probe_port = Some(0))
}

fn in_process() -> ClientBuilder {
    Client::builder().mock(true).group_id("bench-group").source_system("bench").subscribed_topics(["bench"])
}

async fn consume(options: &Options) -> Result<(), Box<dyn Error>> {
    let seen = Seen::new(options.number("count"), options.number("keys"));
    let client = real(options).group_id(options.text("group")).build()?;
    let meter = Meter::start();
    client.subscribe(Noop(Arc::clone(&seen))).await?;
    seen.enough.notified().await;
    client.unsubscribe().await?;
    meter.report(seen.wanted, "");
    seen.check()
}

async fn mock(options: &Options) -> Result<(), Box<dyn Error>> {
    let (count, keys) = (options.number("count"), options.number("keys"));
    let records = Records::new(keys, usize::try_from(options.number("size"))?);
    let seen = Seen::new(count, keys);
    let client = in_process().build()?;
    let admin = prosody_runtime::Admin::new(
        {
            let mut mock = prosody_runtime::Options::default();
            mock.mock = Some(true);
            mock
        },
        [],
    )?;
    admin.create_topic("bench", i32::try_from(options.number("partitions"))?, 1).await?;
    let meter = Meter::start();
    client.subscribe(Noop(Arc::clone(&seen))).await?;
    produce(&client, "bench", &records, count).await?;
    let produced = meter.elapsed().as_secs_f64();
    seen.enough.notified().await;
    client.unsubscribe().await?;
    meter.report(count, &format!("\"produced_seconds\":{produced:.3}"));
    seen.check()
}

/// Sends with a bounded number in flight; the oldest is awaited when there are too many.
async fn produce(client: &Client, topic: &str, records: &Records, count: u64) -> Result<(), Box<dyn Error>> {
    let mut waiting = VecDeque::with_capacity(IN_FLIGHT);
    for number in 0..count {
        waiting.push_back(client.send(topic, records.key(number), records.value(number)));
        if waiting.len() >= IN_FLIGHT
            && let Some(sent) = waiting.pop_front()
        {
            sent.await?;
        }
    }
    for sent in waiting {
        sent.await?;
    }
    Ok(())
}

async fn work(client: Client, options: &Options) -> Result<(), Box<dyn Error>> {
    let time = Duration::from_millis(options.number("work-ms"));
    let seen = Seen::new(options.number("count"), 1);
    client.subscribe(Work(Arc::clone(&seen), time)).await?;
    seen.first.notified().await;
    let meter = Meter::start();
    seen.enough.notified().await;
    let seconds = meter.elapsed().as_secs_f64();
    let mean = seen.worked_us.load(Ordering::Relaxed) as f64 / 1e6 / seen.wanted as f64;
    // The first message ended when the clock started.
    let per_second = (seen.wanted - 1) as f64 / seconds;
    let share = per_second / (MAX_CONCURRENCY / mean);
    let extra = format!("\"mean_ms\":{:.3},\"per_second\":{per_second:.1},\"share\":{share:.4}", mean * 1e3);
    meter.report(seen.wanted, &extra);
    client.unsubscribe().await?;
    Ok(())
}

async fn send(options: &Options) -> Result<(), Box<dyn Error>> {
    let (client, topic) = (real(options).build()?, options.text("topic"));
    let records = Records::new(1_000, 100);
    for number in 0..100 {
        client.send(&topic, records.key(number), records.value(number)).await?;
    }
    let mut times = Vec::new();
    for number in 0..options.number("count") {
        let start = Instant::now();
        client.send(&topic, records.key(number), records.value(number)).await?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    println!("{{\"p50_us\":{:.1}}}", median(&mut times));
    Ok(())
}

async fn sends(options: &Options) -> Result<(), Box<dyn Error>> {
    let (count, tasks) = (options.number("count"), options.number("tasks"));
    let (client, topic) = (real(options).build()?, options.text("topic"));
    let records = Arc::new(Records::new(10_000, 100));
    for number in 0..100 {
        client.send(&topic, records.key(number), records.value(number)).await?;
    }
    let meter = Meter::start();
    let share = count / tasks;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, topic, records) = (client.clone(), topic.clone(), Arc::clone(&records));
            tokio::spawn(async move {
                for number in task * share..(task + 1) * share {
                    client.send(&topic, records.key(number), records.value(number)).await?;
                }
                Ok::<(), prosody_runtime::Error>(())
            })
        })
        .collect();
    for task in running {
        task.await??;
    }
    meter.report(share * tasks, "");
    Ok(())
}

async fn first(options: &Options) -> Result<(), Box<dyn Error>> {
    let seen = Seen::new(u64::MAX, 1);
    let start = Instant::now();
    let client = real(options).group_id(options.text("group")).build()?;
    client.subscribe(Noop(Arc::clone(&seen))).await?;
    seen.first.notified().await;
    let first = start.elapsed().as_secs_f64() * 1e3;
    let closing = Instant::now();
    client.unsubscribe().await?;
    let closed = closing.elapsed().as_secs_f64() * 1e3;
    println!("{{\"first_ms\":{first:.2},\"close_ms\":{closed:.2}}}");
    Ok(())
}
