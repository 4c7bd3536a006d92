//! How does a group leader divide partitions among members?
//!
//! `cooperative-sticky` follows Kafka's assignor of that name (KIP-429): members keep what they hold, loads differ by
//! at most one when all subscribe to the same topics, and a partition that another member still claims is given to
//! nobody until that member has given it up. `range` and `roundrobin` are Kafka's eager assignors, for groups that
//! still speak them. All are deterministic: the same members and partitions give the same answer in any order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prosody_base::sabotaged;

use crate::group::subscription::Subscription;
use crate::types::{Topic, TopicPartition};

/// A way to divide partitions, as the group protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Sticky and incremental: a rebalance touches only the partitions that move.
    CooperativeSticky,
    /// Consecutive partitions of each topic. Eager: every rebalance gives up everything first.
    Range,
    /// Partitions in turn over all topics. Eager.
    RoundRobin,
}

impl Assignor {
    /// The name in JoinGroup.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::CooperativeSticky => "cooperative-sticky",
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
        }
    }

    /// The assignor of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Assignor> {
        [Assignor::CooperativeSticky, Assignor::Range, Assignor::RoundRobin]
            .into_iter()
            .find(|one| one.name() == name)
    }

    /// Whether members give up everything before each rebalance. A member that offers one eager assignor behaves
    /// eagerly whichever is chosen, because it cannot know the choice when it joins.
    #[must_use]
    pub fn is_eager(self) -> bool {
        self != Assignor::CooperativeSticky
    }

    /// Divides the partitions of `counts` (topic → number of partitions) among `members`. The answer has an entry for
    /// every member, its partitions sorted.
    pub(crate) fn assign(self, members: &[Member], counts: &BTreeMap<Topic, i32>) -> Assignments {
        match self {
            Assignor::CooperativeSticky => cooperative_sticky(members, counts),
            Assignor::Range => range(members, counts),
            Assignor::RoundRobin => round_robin(members, counts),
        }
    }
}

/// A member as the leader sees it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) subscription: Subscription,
}

/// Member id → its partitions.
pub(crate) type Assignments = BTreeMap<String, Vec<TopicPartition>>;

fn cooperative_sticky(members: &[Member], counts: &BTreeMap<Topic, i32>) -> Assignments {
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let claims = Claims::of(&members);
    let mut balance = Balance::new(&members, counts);
    balance.keep(&claims, counts);
    balance.place_unowned(counts);
    balance.even_out();
    let mut result = Assignments::new();
    for (at, member) in members.iter().enumerate() {
        let mut given = balance.partitions_of(at);
        given.retain(|one| sabotaged("group-two-phase") || claims.is_free_for(one, at));
        given.sort_unstable();
        result.insert(member.id.clone(), given);
    }
    result
}

/// Who says it owns what.
struct Claims(BTreeMap<TopicPartition, Claim>);

struct Claim {
    /// The freshest generation of the claimants; −1 when none says.
    generation: i32,
    /// The only member that claims it with that generation; `None` when two do, and then nobody keeps it.
    keeper: Option<usize>,
}

impl Claims {
    fn of(members: &[&Member]) -> Claims {
        let mut claims: BTreeMap<TopicPartition, Claim> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            let generation = member.subscription.generation.unwrap_or(-1);
            for owned in &member.subscription.owned {
                let Some(known) = claims.get_mut(owned) else {
                    claims.insert(owned.clone(), Claim { generation, keeper: Some(at) });
                    continue;
                };
                if generation > known.generation {
                    (known.generation, known.keeper) = (generation, Some(at));
                } else if generation == known.generation {
                    known.keeper = None;
                }
            }
        }
        Claims(claims)
    }

    /// Whether `member` may get the partition now: it holds the freshest claim, or nobody claims it. A member whose
    /// claim is stale learns from its assignment that it lost the partition; until it joins without the claim, the
    /// partition goes to nobody but the freshest claimant.
    fn is_free_for(&self, partition: &TopicPartition, member: usize) -> bool {
        self.0.get(partition).is_none_or(|claim| claim.keeper == Some(member))
    }
}

/// Loads being balanced. Members and topics are indices; every set is ordered, so that equal inputs give equal results.
struct Balance {
    topics: Vec<Topic>,
    /// Topic → members subscribed to it.
    readers: Vec<Vec<usize>>,
    /// Member → topic → partitions; the flag says that it held the partition before.
    held: Vec<BTreeMap<usize, BTreeSet<(bool, i32)>>>,
    load: Vec<usize>,
    /// Partitions that have an owner.
    placed: BTreeSet<(usize, i32)>,
}

impl Balance {
    fn new(members: &[&Member], counts: &BTreeMap<Topic, i32>) -> Balance {
        let topics: Vec<Topic> = counts.keys().cloned().collect();
        let readers = topics
            .iter()
            .map(|topic| {
                let subscribed = |at: &usize| {
                    members
                        .get(*at)
                        .is_some_and(|member| member.subscription.topics.binary_search(topic).is_ok())
                };
                (0..members.len()).filter(subscribed).collect()
            })
            .collect();
        Balance {
            topics,
            readers,
            held: vec![BTreeMap::new(); members.len()],
            load: vec![0; members.len()],
            placed: BTreeSet::new(),
        }
    }

    /// Gives every partition that exists, and that its freshest claimant still wants, to that claimant.
    fn keep(&mut self, claims: &Claims, counts: &BTreeMap<Topic, i32>) {
        for (partition, claim) in &claims.0 {
            let (Some(member), Ok(topic)) = (claim.keeper, self.topics.binary_search(&partition.topic))
            else {
                continue;
            };
            let exists = counts.get(&partition.topic).is_some_and(|count| partition.partition < *count);
            let wanted =
                self.readers.get(topic).is_some_and(|readers| readers.binary_search(&member).is_ok());
            if exists && wanted {
                self.give(member, topic, partition.partition, true);
            }
        }
    }

    /// Gives every other partition to the least loaded member that wants it.
    fn place_unowned(&mut self, counts: &BTreeMap<Topic, i32>) {
        for (topic, count) in counts.values().enumerate() {
            for partition in 0..*count {
                if self.placed.contains(&(topic, partition)) {
                    continue;
                }
                let readers = self.readers.get(topic).into_iter().flatten();
                if let Some(member) = readers.copied().min_by_key(|at| (self.load.get(*at).copied(), *at)) {
                    self.give(member, topic, partition, false);
                }
            }
        }
    }

    /// Moves partitions, along chains where subscriptions differ, until no move makes two loads more equal. Each round
    /// either moves one or retires the members it reached, which are then as even as they can be.
    fn even_out(&mut self) {
        let mut open: BTreeSet<(usize, usize)> =
            self.load.iter().copied().enumerate().map(|(at, load)| (load, at)).collect();
        while let Some((load, from)) = open.last().copied() {
            let reached = self.reach(from);
            let lightest =
                reached.keys().copied().min_by_key(|at| (self.load.get(*at).copied(), *at)).unwrap_or(from);
            let lightest_load = self.load.get(lightest).copied().unwrap_or(load);
            if lightest_load + 1 >= load {
                open.retain(|(_, at)| *at != from && !reached.contains_key(at));
                continue;
            }
            open.remove(&(load, from));
            open.remove(&(lightest_load, lightest));
            self.shift(&reached, lightest);
            open.insert((load - 1, from));
            open.insert((lightest_load + 1, lightest));
        }
    }

    /// Every member that a chain of moves starting at `from` can reach, with the step that reaches it by the shortest
    /// chain: the member that gives and the topic it gives a partition of.
    fn reach(&self, from: usize) -> BTreeMap<usize, (usize, usize)> {
        let mut steps = BTreeMap::new();
        let mut seen_topics = BTreeSet::new();
        let mut queue = VecDeque::from([from]);
        while let Some(giver) = queue.pop_front() {
            for topic in self.held.get(giver).into_iter().flat_map(BTreeMap::keys) {
                if !seen_topics.insert(*topic) {
                    continue;
                }
                for taker in self.readers.get(*topic).into_iter().flatten() {
                    if *taker != from && !steps.contains_key(taker) {
                        steps.insert(*taker, (giver, *topic));
                        queue.push_back(*taker);
                    }
                }
            }
        }
        steps
    }

    /// Moves one partition along each step of the chain that ends at `taker`.
    fn shift(&mut self, steps: &BTreeMap<usize, (usize, usize)>, mut taker: usize) {
        while let Some((giver, topic)) = steps.get(&taker).copied() {
            // One that the giver has just been given (false sorts first) costs nothing to move.
            let moved = self.held.get(giver).and_then(|of| of.get(&topic)).and_then(|set| {
                let (was_held, _) = set.first()?;
                if *was_held { set.last() } else { set.first() }.copied()
            });
            if let Some((was_held, partition)) = moved {
                self.take(giver, topic, (was_held, partition));
                self.give(taker, topic, partition, false);
            }
            taker = giver;
        }
    }

    fn give(&mut self, member: usize, topic: usize, partition: i32, was_held: bool) {
        if let (Some(held), Some(load)) = (self.held.get_mut(member), self.load.get_mut(member)) {
            held.entry(topic).or_default().insert((was_held, partition));
            *load += 1;
            self.placed.insert((topic, partition));
        }
    }

    fn take(&mut self, member: usize, topic: usize, partition: (bool, i32)) {
        if let (Some(held), Some(load)) = (self.held.get_mut(member), self.load.get_mut(member)) {
            if let Some(set) = held.get_mut(&topic) {
                set.remove(&partition);
                if set.is_empty() {
                    held.remove(&topic);
                }
            }
            *load = load.saturating_sub(1);
        }
    }

    fn partitions_of(&self, member: usize) -> Vec<TopicPartition> {
        let topics = self.held.get(member).into_iter().flatten();
        let named = topics.filter_map(|(topic, set)| Some((self.topics.get(*topic)?, set)));
        named
            .flat_map(|(topic, set)| {
                set.iter().map(|(_, partition)| TopicPartition::new(topic.clone(), *partition))
            })
            .collect()
    }
}

/// Members in the order of Kafka's eager assignors: static ones first, by instance id, then by member id.
fn in_kafka_order(members: &[Member]) -> Vec<&Member> {
    let mut ordered: Vec<&Member> = members.iter().collect();
    ordered.sort_by(|a, b| match (&a.instance_id, &b.instance_id) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.id.cmp(&b.id),
    });
    ordered
}

fn range(members: &[Member], counts: &BTreeMap<Topic, i32>) -> Assignments {
    let ordered = in_kafka_order(members);
    let mut result: Assignments = members.iter().map(|member| (member.id.clone(), Vec::new())).collect();
    for (topic, count) in counts {
        let readers: Vec<&&Member> =
            ordered.iter().filter(|member| member.subscription.topics.binary_search(topic).is_ok()).collect();
        let Ok(readers_len) = i32::try_from(readers.len()) else { continue };
        if readers_len == 0 {
            continue;
        }
        let (each, extra) = (count / readers_len, count % readers_len);
        let mut next = 0;
        for (at, reader) in (0..).zip(readers) {
            let share = each + i32::from(at < extra);
            if let Some(given) = result.get_mut(&reader.id) {
                given.extend(
                    (next..next + share).map(|partition| TopicPartition::new(topic.clone(), partition)),
                );
            }
            next += share;
        }
    }
    result
}

fn round_robin(members: &[Member], counts: &BTreeMap<Topic, i32>) -> Assignments {
    let ordered = in_kafka_order(members);
    let mut result: Assignments = members.iter().map(|member| (member.id.clone(), Vec::new())).collect();
    let mut turn = ordered.iter().cycle();
    for (topic, count) in counts {
        let wants = |member: &&Member| member.subscription.topics.binary_search(topic).is_ok();
        if !ordered.iter().any(wants) {
            continue;
        }
        for partition in 0..*count {
            let given = turn.find(|member| wants(member)).and_then(|member| result.get_mut(&member.id));
            if let Some(given) = given {
                given.push(TopicPartition::new(topic.clone(), partition));
            }
        }
    }
    result
}

#[cfg(test)]
#[path = "tests/assignors.rs"]
mod tests;
