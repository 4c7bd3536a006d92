//! Members come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::Disposition;
use prosody_wire::group::{Assignor, Group, GroupConfig, GroupProtocol};

use crate::support::{
    GROUP, Member, SESSION, TOPIC, assert_clean, at, client, cluster, cluster_with, config, count, seconds,
    settled, until,
};

/// A fresh group costs no request too many and no wait at all.
#[tokio::test(start_paused = true)]
pub(crate) async fn the_first_assignment_takes_no_detour() {
    let cluster = cluster(1, 8);
    let member = Member::join(&cluster, 2);
    let took = settled(seconds(1), &[&member], 8).await;
    assert!(took <= Duration::from_millis(2), "{took:?}");
    let asked = |api| count(&cluster, api);
    assert_eq!(asked(ApiKey::FIND_COORDINATOR), 1);
    assert_eq!(asked(ApiKey::JOIN_GROUP), 2, "one to get a member id (KIP-394), one to join");
    assert_eq!((asked(ApiKey::SYNC_GROUP), asked(ApiKey::OFFSET_FETCH), asked(ApiKey::HEARTBEAT)), (1, 1, 0));
    assert!(asked(ApiKey::METADATA) <= 2, "{}", asked(ApiKey::METADATA));
    assert_clean(&cluster);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn members_join_leave_and_die_and_the_others_keep_what_they_can() {
    let cluster = cluster(3, 12);
    let mut first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 12).await;
    let mut second = Member::join(&cluster, 3);
    settled(seconds(5), &[&first, &second], 12).await;
    let third = Member::join(&cluster, 4);
    settled(seconds(8), &[&first, &second, &third], 12).await;
    // Only what moved was ever touched.
    assert_eq!(first.heard.lock().unwrap().revoked.len(), 8, "6 for the second, 2 for the third");
    assert_eq!(second.heard.lock().unwrap().revoked.len(), 2);
    let kept = first.owned();
    second.leave(seconds(1)).await;
    settled(seconds(5), &[&first, &third], 12).await;
    assert!(
        kept.iter().all(|partition| first.owned().contains(partition)),
        "a leaving member takes nothing along"
    );
    first.kill();
    let took = settled(SESSION + seconds(5), &[&third], 12).await;
    assert!(took > SESSION - seconds(4), "a killed member says nothing: {took:?}");
    assert_clean(&cluster);
}

/// A broker works on one request of a connection at a time: the JoinGroup of one member stood behind that of the other,
/// which waited for it until the rebalance timeout.
#[tokio::test(start_paused = true)]
pub(crate) async fn members_of_one_client_do_not_wait_for_each_other() {
    let cluster = cluster(1, 9);
    let (client, doors) = client(&cluster, 2);
    let join = || Member::of(client.clone(), doors.clone(), config(), Duration::ZERO);
    let (first, second) = (join(), join());
    settled(seconds(10), &[&first, &second], 9).await;
    let mut third = join();
    settled(seconds(10), &[&first, &second, &third], 9).await;
    third.leave(seconds(1)).await;
    let fourth = join();
    settled(seconds(10), &[&first, &second, &fourth], 9).await;
    let connections: std::collections::BTreeSet<u64> =
        cluster.requests(ApiKey::JOIN_GROUP).iter().map(|entry| entry.connection).collect();
    let lanes = if crate::support::is_classic() { 3 } else { 0 };
    assert_eq!(connections.len(), lanes, "the lane of one that left is taken by the next");
    assert_clean(&cluster);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn old_brokers_are_spoken_to_in_their_versions() {
    for release in ["2.1", "2.8", "3.9"] {
        let cluster = cluster_with(ClusterConfig::default().as_version(release), 4);
        let mut first = Member::join(&cluster, 2);
        let second = Member::join(&cluster, 3);
        settled(seconds(10), &[&first, &second], 4).await;
        let partition = first.owned()[0];
        first.commit(partition, 7).await.unwrap();
        first.leave(seconds(1)).await;
        settled(seconds(5), &[&second], 4).await;
        let committed = second.heard.lock().unwrap().owned[&partition].1.clone();
        assert_eq!(committed.map(|one| one.offset), Some(7), "{release}");
        assert_clean(&cluster);
    }
}

/// Static membership (KIP-345): a restart moves nothing, and leaving says nothing.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_static_member_comes_back_to_its_partitions_without_a_rebalance() {
    let cluster = cluster(1, 4);
    let named = |name: &str| {
        let mut config = config();
        config.instance_id = Some(name.to_owned());
        config
    };
    let mut first = Member::join_with(&cluster, 2, named("a"), Duration::ZERO);
    let second = Member::join_with(&cluster, 3, named("b"), Duration::ZERO);
    settled(seconds(10), &[&first, &second], 4).await;
    let (before, generation) = (first.owned(), cluster.group(GROUP).unwrap().generation);
    first.leave(seconds(1)).await;
    assert_eq!(count(&cluster, ApiKey::LEAVE_GROUP), 0);
    let again = Member::join_with(&cluster, 4, named("a"), Duration::ZERO);
    settled(seconds(5), &[&again, &second], 4).await;
    assert_eq!(again.owned(), before);
    assert_eq!(cluster.group(GROUP).unwrap().generation, generation, "no rebalance");
    assert!(second.heard.lock().unwrap().revoked.is_empty());
    assert_clean(&cluster);
}

/// Two processes with one instance id: the older one must stop, for good, and say why.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_fenced_static_member_stops_and_says_so() {
    let cluster = cluster(1, 2);
    let mut twin = config();
    twin.instance_id = Some("twin".to_owned());
    let old = Member::join_with(&cluster, 2, twin.clone(), Duration::ZERO);
    settled(seconds(1), &[&old], 2).await;
    let new = Member::join_with(&cluster, 3, twin, Duration::ZERO);
    until(seconds(10), "the old one is fenced", || !old.heard.lock().unwrap().failed.is_empty()).await;
    let why = old.heard.lock().unwrap().failed[0].clone();
    assert_eq!(why.code().map(|code| code.0), Some(code::FENCED_INSTANCE_ID));
    assert_eq!(why.disposition(), Disposition::Fatal);
    until(seconds(5), "the new one has everything, the old one nothing", || {
        old.owned().is_empty() && new.owned().len() == 2
    })
    .await;
}

/// Where the shares allow it, a member gets what has a replica in its own rack (KIP-881): what it says of itself and what
/// metadata says of the brokers both reach whoever divides.
#[tokio::test(start_paused = true)]
async fn members_get_what_is_in_their_rack() {
    let racks = ["a", "b"].map(str::to_owned).to_vec();
    let config_of = ClusterConfig { brokers: 2, racks, ..ClusterConfig::default() };
    let cluster = Cluster::start(config_of, Doors::simulated(1));
    cluster.create_topic_with(TOPIC, 8, 1, BTreeMap::new()).unwrap();
    for assignors in [vec![Assignor::CooperativeSticky], vec![Assignor::Range]] {
        let near = |rack: &str, seed| {
            let client_rack = Some(rack.to_owned());
            let group = GroupConfig { client_rack, assignors: assignors.clone(), ..config() };
            Member::join_with(&cluster, seed, group, Duration::ZERO)
        };
        let (mut first, mut second) = (near("b", 2), near("a", 3));
        settled(seconds(20), &[&first, &second], 8).await;
        for (member, broker) in [(&first, 2), (&second, 1)] {
            for partition in member.owned() {
                assert_eq!(cluster.leader(TOPIC, partition), Some(broker), "{assignors:?}: {partition}");
            }
        }
        first.leave(seconds(1)).await;
        second.leave(seconds(1)).await;
    }
    assert_clean(&cluster);
}

/// Partitions added to a topic were never read until the consumers were restarted.
/// Here the leader follows the metadata of every topic of the group and divides again.
#[tokio::test(start_paused = true)]
pub(crate) async fn added_partitions_are_assigned() {
    let cluster = cluster(1, 2);
    let first = Member::join(&cluster, 2);
    let second = Member::join(&cluster, 3);
    settled(seconds(10), &[&first, &second], 2).await;
    let (admin, doors) = client(&cluster, 9);
    let deadline = doors.clock.now() + seconds(5);
    admin.admin().create_partitions(TOPIC, 5, deadline).await.unwrap();
    settled(seconds(6 * 60), &[&first, &second], 5).await;
    assert_clean(&cluster);
}

/// A topic that appears after the group was formed, or that the broker that was asked did not know yet: a member got nothing
/// for the five minutes until metadata was old.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_topic_that_is_created_later_is_picked_up() {
    let cluster = cluster_with(ClusterConfig::default(), 1);
    let mut late = config();
    late.topics = vec!["late".into()];
    let member = Member::join_with(&cluster, 2, late, Duration::ZERO);
    until(seconds(20), "joined with nothing", || {
        cluster.group(GROUP).is_some_and(|group| group.state == "Stable")
    })
    .await;
    cluster.create_topic("late", 3).unwrap();
    until(seconds(10), "assigned", || member.owned().len() == 3).await;
}

/// While a group migrated from one assignor to another, a member failed with a bare INCONSISTENT_GROUP_PROTOCOL and
/// nobody knew what it offered, nor what the others did. The error names both; several may be offered at once.
#[tokio::test(start_paused = true)]
pub(crate) async fn members_without_a_common_assignor_are_told_what_is_offered() {
    let cluster = cluster(1, 4);
    let mut old = config();
    old.assignors = vec![Assignor::Range];
    let mut range = Member::join_with(&cluster, 2, old, Duration::ZERO);
    settled(seconds(1), &[&range], 4).await;
    let cooperative = Member::join(&cluster, 3);
    until(seconds(10), "told", || !cooperative.heard.lock().unwrap().failed.is_empty()).await;
    let why = cooperative.heard.lock().unwrap().failed[0].to_string();
    assert!(why.contains("cooperative-sticky") && why.contains("INCONSISTENT_GROUP_PROTOCOL"), "{why}");
    assert!(why.contains("the group divides by range"), "{why}");
    // A member that offers both joins, eagerly, and the group stays on range.
    let mut both = config();
    both.assignors = vec![Assignor::CooperativeSticky, Assignor::Range];
    let migrating = Member::join_with(&cluster, 4, both, Duration::ZERO);
    settled(seconds(10), &[&range, &migrating], 4).await;
    // Once the last one that knows only range is gone, the waiting one gets in.
    range.leave(seconds(1)).await;
    settled(seconds(30), &[&migrating, &cooperative], 4).await;
    assert_clean(&cluster);
}

/// A handler that blocked for minutes cost the membership, because nobody polled.
/// Heartbeats here do not depend on anyone reading events.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_reader_that_never_reads_stays_a_member() {
    let cluster = cluster(1, 4);
    let (client, _doors) = client(&cluster, 2);
    let mut silent = Group::join(&client, config());
    tokio::time::sleep(5 * SESSION).await;
    let group = cluster.group(GROUP).unwrap();
    assert_eq!((group.state, group.members.len(), group.generation), ("Stable", 1, 1));
    // Another one joins, and gets its share although the first never reads that it had to give something up.
    let second = Member::join(&cluster, 3);
    until(seconds(10), "the second has half", || second.owned().len() == 2).await;
    let first = silent.event().await;
    let prosody_wire::group::GroupEvent::Assigned { partitions, .. } = first else { panic!("{first:?}") };
    assert_eq!(partitions.len(), 2, "only what is still ours is told");
    assert_clean(&cluster);
}

/// A broker that forgets to answer for a topic, or a leader of another make, must not stop a group: what a member did
/// not subscribe to is ignored.
#[tokio::test(start_paused = true)]
pub(crate) async fn the_group_survives_an_unreadable_subscription_and_goes_on() {
    let cluster = cluster(1, 4);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 4).await;
    cluster.control().on(Match::api(ApiKey::SYNC_GROUP).times(1), Action::Error(code::REBALANCE_IN_PROGRESS));
    let second = Member::join(&cluster, 3);
    settled(seconds(10), &[&first, &second], 4).await;
    assert_clean(&cluster);
}

/// The position of a partition jumped back a day: a rebalance that left it where it was read its committed offset again,
/// which was old. Here a partition that stays is not given a second time, and goes on where it is.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_rebalance_moves_no_position_back() {
    let cluster = cluster(1, 4);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 4).await;
    let epoch = first.epoch();
    first.committer.commit(epoch, (0..4).map(|partition| at(partition, 1)).collect()).await.unwrap();
    let second = Member::join(&cluster, 3);
    settled(seconds(20), &[&first, &second], 4).await;
    tokio::time::sleep(seconds(10)).await;
    let heard = first.heard.lock().unwrap();
    assert_eq!(heard.owned.len(), 2);
    for (partition, (since, committed)) in &heard.owned {
        assert_eq!((*since, committed.is_none()), (epoch, true), "partition {partition} was started again");
    }
    drop(heard);
    assert_clean(&cluster);
}

/// A coordinator that asks for a member id and gives none out (KIP-394) was asked again at once, for ever.
#[tokio::test(start_paused = true)]
async fn a_coordinator_that_gives_out_no_member_id_is_not_asked_in_a_tight_loop() {
    const MEMBER_ID_REQUIRED: i16 = 79;
    let cluster = cluster(1, 2);
    let nameless = Match::api(ApiKey::JOIN_GROUP).times(1_000);
    let rule = cluster.control().on(nameless, Action::Error(MEMBER_ID_REQUIRED));
    let member = Member::join(&cluster, 2);
    tokio::time::sleep(seconds(30)).await;
    let asked = cluster.control().hits(rule);
    assert!((5..100).contains(&asked), "{asked} times in 30 s");
    cluster.control().clear();
    settled(seconds(10), &[&member], 2).await;
}

/// Every error a broker can answer with, again and again, to everything a member asks. A heartbeat of the consumer protocol that
/// was answered with a stale epoch or a rebalance was sent again at once, for ever; and who was a member to heartbeats and
/// none to OffsetFetch joined for ever.
#[tokio::test(start_paused = true)]
async fn no_error_is_answered_by_a_tight_loop() {
    const TIMES: u64 = 400;
    let all = [ApiKey::FIND_COORDINATOR, ApiKey::METADATA, ApiKey::OFFSET_FETCH];
    let classic = [ApiKey::JOIN_GROUP, ApiKey::SYNC_GROUP, ApiKey::HEARTBEAT];
    let both = all.into_iter().chain(classic).map(|api| (api, GroupProtocol::Classic));
    let modern = all.into_iter().chain([ApiKey::CONSUMER_GROUP_HEARTBEAT]);
    let both = both.chain(modern.map(|api| (api, GroupProtocol::Consumer)));
    let mut wrong = Vec::new();
    for (api, protocol) in both {
        for error in (-1..=130).filter(|error| *error != code::NONE) {
            let cluster = cluster(1, 2);
            let rule = cluster.control().on(Match::api(api).times(TIMES), Action::Error(error));
            let member = Member::join_with(&cluster, 2, GroupConfig { protocol, ..config() }, Duration::ZERO);
            tokio::time::sleep(seconds(20)).await;
            let asked = cluster.control().hits(rule);
            if asked > TIMES / 2 {
                wrong.push((api.name(), error, asked));
            }
            drop(member);
        }
    }
    assert_eq!(wrong, []);
}
