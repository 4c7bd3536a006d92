//! The broker as a server of its own, for other processes and languages. docs/broker.md is its manual.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a program of its own owns its runtime")]

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Lane, Rng};
use prosody_testkit::broker::AS_VERSIONS;
use prosody_testkit::port::ControlPort;
use prosody_testkit::{Cluster, ClusterConfig, ServerSasl, ServerTls};
use tokio::signal::unix::{SignalKind, signal};

/// Longest name of a rack: a longer one does not fit into the Metadata of old clients.
const RACK_BYTES: usize = 255;

const USAGE: &str = "usage: prosody-broker [OPTION]...
  --port P          port of the first broker on 127.0.0.1; the others follow it. 0 (default) takes any free ones
  --control P       port of the control over HTTP on 127.0.0.1; 0 takes a free one. Without it there is none
  --brokers N       brokers of the cluster (default 1)
  --racks A,B,...   rack of each broker, in their order; an empty one is none; consumers
                    then read from their own
  --topic NAME:N    creates a topic with N partitions; may be repeated
  --auto-create     creates topics with 4 partitions when a client asks for them
  --as-version V    serves only what Apache Kafka 2.1, 2.8, 3.9 or 4.2 serves
  --rebalance-delay MS   the first rebalance of a group waits this long (default 0)
  --check           starts, prints its lines and ends
  --seed N          what is drawn at random is the same in every run
 TLS on every listener:
  --tls-certificate FILE   PEM of the brokers' certificate chain, for 127.0.0.1
  --tls-key FILE           PEM of its private key
  --tls-client-authority FILE   PEM of who signs clients: one without such a certificate is refused (mTLS)
 SASL on every listener:
  --user NAME:PASSWORD     by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; may be repeated
  --oauth                  by OAUTHBEARER with an unsecured JWT that has a subject and has not expired
  --token TOKEN            by OAUTHBEARER with this token; may be repeated
  --iterations N           of SCRAM (default 4096)
  --session-lifetime MS    a client proves itself again within this time (default never)
Prints one line, `bootstrap=HOST:PORT,...`, once clients can connect, and `control=URL` behind it when there is a control
port. Ends on SIGTERM and ctrl-c, and then prints what clients did that must never happen.";

/// What the arguments say.
struct Args {
    port: u16,
    control: Option<u16>,
    seed: Option<u64>,
    topics: Vec<(String, i32)>,
    check: bool,
    tls: [Option<String>; 3],
    sasl: Option<ServerSasl>,
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

async fn run(mut args: Args) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut doors = Doors::process()?;
    if let Some(seed) = args.seed {
        doors.rng = Rng::seeded(seed);
    }
    args.config.tls = tls(&args.tls).map_err(io::Error::other)?;
    args.config.sasl = args.sasl;
    let cluster = Arc::new(Cluster::start(args.config, doors));
    for (name, partitions) in &args.topics {
        let created = cluster.create_topic(name, *partitions);
        created.map_err(|(code, why)| io::Error::other(format!("topic {name}: error {code}: {why}")))?;
    }
    let taken =
        |port: u16| move |error: io::Error| io::Error::new(error.kind(), format!("port {port}: {error}"));
    cluster.serve_tcp(args.port).map_err(taken(args.port))?;
    let control =
        args.control.map(|port| ControlPort::open(&cluster, port).map_err(taken(port))).transpose()?;
    println!("bootstrap={}", cluster.tcp_bootstrap());
    if let Some(control) = &control {
        println!("control={}", control.url());
    }
    io::stdout().flush()?;
    if args.check {
        return Ok(());
    }
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

/// Reads what the three options about TLS name.
fn tls([certificate, key, clients]: &[Option<String>; 3]) -> Result<Option<ServerTls>, String> {
    let read = |file: &String| std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (read(certificate)?, read(key)?),
        (None, None) if clients.is_none() => return Ok(None),
        _ => return Err("--tls-certificate and --tls-key go together".to_owned()),
    };
    let clients = clients.as_ref().map(read).transpose()?;
    ServerTls::new(&certificate, &key, clients.as_deref()).map(Some).map_err(|why| format!("TLS: {why}"))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let config = ClusterConfig { lane: Lane::Work, ..ClusterConfig::default() };
    let mut parsed = Args {
        port: 0,
        control: None,
        seed: None,
        topics: Vec::new(),
        check: false,
        tls: [None, None, None],
        sasl: None,
        config,
    };
    let [certificate, key, clients] = &mut parsed.tls;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--port" => parsed.port = number(&arg, &value()?)?,
            "--control" => parsed.control = Some(number(&arg, &value()?)?),
            "--brokers" => parsed.config.brokers = number(&arg, &value()?)?,
            "--racks" => parsed.config.racks = value()?.split(',').map(str::to_owned).collect(),
            "--topic" => {
                let (name, count) = pair(&arg, &value()?, "NAME:PARTITIONS")?;
                parsed.topics.push((name, number(&arg, &count)?));
            }
            "--auto-create" => parsed.config.auto_create = Some(4),
            "--as-version" => {
                let release = value()?;
                if !AS_VERSIONS.contains(&release.as_str()) {
                    return Err(format!("--as-version {release}: there are {}", AS_VERSIONS.join(", ")));
                }
                parsed.config = parsed.config.as_version(&release);
            }
            "--rebalance-delay" => {
                parsed.config.initial_rebalance_delay = Duration::from_millis(number(&arg, &value()?)?);
            }
            "--check" => parsed.check = true,
            "--seed" => parsed.seed = Some(number(&arg, &value()?)?),
            "--tls-certificate" => *certificate = Some(value()?),
            "--tls-key" => *key = Some(value()?),
            "--tls-client-authority" => *clients = Some(value()?),
            "--user" => {
                let (name, password) = pair(&arg, &value()?, "NAME:PASSWORD")?;
                let sasl = with_sasl(&mut parsed.sasl, &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
                sasl.users.insert(name, password);
            }
            "--oauth" => {
                with_sasl(&mut parsed.sasl, &["OAUTHBEARER"]);
            }
            "--token" => {
                with_sasl(&mut parsed.sasl, &["OAUTHBEARER"]).tokens.insert(value()?);
            }
            "--iterations" => {
                with_sasl(&mut parsed.sasl, &[]).iterations = number::<NonZeroU32>(&arg, &value()?)?;
            }
            "--session-lifetime" => {
                with_sasl(&mut parsed.sasl, &[]).session_lifetime =
                    Duration::from_millis(number(&arg, &value()?)?);
            }
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if !(1..=1_024).contains(&parsed.config.brokers) {
        return Err(format!("--brokers {}: 1 to 1024 are possible", parsed.config.brokers));
    }
    let (racks, brokers) = (parsed.config.racks.len(), parsed.config.brokers);
    if racks > 0 && i32::try_from(racks) != Ok(brokers) {
        return Err(format!("--racks names {racks} racks; --brokers are {brokers}"));
    }
    if parsed.config.racks.iter().any(|rack| rack.len() > RACK_BYTES) {
        return Err(format!("--racks: a rack has at most {RACK_BYTES} bytes"));
    }
    if parsed.sasl.as_ref().is_some_and(|sasl| sasl.mechanisms.is_empty()) {
        return Err("--iterations and --session-lifetime need --user, --oauth or --token".to_owned());
    }
    Ok(Some(parsed))
}

/// The settings of SASL, with these mechanisms among them.
fn with_sasl<'a>(settings: &'a mut Option<ServerSasl>, mechanisms: &[&str]) -> &'a mut ServerSasl {
    let settings =
        settings.get_or_insert_with(|| ServerSasl { mechanisms: Vec::new(), ..ServerSasl::new([]) });
    for name in mechanisms {
        if !settings.mechanisms.iter().any(|known| known == name) {
            settings.mechanisms.push((*name).to_owned());
        }
    }
    settings
}

/// A text with a colon, cut at the last one of a topic and the first one of a user.
fn pair(arg: &str, text: &str, wanted: &str) -> Result<(String, String), String> {
    let cut = if arg == "--topic" { text.rsplit_once(':') } else { text.split_once(':') };
    let (first, second) = cut.ok_or_else(|| format!("{arg} {text}: {wanted} wanted"))?;
    Ok((first.to_owned(), second.to_owned()))
}

fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{arg} {text}: a number is wanted"))
}
