//! Who keeps what, and who gets the rest, so that loads are even? The assignor `cooperative-sticky`.
//!
//! Balance comes first, then nearness (KIP-881), then stickiness: partitions change hands for the sake of racks only when
//! more of them are near their members afterwards, so that a group always comes to rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prosody_base::sabotaged;

use super::{Assignments, Member, Racks};
use crate::types::{Topic, TopicPartition};

pub(super) fn cooperative_sticky(
    members: &[Member],
    counts: &BTreeMap<Topic, i32>,
    racks: &Racks,
) -> Assignments {
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let claims = Claims::of(&members);
    let mut balance = Balance::new(&members, counts, None);
    balance.keep(&claims, counts, usize::MAX);
    balance.place_unowned(counts);
    balance.even_out();
    if racks.matter(&members, counts.iter()) {
        let mut near = Balance::new(&members, counts, Some(racks));
        let total: usize = counts.values().filter_map(|count| usize::try_from(*count).ok()).sum();
        let share = total.div_ceil(members.len());
        near.keep(&claims, counts, usize::MAX);
        near.place_near(counts, share);
        near.racks = None;
        near.keep(&claims, counts, share);
        near.racks = Some(racks);
        near.place_unowned(counts);
        near.even_out();
        if near.count_far(racks) < balance.count_far(racks) {
            balance = near;
        }
    }
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
struct Balance<'a> {
    members: &'a [&'a Member],
    /// Where nearness counts.
    racks: Option<&'a Racks>,
    topics: Vec<Topic>,
    /// Topic → members subscribed to it.
    readers: Vec<Vec<usize>>,
    /// Member → topic → partitions; the flag says that it held the partition before.
    held: Vec<BTreeMap<usize, BTreeSet<(bool, i32)>>>,
    load: Vec<usize>,
    /// Partitions that have an owner.
    placed: BTreeSet<(usize, i32)>,
}

impl<'a> Balance<'a> {
    fn new(
        members: &'a [&'a Member],
        counts: &BTreeMap<Topic, i32>,
        racks: Option<&'a Racks>,
    ) -> Balance<'a> {
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
            members,
            racks,
            topics,
            readers,
            held: vec![BTreeMap::new(); members.len()],
            load: vec![0; members.len()],
            placed: BTreeSet::new(),
        }
    }

    /// Gives every partition that exists, and that its freshest claimant still wants and is near, to that claimant, as
    /// long as that has less than `share`.
    fn keep(&mut self, claims: &Claims, counts: &BTreeMap<Topic, i32>, share: usize) {
        for (partition, claim) in &claims.0 {
            let (Some(member), Ok(topic)) = (claim.keeper, self.topics.binary_search(&partition.topic))
            else {
                continue;
            };
            let exists = counts.get(&partition.topic).is_some_and(|count| partition.partition < *count);
            let wanted =
                self.readers.get(topic).is_some_and(|readers| readers.binary_search(&member).is_ok());
            let is_open = !self.placed.contains(&(topic, partition.partition))
                && self.load.get(member).is_some_and(|load| *load < share);
            if exists && wanted && is_open && !self.is_far(member, topic, partition.partition) {
                self.give(member, topic, partition.partition, true);
            }
        }
    }

    /// Whether racks count and the member would have to read the partition from another one.
    fn is_far(&self, member: usize, topic: usize, partition: i32) -> bool {
        let (Some(racks), Some(member), Some(topic)) =
            (self.racks, self.members.get(member), self.topics.get(topic))
        else {
            return false;
        };
        racks.is_far(member, topic, partition)
    }

    /// How many partitions are far from the members that have them.
    fn count_far(&self, racks: &Racks) -> usize {
        let far = |(at, member): (usize, &&Member)| {
            self.partitions_of(at)
                .iter()
                .filter(|one| racks.is_far(member, &one.topic, one.partition))
                .count()
        };
        self.members.iter().enumerate().map(far).sum()
    }

    /// Gives other partitions to the least loaded member near them that has less than `share`; those with the fewest
    /// members near them first.
    fn place_near(&mut self, counts: &BTreeMap<Topic, i32>, share: usize) {
        let mut open = Vec::new();
        for (topic, count) in counts.values().enumerate() {
            for partition in (0..*count).filter(|one| !self.placed.contains(&(topic, *one))) {
                let near: Vec<usize> = self.readers.get(topic).into_iter().flatten().copied().collect();
                let near: Vec<usize> =
                    near.into_iter().filter(|at| !self.is_far(*at, topic, partition)).collect();
                open.push((near.len(), topic, partition, near));
            }
        }
        open.sort_unstable();
        for (_, topic, partition, near) in open {
            let load = |at: &usize| self.load.get(*at).copied().unwrap_or(usize::MAX);
            let taker = near.into_iter().filter(|at| load(at) < share).min_by_key(|at| (load(at), *at));
            if let Some(member) = taker {
                self.give(member, topic, partition, false);
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
                if self.racks.is_some() {
                    // What comes nearer, or was far anyway, before what goes far.
                    let far =
                        |at, (_, partition): &(bool, i32)| i32::from(self.is_far(at, topic, *partition));
                    let key = |one: &(bool, i32)| (far(taker, one) - far(giver, one), *one);
                    return set.iter().copied().min_by_key(key);
                }
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
