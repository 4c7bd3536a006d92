//! Ids that a store remembers: for other processes, for a time, and only what need not run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prosody_runtime::{Mode, Options};
use prosody_state::{Fault, Statement};

use crate::stage::Stage;
use crate::world::set;

fn no_fault(_: Statement) -> Fault {
    Fault::None
}

/// Fails one statement, while it is on.
fn switch(name: &'static str, fault: Fault) -> (Arc<AtomicBool>, impl Fn(Statement) -> Fault) {
    let on = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&on);
    (on, move |statement| match asked.load(Ordering::Relaxed) && statement.name == name {
        true => fault,
        false => Fault::None,
    })
}

const READS_AND_WRITES: [&str; 4] = ["load", "seen", "commit", "remember"];

#[tokio::test(start_paused = true)]
async fn an_id_is_processed_once_by_all_processes_until_its_time_is_over_or_its_version_another() {
    let stage = Stage::new(1);
    let (mut sent, mut ran) = (0, 0);
    for (version, wait, key, id, runs) in [
        ("1", 0, "a", "x", true),
        ("1", 0, "a", "x", false),
        ("1", 0, "b", "x", true),
        ("1", 0, "a", "y", true),
        ("2", 0, "a", "x", true),
        ("1", 3_500, "a", "x", false),
        ("1", 200, "a", "x", true),
    ] {
        stage.until_second(stage.now() / 1_000 + wait).await;
        let options = |options: &mut Options| {
            options.set("IdempotenceVersion", version).unwrap();
            options.set("IdempotenceTtl", "1h").unwrap();
        };
        let client = stage.process().0.configure(options).build().unwrap();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send_as(&client, key, id, "").await;
        (sent, ran) = (sent + 1, ran + usize::from(runs));
        stage.world.until("it is done", || stage.world.committed_sum() == sent).await;
        let said = (stage.messages(), client.insight().duplicates);
        assert_eq!(said, (ran, u64::from(!runs)), "{version} {key} {id} after {wait} s");
        client.unsubscribe().await.unwrap();
    }
}

/// What an id costs: one question and one note, and a duplicate that memory knows nothing at all.
#[tokio::test(start_paused = true)]
async fn an_id_costs_one_read_beside_that_of_the_record_and_one_write() {
    let mut stage = Stage::new(1);
    let slow = |statement: Statement| match statement.name {
        "load" | "seen" | "commit" | "remember" => Fault::Delay(Duration::from_millis(500)),
        _ => Fault::None,
    };
    let statements = stage.watch_store(slow);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    let mut sent = 0;
    // Statements, and how many of them wait for another: the second case reads the record of a key and asks for the id at
    // the same time, as the segment has records from then on.
    for (key, id, script, expected, trips) in [
        ("a", "1", "s9000", [0, 1, 1, 1], 3),
        ("b", "1", "", [1, 1, 0, 1], 2),
        ("b", "1", "", [0, 0, 0, 0], 0),
        ("b", "2", "", [0, 1, 0, 1], 2),
        ("b", "2", "", [0, 0, 0, 0], 0),
    ] {
        let before = stage.now();
        stage.send_as(&client, key, id, script).await;
        sent += 1;
        stage.world.until("it is done", || stage.world.committed_sum() == sent).await;
        let waited = stage.now() - before;
        assert_eq!(statements.take(READS_AND_WRITES), expected, "{key} {id}");
        assert!((trips * 500..trips * 500 + 1_400).contains(&waited), "{key} {id}: {waited} ms");
    }
    stage.send(&client, "b", "").await;
    stage.world.until("without an id", || stage.world.committed_sum() == sent + 1).await;
    assert_eq!(statements.take(READS_AND_WRITES), [0, 0, 0, 0]);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_that_wait_at_once_are_judged_one_after_the_other_also_when_the_store_is_slow() {
    let mut stage = Stage::new(1);
    stage.watch_store(|statement| match statement.name {
        "seen" | "remember" => Fault::ApplyThenDelay(Duration::from_millis(300)),
        _ => Fault::None,
    });
    let client = stage.process().0.configure(set(&[("IdempotenceCacheSize", "1")])).build().unwrap();
    for key in ["a", "b"] {
        for _ in 0..3 {
            stage.send_as(&client, key, "x", "w0.5").await;
        }
    }
    client.subscribe(stage.handler()).await.unwrap();
    stage.world.until("all", || stage.world.committed_sum() == 6).await;
    assert_eq!((stage.messages(), client.insight().duplicates), (2, 4));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_the_store_cannot_say_or_note_an_id_its_key_waits_and_no_offset_is_committed() {
    for name in ["seen", "remember"] {
        let mut stage = Stage::new(1);
        let (on, hook) = switch(name, Fault::Fail);
        stage.watch_store(hook);
        let client = stage.client();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send_as(&client, "a", "x", "").await;
        stage.send_as(&client, "a", "x", "").await;
        stage.send(&client, "b", "").await;
        stage.until_second(60).await;
        let ran = if name == "seen" { 1 } else { 2 };
        assert_eq!(
            (stage.messages(), stage.world.committed_sum()),
            (ran, 0),
            "{name}: the other key goes on"
        );
        assert!(client.partitions()[0].store_error.is_some());
        on.store(false, Ordering::Relaxed);
        stage.world.until("all", || stage.world.committed_sum() == 3).await;
        let insight = client.insight();
        assert_eq!((stage.messages(), insight.duplicates, insight.failed_attempts), (2, 1, 0), "{name}");
        client.unsubscribe().await.unwrap();
    }
}

/// Somebody sends it once more: it runs, unless it need not.
#[tokio::test(start_paused = true)]
async fn what_failed_for_a_time_or_went_to_the_failure_topic_runs_when_it_is_sent_again() {
    for (mode, topic, script, runs) in [
        (Mode::BestEffort, false, "x|", 2),
        (Mode::BestEffort, false, "p|", 1),
        (Mode::LowLatency, true, "p|", 2),
        (Mode::LowLatency, true, "x|x|x|x|", 5),
        (Mode::Pipeline, false, "p|", 1),
    ] {
        for memory in [false, true] {
            let stage = Stage::new(1);
            let builder = || {
                let builder = if memory { stage.world.builder() } else { stage.process().0 };
                let builder = builder.mode(mode).configure(set(&[("IdempotenceCacheSize", "2")]));
                if topic { builder.failure_topic("dead") } else { builder }
            };
            let mut client = builder().build().unwrap();
            client.subscribe(stage.handler()).await.unwrap();
            stage.send_as(&client, "a", "x", script).await;
            stage.world.until("the first", || stage.world.committed_sum() == 1).await;
            if !memory {
                client.unsubscribe().await.unwrap();
                client = builder().build().unwrap();
                client.subscribe(stage.handler()).await.unwrap();
            }
            stage.send_as(&client, "a", "x", script).await;
            stage.world.until("the second", || stage.world.committed_sum() == 2).await;
            assert_eq!(stage.entries().len(), runs, "{mode:?} {script} {memory}");
            client.unsubscribe().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_set_aside_is_remembered_when_it_has_run_and_not_before() {
    let stage = Stage::new(1);
    let client = stage.process().0.configure(set(&[("IdempotenceCacheSize", "1")])).build().unwrap();
    client.subscribe(stage.handler()).await.unwrap();
    stage.send_as(&client, "a", "x", "x|x|").await;
    stage.send_as(&client, "a", "x", "x|x|").await;
    stage.world.until("both are set aside", || stage.world.committed_sum() == 2).await;
    assert_eq!((stage.messages(), client.insight().duplicates), (0, 0));
    stage.world.until("the first has run", || stage.messages() == 1).await;
    stage.world.until("the second need not", || client.insight().duplicates == 1).await;
    client.unsubscribe().await.unwrap();
    let next = stage.client();
    next.subscribe(stage.handler()).await.unwrap();
    stage.send_as(&next, "a", "x", "").await;
    stage.world.until("it is done", || stage.world.committed_sum() == 3).await;
    stage.until_second(stage.now() / 1_000 + 100).await;
    assert_eq!((stage.messages(), stage.entries().len()), (1, 3));
    next.unsubscribe().await.unwrap();
}

/// A crash after the batch and before the id is noted: the record says that the message is done, and now its id is noted.
#[tokio::test(start_paused = true)]
async fn a_message_that_its_record_says_is_done_is_remembered() {
    let mut stage = Stage::new(1);
    let plain = Arc::clone(&stage.store);
    let (_, hook) = switch("remember", Fault::Hang);
    let statements = stage.watch_store(hook);
    let (builder, doors) = stage.process();
    let first = builder.configure(|o| o.session_timeout = Some(Duration::from_secs(6))).build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    stage.send_as(&first, "a", "x", "s9000").await;
    stage.until_second(5).await;
    assert_eq!(statements.take(READS_AND_WRITES), [0, 1, 1, 1]);
    assert_eq!(stage.world.committed(0), None);
    doors.spawner.kill();
    drop(first);
    stage.store = plain;
    let statements = stage.watch_store(no_fault);
    let second = stage.client();
    second.subscribe(stage.handler()).await.unwrap();
    stage.world.until("it is passed over", || second.insight().skipped_done == 1).await;
    assert_eq!(statements.take(READS_AND_WRITES), [1, 1, 0, 1]);
    stage.send_as(&second, "a", "x", "").await;
    stage.world.until("both", || stage.world.committed_sum() == 2).await;
    assert_eq!((stage.messages(), second.insight().duplicates), (1, 1));
    second.unsubscribe().await.unwrap();
}
