//! How do the members of a group run in a test? As `consume` processes whose lines one list collects as they arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::history::{Handled, Stored};
use crate::leash::Leashed;

/// After SIGTERM a member drains, commits and leaves; its own budget for that is shorter.
const STOP_DEADLINE: Duration = Duration::from_secs(40);
/// How long a handler works: long enough that a member always has many running.
const WORK_MS: u64 = 5;

/// The members of one group.
pub(crate) struct Members {
    program: PathBuf,
    bootstrap: String,
    group: String,
    topic: String,
    /// Arguments of every member that joins from now on.
    arguments: Vec<&'static str>,
    /// What configures every member that joins from now on; the last of a name counts.
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    said: Arc<Mutex<Log>>,
    members: Vec<Member>,
}

/// What the lines said so far, with the different records of each partition as they come.
#[derive(Default)]
struct Log {
    events: Vec<Handled>,
    distinct: BTreeMap<i32, BTreeSet<i64>>,
}

struct Member {
    process: Option<Leashed>,
    reader: Option<JoinHandle<()>>,
    assigned: Arc<Mutex<BTreeSet<i64>>>,
    /// How often its assignment changed.
    changes: Arc<AtomicUsize>,
    /// Bytes from each broker, once it has ended.
    received: Arc<Mutex<BTreeMap<String, f64>>>,
    /// Handlers at work, as its last line says.
    running: Arc<AtomicI64>,
}

impl Members {
    pub(crate) fn new(
        program: &Path,
        bootstrap: &str,
        (group, topic): (&str, &str),
        environment: &[(&'static str, &str)],
        log: PathBuf,
    ) -> Members {
        Members {
            program: program.to_path_buf(),
            bootstrap: bootstrap.to_owned(),
            group: group.to_owned(),
            topic: topic.to_owned(),
            arguments: Vec::new(),
            environment: environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            log,
            said: Arc::default(),
            members: Vec::new(),
        }
    }

    /// Members that join from now on have this argument, too.
    pub(crate) fn argument(&mut self, name: &'static str, value: &'static str) {
        self.arguments.extend([name, value]);
    }

    /// Configures the members that join from now on.
    pub(crate) fn set(&mut self, variable: &'static str, value: &str) {
        self.environment.push((variable, value.to_owned()));
    }

    /// Starts one more member and returns its number.
    pub(crate) fn join(&mut self) -> Result<usize, String> {
        let number = self.members.len();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|problem| format!("{}: {problem}", self.log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(["--bootstrap", &self.bootstrap, "--group", &self.group, "--topic", &self.topic])
            .args(["--work-ms", &WORK_MS.to_string()])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut process = Leashed::spawn(&mut command)?;
        let pipe = process.child().stdout.take().ok_or("the pipe was just asked for")?;
        let (handled, assigned) = (Arc::clone(&self.said), Arc::<Mutex<BTreeSet<i64>>>::default());
        let partitions = Arc::clone(&assigned);
        let running = Arc::<AtomicI64>::default();
        let at_work = Arc::clone(&running);
        let (changes, received) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<BTreeMap<_, _>>>::default());
        let (changed, bytes) = (Arc::clone(&changes), Arc::clone(&received));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                match serde_json::from_str::<Value>(&line) {
                    Ok(value) => {
                        if let Some(running) = value.get("running").and_then(Value::as_i64) {
                            at_work.store(running, Ordering::Relaxed);
                        }
                        if value.get("event").is_some() {
                            changed.fetch_add(1, Ordering::Relaxed);
                        }
                        if let Some(of) = value.get("received").and_then(Value::as_object) {
                            let of = of
                                .iter()
                                .filter_map(|(broker, bytes)| Some((broker.clone(), bytes.as_f64()?)));
                            bytes.lock().unwrap_or_else(PoisonError::into_inner).extend(of);
                        }
                        note(number, &value, &handled, &partitions);
                    }
                    Err(problem) => eprintln!("member {number} printed `{line}`: {problem}"),
                }
            }
        });
        self.members.push(Member {
            process: Some(process),
            reader: Some(reader),
            assigned,
            changes,
            received,
            running,
        });
        Ok(number)
    }

    /// Asks a member to stop and waits until it has; an exit code other than 0 is an error.
    pub(crate) fn leave(&mut self, number: usize) -> Result<(), String> {
        let Some(member) = self.members.get_mut(number) else { return Err(format!("no member {number}")) };
        let Some(mut process) = member.process.take() else { return Ok(()) };
        process.signal("TERM");
        wait(STOP_DEADLINE, &format!("member {number} to stop"), || !process.is_running())?;
        member.read_to_end();
        let status = process.child().wait().map_err(|problem| problem.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("member {number} ended with {status}")) }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) {
        if let Some(member) = self.members.get_mut(number) {
            member.process = None;
            member.read_to_end();
        }
    }

    /// Sends a signal to a member that lives on: `STOP`, `CONT`.
    pub(crate) fn signal(&self, number: usize, name: &str) {
        if let Some(process) = self.members.get(number).and_then(|member| member.process.as_ref()) {
            process.signal(name);
        }
    }

    /// Asks all to stop, then waits for each.
    pub(crate) fn leave_all(&mut self) -> Result<(), String> {
        (0..self.members.len()).try_for_each(|number| self.leave(number))
    }

    /// How many different records were handled so far.
    pub(crate) fn handled(&self) -> usize {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).distinct.values().map(BTreeSet::len).sum()
    }

    /// How many different records of a partition were handled so far.
    pub(crate) fn handled_of(&self, partition: i32) -> usize {
        let log = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        log.distinct.get(&partition).map_or(0, BTreeSet::len)
    }

    /// Everything handled, in the order of arrival.
    pub(crate) fn history(&self) -> Vec<Handled> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).events.clone()
    }

    /// How many events have been handled so far, those that came again among them.
    pub(crate) fn events(&self) -> usize {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).events.len()
    }

    /// The partitions of which a member has handled something since there were so many events.
    pub(crate) fn worked_on(&self, number: usize, since: usize) -> BTreeSet<i64> {
        let log = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let later = log.events.get(since..).unwrap_or_default().iter();
        later.filter(|event| event.member == number).map(|event| event.record.partition.into()).collect()
    }

    /// The partitions that a member says it has.
    pub(crate) fn partitions(&self, number: usize) -> BTreeSet<i64> {
        self.members.get(number).map_or_else(BTreeSet::new, |member| {
            member.assigned.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// How many partitions a member says it has.
    pub(crate) fn assigned(&self, number: usize) -> usize {
        self.partitions(number).len()
    }

    /// How often a member's assignment changed.
    pub(crate) fn changes(&self, number: usize) -> usize {
        self.members.get(number).map_or(0, |member| member.changes.load(Ordering::Relaxed))
    }

    /// Bytes that a member that has left had from each broker.
    pub(crate) fn received(&self, number: usize) -> BTreeMap<String, f64> {
        let of = |member: &Member| member.received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.members.get(number).map(of).unwrap_or_default()
    }

    /// How many handlers a member had at work when it last said so.
    pub(crate) fn running(&self, number: usize) -> i64 {
        self.members.get(number).map_or(0, |member| member.running.load(Ordering::Relaxed))
    }

    /// Waits until `enough` records were handled; a member that ends by itself is an error.
    pub(crate) fn wait_handled(&mut self, enough: usize, patience: Duration) -> Result<(), String> {
        let ended = |members: &mut Vec<Member>| {
            members
                .iter_mut()
                .position(|member| member.process.as_mut().is_some_and(|process| !process.is_running()))
        };
        let (mut dead, mut seen) = (None, 0);
        let waited = wait(patience, &format!("{enough} records to be handled"), || {
            dead = ended(&mut self.members);
            seen = self.handled();
            seen >= enough || dead.is_some()
        });
        match (dead, waited) {
            (Some(number), _) if seen < enough => {
                Err(format!("member {number} ended by itself, its log is {}", self.log.display()))
            }
            (_, Err(why)) => Err(format!("{why}: there were {seen}; logs in {}", self.log.display())),
            _ => Ok(()),
        }
    }
}

impl Member {
    fn read_to_end(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn note(member: usize, line: &Value, log: &Mutex<Log>, assigned: &Mutex<BTreeSet<i64>>) {
    let number = |field: &str| line.get(field).and_then(Value::as_i64);
    if let (Some(partition), Some(offset)) = (number("partition"), number("offset")) {
        let key = line.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
        let record = Stored { partition: i32::try_from(partition).unwrap_or(-1), offset, key };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.distinct.entry(record.partition).or_default().insert(record.offset);
        log.events.push(Handled { member, record });
        return;
    }
    let partitions =
        line.get("partitions").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_i64);
    let mut assigned = assigned.lock().unwrap_or_else(PoisonError::into_inner);
    match line.get("event").and_then(Value::as_str) {
        Some("assigned") => assigned.extend(partitions),
        Some("revoked" | "lost") => partitions.for_each(|partition| {
            assigned.remove(&partition);
        }),
        _ => {}
    }
}

/// Waits for a condition.
pub(crate) fn wait(patience: Duration, what: &str, mut until: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    while !until() {
        if Instant::now() > deadline {
            return Err(format!("waited {} s for {what}", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
