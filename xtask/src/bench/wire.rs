//! The rows of the Kafka layer: producing, raw consuming, one awaited send, memory. Ours is `prosody-wire/examples/wire.rs`.

use super::programs::{Program, balanced, median, number, per_cpu_second};
use super::row::{Bar, Row};
use super::{Bench, KEYS, PARTITIONS, Rows, SIZE};

const RECORDS: u64 = 5_000_000;
const LIBRDKAFKA: &str = "librdkafka";
/// CPU seconds per million records that librdkafka usually costs (design figures, 100 B, lz4): a peer far above them is
/// not the peer, and beating it proves nothing.
const LIBRDKAFKA_PRODUCE: f64 = 0.99;
const LIBRDKAFKA_CONSUME: f64 = 0.58;

fn ours(verb: &str) -> Result<Program, String> {
    Program::ours("wire", &[verb])
}

fn theirs(verb: &str) -> Result<Program, String> {
    Program::peer("peer-librdkafka", &[verb])
}

impl Bench {
    /// Creates a topic and returns the options that name it.
    pub(super) fn topic(&mut self, what: &str) -> Result<Vec<(&'static str, String)>, String> {
        let options = vec![("bootstrap", self.kafka()?), ("topic", self.fresh(what))];
        let mut create = options.clone();
        create.push(("partitions", PARTITIONS.to_string()));
        ours("create")?.run(&create)?;
        Ok(options)
    }

    /// A topic with `count` records, written by our producer in this run.
    pub(super) fn filled(&mut self, what: &str, count: u64) -> Result<Vec<(&'static str, String)>, String> {
        let options = self.topic(what)?;
        ours("produce")?.run(&sized(&options, count))?;
        Ok(options)
    }

    /// Why a peer that cost `per_second` records a CPU second is no fair peer.
    pub(super) fn slow(&self, per_second: f64, usual_per_million: f64) -> Option<String> {
        let cost = 1e6 / per_second;
        let most = usual_per_million * self.factor * 1.4;
        (cost > most).then(|| format!("peer slow: {cost:.2} CPU s per million, over {most:.2}"))
    }
}

fn sized(options: &[(&'static str, String)], count: u64) -> Vec<(&'static str, String)> {
    let mut all = options.to_vec();
    all.extend([("count", count.to_string()), ("size", SIZE.to_string()), ("keys", KEYS.to_string())]);
    all
}

/// Produce, idempotent, lz4, pipelined.
pub(super) fn produce(bench: &mut Bench) -> Rows {
    let (a, b) = (ours("produce")?, theirs("produce")?);
    let count = bench.count(RECORDS);
    let rounds = bench.rounds();
    // Every run has a topic of its own: a log that grows would make the later ones slower.
    let mut topics = Vec::new();
    for _ in 0..rounds * 2 {
        topics.push(sized(&bench.topic("produce")?, count));
    }
    let topics = std::cell::RefCell::new(topics);
    let run = |program: &Program| {
        let options = topics.borrow_mut().pop().ok_or("a topic for every run")?;
        per_cpu_second(&program.run(&options)?)
    };
    let (value, peer) = balanced(rounds, || run(&a), || run(&b))?;
    Ok(vec![Row {
        bench: "produce",
        case: "idempotent, lz4, 100 B, pipelined, real Kafka".to_owned(),
        value,
        unit: "records/CPU s".to_owned(),
        peer: Some((LIBRDKAFKA.to_owned(), peer)),
        bar: Bar::Ratio(1.0),
        objection: bench.slow(peer, LIBRDKAFKA_PRODUCE),
    }])
}

/// Raw consuming, and the memory it takes.
pub(super) fn consume(bench: &mut Bench) -> Rows {
    let (a, b) = (ours("consume")?, theirs("consume")?);
    let count = bench.count(RECORDS);
    let mut options = bench.filled("consume", count)?;
    options.extend([("count", count.to_string()), ("partitions", PARTITIONS.to_string())]);
    let mut peak = Vec::new();
    let (value, peer) = balanced(
        bench.rounds(),
        || {
            let line = a.run(&options)?;
            peak.push(number(&line, "peak_rss_kib")? / 1024.0);
            per_cpu_second(&line)
        },
        || per_cpu_second(&b.run(&options)?),
    )?;
    Ok(vec![
        Row {
            bench: "consume",
            case: "raw records, lz4, 100 B, real Kafka".to_owned(),
            value,
            unit: "records/CPU s".to_owned(),
            peer: Some((LIBRDKAFKA.to_owned(), peer)),
            bar: Bar::Ratio(2.0),
            objection: bench.slow(peer, LIBRDKAFKA_CONSUME),
        },
        Row {
            bench: "consume",
            case: "peak memory at the default fetch budget".to_owned(),
            value: peak.into_iter().fold(0.0, f64::max),
            unit: "MiB".to_owned(),
            peer: None,
            bar: Bar::AtMost(96.0),
            objection: None,
        },
    ])
}

/// One awaited send at a time, nothing else going on.
pub(super) fn send(bench: &mut Bench) -> Rows {
    let mut options = bench.topic("send")?;
    options.push(("count", bench.count(20_000).to_string()));
    // Through the client that users hold, at its defaults.
    let (a, b) = (Program::ours("throughput", &["send"])?, theirs("send")?);
    let (value, peer) = balanced(
        bench.rounds(),
        || number(&a.run(&options)?, "p50_us"),
        || number(&b.run(&options)?, "p50_us"),
    )?;
    Ok(vec![Row {
        bench: "send",
        case: "awaited single send, idle, loopback, p50".to_owned(),
        value,
        unit: "µs".to_owned(),
        peer: Some(("librdkafka, linger 0".to_owned(), peer)),
        bar: Bar::AtMost(400.0 * bench.factor),
        objection: None,
    }])
}

/// From subscribing with a new group to the first record.
pub(super) fn first(bench: &mut Bench) -> Rows {
    let options = bench.filled("first", 1_000)?;
    let (a, b) = (Program::ours("throughput", &["first"])?, theirs("first")?);
    let tries = if bench.quick { 3 } else { 15 };
    let (mut our, mut their) = (Vec::new(), Vec::new());
    for at in 0..tries {
        for (program, who, times) in [(&a, "a", &mut our), (&b, "b", &mut their)] {
            let mut options = options.clone();
            options.push(("group", format!("first-{who}-{at}")));
            times.push(number(&program.run(&options)?, "first_ms")?);
        }
    }
    Ok(vec![Row {
        bench: "first",
        case: "fresh group to first record, real Kafka".to_owned(),
        value: median(our),
        unit: "ms".to_owned(),
        peer: Some((LIBRDKAFKA.to_owned(), median(their))),
        bar: Bar::AtMost(60.0 * bench.factor),
        objection: None,
    }])
}
