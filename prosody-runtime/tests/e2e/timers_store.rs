//! Timers and a store that fails, dies with its client, or belongs to somebody else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prosody_runtime::{ErrorClass, Mode};
use prosody_state::{
    Committed, DeferredMessage, Fault, Faulty, KeyBatch, Last, PutTimer, SLAB_SECONDS, SegmentId,
    SlabPosition, SlabRow, Statement, Time, TimerFacts, TimerId, TimerKind, Writer,
};

use crate::stage::{Seen, Stage};
use crate::world::Said;

fn faulty(stage: &mut Stage, hook: impl Fn(Statement) -> Fault + Send + Sync + 'static) {
    stage.store = Arc::new(Faulty::new(Arc::clone(&stage.store), stage.clock.clone(), Arc::new(hook)));
}

fn segment(stage: &Stage) -> SegmentId {
    let cluster = prosody_testkit::ClusterConfig::default().cluster_id;
    let _ = stage;
    SegmentId::new(&cluster, "g", "t", 0)
}

#[tokio::test(start_paused = true)]
async fn without_a_store_timer_calls_fail_and_name_what_they_need() {
    let stage = Stage::new(1);
    let client = stage.world.builder().mode(Mode::BestEffort).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s3").await;
    stage.world.until("given up", || client.insight().given_up == 1).await;
    let context = stage.contexts().remove(0);
    let error = context.scheduled().unwrap_err();
    assert!(
        error.class() == ErrorClass::Transient && error.text().contains("PROSODY_CASSANDRA_NODES"),
        "{error}"
    );
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_delays_events_and_is_never_their_outcome() {
    for kind in 0..4usize {
        let mut stage = Stage::new(2);
        let calls = AtomicUsize::new(0);
        faulty(&mut stage, move |_| match (calls.fetch_add(1, Ordering::Relaxed) * 7 + kind) % 5 {
            0 => Fault::Fail,
            1 => Fault::ApplyThenTimeOut,
            2 => Fault::Delay(Duration::from_millis(300)),
            3 => Fault::ApplyThenDelay(Duration::from_millis(200)),
            _ => Fault::None,
        });
        let client = stage.client();
        client.subscribe(stage.handler()).await.unwrap();
        for key in 0..8 {
            stage.send(&client, &format!("k{key}"), "s30 s31").await;
            stage.send(&client, &format!("k{key}"), "u31 s32").await;
        }
        stage.until_second(150).await;
        client.unsubscribe().await.unwrap();
        let insight = client.insight();
        assert_eq!((stage.messages(), stage.entries().len()), (16, 32), "each handler ran once");
        let fired: BTreeSet<_> = stage.fired().into_iter().collect();
        let expected = (0..8).flat_map(|key| [30, 32].map(|at| (at, format!("k{key}"))));
        assert_eq!((fired, stage.fired().len()), (expected.collect(), 16));
        assert!(insight.store_errors > 0 && insight.conflicts == 0, "{insight:?}");
        assert_eq!((insight.failed_attempts, stage.overlaps(), stage.world.committed_sum()), (0, 0, 16));
    }
}

#[tokio::test(start_paused = true)]
async fn no_offset_is_committed_before_the_effects_of_its_message_are_there() {
    let mut stage = Stage::new(1);
    let away = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&away);
    faulty(&mut stage, move |_| if switch.load(Ordering::Relaxed) { Fault::Fail } else { Fault::None });
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "b", "").await;
    stage.world.until("it begins", || stage.world.committed_sum() == 1).await;
    away.store(true, Ordering::Relaxed);
    stage.send(&client, "a", "s3").await;
    stage.send(&client, "b", "").await;
    stage.world.until("the other key goes on", || stage.messages() == 3).await;
    stage.until_second(30).await;
    assert_eq!((stage.world.committed_sum(), stage.fired().len()), (1, 0), "no effects, no commit");
    let trouble = client.partitions()[0].store_error.clone();
    assert!(trouble.is_some_and(|error| error.contains("the test said so")));
    away.store(false, Ordering::Relaxed);
    stage.world.until("it fires", || stage.fired().len() == 1).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((stage.world.committed_sum(), stage.messages()), (3, 3), "no handler ran twice");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_nothing_when_a_partition_begins_is_asked_again() {
    // Every statement had a deadline but the first one of a partition, which never began (simulation, seed 3).
    let mut stage = Stage::new(1);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    faulty(&mut stage, move |statement| match statement.name {
        "acquire" if count.fetch_add(1, Ordering::Relaxed) == 0 => Fault::Hang,
        _ => Fault::None,
    });
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "").await;
    stage.until_second(29).await;
    assert_eq!((asked.load(Ordering::Relaxed), stage.messages()), (1, 0));
    stage.world.until_within(Duration::from_secs(3), "it begins", || stage.messages() == 1).await;
    assert_eq!(client.insight().store_errors, 1);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_for_good_waits_and_an_operator_is_told() {
    let mut stage = Stage::new(1);
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    faulty(&mut stage, move |statement| match statement.name {
        "commit" if switch.load(Ordering::Relaxed) => Fault::Refuse,
        _ => Fault::None,
    });
    let (said, _listening) = Said::listen();
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s3").await;
    stage.until_second(60).await;
    let (insight, status) = (client.insight(), client.partitions().remove(0));
    assert!((5..9).contains(&insight.store_refusals), "no haste: {insight:?}");
    assert_eq!(insight.store_errors, insight.store_refusals);
    assert!(status.store_error.is_some_and(|error| error.contains("is refused")), "health says so");
    assert!(status.standing >= Duration::from_secs(50), "and StallThreshold finds it");
    let told =
        "writing the record of a key is refused by the store, and no retry helps before it is repaired";
    assert!(said.text().contains("ERROR") && said.text().contains(told), "{}", said.text());
    assert_eq!((stage.world.committed_sum(), stage.messages()), (0, 1));
    broken.store(false, Ordering::Relaxed);
    stage.world.until("it fires", || stage.fired().len() == 1).await;
    client.unsubscribe().await.unwrap();
    assert_eq!((stage.world.committed_sum(), stage.messages()), (1, 1), "the handler ran once");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_effects_are_there_does_not_run_again_after_a_crash() {
    let stage = Stage::new(1);
    let (builder, doors) = stage.process();
    let slow = |o: &mut prosody_runtime::Options| {
        o.session_timeout = Some(Duration::from_secs(6));
        o.commit_interval = Some(Duration::from_secs(3_600));
    };
    let first = builder.configure(slow).build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    stage.send(&first, "a", "s20").await;
    stage.send(&first, "b", "").await;
    stage.world.until("both ran", || stage.messages() == 2).await;
    doors.spawner.kill();
    drop(first);
    let second = stage.client();
    second.subscribe(stage.handler()).await.unwrap();
    stage.until_second(60).await;
    assert_eq!((stage.messages(), second.insight().skipped_done), (3, 1), "b had no effects and runs again");
    assert_eq!(stage.fired(), [(20, "a".to_owned())]);
    second.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 2);

    // Another version asks for everything to be processed again.
    let third = stage.process().0.configure(|o| {
        o.group_id = Some("g".into());
        o.idempotence_version = Some("2".into());
    });
    let third = third.build().unwrap();
    stage.send(&third, "a", "l").await;
    third.subscribe(stage.handler()).await.unwrap();
    stage.world.until("it ran", || stage.messages() == 4).await;
    third.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_record_another_owner_wrote_runs_again_without_counting_as_failed() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "s90").await;
    stage.world.until("it ran", || stage.messages() == 1).await;
    let (segment, key) = (segment(&stage), b"a");
    let image = stage.store.load(segment, key).await.unwrap();
    assert_eq!((image.version, image.timers.len()), (1, 1));
    let taken = stage.store.commit(segment, key, 1, Writer(7), &KeyBatch::default()).await.unwrap();
    assert_eq!(taken, Committed::Applied);

    stage.send(&client, "a", "l s5 u90|l s5 u90").await;
    stage.world.until("it ran twice", || stage.messages() == 3).await;
    stage.until_second(120).await;
    let insight = client.insight();
    assert_eq!((insight.conflicts, insight.failed_attempts, insight.given_up), (1, 0, 0));
    assert_eq!(stage.lists(), [vec![90], vec![90]]);
    assert_eq!(stage.fired(), [(5, "a".to_owned())], "its first run left nothing");
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 2);
}

/// A former owner of the partition sets messages of key `a` aside, the last of them with what makes it recognised.
pub async fn late_batch(stage: &Stage, offsets: &[i64], last: Option<Last>) {
    let (segment, writer) = (segment(stage), Writer(7));
    let time = Time::floor(stage.clock.unix_millis() + 5_000);
    let id = TimerId { time, kind: TimerKind::DeferredMessage };
    let facts = TimerFacts { nonce: 9, slab: time.slab(SLAB_SECONDS), trace: Bytes::new() };
    let at = SlabPosition { slab: facts.slab, id, key: Bytes::from_static(b"a"), nonce: facts.nonce };
    let row = SlabRow { at, writer, trace: Bytes::new() };
    stage.store.slab_put(segment, &[row]).await.unwrap();
    let entries = offsets.iter().map(|offset| DeferredMessage { leader_epoch: 0, offset: *offset, writer });
    let batch = KeyBatch {
        append_messages: entries.collect(),
        put_timers: vec![PutTimer { id, facts }],
        last,
        ..KeyBatch::default()
    };
    assert_eq!(stage.store.commit(segment, b"a", 0, writer, &batch).await.unwrap(), Committed::Applied);
}

#[tokio::test(start_paused = true)]
async fn what_a_former_owner_sets_aside_in_a_segment_without_records_is_not_lost() {
    // The next owner knew the segment to be empty. It found the record, took the message for done, as it should, and went
    // on to believe that there are no records: the timer of the deferred one was void to it (simulation, seed 394).
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "b", "").await;
    stage.world.until("it begins", || stage.messages() == 1).await;
    let version = b"1".iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    let last = Last {
        log: stage.world.cluster.topic_id("t").unwrap(),
        leader_epoch: 0,
        offset: 1,
        idempotence: version,
        time: Time::floor(stage.clock.unix_millis()),
    };
    late_batch(&stage, &[1], Some(last)).await;
    stage.send(&client, "a", "s30|s30").await;
    stage.send(&client, "a", "l").await;
    stage.until_second(60).await;
    let messages: Vec<_> = stage.entries().into_iter().map(|entry| entry.seen).collect();
    assert_eq!(stage.fired(), [(30, "a".to_owned())], "{messages:?}");
    assert_eq!(stage.lists(), [vec![30]], "the younger one stood behind it");
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_former_owner_sets_aside_too_late_does_not_run_again_behind_younger_messages() {
    // It was paused before its batch, which is applied all the same: the next owner processed the message without effects
    // and so had no reason to touch the key's record.
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "").await;
    stage.send(&client, "a", "l").await;
    stage.world.until("both ran", || stage.messages() == 2).await;

    late_batch(&stage, &[0], None).await;
    stage.send(&client, "a", "s30|s30").await;
    stage.until_second(120).await;
    let messages: Vec<_> = stage.entries().into_iter().map(|entry| entry.seen).collect();
    let ran = |script: &str| messages.iter().filter(|seen| **seen == Seen::Message(script.into())).count();
    assert_eq!((ran(""), ran("l")), (1, 1), "what was processed does not come back: {messages:?}");
    assert_eq!(stage.fired(), [(30, "a".to_owned())], "what stood behind it went on");
    let image = stage.store.load(segment(&stage), b"a").await.unwrap();
    assert_eq!((image.messages.count, image.timers.len()), (0, 0), "its entry is gone, and its timer");
    assert_eq!((client.insight().conflicts, client.insight().deferred_gone), (1, 0));
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 3);
}

/// The same when the record of the key is loaded only afterwards: nothing says any more which of its entries came late, and
/// one that is taken for void wrongly would be lost. So it runs once more, in the order of its key.
#[tokio::test(start_paused = true)]
async fn what_a_former_owner_sets_aside_late_of_a_key_not_in_memory_runs_once_more_in_order() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "a", "").await;
    stage.world.until("it ran", || stage.messages() == 1).await;
    late_batch(&stage, &[0], None).await;
    // From here on records are looked for.
    stage.send(&client, "b", "s900").await;
    stage.world.until("it ran", || stage.messages() == 2).await;
    stage.send(&client, "a", "l").await;
    stage.until_second(60).await;
    let entries = stage.entries().into_iter().map(|entry| entry.seen);
    let messages: Vec<_> = entries.filter(|seen| matches!(seen, Seen::Message(_))).collect();
    let scripts = ["", "s900", "", "l"].map(|script| Seen::Message(script.into()));
    assert_eq!(messages, scripts);
    let image = stage.store.load(segment(&stage), b"a").await.unwrap();
    assert_eq!((image.messages.count, image.timers.len()), (0, 0));
    client.unsubscribe().await.unwrap();
    assert_eq!(stage.world.committed_sum(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_replaced_without_knowing_writes_nothing() {
    let mut stage = Stage::new(1);
    // The first owner's batch hangs until its partition belongs to the second.
    let (hold, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::clone(&hold), Arc::clone(&held));
    let plain = Arc::clone(&stage.store);
    faulty(&mut stage, move |statement| {
        if statement.name == "commit" && gate.load(Ordering::Relaxed) {
            count.fetch_add(1, Ordering::Relaxed);
            return Fault::Delay(Duration::from_secs(20));
        }
        Fault::None
    });
    let (builder, doors) = stage.process();
    let first = builder.configure(|o| o.session_timeout = Some(Duration::from_secs(6))).build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    stage.send(&first, "a", "s2").await;
    stage.world.until("it fired", || stage.fired().len() == 1).await;
    hold.store(true, Ordering::Relaxed);
    stage.send(&first, "a", "s100|s100").await;
    stage.world.until("its batch is under way", || held.load(Ordering::Relaxed) == 1).await;
    // Its heartbeats stop, and nothing else.
    stage.store = plain;
    let second = stage.client();
    let unheard = prosody_testkit::broker::Match::api(prosody_testkit::broker::ApiKey::HEARTBEAT);
    let forgotten = prosody_testkit::broker::code::UNKNOWN_MEMBER_ID;
    stage.world.cluster.control().on(unheard.times(1), prosody_testkit::broker::Action::Error(forgotten));
    second.subscribe(stage.handler()).await.unwrap();
    stage.until_second(200).await;
    assert_eq!(stage.fired().iter().filter(|(at, _)| *at == 100).count(), 1, "{:?}", stage.entries());
    let messages =
        stage.entries().into_iter().filter(|entry| entry.seen == Seen::Message("s100|s100".into()));
    assert!(messages.count() <= 2);
    second.unsubscribe().await.unwrap();
    first.unsubscribe().await.unwrap();
    drop(doors);
    assert_eq!((stage.overlaps(), stage.world.committed_sum()), (0, 2));
}

/// One bound over all partitions, in bytes; what does not fit is read again, and what was given up is dropped.
#[tokio::test(start_paused = true)]
async fn records_in_memory_share_one_bound_over_all_partitions() {
    for (size, fits) in [(Some("64KiB"), false), (None, true)] {
        let mut stage = Stage::new(4);
        let statements = stage.watch_store(|_| Fault::None);
        let bound = |options: &mut prosody_runtime::Options| {
            if let Some(size) = size {
                options.set("StateOwnedCacheSize", size).unwrap();
            }
        };
        let client = stage.process().0.configure(bound).build().unwrap();
        let held = |client: &prosody_runtime::Client| {
            let metrics = client.metrics();
            let sample =
                metrics.samples.iter().find(|sample| sample.metric.name == "prosody_owned_cache_bytes");
            match sample.unwrap().value {
                prosody_runtime::Value::Number(bytes) => bytes as usize,
                _ => panic!("a gauge"),
            }
        };
        client.subscribe(stage.handler()).await.unwrap();
        for round in ["s9000", "l"] {
            for key in 0..400 {
                stage.send(&client, &format!("key-{key}"), round).await;
                assert!(fits || held(&client) <= 64 << 10, "{}", held(&client));
            }
            let expected = if round == "l" { 800 } else { 400 };
            stage.world.until("the round", || stage.messages() == expected).await;
            let [load, commit] = statements.take(["load", "commit"]);
            match (round, fits) {
                ("s9000", _) => assert_eq!(commit, 400),
                (_, true) => assert_eq!((load, commit), (0, 0)),
                (_, false) => assert!(load > 200, "{load}"),
            }
        }
        let full = held(&client);
        assert!(if fits { full > 150_000 } else { (48 << 10..=64 << 10).contains(&full) }, "{full}");
        let other = stage.client();
        other.subscribe(stage.handler()).await.unwrap();
        stage.world.until("half of them move", || other.assigned_partitions() == 2).await;
        stage.until_second(stage.now() / 1_000 + 5).await;
        assert!(held(&client) < full * 3 / 4, "{} of {full}", held(&client));
        other.unsubscribe().await.unwrap();
        client.unsubscribe().await.unwrap();
    }
}
