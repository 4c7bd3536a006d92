//! Can other clients use our broker? Scripts in `testkit/tests/foreign/` drive them against the program `prosody-broker`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::kafka::{self, Version};
use crate::leash::Leashed;
use crate::progress::{doing, say};
use crate::report::{Tally, number_before};
use crate::{run, setup};

const SCRIPTS: &str = "testkit/tests/foreign";
/// One version for everybody, as for every tool.
const CONFLUENT_KAFKA: &str = "confluent-kafka==2.16.1";
const PYTHON_CLIENTS: [&str; 2] = ["aiokafka==0.14.0", "kafka-python==3.0.12"];
const PORT_LIBRDKAFKA: u16 = 19_692;
const PORT_PYTHON: u16 = 19_742;
const PORT_JAVA: u16 = 19_792;

/// librdkafka, through its Python package.
pub(crate) fn librdkafka() -> Tally {
    python("librdkafka", "librdkafka.py", &[CONFLUENT_KAFKA], PORT_LIBRDKAFKA)
}

/// aiokafka and kafka-python.
pub(crate) fn python_clients() -> Tally {
    python("python", "python_clients.py", &PYTHON_CLIENTS, PORT_PYTHON)
}

fn python(name: &str, script: &str, packages: &[&str], port: u16) -> Tally {
    let python = match setup::python(name, packages) {
        Ok(python) => python,
        Err(why) => return Tally::skipped(why),
    };
    with_broker(name, port, |bootstrap| {
        let mut command = Command::new(python);
        command.arg(run::root().join(SCRIPTS).join(script)).args(["--bootstrap", bootstrap]);
        Ok(command)
    })
}

/// The Java client, out of the jars of the current server.
pub(crate) fn java() -> Tally {
    if let Err(why) = setup::java() {
        return Tally::skipped(why);
    }
    with_broker("java", PORT_JAVA, |bootstrap| {
        let classpath = kafka::classpath(Version::named("4")?)?;
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", &classpath])
            .arg(run::root().join(SCRIPTS).join("JavaClient.java"))
            .args(["--bootstrap", bootstrap]);
        Ok(command)
    })
}

/// Starts our broker and runs the script against it: an `ok NAME` line for each test, `N passed, N failed` at the end.
fn with_broker(name: &str, port: u16, script: impl FnOnce(&str) -> Result<Command, String>) -> Tally {
    let ran = broker(port).and_then(|(_broker, bootstrap)| {
        doing(&format!("{name} against our broker"));
        run::logged(&format!("foreign-{name}"), &mut script(&bootstrap)?)
    });
    let ran = match ran {
        Ok(ran) => ran,
        Err(why) => return Tally::failed(why),
    };
    let passed = ran.output.lines().filter(|line| line.starts_with("ok ")).count();
    let failed = number_before(ran.output.lines().last().unwrap_or_default(), " failed");
    let mut tally = Tally { passed: passed as u64, failed, ..Tally::default() };
    if !ran.ok || passed == 0 {
        say(&ran.tail(40));
        tally.failed = failed.max(1);
        tally.failures.push(format!("see target/xtask/logs/foreign-{name}.log"));
    }
    tally
}

/// Our broker as a process of its own, with the bootstrap address that it prints.
fn broker(port: u16) -> Result<(Leashed, String), String> {
    let mut command = Command::new(run::program("prosody-broker")?);
    command.args(["--port", &port.to_string(), "--brokers", "3"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Leashed::spawn(&mut command)?;
    let pipe = process.child().stdout.take().ok_or("the pipe was just asked for")?;
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line).map_err(|problem| format!("prosody-broker: {problem}"))?;
    let address = line.split(|c: char| c.is_whitespace() || c == '=').rfind(|word| word.contains(':'));
    let bootstrap =
        address.ok_or_else(|| format!("prosody-broker printed `{}`, no address", line.trim()))?.to_owned();
    Ok((process, bootstrap))
}
