//! Consumes a topic in a group and prints a JSON line for each handled message and each change of the assignment,
//! and at the end how many bytes came from each broker.
//!
//! `cargo run --release --example consume -- --bootstrap localhost:9092 --group g --topic t [--max N] [--work-ms N] [--assignor range]`
//!
//! `running` in a line is the number of handlers that were at work as this one ended, itself among them. Ends after `--max` messages, or gracefully on SIGTERM or Ctrl-C. Anything else is configured by `PROSODY_…` variables.
#![allow(
    clippy::disallowed_methods,
    reason = "an example owns its process: its runtime, its clock, its tasks"
)]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_runtime::{Assignment, Client, Context, Handler, HandlerError, Message, Value};
use prosody_wire::group::Assignor;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

#[path = "support/args.rs"]
mod args;

struct Print {
    work: Duration,
    handled: mpsc::Sender<()>,
    running: AtomicUsize,
}

impl Handler for Print {
    async fn on_message(&self, _context: Context, message: Message) -> Result<(), HandlerError> {
        self.running.fetch_add(1, Ordering::Relaxed);
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        let (topic, partition, offset, key) =
            (message.topic(), message.partition(), message.offset(), message.key());
        let running = self.running.fetch_sub(1, Ordering::Relaxed);
        say(
            &json!({"topic": topic, "partition": partition, "offset": offset, "key": key, "running": running}),
        )?;
        // Nobody counts any more while we stop; the message is handled all the same.
        let _ = self.handled.send(()).await;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let args = args::Args::read(&["bootstrap", "group", "topic", "max", "work-ms", "assignor"])?;
    let assignor = match args.text("assignor") {
        Ok(name) => Some(Assignor::named(&name).ok_or_else(|| format!("no assignor {name}"))?),
        Err(_) => None,
    };
    let client = Client::builder()
        .from_env()
        .bootstrap_servers(args.text("bootstrap")?.split(','))
        .group_id(args.text("group")?)
        .source_system("prosody-consume")
        .subscribed_topics([args.text("topic")?])
        .configure(|options| {
            // Several of these run beside each other.
            options.probe_port = Some(0);
            options.assignors = assignor.map(|one| vec![one]);
        })
        .build()?;
    let (max, work) = (args.number("max", u64::MAX)?, Duration::from_millis(args.number("work-ms", 0)?));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let following = tokio::spawn(follow(client.assignment()));
    let (handled, mut count) = mpsc::channel(1_024);
    tokio::select! {
        biased;
        // Also while brokers are looked for.
        _ = terminate.recv() => return Ok(client.close().await?),
        _ = interrupt.recv() => return Ok(client.close().await?),
        subscribed = client.subscribe(Print { work, handled, running: AtomicUsize::new(0) }) => subscribed?,
    }
    let counting = async {
        for _ in 0..max {
            if count.recv().await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = counting => {}
    }
    // Handlers that still run must not wait for a count that nobody reads.
    count.close();
    client.unsubscribe().await?;
    following.abort();
    let received =
        client.metrics().samples.into_iter().filter_map(|sample| match (&sample.labels[..], sample.value) {
            ([broker, direction], Value::Number(bytes)) if direction == "received" => {
                Some((broker.clone(), json!(bytes)))
            }
            _ => None,
        });
    say(&json!({"received": received.collect::<serde_json::Map<_, _>>()}))?;
    client.close().await?;
    Ok(())
}

/// Prints what came and what went.
async fn follow(mut assignment: Assignment) {
    let mut known = BTreeSet::new();
    while let Some(now) = assignment.changed().await {
        let now: BTreeSet<i32> = now.into_iter().map(|(_, partition)| partition).collect();
        for (event, partitions) in [("revoked", &known - &now), ("assigned", &now - &known)] {
            if !partitions.is_empty() {
                let _ = say(&json!({"event": event, "partitions": partitions}));
            }
        }
        known = now;
    }
}

fn say(line: &serde_json::Value) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}")
}
