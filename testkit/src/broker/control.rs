//! Which requests are taken over, and what happens to them?
//!
//! A rule is a [`Match`] and an [`Action`]. Rules are asked in the order they were added; the first that matches and
//! strikes decides. Counting is per rule: `nth` and `times` count the requests that match.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prosody_base::Rng;
use tokio::sync::Notify;

use super::ApiKey;
use super::topics::lock;

/// Rules a cluster holds at most; later ones are refused by removing the oldest.
const RULES: usize = 10_000;

/// Which requests a rule is about. Empty fields match everything; the default matches every request, always.
#[derive(Clone, Debug, Default)]
pub struct Match {
    api: Option<ApiKey>,
    versions: Option<RangeInclusive<i16>>,
    broker: Option<i32>,
    topic: Option<String>,
    partition: Option<i32>,
    group: Option<String>,
    member: Option<String>,
    client: Option<String>,
    skip: u64,
    times: Option<u64>,
    probability: Option<f64>,
    seed: Option<u64>,
}

impl Match {
    /// Every request.
    #[must_use]
    pub fn any() -> Match {
        Match::default()
    }

    /// Requests of one API.
    #[must_use]
    pub fn api(api: ApiKey) -> Match {
        Match { api: Some(api), ..Match::default() }
    }

    /// Only requests of this API.
    #[must_use]
    pub fn only_api(self, api: ApiKey) -> Match {
        Match { api: Some(api), ..self }
    }

    /// Only these versions.
    #[must_use]
    pub fn versions(self, versions: RangeInclusive<i16>) -> Match {
        Match { versions: Some(versions), ..self }
    }

    /// Only at this broker.
    #[must_use]
    pub fn broker(self, broker: i32) -> Match {
        Match { broker: Some(broker), ..self }
    }

    /// Only requests that touch this topic; an error then strikes only its partitions.
    #[must_use]
    pub fn topic(self, topic: &str) -> Match {
        Match { topic: Some(topic.to_owned()), ..self }
    }

    /// Only requests that touch this partition; an error then strikes only it.
    #[must_use]
    pub fn partition(self, topic: &str, partition: i32) -> Match {
        Match { topic: Some(topic.to_owned()), partition: Some(partition), ..self }
    }

    /// Only requests about this group.
    #[must_use]
    pub fn group(self, group: &str) -> Match {
        Match { group: Some(group.to_owned()), ..self }
    }

    /// Only requests of this member id, or of this `group.instance.id`.
    #[must_use]
    pub fn member(self, member: &str) -> Match {
        Match { member: Some(member.to_owned()), ..self }
    }

    /// Only requests of this client id.
    #[must_use]
    pub fn client(self, client: &str) -> Match {
        Match { client: Some(client.to_owned()), ..self }
    }

    /// Only the `nth` request that matches (from 1), once.
    #[must_use]
    pub fn nth(self, nth: u64) -> Match {
        Match { skip: nth.saturating_sub(1), times: Some(1), ..self }
    }

    /// Lets the first `skip` matching requests pass.
    #[must_use]
    pub fn after(self, skip: u64) -> Match {
        Match { skip, ..self }
    }

    /// Strikes at most `times` times.
    #[must_use]
    pub fn times(self, times: u64) -> Match {
        Match { times: Some(times), ..self }
    }

    /// Strikes with this probability, drawn from the cluster's seeded generator.
    #[must_use]
    pub fn probability(self, probability: f64) -> Match {
        Match { probability: Some(probability), ..self }
    }

    /// Draws [`Match::probability`] from a generator of this rule's own: the same requests are struck in every run.
    #[must_use]
    pub fn seed(self, seed: u64) -> Match {
        Match { seed: Some(seed), ..self }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing; the rule only counts.
    Observe,
    /// Answers this error code and has no effect on what the code strikes.
    Error(i16),
    /// Waits before the request has its effect. Later requests of the connection wait too, as in Kafka.
    Delay(Duration),
    /// Serves the request and waits before the answer.
    DelayAnswer(Duration),
    /// Closes the connection; the request has no effect.
    CutBefore,
    /// Serves the request and closes the connection without an answer.
    CutAfter,
    /// No effect and no answer; the connection stays open and reads on into nothing.
    Hang,
    /// Serves the request and never answers it or a later one of the connection.
    HangAfter,
    /// Serves this request and every later one of the connection, and writes none of their answers.
    Mute,
    /// Serves the request and tells the client to keep away for this long (KIP-219).
    Throttle(Duration),
    /// Serves the request, then closes the broker's direction without the answer; it goes on reading.
    HalfClose,
    /// Serves the request and answers these bytes instead, without any framing.
    Garbage(Bytes),
    /// Serves the request and answers with this body behind a right header.
    Body(Bytes),
    /// Serves the request and answers with a correlation id that was not asked.
    WrongCorrelation,
    /// Serves the request and announces an answer of this many bytes.
    AbsurdLength(i32),
    /// Serves the request, writes this many bytes of the answer and closes.
    PartialWrite(usize),
    /// Serves the request and writes its answer twice.
    DuplicateAnswer,
}

/// Names a rule that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule(pub(crate) u64);

/// What a request is about, as its API file reads it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) partitions: Vec<(String, Option<i32>)>,
    pub(crate) groups: Vec<String>,
    pub(crate) members: Vec<String>,
}

impl Scope {
    pub(crate) fn topic(&mut self, topic: &str) {
        self.partitions.push((topic.to_owned(), None));
    }

    pub(crate) fn partition(&mut self, topic: &str, partition: i32) {
        self.partitions.push((topic.to_owned(), Some(partition)));
    }

    pub(crate) fn group(&mut self, group: &str) {
        self.groups.push(group.to_owned());
    }

    pub(crate) fn member(&mut self, member: &str, instance: Option<&str>) {
        self.members.push(member.to_owned());
        self.members.extend(instance.map(str::to_owned));
    }
}

/// A rule that strikes a request.
#[derive(Clone, Debug)]
pub(crate) struct Strike {
    pub(crate) rule: u64,
    pub(crate) action: Action,
    pub(crate) topic: Option<String>,
    pub(crate) partition: Option<i32>,
}

/// Who asks, for [`Control::strike`].
pub(crate) struct Asked<'a> {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) broker: i32,
    pub(crate) client: &'a str,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    what: Match,
    action: Action,
    matched: u64,
    hits: u64,
    rng: Rng,
}

/// The rules of a cluster.
#[derive(Debug)]
pub struct Control {
    rules: Mutex<(u64, Vec<Entry>)>,
    count: AtomicUsize,
    rng: Rng,
    struck: Notify,
}

impl Control {
    pub(crate) fn new(rng: Rng) -> Control {
        Control { rules: Mutex::default(), count: AtomicUsize::new(0), rng, struck: Notify::new() }
    }

    /// Adds a rule behind the others.
    pub fn on(&self, what: Match, action: Action) -> Rule {
        let mut rules = lock(&self.rules);
        rules.0 += 1;
        let id = rules.0;
        if rules.1.len() >= RULES {
            rules.1.remove(0);
        }
        let rng = what.seed.map_or_else(|| self.rng.clone(), Rng::seeded);
        rules.1.push(Entry { id, what, action, matched: 0, hits: 0, rng });
        self.count.store(rules.1.len(), Ordering::Release);
        Rule(id)
    }

    /// Removes a rule. Requests it holds back already stay so.
    pub fn remove(&self, rule: Rule) {
        let mut rules = lock(&self.rules);
        rules.1.retain(|entry| entry.id != rule.0);
        self.count.store(rules.1.len(), Ordering::Release);
    }

    /// Ends a rule and keeps its count. Requests it holds back already stay so.
    pub fn lift(&self, rule: Rule) {
        for entry in lock(&self.rules).1.iter_mut().filter(|entry| entry.id == rule.0) {
            entry.what.times = Some(entry.hits);
        }
    }

    /// Ends every rule and keeps their counts.
    pub fn lift_all(&self) {
        for entry in &mut lock(&self.rules).1 {
            entry.what.times = Some(entry.hits);
        }
    }

    /// Removes every rule.
    pub fn clear(&self) {
        let mut rules = lock(&self.rules);
        rules.1.clear();
        self.count.store(0, Ordering::Release);
    }

    /// How often the rule struck; 0 for one that was removed.
    #[must_use]
    pub fn hits(&self, rule: Rule) -> u64 {
        lock(&self.rules).1.iter().find(|entry| entry.id == rule.0).map_or(0, |entry| entry.hits)
    }

    /// Waits until the rule struck `hits` times. Give it a deadline: it may never happen.
    pub async fn reached(&self, rule: Rule, hits: u64) {
        loop {
            let struck = self.struck.notified();
            tokio::pin!(struck);
            struck.as_mut().enable();
            if self.hits(rule) >= hits {
                return;
            }
            struck.await;
        }
    }

    /// The rule that strikes this request. `scope` is asked only when a rule needs it.
    pub(crate) fn strike(&self, asked: &Asked<'_>, scope: impl FnOnce() -> Scope) -> Option<Strike> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let scope = scope();
        let mut rules = lock(&self.rules);
        for entry in &mut rules.1 {
            if !matches(&entry.what, asked, &scope) {
                continue;
            }
            entry.matched += 1;
            let due =
                entry.matched > entry.what.skip && entry.what.times.is_none_or(|times| entry.hits < times);
            if !due || entry.what.probability.is_some_and(|chance| entry.rng.unit() >= chance) {
                continue;
            }
            entry.hits += 1;
            self.struck.notify_waiters();
            if entry.action == Action::Observe {
                continue;
            }
            return Some(Strike {
                rule: entry.id,
                action: entry.action.clone(),
                topic: entry.what.topic.clone(),
                partition: entry.what.partition,
            });
        }
        None
    }
}

fn matches(what: &Match, asked: &Asked<'_>, scope: &Scope) -> bool {
    let touches = |topic: &String| {
        let same = |(name, index): &(String, Option<i32>)| {
            name == topic && what.partition.is_none_or(|wanted| index.is_none_or(|index| index == wanted))
        };
        scope.partitions.iter().any(same)
    };
    what.api.is_none_or(|api| api == asked.api)
        && what.versions.as_ref().is_none_or(|versions| versions.contains(&asked.version))
        && what.broker.is_none_or(|broker| broker == asked.broker)
        && what.client.as_ref().is_none_or(|client| client == asked.client)
        && what.topic.as_ref().is_none_or(touches)
        && what.group.as_ref().is_none_or(|group| scope.groups.contains(group))
        && what.member.as_ref().is_none_or(|member| scope.members.contains(member))
}
