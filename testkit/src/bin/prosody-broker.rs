//! The broker as a server of its own, for other processes and languages.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a program of its own owns its runtime")]

use std::io::{self, Write};
use std::process::ExitCode;

use prosody_base::{Doors, Lane};
use prosody_testkit::{Cluster, ClusterConfig};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: prosody-broker [--port P] [--brokers N] [--topic NAME:PARTITIONS]... [--auto-create]
                      [--version 2.1|2.8|3.9] [--rebalance-delay MS]
  --port P          port of the first broker on 127.0.0.1; the others follow it. 0 (default) takes any free ones
  --brokers N       brokers of the cluster (default 1)
  --topic NAME:N    creates a topic with N partitions; may be repeated
  --auto-create     creates topics with 4 partitions when a client asks for them
  --version V       serves only what that Apache Kafka release served
  --rebalance-delay MS   the first rebalance of a group waits this long (default 0)
Prints one line, `bootstrap=HOST:PORT,...`, once clients can connect. Ends on SIGTERM and ctrl-c.";

struct Args {
    port: u16,
    topics: Vec<(String, i32)>,
    config: ClusterConfig,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("prosody-broker: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prosody-broker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cluster = Cluster::start(args.config, Doors::process()?);
    for (name, partitions) in &args.topics {
        let created = cluster.create_topic(name, *partitions);
        created.map_err(|(code, why)| io::Error::other(format!("topic {name}: error {code}: {why}")))?;
    }
    cluster
        .serve_tcp(args.port)
        .map_err(|error| io::Error::new(error.kind(), format!("port {}: {error}", args.port)))?;
    println!("bootstrap={}", cluster.tcp_bootstrap());
    io::stdout().flush()?;
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    for violation in cluster.violations() {
        eprintln!("violation: {violation}");
    }
    Ok(())
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let config = ClusterConfig { lane: Lane::Work, ..ClusterConfig::default() };
    let mut parsed = Args { port: 0, topics: Vec::new(), config };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--port" => parsed.port = number(&arg, &value()?)?,
            "--brokers" => parsed.config.brokers = number(&arg, &value()?)?,
            "--topic" => {
                let text = value()?;
                let (name, count) =
                    text.rsplit_once(':').ok_or(format!("--topic {text}: NAME:PARTITIONS wanted"))?;
                parsed.topics.push((name.to_owned(), number(&arg, count)?));
            }
            "--auto-create" => parsed.config.auto_create = Some(4),
            "--version" => parsed.config = parsed.config.as_version(&value()?),
            "--rebalance-delay" => {
                parsed.config.initial_rebalance_delay =
                    std::time::Duration::from_millis(number(&arg, &value()?)?);
            }
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if !(1..=1_024).contains(&parsed.config.brokers) {
        return Err(format!("--brokers {}: 1 to 1024 are possible", parsed.config.brokers));
    }
    Ok(Some(parsed))
}

fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{arg} {text}: a number is wanted"))
}
