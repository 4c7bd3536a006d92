//! A partition changes hands while handlers end out of order.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Doors};
use prosody_runtime::{Context, Handler, HandlerError};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::Limits;
use prosody_wire::group::{CommitOffset, Group, GroupConfig, GroupEvent};
use prosody_wire::{ClientConfig, PipeConnector, TopicPartition};

use crate::world::{Call, Diary, Said, Script, World, in_order, quick, send_numbered};

/// A handler whose times differ from offset to offset, up to two seconds.
fn uneven(diary: &Diary, clock: &Clock) -> impl Handler {
    let clock = clock.clone();
    Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let (clock, wait) = (clock.clone(), call.offset * 7_919 % 40 * 50);
            async move {
                clock.sleep(Duration::from_millis(wait.unsigned_abs())).await;
                Ok(())
            }
        },
    }
}

/// A handler that is done at once, but for some offsets only when it is asked to cancel, and then without success.
fn stuck_at(diary: &Diary, stuck: &'static [i64]) -> impl Handler {
    Script {
        diary: diary.clone(),
        play: move |context: Context, call: Call| async move {
            if stuck.contains(&call.offset) {
                context.cancelled().await;
                return Err(HandlerError::transient("cancelled"));
            }
            Ok(())
        },
    }
}

fn offsets(diary: &Diary) -> Vec<i64> {
    let mut offsets: Vec<i64> = diary.started().iter().map(|call| call.offset).collect();
    offsets.sort_unstable();
    offsets
}

#[tokio::test(start_paused = true)]
async fn members_come_and_go_while_handlers_end_out_of_order_and_nothing_is_handled_twice() {
    let world = World::new(&[("t", 4)]);
    let (first, second, third, diary) = (world.client(), world.client(), world.client(), Diary::default());
    send_numbered(&first, 800, 200).await;
    first.subscribe(uneven(&diary, &world.clock)).await.unwrap();
    world.until("the first is at work", || diary.ended().len() > 100).await;
    second.subscribe(uneven(&diary, &world.clock)).await.unwrap();
    world.until("they share", || second.assigned_partitions() == 2).await;
    world.until("the second is at work", || diary.ended().len() > 250).await;
    third.subscribe(uneven(&diary, &world.clock)).await.unwrap();
    first.unsubscribe().await.unwrap();
    world.until("more", || diary.ended().len() > 450).await;
    second.unsubscribe().await.unwrap();
    world.until("all handled", || diary.ended().len() >= 800).await;
    world.until("all committed", || world.committed_sum() == 800).await;
    third.unsubscribe().await.unwrap();
    assert_eq!(diary.started().len(), 800, "started once each");
    assert!(diary.in_order());
    assert_eq!(diary.overlaps(), 0);
    let skipped: u64 = [&second, &third].iter().map(|client| client.insight().skipped_finished).sum();
    assert!(skipped > 0, "they ended out of order");
    for partition in 0..4 {
        assert_eq!(world.metadata(partition), "", "nothing is finished above the watermark");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_nothing_comes_again_that_had_ended_one_commit_interval_before() {
    let world = World::new(&[("t", 4)]);
    let (process, doors) = world.process();
    let short = |builder: prosody_runtime::ClientBuilder| {
        builder.configure(|o| o.session_timeout = Some(Duration::from_secs(6))).build().unwrap()
    };
    let (first, second, diary) = (short(process), short(world.builder()), Diary::default());
    send_numbered(&world.client(), 800, 200).await;
    first.subscribe(uneven(&diary, &world.clock)).await.unwrap();
    second.subscribe(uneven(&diary, &world.clock)).await.unwrap();
    world.until("both are at work", || second.assigned_partitions() == 2 && diary.ended().len() > 200).await;
    let known: BTreeSet<(i32, i64)> =
        diary.ended().iter().map(|call| (call.partition, call.offset)).collect();
    world.clock.sleep(Duration::from_millis(1_100)).await;
    assert!(diary.started().len() > diary.ended().len(), "handlers run");
    let committed = world.committed_sum();
    let before = diary.started().len();
    doors.spawner.kill();
    drop(first);

    world.until("all committed", || world.committed_sum() == 800).await;
    second.unsubscribe().await.unwrap();
    let mut times: BTreeMap<(i32, i64), usize> = BTreeMap::new();
    diary.started().iter().for_each(|call| *times.entry((call.partition, call.offset)).or_default() += 1);
    let repeated: BTreeSet<_> = times.iter().filter(|(_, times)| **times > 1).map(|(at, _)| *at).collect();
    assert_eq!(repeated.intersection(&known).count(), 0, "{repeated:?}");
    assert!(!repeated.is_empty() && times.len() == 800);
    // Several events of one key may come again, in order.
    let started = diary.started();
    assert!(in_order(&started[..before]) && in_order(&started[before..]));
    assert!(known.len() as i64 > committed, "more was finished than the watermarks say");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_wants_shorter_metadata_gets_the_watermark_alone() {
    let limits = Limits { offset_metadata_bytes: 16, ..Limits::default() };
    let world = World::with(ClusterConfig { limits, ..ClusterConfig::default() }, &[("t", 1)]);
    let (client, first, second) = (world.client(), Diary::default(), Diary::default());
    send_numbered(&client, 10, 10).await;
    client.subscribe(stuck_at(&first, &[5])).await.unwrap();
    world.until("the others", || first.ended().len() == 9).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((world.committed(0), world.metadata(0)), (Some(5), String::new()));
    assert_eq!(client.insight().failed_commits, 0);

    client.subscribe(quick(&second)).await.unwrap();
    world.until("the rest", || second.ended().len() == 5).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(offsets(&second), [5, 6, 7, 8, 9], "without a map they come again");
    assert_eq!(world.committed(0), Some(10));
}

/// Elsewhere: the consumer died on assignment, again and again, because of a text that another framework, a tool or a newer
/// version had written.
#[tokio::test(start_paused = true)]
async fn metadata_of_another_program_a_newer_version_or_another_topic_is_ignored_with_one_warning() {
    let other = "0".repeat(31) + "1";
    let cases = [
        ("{\"acks\":[4,5]}".to_owned(), "another program wrote it"),
        ("prosody:9:anything".to_owned(), "it has version 9"),
        (format!("prosody:1:{other}:3:9:BJ"), "it belongs to a topic with another id"),
        (format!("prosody:1:{other}:3:9:B"), "it is damaged"),
    ];
    for (metadata, why) in cases {
        let (said, _listening) = Said::listen();
        let world = World::new(&[("t", 1)]);
        let (client, diary) = (world.client(), Diary::default());
        send_numbered(&client, 10, 10).await;
        commit_as_another(&world, 3, &metadata).await;
        client.subscribe(quick(&diary)).await.unwrap();
        world.until("all committed", || world.committed(0) == Some(10)).await;
        client.unsubscribe().await.unwrap();
        assert_eq!(offsets(&diary), [3, 4, 5, 6, 7, 8, 9], "{metadata}");
        let said = said.text();
        assert_eq!(said.matches("metadata of a committed offset is ignored").count(), 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// Commits for partition 0 of topic `t` as a member that is not ours.
pub async fn commit_as_another(world: &World, offset: i64, metadata: &str) {
    let connector = Arc::new(PipeConnector(world.cluster.network()));
    let seeds = world.cluster.bootstrap();
    let doors = Doors::simulated(99);
    let wire = prosody_wire::Client::new(ClientConfig::new(seeds.split(',')), connector, doors).unwrap();
    let mut group = Group::join(&wire, GroupConfig::new("g", ["t".into()]));
    let epoch = loop {
        if let GroupEvent::Assigned { epoch, .. } = group.event().await {
            break epoch;
        }
    };
    let tp = TopicPartition::new("t", 0);
    let one = CommitOffset { tp, offset, leader_epoch: None, metadata: metadata.to_owned() };
    group.committer().commit(epoch, vec![one]).await.unwrap();
    group.leave(world.clock.now() + Duration::from_secs(5)).await;
}
