//! Produces records and prints a JSON line for each acknowledged one: topic, partition, offset, key.
//!
//! `cargo run --release --example produce -- --bootstrap localhost:9092 --topic t --count 1000 --keys 100 --size 100`
//!
//! Anything else is configured by `PROSODY_…` variables.
#![allow(
    clippy::disallowed_methods,
    reason = "an example owns its process: its runtime, its clock, its tasks"
)]

use std::collections::VecDeque;
use std::io::Write;

use prosody_runtime::Client;
use serde_json::json;

/// Sends that wait for their acknowledgement at once.
const IN_FLIGHT: usize = 10_000;

#[path = "support/args.rs"]
mod args;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = args::Args::read(&["bootstrap", "topic", "count", "keys", "size"])?;
    let (topic, count) = (args.text("topic")?, args.number("count", 1_000)?);
    let (keys, size) = (args.number("keys", 100)?.max(1), args.number("size", 100)?);
    let client = Client::builder()
        .from_env()
        .bootstrap_servers(args.text("bootstrap")?.split(','))
        .source_system("prosody-produce")
        .build()?;

    let mut lines = std::io::BufWriter::new(std::io::stdout().lock());
    let mut waiting = VecDeque::new();
    for number in 0..count {
        let key = format!("key-{}", number % keys);
        let sent = client.send(&topic, &key, &payload(number, usize::try_from(size)?));
        waiting.push_back((key, sent));
        if waiting.len() >= IN_FLIGHT
            && let Some((key, sent)) = waiting.pop_front()
        {
            let delivery = sent.await?;
            let (partition, offset) = (delivery.partition, delivery.offset);
            writeln!(
                lines,
                "{}",
                json!({"topic": topic, "partition": partition, "offset": offset, "key": key})
            )?;
        }
    }
    for (key, sent) in waiting {
        let delivery = sent.await?;
        let (partition, offset) = (delivery.partition, delivery.offset);
        writeln!(lines, "{}", json!({"topic": topic, "partition": partition, "offset": offset, "key": key}))?;
    }
    lines.flush()?;
    client.close().await?;
    Ok(())
}

/// JSON of `size` bytes, or a little more, that compresses neither fully nor not at all.
fn payload(number: u64, size: usize) -> Vec<u8> {
    let mut payload = format!(r#"{{"number":{number},"text":""#).into_bytes();
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while payload.len() + 2 < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        payload.push(b'a' + u8::try_from(state % 26).unwrap_or(0));
    }
    payload.extend_from_slice(b"\"}");
    payload
}
