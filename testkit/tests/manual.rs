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

fn lines() -> Vec<String> {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker.md");
    let text = std::fs::read_to_string(manual).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
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

#[test]
fn every_action_and_route_has_a_line() {
    let manual = lines().join("\n");
    for action in [
        "error",
        "delay_ms",
        "delay_answer_ms",
        "cut_before",
        "cut_after",
        "hang",
        "hang_after",
        "mute",
        "half_close",
        "wrong_correlation",
        "duplicate",
        "garbage",
        "garbage_base64",
        "body_base64",
        "absurd_length",
        "partial_write",
        "throttle_ms",
        "observe",
    ] {
        assert!(manual.contains(&format!("\"{action}\"")), "{action}");
    }
    for route in [
        "/cluster",
        "/topics/orders",
        "/recreate",
        "/records",
        "/leader",
        "/metadata",
        "/compact",
        "/retention",
        "/groups",
        "/coordinator",
        "/evict",
        "/stop",
        "/start",
        "/cut",
        "/rules",
        "/journal",
        "/violations",
    ] {
        assert!(manual.contains(route), "{route}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, wanted) in [
        ("--as-version 1.0", "there are 2.1, 2.8, 3.9, 4.2"),
        ("--brokers 0", "1 to 1024 are possible"),
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
