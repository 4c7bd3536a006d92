//! Does every way of breaking a request break it as it says, and is it written down?
use std::time::Duration;

use crate::common::{Client, batch, cluster, text};
use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{HeartbeatRequest, MetadataRequest, ProduceRequest, TopicName};
use prosody_base::Clock;
use prosody_testkit::Cluster;
use prosody_testkit::broker::{Action, ApiKey, Match, Outcome};
use tokio::io::AsyncReadExt;

fn produce(partitions: &[i32]) -> ProduceRequest {
    let data = |index: &i32| {
        PartitionProduceData::default().with_index(*index).with_records(Some(batch(-1, -1, -1, 1)))
    };
    let topic = TopicProduceData::default()
        .with_name(TopicName(text("t")))
        .with_partition_data(partitions.iter().map(data).collect());
    ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic])
}

fn ready() -> Cluster {
    let cluster = cluster(1);
    cluster.create_topic("t", 2).unwrap();
    cluster
}

fn written(cluster: &Cluster) -> usize {
    cluster.log("t", 0).len()
}

fn last(cluster: &Cluster) -> (Outcome, bool, i16) {
    let entry = cluster.journal().pop().expect("a request");
    (entry.outcome, entry.changed, entry.error)
}

#[tokio::test(start_paused = true)]
async fn an_error_strikes_only_the_partition_it_names() {
    let cluster = ready();
    cluster.control().on(Match::api(ApiKey::PRODUCE).partition("t", 1).nth(2), Action::Error(6));
    let mut client = Client::new(&cluster, 1);
    for (round, expected) in [(1, [0, 0]), (2, [0, 6]), (3, [0, 0])] {
        let answer = client.call(9, &produce(&[0, 1])).await;
        let errors: Vec<i16> =
            answer.responses[0].partition_responses.iter().map(|one| one.error_code).collect();
        assert_eq!(errors, expected, "round {round}");
    }
    assert_eq!((cluster.log("t", 0).len(), cluster.log("t", 1).len()), (3, 2));
    let changed: Vec<bool> = cluster.journal().iter().map(|entry| entry.changed).collect();
    assert_eq!(changed, [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn cuts_happen_before_or_after_the_effect() {
    for (action, effect) in [(Action::CutBefore, 0), (Action::CutAfter, 1)] {
        let cluster = ready();
        let outcome = if effect == 0 { Outcome::CutBefore } else { Outcome::CutAfter };
        cluster.control().on(Match::api(ApiKey::PRODUCE).nth(1), action);
        let mut client = Client::new(&cluster, 1);
        client.send(9, &produce(&[0])).await;
        assert!(client.frame().await.is_none(), "the connection is closed without an answer");
        assert_eq!((written(&cluster), last(&cluster)), (effect, (outcome, true, 0)));
        Client::new(&cluster, 1).call(9, &produce(&[0])).await;
        assert_eq!(written(&cluster), effect + 1, "the rule strikes once");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_keeps_the_connection_open() {
    for (action, effect) in [(Action::Hang, 0), (Action::HangAfter, 1)] {
        let cluster = ready();
        cluster.control().on(Match::any().nth(1), action);
        let mut client = Client::new(&cluster, 1);
        client.send(9, &produce(&[0])).await;
        client.send(9, &produce(&[0])).await;
        let clock = Clock::system();
        let silent = clock.until(clock.now() + Duration::from_secs(60), client.stream.read_u8()).await;
        assert!(silent.is_err(), "neither bytes nor an end");
        assert_eq!(written(&cluster), effect, "later requests of the connection are swallowed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mute_connection_serves_on_and_answers_nothing() {
    let cluster = ready();
    cluster.control().on(Match::any().nth(1), Action::Mute);
    let mut client = Client::new(&cluster, 1);
    client.send(9, &produce(&[0])).await;
    client.send(9, &produce(&[0])).await;
    let clock = Clock::system();
    let silent = clock.until(clock.now() + Duration::from_secs(60), client.stream.read_u8()).await;
    assert!(silent.is_err(), "neither bytes nor an end");
    assert_eq!(written(&cluster), 2, "later requests have their effect as well");
}

#[tokio::test(start_paused = true)]
async fn delays_hold_back_the_effect_or_only_the_answer() {
    let clock = Clock::system();
    for (action, early) in
        [(Action::Delay(Duration::from_secs(5)), 0), (Action::DelayAnswer(Duration::from_secs(5)), 1)]
    {
        let cluster = ready();
        cluster.control().on(Match::api(ApiKey::PRODUCE), action);
        let mut client = Client::new(&cluster, 1);
        let start = clock.now();
        client.send(9, &produce(&[0])).await;
        clock.sleep(Duration::from_millis(4_999)).await;
        assert_eq!(written(&cluster), early);
        client.receive::<ProduceRequest>(9).await;
        assert_eq!(clock.now() - start, Duration::from_secs(5));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_spoiled_in_every_way() {
    let spoilers = [
        Action::Garbage(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n")),
        Action::Body(Bytes::from_static(&[1, 2, 3])),
        Action::WrongCorrelation,
        Action::AbsurdLength(i32::MAX),
        Action::AbsurdLength(-1),
        Action::PartialWrite(7),
        Action::DuplicateAnswer,
        Action::HalfClose,
    ];
    for action in spoilers {
        let cluster = ready();
        let mut client = Client::new(&cluster, 1);
        client.send(9, &produce(&[0])).await;
        let mut right = vec![0; 4];
        client.stream.read_exact(&mut right).await.unwrap();
        right.resize(4 + i32::from_be_bytes(right[..4].try_into().unwrap()) as usize, 0);
        client.stream.read_exact(&mut right[4..]).await.unwrap();

        cluster.control().on(Match::any(), action.clone());
        let mut client = Client::new(&cluster, 1);
        client.send(9, &produce(&[0])).await;
        let mut got = vec![0; 2 * right.len()];
        let clock = Clock::system();
        let mut filled = 0;
        while let Ok(Ok(read)) =
            clock.until(clock.now() + Duration::from_secs(1), client.stream.read(&mut got[filled..])).await
            && read > 0
        {
            filled += read;
        }
        got.truncate(filled);
        // The second append has another offset; everything in front of it is the same.
        let same = |range: std::ops::Range<usize>| got.get(range.clone()) == right.get(range);
        let as_told = match &action {
            Action::Garbage(bytes) => got[..] == bytes[..],
            Action::Body(bytes) => got[..4] == [0, 0, 0, 8] && got[9..] == bytes[..],
            Action::WrongCorrelation => same(0..4) && !same(4..8) && got.len() == right.len(),
            Action::AbsurdLength(length) => got[..4] == length.to_be_bytes() && same(4..12),
            Action::PartialWrite(count) => got.len() == *count && same(0..7),
            Action::DuplicateAnswer => got.len() == 2 * right.len() && same(0..12),
            _ => got.is_empty(),
        };
        assert!(as_told, "{action:?}: {got:?} instead of {right:?}");
        assert_eq!(written(&cluster), 2, "{action:?}: the request had its effect");
        assert!(last(&cluster).1);
    }
}

#[tokio::test(start_paused = true)]
async fn throttling_is_told_and_rules_see_group_member_client_broker_and_version() {
    let cluster = ready();
    let control = cluster.control();
    control.on(Match::api(ApiKey::METADATA).client("tester"), Action::Throttle(Duration::from_millis(70)));
    control.on(Match::any().group("g").member("m").versions(1..=3), Action::Error(15));
    control.on(Match::any().member("instance"), Action::Error(16));
    control.on(Match::any().broker(2), Action::CutBefore);
    control.on(Match::any().client("somebody else"), Action::CutBefore);
    let mut client = Client::new(&cluster, 1);
    assert_eq!(client.call(9, &MetadataRequest::default()).await.throttle_time_ms, 70);
    let beat = |member| {
        let request = HeartbeatRequest::default().with_member_id(text(member));
        request.with_group_id(kafka_protocol::messages::GroupId(text("g")))
    };
    assert_eq!(client.call(3, &beat("m")).await.error_code, 15);
    assert_eq!(client.call(4, &beat("m")).await.error_code, 25, "another version");
    assert_eq!(client.call(3, &beat("n")).await.error_code, 25, "another member");
    let named = beat("n").with_group_instance_id(Some(text("instance")));
    assert_eq!(client.call(3, &named).await.error_code, 16, "by its instance");
}

#[tokio::test(start_paused = true)]
async fn chance_is_drawn_from_the_seed_and_hits_are_counted() {
    let run = async || {
        let cluster = ready();
        let rule = cluster.control().on(Match::any().probability(0.5).times(20), Action::Error(3));
        let mut client = Client::new(&cluster, 1);
        let mut struck = Vec::new();
        for _ in 0..60 {
            let answer = client.call(9, &produce(&[0])).await;
            struck.push(answer.responses[0].partition_responses[0].error_code == 3);
        }
        assert_eq!(cluster.control().hits(rule), 20);
        cluster.control().reached(rule, 20).await;
        struck
    };
    let first = run().await;
    assert_eq!(first, run().await);
    assert_eq!(first.iter().filter(|struck| **struck).count(), 20);
    assert!(first[..20].contains(&false), "not every request is struck");
}
