//! The rows of the Kafka layer without a peer: what a distant broker changes, what idle partitions hold, and how fast the
//! testkit broker is.

use std::time::Duration;

use super::delay::Delay;
use super::programs::{Program, median, number};
use super::row::{Bar, Row};
use super::wire::ours;
use super::{Bench, KEYS, PARTITIONS, Rows, SIZE};

const RECORDS: u64 = 5_000_000;
const CONSUME_ADDED: Duration = Duration::from_millis(50);
/// Mebibytes for fetched records: what comes in three round trips at the speed of this machine.
const ENOUGH: u64 = 256;
const PRODUCE_ADDED: Duration = Duration::from_millis(10);
/// Batches of one partition that may be under way, by the protocol.
const PIPELINED: f64 = 5.0;
const IDLE_PARTITIONS: u64 = 1_000;

/// Consuming and producing with time added to each round trip.
pub(super) fn distant(bench: &mut Bench) -> Rows {
    let kafka = bench.kafka()?;
    let through = |added| Delay::before(&kafka, added).map(|delay| delay.address());
    let (near, far, middle) = (through(Duration::ZERO)?, through(CONSUME_ADDED)?, through(PRODUCE_ADDED)?);
    let count = bench.count(RECORDS);
    let mut options = bench.filled("distant", 2 * count)?;
    options.extend([("count", (2 * count).to_string()), ("partitions", PARTITIONS.to_string())]);
    let consume = ours("consume")?;
    let rate = |address: &str, buffer: Option<u64>| {
        let mut options = options.clone();
        options.push(("through", address.to_owned()));
        options.extend(buffer.map(|mebibytes| ("buffer", mebibytes.to_string())));
        let line = consume.run(&options)?;
        // The first half is a start: how far the broker is has to be seen.
        Ok::<f64, String>(number(&line, "records")? / 2.0 / number(&line, "second_half_seconds")?)
    };
    let mut rows = Vec::new();
    for (buffer, held, bar) in [
        (Some(ENOUGH), format!("{ENOUGH} MiB"), Bar::Ratio(0.9)),
        (None, "the default buffer".to_owned(), Bar::Judged { bar: None, ok: true }),
    ] {
        let (value, peer) =
            super::programs::balanced(bench.rounds(), || rate(&far, buffer), || rate(&near, buffer))?;
        let case = format!("consume, lz4, 100 B, 50 ms added to each round trip, {held}");
        let peer = Some(("without".to_owned(), peer));
        rows.push(Row { peer, ..Row::alone("distant", case, value, "records/s", bar) });
    }
    let mut topic = bench.topic_of("distant", 1)?;
    topic.push(("through", middle));
    let with = |more: &[(&'static str, String)]| {
        let mut options = topic.clone();
        options.extend(more.iter().cloned());
        options
    };
    let round_trip = number(&ours("send")?.run(&with(&[("count", "100".to_owned())]))?, "p50_us")? / 1e6;
    let produce = ours("produce")?;
    let (mut flights, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let line = produce.run(&with(&[
            ("count", count.to_string()),
            ("size", SIZE.to_string()),
            ("keys", KEYS.to_string()),
            ("partition", "0".to_owned()),
        ]))?;
        let (batches, seconds) = (number(&line, "requests")?, number(&line, "seconds")?);
        // Each request of one partition carries one batch; how many are under way follows from how long each was.
        flights.push(batches * number(&line, "request_ms")? / 1e3 / seconds);
        rates.push(batches / seconds);
    }
    let row = |case: &str, value, unit, bar| Row::alone("distant", case, value, unit, bar);
    rows.push(row(
        "produce, one partition, 10 ms added: under way",
        median(flights),
        "batches",
        Bar::AtLeast(3.0),
    ));
    let ideal = PIPELINED / round_trip;
    rows.push(row(
        &format!("the same, of {ideal:.0} batches/s that 5 per round trip are"),
        median(rates),
        "batches/s",
        Bar::AtLeast(0.9 * ideal),
    ));
    Ok(rows)
}

/// A member that was assigned many partitions, with nothing in them.
pub(super) fn idle(bench: &mut Bench) -> Rows {
    let mut options = bench.topic_of("idle", IDLE_PARTITIONS)?;
    options.extend([("partitions", IDLE_PARTITIONS.to_string()), ("group", "idle".to_owned())]);
    let line = ours("idle")?.run(&options)?;
    Ok(vec![Row::alone(
        "idle",
        "1,000 partitions assigned and idle, above start",
        number(&line, "grown_kib")? / 1024.0,
        "MiB",
        Bar::AtMost(24.0),
    )])
}

/// The testkit broker, our producer and our consumer, all on one core.
pub(super) fn broker(bench: &mut Bench) -> Rows {
    let wire = ours("broker")?;
    let mut words = vec!["--cpu-list".to_owned(), "0".to_owned(), wire.path.display().to_string()];
    words.extend(wire.words);
    let pinned = Program { path: "taskset".into(), words, environment: wire.environment };
    let count = bench.count(RECORDS);
    let options = [("count", count.to_string()), ("size", SIZE.to_string()), ("keys", KEYS.to_string())];
    let (mut rates, mut batch) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let line = pinned.run(&options)?;
        // Of that core's time: others run on it, too.
        rates.push(number(&line, "records")? / number(&line, "cpu_seconds")?);
        batch.push(number(&line, "records")? / number(&line, "batches")?);
    }
    Ok(vec![Row::alone(
        "broker",
        format!("testkit, one core, batches of {:.0}, in and out", median(batch)),
        median(rates),
        "records/CPU s",
        Bar::AtLeast(1e6 / bench.factor),
    )])
}
