//! How is a client asked to do something? Each is a program that reads JSON lines and answers every one with a JSON line,
//! so that a behaviour is written once and runs with clients of every language (`conformance/README.md`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::leash::Leashed;
use crate::run;

/// A client that has not answered this long after the time it was given is broken.
const GRACE: Duration = Duration::from_secs(25);

/// Short enough that a forgotten member is not waited for long, long enough for a machine that is busy.
pub(super) const SESSION_MS: u64 = 15_000;

/// Why something did not come out as it should.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The client reports an error, with Kafka's number for it if it has one.
    Refused { code: Option<i64>, text: String },
    /// The client has no such feature.
    Lacks(String),
    /// The broker does not offer what this operation needs.
    NotOffered { operation: String, fields: Value },
    /// It came out otherwise, or not at all.
    Wrong(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Wrong(why)
    }
}

pub(super) type Outcome = Result<(), Trouble>;

/// One client, connected to one cluster.
pub(super) struct Agent {
    process: Mutex<Option<(Leashed, ChildStdin)>>,
    answers: Mutex<Receiver<String>>,
    /// API keys of the broker, where a request it does not know is not to be sent: some clients wait for ever.
    offered: Option<Arc<BTreeSet<i16>>>,
    /// The session of its members, where a behaviour does not say another.
    session_ms: u64,
}

/// Which API an operation needs.
fn api(operation: &str) -> Option<i16> {
    let api = match operation {
        "create" => 19,
        "delete" => 20,
        "trim" => 21,
        "configs" => 32,
        "grow" => 37,
        "alter" => 44,
        "cluster" => 60,
        "groups" => 16,
        "group" => 15,
        "drop_group" => 42,
        _ => return None,
    };
    Some(api)
}

impl Agent {
    /// Starts the program; what it logs goes to the file `log` in the logs' folder.
    pub(super) fn start(mut command: Command, log: &str) -> Result<Agent, String> {
        let log = run::scratch("logs")?.join(format!("conform-{log}.log"));
        let log = File::options().create(true).append(true).open(&log);
        let log = log.map_err(|problem| problem.to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = Leashed::spawn(&mut command)?;
        let (child, missing) = (process.child(), "the pipe was just asked for");
        let (input, output) = (child.stdin.take().ok_or(missing)?, child.stdout.take().ok_or(missing)?);
        let (say, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Only JSON objects are answers; a client may print what it likes besides.
                if line.starts_with('{') && say.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Agent {
            process: Mutex::new(Some((process, input))),
            answers: Mutex::new(answers),
            offered: None,
            session_ms: SESSION_MS,
        })
    }

    /// The same client, which asks for nothing that is not among these APIs.
    pub(super) fn within(mut self, offered: &Arc<BTreeSet<i16>>) -> Agent {
        self.offered = Some(Arc::clone(offered));
        self
    }

    /// The same client, whose members have sessions of this length.
    pub(super) fn with_session(mut self, session_ms: u64) -> Agent {
        self.session_ms = session_ms;
        self
    }

    /// Asks for one operation and waits for what came of it.
    pub(super) fn ask(&self, operation: &str, fields: Value) -> Result<Value, Trouble> {
        if let (Some(offered), Some(api)) = (&self.offered, api(operation))
            && !offered.contains(&api)
        {
            return Err(Trouble::NotOffered { operation: operation.to_owned(), fields });
        }
        let mut line = fields;
        line["op"] = json!(operation);
        if operation == "join" && line.get("session_ms").is_none() {
            line["session_ms"] = json!(self.session_ms);
        }
        let wait =
            line.get("ms").and_then(Value::as_u64).map_or(GRACE, |ms| GRACE + Duration::from_millis(ms));
        let broken = |why: &str| Trouble::Wrong(format!("{operation}: the client {why}"));
        match lock(&self.process).as_mut() {
            Some((_, input)) => writeln!(input, "{line}").map_err(|_| broken("is gone"))?,
            None => return Err(broken("was killed")),
        }
        let Ok(answer) = lock(&self.answers).recv_timeout(wait) else {
            self.kill();
            return Err(broken("does not answer"));
        };
        let mut answer: Value = serde_json::from_str(&answer).map_err(|why| broken(&why.to_string()))?;
        if let Some(what) = answer.get("lacks").and_then(Value::as_str) {
            return Err(Trouble::Lacks(what.to_owned()));
        }
        if let Some(error) = answer.get("error") {
            let text = error.get("text").and_then(Value::as_str).unwrap_or_default();
            let code = error.get("code").and_then(Value::as_i64);
            return Err(Trouble::Refused { code, text: format!("{operation}: {text}") });
        }
        Ok(answer["ok"].take())
    }

    /// `kill -9`: nobody is told.
    pub(super) fn kill(&self) {
        drop(lock(&self.process).take());
    }

    pub(super) fn is_alive(&self) -> bool {
        lock(&self.process).as_mut().is_some_and(|(process, _)| process.is_running())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
