//! Building, subscribing, sending; what is wrong and what is missing.

use std::time::Duration;

use prosody_runtime::{ConsumerState, ErrorKind, GroupProtocol};
use prosody_testkit::ClusterConfig;

use crate::world::{Diary, World, quick, send_numbered};

#[tokio::test(start_paused = true)]
async fn a_client_goes_from_configured_to_running_and_back_as_often_as_one_likes() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    for round in 1..=3 {
        assert_eq!(client.state(), ConsumerState::Configured);
        client.subscribe(quick(&diary)).await.unwrap();
        assert_eq!(client.state(), ConsumerState::Running);
        let twice = client.subscribe(quick(&diary)).await.unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadySubscribed);
        send_numbered(&client, 10, 3).await;
        world.until("handled", || diary.ended().len() == round * 10).await;
        assert_eq!((client.assigned_partitions(), client.is_stalled()), (1, false));
        client.unsubscribe().await.unwrap();
        client.unsubscribe().await.unwrap();
        assert_eq!(client.assigned_partitions(), 0);
    }
    client.close().await.unwrap();
    assert_eq!(client.subscribe(quick(&diary)).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.send("t", "k", b"{}").await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_producer_needs_no_group_but_a_name() {
    let world = World::new(&[("t", 1)]);
    let producer = world.builder().configure(|o| {
        o.group_id = None;
        o.subscribed_topics = None;
    });
    let nameless = producer.clone().configure(|o| o.source_system = None).build().unwrap();
    let producer = producer.build().unwrap();
    assert_eq!(producer.state(), ConsumerState::Unconfigured);
    assert_eq!(producer.send("t", "k", b"{}").await.unwrap().offset, 0);
    let refused = producer.subscribe(quick(&Diary::default())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unconfigured);
    assert!(refused.to_string().contains("PROSODY_GROUP_ID"), "{refused}");
    let refused = nameless.send("t", "k", b"{}").await.unwrap_err();
    assert!(refused.to_string().contains("PROSODY_SOURCE_SYSTEM"), "{refused}");
}

/// Topics by pattern, beside one by name: what is there, and what comes later.
#[tokio::test(start_paused = true)]
async fn a_pattern_takes_in_topics_that_come_later() {
    for protocol in [GroupProtocol::Auto, GroupProtocol::Classic] {
        let world = World::new(&[("t", 1), ("orders-eu", 2), ("other", 1)]);
        let builder = world.builder().subscribed_topics(["t", "^orders-.*", "^none-yet"]);
        let client = builder.configure(|o| o.group_protocol = Some(protocol)).build().unwrap();
        let diary = Diary::default();
        assert_eq!(client.state(), ConsumerState::Configured);
        client.subscribe(quick(&diary)).await.unwrap();
        for topic in ["t", "orders-eu", "other"] {
            client.send(topic, "k", b"{}").await.unwrap();
        }
        world.until("what is there is handled", || diary.ended().len() == 2).await;
        world.cluster.create_topic("orders-us", 1).unwrap();
        client.send("orders-us", "k", b"{}").await.unwrap();
        world.until_within(Duration::from_secs(330), "what is new", || diary.ended().len() == 3).await;
        assert_eq!(client.assigned_partitions(), 4);
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_missing_topic_is_named_at_once() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().subscribed_topics(["t", "missing-a", "missing-b"]).build().unwrap();
    let start = world.clock.now();
    let refused = client.subscribe(quick(&Diary::default())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::MissingTopics);
    assert_eq!(refused.topics(), ["missing-a", "missing-b"]);
    assert!(world.clock.now() - start < Duration::from_secs(2), "a definite answer is not waited for");
    assert_eq!(client.state(), ConsumerState::Configured);
    for topic in ["missing-a", "missing-b"] {
        world.cluster.create_topic(topic, 1).unwrap();
    }
    client.subscribe(quick(&Diary::default())).await.unwrap();
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_reached_fails_calls_after_their_deadline_with_what_was_tried() {
    let world = World::new(&[("t", 1)]);
    world.cluster.stop_broker(1);
    let client = world.client();
    let start = world.clock.now();
    let refused = client.subscribe(quick(&Diary::default())).await.unwrap_err();
    let took = world.clock.now() - start;
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    assert!(refused.is_retriable() && refused.to_string().contains("b1:9092"), "{refused}");
    assert!(took >= Duration::from_secs(29) && took <= Duration::from_secs(31), "{took:?}");

    let start = world.clock.now();
    let failed = client.send("t", "k", b"{}").await.unwrap_err();
    let took = world.clock.now() - start;
    assert!(took >= Duration::from_secs(29) && took <= Duration::from_secs(31), "{took:?}");
    assert!(failed.to_string().contains("b1:9092"), "{failed}");
    assert!(!failed.may_have_been_written());
}

/// A host that stopped while its cluster was away unsubscribed "in 2 ms"; the subscribe went on, and once the brokers were
/// back the client was a member that held partitions, ran nothing and, in .NET, could not be unsubscribed any more.
#[tokio::test(start_paused = true)]
async fn unsubscribing_ends_a_subscribe_that_is_under_way() {
    let world = World::new(&[("t", 1)]);
    world.cluster.stop_broker(1);
    for close in [false, true] {
        let (client, diary) = (world.client(), Diary::default());
        let start = world.clock.now();
        let stopping = async {
            world.clock.sleep(Duration::from_secs(5)).await;
            if close { client.close().await } else { client.unsubscribe().await }
        };
        let (refused, second, stopped) =
            tokio::join!(client.subscribe(quick(&diary)), client.subscribe(quick(&diary)), stopping);
        stopped.unwrap();
        let kind = if close { ErrorKind::Closed } else { ErrorKind::Unsubscribed };
        assert_eq!((refused.unwrap_err().kind(), second.unwrap_err().kind()), (kind, kind));
        assert_eq!(world.clock.now() - start, Duration::from_secs(5), "both ended with the unsubscribe");
    }
    let (client, diary) = (world.client(), Diary::default());
    world.cluster.start_broker(1);
    world.clock.sleep(Duration::from_secs(60)).await;
    assert!(world.cluster.group("g").is_none(), "nobody joined");
    client.subscribe(quick(&diary)).await.unwrap();
    client.unsubscribe().await.unwrap();
}

/// As above with a cluster that answers, at whatever point the subscribe is: it never outlives the unsubscribe.
#[tokio::test(start_paused = true)]
async fn no_subscription_is_left_wherever_an_unsubscribe_meets_a_subscribe() {
    let world = World::new(&[("t", 1)]);
    for polls in 0..40 {
        let (client, diary) = (world.client(), Diary::default());
        let unsubscribing = async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            client.unsubscribe().await.unwrap();
        };
        // The first of the two is polled first, so it has begun; it may succeed before it is undone.
        let (subscribed, ()) = tokio::join!(client.subscribe(quick(&diary)), unsubscribing);
        if let Err(refused) = subscribed {
            assert_eq!(refused.kind(), ErrorKind::Unsubscribed, "{refused}");
        }
        assert_eq!(client.state(), ConsumerState::Configured, "after {polls} polls");
        let left = || world.cluster.group("g").is_none_or(|group| group.members.is_empty());
        world.until("the member left", left).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_consumer_outlives_its_cluster() {
    let world = World::with(ClusterConfig { brokers: 1, ..ClusterConfig::default() }, &[("t", 2)]);
    let (client, diary) = (world.client(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    send_numbered(&client, 20, 5).await;
    world.until("the first twenty", || diary.ended().len() == 20).await;
    world.until("committed", || world.committed_sum() == 20).await;
    world.cluster.stop_broker(1);
    world.clock.sleep(Duration::from_secs(90)).await;
    world.cluster.start_broker(1);
    send_numbered(&client, 20, 5).await;
    world.until("the rest", || diary.ended().len() >= 40).await;
    world.until("committed", || world.committed_sum() == 40).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_ends_gracefully() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    send_numbered(&client, 1, 1).await;
    client.subscribe(crate::world::sleepy(&diary, &world.clock, Duration::from_millis(500))).await.unwrap();
    world.until("it runs", || diary.started().len() == 1).await;
    drop(client);
    world.until("it ended and was committed", || world.committed_sum() == 1).await;
    world
        .until("the member left", || world.cluster.group("g").is_none_or(|group| group.members.is_empty()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_with_unfinished_work_that_stands_still_is_stalled_and_an_idle_one_is_not() {
    let world = World::new(&[("t", 2)]);
    let client = world.builder().configure(|o| o.stall_threshold = Some(Duration::from_secs(15)));
    let (client, diary) = (client.build().unwrap(), Diary::default());
    client.subscribe(crate::world::sleepy(&diary, &world.clock, Duration::from_secs(40))).await.unwrap();
    world.clock.sleep(Duration::from_secs(60)).await;
    assert!(!client.is_stalled(), "idle");
    send_numbered(&client, 1, 1).await;
    world.clock.sleep(Duration::from_secs(10)).await;
    assert!(!client.is_stalled(), "ten seconds are not fifteen");
    world.clock.sleep(Duration::from_secs(10)).await;
    assert!(client.is_stalled());
    world.until("it ends", || diary.ended().len() == 1).await;
    assert!(!client.is_stalled());
    client.unsubscribe().await.unwrap();
}
