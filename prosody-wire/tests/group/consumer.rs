//! Members of the consumer protocol (KIP-848): what classic members are tested for, once more, and what is theirs alone.

use std::time::Duration;

use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::Error;
use prosody_wire::group::{CommitError, Group, GroupConfig, GroupEvent, GroupProtocol, TopicPattern};

use crate::support::{
    GROUP, Member, SESSION, TOPIC, assert_clean, at, by_the_consumer_protocol, client, cluster, cluster_with,
    count, seconds, settled, until,
};

macro_rules! again {
    ($($module:ident: $($test:ident),+;)+) => {
        /// Tests of classic members that hold here too.
        mod again {
            $($(#[test]
            fn $test() {
                super::by_the_consumer_protocol(crate::$module::$test);
            })+)+
        }
    };
}

again! {
    joining: members_join_leave_and_die_and_the_others_keep_what_they_can,
        a_static_member_comes_back_to_its_partitions_without_a_rebalance, added_partitions_are_assigned,
        a_topic_that_is_created_later_is_picked_up, a_reader_that_never_reads_stays_a_member,
        a_rebalance_moves_no_position_back;
    faults: a_refused_offset_fetch_is_asked_again, no_offset_fetch_error_reaches_the_reset_policy,
        without_answered_heartbeats_everything_is_lost_after_the_session, a_coordinator_move_costs_nothing,
        a_coordinator_move_in_the_middle_of_a_rebalance_is_survived,
        every_broker_restarts_one_after_the_other_and_nobody_is_rebalanced,
        a_short_outage_of_the_only_broker_loses_nothing, cut_requests_are_made_again,
        leaving_ends_by_its_deadline_whatever_the_brokers_do, an_unknown_member_rejoins_at_once;
    commits: a_commit_follows_the_coordinator, a_commit_is_retried_through_every_passing_trouble,
        a_commit_after_the_partition_is_gone_is_refused_here, a_commit_of_an_unknown_member_makes_it_rejoin,
        a_commit_refused_during_a_rebalance_stops_nothing,
        a_revoked_partition_is_committed_before_its_next_owner_starts,
        commits_are_merged_into_one_request_at_a_time, metadata_comes_back_and_too_much_of_it_is_named,
        a_commit_that_cannot_be_delivered_ends_at_its_deadline_and_names_the_cause,
        leaving_waits_for_commits_and_later_ones_are_refused;
}

fn config() -> GroupConfig {
    GroupConfig { protocol: GroupProtocol::Consumer, ..GroupConfig::new(GROUP, [TOPIC.into()]) }
}

fn join(cluster: &Cluster, seed: u64) -> Member {
    Member::join_with(cluster, seed, config(), Duration::ZERO)
}

fn named(instance: &str) -> GroupConfig {
    GroupConfig { instance_id: Some(instance.to_owned()), ..config() }
}

/// One heartbeat joins and brings the assignment: nothing is asked twice and nothing is waited for.
#[tokio::test(start_paused = true)]
async fn the_first_assignment_takes_one_heartbeat() {
    let cluster = cluster(1, 8);
    let member = join(&cluster, 2);
    let took = settled(seconds(1), &[&member], 8).await;
    assert!(took <= Duration::from_millis(2), "{took:?}");
    let asked = |api| count(&cluster, api);
    assert_eq!((asked(ApiKey::FIND_COORDINATOR), asked(ApiKey::CONSUMER_GROUP_HEARTBEAT)), (1, 1));
    assert_eq!((asked(ApiKey::OFFSET_FETCH), asked(ApiKey::JOIN_GROUP)), (1, 0));
    assert!(asked(ApiKey::METADATA) <= 2, "{}", asked(ApiKey::METADATA));
    // Then the broker's interval holds: a few early beats, and one every five seconds.
    tokio::time::sleep(seconds(60)).await;
    assert!((12..=20).contains(&asked(ApiKey::CONSUMER_GROUP_HEARTBEAT)));
    assert_clean(&cluster);
}

/// A coordinator that assigns by racks (KIP-848) has to know where we run, from the heartbeat that joins and from the one that
/// joins again.
#[tokio::test(start_paused = true)]
async fn the_coordinator_is_told_our_rack() {
    let cluster = cluster(1, 2);
    let rack = |name: Option<&str>| GroupConfig { client_rack: name.map(str::to_owned), ..config() };
    let first = Member::join_with(&cluster, 2, rack(Some("b")), Duration::ZERO);
    let second = Member::join_with(&cluster, 3, rack(None), Duration::ZERO);
    settled(seconds(10), &[&first, &second], 2).await;
    let racks = || {
        let members = cluster.group(GROUP).unwrap().members.into_values();
        members.map(|one| (one.client_id, one.rack)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let of = |client: &str| racks()[client].clone();
    assert_eq!((of("client-2").as_deref(), of("client-3")), (Some("b"), None));
    assert_eq!(cluster.evict(GROUP, "client-2"), 1);
    until(seconds(10), "it is back", || cluster.group(GROUP).unwrap().members.len() == 2).await;
    assert_eq!(of("client-2").as_deref(), Some("b"));
    assert_clean(&cluster);
}

/// An assigned topic was never consumed: the coordinator named it by an id that the client's metadata did not know yet,
/// and the client dropped it. Here the partition is held back, metadata is asked for, and then it is read.
#[tokio::test(start_paused = true)]
async fn an_assigned_topic_that_metadata_does_not_know_yet_is_consumed_when_it_does() {
    let cluster = cluster(1, 2);
    // The coordinator matches the pattern, so nobody here looks for a topic of that name.
    let both = GroupConfig { patterns: vec![TopicPattern::new("^late").unwrap()], ..config() };
    let member = Member::join_with(&cluster, 2, both, Duration::ZERO);
    until(seconds(1), "what exists", || member.owned().len() == 2).await;
    tokio::time::sleep(seconds(30)).await;
    // Metadata goes on saying that it is not there yet, while the coordinator assigns it.
    let stale = cluster.control().on(Match::api(ApiKey::METADATA), Action::Error(code::LEADER_NOT_AVAILABLE));
    cluster.create_topic("late", 1).unwrap();
    tokio::time::sleep(seconds(20)).await;
    cluster.control().remove(stale);
    until(seconds(5), "it is taken up", || member.heard.lock().unwrap().assignments == 2).await;
    assert!(member.heard.lock().unwrap().failed.is_empty());
    assert_clean(&cluster);
}

/// For minutes nothing was committed and nothing fetched: a commit was answered STALE_MEMBER_EPOCH while the member gave
/// partitions up, and the client stopped everything. Here what stays keeps running, and the commit is sent again with
/// the epoch that the next heartbeat brings.
#[tokio::test(start_paused = true)]
async fn a_stale_epoch_during_reconciliation_stops_nothing() {
    let cluster = cluster(1, 4);
    let first = Member::join_with(&cluster, 2, config(), seconds(3));
    settled(seconds(1), &[&first], 4).await;
    let second = join(&cluster, 3);
    until(seconds(10), "asked to give some up", || first.heard.lock().unwrap().revoked.len() == 2).await;
    let kept = (0..4).find(|one| !first.heard.lock().unwrap().revoked.contains(one)).unwrap();
    // The answer that brings the new epoch is lost: the member does not know it, the coordinator goes by it.
    cluster.control().on(
        Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).client("client-2").after(1).times(1),
        Action::CutAfter,
    );
    until(seconds(10), "given up", || first.owned().len() == 2).await;
    let start = tokio::time::Instant::now();
    for offset in 1..20 {
        first.commit(kept, offset).await.unwrap();
    }
    assert!(start.elapsed() < seconds(1), "{:?}", start.elapsed());
    assert!(first.owned().contains(&kept) && first.heard.lock().unwrap().lost.is_empty());
    // And once more with the error alone, however often it comes.
    cluster.control().clear();
    cluster.control().on(Match::api(ApiKey::OFFSET_COMMIT).times(4), Action::Error(code::STALE_MEMBER_EPOCH));
    first.commit(kept, 30).await.unwrap();
    assert!(start.elapsed() < seconds(3), "{:?}", start.elapsed());
    settled(seconds(10), &[&first, &second], 4).await;
    assert_clean(&cluster);
}

/// OffsetFetch was answered STALE_MEMBER_EPOCH while fifty members started, and the consumer began at the latest offset.
/// Here the partition waits until its offset is known.
#[tokio::test(start_paused = true)]
async fn a_stale_epoch_on_reading_offsets_never_reaches_the_reset_policy() {
    for error in [code::STALE_MEMBER_EPOCH, code::FENCED_MEMBER_EPOCH, code::UNKNOWN_MEMBER_ID] {
        let cluster = cluster(1, 1);
        let mut before = join(&cluster, 2);
        settled(seconds(1), &[&before], 1).await;
        before.commit(0, 41).await.unwrap();
        before.leave(seconds(1)).await;
        cluster.control().on(Match::api(ApiKey::OFFSET_FETCH).times(5), Action::Error(error));
        let member = join(&cluster, 3);
        settled(seconds(30), &[&member], 1).await;
        let committed = member.heard.lock().unwrap().owned[&0].1.clone();
        assert_eq!(committed.map(|one| one.offset), Some(41), "error {error}");
    }
}

/// A fenced member kept its partitions until its callbacks had run. Here they are lost at once, and it joins anew.
#[tokio::test(start_paused = true)]
async fn a_fenced_member_loses_everything_at_once_and_joins_anew() {
    let cluster = cluster(1, 2);
    let member = join(&cluster, 2);
    settled(seconds(1), &[&member], 2).await;
    cluster
        .control()
        .on(Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1), Action::Error(code::FENCED_MEMBER_EPOCH));
    until(seconds(6), "lost", || member.heard.lock().unwrap().lost.len() == 1).await;
    // The coordinator has it still, under an epoch it does not know: it leaves and joins, and waits for no session.
    let took = settled(seconds(5), &[&member], 2).await;
    assert!(took < seconds(1), "{took:?}");
    assert_eq!(cluster.group(GROUP).unwrap().members.len(), 1);
    assert_clean(&cluster);
}

/// The answer to the first heartbeat was lost; the second one, of a static member, found its own name taken, and the
/// process ended. Here it says that it left and joins.
#[tokio::test(start_paused = true)]
async fn a_lost_first_answer_leaves_nobody_behind() {
    for config in [config(), named("one")] {
        let cluster = cluster(1, 2);
        cluster.control().on(Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1), Action::CutAfter);
        let member = Member::join_with(&cluster, 2, config, Duration::ZERO);
        let took = settled(seconds(5), &[&member], 2).await;
        assert!(took < seconds(1), "{took:?}");
        assert_eq!(cluster.group(GROUP).unwrap().members.len(), 1);
        assert_clean(&cluster);
    }
}

/// A static process that died is believed to live until its session is over: its successor waits, says why, and gets
/// its partitions then. Two that live do not steal from each other: the second one waits as long as the first one lives.
#[tokio::test(start_paused = true)]
async fn a_second_process_of_one_instance_waits_for_the_end_of_the_first() {
    let cluster = cluster(1, 2);
    let mut first = Member::join_with(&cluster, 2, named("one"), Duration::ZERO);
    settled(seconds(1), &[&first], 2).await;
    let second = Member::join_with(&cluster, 3, named("one"), Duration::ZERO);
    until(seconds(1), "told", || !second.heard.lock().unwrap().failed.is_empty()).await;
    let why = second.heard.lock().unwrap().failed[0].to_string();
    assert!(why.contains("UNRELEASED_INSTANCE_ID") && why.contains("one"), "{why}");
    tokio::time::sleep(2 * SESSION).await;
    assert!(first.owned().len() == 2 && second.owned().is_empty(), "the first one lives");
    assert_eq!(second.heard.lock().unwrap().failed.len(), 1, "said once");
    first.kill();
    settled(SESSION + seconds(5), &[&second], 2).await;
    assert_clean(&cluster);
}

/// The group's own session timeout counts, not the client's; where it cannot be read, three heartbeats do.
#[tokio::test(start_paused = true)]
async fn the_session_is_the_groups_own() {
    for (readable, session) in [(true, seconds(12)), (false, seconds(9))] {
        let config = ClusterConfig {
            consumer_session_timeout: seconds(12),
            consumer_heartbeat_interval: seconds(3),
            ..ClusterConfig::default()
        };
        let cluster = cluster_with(config, 2);
        if !readable {
            let refused = Action::Error(code::GROUP_AUTHORIZATION_FAILED);
            cluster.control().on(Match::api(ApiKey::DESCRIBE_CONFIGS), refused);
        }
        let member = join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        tokio::time::sleep(seconds(20)).await;
        let last = cluster.requests(ApiKey::CONSUMER_GROUP_HEARTBEAT).last().unwrap().at;
        cluster.control().on(Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT), Action::Hang);
        until(2 * session, "lost", || !member.heard.lock().unwrap().lost.is_empty()).await;
        let held = tokio::time::Instant::now() - last;
        assert!(held <= session + Duration::from_millis(2) && held > session - seconds(4), "{held:?}");
        assert!(member.heard.lock().unwrap().failed.is_empty(), "nobody has to know");
    }
}

/// A reader that does not let go in time: its partitions are taken from it before the coordinator gives them away, and
/// it stays a member.
#[tokio::test(start_paused = true)]
async fn a_revocation_ends_before_the_coordinators_patience_does() {
    let cluster = cluster(1, 2);
    let slow = Member::join_with(&cluster, 2, config(), seconds(600));
    settled(seconds(1), &[&slow], 2).await;
    let second = join(&cluster, 3);
    until(seconds(61), "handed over", || second.owned().len() == 1).await;
    assert!(slow.heard.lock().unwrap().lost.is_empty());
    assert_eq!(cluster.group(GROUP).unwrap().members.len(), 2);
    assert_clean(&cluster);
}

/// A topic that is deleted and created again has another id: what was read of the old one is given up first, and the new
/// one starts clean.
#[tokio::test(start_paused = true)]
async fn a_topic_that_is_created_again_is_taken_up_anew() {
    let cluster = cluster(1, 2);
    let (client, _doors) = client(&cluster, 2);
    let mut group = Group::join(&client, config());
    let GroupEvent::Assigned { epoch, .. } = group.event().await else { panic!("assigned first") };
    group.committer().commit(epoch, vec![at(0, 5)]).await.unwrap();
    cluster.recreate_topic(TOPIC).unwrap();
    let mut revoked = 0;
    loop {
        match tokio::time::timeout(seconds(400), group.event()).await.unwrap() {
            GroupEvent::Revoke { partitions, done, .. } => {
                revoked += partitions.len();
                done.done();
            }
            GroupEvent::Assigned { epoch: later, partitions } => {
                assert!(later > epoch && revoked == 2, "{revoked} given up first");
                assert!(partitions.iter().all(|one| one.committed.is_none()), "{partitions:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_clean(&cluster);
}

/// What only a person can change is said, and tried again.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_and_asked_again() {
    let cluster = cluster(1, 1);
    let refused = Action::Error(code::GROUP_AUTHORIZATION_FAILED);
    let rule = cluster.control().on(Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT), refused);
    let member = join(&cluster, 2);
    until(seconds(1), "told", || !member.heard.lock().unwrap().failed.is_empty()).await;
    let told = |why: &Error| why.to_string().contains("GROUP_AUTHORIZATION_FAILED");
    assert!(member.heard.lock().unwrap().failed.iter().all(told));
    cluster.control().remove(rule);
    settled(seconds(6), &[&member], 1).await;
}

/// A commit in flight when the member is removed: the caller learns it, and nothing of the old epoch is sent again.
#[tokio::test(start_paused = true)]
async fn an_evicted_member_learns_it_from_a_commit() {
    let cluster = cluster(1, 1);
    let member = join(&cluster, 2);
    settled(seconds(1), &[&member], 1).await;
    assert_eq!(cluster.evict(GROUP, "client-2"), 1);
    let refused = member.commit(0, 3).await.unwrap_err();
    assert!(matches!(&refused, CommitError::Fenced(_)), "{refused}");
    settled(seconds(2), &[&member], 1).await;
    member.commit(0, 4).await.unwrap();
}
