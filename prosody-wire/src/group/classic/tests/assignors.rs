//! Do the assignors keep their promises for any group? Complete, disjoint, balanced, sticky, two-phase, deterministic.

use std::collections::BTreeSet;

use super::*;
use crate::group::subscription::Subscription;
use proptest::prelude::*;

type Owned = Vec<(usize, i32)>;

fn topic(at: usize) -> Topic {
    format!("t{at}").into()
}

fn member(id: usize, topics: &[usize], owned: &[(usize, i32)], generation: Option<i32>) -> Member {
    let mut owned: Vec<_> =
        owned.iter().map(|(at, partition)| TopicPartition::new(topic(*at), *partition)).collect();
    owned.sort_unstable();
    owned.dedup();
    let mut topics: Vec<_> = topics.iter().map(|at| topic(*at)).collect();
    topics.sort_unstable();
    topics.dedup();
    Member {
        id: format!("m{id:02}"),
        instance_id: None,
        subscription: Subscription { topics, owned, generation, rack: None },
    }
}

/// The partitions that nobody claims or that only their holder claims: what one more round would leave in place.
fn settled(members: &[Member], counts: &BTreeMap<Topic, i32>) -> (Vec<Member>, Assignments) {
    let mut members = members.to_vec();
    for generation in 1..20 {
        let given = Assignor::CooperativeSticky.assign(&members, counts, &Racks::default());
        let mut stable = true;
        for member in &mut members {
            let now = &given[&member.id];
            stable &= &member.subscription.owned == now;
            member.subscription.owned.clone_from(now);
            member.subscription.generation = Some(1_000_000 + generation);
        }
        if stable {
            return (members, given);
        }
    }
    panic!("the group never settles");
}

fn assert_complete_and_disjoint(members: &[Member], counts: &BTreeMap<Topic, i32>, given: &Assignments) {
    let mut seen = BTreeSet::new();
    for one in members {
        for partition in &given[&one.id] {
            assert!(
                one.subscription.topics.contains(&partition.topic),
                "{} did not ask for {partition}",
                one.id
            );
            assert!(seen.insert(partition.clone()), "{partition} is given twice");
        }
    }
    for (topic, count) in counts {
        let wanted = members.iter().any(|one| one.subscription.topics.contains(topic));
        for partition in 0..*count {
            assert_eq!(
                seen.contains(&TopicPartition::new(topic.clone(), partition)),
                wanted,
                "{topic}-{partition}"
            );
        }
    }
}

prop_compose! {
    fn counts()(counts in proptest::collection::vec(0..13i32, 1..4)) -> BTreeMap<Topic, i32> {
        counts.into_iter().enumerate().map(|(at, count)| (topic(at), count)).collect()
    }
}

prop_compose! {
    /// Members that may claim anything: partitions of others, of topics they do not read, that do not exist.
    fn hostile()(claims in proptest::collection::vec(
        (proptest::collection::vec(0..3usize, 0..4), proptest::collection::vec((0..4usize, 0..15i32), 0..20), proptest::option::of(0..4i32)),
        1..8,
    )) -> Vec<Member> {
        claims.iter().enumerate().map(|(id, (topics, owned, generation))| member(id, topics, owned, *generation)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever members claim, a partition goes to a member only if nobody else may still be working on it.
    #[test]
    fn a_partition_never_changes_hands_while_somebody_else_claims_it(members in hostile(), counts in counts()) {
        let given = Assignor::CooperativeSticky.assign(&members, &counts, &Racks::default());
        for (owner, partitions) in &given {
            for partition in partitions {
                let rank = |one: &Member| one.subscription.generation.unwrap_or(-1);
                let mine = members.iter().find(|one| &one.id == owner).filter(|one| one.subscription.owned.contains(partition));
                for other in members.iter().filter(|one| &one.id != owner && one.subscription.owned.contains(partition)) {
                    prop_assert!(mine.is_some_and(|mine| rank(mine) > rank(other)), "{partition} given to {owner}, claimed by {}", other.id);
                }
            }
        }
    }

    /// After the losers have let go, everything that somebody wants is owned once, in at most a few rounds.
    #[test]
    fn a_group_settles_complete_and_disjoint(members in hostile(), counts in counts()) {
        let (members, given) = settled(&members, &counts);
        assert_complete_and_disjoint(&members, &counts, &given);
    }

    /// Equal subscriptions: loads differ by at most one and the fewest possible partitions move.
    #[test]
    fn equal_subscriptions_are_balanced_with_the_fewest_moves(
        owners in proptest::collection::vec(proptest::option::of(0..6usize), 1..40),
        size in 1..7usize,
    ) {
        let counts = BTreeMap::from([(topic(0), i32::try_from(owners.len()).expect("small"))]);
        let mut owned: Vec<Owned> = vec![Vec::new(); size];
        for (partition, owner) in (0..).zip(&owners) {
            if let Some(owner) = owner.filter(|owner| *owner < size) {
                owned[owner].push((0, partition));
            }
        }
        let members: Vec<_> = owned.iter().enumerate().map(|(id, owned)| member(id, &[0], owned, Some(3))).collect();
        let kept: usize = {
            let first = Assignor::CooperativeSticky.assign(&members, &counts, &Racks::default());
            members.iter().map(|one| first[&one.id].iter().filter(|p| one.subscription.owned.contains(p)).count()).sum()
        };
        let mut loads: Vec<usize> = owned.iter().map(Vec::len).collect();
        loads.sort_unstable_by(|a, b| b.cmp(a));
        let (floor, extra) = (owners.len() / size, owners.len() % size);
        let best: usize = loads.iter().enumerate().map(|(at, load)| (*load).min(floor + usize::from(at < extra))).sum();
        prop_assert_eq!(kept, best);
        let (_, given) = settled(&members, &counts);
        let loads: Vec<usize> = given.values().map(Vec::len).collect();
        prop_assert!(loads.iter().max().expect("some") - loads.iter().min().expect("some") <= 1, "{:?}", loads);
    }

    /// Unequal subscriptions: no single partition can be moved to make two members more equal.
    #[test]
    fn unequal_subscriptions_are_as_even_as_they_can_be(
        topics in proptest::collection::vec(proptest::collection::vec(0..3usize, 0..4), 1..7),
        counts in counts(),
    ) {
        let members: Vec<_> = topics.iter().enumerate().map(|(id, topics)| member(id, topics, &[], None)).collect();
        let given = Assignor::CooperativeSticky.assign(&members, &counts, &Racks::default());
        assert_complete_and_disjoint(&members, &counts, &given);
        for from in &members {
            for to in &members {
                let movable = given[&from.id].iter().any(|partition| to.subscription.topics.contains(&partition.topic));
                prop_assert!(!movable || given[&from.id].len() <= given[&to.id].len() + 1, "{} -> {}: {:?}", from.id, to.id, given);
            }
        }
    }

    #[test]
    fn the_order_in_which_the_broker_lists_members_does_not_matter(members in hostile(), counts in counts()) {
        for assignor in [Assignor::CooperativeSticky, Assignor::Range, Assignor::RoundRobin] {
            let mut reversed = members.clone();
            reversed.reverse();
            prop_assert_eq!(assignor.assign(&members, &counts, &Racks::default()), assignor.assign(&reversed, &counts, &Racks::default()));
        }
    }

    #[test]
    fn eager_assignors_are_complete_and_disjoint(members in hostile(), counts in counts()) {
        for assignor in [Assignor::Range, Assignor::RoundRobin] {
            assert_complete_and_disjoint(&members, &counts, &assignor.assign(&members, &counts, &Racks::default()));
        }
    }
}

#[test]
fn the_fresher_of_two_claims_wins_and_of_two_equal_ones_none() {
    let counts = BTreeMap::from([(topic(0), 1)]);
    let fresher = [member(0, &[0], &[(0, 0)], Some(4)), member(1, &[0], &[(0, 0)], Some(5))];
    let given = Assignor::CooperativeSticky.assign(&fresher, &counts, &Racks::default());
    assert_eq!((given["m00"].len(), given["m01"].len()), (0, 1));
    let equal = [member(0, &[0], &[(0, 0)], Some(5)), member(1, &[0], &[(0, 0)], Some(5))];
    let given = Assignor::CooperativeSticky.assign(&equal, &counts, &Racks::default());
    assert_eq!((given["m00"].len(), given["m01"].len()), (0, 0));
}

#[test]
fn range_and_round_robin_give_what_kafkas_documentation_shows() {
    let counts = BTreeMap::from([(topic(0), 3), (topic(1), 3)]);
    let members = [member(0, &[0, 1], &[], None), member(1, &[0, 1], &[], None)];
    let parts = |given: &Assignments, id: &str| {
        given[id].iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let given = Assignor::Range.assign(&members, &counts, &Racks::default());
    assert_eq!(parts(&given, "m00"), "t0-0 t0-1 t1-0 t1-1");
    assert_eq!(parts(&given, "m01"), "t0-2 t1-2");
    let given = Assignor::RoundRobin.assign(&members, &counts, &Racks::default());
    assert_eq!(parts(&given, "m00"), "t0-0 t0-2 t1-1");
    assert_eq!(parts(&given, "m01"), "t0-1 t1-0 t1-2");
}

/// A group of realistic size must not hold up the leader: 200 members, 4 topics, 4,000 partitions, all on one member.
#[test]
fn a_large_group_is_divided_in_one_go() {
    let counts: BTreeMap<_, _> = (0..4).map(|at| (topic(at), 1_000)).collect();
    let all: Owned = (0..4).flat_map(|at| (0..1_000).map(move |partition| (at, partition))).collect();
    let members: Vec<_> =
        (0..200).map(|id| member(id, &[0, 1, 2, 3], if id == 0 { &all } else { &[] }, Some(1))).collect();
    let given = Assignor::CooperativeSticky.assign(&members, &counts, &Racks::default());
    assert_eq!(given["m00"].len(), 20, "keeps its share; the rest waits until it has let go");
    let (_, given) = settled(&members, &counts);
    assert!(given.values().all(|partitions| partitions.len() == 20));
}
