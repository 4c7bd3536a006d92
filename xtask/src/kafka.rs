//! How does a real Apache Kafka start and stop? KRaft on this machine's JDK, jars from Maven Central, data under
//! `target/xtask/kafka/`, several clusters at once on different ports.
//!
//! `cargo xtask kafka start` leaves its servers running and finds them again by their pid files. A [`Cluster`] belongs
//! to a test run: it ends with the run, however that ends.

mod jars;
mod node;
mod probe;
mod secure;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::leash::{self, Leashed};
use crate::progress::{doing, say};
use crate::{Outcome, run};
pub(crate) use jars::{Version, classpath};
use node::Node;
pub(crate) use probe::offered;
pub(crate) use secure::{Files, Listener, USER};

/// From the first process to an answer to Metadata that names every broker.
const START_DEADLINE: Duration = Duration::from_secs(300);
/// A clean shutdown moves leaders and flushes logs; after this the process is killed.
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// A process that has just been started has no command line yet, and is not known by it; ten looks later it is gone.
const ABSENCES: u32 = 10;
/// Where a person expects a Kafka.
const DEFAULT_PORT: u16 = 9092;
/// Brokers and controllers on one machine share two cores and its memory.
const MAX_BROKERS: u16 = 9;

/// `cargo xtask kafka start|stop|status`
pub(crate) fn command(mut args: Args) -> Outcome {
    let version = args.value("--version")?;
    let port: Option<u16> = args.number("--port")?;
    let brokers: Option<u16> = args.number("--brokers")?;
    let secure = args.flag("--secure");
    let verb = args.word();
    args.end()?;
    match verb.as_deref() {
        Some("start") => start(
            Version::named(version.as_deref().unwrap_or("4"))?,
            brokers.unwrap_or(1),
            port.unwrap_or(DEFAULT_PORT),
            secure,
        ),
        Some("stop") => stop(version.as_deref(), port),
        Some("status") => status(),
        _ => Err("kafka start, kafka stop or kafka status?".to_owned()),
    }
}

fn start(version: Version, brokers: u16, port: u16, secure: bool) -> Outcome {
    let (nodes, files) = prepare(version, brokers, port, secure)?;
    for node in &nodes {
        node.start_detached()?;
    }
    let ready = wait_ready(&nodes);
    if let Err(why) = ready {
        end(&nodes);
        return Err(why);
    }
    say(&format!("Kafka {} is ready: {}", version.full, bootstrap(&nodes)));
    if let Some(files) = files {
        say(&secure::guide(&files, port));
    }
    Ok(ExitCode::SUCCESS)
}

fn stop(version: Option<&str>, port: Option<u16>) -> Outcome {
    let version = version.map(Version::named).transpose()?;
    for (folder, nodes) in known()? {
        let chosen = version.is_none_or(|version| folder.starts_with(&format!("{}-", version.full)))
            && port.is_none_or(|port| folder.ends_with(&format!("-{port}")));
        if chosen && nodes.iter().any(|node| node.pid().is_some()) {
            doing(&format!("stopping {folder}"));
            end(&nodes);
            say(&format!("Kafka {folder} has stopped"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn status() -> Outcome {
    let mut running = false;
    for (folder, nodes) in known()? {
        let up: Vec<Node> = nodes.into_iter().filter(|node| node.pid().is_some()).collect();
        if !up.is_empty() {
            running = true;
            say(&format!("Kafka {folder}: {} broker(s) at {}", up.len(), bootstrap(&up)));
        }
    }
    if !running {
        say("no Kafka is running");
    }
    Ok(if running { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A cluster of a test run.
pub(crate) struct Cluster {
    pub(crate) version: Version,
    nodes: Vec<Node>,
    running: Vec<Option<Leashed>>,
}

impl Cluster {
    /// Starts `brokers` empty brokers on free ports from `port` on, and waits until all answer.
    pub(crate) fn start(version: Version, brokers: u16, port: u16) -> Result<Cluster, String> {
        Cluster::start_with(version, brokers, port, false, "").map(|(cluster, _)| cluster)
    }

    /// The same with more lines in the configuration of each broker.
    pub(crate) fn start_set(
        version: Version,
        brokers: u16,
        port: u16,
        settings: &str,
    ) -> Result<Cluster, String> {
        Cluster::start_with(version, brokers, port, false, settings).map(|(cluster, _)| cluster)
    }

    /// One broker that can be reached in every secure way, and the certificates for it.
    pub(crate) fn start_secure(version: Version, port: u16) -> Result<(Cluster, Files), String> {
        let (cluster, files) = Cluster::start_with(version, 1, port, true, "")?;
        Ok((cluster, files.ok_or("a secure cluster has certificates")?))
    }

    fn start_with(
        version: Version,
        brokers: u16,
        port: u16,
        secure: bool,
        settings: &str,
    ) -> Result<(Cluster, Option<Files>), String> {
        // Somebody's own cluster, or another run on this machine, may be where we want to be.
        let free = |port: &u16| (0..brokers).all(|at| Node::new(Path::new(""), at, *port).ports_are_free());
        let port = (port..port + node::CONTROLLER_OFFSET).step_by(10).find(free).unwrap_or(port);
        let (nodes, files) = prepare(version, brokers, port, secure)?;
        nodes.iter().try_for_each(|node| node.set(settings))?;
        let running = nodes.iter().map(|node| node.start_leashed().map(Some)).collect::<Result<_, _>>()?;
        let cluster = Cluster { version, nodes, running };
        wait_ready(&cluster.nodes)?;
        Ok((cluster, files))
    }

    /// Port of the first broker's plaintext listener.
    pub(crate) fn first_port(&self) -> u16 {
        self.nodes.first().map_or(0, |node| node.port)
    }

    /// Gives a listener of the first broker another certificate, without a restart.
    pub(crate) fn change_certificate(&self, listener: Listener, file: &str) -> Result<(), String> {
        let node = self.nodes.first().ok_or("a cluster has a broker")?;
        node.change(&secure::certificate_setting(listener, file))
    }

    /// `host:port` of every broker, as clients take it.
    pub(crate) fn bootstrap(&self) -> String {
        bootstrap(&self.nodes)
    }

    /// Process ids of the brokers that run, in their order.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.running.iter().flatten().map(Leashed::id).collect()
    }

    /// User and system time of all brokers so far, while all of them run.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.nodes.iter().map(Node::cpu_seconds).sum()
    }

    /// Ends one broker cleanly; its data stays.
    pub(crate) fn stop_broker(&mut self, at: usize) {
        if let Some(running) = self.running.get_mut(at)
            && let Some(mut process) = running.take()
        {
            process.signal("TERM");
            let deadline = Instant::now() + STOP_DEADLINE;
            while process.is_running() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Starts a stopped broker on its old data and waits until it answers.
    pub(crate) fn start_broker(&mut self, at: usize) -> Result<(), String> {
        let (Some(node), Some(running)) = (self.nodes.get(at), self.running.get_mut(at)) else {
            return Err(format!("there is no broker {at}"));
        };
        *running = Some(node.start_leashed()?);
        wait_ready(std::slice::from_ref(node))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.running.iter().flatten() {
            process.signal("TERM");
        }
        for at in 0..self.running.len() {
            self.stop_broker(at);
        }
    }
}

/// Jars, folders, configuration and formatted storage of a new cluster; what an older one left there is gone.
fn prepare(
    version: Version,
    brokers: u16,
    port: u16,
    secure: bool,
) -> Result<(Vec<Node>, Option<Files>), String> {
    if secure && brokers != 1 {
        return Err(format!("--secure --brokers {brokers}: a secure cluster has one broker"));
    }
    if brokers == 0 || brokers > MAX_BROKERS || port.checked_add(node::CONTROLLER_OFFSET + brokers).is_none()
    {
        return Err(format!(
            "--brokers {brokers} --port {port}: between 1 and {MAX_BROKERS} brokers on free ports"
        ));
    }
    crate::setup::java()?;
    let classpath = jars::classpath(version)?;
    let folder = run::scratch("kafka")?.join(format!("{}-{port}", version.full));
    let nodes: Vec<Node> = (0..brokers).map(|at| Node::new(&folder, at, port)).collect();
    if let Some(node) = nodes.iter().find(|node| node.pid().is_some() || !node.ports_are_free()) {
        return Err(format!("port {} or its controller's is taken: `cargo xtask kafka status`", node.port));
    }
    let _ = fs::remove_dir_all(&folder);
    doing(&format!("formatting the storage of Kafka {}", version.full));
    // Beside the cluster's folder: what is in there are its brokers.
    let secrets = run::scratch("kafka")?.join(format!("{}-{port}-secrets", version.full));
    let files = secure.then(|| Files::make(&secrets)).transpose()?;
    for node in &nodes {
        node.format(&classpath, &nodes, files.as_ref())?;
    }
    Ok((nodes, files))
}

fn wait_ready(nodes: &[Node]) -> Result<(), String> {
    let deadline = Instant::now() + START_DEADLINE;
    for node in nodes {
        doing(&format!("waiting for Kafka on port {}", node.port));
        let mut absences = 0;
        loop {
            let answer = probe::brokers(node.port);
            match answer {
                Ok(seen) if seen >= nodes.len() => break,
                _ if absences > ABSENCES => {
                    return Err(format!("Kafka on port {} ended:\n{}", node.port, node.log_tail()));
                }
                Ok(seen) if Instant::now() > deadline => {
                    return Err(format!(
                        "Kafka on port {} knows {seen} of {} brokers",
                        node.port,
                        nodes.len()
                    ));
                }
                Err(why) if Instant::now() > deadline => {
                    return Err(format!(
                        "Kafka on port {} did not answer: {why}\n{}",
                        node.port,
                        node.log_tail()
                    ));
                }
                Ok(_) | Err(_) => {
                    absences = if node.pid().is_some() { 0 } else { absences + 1 };
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
    Ok(())
}

fn bootstrap(nodes: &[Node]) -> String {
    nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect::<Vec<_>>().join(",")
}

/// Ends detached nodes: first all are asked, then each is waited for.
fn end(nodes: &[Node]) {
    for pid in nodes.iter().filter_map(Node::pid) {
        leash::signal(pid, "TERM");
    }
    let deadline = Instant::now() + STOP_DEADLINE;
    for node in nodes {
        while let Some(pid) = node.pid() {
            if Instant::now() > deadline {
                leash::signal(pid, "KILL");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Every cluster that has a folder, by the folder's name `VERSION-PORT`.
fn known() -> Result<Vec<(String, Vec<Node>)>, String> {
    let mut found = Vec::new();
    for cluster in folders(&run::scratch("kafka")?) {
        let Some(name) = cluster.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            continue;
        };
        let Some(port) = name.rsplit_once('-').and_then(|(_, port)| port.parse().ok()) else { continue };
        let count = folders(&cluster).len();
        found.push((name, (0..count).map(|at| Node::new(&cluster, at as u16, port)).collect()));
    }
    Ok(found)
}

fn folders(of: &PathBuf) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(of)
        .map(|entries| {
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
        })
        .unwrap_or_default();
    found.sort();
    found
}
