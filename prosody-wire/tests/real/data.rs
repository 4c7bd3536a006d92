//! Records there and back, while connections break, fall silent or rest.

use std::time::Duration;

use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, StartAt};
use prosody_wire::produce::{Producer, ProducerConfig, SendOutcome};
use prosody_wire::{Limits, TopicPartition};

use crate::stage::{CLASSIC, PATIENCE, next, numbered, play, values};
use crate::support::{seconds, until};
use crate::wires::Wires;

/// "Fatal out-of-order sequence" after a connection broke with batches that were possibly written.
/// Here connections break all the time, and the log holds every record once, in order.
#[test]
fn connections_that_break_lose_double_and_reorder_nothing() {
    const RECORDS: usize = 4_000;
    play("cuts", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits::default());
        let config = ProducerConfig { batch_size: 500, ..ProducerConfig::default() };
        let producer = Producer::new(&client, config);
        let all = numbered(0..RECORDS);
        let sends: Vec<_> = all.iter().map(|value| producer.send(stage.record(0, value), None)).collect();
        let (mut cuts, mut written) = (0, 0);
        for (at, send) in sends.into_iter().enumerate() {
            if at % 400 == 50 {
                wires.cut();
                cuts += 1;
            }
            written += usize::from(tokio::time::timeout(PATIENCE, send).await.unwrap().is_ok());
        }
        assert_eq!((cuts, written), (10, RECORDS));
        assert_eq!(values(&mut stage.reader(0, 0), RECORDS).await, all);
        let admin = stage.client.admin();
        let ends = admin.offsets(&stage.topic, prosody_wire::OffsetAt::Latest, stage.deadline());
        assert_eq!(ends.await.unwrap()[&0], RECORDS as i64);
    });
}

/// A producer and a consumer stood still for 130 seconds: their peer swallowed everything and nobody closed anything.
/// Here a request without an answer ends its connection, and the next one works.
#[test]
fn a_peer_that_swallows_everything_costs_one_timeout() {
    play("black-hole", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits { request_timeout: seconds(2), ..Limits::default() });
        let producer = Producer::new(&client, ProducerConfig::default());
        let fetcher = Fetcher::new(&client, FetchConfig::default());
        let mut reader = fetcher.open(stage.tp(0), StartAt::Earliest);
        producer.send(stage.record(0, "before"), None).await.unwrap();
        assert_eq!(values(&mut reader, 1).await, ["before"]);
        wires.swallow();
        let start = tokio::time::Instant::now();
        producer.send(stage.record(0, "after"), None).await.unwrap();
        assert_eq!(values(&mut reader, 1).await, ["after"]);
        assert!(start.elapsed() < seconds(20), "{:?}", start.elapsed());
    });
}

/// The first request after a quiet time failed: the broker had closed the idle connection.
/// Here it is replaced, and nobody is told. (The brokers of these tests close after seconds.)
#[test]
fn connections_that_the_broker_closed_are_replaced_silently() {
    play("idle", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits::default());
        let producer = Producer::new(&client, ProducerConfig::default());
        for round in 0..2 {
            let deadline = Some(stage.doors.clock.now() + seconds(10));
            let sent = producer.send(stage.record(0, "x"), deadline).await.unwrap();
            assert_eq!(sent.offset, round);
            assert!(wires.open() > 0);
            until(PATIENCE, "the broker closes what rests", || wires.open() == 0).await;
        }
        client.partition_count(&stage.topic, stage.deadline()).await.unwrap();
        client.admin().describe_cluster(stage.deadline()).await.unwrap();
    });
}

/// All records of a batch were refused because together they were larger than the topic takes. Here the batch is split.
#[test]
fn a_batch_that_is_too_large_goes_on_in_two() {
    play("too-large", 1, CLASSIC, |stage| async move {
        stage.create(1, &[("max.message.bytes", "2000")]).await;
        let config = ProducerConfig {
            compression: prosody_wire::batch::Compression::None,
            ..ProducerConfig::default()
        };
        let producer = Producer::new(&stage.client, config);
        let all: Vec<String> = (0..500).map(|n| format!("{n}{}", "x".repeat(150))).collect();
        let sends: Vec<_> = all.iter().map(|value| producer.send(stage.record(0, value), None)).collect();
        for (offset, send) in (0..).zip(sends) {
            assert_eq!(send.await.unwrap().offset, offset);
        }
        assert_eq!(values(&mut stage.reader(0, 0), 500).await, all);
        let alone = producer.send(stage.record(0, &"x".repeat(3_000)), None).await.unwrap_err();
        assert_eq!(alone.outcome, SendOutcome::NotWritten);
        assert!(alone.to_string().contains("MESSAGE_TOO_LARGE"), "{alone}");
    });
}

/// A reader of an offset that retention had taken asked for ever. Here it is told, once, and reads on at what is left.
#[test]
fn an_offset_out_of_range_is_reset_once() {
    play("out-of-range", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        stage.fill(0, numbered(0..50)).await;
        stage.client.admin().delete_records(&stage.topic, 0, 30, stage.deadline()).await.unwrap();
        for start in [10, 5_000] {
            let mut reader = stage.reader(0, start);
            let FetchItem::Reset { from, to, .. } = next(&mut reader).await else {
                panic!("a reset comes first")
            };
            assert_eq!((from, to), (start, 30));
            assert_eq!(values(&mut reader, 20).await, numbered(30..50));
        }
    });
}

/// Reads went past the boundary of a partition: a response that ended inside a batch was decoded to its last byte.
/// Here small limits cut nearly every response, and every record comes once.
#[test]
fn responses_that_are_cut_off_lose_nothing() {
    play("truncated", 1, CLASSIC, |stage| async move {
        stage.create(2, &[]).await;
        let wide: Vec<String> = (0..300).map(|n| format!("{n:03}{}", "x".repeat(300))).collect();
        for partition in 0..2 {
            let config = ProducerConfig {
                batch_size: 3_000,
                compression: prosody_wire::batch::Compression::None,
                ..ProducerConfig::default()
            };
            let producer = Producer::new(&stage.client, config);
            let sends: Vec<_> =
                wide.iter().map(|value| producer.send(stage.record(partition, value), None)).collect();
            for send in sends {
                send.await.unwrap();
            }
        }
        let config = FetchConfig { max_partition_bytes: 7_000, max_bytes: 10_000, ..FetchConfig::default() };
        let fetcher = Fetcher::new(&stage.client, config);
        let mut readers = [0, 1].map(|one| fetcher.open(stage.tp(one), StartAt::Earliest));
        for reader in &mut readers {
            assert_eq!(values(reader, 300).await, wide);
        }
    });
}

/// A partition that was paused when it was revoked came back paused. Here a pause ends with the reader that caused it.
#[test]
fn a_pause_does_not_survive_the_reader() {
    play("pause", 1, CLASSIC, |stage| async move {
        stage.create(4, &[]).await;
        stage.fill(0, (0..40).map(|n| format!("{n}{}", "x".repeat(1_000)))).await;
        let config =
            FetchConfig { buffer_bytes: 64_000, max_partition_bytes: 8_000, ..FetchConfig::default() };
        let fetcher = Fetcher::new(&stage.client, config);
        let open = |partition, offset| {
            let tp: TopicPartition = stage.tp(partition);
            fetcher.open(tp, StartAt::Offset { offset, leader_epoch: -1 })
        };
        let _others: Vec<_> = (1..4).map(|one| open(one, 0)).collect();
        let mut first = open(0, 0);
        let (mut kept, mut end) = (Vec::new(), 0);
        while let Ok(FetchItem::Batch(batch)) = tokio::time::timeout(seconds(3), first.next()).await {
            end = batch.last_offset() + 1;
            kept.push(batch);
        }
        let mut second = open(0, end);
        if end < 40 {
            let FetchItem::Batch(more) = next(&mut second).await else { panic!("records") };
            assert!((end..40).contains(&more.last_offset()));
        }
        assert!(matches!(next(&mut first).await, FetchItem::Failed(_)));
    });
}

/// Closing hung for ever: a sender waited for memory that only an acknowledgement could free, and none came.
#[test]
fn a_producer_that_waits_for_memory_is_closed_in_time() {
    play("close-while-full", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        let wires = Wires::new();
        let client = stage.client_over(&wires, Limits::default());
        let config = ProducerConfig { memory: 1_000, batch_size: 300, ..ProducerConfig::default() };
        let producer = Producer::new(&client, config);
        producer.send(stage.record(0, "first"), None).await.unwrap();
        wires.swallow();
        let values = numbered(0..500);
        let sends: Vec<_> = values.iter().map(|value| producer.send(stage.record(0, value), None)).collect();
        let start = tokio::time::Instant::now();
        producer.close(stage.doors.clock.now() + seconds(2)).await.unwrap_err();
        assert!(start.elapsed() < seconds(3), "{:?}", start.elapsed());
        let mut waited = 0;
        for send in sends {
            let why = tokio::time::timeout(Duration::from_secs(1), send).await.expect("every send completes");
            waited += u32::from(why.unwrap_err().outcome == SendOutcome::NotWritten);
        }
        assert!(waited > 400, "{waited} never left the line");
    });
}
