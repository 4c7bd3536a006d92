//! How do we run a program, and what became of it?

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::leash::Leashed;
use crate::progress;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// `target/xtask`: tools, logs, server data. Safe to delete while nothing runs.
pub(crate) fn scratch(name: &str) -> Result<PathBuf, String> {
    let folder = root().join("target/xtask").join(name);
    fs::create_dir_all(&folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    Ok(folder)
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What `cargo run` sets for us must not leak into the builds we start.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || name == "CARGO_PRIMARY_PACKAGE"
        {
            command.env_remove(name);
        }
    }
    command.current_dir(root());
    command
}

/// Whether a program answers to `name` on PATH.
pub(crate) fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// What a finished program left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ok: bool,
    /// Standard output and standard error, interleaved as written.
    pub(crate) output: String,
}

impl Ran {
    /// The last lines, for a person who has to find out why.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let all: Vec<&str> = self.output.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }
}

/// Runs `command` to its end, both outputs into one log file `target/xtask/logs/NAME.log` and into memory.
pub(crate) fn logged(name: &str, command: &mut Command) -> Result<Ran, String> {
    let log = scratch("logs")?.join(format!("{name}.log"));
    let file = File::create(&log).map_err(|problem| format!("{}: {problem}", log.display()))?;
    let both = file.try_clone().map_err(|problem| format!("{}: {problem}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file).stderr(both);
    let mut child = Leashed::spawn(command)?;
    let status = child.child().wait().map_err(|problem| format!("{name}: {problem}"))?;
    let output = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    Ok(Ran { ok: status.success(), output })
}

/// Runs `command` and returns its standard output; standard error goes to ours. An exit code other than 0 is an error.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|problem| format!("{name} did not start: {problem}"))?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` with its standard output read line by line as it comes; standard error goes to ours.
pub(crate) fn lines_of(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Leashed::spawn(command)?;
    let pipe = child.child().stdout.take().ok_or("the pipe was just asked for")?;
    for text in BufReader::new(pipe).lines().map_while(Result::ok) {
        line(&text);
    }
    child.child().wait().map(|status| status.success()).map_err(|problem| problem.to_string())
}

/// Runs a step whose failure ends the command: quiet when it works, its last lines when it does not.
pub(crate) fn step(what: &str, log: &str, command: &mut Command) -> Result<(), String> {
    progress::doing(what);
    let ran = logged(log, command)?;
    if ran.ok { Ok(()) } else { Err(format!("{what} failed:\n{}", ran.tail(40))) }
}

/// How a program of ours is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As the tests are: the same artifacts, nothing is built twice.
    Dev,
    /// For measuring.
    Release,
}

/// Builds an example and returns its path. `--workspace` with an example resolves features as `cargo test --workspace`
/// does, so what the tests have built is used again.
pub(crate) fn example(name: &str, profile: Profile) -> Result<PathBuf, String> {
    build(name, &["--example", name], profile).map(|folder| folder.join("examples").join(name))
}

/// Builds a program and returns its path. The example is there for its features: without one, cargo would leave the
/// dev-dependencies out and build tokio and all that depends on it once more.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    build(name, &["--bin", name, "--example", "quickstart"], Profile::Dev).map(|folder| folder.join(name))
}

fn build(name: &str, what: &[&str], profile: Profile) -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace"]).args(what);
    if profile == Profile::Release {
        build.arg("--release");
    }
    step(&format!("building {name}"), &format!("build-{name}"), &mut build)?;
    Ok(target().join(if profile == Profile::Release { "release" } else { "debug" }))
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
