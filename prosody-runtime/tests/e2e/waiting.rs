//! What an operator sees of events that wait in the store: how many, and for how long.

use std::time::Duration;

use crate::stage::{Seen, Stage};
use crate::world::set;

/// The messages of a key whose handler returned ok, in order.
fn texts(stage: &Stage, key: &str) -> Vec<String> {
    let ended = stage.entries().into_iter().filter(|entry| entry.key == key && entry.ended);
    let texts = ended.filter_map(|entry| match entry.seen {
        Seen::Message(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(start_paused = true)]
async fn deferred_keys_and_the_oldest_are_counted_while_there_are_any() {
    let stage = Stage::new(1);
    let client = stage.process().0.configure(set(&[("DeferBase", "60s")])).build().unwrap();
    let seen = |client: &prosody_runtime::Client| {
        let status = client.partitions().remove(0);
        (status.deferred_keys, status.oldest_deferred.map(|age| age.as_secs()))
    };
    client.subscribe(stage.handler()).await.unwrap();
    stage.send(&client, "c", "").await;
    stage.world.until("it begins", || stage.world.committed(0) == Some(1)).await;
    assert_eq!(seen(&client), (0, None));
    stage.send(&client, "a", "x|x|").await;
    stage.send(&client, "a", "w0").await;
    stage.world.until("the first", || seen(&client) == (1, Some(0))).await;
    stage.until_second(20).await;
    stage.on_fire("b", 20, "x|");
    stage.send(&client, "b", "s20").await;
    stage.world.until("a timer", || seen(&client).0 == 2).await;
    stage.until_second(40).await;
    let text = prosody_runtime::prometheus_text(&[client.metrics()]);
    let line = |name: &str| {
        let name = format!("prosody_partition_{name}{{");
        let line = text.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(line("deferred_keys"), 2.0);
    assert!((38.0..41.0).contains(&line("deferred_oldest_seconds")), "{text}");
    // An owner that comes later meets a key when its next event or retry comes.
    client.unsubscribe().await.unwrap();
    let next = stage.process().0.configure(set(&[("DeferBase", "60s")])).build().unwrap();
    next.subscribe(stage.handler()).await.unwrap();
    stage.send(&next, "a", "w0").await;
    stage.world.until("it is met", || seen(&next).0 == 1).await;
    stage.world.until("its first failed again", || seen(&next).1.is_some_and(|age| age > 60)).await;
    stage.world.until_within(Duration::from_secs(400), "all", || seen(&next) == (0, None)).await;
    assert_eq!(texts(&stage, "a"), ["x|x|", "w0", "w0"]);
    next.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn due_timers_and_the_oldest_overdue_are_counted_also_while_they_run() {
    let stage = Stage::new(1);
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.on_fire("a", 5, "w100");
    stage.send(&client, "a", "s5 s10 s9000").await;
    stage.until_second(30).await;
    let status = client.partitions().remove(0);
    let overdue = status.timers_overdue.map(|time| time.as_secs());
    assert_eq!((status.timers_due, overdue, status.timers_resident), (2, Some(25), 2));
    let text = prosody_runtime::prometheus_text(&[client.metrics()]);
    assert!(text.contains("timers_overdue_seconds{client"), "{text}");
    stage.world.until("both", || stage.fired().len() == 2).await;
    stage.until_second(stage.now() / 1_000 + 1).await;
    let status = client.partitions().remove(0);
    assert_eq!((status.timers_due, status.timers_overdue), (0, None));
    client.unsubscribe().await.unwrap();
}
