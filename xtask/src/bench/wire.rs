//! The rows of the Kafka layer beside other clients: producing, raw consuming, one awaited send, the first record and the
//! end, memory. Ours is `prosody-wire/examples/wire.rs`, or `throughput` where a user holds the whole client.

use serde_json::Value;

use super::peers::{Peer, SLOW, Work, balanced, best, counted, medians};
use super::programs::{Program, median, number, per_cpu_second};
use super::row::{Bar, Row};
use super::{Bench, KEYS, PARTITIONS, Rows, SIZE};

const RECORDS: u64 = 5_000_000;
/// Records of 1 kB: as many bytes as the disk has room for beside the other topics.
const LARGE_RECORDS: u64 = 2_000_000;
const LARGE: u64 = 1_000;

pub(super) type Options = Vec<(&'static str, String)>;

pub(super) fn ours(verb: &str) -> Result<Program, String> {
    Program::ours("wire", &[verb])
}

impl Bench {
    /// Creates a topic and returns the options that name it.
    pub(super) fn topic(&mut self, what: &str) -> Result<Options, String> {
        self.topic_of(what, u64::from(PARTITIONS))
    }

    pub(super) fn topic_of(&mut self, what: &str, partitions: u64) -> Result<Options, String> {
        let options = vec![("bootstrap", self.kafka()?), ("topic", self.fresh(what))];
        let mut create = options.clone();
        create.push(("partitions", partitions.to_string()));
        ours("create")?.run(&create)?;
        Ok(options)
    }

    /// A topic with `count` records, written by our producer in this run.
    pub(super) fn filled(&mut self, what: &str, count: u64) -> Result<Options, String> {
        self.filled_with(what, count, SIZE, "lz4")
    }

    pub(super) fn filled_with(
        &mut self,
        what: &str,
        count: u64,
        size: u64,
        codec: &str,
    ) -> Result<Options, String> {
        let options = self.topic(what)?;
        let mut fill = sized(&options, count, size);
        fill.push(("codec", codec.to_owned()));
        ours("produce")?.run(&fill)?;
        Ok(options)
    }

    /// Why a peer that cost `per_second` records a CPU second is no fair peer.
    pub(super) fn slow(&self, per_second: f64, usual_per_million: f64) -> Option<String> {
        let cost = 1e6 / per_second;
        let most = usual_per_million * self.factor * SLOW;
        (cost > most).then(|| format!("peer slow: {cost:.2} CPU s per million, over {most:.2}"))
    }

    /// A row of records per CPU second beside the best of the peers.
    fn rates(
        &self,
        bench: &'static str,
        case: &str,
        work: Work,
        bar: f64,
        peers: &[Peer],
        lines: &[Vec<Value>],
    ) -> Result<Row, String> {
        let rates = medians(lines, per_cpu_second)?;
        let (value, theirs) = rates.split_first().ok_or("we ran")?;
        let theirs = counted(peers, work, theirs, self.factor);
        Ok(Row {
            bench,
            case: case.to_owned(),
            value: *value,
            unit: "records/CPU s".to_owned(),
            peer: best(case, peers, &theirs, |one, other| one > other),
            bar: Bar::Ratio(bar),
            objection: None,
        })
    }
}

fn sized(options: &[(&'static str, String)], count: u64, size: u64) -> Options {
    let mut all = options.to_vec();
    all.extend([("count", count.to_string()), ("size", size.to_string()), ("keys", KEYS.to_string())]);
    all
}

/// Ours first, then the peers'.
fn programs(ours: Program, peers: &[Peer], verb: &str) -> Vec<Program> {
    std::iter::once(ours).chain(peers.iter().map(|peer| peer.program(verb))).collect()
}

fn one<T>(all: &[T], at: usize) -> Result<&T, String> {
    all.get(at).ok_or_else(|| format!("there is no program {at}"))
}

/// Produce, idempotent, lz4, pipelined.
pub(super) fn produce(bench: &mut Bench) -> Rows {
    let peers = bench.peers()?;
    let programs = programs(ours("produce")?, &peers, "produce");
    let delete = ours("delete")?;
    let mut rows = Vec::new();
    for (case, work, count, size, bar) in [
        ("idempotent, lz4, 100 B", Work::Produce100Lz4, RECORDS, SIZE, 1.5),
        ("idempotent, lz4, 1 kB", Work::Produce1000Lz4, LARGE_RECORDS, LARGE, 1.2),
    ] {
        let count = bench.count(count);
        let lines = balanced(bench.rounds(), programs.len(), |which| {
            // Every run has a topic of its own: a log that grows would make the later ones slower.
            let topic = bench.topic("produce")?;
            let mut options = sized(&topic, count, size);
            options.push(("partitions", PARTITIONS.to_string()));
            let line = one(&programs, which)?.run(&options);
            delete.run(&topic)?;
            line
        })?;
        rows.push(bench.rates("produce", case, work, bar, &peers, &lines)?);
    }
    Ok(rows)
}

/// Raw consuming, the memory it takes, and what it costs the broker.
pub(super) fn consume(bench: &mut Bench) -> Rows {
    let peers = bench.peers()?;
    let programs = programs(ours("consume")?, &peers, "consume");
    let delete = ours("delete")?;
    let (mut rows, mut peaks, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for (case, work, codec, count, size, bar) in [
        ("raw records, none, 100 B", Work::Consume100, "none", RECORDS, SIZE, 1.1),
        ("raw records, lz4, 100 B", Work::Consume100Lz4, "lz4", RECORDS, SIZE, 1.1),
        ("raw records, none, 1 kB", Work::Consume1000, "none", LARGE_RECORDS, LARGE, 1.1),
        ("raw records, lz4, 1 kB", Work::Consume1000Lz4, "lz4", LARGE_RECORDS, LARGE, 1.5),
    ] {
        let count = bench.count(count);
        let topic = bench.filled_with("consume", count, size, codec)?;
        let mut options = topic.clone();
        options.extend([("count", count.to_string()), ("partitions", PARTITIONS.to_string())]);
        let lines = balanced(bench.rounds(), programs.len(), |which| {
            let before = bench.broker_cpu()?;
            let line = one(&programs, which)?.run(&options)?;
            if which == 0 && size == SIZE {
                costs.push((bench.broker_cpu()? - before) * 1e6 / count as f64);
                peaks.push(number(&line, "peak_rss_kib")? * 1024.0 / 1e6);
            }
            Ok(line)
        })?;
        delete.run(&topic)?;
        rows.push(bench.rates("consume", case, work, bar, &peers, &lines)?);
    }
    rows.push(Row::alone(
        "consume",
        "peak memory, 100 B, defaults",
        peaks.into_iter().fold(0.0, f64::max),
        "MB",
        Bar::AtMost(48.0),
    ));
    rows.push(Row::alone(
        "consume",
        "what it costs the broker, 100 B",
        median(costs),
        "CPU s/million",
        Bar::AtMost(0.06 * bench.factor),
    ));
    Ok(rows)
}

/// One awaited send at a time, nothing else going on: ours at its defaults, the peers without lingering. They run on the
/// caller's thread, and so does the Kafka layer; the client that users hold has threads of its own.
pub(super) fn send(bench: &mut Bench) -> Rows {
    let mut options = bench.topic("send")?;
    options.push(("count", bench.count(20_000).to_string()));
    let peers = bench.peers()?;
    let mut programs = programs(ours("send")?, &peers, "send");
    programs.insert(1, Program::ours("throughput", &["send"])?);
    let lines = balanced(bench.rounds(), programs.len(), |which| one(&programs, which)?.run(&options))?;
    let times = medians(&lines, |line| number(line, "p50_us"))?;
    let [layer, client, theirs @ ..] = times.as_slice() else { return Err("we ran".to_owned()) };
    let peer = best("awaited single send, idle, p50", &peers, theirs, |one, other| one < other);
    let bar = peer.as_ref().map_or(f64::NAN, |(_, time)| time * 1.1);
    let row = |case: &str, value: &f64, bar| Row {
        bench: "send",
        case: case.to_owned(),
        value: *value,
        unit: "µs".to_owned(),
        peer: peer.clone(),
        bar,
        objection: None,
    };
    Ok(vec![
        row("awaited single send, idle, p50", layer, Bar::AtMost(bar)),
        row("through the whole client", client, Bar::Judged { bar: None, ok: true }),
    ])
}

/// From making a client with a new group to the first record, and from there to the end, the commit included.
pub(super) fn first(bench: &mut Bench) -> Rows {
    let options = bench.filled("first", 1_000)?;
    let peers = bench.peers()?;
    let programs = programs(Program::ours("throughput", &["first"])?, &peers, "first");
    let tries = if bench.quick { 3 } else { 15 };
    let mut group = 0;
    let lines = balanced(tries, programs.len(), |which| {
        group += 1;
        let mut options = options.clone();
        options.push(("group", format!("first-{group}")));
        one(&programs, which)?.run(&options)
    })?;
    let mut rows = Vec::new();
    for (case, figure, bar) in [
        ("fresh group to first record", "first_ms", 15.0),
        ("close after the last record, with its commit", "close_ms", 20.0),
    ] {
        let times = medians(&lines, |line| number(line, figure))?;
        let (value, theirs) = times.split_first().ok_or("we ran")?;
        let krafka = peers.iter().zip(theirs).find(|(peer, _)| peer.name == "krafka");
        let most = match (figure, krafka) {
            ("first_ms", Some((_, krafka))) => (bar * bench.factor).min(krafka * 1.1),
            _ => bar * bench.factor,
        };
        rows.push(Row {
            bench: "first",
            case: case.to_owned(),
            value: *value,
            unit: "ms".to_owned(),
            peer: best(case, &peers, theirs, |one, other| one < other),
            bar: Bar::AtMost(most),
            objection: None,
        });
    }
    Ok(rows)
}
