//! Shows the live page of the probes: a consumer on a broker inside this process, with messages that take their time.
//! `cargo run --example page -- --port 8000`, then open <http://localhost:8000/>. Runs until it is stopped.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program")]

#[path = "support/args.rs"]
#[allow(dead_code, reason = "each program uses its part")]
mod args;

use std::time::{Duration, SystemTime};

use prosody_runtime::{Client, Context, Handler, HandlerError, Message, Timer};

const LONG: Duration = Duration::from_secs(3_600);

struct TakesItsTime;

impl Handler for TakesItsTime {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        match message.key() {
            "fails" => return Err(HandlerError::transient("it is set aside")),
            "schedules" => context.schedule(SystemTime::now()).await?,
            key if key.starts_with("slow") => tokio::time::sleep(LONG).await,
            _ => {}
        }
        Ok(())
    }

    async fn on_timer(&self, _: Context, _: Timer) -> Result<(), HandlerError> {
        tokio::time::sleep(LONG).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = args::Args::read(&["port"])?;
    let port = u16::try_from(args.number("port", 8_000)?)?;
    let client = Client::builder().mock(true).group_id("page-group").source_system("page");
    let client = client.subscribed_topics(["orders"]).configure(|options| {
        options.probe_port = Some(port);
        options.probe_details = Some(true);
        options.stall_threshold = Some(Duration::from_secs(2));
    });
    let client = client.build()?;
    client.subscribe(TakesItsTime).await?;
    for number in 0..200 {
        client.send("orders", &format!("key-{number}"), b"{}").await?;
    }
    for key in ["fails", "schedules"] {
        client.send("orders", key, b"{}").await?;
    }
    // What a page must not take for markup.
    client.send("orders", "slow <img src=x onerror=document.title='broken'>", b"{}").await?;
    println!("http://127.0.0.1:{port}/");
    std::future::pending().await
}
