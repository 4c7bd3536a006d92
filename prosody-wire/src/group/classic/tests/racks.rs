//! Do assignors prefer members near a replica, and nothing but that? (KIP-881)

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Assignments, Assignor, Member, Racks};
use crate::group::subscription::Subscription;
use crate::types::{Topic, TopicPartition};

type Counts = BTreeMap<Topic, i32>;

fn rack(at: usize) -> String {
    format!("r{at}")
}

fn member(id: usize, rack_of: Option<usize>, topics: &[&str]) -> Member {
    let topics = topics.iter().map(|topic| (*topic).into()).collect();
    let rack = rack_of.map(rack);
    let subscription = Subscription { topics, rack, ..Subscription::default() };
    Member { id: format!("m{id:02}"), instance_id: None, subscription }
}

/// Topic `a`, `b`, … by the racks of each partition's replicas.
fn cluster(topics: &[Vec<Vec<usize>>]) -> (Counts, Racks) {
    let (mut counts, mut racks) = (Counts::new(), Racks::default());
    for (name, partitions) in ["a", "b", "c"].into_iter().zip(topics) {
        let topic: Topic = name.into();
        let sets: Vec<_> =
            partitions.iter().map(|one| one.iter().map(|at| rack(*at).into()).collect()).collect();
        racks.learn(&topic, &sets);
        counts.insert(topic, i32::try_from(partitions.len()).expect("small"));
    }
    (counts, racks)
}

fn far(members: &[Member], given: &Assignments, racks: &Racks) -> usize {
    let of = |member: &Member| {
        given[&member.id].iter().filter(|one| racks.is_far(member, &one.topic, one.partition)).count()
    };
    members.iter().map(of).sum()
}

fn loads(given: &Assignments) -> Vec<usize> {
    given.values().map(Vec::len).collect()
}

/// Rebalances until nobody's share changes; panics when that never comes.
fn settled(mut members: Vec<Member>, counts: &Counts, racks: &Racks) -> (Vec<Member>, Assignments) {
    for generation in 1..20 {
        let given = Assignor::CooperativeSticky.assign(&members, counts, racks);
        let mut stable = true;
        for member in &mut members {
            stable &= member.subscription.owned == given[&member.id];
            member.subscription.owned.clone_from(&given[&member.id]);
            member.subscription.generation = Some(generation);
        }
        if stable {
            return (members, given);
        }
    }
    panic!("the group never settles");
}

prop_compose! {
    /// One or two topics whose partitions have replicas in some of three racks.
    fn places()(topics in proptest::collection::vec(
        proptest::collection::vec(proptest::collection::vec(0..3usize, 0..3), 1..13),
        1..3,
    )) -> Vec<Vec<Vec<usize>>> {
        topics
    }
}

fn readers(racks: &[Option<usize>]) -> Vec<Member> {
    racks.iter().enumerate().map(|(id, rack)| member(id, *rack, &["a", "b"])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Balance comes first, everything is given, no more is far than without a look at racks, and the group comes to rest.
    #[test]
    fn sticky_groups_settle_balanced_and_no_farther_than_without(
        topics in places(),
        racks_of in proptest::collection::vec(proptest::option::of(0..3usize), 1..7),
        joins in proptest::option::of(0..3usize),
    ) {
        let (counts, racks) = cluster(&topics);
        let (mut members, _) = settled(readers(&racks_of), &counts, &racks);
        members.push(member(99, joins, &["a", "b"]));
        let fresh = readers(&racks_of);
        let [with, without] = [&racks, &Racks::default()]
            .map(|known| far(&fresh, &Assignor::CooperativeSticky.assign(&fresh, &counts, known), &racks));
        prop_assert!(with <= without, "{with} are far, {without} without a look at racks");
        let (members, given) = settled(members, &counts, &racks);
        let total: usize = topics.iter().map(Vec::len).sum();
        let loads = loads(&given);
        prop_assert_eq!(loads.iter().sum::<usize>(), total);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
        let (blind, blindly) = settled(members.clone(), &counts, &Racks::default());
        prop_assert!(far(&members, &given, &racks) <= far(&blind, &blindly, &racks));
    }

    /// As many partitions in each rack as members there can read: all are near.
    #[test]
    fn where_everything_can_be_near_it_is(each in 1..5usize, racks_used in 2..4usize, seed in any::<prop::sample::Index>()) {
        let mut places: Vec<Vec<usize>> = (0..each * racks_used).map(|at| vec![at % racks_used]).collect();
        let by = seed.index(places.len());
        places.rotate_left(by);
        let (counts, racks) = cluster(&[places]);
        let of: Vec<Option<usize>> = (0..racks_used).map(Some).collect();
        for assignor in [Assignor::CooperativeSticky, Assignor::Range] {
            let members = readers(&of);
            let given = assignor.assign(&members, &counts, &racks);
            prop_assert_eq!(far(&members, &given, &racks), 0, "{:?}: {:?}", assignor, given);
        }
    }

    /// Range: shares of each topic are those without racks in size, everything is given once, and no more is far.
    #[test]
    fn range_keeps_its_shares(topics in places(), racks_of in proptest::collection::vec(proptest::option::of(0..3usize), 1..7)) {
        let (counts, racks) = cluster(&topics);
        let members = readers(&racks_of);
        let given = Assignor::Range.assign(&members, &counts, &racks);
        let mut all: Vec<TopicPartition> = given.values().flatten().cloned().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        prop_assert_eq!((all.len(), count), (count, topics.iter().map(Vec::len).sum()));
        for topic in counts.keys() {
            let of = |one: &Vec<TopicPartition>| one.iter().filter(|one| one.topic == *topic).count();
            let sizes: Vec<usize> = given.values().map(of).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }
}

#[test]
fn without_racks_or_with_all_of_them_everywhere_nothing_changes() {
    let everywhere = vec![vec![vec![0, 1, 2]; 7], vec![vec![0, 1, 2]; 4]];
    let (counts, racks) = cluster(&everywhere);
    let members = readers(&[Some(2), Some(0), None]);
    for assignor in [Assignor::CooperativeSticky, Assignor::Range] {
        let plain = assignor.assign(&members, &counts, &Racks::default());
        assert_eq!(assignor.assign(&members, &counts, &racks), plain);
    }
}

/// Equal numbers of topics that are divided alike stay with one member, near if they can be (co-partitioning).
#[test]
fn range_keeps_equal_numbers_together() {
    let topic = vec![vec![1], vec![0], vec![1], vec![0]];
    let (counts, racks) = cluster(&[topic.clone(), topic]);
    let members = readers(&[Some(0), Some(1)]);
    let given = Assignor::Range.assign(&members, &counts, &racks);
    let numbers = |topic: &str| {
        let of = |one: &&TopicPartition| &*one.topic == topic;
        given["m00"].iter().filter(of).map(|one| one.partition).collect::<Vec<_>>()
    };
    assert_eq!((numbers("a"), numbers("b")), (vec![1, 3], vec![1, 3]));
    assert_eq!(far(&members, &given, &racks), 0);
}
