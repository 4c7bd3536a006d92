//! Subscriptions by pattern: matched by the members of a classic group, and by the coordinator of a consumer group.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::TopicPartition;
use prosody_wire::group::{Group, GroupConfig, GroupEvent, GroupProtocol, TopicPattern};

use crate::support::{
    GROUP, assert_clean, by_the_consumer_protocol, client, config, count, is_classic, seconds, until,
};

/// The default of `Limits::metadata_age`: within this a member of a classic group hears of a new topic.
const METADATA_AGE: Duration = Duration::from_secs(300);
const ORDERS: [(&str, i32); 2] = [("orders-eu", 2), ("orders-us", 1)];

struct Reader {
    owned: Arc<Mutex<BTreeSet<TopicPartition>>>,
    revocations: Arc<Mutex<usize>>,
    failed: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Reader {
    fn join(cluster: &Cluster, seed: u64, config: GroupConfig) -> Reader {
        let (client, _) = client(cluster, seed);
        let mut group = Group::join(&client, config);
        let (owned, revocations, failed): (Arc<Mutex<BTreeSet<TopicPartition>>>, Arc<Mutex<usize>>, _) =
            (Arc::default(), Arc::default(), Arc::<Mutex<Vec<String>>>::default());
        let heard = (Arc::clone(&owned), Arc::clone(&revocations), Arc::clone(&failed));
        let task = tokio::spawn(async move {
            let _client = client;
            loop {
                match group.event().await {
                    GroupEvent::Assigned { partitions, .. } => {
                        owned.lock().unwrap().extend(partitions.into_iter().map(|one| one.tp));
                    }
                    GroupEvent::Revoke { partitions, done, .. } => {
                        *revocations.lock().unwrap() += partitions.len();
                        owned.lock().unwrap().retain(|one| !partitions.contains(one));
                        done.done();
                    }
                    GroupEvent::Lost { partitions, why } => {
                        failed.lock().unwrap().push(why.to_string());
                        owned.lock().unwrap().retain(|one| !partitions.contains(one));
                    }
                    GroupEvent::Failed(why) => failed.lock().unwrap().push(why.to_string()),
                }
            }
        });
        let (owned, revocations, failed) = heard;
        Reader { owned, revocations, failed, task }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn cluster(topics: &[(&str, i32)]) -> Cluster {
    let cluster = Cluster::start(ClusterConfig::default(), Doors::simulated(1));
    create(&cluster, topics);
    cluster
}

fn create(cluster: &Cluster, topics: &[(&str, i32)]) {
    for (topic, partitions) in topics {
        cluster.create_topic(topic, *partitions).unwrap();
    }
}

fn by_patterns(patterns: &[&str], names: &[&str]) -> GroupConfig {
    GroupConfig {
        topics: names.iter().map(|name| (*name).into()).collect(),
        patterns: patterns.iter().map(|text| TopicPattern::new(text).unwrap()).collect(),
        ..config()
    }
}

/// Waits until the readers own exactly the partitions of these topics, each once.
async fn settled(within: Duration, readers: &[&Reader], topics: &[(&str, i32)]) -> Duration {
    let mut all = Vec::new();
    for (topic, count) in topics {
        all.extend((0..*count).map(|partition| TopicPartition::new(*topic, partition)));
    }
    all.sort_unstable();
    until(within, &format!("{all:?} are shared"), || {
        let owned = |reader: &&Reader| reader.owned.lock().unwrap().clone();
        let mut now: Vec<TopicPartition> = readers.iter().flat_map(owned).collect();
        now.sort_unstable();
        now == all
    })
    .await
}

fn assert_untroubled(readers: &[&Reader]) {
    for reader in readers {
        assert_eq!(*reader.failed.lock().unwrap(), Vec::<String>::new());
    }
}

/// Topics that appear are read and topics that are deleted leave, in two members, with one rebalance for each change.
#[tokio::test(start_paused = true)]
async fn topics_that_match_come_and_go() {
    let cluster =
        cluster(&[ORDERS[0], ORDERS[1], ("other", 3), ("orders", 1), ("my-orders-eu", 1), ("plain", 1)]);
    let wanted = || by_patterns(&["^orders-.*", "^bills?"], &["plain"]);
    let (first, second) = (Reader::join(&cluster, 2, wanted()), Reader::join(&cluster, 3, wanted()));
    let both = [&first, &second];
    settled(seconds(15), &both, &[ORDERS[0], ORDERS[1], ("plain", 1)]).await;
    create(&cluster, &[("bill", 2), ("billss", 1)]);
    settled(METADATA_AGE + seconds(30), &both, &[ORDERS[0], ORDERS[1], ("plain", 1), ("bill", 2)]).await;
    // Both hear of it at times of their own; a member looks before it joins, and so one change is one rebalance.
    tokio::time::sleep(METADATA_AGE * 2).await;
    let joins = count(&cluster, ApiKey::JOIN_GROUP);
    create(&cluster, &[("orders-jp", 2)]);
    let six = [ORDERS[0], ORDERS[1], ("plain", 1), ("bill", 2), ("orders-jp", 2)];
    settled(METADATA_AGE + seconds(30), &both, &six).await;
    tokio::time::sleep(METADATA_AGE * 2).await;
    let joins = count(&cluster, ApiKey::JOIN_GROUP) - joins;
    assert!(
        joins <= if is_classic() { 4 } else { 0 },
        "{joins} JoinGroups: a second round if partitions move"
    );
    cluster.delete_topic("orders-eu");
    let five = [ORDERS[1], ("plain", 1), ("bill", 2), ("orders-jp", 2)];
    settled(METADATA_AGE + seconds(30), &both, &five).await;
    assert_untroubled(&both);
    assert_clean(&cluster);
}

/// The coordinator of a consumer group matches: a new topic is read as soon as it sees it, not when a client next asks
/// for metadata, and no client ever asks for all topics.
#[tokio::test(start_paused = true)]
async fn the_coordinator_matches_where_it_can() {
    let cluster = cluster(&[ORDERS[0], ORDERS[1], ("other", 3)]);
    let config = GroupConfig { protocol: GroupProtocol::Auto, ..by_patterns(&["^orders-(eu|us|jp)"], &[]) };
    let member = Reader::join(&cluster, 2, config);
    settled(seconds(1), &[&member], &ORDERS).await;
    assert_eq!(cluster.group(GROUP).unwrap().protocol, "consumer");
    // Nothing that is under way will tell of it.
    tokio::time::sleep(seconds(20)).await;
    create(&cluster, &[("orders-jp", 2)]);
    let took = settled(seconds(10), &[&member], &[ORDERS[0], ORDERS[1], ("orders-jp", 2)]).await;
    assert!(took < seconds(8), "{took:?}");
    // Made again it is another topic.
    cluster.recreate_topic("orders-us").unwrap();
    until(seconds(20), "given up", || *member.revocations.lock().unwrap() == 1).await;
    settled(seconds(20), &[&member], &[ORDERS[0], ORDERS[1], ("orders-jp", 2)]).await;
    assert_untroubled(&[&member]);
    assert_clean(&cluster);
}

/// A coordinator that cannot read a pattern as we do, and a pattern that would make it assign its own topics: members
/// then match themselves, by the same protocol.
#[tokio::test(start_paused = true)]
async fn a_pattern_that_the_coordinator_cannot_have_is_matched_here() {
    for refused in [true, false] {
        let cluster = cluster(&[ORDERS[0], ORDERS[1], ("__consumer_offsets", 3)]);
        if refused {
            cluster.control().on(
                Match::api(ApiKey::CONSUMER_GROUP_HEARTBEAT).times(1),
                Action::Error(code::INVALID_REGULAR_EXPRESSION),
            );
        }
        let pattern = if refused { "^orders-.*" } else { "^.*" };
        let config = GroupConfig { protocol: GroupProtocol::Consumer, ..by_patterns(&[pattern], &[]) };
        let member = Reader::join(&cluster, 2, config);
        settled(seconds(15), &[&member], &ORDERS).await;
        create(&cluster, &[("orders-jp", 1)]);
        settled(METADATA_AGE + seconds(30), &[&member], &[ORDERS[0], ORDERS[1], ("orders-jp", 1)]).await;
        cluster.delete_topic("orders-eu");
        settled(METADATA_AGE + seconds(30), &[&member], &[ORDERS[1], ("orders-jp", 1)]).await;
        assert_eq!(cluster.group(GROUP).unwrap().protocol, "consumer");
        assert_untroubled(&[&member]);
        assert_clean(&cluster);
    }
}

/// A pattern that matches nothing yet is no error: the member is in, and reads when there is something.
#[tokio::test(start_paused = true)]
async fn a_pattern_that_matches_nothing_waits() {
    let cluster = cluster(&[("other", 1)]);
    let member = Reader::join(&cluster, 2, by_patterns(&["^later"], &[]));
    until(seconds(5), "it is a member", || {
        cluster.group(GROUP).is_some_and(|group| group.state == "Stable" && group.members.len() == 1)
    })
    .await;
    tokio::time::sleep(METADATA_AGE / 2).await;
    create(&cluster, &[("later", 2)]);
    settled(METADATA_AGE + seconds(30), &[&member], &[("later", 2)]).await;
    assert_untroubled(&[&member]);
    assert_clean(&cluster);
}

#[test]
fn by_consumer_protocol_topics_that_match_come_and_go() {
    by_the_consumer_protocol(topics_that_match_come_and_go);
}

#[test]
fn by_consumer_protocol_a_pattern_that_matches_nothing_waits() {
    by_the_consumer_protocol(a_pattern_that_matches_nothing_waits);
}
