//! Which commits are sent, which are refused, and what becomes of those that meet trouble.

use std::time::Duration;

use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_wire::group::{CommitError, CommitOffset, GroupConfig};

use crate::support::{
    GROUP, Member, SESSION, TOPIC, assert_clean, at, cluster, config, count, is_classic, seconds, settled,
    tp, until,
};

fn committed(cluster: &prosody_testkit::Cluster, partition: i32) -> Option<i64> {
    let group = cluster.group(GROUP)?;
    group
        .offsets
        .iter()
        .find(|(key, _)| key.0.as_ref() == TOPIC && key.1 == partition)
        .map(|(_, one)| one.offset)
}

/// Every commit failed with NOT_COORDINATOR until the process was restarted, after the coordinator had moved.
/// Here the coordinator is found again and the same commit succeeds, within 300 ms.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_follows_the_coordinator() {
    let cluster = cluster(3, 3);
    let member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 3).await;
    for round in 1..10 {
        let now = cluster.coordinator(GROUP).unwrap();
        cluster.move_coordinator(GROUP, now % 3 + 1);
        let start = tokio::time::Instant::now();
        member.commit(0, round).await.unwrap();
        assert!(start.elapsed() <= Duration::from_millis(300), "{:?}", start.elapsed());
        assert_eq!(committed(&cluster, 0), Some(round));
    }
    assert_clean(&cluster);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_is_retried_through_every_passing_trouble() {
    let actions = [
        Action::Error(code::COORDINATOR_LOAD_IN_PROGRESS),
        Action::Error(code::COORDINATOR_NOT_AVAILABLE),
        Action::Error(code::NOT_COORDINATOR),
        Action::Error(code::REQUEST_TIMED_OUT),
        Action::Error(code::UNKNOWN_TOPIC_OR_PARTITION),
        Action::CutBefore,
        Action::CutAfter,
        Action::Hang,
        Action::HangAfter,
    ];
    for action in actions {
        let cluster = cluster(2, 2);
        let member = Member::join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        // Silence costs a third of a session: there is no time for four of them.
        let times = if matches!(action, Action::Hang | Action::HangAfter) { 1 } else { 4 };
        cluster.control().on(Match::api(ApiKey::OFFSET_COMMIT).times(times), action.clone());
        member.commit(1, 9).await.unwrap_or_else(|why| panic!("{action:?}: {why}"));
        assert_eq!(committed(&cluster, 1), Some(9));
        assert!(member.heard.lock().unwrap().lost.is_empty());
    }
}

/// An acknowledgement that came after the partition was gone overwrote the new owner's offset.
/// Here a commit names its assignment and is refused without asking anybody.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_after_the_partition_is_gone_is_refused_here() {
    let cluster = cluster(1, 2);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 2).await;
    let early = first.epoch();
    let mut second = Member::join(&cluster, 3);
    settled(seconds(10), &[&first, &second], 2).await;
    let gone = second.owned()[0];
    let sent = count(&cluster, ApiKey::OFFSET_COMMIT);
    let refused = first.committer.commit(early, vec![at(gone, 3)]).await.unwrap_err();
    assert!(matches!(&refused, CommitError::NotOwned(which) if which == &[tp(gone)]), "{refused}");
    assert_eq!(count(&cluster, ApiKey::OFFSET_COMMIT), sent);
    // It comes back: what belongs to the time before is still refused, what belongs to now is not.
    second.leave(seconds(1)).await;
    settled(seconds(10), &[&first], 2).await;
    let refused = first.committer.commit(early, vec![at(gone, 3)]).await.unwrap_err();
    assert!(matches!(refused, CommitError::NotOwned(_)), "{refused}");
    first.commit(gone, 4).await.unwrap();
    // A partition that never left accepts both.
    let kept = 1 - gone;
    first.committer.commit(early, vec![at(kept, 5)]).await.unwrap();
    first.commit(kept, 6).await.unwrap();
    // One bad partition does not hold the others back.
    let mixed = first
        .committer
        .commit(first.epoch(), vec![at(kept, 7), CommitOffset { tp: tp(99), ..at(0, 1) }])
        .await;
    assert!(matches!(mixed, Err(CommitError::NotOwned(which)) if which == [tp(99)]));
    assert_eq!(committed(&cluster, kept), Some(7));
    assert_clean(&cluster);
}

/// The coordinator had lost the member; its commits failed and were only logged, for hours.
/// Here the member joins again at once, and the caller learns that the group went on without it.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_of_an_unknown_member_makes_it_rejoin() {
    let other = if is_classic() { code::ILLEGAL_GENERATION } else { code::FENCED_MEMBER_EPOCH };
    for error in [code::UNKNOWN_MEMBER_ID, other] {
        let cluster = cluster(1, 2);
        let member = Member::join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        cluster.control().on(Match::api(ApiKey::OFFSET_COMMIT).times(1), Action::Error(error));
        let refused = member.commit(0, 3).await.unwrap_err();
        assert!(
            matches!(&refused, CommitError::Fenced(why) if why.code().map(|code| code.0) == Some(error)),
            "{refused}"
        );
        assert_eq!(member.heard.lock().unwrap().lost.len(), 1);
        settled(SESSION + seconds(20), &[&member], 2).await;
        member.commit(0, 4).await.unwrap();
    }
}

/// A commit that overlapped a rebalance failed, and the consumer stalled for good.
/// Here the rebalance completes and partitions are assigned whatever becomes of the commit.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_refused_during_a_rebalance_stops_nothing() {
    let cluster = cluster(1, 4);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 4).await;
    cluster
        .control()
        .on(Match::api(ApiKey::OFFSET_COMMIT).times(3), Action::Error(code::REBALANCE_IN_PROGRESS));
    let second = Member::join(&cluster, 3);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let epoch = first.epoch();
    let offsets = (0..4).map(|partition| at(partition, 1)).collect();
    let result = first.committer.commit(epoch, offsets).await;
    assert!(matches!(result, Ok(()) | Err(CommitError::NotOwned(_))), "{result:?}");
    settled(seconds(10), &[&first, &second], 4).await;
    for member in [&first, &second] {
        for partition in member.owned() {
            member.commit(partition, 2).await.unwrap();
        }
    }
    assert_clean(&cluster);
}

/// A revoking member commits what it drained before anybody else starts: nothing is done twice.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_revoked_partition_is_committed_before_its_next_owner_starts() {
    let cluster = cluster(1, 2);
    let first = Member::join_with(&cluster, 2, config(), seconds(3));
    settled(seconds(1), &[&first], 2).await;
    let second = Member::join(&cluster, 3);
    until(seconds(10), "asked to give one up", || !first.heard.lock().unwrap().revoked.is_empty()).await;
    let going = first.heard.lock().unwrap().revoked[0];
    tokio::time::sleep(seconds(1)).await;
    assert!(second.owned().is_empty(), "nobody starts while it drains");
    first.commit(going, 77).await.unwrap();
    settled(seconds(20), &[&first, &second], 2).await;
    let start = second.heard.lock().unwrap().owned[&going].1.clone().unwrap();
    assert_eq!(start.offset, 77);
    assert_clean(&cluster);
}

/// Many callers, one request in flight: what comes meanwhile shares the next one.
#[tokio::test(start_paused = true)]
pub(crate) async fn commits_are_merged_into_one_request_at_a_time() {
    let cluster = cluster(1, 8);
    let member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 8).await;
    let epoch = member.epoch();
    let calls: Vec<_> = (0..200i32)
        .map(|call| {
            let committer = member.committer.clone();
            tokio::spawn(async move { committer.commit(epoch, vec![at(call % 8, i64::from(call))]).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(count(&cluster, ApiKey::OFFSET_COMMIT) <= 4, "{}", count(&cluster, ApiKey::OFFSET_COMMIT));
    for partition in 0..8 {
        assert_eq!(
            committed(&cluster, partition),
            Some(192 + i64::from(partition)),
            "the newest offset wins"
        );
    }
}

/// The text kept with an offset comes back to the next owner; one that is too long is an error of its own.
#[tokio::test(start_paused = true)]
pub(crate) async fn metadata_comes_back_and_too_much_of_it_is_named() {
    let cluster = cluster(1, 2);
    let mut member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 2).await;
    let with =
        |partition, metadata: String| CommitOffset { metadata, leader_epoch: Some(3), ..at(partition, 10) };
    let mixed = vec![with(0, "kept".to_owned()), with(1, "x".repeat(5_000))];
    let refused = member.committer.commit(member.epoch(), mixed).await.unwrap_err();
    assert!(matches!(&refused, CommitError::MetadataTooLarge(which) if which == &[tp(1)]), "{refused}");
    assert_eq!(
        (committed(&cluster, 0), committed(&cluster, 1)),
        (Some(10), None),
        "the other one is committed"
    );
    member.leave(seconds(1)).await;
    let next = Member::join(&cluster, 3);
    settled(seconds(5), &[&next], 2).await;
    let heard = next.heard.lock().unwrap();
    let back = heard.owned[&0].1.clone().unwrap();
    assert_eq!((back.offset, back.leader_epoch, back.metadata.as_str()), (10, Some(3), "kept"));
    assert_eq!(heard.owned[&1].1, None);
}

/// Elsewhere: the whole group waited for 5 minutes, because a revocation waited for a commit that could not finish during the
/// rebalance. Here a commit has a deadline.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_commit_that_cannot_be_delivered_ends_at_its_deadline_and_names_the_cause() {
    let cluster = cluster(1, 1);
    let patient = GroupConfig { commit_timeout: seconds(5), ..config() };
    let member = Member::join_with(&cluster, 2, patient, Duration::ZERO);
    settled(seconds(1), &[&member], 1).await;
    cluster
        .control()
        .on(Match::api(ApiKey::OFFSET_COMMIT), Action::Error(code::COORDINATOR_LOAD_IN_PROGRESS));
    let start = tokio::time::Instant::now();
    let late = member.commit(0, 1).await.unwrap_err();
    assert!(start.elapsed() <= seconds(5) + Duration::from_millis(1));
    let text = late.to_string();
    assert!(
        matches!(late, CommitError::TimedOut(_)) && text.contains("COORDINATOR_LOAD_IN_PROGRESS"),
        "{text}"
    );
    // Not allowed is not retried.
    cluster.control().clear();
    cluster.control().on(Match::api(ApiKey::OFFSET_COMMIT), Action::Error(code::GROUP_AUTHORIZATION_FAILED));
    let start = tokio::time::Instant::now();
    assert!(matches!(member.commit(0, 1).await, Err(CommitError::Refused(_))));
    assert!(start.elapsed() < Duration::from_millis(10));
}

/// What was committed before `leave` is sent before the farewell; what comes later is refused.
#[tokio::test(start_paused = true)]
pub(crate) async fn leaving_waits_for_commits_and_later_ones_are_refused() {
    let cluster = cluster(1, 1);
    let mut member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 1).await;
    cluster
        .control()
        .on(Match::api(ApiKey::OFFSET_COMMIT).times(2), Action::Error(code::COORDINATOR_LOAD_IN_PROGRESS));
    let (committer, epoch) = (member.committer.clone(), member.epoch());
    let early = tokio::spawn({
        let committer = committer.clone();
        async move { committer.commit(epoch, vec![at(0, 5)]).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    member.leave(seconds(5)).await;
    early.await.unwrap().unwrap();
    assert_eq!(committed(&cluster, 0), Some(5));
    assert!(matches!(committer.commit(epoch, vec![at(0, 6)]).await, Err(CommitError::Closed)));
    assert_clean(&cluster);
}
