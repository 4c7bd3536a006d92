//! What is one broker? A folder with its configuration, its data, its log and its pid, and a JVM that runs on them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::secure::{self, Files};
use crate::leash::Leashed;
use crate::run;

/// Controllers listen this far above the first broker's port.
pub(super) const CONTROLLER_OFFSET: u16 = 100;
/// Any 16 bytes in base64 name a cluster; the same for every cluster of ours, so that a stray one is recognised.
const CLUSTER_ID: &str = "cHJvc29keS10ZXN0cy4u";
/// A quorum of three survives the stop of one; with fewer brokers the first alone is the controller.
const QUORUM: usize = 3;

#[derive(Debug)]
pub(crate) struct Node {
    id: usize,
    pub(super) port: u16,
    controller: u16,
    folder: PathBuf,
}

impl Node {
    pub(super) fn new(cluster: &Path, at: u16, first_port: u16) -> Node {
        Node {
            id: usize::from(at) + 1,
            port: first_port + at,
            controller: first_port + CONTROLLER_OFFSET + at,
            folder: cluster.join(format!("broker-{}", at + 1)),
        }
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    /// Nobody listens where this node wants to.
    pub(super) fn ports_are_free(&self) -> bool {
        [self.port, self.controller]
            .iter()
            .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }

    /// Writes the configuration and formats the storage.
    pub(super) fn format(&self, classpath: &str, all: &[Node], files: Option<&Files>) -> Result<(), String> {
        fs::create_dir_all(&self.folder)
            .map_err(|problem| format!("{}: {problem}", self.folder.display()))?;
        let write = |name: &str, text: &str| {
            fs::write(self.folder.join(name), text).map_err(|problem| format!("{name}: {problem}"))
        };
        write("server.properties", &self.configuration(all, files))?;
        write("classpath", classpath)?;
        let mut format = self.java(classpath);
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(self.properties());
        if files.is_some() {
            format.args(secure::format_arguments());
        }
        run::step("formatting Kafka's storage", "kafka-format", &mut format)
    }

    /// More lines for the configuration of a server that has not started yet.
    pub(super) fn set(&self, settings: &str) -> Result<(), String> {
        let path = self.properties();
        let told = |problem: std::io::Error| format!("{}: {problem}", path.display());
        let text = fs::read_to_string(&path).map_err(told)?;
        fs::write(&path, format!("{text}{settings}")).map_err(told)
    }

    fn configuration(&self, all: &[Node], files: Option<&Files>) -> String {
        let voters = all.get(..if all.len() >= QUORUM { all.len() } else { 1 }).unwrap_or_default();
        let is_controller = voters.iter().any(|voter| voter.id == self.id);
        let quorum = voters
            .iter()
            .map(|voter| format!("{}@127.0.0.1:{}", voter.id, voter.controller))
            .collect::<Vec<_>>();
        let replicas = all.len().min(3);
        let roles = if is_controller { "broker,controller" } else { "broker" };
        let (extra, protocols, more) = match files {
            Some(files) => (secure::listeners(self.port), secure::PROTOCOLS, secure::properties(files)),
            None => (String::new(), "", String::new()),
        };
        let advertised = format!("PLAINTEXT://127.0.0.1:{}{extra}", self.port);
        let mut listeners = advertised.clone();
        if is_controller {
            listeners.push_str(&format!(",CONTROLLER://127.0.0.1:{}", self.controller));
        }
        format!(
            "process.roles={roles}\nnode.id={}\ncontroller.quorum.voters={}\nlisteners={listeners}\n\
             advertised.listeners={advertised}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
             inter.broker.listener.name=PLAINTEXT\nlog.dirs={}\n\
             offsets.topic.replication.factor={replicas}\ntransaction.state.log.replication.factor={replicas}\n\
             transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor={replicas}\n\
             share.coordinator.state.topic.min.isr=1\ndefault.replication.factor={replicas}\n\
             group.consumer.min.session.timeout.ms=6000\ngroup.consumer.min.heartbeat.interval.ms=1000\n\
             group.initial.rebalance.delay.ms=0\nauto.create.topics.enable=false\n\
             broker.rack=rack-{}\n\
             replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector\n{more}",
            self.id,
            quorum.join(","),
            self.folder.join("data").display(),
            self.id,
        )
    }

    /// Starts the server so that it ends with us.
    pub(super) fn start_leashed(&self) -> Result<Leashed, String> {
        let process = Leashed::spawn(&mut self.server()?)?;
        self.write_pid(process.id())?;
        Ok(process)
    }

    /// Starts the server so that it stays when we and our terminal are gone.
    pub(super) fn start_detached(&self) -> Result<(), String> {
        let process = self
            .server()?
            .process_group(0)
            .spawn()
            .map_err(|problem| format!("java did not start: {problem}"))?;
        self.write_pid(process.id())
    }

    fn server(&self) -> Result<Command, String> {
        let classpath =
            fs::read_to_string(self.folder.join("classpath")).map_err(|problem| problem.to_string())?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .map_err(|problem| problem.to_string())?;
        let both = log.try_clone().map_err(|problem| problem.to_string())?;
        let mut server = self.java(&classpath);
        server.arg("kafka.Kafka").arg(self.properties()).stdin(Stdio::null()).stdout(log).stderr(both);
        Ok(server)
    }

    /// Changes a setting of the running broker, by Kafka's own tool over the plaintext listener.
    pub(super) fn change(&self, setting: &str) -> Result<(), String> {
        let classpath =
            fs::read_to_string(self.folder.join("classpath")).map_err(|problem| problem.to_string())?;
        let mut java = self.java(&classpath);
        java.args(["kafka.admin.ConfigCommand", "--bootstrap-server", &format!("127.0.0.1:{}", self.port)])
            .args(["--entity-type", "brokers", "--entity-name", &self.id.to_string()])
            .args(["--alter", "--add-config", setting]);
        run::step("changing a setting of Kafka", "kafka-config", &mut java)
    }

    fn java(&self, classpath: &str) -> Command {
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-cp", classpath, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        java.current_dir(&self.folder);
        java
    }

    fn write_pid(&self, pid: u32) -> Result<(), String> {
        fs::write(self.folder.join("pid"), pid.to_string()).map_err(|problem| format!("pid file: {problem}"))
    }

    /// The server's process, when it is alive and really ours: process ids are used again.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.folder.join("pid")).ok()?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(&self.properties().display().to_string()).then_some(pid)
    }

    /// User and system time of its process, which the kernel counts in hundredths of a second.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        // The second field is the name in brackets and may hold spaces.
        let fields = stat.rsplit(')').next()?.split_whitespace();
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<u64>().ok());
        ticks.sum::<Option<u64>>().map(|ticks| ticks as f64 / 100.0)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    pub(super) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Node;
    use std::path::Path;

    #[test]
    fn three_brokers_are_a_quorum_and_two_follow_the_first() {
        let cluster = |count| (0..count).map(|at| Node::new(Path::new("/c"), at, 9092)).collect::<Vec<_>>();
        let three = cluster(3);
        let text = three[2].configuration(&three, None);
        assert!(
            text.contains("controller.quorum.voters=1@127.0.0.1:9192,2@127.0.0.1:9193,3@127.0.0.1:9194\n")
        );
        assert!(text.contains("process.roles=broker,controller\nnode.id=3\n"));
        let two = cluster(2);
        let text = two[1].configuration(&two, None);
        assert!(
            text.contains("process.roles=broker\nnode.id=2\ncontroller.quorum.voters=1@127.0.0.1:9192\n")
        );
        assert!(text.contains("listeners=PLAINTEXT://127.0.0.1:9093\n"));
    }
}
