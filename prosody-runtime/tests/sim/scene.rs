//! What everything in a run can see: the cluster, the store, the history, and what is wrong just now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::{Clock, Instant};
use prosody_runtime::Client;
use prosody_testkit::Cluster;
use prosody_testkit::broker::batch::Record;
use prosody_testkit::broker::group::GroupView;
use prosody_testkit::check::{History, Standing};

use crate::timers::Stage;
use crate::vault::Vault;

pub(crate) const GROUP: &str = "sim-group";
pub(crate) const TOPIC: &str = "sim-topic";
/// Where members that give up write what failed.
pub(crate) const FAILURES: &str = "sim-failures";
/// Its partitions.
pub(crate) const FAILURE_PARTITIONS: i32 = 2;

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) history: Arc<History>,
    /// All members share it.
    pub(crate) vault: Vault,
    pub(crate) clock: Clock,
    /// Timers.
    pub(crate) stage: Stage,
    stormy: AtomicBool,
    outage: Mutex<Option<Instant>>,
    /// Clients that were removed from the group and have not come back.
    evicted: Mutex<BTreeSet<String>>,
    /// Records of the failure topic that the history knows, by partition.
    buried: Mutex<BTreeMap<i32, usize>>,
    /// What went wrong in handlers and with senders.
    struck: Mutex<BTreeMap<&'static str, u64>>,
    /// The members that live.
    alive: Mutex<BTreeMap<String, Client>>,
    /// Calls of each member that were dropped before they ended.
    dropped: Mutex<BTreeMap<String, u64>>,
    complaints: Mutex<Vec<String>>,
}

impl Scene {
    pub(crate) fn new(
        cluster: Cluster,
        history: Arc<History>,
        vault: Vault,
        clock: Clock,
        stage: Stage,
    ) -> Arc<Scene> {
        Arc::new(Scene {
            cluster,
            history,
            vault,
            clock,
            stage,
            stormy: AtomicBool::new(true),
            outage: Mutex::default(),
            evicted: Mutex::default(),
            buried: Mutex::default(),
            struck: Mutex::default(),
            alive: Mutex::default(),
            dropped: Mutex::default(),
            complaints: Mutex::default(),
        })
    }

    /// Nothing fails from here on, and what hangs ends.
    pub(crate) fn heal(&self) {
        self.stormy.store(false, Ordering::Relaxed);
        self.cluster.control().lift_all();
        self.vault.heal();
    }

    pub(crate) fn is_stormy(&self) -> bool {
        self.stormy.load(Ordering::Relaxed)
    }

    /// What handlers need is away until then.
    pub(crate) fn fail_handlers(&self, until: Instant) {
        *lock(&self.outage) = Some(until);
    }

    pub(crate) fn is_outage(&self) -> bool {
        let outage = lock(&self.outage).is_some_and(|until| self.clock.now() < until);
        if outage {
            self.strikes("outage");
        }
        outage
    }

    /// Counts something that went wrong.
    pub(crate) fn strikes(&self, kind: &'static str) {
        *lock(&self.struck).entry(kind).or_default() += 1;
    }

    pub(crate) fn struck(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.struck).clone()
    }

    /// A promise was broken that the history knows nothing of.
    pub(crate) fn complain(&self, what: String) {
        lock(&self.complaints).push(what);
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }

    /// A call was dropped before it ended.
    pub(crate) fn dropped(&self, member: &str) {
        *lock(&self.dropped).entry(member.to_owned()).or_default() += 1;
    }

    /// How many of its calls were.
    pub(crate) fn dropped_by(&self, member: &str) -> u64 {
        lock(&self.dropped).get(member).copied().unwrap_or(0)
    }

    /// An operator removes a member from the group. Returns whether it was in it.
    pub(crate) fn evict(&self, client: &str) -> bool {
        let was_in = self.cluster.evict(GROUP, client) > 0;
        if was_in {
            lock(&self.evicted).insert(client.to_owned());
            self.stage.history.evicted(client);
        }
        was_in
    }

    /// Tells the history of records that have come to the failure topic. Called whenever something happens that may
    /// depend on them, so that "before" stays what it means.
    pub(crate) fn bury(&self) {
        let mut buried = lock(&self.buried);
        for partition in 0..FAILURE_PARTITIONS {
            let known = buried.entry(partition).or_default();
            let end = self.cluster.log_end(FAILURES, partition).map_or(0, |log| log.end);
            if usize::try_from(end).unwrap_or(0) > *known {
                let log = self.cluster.log(FAILURES, partition);
                let new = log.iter().skip(*known).filter_map(place_of);
                new.for_each(|place| self.history.buried(place));
                *known = log.len();
            }
        }
    }

    pub(crate) fn begins(&self, member: &str, client: &Client) {
        lock(&self.alive).insert(member.to_owned(), client.clone());
    }

    pub(crate) fn ends(&self, member: &str) {
        lock(&self.alive).remove(member);
    }

    /// How many partitions a member has lost, by its own count.
    fn losses(&self, member: &str) -> u64 {
        lock(&self.alive).get(member).map_or(0, |client| client.insight().lost_partitions)
    }

    pub(crate) fn standing(&self, client: &str) -> Standing {
        let members = self.cluster.group(GROUP).map(|group| group.members).unwrap_or_default();
        match members.into_iter().find(|(_, known)| known.client_id == client) {
            Some((id, member)) => {
                lock(&self.evicted).remove(client);
                Standing::Member(format!("{id}#{}#{client}#{}", member.since, self.losses(client)))
            }
            None if lock(&self.evicted).contains(client) => Standing::Evicted,
            None => Standing::Out,
        }
    }

    /// Whether the group has no such member any more, or it has lost its partitions since, as when a coordinator was away
    /// for a session: what runs may go on beside the next owner's.
    pub(crate) fn is_over(&self, standing: &str) -> bool {
        let parts: Vec<&str> = standing.split('#').collect();
        let [id, since, client, losses] = parts[..] else { return true };
        let is_in =
            |group: GroupView| group.members.get(id).is_some_and(|member| member.since.to_string() == since);
        losses != self.losses(client).to_string() || !self.cluster.group(GROUP).is_some_and(is_in)
    }
}

/// Where a record of the failure topic came from; `None` when it was no message.
pub(crate) fn place_of(record: &Record) -> Option<(i32, i64)> {
    let text = |name: &str| {
        let value = record.headers.iter().rev().find(|(key, _)| key == name.as_bytes())?.1.as_deref()?;
        std::str::from_utf8(value).ok()
    };
    let number = |name: &str| text(name)?.parse::<i64>().ok();
    if text("source-kind") == Some("timer") {
        return None;
    }
    let partition = number("source-partition").and_then(|partition| i32::try_from(partition).ok());
    Some((partition.unwrap_or(-1), number("source-offset").unwrap_or(-1)))
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
