//! The quick start: subscribe a handler, send a message, see it handled, stop.
//!
//! `cargo run --release --example quickstart` runs it on a broker inside this process. With
//! `PROSODY_BOOTSTRAP_SERVERS=localhost:9092` it runs on a real cluster, where the topic is created first.
#![allow(
    clippy::disallowed_methods,
    reason = "an example owns its process: its runtime, its clock, its tasks"
)]

use std::time::Duration;

use prosody_runtime::{Admin, Client, Context, Handler, HandlerError, Message, Options};
use tokio::sync::mpsc;

/// Prints each message and tells `main` about it.
struct MyHandler {
    received: mpsc::Sender<String>,
}

impl Handler for MyHandler {
    async fn on_message(&self, _context: Context, message: Message) -> Result<(), HandlerError> {
        let payload = std::str::from_utf8(message.payload())?;
        println!("Received message: {payload}");
        self.received.send(message.key().to_owned()).await?;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let real = std::env::var("PROSODY_BOOTSTRAP_SERVERS").is_ok_and(|servers| !servers.trim().is_empty());
    let mock = std::env::var("PROSODY_MOCK").is_ok_and(|mock| mock == "true");
    let client = Client::builder()
        // Bootstrap servers come from PROSODY_BOOTSTRAP_SERVERS; without them a broker inside this process is used.
        .from_env()
        .mock(mock || !real)
        // To handle what we send ourselves, the source system must differ from the group id, its default.
        .source_system("my-application-source")
        // The name of the application.
        .group_id("my-application")
        .subscribed_topics(["my-topic"])
        .build()?;

    if real && !mock {
        let admin = Admin::new(Options::default(), std::env::vars())?;
        match admin.create_topic("my-topic", 4, 1).await {
            Err(error) if error.code() != Some("TOPIC_ALREADY_EXISTS") => return Err(error.into()),
            _ => {}
        }
    }

    let (received, mut handled) = mpsc::channel(16);
    client.subscribe(MyHandler { received }).await?;

    client.send("my-topic", "message-key", br#"{"content":"Hello, Kafka!"}"#).await?;

    let key = tokio::time::timeout(Duration::from_secs(60), handled.recv()).await?;
    assert_eq!(key.as_deref(), Some("message-key"));

    client.unsubscribe().await?;
    Ok(())
}
