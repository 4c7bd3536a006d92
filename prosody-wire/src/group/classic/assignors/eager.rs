//! Who gets what when everything is given up before? The assignors `range` and `roundrobin`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assignments, Member, Racks};
use crate::types::{Topic, TopicPartition};

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

/// Topics with the same readers and as many partitions are divided alike, so that equal numbers of them stay together.
pub(super) fn range(members: &[Member], counts: &BTreeMap<Topic, i32>, racks: &Racks) -> Assignments {
    let ordered = in_kafka_order(members);
    let mut result: Assignments = members.iter().map(|member| (member.id.clone(), Vec::new())).collect();
    let mut alike: BTreeMap<(Vec<usize>, i32), Vec<&Topic>> = BTreeMap::new();
    for (topic, count) in counts {
        let reads = |(at, member): (usize, &&Member)| {
            member.subscription.topics.binary_search(topic).is_ok().then_some(at)
        };
        let readers: Vec<usize> = ordered.iter().enumerate().filter_map(reads).collect();
        if !readers.is_empty() {
            alike.entry((readers, *count)).or_default().push(topic);
        }
    }
    for ((readers, count), topics) in alike {
        let readers: Vec<&Member> = readers.into_iter().filter_map(|at| ordered.get(at).copied()).collect();
        let matters = racks.matter(&readers, topics.iter().map(|topic| (*topic, &count)));
        let mut ranges: Vec<Ranges<'_>> =
            topics.into_iter().map(|topic| Ranges::new(topic, count, readers.len())).collect();
        if matters && ranges.len() > 1 {
            place_together(&mut ranges, &readers, racks);
        }
        for of_topic in &mut ranges {
            let topic = of_topic.topic;
            if matters {
                of_topic.place(&readers, |member, partition| !racks.is_far(member, topic, partition));
            }
            of_topic.place(&readers, |_, _| true);
            for (reader, given) in readers.iter().zip(std::mem::take(&mut of_topic.given)) {
                if let Some(all) = result.get_mut(&reader.id) {
                    all.extend(given.into_iter().map(|one| TopicPartition::new(topic.clone(), one)));
                }
            }
        }
    }
    for given in result.values_mut() {
        given.sort_unstable();
    }
    result
}

/// Gives partitions of equal numbers to one member that is near all of them.
fn place_together(ranges: &mut [Ranges<'_>], readers: &[&Member], racks: &Racks) {
    let count = ranges.first().map_or(0, |first| first.open.len());
    for partition in (0..).take(count) {
        let near = readers.iter().enumerate().find(|(at, member)| {
            ranges.iter().all(|of| of.room(*at) > 0 && !racks.is_far(member, of.topic, partition))
        });
        if let Some((at, _)) = near {
            for of_topic in &mut *ranges {
                of_topic.give(at, partition);
            }
        }
    }
}

/// One topic while it is divided.
struct Ranges<'a> {
    topic: &'a Topic,
    open: BTreeSet<i32>,
    /// What everybody gets, and how many more members get one more.
    each: usize,
    extra: usize,
    /// By reader.
    given: Vec<Vec<i32>>,
}

impl<'a> Ranges<'a> {
    fn new(topic: &'a Topic, count: i32, readers: usize) -> Ranges<'a> {
        let open: BTreeSet<i32> = (0..count).collect();
        let (each, extra) = (open.len() / readers, open.len() % readers);
        Ranges { topic, each, extra, open, given: vec![Vec::new(); readers] }
    }

    /// How many more a reader may get.
    fn room(&self, reader: usize) -> usize {
        let has = self.given.get(reader).map_or(usize::MAX, Vec::len);
        // Whoever has the one more already was counted.
        let most = if self.extra > 0 && has <= self.each { self.each + 1 } else { self.each };
        most.saturating_sub(has)
    }

    fn give(&mut self, reader: usize, partition: i32) {
        if let Some(given) = self.given.get_mut(reader)
            && self.open.remove(&partition)
        {
            given.push(partition);
            if given.len() > self.each {
                self.extra = self.extra.saturating_sub(1);
            }
        }
    }

    /// Gives each reader in turn as many of the open partitions as it has room for, in order.
    fn place(&mut self, readers: &[&Member], may: impl Fn(&Member, i32) -> bool) {
        for (at, reader) in readers.iter().enumerate() {
            let mine: Vec<i32> =
                self.open.iter().copied().filter(|one| may(reader, *one)).take(self.room(at)).collect();
            mine.into_iter().for_each(|partition| self.give(at, partition));
        }
    }
}

pub(super) fn round_robin(members: &[Member], counts: &BTreeMap<Topic, i32>) -> Assignments {
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
