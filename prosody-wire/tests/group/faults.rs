//! Brokers move, stop, refuse and go silent.

use std::time::Duration;

use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_wire::group::{Assignor, GroupConfig};

use crate::support::{
    GROUP, Member, SESSION, TOPIC, assert_clean, cluster, config, count, heartbeat, is_classic, seconds,
    settled, until,
};

/// After a rolling update consumers were stuck rejoining: JoinGroup or SyncGroup got NOT_COORDINATOR and the old
/// coordinator was asked for ever. Here it is dropped, found again, and the group is joined.
#[tokio::test(start_paused = true)]
pub(crate) async fn not_coordinator_while_joining_finds_the_new_one() {
    for api in [ApiKey::JOIN_GROUP, ApiKey::SYNC_GROUP] {
        for error in
            [code::NOT_COORDINATOR, code::COORDINATOR_NOT_AVAILABLE, code::COORDINATOR_LOAD_IN_PROGRESS]
        {
            let cluster = cluster(3, 6);
            cluster.control().on(Match::api(api).times(3), Action::Error(error));
            let member = Member::join(&cluster, 2);
            let took = settled(seconds(5), &[&member], 6).await;
            assert!(took < Duration::from_millis(500), "{} {error}: {took:?}", api.name());
            assert_clean(&cluster);
        }
    }
}

/// One NOT_COORDINATOR on OffsetFetch and a partition never started.
/// Here the coordinator is found again and asked again, at once.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_refused_offset_fetch_is_asked_again() {
    let cluster = cluster(3, 6);
    cluster.control().on(Match::api(ApiKey::OFFSET_FETCH).times(1), Action::Error(code::NOT_COORDINATOR));
    let member = Member::join(&cluster, 2);
    settled(seconds(2), &[&member], 6).await;
}

/// OffsetFetch answered with a member error, and the consumer started at the latest offset.
/// No error means "nothing committed": the partition waits for a real answer.
#[tokio::test(start_paused = true)]
pub(crate) async fn no_offset_fetch_error_reaches_the_reset_policy() {
    const UNSTABLE_OFFSET_COMMIT: i16 = 88;
    let errors = [
        code::UNKNOWN_MEMBER_ID,
        code::ILLEGAL_GENERATION,
        code::REBALANCE_IN_PROGRESS,
        code::UNKNOWN_SERVER_ERROR,
        code::GROUP_AUTHORIZATION_FAILED,
        code::UNKNOWN_TOPIC_OR_PARTITION,
        UNSTABLE_OFFSET_COMMIT,
    ];
    for error in errors {
        let cluster = cluster(1, 1);
        let mut before = Member::join(&cluster, 2);
        settled(seconds(1), &[&before], 1).await;
        before.commit(0, 41).await.unwrap();
        before.leave(seconds(1)).await;
        cluster.control().on(Match::api(ApiKey::OFFSET_FETCH).times(3), Action::Error(error));
        let member = Member::join(&cluster, 3);
        settled(seconds(30), &[&member], 1).await;
        let committed = member.heard.lock().unwrap().owned[&0].1.clone();
        assert_eq!(committed.map(|one| one.offset), Some(41), "error {error}");
        assert_eq!(count(&cluster, ApiKey::OFFSET_FETCH), 5, "error {error}");
    }
}

/// A member that the coordinator had removed went on consuming, because its heartbeats merely failed.
/// Here everything is lost a session after the send of the last heartbeat that was answered.
#[tokio::test(start_paused = true)]
pub(crate) async fn without_answered_heartbeats_everything_is_lost_after_the_session() {
    let cluster = cluster(1, 2);
    let member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 2).await;
    tokio::time::sleep(seconds(10)).await;
    let last = cluster.requests(heartbeat()).last().unwrap().at;
    cluster.control().on(Match::api(heartbeat()), Action::Hang);
    until(SESSION + seconds(1), "lost", || !member.heard.lock().unwrap().lost.is_empty()).await;
    let held = tokio::time::Instant::now() - last;
    assert!(held <= SESSION + Duration::from_millis(2), "{held:?} after the last answered heartbeat");
    assert!(held > SESSION - seconds(6), "{held:?}: not before its time either");
    let why = member.heard.lock().unwrap().lost[0].to_string();
    assert!(why.contains("no heartbeat") && why.contains(GROUP), "{why}");
    // And it comes back by itself.
    cluster.control().clear();
    settled(seconds(60), &[&member], 2).await;
}

/// The coordinator moves while everybody is happy: nobody loses anything and nothing is rebalanced.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_coordinator_move_costs_nothing() {
    let cluster = cluster(3, 6);
    let first = Member::join(&cluster, 2);
    let second = Member::join(&cluster, 3);
    settled(seconds(10), &[&first, &second], 6).await;
    let generation = cluster.group(GROUP).unwrap().generation;
    for round in 0..6 {
        let now = cluster.coordinator(GROUP).unwrap();
        cluster.move_coordinator(GROUP, now % 3 + 1);
        tokio::time::sleep(seconds(5)).await;
        let partition = first.owned()[0];
        first.commit(partition, round).await.unwrap();
    }
    let untouched = |member: &Member| {
        let heard = member.heard.lock().unwrap();
        heard.lost.is_empty() && heard.failed.is_empty()
    };
    assert!(untouched(&first) && untouched(&second));
    assert_eq!(cluster.group(GROUP).unwrap().generation, generation);
    assert_clean(&cluster);
}

/// After a rolling update consumers were stuck rejoining, because the old coordinator was asked for ever.
/// Here it moves again and again while members are joining, and is found each time.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_coordinator_move_in_the_middle_of_a_rebalance_is_survived() {
    let cluster = cluster(3, 6);
    let slow = Member::join_with(&cluster, 2, config(), seconds(2));
    settled(seconds(1), &[&slow], 6).await;
    let second = Member::join(&cluster, 3);
    for _ in 0..5 {
        let now = cluster.coordinator(GROUP).unwrap();
        cluster.move_coordinator(GROUP, now % 3 + 1);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    settled(seconds(30), &[&slow, &second], 6).await;
    assert!(slow.heard.lock().unwrap().lost.is_empty());
    assert_clean(&cluster);
}

#[tokio::test(start_paused = true)]
pub(crate) async fn every_broker_restarts_one_after_the_other_and_nobody_is_rebalanced() {
    let cluster = cluster(3, 6);
    let first = Member::join(&cluster, 2);
    let second = Member::join(&cluster, 3);
    settled(seconds(10), &[&first, &second], 6).await;
    let generation = cluster.group(GROUP).unwrap().generation;
    for broker in cluster.brokers() {
        cluster.stop_broker(broker);
        tokio::time::sleep(seconds(6)).await;
        cluster.start_broker(broker);
        tokio::time::sleep(seconds(6)).await;
    }
    settled(seconds(10), &[&first, &second], 6).await;
    assert_eq!(cluster.group(GROUP).unwrap().generation, generation);
    assert!(first.heard.lock().unwrap().lost.is_empty() && second.heard.lock().unwrap().lost.is_empty());
    assert_clean(&cluster);
}

/// The only broker is away for a while, shorter than the session: the members wait and go on.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_short_outage_of_the_only_broker_loses_nothing() {
    let cluster = cluster(1, 4);
    let member = Member::join(&cluster, 2);
    settled(seconds(1), &[&member], 4).await;
    cluster.stop_broker(1);
    tokio::time::sleep(seconds(20)).await;
    cluster.start_broker(1);
    tokio::time::sleep(seconds(10)).await;
    member.commit(0, 5).await.unwrap();
    assert!(member.heard.lock().unwrap().lost.is_empty());
    assert_clean(&cluster);
}

/// Requests cut before or after their effect, one of each kind, while three members join.
#[tokio::test(start_paused = true)]
pub(crate) async fn cut_requests_are_made_again() {
    let apis = [
        ApiKey::FIND_COORDINATOR,
        ApiKey::JOIN_GROUP,
        ApiKey::SYNC_GROUP,
        ApiKey::OFFSET_FETCH,
        ApiKey::HEARTBEAT,
    ];
    let by_the_consumer_protocol =
        [ApiKey::FIND_COORDINATOR, ApiKey::CONSUMER_GROUP_HEARTBEAT, ApiKey::OFFSET_FETCH];
    let apis = if is_classic() { &apis[..] } else { &by_the_consumer_protocol };
    for &api in apis {
        for action in [Action::CutBefore, Action::CutAfter] {
            let cluster = cluster(2, 6);
            cluster.control().on(Match::api(api).after(1).times(2), action.clone());
            let members = [Member::join(&cluster, 2), Member::join(&cluster, 3), Member::join(&cluster, 4)];
            let all: Vec<&Member> = members.iter().collect();
            // A member whose first JoinGroup took effect unheard is waited for until its session ends.
            settled(2 * SESSION + seconds(60), &all, 6).await;
            assert!(
                members.iter().all(|member| member.heard.lock().unwrap().lost.is_empty()),
                "{} {action:?}",
                api.name()
            );
            assert_clean(&cluster);
        }
    }
}

/// The answer to a SyncGroup or JoinGroup is lost on a connection that stays open, while heartbeats go over another one:
/// they kept a member alive that waited for a minute, and the whole group waited for it. Here the first heartbeat that
/// tells of a newer rebalance ends that wait, or a third of the session does, and what comes next does not wait behind it.
#[tokio::test(start_paused = true)]
async fn a_rebalance_whose_answer_was_lost_is_not_waited_for() {
    for (api, within) in [(ApiKey::SYNC_GROUP, seconds(4)), (ApiKey::JOIN_GROUP, SESSION / 3 + seconds(5))] {
        let cluster = cluster(1, 6);
        let first = Member::join(&cluster, 2);
        settled(seconds(1), &[&first], 6).await;
        let rule = cluster.control().on(Match::api(api).client("client-2").times(1), Action::HangAfter);
        let second = Member::join(&cluster, 3);
        until(seconds(5), "lost answer", || cluster.control().hits(rule) > 0).await;
        let third = Member::join(&cluster, 4);
        settled(within, &[&first, &second, &third], 6).await;
        assert_clean(&cluster);
    }
}

/// A new member whose JoinGroup or SyncGroup was answered and the answer lost, on a connection that stays open, waited for
/// 65 s: it held nothing, so nothing ended its wait before a rebalance and its slack. Here it asks again after a third of
/// the session, over another connection, and is answered at once. A lost member id is in the way for a session.
#[tokio::test(start_paused = true)]
async fn a_new_member_asks_again_when_its_answer_was_lost() {
    let third = SESSION / 3;
    for (api, nth, due) in
        [(ApiKey::JOIN_GROUP, 1, SESSION), (ApiKey::JOIN_GROUP, 2, third), (ApiKey::SYNC_GROUP, 2, third)]
    {
        let cluster = cluster(1, 6);
        let first = Member::join(&cluster, 2);
        settled(seconds(1), &[&first], 6).await;
        let rule = cluster
            .control()
            .on(Match::api(api).client("client-3").after(nth - 1).times(1), Action::HangAfter);
        let second = Member::join(&cluster, 3);
        let took = settled(due + seconds(6), &[&first, &second], 6).await;
        assert!(took >= due, "{} {nth}: {took:?}, before it was due", api.name());
        assert_eq!(cluster.control().hits(rule), 1, "{} {nth}", api.name());
        assert!(first.heard.lock().unwrap().lost.is_empty());
        assert_clean(&cluster);
    }
}

/// A rebalance may take as long as its slowest member. Whoever waits for it asks again meanwhile, and that changes nothing:
/// one rebalance, one member, the same answer.
#[tokio::test(start_paused = true)]
async fn asking_again_does_not_disturb_a_long_rebalance() {
    let cluster = cluster(1, 6);
    let eager = GroupConfig { assignors: vec![Assignor::Range], ..config() };
    let drain = seconds(50);
    let slow = Member::join_with(&cluster, 2, eager.clone(), drain);
    settled(seconds(1), &[&slow], 6).await;
    let generation = cluster.group(GROUP).unwrap().generation;
    let new = Member::join_with(&cluster, 3, eager, Duration::ZERO);
    let took = settled(drain + seconds(5), &[&slow, &new], 6).await;
    assert!(took >= drain, "{took:?}");
    let asked = cluster.requests(ApiKey::JOIN_GROUP).into_iter().filter(|one| &*one.client_id == "client-3");
    assert_eq!(asked.count(), 4, "for its id, then at once, after 15 s and after 45 s");
    let group = cluster.group(GROUP).unwrap();
    assert_eq!((group.generation, group.members.len()), (generation + 1, 2));
    assert!(slow.heard.lock().unwrap().lost.is_empty());
    assert_clean(&cluster);
}

/// The leader's SyncGroup is swallowed, and its connection stays open: everybody waited a minute for what it had divided.
/// It waits for nobody, so it asks again after a session.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_division_did_not_arrive_is_not_waited_for() {
    let cluster = cluster(1, 6);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 6).await;
    let leaders = Match::api(ApiKey::SYNC_GROUP).client("client-2").times(1);
    let rule = cluster.control().on(leaders, Action::Hang);
    let second = Member::join(&cluster, 3);
    until(seconds(5), "a swallowed division", || cluster.control().hits(rule) > 0).await;
    settled(SESSION + seconds(10), &[&first, &second], 6).await;
    assert_clean(&cluster);
}

/// The old coordinator goes silent in the middle of a rebalance, and another one takes over: what was asked of the old one
/// is asked again of the new one, although nobody said that it moved.
#[tokio::test(start_paused = true)]
async fn what_a_silent_coordinator_holds_is_asked_of_the_next_one() {
    let cluster = cluster(2, 6);
    let first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 6).await;
    let ours = |api| Match::api(api).client("client-2").times(1);
    let rule = cluster.control().on(ours(ApiKey::SYNC_GROUP), Action::HangAfter);
    let second = Member::join(&cluster, 3);
    until(seconds(5), "lost answer", || cluster.control().hits(rule) > 0).await;
    cluster.control().on(ours(ApiKey::HEARTBEAT), Action::Hang);
    let old = cluster.coordinator(GROUP).unwrap();
    cluster.move_coordinator(GROUP, 3 - old);
    settled(SESSION, &[&first, &second], 6).await;
    assert_clean(&cluster);
}

/// Closing hung for ever when the brokers were down, a rebalance was running or the topic had been deleted.
/// Here leaving ends by its deadline, whatever they do.
#[tokio::test(start_paused = true)]
pub(crate) async fn leaving_ends_by_its_deadline_whatever_the_brokers_do() {
    for action in [Action::Hang, Action::CutBefore, Action::Error(code::NOT_COORDINATOR)] {
        let cluster = cluster(1, 2);
        let mut member = Member::join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        let farewell = if is_classic() { ApiKey::LEAVE_GROUP } else { heartbeat() };
        cluster.control().on(Match::api(farewell), action);
        let start = tokio::time::Instant::now();
        member.leave(seconds(3)).await;
        assert!(start.elapsed() <= seconds(3) + Duration::from_millis(1), "{:?}", start.elapsed());
    }
    {
        let cluster = cluster(1, 2);
        let mut member = Member::join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        assert!(cluster.delete_topic(TOPIC));
        let start = tokio::time::Instant::now();
        member.leave(seconds(3)).await;
        assert!(start.elapsed() <= seconds(3) + Duration::from_millis(1), "{:?}", start.elapsed());
    }
    // In the middle of a rebalance that waits for another member, and with nobody there at all.
    let cluster = cluster(1, 2);
    let mut first = Member::join(&cluster, 2);
    settled(seconds(1), &[&first], 2).await;
    cluster.control().on(Match::api(heartbeat()).client("client-2"), Action::Hang);
    let mut second = Member::join(&cluster, 3);
    tokio::time::sleep(seconds(1)).await;
    let start = tokio::time::Instant::now();
    second.leave(seconds(3)).await;
    assert!(
        start.elapsed() < seconds(1),
        "a pending JoinGroup does not hold the farewell up: {:?}",
        start.elapsed()
    );
    cluster.stop_broker(1);
    let start = tokio::time::Instant::now();
    first.leave(seconds(3)).await;
    assert!(start.elapsed() <= seconds(3) + Duration::from_millis(1));
}

/// Two members, many moments at which the coordinator forgets a member: it rejoins at once, not at the next heartbeat
/// after a timeout.
#[tokio::test(start_paused = true)]
pub(crate) async fn an_unknown_member_rejoins_at_once() {
    let other = if is_classic() { code::ILLEGAL_GENERATION } else { code::FENCED_MEMBER_EPOCH };
    for error in [code::UNKNOWN_MEMBER_ID, other] {
        let cluster = cluster(1, 2);
        let member = Member::join(&cluster, 2);
        settled(seconds(1), &[&member], 2).await;
        cluster.control().on(Match::api(heartbeat()).times(1), Action::Error(error));
        until(seconds(6), "lost", || member.heard.lock().unwrap().lost.len() == 1).await;
        let took = settled(SESSION + seconds(20), &[&member], 2).await;
        if error == other {
            assert!(took < seconds(1), "{took:?}");
        }
    }
}
