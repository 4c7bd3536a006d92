#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]
//! Is every line of docs/broker.md true? They run in their order, as a reader would type them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use prosody_base::Doors;
use prosody_testkit::port::answer;
use prosody_testkit::{Cluster, ClusterConfig};

const BROKER: &str = env!("CARGO_BIN_EXE_prosody-broker");

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for what the lines write, and a path on which the program is found.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let folder = std::env::temp_dir().join(format!("prosody-manual-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Place(folder)
    }

    fn shell(&self, line: &str) -> Command {
        let programs = Path::new(BROKER).parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.0).env("PATH", path).stdin(Stdio::null());
        shell
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn manual() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker.md")).unwrap()
}

fn lines() -> Vec<String> {
    manual().lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn every_line_of_the_manual_does_what_it_says() {
    let (place, lines) = (Place::new(), lines());
    assert!(lines.len() > 50, "{}", lines.len());
    let (mut broker, mut addresses) = (None, [("BOOTSTRAP", String::new()), ("CONTROL", String::new())]);
    for line in &lines {
        if line.starts_with("prosody-broker") && !line.contains("--check") {
            // `exec`, so that what is ended is the broker and not a shell.
            let mut child = place.shell(&format!("exec {line}")).stdout(Stdio::piped()).spawn().unwrap();
            let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
            broker = Some(Ends(child));
            for (name, address) in &mut addresses {
                let line = printed.next().expect("a line").unwrap();
                let (said, text) = line.split_once('=').expect("NAME=ADDRESS");
                assert_eq!(said.to_uppercase(), *name, "{line}");
                *address = text.to_owned();
            }
            continue;
        }
        let is_request = line.starts_with("curl ");
        // `-f` makes an error of a status from 400 on, and still shows what was said.
        let line =
            if is_request { line.replacen("curl ", "curl --fail-with-body -m 20 ", 1) } else { line.clone() };
        let output = place.shell(&line).envs(addresses.clone()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {said} {}", String::from_utf8_lossy(&output.stderr));
        if is_request && !line.ends_with("$CONTROL/") {
            serde_json::from_str::<serde_json::Value>(&said)
                .unwrap_or_else(|why| panic!("{line}: {why}: {said}"));
        }
    }
    assert!(broker.is_some());
}

/// What the control port answers without being asked over a socket.
async fn ask(method: &str, path: &str, body: &str) -> String {
    let cluster = Cluster::start(ClusterConfig::default(), Doors::simulated(1));
    answer(&cluster, method, path, "", body.as_bytes()).await.body
}

#[tokio::test]
async fn every_action_has_a_line() {
    let manual = lines().join("\n");
    let refused = ask("POST", "/rules", r#"{"action": "?"}"#).await;
    // "…; there are observe, cut_before, …, and with a value error, …"
    let names = refused.split_once("there are ").expect("the names").1.split('"').next().unwrap();
    let names: Vec<&str> = names.split(", ").filter_map(|name| name.split(' ').next_back()).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(manual.contains(&format!("\"{name}\"")), "{name}");
    }
}

/// Method and path of a request, as curl would send it.
fn request(line: &str) -> Option<(&str, &str)> {
    let path = line.split_once("$CONTROL")?.1.split([' ', '"', '?']).next()?;
    let method = line.split_once("-X ").and_then(|(_, rest)| rest.split(' ').next());
    Some((method.unwrap_or(if line.contains(" -d ") { "POST" } else { "GET" }), path))
}

#[tokio::test]
async fn every_route_has_a_line() {
    let (help, lines) = (ask("GET", "/", "").await, lines());
    let played: Vec<_> = lines.iter().filter_map(|line| request(line)).collect();
    // A capital letter stands for a name or a number.
    let is_name = |part: &str| part.len() == 1 && part.starts_with(char::is_uppercase);
    let mut routes = 0;
    for route in help.lines() {
        let mut words = route.split_whitespace();
        let (method, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
        if path == "/groups/G" {
            // A group is made by its members, and curl is none.
            assert!(manual().contains("`/groups/NAME`"));
            continue;
        }
        let same = |played: &str| {
            let (ours, theirs) = (path.split('/'), played.split('/'));
            ours.clone().count() == theirs.clone().count()
                && ours.zip(theirs).all(|(one, other)| one == other || is_name(one))
        };
        assert!(played.iter().any(|played| played.0 == method && same(played.1)), "{method} {path}");
        routes += 1;
    }
    assert!(routes > 20, "{help}");
}

#[test]
fn every_switch_is_in_the_manual() {
    let output = Command::new(BROKER).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let manual = manual();
    let switches: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim().split(' ').next())
        .filter(|word| word.starts_with("--"))
        .collect();
    assert!(switches.len() > 10, "{help}");
    for switch in switches {
        assert!(manual.contains(&format!("`{switch}")), "{switch}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, wanted) in [
        ("--as-version 1.0", "there are 2.1, 2.8, 3.9, 4.2"),
        ("--brokers 0", "1 to 1024 are possible"),
        ("--check --brokers 3 --racks a,b", "names 2 racks; --brokers are 3"),
        (&format!("--check --racks {}", "a".repeat(256)), "a rack has at most 255 bytes"),
        ("--topic orders", "NAME:PARTITIONS wanted"),
        ("--user alice", "NAME:PASSWORD wanted"),
        ("--session-lifetime 5", "need --user, --oauth or --token"),
        ("--tls-key key.pem", "go together"),
        ("--tls-certificate /missing --tls-key /missing", "/missing: No such file"),
        ("--control x", "a number is wanted"),
        ("--frobnicate", "unknown argument --frobnicate"),
    ] {
        let output = Command::new(BROKER).args(arguments.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(wanted), "{arguments}: {said}");
    }
}
