//! Which protocol do members and their group agree on?

use std::time::Duration;

use prosody_testkit::broker::{Action, ApiKey, Match, code};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::group::{GroupConfig, GroupProtocol};

use crate::support::{
    GROUP, Member, TOPIC, assert_clean, cluster, cluster_with, count, seconds, settled, until,
};

fn speaking(protocol: GroupProtocol) -> GroupConfig {
    GroupConfig { protocol, ..GroupConfig::new(GROUP, [TOPIC.into()]) }
}

fn join(cluster: &Cluster, seed: u64, protocol: GroupProtocol) -> Member {
    Member::join_with(cluster, seed, speaking(protocol), Duration::ZERO)
}

fn spoken(cluster: &Cluster) -> &'static str {
    cluster.group(GROUP).unwrap().protocol
}

/// Old brokers do not know the protocol, or know only its first version, or have it switched off: members are classic
/// ones, without a wait.
#[tokio::test(start_paused = true)]
async fn auto_is_classic_where_the_broker_does_not_serve_the_consumer_protocol() {
    let off = ClusterConfig { consumer_groups: false, ..ClusterConfig::default() };
    let old = |release| ClusterConfig::default().as_version(release);
    for config in [old("2.1"), old("2.8"), old("3.9"), off] {
        let cluster = cluster_with(config, 4);
        let member = join(&cluster, 2, GroupProtocol::Auto);
        let took = settled(seconds(1), &[&member], 4).await;
        assert!(took <= Duration::from_millis(3), "{took:?}");
        assert_eq!(spoken(&cluster), "classic");
        assert!(count(&cluster, ApiKey::CONSUMER_GROUP_HEARTBEAT) <= 1);
        assert_eq!(count(&cluster, ApiKey::FIND_COORDINATOR), 1);
        assert!(member.heard.lock().unwrap().failed.is_empty());
        assert_clean(&cluster);
    }
}

#[tokio::test(start_paused = true)]
async fn auto_is_the_consumer_protocol_where_it_is_served() {
    let cluster = cluster(1, 4);
    let first = join(&cluster, 2, GroupProtocol::Auto);
    let second = join(&cluster, 3, GroupProtocol::Auto);
    settled(seconds(10), &[&first, &second], 4).await;
    assert_eq!((spoken(&cluster), count(&cluster, ApiKey::JOIN_GROUP)), ("consumer", 0));
    assert_clean(&cluster);
}

/// Members of an older version are in the group: the newcomer joins them. When the last of them is gone and newer ones
/// have the group, it changes over.
#[tokio::test(start_paused = true)]
async fn auto_joins_a_classic_group_and_moves_on_with_it() {
    let cluster = cluster(1, 4);
    let mut old = join(&cluster, 2, GroupProtocol::Classic);
    settled(seconds(1), &[&old], 4).await;
    let mut newer = join(&cluster, 3, GroupProtocol::Auto);
    settled(seconds(10), &[&old, &newer], 4).await;
    assert_eq!(spoken(&cluster), "classic");
    old.leave(seconds(1)).await;
    settled(seconds(10), &[&newer], 4).await;
    let next = join(&cluster, 4, GroupProtocol::Auto);
    settled(seconds(10), &[&newer, &next], 4).await;
    assert_eq!(spoken(&cluster), "classic", "as long as one is in");
    // It loses its membership, and before it is back the group is taken by one of the consumer protocol: it follows.
    let third = join(&cluster, 5, GroupProtocol::Consumer);
    newer.leave(seconds(1)).await;
    cluster.control().on(Match::api(ApiKey::JOIN_GROUP).client("client-4"), Action::Delay(seconds(8)));
    assert_eq!(cluster.evict(GROUP, "client-4"), 1);
    settled(seconds(60), &[&next, &third], 4).await;
    assert_eq!(spoken(&cluster), "consumer");
    assert_clean(&cluster);
}

/// Demanded, and not to be had: the member says so, with what the broker offers, and does not speak the other protocol.
#[tokio::test(start_paused = true)]
async fn a_demanded_protocol_that_is_not_served_is_an_error_that_says_so() {
    let off = ClusterConfig { consumer_groups: false, ..ClusterConfig::default() };
    for (config, part) in
        [(ClusterConfig::default().as_version("3.9"), "ConsumerGroupHeartbeat"), (off, "UNSUPPORTED_VERSION")]
    {
        let cluster = cluster_with(config, 2);
        let member = join(&cluster, 2, GroupProtocol::Consumer);
        until(seconds(1), "told", || !member.heard.lock().unwrap().failed.is_empty()).await;
        let why = member.heard.lock().unwrap().failed[0].to_string();
        assert!(why.contains("KIP-848") && why.contains(part) && why.contains(GROUP), "{why}");
        tokio::time::sleep(seconds(30)).await;
        assert_eq!(count(&cluster, ApiKey::JOIN_GROUP), 0);
    }
    // A group of classic members refuses too.
    let cluster = cluster(1, 2);
    let old = join(&cluster, 2, GroupProtocol::Classic);
    settled(seconds(1), &[&old], 2).await;
    let member = join(&cluster, 3, GroupProtocol::Consumer);
    until(seconds(1), "told", || !member.heard.lock().unwrap().failed.is_empty()).await;
    let why = member.heard.lock().unwrap().failed[0].clone();
    assert_eq!(why.code().map(|one| one.0), Some(code::GROUP_ID_NOT_FOUND), "{why}");
    assert_clean(&cluster);
}
