//! What ends deferral, and what bounds it.

use crate::stage::{Seen, Stage};
use crate::timers_store::late_batch;
use crate::world::{Said, set};

/// The messages for which the handler was called, in order.
fn called(stage: &Stage) -> Vec<String> {
    let seen = stage.entries().into_iter().map(|entry| entry.seen);
    let texts = seen.filter_map(|seen| if let Seen::Message(text) = seen { Some(text) } else { None });
    texts.collect()
}

/// The log lost what was set aside, and gave its offset to a record of another key, or of a newer leader.
#[tokio::test(start_paused = true)]
async fn what_took_the_place_of_a_deferred_record_does_not_run_in_its_stead() {
    for (key, newer_leader) in [("b", false), ("a", true)] {
        let (said, _listening) = Said::listen();
        let stage = Stage::new(1);
        if newer_leader {
            stage.world.cluster.move_leader("t", 0, 1);
        }
        let client = stage.client();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, key, "").await;
        stage.world.until("it ran", || stage.messages() == 1).await;
        // A message of key `a`, at offset 0 in epoch 0.
        late_batch(&stage, &[0], None).await;
        stage.send(&client, "c", "s900").await;
        stage.world.until("records are looked for", || stage.messages() == 2).await;
        stage.send(&client, "a", "w0").await;
        stage.world.until("what came behind it", || stage.messages() == 3).await;
        stage.until_second(stage.now() / 1_000 + 30).await;
        assert_eq!(called(&stage), ["", "s900", "w0"], "{key}");
        assert_eq!(client.insight().deferred_gone, 1);
        let text = said.text();
        assert!(text.contains("another record is in its place"), "{text}");
        client.unsubscribe().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_has_a_hundred_thousand_messages_set_aside_at_most_and_the_next_one_waits_in_place() {
    for (entries, deferred) in [(99_999, 1), (100_000, 0)] {
        let stage = Stage::new(1);
        let client = stage.client();
        client.subscribe(stage.handler()).await.unwrap();
        stage.send(&client, "b", "").await;
        stage.world.until("it begins", || stage.messages() == 1).await;
        let offsets: Vec<i64> = (1..=entries).map(|n| n + 1_000_000).collect();
        late_batch(&stage, &offsets, None).await;
        stage.send(&client, "b", "s900").await;
        stage.world.until("records are looked for", || stage.messages() == 2).await;
        stage.send(&client, "a", "").await;
        stage.until_second(3).await;
        let insight = client.insight();
        assert_eq!((insight.deferred, stage.messages()), (deferred, 2), "{entries}");
        assert_eq!((insight.retries > 0, insight.given_up), (deferred == 0, 0), "{entries}");
        assert_eq!(stage.world.committed(0), Some(2 + deferred.cast_signed()), "{entries}");
        client.unsubscribe().await.unwrap();
    }
}

/// Their next events count as failed without having run. A share of failures that shuts the gate is one of handlers.
#[tokio::test(start_paused = true)]
async fn keys_that_take_all_the_time_do_not_shut_the_gate() {
    let stage = Stage::new(1);
    let options = [("MonopolizationWindow", "10s"), ("DeferFailureThreshold", "0.3"), ("DeferBase", "60s")];
    let client = stage.process().0.configure(set(&options)).build().unwrap();
    for key in 0..25 {
        stage.send(&client, &format!("k{key}"), "w9.5").await;
        stage.send(&client, &format!("k{key}"), "w0").await;
    }
    client.subscribe(stage.handler()).await.unwrap();
    stage.world.until("all second ones are set aside", || client.insight().deferred == 25).await;
    let insight = client.insight();
    assert_eq!((insight.monopolies, insight.retries, stage.messages()), (25, 0, 25));
    stage.world.until("they run", || stage.messages() == 50).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_for_a_record_has_no_timers_and_is_retried_in_place() {
    let (said, _listening) = Said::listen();
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    let (longest, longer) = ("k".repeat(32 * 1_024), "k".repeat(32 * 1_024 + 1));
    stage.send(&client, &longest, "s3").await;
    stage.send(&client, &longer, "x|x|s3").await;
    stage.world.until("both are done", || stage.world.committed(0) == Some(2)).await;
    stage.world.until("the timer of the one", || stage.fired().len() == 1).await;
    let insight = client.insight();
    assert_eq!((insight.retries, insight.deferred, insight.given_up), (2, 0, 1));
    assert!(said.text().contains("key has more than 32768 bytes"));
    client.unsubscribe().await.unwrap();
}
