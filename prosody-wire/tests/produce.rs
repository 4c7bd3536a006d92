//! The producer against the in-process broker: what users were promised about acknowledged and other records.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{World, client, letters, numbered, record, send_all};
use prosody_testkit::ClusterConfig;
use prosody_testkit::broker::{Action, ApiKey, Match, UnknownProducer};
use prosody_wire::batch::Compression;
use prosody_wire::fetch::{FetchConfig, Fetcher, StartAt};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig, SendOutcome};
use prosody_wire::{ErrorCode, TopicPartition};

#[tokio::test(start_paused = true)]
async fn a_record_arrives_as_it_was_sent() {
    for compression in Compression::ALL {
        let world = World::new(1);
        world.cluster.create_topic("t", 10).unwrap();
        let config = ProducerConfig { compression, ..ProducerConfig::default() };
        let producer = Producer::new(&world.client, config);
        let value = vec![7; 3000];
        let sent = OutgoingRecord {
            topic: "t",
            partition: None,
            key: Some(b"123456789"),
            value: Some(&value),
            headers: &[(b"a", Some(b"1")), (b"b", Some(b"")), (b"a", Some(b"2")), (b"\xff", None)],
            timestamp: Some(1_700_000_000_123),
        };
        let delivery = producer.send(sent, None).await.unwrap();
        // CRC-32 of "123456789" is 0xcbf43926.
        let partition = (0xcbf4_3926_u32 % 10) as i32;
        assert_eq!((&*delivery.topic, delivery.partition, delivery.offset), ("t", partition, 0));
        assert_eq!(delivery.timestamp, 1_700_000_000_123);
        let log = world.cluster.log("t", partition);
        assert_eq!(log.len(), 1, "{compression:?}");
        assert_eq!(log[0].key.as_deref(), Some(&b"123456789"[..]));
        assert_eq!(log[0].value.as_deref(), Some(&value[..]));
        assert_eq!(log[0].timestamp, 1_700_000_000_123);
        let header =
            |key: &'static [u8], value: Option<&'static str>| (Bytes::from(key), value.map(Bytes::from));
        let headers = [header(b"a", Some("1")), header(b"b", Some("")), header(b"a", Some("2"))];
        assert_eq!(log[0].headers, [headers.as_slice(), &[header(b"\xff", None)]].concat());
        let tombstone = OutgoingRecord { value: None, headers: &[], ..sent };
        assert_eq!(producer.send(tombstone, None).await.unwrap().offset, 1);
        assert_eq!(world.cluster.log("t", partition)[1].value, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_is_sent_to_at_once_and_a_busy_one_in_batches() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    producer.send(record("t", 0, "first"), None).await.unwrap();
    let before = (world.now(), world.cluster.requests(ApiKey::PRODUCE).len());
    for n in 0..10 {
        producer.send(record("t", 0, &n.to_string()), None).await.unwrap();
    }
    assert_eq!(world.now(), before.0, "nothing lingers");
    assert_eq!(world.cluster.requests(ApiKey::PRODUCE).len(), before.1 + 10, "one round trip each");
    let sends = send_all(&producer, "t", 0, numbered("", 0..1000), None);
    for (n, send) in sends.into_iter().enumerate() {
        assert_eq!(send.await.unwrap().offset, 11 + n as i64);
    }
    let requests = world.cluster.requests(ApiKey::PRODUCE).len() - before.1 - 10;
    assert!(requests <= 2, "{requests} requests for records that were there together");
}

#[tokio::test(start_paused = true)]
async fn senders_on_many_tasks_keep_their_order_per_partition() {
    let world = World::new(3);
    world.cluster.create_topic("t", 6).unwrap();
    let config = ProducerConfig { batch_size: 2_000, request_size: 6_000, ..ProducerConfig::default() };
    let producer = Producer::new(&world.client, config);
    let tasks: Vec<_> = (0..12)
        .map(|sender| {
            let producer = producer.clone();
            tokio::spawn(async move {
                let mut sends = Vec::new();
                for n in 0..300 {
                    let value = format!("{sender}:{n}");
                    sends.push(producer.send(record("t", sender % 6, &value), None));
                    if n % 50 == 49 {
                        tokio::task::yield_now().await;
                    }
                }
                let mut last = -1;
                for send in sends {
                    let offset = send.await.unwrap().offset;
                    assert!(offset > last);
                    last = offset;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for partition in 0..6 {
        let values = world.values("t", partition);
        assert_eq!(values.len(), 600);
        for sender in [partition, partition + 6] {
            let own: Vec<&String> =
                values.iter().filter(|value| value.starts_with(&format!("{sender}:"))).collect();
            assert_eq!(own, numbered(&format!("{sender}:"), 0..300).iter().collect::<Vec<_>>());
        }
    }
    assert_eq!(world.cluster.violations(), []);
}

/// "Fatal out-of-order sequence" after a connection broke with batches that were possibly written.
/// Here they go out again under the same sequences, and a duplicate counts as written.
#[tokio::test(start_paused = true)]
async fn a_connection_lost_at_any_request_loses_doubles_and_reorders_nothing() {
    for action in [Action::CutAfter, Action::CutBefore, Action::PartialWrite(5), Action::HalfClose] {
        for nth in 1..8 {
            let world = World::new(1);
            world.cluster.create_topic("t", 2).unwrap();
            world.cluster.control().on(Match::api(ApiKey::PRODUCE).nth(nth), action.clone());
            let config = ProducerConfig { batch_size: 300, request_size: 400, ..ProducerConfig::default() };
            let producer = Producer::new(&world.client, config);
            let mut sends = Vec::new();
            for n in 0..100 {
                sends.push(producer.send(record("t", n % 2, &n.to_string()), world.after(20_000)));
                if n % 20 == 19 {
                    tokio::task::yield_now().await;
                }
            }
            for (n, send) in sends.into_iter().enumerate() {
                let delivery = send.await.unwrap();
                assert_eq!(delivery.offset, n as i64 / 2, "{action:?} at request {nth}");
            }
            for partition in 0..2 {
                let expected: Vec<String> =
                    (0..100).filter(|n| n % 2 == partition).map(|n| n.to_string()).collect();
                assert_eq!(world.values("t", partition), expected, "{action:?} at request {nth}");
            }
            assert_eq!(world.cluster.violations(), []);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_refusal_that_may_pass_is_retried_in_order() {
    let codes = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::UNKNOWN_PRODUCER_ID,
        ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::UNKNOWN_SERVER_ERROR,
    ];
    for code in codes {
        for unknown_producer in [UnknownProducer::Refuse, UnknownProducer::Accept] {
            let config = ClusterConfig { unknown_producer, ..ClusterConfig::default() };
            let world = World::with(config, 1);
            world.cluster.create_topic("t", 2).unwrap();
            let producer = Producer::new(
                &world.client,
                ProducerConfig { batch_size: 300, request_size: 400, ..ProducerConfig::default() },
            );
            producer.send(record("t", 0, "warm"), None).await.unwrap();
            producer.send(record("t", 1, "warm"), None).await.unwrap();
            let rule = world
                .cluster
                .control()
                .on(Match::api(ApiKey::PRODUCE).partition("t", 0).after(1).times(2), Action::Error(code.0));
            let sends = send_all(&producer, "t", 0, numbered("", 0..60), world.after(20_000));
            let others = send_all(&producer, "t", 1, numbered("", 0..60), world.after(20_000));
            for send in sends.into_iter().chain(others) {
                send.await.unwrap_or_else(|error| panic!("{code}: {error}"));
            }
            for partition in 0..2 {
                let mut expected = vec!["warm".to_owned()];
                expected.extend(numbered("", 0..60));
                assert_eq!(world.values("t", partition), expected, "{code}");
            }
            assert_eq!(world.cluster.control().hits(rule), 2, "{code}");
            assert_eq!(world.cluster.violations(), [], "{code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_stays_fails_its_batch_and_no_other() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    producer.send(record("t", 0, "before"), None).await.unwrap();
    let refused = Action::Error(ErrorCode::MESSAGE_TOO_LARGE.0);
    world.cluster.control().on(Match::api(ApiKey::PRODUCE).nth(1), refused);
    let error = producer.send(record("t", 0, "large"), None).await.unwrap_err();
    assert_eq!(error.outcome, SendOutcome::NotWritten);
    let text = error.to_string();
    assert!(text.contains("t-0") && text.contains("MESSAGE_TOO_LARGE"), "{text}");
    producer.send(record("t", 0, "after"), None).await.unwrap();
    assert_eq!(world.values("t", 0), ["before", "after"]);
}

/// A topic that takes smaller batches than ours refused all records of a batch, although each of them fits (KIP-126). Here the
/// batch goes on in two, again and again until it fits, and only a record that is too large by itself is refused.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_goes_on_in_two() {
    for seed in 0..20 {
        let world = World::with(ClusterConfig { brokers: 1, ..ClusterConfig::default() }, seed);
        let small = BTreeMap::from([("max.message.bytes".to_owned(), "1500".to_owned())]);
        world.cluster.create_topic_with("t", 1, -1, small).unwrap();
        let config = ProducerConfig {
            batch_size: 16_000,
            request_size: 16_000,
            compression: [Compression::None, Compression::Gzip][(seed % 2) as usize],
            ..ProducerConfig::default()
        };
        let producer = Producer::new(&world.client, config);
        if seed > 1 {
            let some = Match::api(ApiKey::PRODUCE).probability(0.2).times(5);
            world.cluster.control().on(some, Action::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER.0));
        }
        let mut letter = letters(seed as u32 + 1);
        let values: Vec<String> = (0..300)
            .map(|n| {
                let long = if n % 100 == 50 { 6_000 } else { 200 };
                format!("{n} {}", (0..long).map(|_| letter()).collect::<String>())
            })
            .collect();
        let sends = send_all(&producer, "t", 0, values.clone(), world.after(120_000));
        let mut written = Vec::new();
        for (value, send) in values.iter().zip(sends) {
            match send.await {
                Ok(delivery) => written.push((delivery.offset, value.clone())),
                Err(error) => {
                    assert!(value.len() > 6_000, "{error}");
                    assert_eq!(error.outcome, SendOutcome::NotWritten);
                    assert!(error.to_string().contains("MESSAGE_TOO_LARGE"), "{error}");
                }
            }
        }
        let log = world.values("t", 0);
        let expected: Vec<(i64, String)> = (0..).zip(log).collect();
        assert_eq!(written.len(), 297);
        assert_eq!(written, expected, "seed {seed}");
        assert_eq!(world.cluster.violations(), []);
        // What comes later is small enough at once.
        let asked = || world.cluster.requests(ApiKey::PRODUCE).len();
        let before = asked();
        let fitting = values.iter().filter(|value| value.len() < 6_000).cloned();
        for send in send_all(&producer, "t", 0, fitting, None) {
            send.await.unwrap();
        }
        let batches = 297 * 220 / 1_000;
        assert!(seed > 1 || asked() - before < batches * 2, "{} requests", asked() - before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_is_followed() {
    let world = World::new(3);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = Producer::new(
        &world.client,
        ProducerConfig { batch_size: 200, request_size: 200, ..ProducerConfig::default() },
    );
    let mut sends = Vec::new();
    for round in 0..20 {
        sends.extend(send_all(&producer, "t", 0, numbered(&format!("{round}:"), 0..10), None));
        tokio::task::yield_now().await;
        world.cluster.move_leader("t", 0, round % 3 + 1);
    }
    for (n, send) in sends.into_iter().enumerate() {
        assert_eq!(send.await.unwrap().offset, n as i64);
    }
    let expected: Vec<String> = (0..20).flat_map(|round| numbered(&format!("{round}:"), 0..10)).collect();
    assert_eq!(world.values("t", 0), expected);
    assert_eq!(world.cluster.violations(), []);
}

/// After a leader had moved, records waited for metadata, which a busy or silent broker brings late.
/// Here the answer that refuses a batch names the new leader (KIP-951), and nobody else is asked.
#[tokio::test(start_paused = true)]
async fn whoever_refuses_a_batch_names_the_new_leader() {
    let world = World::new(3);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    producer.send(record("t", 0, "0"), None).await.unwrap();
    world.cluster.control().on(Match::api(ApiKey::METADATA), Action::Hang);
    for round in 1..6 {
        world.cluster.move_leader("t", 0, round % 3 + 1);
        producer.send(record("t", 0, &round.to_string()), world.after(1_000)).await.unwrap();
    }
    assert_eq!(world.values("t", 0), numbered("", 0..6));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_cannot_be_reached_fails_sends_at_their_deadline_as_not_written() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    producer.send(record("t", 0, "before"), None).await.unwrap();
    world.cluster.stop_broker(1);
    // Until the client sees the connection end, what it writes may have arrived.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = world.now();
    let late = producer.send(record("t", 0, "late"), world.after(2_000));
    let patient = producer.send(record("t", 0, "patient"), world.after(60_000));
    let error = late.await.unwrap_err();
    assert_eq!(error.outcome, SendOutcome::NotWritten, "{error}");
    assert!(error.to_string().contains("t-0"), "{error}");
    let waited = world.now() - start;
    assert!((2_000..2_010).contains(&waited.as_millis()), "{waited:?}");
    world.cluster.start_broker(1);
    assert_eq!(patient.await.unwrap().offset, 1);
    assert_eq!(world.values("t", 0), ["before", "patient"], "what was given up stays unwritten");
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_answer_never_comes_is_unknown_at_its_deadline_and_later_ones_go_on() {
    for (action, written) in [(Action::HangAfter, true), (Action::Hang, false)] {
        let world = World::new(1);
        world.cluster.create_topic("t", 1).unwrap();
        let producer = world.producer();
        producer.send(record("t", 0, "before"), None).await.unwrap();
        world.cluster.control().on(Match::api(ApiKey::PRODUCE).nth(1), action.clone());
        let start = world.now();
        let error = producer.send(record("t", 0, "open"), world.after(3_000)).await.unwrap_err();
        assert_eq!(error.outcome, SendOutcome::Unknown, "{error}");
        assert!((3_000..3_010).contains(&(world.now() - start).as_millis()));
        let mut expected = vec!["before"];
        if written {
            expected.push("open");
        }
        for value in ["x", "y", "z"] {
            producer.send(record("t", 0, value), world.after(60_000)).await.unwrap();
            expected.push(value);
        }
        assert_eq!(world.values("t", 0), expected, "{action:?}");
        assert_eq!(world.cluster.violations(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_topic_fails_by_name_and_one_created_meanwhile_is_found() {
    let world = World::new(1);
    let producer = world.producer();
    let start = world.now();
    let error = producer.send(record("missing", 0, "x"), world.after(30_000)).await.unwrap_err();
    assert_eq!(error.outcome, SendOutcome::NotWritten);
    assert!(error.to_string().contains("missing") && error.to_string().contains("UNKNOWN_TOPIC"), "{error}");
    assert!(world.now() - start < Duration::from_secs(8), "{:?}", world.now() - start);
    let sends = send_all(&producer, "late", 0, numbered("", 0..20), world.after(30_000));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.cluster.create_topic("late", 1).unwrap();
    for (n, send) in sends.into_iter().enumerate() {
        assert_eq!(send.await.unwrap().offset, n as i64);
    }
    assert_eq!(world.values("late", 0), numbered("", 0..20));
    let error = producer.send(record("late", 7, "x"), None).await.unwrap_err();
    assert!(error.to_string().contains("late-7"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn records_beyond_the_memory_wait_in_line() {
    let world = World::new(1);
    world.cluster.create_topic("t", 2).unwrap();
    let config = ProducerConfig { memory: 1_000, batch_size: 300, ..ProducerConfig::default() };
    let producer = Producer::new(&world.client, config);
    let sends = send_all(&producer, "t", 0, numbered("", 0..500), world.after(60_000));
    for (n, send) in sends.into_iter().enumerate() {
        assert_eq!(send.await.unwrap().offset, n as i64);
    }
    assert_eq!(world.values("t", 0), numbered("", 0..500));
    let error = producer.send(record("t", 0, &"x".repeat(2_000)), None).await.unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    // While memory is taken by a partition that is stuck, waiting records keep their deadline.
    world.cluster.stop_broker(1);
    let stuck = send_all(&producer, "t", 0, numbered("", 0..100), world.after(1_000));
    for send in stuck {
        assert_eq!(send.await.unwrap_err().outcome, SendOutcome::NotWritten);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_never_awaits_is_told_before_memory_is_gone_and_what_was_taken_arrives() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let config = ProducerConfig { memory: 1_000, line: 20_000, batch_size: 300, ..ProducerConfig::default() };
    let producer = Producer::new(&world.client, config);
    let (mut taken, mut refused) = (Vec::new(), 0);
    for (n, send) in send_all(&producer, "t", 0, numbered("", 0..500), None).into_iter().enumerate() {
        match send.await {
            Ok(_) => taken.push(n.to_string()),
            Err(error) => {
                assert_eq!(error.outcome, SendOutcome::NotWritten);
                assert!(error.to_string().contains("line of records that wait"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(taken.len() > 20 && refused > 300, "{} taken, {refused} refused", taken.len());
    assert_eq!(world.values("t", 0), taken, "each one that was taken, in order");
    // The line is free again.
    for send in send_all(&producer, "t", 0, numbered("", 0..30), None) {
        send.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn close_sends_what_is_there_and_ends_by_its_deadline() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let producer = world.producer();
    let sends = send_all(&producer, "t", 0, numbered("", 0..2_000), None);
    producer.close(world.now() + Duration::from_secs(5)).await.unwrap();
    for send in sends {
        send.await.unwrap();
    }
    let error = producer.send(record("t", 0, "late"), None).await.unwrap_err();
    assert!(error.outcome == SendOutcome::NotWritten && error.to_string().contains("closed"), "{error}");

    let producer = Producer::new(&client(&world.cluster, &world.doors), ProducerConfig::default());
    world.cluster.control().on(Match::api(ApiKey::PRODUCE), Action::Hang);
    let sends = send_all(&producer, "t", 0, numbered("", 0..10), None);
    let missing = producer.send(record("missing", 0, "x"), None);
    let start = world.now();
    let error = producer.close(world.now() + Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(world.now() - start, Duration::from_secs(2));
    assert!(error.to_string().contains("11 records"), "{error}");
    for send in sends {
        assert!(send.await.is_err(), "every send completes");
    }
    assert!(missing.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_killed_leaves_no_sender_waiting() {
    let world = World::new(1);
    world.cluster.create_topic("t", 1).unwrap();
    let mut doors = world.doors.clone();
    doors.spawner = doors.spawner.separate();
    let producer = Producer::new(&client(&world.cluster, &doors), ProducerConfig::default());
    world.cluster.control().on(Match::api(ApiKey::PRODUCE), Action::Hang);
    let send = producer.send(record("t", 0, "x"), None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    doors.spawner.kill();
    assert_eq!(send.await.unwrap_err().outcome, SendOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_web_server_or_garbage_in_place_of_an_answer_is_survived() {
    let garbage = [
        Action::Garbage(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        Action::AbsurdLength(i32::MAX),
        Action::WrongCorrelation,
        Action::DuplicateAnswer,
        Action::Body(Bytes::from_static(&[0x7f; 40])),
        Action::Body(Bytes::new()),
    ];
    for action in garbage {
        let world = World::new(1);
        world.cluster.create_topic("t", 1).unwrap();
        world.cluster.control().on(Match::api(ApiKey::PRODUCE).nth(2), action.clone());
        let producer = world.producer();
        for n in 0..5 {
            let sent = producer.send(record("t", 0, &n.to_string()), world.after(60_000)).await;
            sent.unwrap_or_else(|error| panic!("{action:?}: {error}"));
        }
        assert_eq!(world.values("t", 0), numbered("", 0..5), "{action:?}");
    }
}

/// Random faults at random requests, three brokers, leaders that move: nothing acknowledged is lost, doubled or out of order,
/// and what is said not to be written is not.
#[tokio::test(start_paused = true)]
async fn random_faults_keep_the_promise() {
    for seed in 0..40 {
        let config = ClusterConfig { brokers: 3, ..ClusterConfig::default() };
        let world = World::with(config, seed);
        world.cluster.create_topic("t", 3).unwrap();
        let rng = world.doors.rng.fork();
        let actions = [
            Action::CutAfter,
            Action::CutBefore,
            Action::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
            Action::Error(ErrorCode::REQUEST_TIMED_OUT.0),
            Action::Error(ErrorCode::MESSAGE_TOO_LARGE.0),
            Action::Delay(Duration::from_millis(700)),
            Action::DelayAnswer(Duration::from_millis(900)),
            Action::Hang,
            Action::HangAfter,
        ];
        for action in actions {
            world.cluster.control().on(Match::api(ApiKey::PRODUCE).probability(0.03), action);
        }
        let producer = Producer::new(
            &world.client,
            ProducerConfig { batch_size: 250, request_size: 500, ..ProducerConfig::default() },
        );
        let mut sends = Vec::new();
        for n in 0..600 {
            let partition = rng.below(3) as i32;
            let value = n.to_string();
            let deadline = world.after(200 + rng.below(60_000));
            sends.push((partition, value.clone(), producer.send(record("t", partition, &value), deadline)));
            if n % 10 == 9 {
                tokio::time::sleep(Duration::from_millis(rng.below(100))).await;
            }
            if n % 60 == 59 {
                world.cluster.move_leader("t", rng.below(3) as i32, rng.below(3) as i32 + 1);
            }
        }
        let mut ends = Vec::new();
        for (partition, value, send) in sends {
            ends.push((partition, value, send.await));
        }
        world.cluster.control().clear();
        producer.close(world.now() + Duration::from_secs(100)).await.unwrap();
        let logs: Vec<Vec<String>> = (0..3).map(|partition| world.values("t", partition)).collect();
        for (partition, value, end) in ends {
            let log = &logs[partition as usize];
            match end {
                Ok(delivery) if delivery.offset >= 0 => {
                    assert_eq!(log[delivery.offset as usize], value, "seed {seed}");
                }
                Ok(_) => assert!(log.contains(&value), "seed {seed}"),
                Err(error) if error.outcome == SendOutcome::NotWritten => {
                    assert!(!log.contains(&value), "seed {seed}: {value} {error}");
                }
                Err(_) => {}
            }
        }
        for log in logs {
            let log: Vec<usize> = log.iter().map(|value| value.parse().unwrap()).collect();
            assert!(log.is_sorted_by(|a, b| a < b), "seed {seed}: once each and in order, not {log:?}");
        }
        assert_eq!(world.cluster.violations(), [], "seed {seed}");
    }
}

/// A broker gave out the producer id −1, which means none: batches went out without sequences, and what was sent again after
/// a lost answer was there twice.
#[tokio::test(start_paused = true)]
async fn a_producer_id_that_is_none_is_not_taken() {
    for (id, epoch) in [(-1_i64, -1_i16), (-1, 0), (7, -1), (i64::MIN, i16::MIN)] {
        let world = World::with(ClusterConfig::default().as_version("2.1"), 1);
        world.cluster.create_topic("t", 1).unwrap();
        let body = [&[0; 6][..], &id.to_be_bytes(), &epoch.to_be_bytes()].concat();
        let first = Match::api(ApiKey::INIT_PRODUCER_ID).times(1);
        world.cluster.control().on(first, Action::Body(body.into()));
        let producer = world.producer();
        let early = producer.send(record("t", 0, "early"), world.after(10_000)).await;
        if let Err(error) = early {
            assert_eq!(error.outcome, SendOutcome::NotWritten);
            assert!(error.to_string().contains("InitProducerId"), "{error}");
        }
        world.cluster.control().on(Match::api(ApiKey::PRODUCE).times(1), Action::CutAfter);
        producer.send(record("t", 0, "once"), world.after(10_000)).await.unwrap();
        let values = world.values("t", 0);
        assert_eq!(values.iter().filter(|value| *value == "once").count(), 1, "{id} {epoch}: {values:?}");
        assert_eq!(world.cluster.violations(), []);
    }
}

/// Every error a broker can answer with, again and again: nothing is asked in a tight loop. A producer that was refused a
/// producer id had nothing left to do and did that without a pause: the time of its next attempt had come and gone.
#[tokio::test(start_paused = true)]
async fn no_error_is_answered_by_a_tight_loop() {
    const TIMES: u64 = 1_000;
    /// Five a second, for what is asked of several.
    const ENOUGH: u64 = 100;
    let mut wrong = Vec::new();
    for api in
        [ApiKey::PRODUCE, ApiKey::METADATA, ApiKey::INIT_PRODUCER_ID, ApiKey::FETCH, ApiKey::LIST_OFFSETS]
    {
        for error in (-1..=130).filter(|error| *error != 0) {
            let world = World::new(1);
            world.cluster.create_topic("t", 2).unwrap();
            world.fill("t", 1, numbered("", 0..3));
            let rule = world.cluster.control().on(Match::api(api).times(TIMES), Action::Error(error));
            let producer = world.producer();
            let sends = send_all(&producer, "t", 0, numbered("", 0..3), None);
            let fetcher = Fetcher::new(&world.client, FetchConfig::default());
            let reader = fetcher.open(TopicPartition::new("t", 1), StartAt::Earliest);
            tokio::time::sleep(Duration::from_secs(20)).await;
            let asked = world.cluster.control().hits(rule);
            if asked > ENOUGH {
                wrong.push((api.name(), error, asked));
            }
            drop((sends, reader));
        }
    }
    assert_eq!(wrong, []);
}
