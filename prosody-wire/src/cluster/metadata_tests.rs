//! What is believed of answers that contradict each other?

use super::metadata::Metadata;
use crate::proto::ErrorCode;
use crate::proto::messages::metadata_response::MetadataResponseTopic;
use crate::testing::{metadata, topic};
use crate::types::BrokerId;

const LIMIT: usize = 1_024;

fn merged(known: &Metadata, topics: Vec<MetadataResponseTopic>) -> Metadata {
    known.merge(&metadata(&[(1, "b1", 1), (2, "b2", 1)], topics), LIMIT).expect("within the limits")
}

/// Leaders and epochs of topic `t`.
fn leaders(known: &Metadata) -> Vec<(Option<i32>, i32)> {
    let rows = known.topic("t").expect("known").partitions.iter();
    rows.map(|row| (row.leader.map(|id| id.0), row.leader_epoch)).collect()
}

/// A poll hung for good: a broker that lagged behind answered with an older leader, and it was believed.
/// Here an older epoch is ignored as long as the topic is the same one.
#[test]
fn leader_epochs_never_go_back_for_one_topic_id() {
    let known = merged(&Metadata::default(), vec![topic("t", 7, &[(1, 5), (2, 3)])]);
    let stale = merged(&known, vec![topic("t", 7, &[(2, 4), (1, 4)])]);
    assert_eq!(
        leaders(&stale),
        [(Some(1), 5), (Some(1), 4)],
        "the older row is ignored, the newer one taken"
    );
    let election = merged(&stale, vec![topic("t", 7, &[(-1, 6), (1, 4)])]);
    assert_eq!(leaders(&election)[0], (None, 6), "a leader of −1 is no leader");
    let old_leader = merged(&election, vec![topic("t", 7, &[(1, 5), (1, 4)])]);
    assert_eq!(leaders(&old_leader)[0], (None, 6));
    let shrunk = merged(&old_leader, vec![topic("t", 7, &[(1, 6)])]);
    assert_eq!(leaders(&shrunk), [(Some(1), 6), (Some(1), 4)], "a topic never loses partitions");
}

#[test]
fn a_topic_with_another_id_starts_clean() {
    let known = merged(&Metadata::default(), vec![topic("t", 7, &[(1, 50), (1, 50), (1, 50)])]);
    let recreated = merged(&known, vec![topic("t", 8, &[(2, 0)])]);
    assert_eq!(leaders(&recreated), [(Some(2), 0)]);
}

#[test]
fn a_topic_reported_missing_by_a_stale_broker_keeps_its_epochs() {
    let known = merged(&Metadata::default(), vec![topic("t", 7, &[(1, 5)])]);
    let missing = |known: &Metadata| merged(known, vec![topic("t", 0, &[]).with_error_code(3)]);
    let gone = missing(&known);
    assert!(gone.topic("t").is_none());
    assert_eq!(gone.failed.get("t"), Some(&ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    let back = merged(&gone, vec![topic("t", 7, &[(2, 4)])]);
    assert_eq!(leaders(&back), [(Some(1), 5)]);
    assert!(back.failed.is_empty());
    assert_eq!(leaders(&merged(&gone, vec![topic("t", 8, &[(2, 0)])])), [(Some(2), 0)]);
    // Without ids (before Kafka 2.8) nothing tells the two apart; a topic that came back may be a new one.
    let known = merged(&Metadata::default(), vec![topic("t", 0, &[(1, 5)])]);
    assert_eq!(leaders(&merged(&missing(&known), vec![topic("t", 0, &[(2, 0)])])), [(Some(2), 0)]);
}

#[test]
fn gaps_absurd_ports_and_too_many_brokers_are_not_believed() {
    let mut odd = topic("t", 7, &[(1, 0), (1, 0), (1, 0)]);
    odd.partitions[1].partition_index = 9;
    odd.partitions[2].partition_index = -4;
    let known = Metadata::default().merge(&metadata(&[(1, "b1", 70_000), (-1, "b2", 1)], vec![odd]), LIMIT);
    let known = known.expect("within the limits");
    assert!(known.brokers.is_empty());
    assert!(known.topic("t").is_none(), "−4 comes before 0: there is no run of partitions from 0 on");
    assert_eq!(known.failed.get("t"), Some(&ErrorCode::LEADER_NOT_AVAILABLE), "so it is asked for again");
    let crowd: Vec<(i32, &str, i32)> = (0..5).map(|id| (id, "b", 1)).collect();
    assert!(Metadata::default().merge(&metadata(&crowd, vec![]), 4).is_err());
}

#[test]
fn hints_are_taken_only_when_they_are_news_about_known_brokers() {
    let known = merged(&Metadata::default(), vec![topic("t", 7, &[(1, 5)])]);
    let hinted = known.with_leader("t", 0, BrokerId(2), 6).expect("news");
    assert_eq!(leaders(&hinted), [(Some(2), 6)]);
    assert!(known.with_leader("t", 0, BrokerId(2), 5).is_none());
    assert!(known.with_leader("t", 0, BrokerId(99), 6).is_none());
    assert!(known.with_leader("t", 1, BrokerId(2), 6).is_none());
}
