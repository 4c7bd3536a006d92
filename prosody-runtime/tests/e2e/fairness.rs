//! Who gets the permits when more is ready than may run.

use std::time::Duration;

use prosody_runtime::{Context, HandlerError};

use crate::world::{Call, Diary, Script, World};

/// A handler that takes 100 ms for the key `hot` and 10 ms for others, and fails for keys that start with `bad`.
fn mixed(world: &World, diary: &Diary) -> Script<impl Fn(Context, Call) -> Running + Send + Sync + 'static> {
    let clock = world.clock.clone();
    let play = move |_: Context, call: Call| -> Running {
        let clock = clock.clone();
        Box::pin(async move {
            let takes = if call.key == "hot" { 100 } else { 10 };
            clock.sleep(Duration::from_millis(takes)).await;
            if call.key.starts_with("bad") { Err(HandlerError::transient("again")) } else { Ok(()) }
        })
    };
    Script { diary: diary.clone(), play }
}

type Running = std::pin::Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

async fn send(world: &World, keys: impl Iterator<Item = String>) {
    let client = world.client();
    let mut sent = Vec::new();
    let keys: Vec<String> = keys.collect();
    keys.iter().for_each(|key| sent.push(client.send("t", key, b"{}")));
    for sent in sent {
        sent.await.unwrap();
    }
}

fn ended(diary: &Diary, prefix: &str) -> usize {
    diary.ended().iter().filter(|call| call.key.starts_with(prefix)).count()
}

fn started(diary: &Diary, prefix: &str) -> usize {
    diary.started().iter().filter(|call| call.key.starts_with(prefix)).count()
}

#[tokio::test(start_paused = true)]
async fn short_keys_go_on_beside_one_of_long_handlers() {
    let world = World::new(&[("t", 1)]);
    let diary = Diary::default();
    let key = |n: usize| if n.is_multiple_of(10) { "hot".to_owned() } else { format!("short-{n}") };
    send(&world, (0..200).map(key)).await;
    let client = world.builder().max_concurrency(1).configure(|o| o.max_uncommitted = Some(16));
    let client = client.build().unwrap();
    client.subscribe(mixed(&world, &diary)).await.unwrap();
    world.until("the short ones", || ended(&diary, "short") == 180).await;
    // In the order in which they became ready, the hot key would have run once for every ten or so.
    let hot = started(&diary, "hot");
    assert!((1..=3).contains(&hot), "{hot}");
    world.until("everything", || world.committed_sum() == 200).await;
    assert!(diary.in_order() && diary.most_running() == 1);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn first_attempts_go_on_beside_many_retries() {
    // Three tenths of all: 340 first attempts beside 146 retries. In turn there would be about 500.
    let retries = retries_beside_first_attempts("").await;
    assert!((110..=185).contains(&retries), "{retries}");
    // Seven tenths: beside 793.
    let retries = retries_beside_first_attempts("0.7").await;
    assert!((640..=900).contains(&retries), "{retries}");
}

async fn retries_beside_first_attempts(weight: &str) -> usize {
    let world = World::new(&[("t", 1)]);
    let diary = Diary::default();
    let key = |n: usize| if n < 40 { format!("bad-{n}") } else { format!("good-{n}") };
    send(&world, (0..340).map(key)).await;
    let client = world.builder().max_concurrency(2).configure(|o| {
        (o.retry_base, o.max_retry_delay) = (Some(Duration::from_millis(1)), Some(Duration::from_millis(2)));
        o.set("SchedulerFailureWeight", weight).unwrap();
    });
    let client = client.build().unwrap();
    client.subscribe(mixed(&world, &diary)).await.unwrap();
    world.until("the good ones", || ended(&diary, "good") == 300).await;
    let retries = started(&diary, "bad") - 40;
    client.unsubscribe().await.unwrap();
    retries
}
