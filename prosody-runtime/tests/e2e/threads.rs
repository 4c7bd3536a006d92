//! Real threads and real time: what blocking user code may cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_base::Doors;
use prosody_runtime::{Client, Context, Handler, HandlerError, Message};
use prosody_testkit::broker::ApiKey;
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::PipeConnector;

struct Blocks(Arc<AtomicUsize>);

impl Handler for Blocks {
    async fn on_message(&self, _: Context, _: Message) -> Result<(), HandlerError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2_500));
        Ok(())
    }
}

/// Elsewhere: a handler that blocks starves heartbeats, and the group takes the partitions away under its feet.
#[test]
fn blocking_every_worker_for_two_sessions_costs_no_membership() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let doors = Doors::process().unwrap();
        let config = ClusterConfig {
            consumer_session_timeout: Duration::from_secs(1),
            consumer_heartbeat_interval: Duration::from_millis(300),
            ..ClusterConfig::default()
        };
        let cluster = Cluster::start(config, doors.clone());
        cluster.create_topic("t", 2).unwrap();
        let client = Client::builder()
            .bootstrap_servers(cluster.bootstrap().split(','))
            .group_id("g")
            .source_system("tests")
            .subscribed_topics(["t"])
            .transport(Arc::new(PipeConnector(cluster.network())), doors.clone())
            .build()
            .unwrap();
        let started = Arc::new(AtomicUsize::new(0));
        for key in 0..16 {
            client.send("t", &format!("key-{key}"), b"{}").await.unwrap();
        }
        client.subscribe(Blocks(Arc::clone(&started))).await.unwrap();
        let threads = doors.spawner.work_threads();
        while started.load(Ordering::Relaxed) < threads {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(2_300)).await;
        assert_eq!(started.load(Ordering::Relaxed), threads, "every worker thread is blocked");
        assert_eq!(client.insight().lost_partitions, 0);
        let group = cluster.group("g").unwrap();
        assert_eq!((group.state, group.members.len(), group.generation), ("Stable", 1, 1));
        assert!(cluster.requests(ApiKey::CONSUMER_GROUP_HEARTBEAT).len() >= 4);
        while client.insight().handled < 16 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.unsubscribe().await.unwrap();
        let committed: i64 = cluster.group("g").unwrap().offsets.values().map(|at| at.offset).sum();
        assert_eq!(committed, 16);
        assert_eq!(client.insight().lost_partitions, 0);
    });
}
