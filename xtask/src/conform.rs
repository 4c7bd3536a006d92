//! Do our client and our broker get on with those of others? A matrix of behaviours: our client with every broker, and
//! every client with our broker. `conform/behaviours.rs` is the list, `conform/excuses.rs` what others get wrong.

#![allow(clippy::indexing_slicing, reason = "fields of JSON objects that are made here")]

mod admin;
mod agent;
mod behaviours;
mod data;
mod excuses;
mod groups;
mod mixed;
mod programs;
mod reading;
mod stage;
mod table;
mod transactions;

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::kafka;
use crate::progress::{doing, say};
use crate::report::Tally;
use crate::test::Tier;
use agent::{Agent, Outcome, Trouble};
use behaviours::{BEHAVIOURS, Behaviour, Way};
use excuses::{EXCUSES, Seen};
use programs::{CLIENTS, Client, Running, SERVERS, Server};
use stage::{Stage, UNSUPPORTED_VERSION};

/// Columns played at once: most of their time is waiting.
const AT_ONCE: usize = 4;

/// Their groups take seconds to settle, or say little that the others do not: for the long tier.
const SLOW: [Server; 3] = [Server::Kafka39, Server::Mock, Server::Tansu];

/// A client and a broker that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    client: Client,
    server: Server,
}

impl Pair {
    /// The side that is not ours.
    fn name(self) -> &'static str {
        if self.client == Client::Ours { self.server.name() } else { self.client.name() }
    }

    fn plays(self, behaviour: &Behaviour) -> bool {
        match behaviour.way {
            Way::Both => true,
            Way::Ours => self.client == Client::Ours,
            Way::Theirs => self.client != Client::Ours,
        }
    }

    /// Who is beside the client under test.
    fn peer(self) -> Client {
        if self.client == Client::Ours { Client::Librdkafka } else { Client::Ours }
    }
}

/// What became of one behaviour of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    Ok,
    /// The broker does not offer the request, and our client says so by name.
    Told(String),
    /// The other side gets it wrong; the table of excuses says what.
    Excused(&'static str),
    /// The client, or the broker, has no such feature.
    Lacks(&'static str),
    Red(String),
}

/// A pair with what became of each behaviour, and how long it took. `None`: not part of its way.
type Column = (Pair, Vec<Option<Mark>>, Duration);

/// `cargo xtask test --suite conformance`
pub(crate) fn suite(tier: Tier) -> Tally {
    run(tier, &wanted("PROSODY_CONFORM_PAIRS"), &wanted("PROSODY_CONFORM_NAMES"))
}

/// For a person who looks for one cell: words, parted by commas, of which one must be in the name.
fn wanted(variable: &str) -> Vec<String> {
    let words = std::env::var(variable).unwrap_or_default();
    words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn run(tier: Tier, pairs: &[String], names: &[String]) -> Tally {
    let chosen = |words: &[String], name: &str| {
        words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
    };
    let ours = SERVERS.map(|server| Pair { client: Client::Ours, server });
    let theirs = CLIENTS.map(|client| Pair { client, server: Server::Ours });
    let all = ours.into_iter().chain(theirs);
    // A person who names a pair gets it in any tier.
    let all = all.filter(|pair| tier == Tier::Full || !pairs.is_empty() || !SLOW.contains(&pair.server));
    let all: Vec<Pair> = all.filter(|pair| chosen(pairs, pair.name())).collect();
    let behaviours: Vec<&Behaviour> = BEHAVIOURS.iter().filter(|one| chosen(names, one.name)).collect();
    let waiting: Mutex<VecDeque<Pair>> = Mutex::new(all.iter().copied().collect());
    let columns: Mutex<Vec<Column>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                // In a statement of its own: a guard in the condition would be held as long as the column takes.
                let next = || lock(&waiting).pop_front();
                while let Some(pair) = next() {
                    let start = Instant::now();
                    let column = column(pair, &behaviours);
                    say(&format!("  {} is done ({:.0} s)", pair.name(), start.elapsed().as_secs_f32()));
                    lock(&columns).push((pair, column, start.elapsed()));
                }
            });
        }
    });
    let mut columns = columns.into_inner().unwrap_or_else(PoisonError::into_inner);
    columns.sort_by_key(|(pair, _, _)| all.iter().position(|one| one == pair));
    let whole = names.is_empty() && pairs.is_empty();
    let clients: Vec<Client> = columns.iter().map(|(pair, _, _)| pair.client).collect();
    let wrong = if tier == Tier::Full { shown(&clients) } else { Vec::new() };
    table::close(tier, whole, &behaviours, &columns, wrong)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays every behaviour with one pair. `None`: not part of this way.
fn column(pair: Pair, behaviours: &[&Behaviour]) -> Vec<Option<Mark>> {
    let stopped = |why: String| {
        let red = |one: &&Behaviour| pair.plays(one).then(|| Mark::Red(why.clone()));
        behaviours.iter().map(red).collect()
    };
    doing(&format!("conformance: starting {}", pair.name()));
    let prepared =
        (|| Ok::<_, String>((pair.client.prepare()?, pair.peer().prepare()?, pair.server.start()?)))();
    let (client, peer, running) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return stopped(why),
    };
    let seed = running.bootstrap.split(',').next().unwrap_or_default().to_owned();
    let offered = match kafka::offered(&seed) {
        Ok(offered) => Arc::new(offered),
        Err(why) => return stopped(format!("{seed}: ApiVersions: {why}")),
    };
    let mut play = Play { pair, client, peer, running, offered, subject: None, other: None };
    let mut cells = Vec::new();
    for (number, behaviour) in behaviours.iter().enumerate() {
        cells.push(pair.plays(behaviour).then(|| {
            doing(&format!("conformance: {}: {}", pair.name(), behaviour.name));
            let start = Instant::now();
            let outcome = play.one(number, behaviour);
            let cell = judge(pair, behaviour, outcome);
            if std::env::var("PROSODY_CONFORM_TRACE").is_ok() {
                say(&format!(
                    "{:12} {:5.1} s {} {cell:?}",
                    pair.name(),
                    start.elapsed().as_secs_f32(),
                    behaviour.name
                ));
            }
            cell
        }));
    }
    cells
}

/// One pair at work: its programs, started again after a behaviour that went wrong.
struct Play {
    pair: Pair,
    client: Vec<String>,
    peer: Vec<String>,
    running: Running,
    offered: Arc<BTreeSet<i16>>,
    subject: Option<Agent>,
    other: Option<Agent>,
}

impl Play {
    fn one(&mut self, number: usize, behaviour: &Behaviour) -> Outcome {
        let log = self.pair.name().replace(' ', "-");
        let bootstrap = &self.running.bootstrap;
        let fresh = |agent: Option<Agent>, program: &[String], log: &str| match agent {
            Some(agent) if agent.is_alive() => Ok(agent),
            _ => programs::start(program, bootstrap, log)
                .map(|agent| agent.with_session(self.running.session_ms)),
        };
        let subject = fresh(self.subject.take(), &self.client, &log)?;
        let other = fresh(self.other.take(), &self.peer, &format!("{log}-peer"))?.within(&self.offered);
        let another = || programs::start(&self.client, bootstrap, &log);
        let create = |agent: &Agent, topic: &str, partitions: i64, configs: &serde_json::Value| {
            self.running.create(agent, topic, partitions, configs)
        };
        let stage = Stage {
            subject: &subject,
            peer: &other,
            peer_is_ours: self.pair.peer() == Client::Ours,
            another: &another,
            create: &create,
            brokers: self.running.brokers,
            name: format!("c{number}-{}", std::process::id()),
            counter: Cell::new(0),
        };
        stage::be_patient(excuses::find(self.pair.name(), behaviour.name).is_none());
        let outcome = match (behaviour.play)(&stage) {
            // Then the client under test has to say so.
            Err(Trouble::NotOffered { operation, fields }) => subject.ask(&operation, fields).map(drop),
            outcome => outcome,
        };
        // Members that a failure left behind would disturb the next behaviour.
        if outcome.is_ok() || matches!(outcome, Err(Trouble::Lacks(_))) {
            (self.subject, self.other) = (Some(subject), Some(other));
        }
        outcome
    }
}

fn judge(pair: Pair, behaviour: &Behaviour, outcome: Outcome) -> Mark {
    match (outcome, excuses::find(pair.name(), behaviour.name)) {
        (Ok(()), Some(excuse)) if excuse.seen != Seen::Sometimes => {
            Mark::Red("it is excused, and it works: take the excuse out".to_owned())
        }
        (Ok(()), _) => Mark::Ok,
        (Err(Trouble::Refused { code: Some(UNSUPPORTED_VERSION), text }), None)
            if text.contains("does not offer") =>
        {
            Mark::Told(text)
        }
        (Err(_), Some(excuse)) if excuse.seen == Seen::Lacks => Mark::Lacks(excuse.defect),
        (Err(_), Some(excuse)) => Mark::Excused(excuse.defect),
        (Err(why), None) => Mark::Red(words(why)),
    }
}

fn words(trouble: Trouble) -> String {
    match trouble {
        Trouble::Lacks(what) => format!("the client lacks it: {what}"),
        Trouble::NotOffered { operation, .. } => {
            format!("the broker does not offer what `{operation}` needs")
        }
        Trouble::Refused { code, text } => format!("{text} (code {code:?})"),
        Trouble::Wrong(why) => why,
    }
}

/// Plays what excuses a client with Apache Kafka instead of our broker: it must fail there too, or it is our fault.
fn shown(clients: &[Client]) -> Vec<String> {
    let excused =
        |client: &Client| EXCUSES.iter().any(|row| row.other == client.name() && row.seen != Seen::Sometimes);
    let mut wrong = Vec::new();
    for client in clients.iter().copied().filter(excused) {
        let pair = Pair { client, server: Server::Kafka4 };
        let excused = |one: &&Behaviour| {
            excuses::find(client.name(), one.name).is_some_and(|row| row.seen != Seen::Sometimes)
        };
        let rows = BEHAVIOURS.iter().filter(excused);
        let rows: Vec<&Behaviour> = rows.collect();
        for (row, mark) in rows.iter().zip(column(pair, &rows)) {
            if !matches!(mark, Some(Mark::Excused(_) | Mark::Lacks(_))) {
                wrong.push(format!("{}: {}: excused, and with Kafka 4: {mark:?}", client.name(), row.name));
            }
        }
    }
    wrong
}
