//! The rows of time that passes: how long does a message, a timer or a waiting event wait? Ours are
//! `prosody-runtime/examples/{waits,timers,grant}.rs`.

use super::programs::{Program, balanced, median, number};
use super::row::{Bar, Row};
use super::{Bench, KEYS, Rows};

/// Messages whose handlers replace the timers of their key.
const REPLACED: u64 = 1_000_000;
/// Timers that are due in one second.
const BURST: u64 = 10_000;
/// Timers in mind that are not due.
const RESIDENT: u64 = 100_000;
/// Messages a second for the hot key, which can handle 10.
const HOT_RATE: u64 = 20;
const HOT_SECONDS: u64 = 15;
const IDLE: u64 = 2_000;

/// From `send` to the handler, one message at a time.
pub(super) fn latency(bench: &mut Bench) -> Rows {
    let count = ("count", bench.count(IDLE).to_string());
    let (mock, real) = (Program::ours("waits", &["idle-mock"])?, Program::ours("waits", &["idle"])?);
    let topic = bench.topic("latency")?;
    let (mut in_process, mut on_kafka) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        in_process.push(number(&mock.run(std::slice::from_ref(&count))?, "p50_us")?);
        let mut options = topic.clone();
        options.extend([count.clone(), ("group", format!("latency-{round}"))]);
        on_kafka.push(number(&real.run(&options)?, "p50_us")?);
    }
    let row = |case, values, most: f64| {
        Row::alone("latency", case, median(values), "µs", Bar::AtMost(most * bench.factor))
    };
    Ok(vec![
        row("send to handler, idle, mock, p50", in_process, 300.0),
        row("send to handler, idle, real Kafka, p50", on_kafka, 1_500.0),
    ])
}

/// What short keys wait beside a key that gets more than it can handle, and without it.
pub(super) fn hot(bench: &mut Bench) -> Rows {
    let program = Program::ours("waits", &["hot"])?;
    let p99 = |rate: u64| {
        let options =
            [("seconds", bench.count(HOT_SECONDS).max(3).to_string()), ("hot-rate", rate.to_string())];
        number(&program.run(&options)?, "p99_us")
    };
    let (beside, without) = balanced(bench.rounds(), || p99(HOT_RATE), || p99(0))?;
    let case = "p99 wait of 1,000 short keys beside one of 100 ms";
    let peer = Some(("without it".to_owned(), without));
    let bar = Bar::RatioAtMost(2.0);
    Ok(vec![Row { peer, ..Row::alone("hot", case, beside, "µs", bar) }])
}

/// One permit granted while ten thousand events wait.
pub(super) fn grant(bench: &mut Bench) -> Rows {
    let line = Program::ours("grant", &[])?.run(&[])?;
    let case = "a grant with 10,000 waiting events, every lane in use";
    Ok(vec![Row::alone("grant", case, number(&line, "grant_us")?, "µs", Bar::AtMost(5.0 * bench.factor))])
}

/// Timers on the memory store: messages that replace theirs, and how late ten thousand of one second are.
pub(super) fn timers(bench: &mut Bench) -> Rows {
    let count = bench.count(REPLACED);
    let options = [("count", count.to_string()), ("keys", KEYS.to_string())];
    let (replace, late) = (Program::ours("timers", &["replace"])?, Program::ours("timers", &["late"])?);
    let mut rates = Vec::new();
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let line = replace.run(&options)?;
        rates.push(number(&line, "records")? / number(&line, "seconds")?);
        for (resident, times) in [(0, &mut alone), (RESIDENT, &mut beside)] {
            let options = [("count", BURST.to_string()), ("resident", resident.to_string())];
            times.push(number(&late.run(&options)?, "p99_ms")?);
        }
    }
    let late =
        |case, times| Row::alone("timers", case, median(times), "ms", Bar::AtMost(50.0 * bench.factor));
    let rate = Bar::AtLeast(80_000.0 / bench.factor);
    Ok(vec![
        Row::alone(
            "timers",
            "clear_and_schedule per message, memory store",
            median(rates),
            "messages/s",
            rate,
        ),
        late("lateness of 10,000 timers of one second, p99", alone),
        late("the same beside 100,000 that are not due, p99", beside),
    ])
}
