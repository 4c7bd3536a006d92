//! Members of groups that a real coordinator keeps.

use std::time::Duration;

use kafka_protocol::messages as m;
use prosody_wire::group::{Assignor, CommitError, CommitOffset, GroupConfig, GroupProtocol};
use prosody_wire::{GroupDescription, Limits, NewTopic, Topic};

use crate::raw::{ask, text};
use crate::stage::{BOTH, CLASSIC, CONSUMER, PATIENCE, Stage, play};
use crate::support::{Member, seconds, settled, until};
use crate::wires::Wires;

/// The shortest that a broker accepts.
const SESSION: Duration = Duration::from_secs(6);
/// What real clocks and a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_secs(1);

fn offsets(stage: &Stage, partitions: std::ops::Range<i32>, offset: i64) -> Vec<CommitOffset> {
    let one = |partition| CommitOffset {
        tp: stage.tp(partition),
        offset,
        leader_epoch: None,
        metadata: String::new(),
    };
    partitions.map(one).collect()
}

/// A commit overlapped a rebalance, failed, and the consumer stalled for good.
/// Here commits go on without a pause while members join, and everything is owned and committed in the end.
#[test]
fn a_commit_during_a_rebalance_stops_nothing() {
    play("commit-during-a-rebalance", 1, BOTH, |stage| async move {
        stage.create(6, &[]).await;
        let first = stage.join();
        settled(PATIENCE, &[&first], 6).await;
        let (second, third) = (stage.join(), stage.join());
        let mut offset = 1;
        while [&first, &second, &third].iter().any(|one| one.owned().len() != 2) {
            let all = offsets(&stage, 0..6, offset);
            let result = first.committer.commit(first.epoch(), all).await;
            assert!(matches!(result, Ok(()) | Err(CommitError::NotOwned(_))), "{result:?}");
            offset += 1;
        }
        settled(PATIENCE, &[&first, &second, &third], 6).await;
        for member in [&first, &second, &third] {
            for partition in member.owned() {
                member.commit(partition, 1_000_000).await.unwrap();
                assert_eq!(stage.committed(partition).await, Some(1_000_000));
            }
        }
    });
}

/// The coordinator had lost the member, and its failing commits were only logged. Here it joins again at once.
#[test]
fn a_member_that_was_removed_learns_it_from_its_commit() {
    play("removed-member", 1, CLASSIC, |stage| async move {
        stage.create(2, &[]).await;
        let member = stage.join();
        settled(PATIENCE, &[&member], 2).await;
        let group = stage.client.admin().describe_group(&stage.topic, stage.deadline()).await.unwrap();
        let coordinator =
            m::FindCoordinatorRequest::default().with_coordinator_keys(vec![text(&stage.topic)]);
        let found = ask(&stage.brokers[0], 4, &coordinator).await.coordinators[0].clone();
        let gone = m::leave_group_request::MemberIdentity::default()
            .with_member_id(text(&group.members[0].member_id));
        let leave = m::LeaveGroupRequest::default().with_group_id(m::GroupId(text(&stage.topic)));
        let address = format!("{}:{}", found.host, found.port);
        let answer = ask(&address, 4, &leave.with_members(vec![gone])).await;
        assert_eq!((answer.error_code, answer.members[0].error_code), (0, 0));
        // Unless a heartbeat has heard it before.
        let refused = member.commit(0, 3).await.unwrap_err();
        assert!(matches!(&refused, CommitError::Fenced(_) | CommitError::NotOwned(_)), "{refused}");
        until(PATIENCE, "told", || member.heard.lock().unwrap().lost.len() == 1).await;
        settled(PATIENCE, &[&member], 2).await;
        member.commit(0, 4).await.unwrap();
    });
}

/// An acknowledgement that came after the partition was gone overwrote the new owner's offset.
/// Here it is refused without asking anybody, and what the new owner committed stays.
#[test]
fn a_late_commit_overwrites_nothing() {
    play("late-commit", 1, BOTH, |stage| async move {
        stage.create(2, &[]).await;
        let first = stage.join();
        settled(PATIENCE, &[&first], 2).await;
        let early = first.epoch();
        let second = stage.join();
        settled(PATIENCE, &[&first, &second], 2).await;
        let gone = second.owned()[0];
        second.commit(gone, 50).await.unwrap();
        let refused = first.committer.commit(early, offsets(&stage, gone..gone + 1, 3)).await.unwrap_err();
        assert!(matches!(&refused, CommitError::NotOwned(which) if which == &[stage.tp(gone)]), "{refused}");
        assert_eq!(stage.committed(gone).await, Some(50));
    });
}

/// For minutes nothing was committed under KIP-848, because the member's epoch was behind while others joined.
/// Here every commit of what stays succeeds, soon.
#[test]
fn a_stale_epoch_stops_nothing() {
    play("stale-epoch", 1, CONSUMER, |stage| async move {
        stage.create(6, &[]).await;
        let first = stage.join_with(stage.group(), seconds(1));
        settled(PATIENCE, &[&first], 6).await;
        let others = [stage.join(), stage.join()];
        let mut slowest = Duration::ZERO;
        let mut offset = 1;
        while others.iter().any(|one| one.owned().len() != 2) {
            let start = tokio::time::Instant::now();
            let epoch = first.epoch();
            let result = first.committer.commit(epoch, offsets(&stage, 0..6, offset)).await;
            assert!(matches!(result, Ok(()) | Err(CommitError::NotOwned(_))), "{result:?}");
            slowest = slowest.max(start.elapsed());
            offset += 1;
        }
        assert!(slowest < seconds(10), "{slowest:?}");
        let heard = first.heard.lock().unwrap();
        assert!(heard.lost.is_empty() && heard.owned.len() == 2, "{heard:?}");
    });
}

/// An assigned topic was never consumed: the coordinator named an id that metadata did not know yet.
/// Here a topic that is created under the eyes of its member is assigned, by its name.
#[test]
fn a_topic_that_is_new_to_its_member_is_assigned() {
    play("new-topic", 1, CONSUMER, |stage| async move {
        stage.create(2, &[]).await;
        let late = format!("{}-late", stage.topic);
        let topics = [stage.topic.as_str().into(), Topic::from(late.as_str())];
        let config = GroupConfig { topics: topics.to_vec(), ..stage.group() };
        let member = stage.join_with(config, Duration::ZERO);
        settled(PATIENCE, &[&member], 2).await;
        let admin = stage.client.admin();
        admin.create_topic(&NewTopic::new(late.as_str()).partitions(5), stage.deadline()).await.unwrap();
        until(PATIENCE, "the new topic", || member.owned() == [0, 1, 2, 3, 4]).await;
        assert!(member.heard.lock().unwrap().lost.is_empty());
    });
}

/// Closing hung for ever: a rebalance was running, the topic had been deleted, or no broker answered.
#[test]
fn leaving_ends_by_its_deadline() {
    play("leaving-in-time", 1, BOTH, |stage| async move {
        stage.create(2, &[]).await;
        let within = seconds(3);
        let left =
            |start: tokio::time::Instant| assert!(start.elapsed() <= within + SLACK, "{:?}", start.elapsed());
        // A rebalance that waits for a member that takes its time.
        let slow = stage.join_with(stage.group(), seconds(8));
        settled(PATIENCE, &[&slow], 2).await;
        let mut second = stage.join();
        until(PATIENCE, "a rebalance", || !slow.heard.lock().unwrap().revoked.is_empty()).await;
        let start = tokio::time::Instant::now();
        second.leave(within).await;
        left(start);
        drop(slow);
        // Nobody answers any more.
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits::default());
        let config = GroupConfig { group_id: format!("{}-cut", stage.topic), ..stage.group() };
        let mut member = Member::of(client, stage.doors.clone(), config, Duration::ZERO);
        settled(PATIENCE, &[&member], 2).await;
        wires.swallow();
        let start = tokio::time::Instant::now();
        member.leave(within).await;
        left(start);
        // The topic is gone.
        let config = GroupConfig { group_id: format!("{}-gone", stage.topic), ..stage.group() };
        let mut member = stage.join_with(config, Duration::ZERO);
        settled(PATIENCE, &[&member], 2).await;
        stage.client.admin().delete_topic(&stage.topic, stage.deadline()).await.unwrap();
        let start = tokio::time::Instant::now();
        member.leave(within).await;
        left(start);
    });
}

/// A member that the coordinator had removed went on consuming, because its heartbeats merely failed.
/// Here it has lost everything when its session is over, and somebody else has it.
#[test]
fn a_member_nobody_hears_loses_everything_with_its_session() {
    play("unheard-member", 1, CLASSIC, |stage| async move {
        stage.create(2, &[]).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits { request_timeout: seconds(60), ..Limits::default() });
        let config =
            GroupConfig { session_timeout: SESSION, heartbeat_interval: seconds(1), ..stage.group() };
        let unheard = Member::of(client, stage.doors.clone(), config, Duration::ZERO);
        settled(PATIENCE, &[&unheard], 2).await;
        // A heartbeat without an answer is made again on another connection, so none may work.
        wires.swallow_for_good();
        let took = until(PATIENCE, "lost", || !unheard.heard.lock().unwrap().lost.is_empty()).await;
        assert!(took <= SESSION + SLACK, "{took:?}");
        assert!(unheard.owned().is_empty());
        let other = stage.join();
        settled(PATIENCE, &[&other], 2).await;
    });
}

/// A position jumped back a day: a rebalance that left the partition where it was read its old committed offset again.
#[test]
fn a_rebalance_moves_no_position_back() {
    play("retained", 1, BOTH, |stage| async move {
        stage.create(4, &[]).await;
        let first = stage.join();
        settled(PATIENCE, &[&first], 4).await;
        let epoch = first.epoch();
        first.committer.commit(epoch, offsets(&stage, 0..4, 1)).await.unwrap();
        let second = stage.join();
        settled(PATIENCE, &[&first, &second], 4).await;
        let heard = first.heard.lock().unwrap();
        for (partition, (since, committed)) in &heard.owned {
            assert_eq!(
                (*since, committed.is_none()),
                (epoch, true),
                "partition {partition} was started again"
            );
        }
    });
}

/// A new member waited for the whole rebalance timeout when the answer to its JoinGroup was lost. Here it asks again over
/// another connection meanwhile, and the coordinator takes that for the same member: nobody is lost, the rebalance goes on.
#[test]
fn asking_to_join_again_disturbs_no_rebalance() {
    play("asked-again", 1, CLASSIC, |stage| async move {
        stage.create(4, &[]).await;
        let eager = || GroupConfig {
            assignors: vec![Assignor::Range],
            session_timeout: SESSION,
            heartbeat_interval: seconds(1),
            ..stage.group()
        };
        let slow = stage.join_with(eager(), seconds(15));
        settled(PATIENCE, &[&slow], 4).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits::default());
        let new = Member::of(client, stage.doors.clone(), eager(), Duration::ZERO);
        until(PATIENCE, "a rebalance", || !slow.heard.lock().unwrap().revoked.is_empty()).await;
        // What was asked so far is never answered.
        let connects = || new.client.brokers().iter().map(|broker| broker.connects).sum::<u64>();
        let before = connects();
        wires.swallow();
        let took = settled(PATIENCE, &[&slow, &new], 4).await;
        // It asks after 2 and 6 seconds, and after 14 unless the rebalance is over, each time over another connection.
        let asked_again = connects() - before;
        assert!(asked_again >= 2 && took < seconds(25), "{asked_again} more connections, {took:?}");
        assert!(slow.heard.lock().unwrap().lost.is_empty());
        let group = stage.client.admin().describe_group(&stage.topic, stage.deadline()).await.unwrap();
        assert_eq!((group.state.as_str(), group.members.len()), ("Stable", 2), "{group:?}");
    });
}

/// Describing a group of the consumer protocol (ConsumerGroupDescribe) had been tried on no broker but our own.
/// Here groups of both protocols are described alike while they have members, when they have none, and when there is none.
#[test]
fn a_group_is_described_in_both_protocols() {
    play("described", 1, BOTH, |stage| async move {
        stage.create(4, &[]).await;
        let admin = stage.client.admin();
        let named = GroupConfig { instance_id: Some("one".to_owned()), ..stage.group() };
        let mut members = [stage.join_with(named, Duration::ZERO), stage.join()];
        settled(PATIENCE, &[&members[0], &members[1]], 4).await;
        let described = async |what: &str, is_so: fn(&GroupDescription) -> bool| {
            let asking = async {
                loop {
                    let found = admin.describe_group(&stage.topic, stage.deadline()).await.unwrap();
                    if is_so(&found) {
                        return found;
                    }
                }
            };
            tokio::time::timeout(PATIENCE, asking).await.expect(what)
        };
        let found = described("a stable group", |found| found.state == "Stable").await;
        let by = if stage.protocol == GroupProtocol::Consumer { "uniform" } else { "cooperative-sticky" };
        assert_eq!(found.assignor, by, "{found:?}");
        assert_eq!(found.members.len(), 2, "{found:?}");
        for (member, instance) in members.iter().zip([Some("one"), None]) {
            let described = found.members.iter().find(|one| one.instance_id.as_deref() == instance).unwrap();
            let partitions: Vec<_> =
                member.owned().into_iter().map(|partition| stage.tp(partition)).collect();
            assert_eq!(described.partitions, partitions, "{found:?}");
            assert!(!described.member_id.is_empty() && !described.client_id.is_empty(), "{described:?}");
        }
        let listed = admin.list_groups(stage.deadline()).await.unwrap();
        assert!(listed.iter().any(|one| one.group_id == stage.topic), "{listed:?}");
        members[1].leave(seconds(10)).await;
        described("one member less", |found| found.members.len() == 1).await;
        let none = admin.describe_group("nobody-made-this", stage.deadline()).await.unwrap();
        assert_eq!((none.state.as_str(), none.members.len()), ("Dead", 0));
    });
}

/// While a group moved from one way of dividing to another, an error hid which. Here both sides are named to whoever offers
/// one alone, and one that offers both is a member.
#[test]
fn a_way_of_dividing_that_nobody_shares_is_named() {
    play("assignors", 1, CLASSIC, |stage| async move {
        stage.create(2, &[]).await;
        let offers = |assignors: &[Assignor]| GroupConfig { assignors: assignors.to_vec(), ..stage.group() };
        let old = stage.join_with(offers(&[Assignor::Range]), Duration::ZERO);
        settled(PATIENCE, &[&old], 2).await;
        let other = stage.join_with(offers(&[Assignor::CooperativeSticky]), Duration::ZERO);
        until(PATIENCE, "told", || !other.heard.lock().unwrap().failed.is_empty()).await;
        let why = other.heard.lock().unwrap().failed[0].to_string();
        assert!(why.contains("INCONSISTENT_GROUP_PROTOCOL") && why.contains("cooperative-sticky"), "{why}");
        let both = stage.join_with(offers(&[Assignor::CooperativeSticky, Assignor::Range]), Duration::ZERO);
        settled(PATIENCE, &[&old, &both], 2).await;
    });
}
