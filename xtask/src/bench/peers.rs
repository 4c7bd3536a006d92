//! Who are we measured against, and what do they usually cost?

use serde_json::Value;

use super::Bench;
use super::programs::{Program, median};
use crate::kafka::{self, Version};
use crate::progress::say;
use crate::{run, setup};

/// A peer that costs more than this much of its usual cost ran slow.
pub(super) const SLOW: f64 = 1.4;

/// A client of others: one program with the verbs `produce`, `consume`, `send` and `first`.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    program: Program,
    /// CPU seconds per million records that it usually costs (design figures), in the order of [`Work`].
    usual: [f64; 6],
}

/// What a peer's usual cost is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Consume100,
    Consume100Lz4,
    Consume1000,
    Consume1000Lz4,
    Produce100Lz4,
    Produce1000Lz4,
}

impl Peer {
    pub(super) fn program(&self, verb: &str) -> Program {
        let mut program = self.program.clone();
        program.words.push(verb.to_owned());
        program
    }

    /// What it counts for when it reached `per_second` records a CPU second: at least what it reaches at 1.4 × its usual
    /// cost. One far above its usual cost is not the peer, and beating it proves nothing.
    fn counted(&self, work: Work, per_second: f64, factor: f64) -> f64 {
        let usual = self.usual.get(work as usize).copied().unwrap_or(f64::INFINITY);
        per_second.max(1e6 / (usual * factor * SLOW))
    }
}

/// The rates that peers count for; says which of them ran slow.
pub(super) fn counted(peers: &[Peer], work: Work, rates: &[f64], factor: f64) -> Vec<f64> {
    let one = |(peer, rate): (&Peer, &f64)| {
        let counted = peer.counted(work, *rate, factor);
        if counted > *rate {
            let (cost, most) = (1e6 / rate, 1e6 / counted);
            say(&format!(
                "{:14} peer slow: {} took {cost:.2} CPU s per million and counts as {most:.2}",
                "", peer.name
            ));
        }
        counted
    };
    peers.iter().zip(rates).map(one).collect()
}

impl Bench {
    /// librdkafka and krafka; with `--all-peers` the Java client and Confluent.Kafka, too.
    pub(super) fn peers(&self) -> Result<Vec<Peer>, String> {
        let mut peers = vec![
            Peer {
                name: "librdkafka",
                program: Program::peer("peer-librdkafka", &[])?,
                usual: [0.54, 0.58, 0.60, 0.81, 0.99, 2.5],
            },
            Peer {
                name: "krafka",
                program: keeping(Program::peer("peer-krafka", &[])?),
                usual: [0.14, 0.19, 0.32, 1.35, 1.6, 2.8],
            },
        ];
        if self.all_peers {
            peers.push(Peer { name: "Java", program: java()?, usual: [0.28, 0.31, 1.8, 1.8, 0.9, 4.7] });
            peers.push(Peer {
                name: "Confluent.Kafka",
                program: confluent()?,
                usual: [0.66, 0.73, 1.4, 1.1, 2.1, 3.5],
            });
        }
        Ok(peers)
    }
}

/// With an allocator that keeps what is freed: krafka takes large buffers anew each time, and spends half of its time in
/// page faults otherwise.
fn keeping(mut program: Program) -> Program {
    for name in ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"] {
        program.environment.push((name.into(), "64000000".into()));
    }
    program
}

/// The Java client, on the jars of the server.
fn java() -> Result<Program, String> {
    setup::java()?;
    let classpath = kafka::classpath(Version::named("4")?)?;
    let classes = run::scratch("peer-java")?;
    let source = run::root().join("benches/peers/java/Peer.java");
    let mut compile = std::process::Command::new("javac");
    compile.args(["-cp", &classpath, "-d"]).arg(&classes).arg(source);
    run::step("compiling the Java peer", "build-peer-java", &mut compile)?;
    let classpath = format!("{}:{classpath}", classes.display());
    let words = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &classpath, "Peer"];
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(Program { path: "java".into(), words, environment: Vec::new() })
}

fn confluent() -> Result<Program, String> {
    let folder = run::root().join("benches/peers/target/confluent");
    let mut build = setup::dotnet_command()?;
    build
        .args(["build", "--configuration", "Release", "--artifacts-path"])
        .arg(&folder)
        .arg(run::root().join("benches/peers/confluent"));
    run::step("building the Confluent.Kafka peer", "build-peer-confluent", &mut build)?;
    let path = folder.join("bin/confluent/release/peer-confluent");
    Ok(Program { path, words: Vec::new(), environment: setup::dotnet_environment()? })
}

/// Runs several programs `rounds` times each, in the order A B C C B A A …, and returns their lines.
pub(super) fn balanced(
    rounds: usize,
    programs: usize,
    mut run: impl FnMut(usize) -> Result<Value, String>,
) -> Result<Vec<Vec<Value>>, String> {
    let mut lines = vec![Vec::new(); programs];
    for round in 0..rounds {
        for at in 0..programs {
            let which = if round % 2 == 0 { at } else { programs - 1 - at };
            if let Some(lines) = lines.get_mut(which) {
                lines.push(run(which)?);
            }
        }
    }
    Ok(lines)
}

/// The median of a figure of each program's lines.
pub(super) fn medians(
    lines: &[Vec<Value>],
    figure: impl Fn(&Value) -> Result<f64, String>,
) -> Result<Vec<f64>, String> {
    lines
        .iter()
        .map(|lines| lines.iter().map(&figure).collect::<Result<Vec<f64>, String>>().map(median))
        .collect()
}

/// The best peer, by name and value; says what all of them reached.
pub(super) fn best(
    what: &str,
    peers: &[Peer],
    values: &[f64],
    better: impl Fn(f64, f64) -> bool,
) -> Option<(String, f64)> {
    let named = || peers.iter().map(|peer| peer.name).zip(values.iter().copied());
    let all: Vec<String> = named().map(|(name, value)| format!("{name} {value:.4}")).collect();
    say(&format!("{:14} {what}: {}", "", all.join(", ")));
    let (name, value) = named().reduce(|one, other| if better(other.1, one.1) { other } else { one })?;
    Some((format!("{name} (best of {})", peers.len()), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_peer_counts_as_it_usually_is() {
        let program = Program { path: "peer".into(), words: Vec::new(), environment: Vec::new() };
        let peers = [Peer { name: "peer", program, usual: [0.5; 6] }];
        let rate = |per_second: f64| counted(&peers, Work::Consume100, &[per_second], 2.0);
        assert_eq!(rate(1e6), [1e6], "1 CPU s per million on a machine of half the speed is what it costs");
        assert_eq!(rate(1e5), [1e6 / 1.4], "ten times as much is not");
    }

    #[test]
    fn the_order_is_balanced() {
        let mut order = Vec::new();
        let run = |which| {
            order.push(which);
            Ok(Value::from(order.len()))
        };
        let lines = balanced(3, 3, run).unwrap();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2]);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3]);
        let medians = medians(&lines, |line| line.as_f64().ok_or_else(String::new)).unwrap();
        assert_eq!(medians, [6.0, 5.0, 4.0]);
    }
}
