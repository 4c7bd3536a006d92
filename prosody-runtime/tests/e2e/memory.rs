//! What handlers hold that run for long must not keep other keys from being read.

use std::time::Duration;

use prosody_runtime::{Client, Context, Handler};

use crate::world::{Call, Diary, Script, World, set};

/// A handler that never ends for keys that start with `stuck`, and at once for others.
fn stuck(world: &World, diary: &Diary) -> impl Handler {
    let clock = world.clock.clone();
    let play = move |_: Context, call: Call| {
        let clock = clock.clone();
        async move {
            while call.key.starts_with("stuck") {
                clock.sleep(Duration::from_secs(60)).await;
            }
            Ok(())
        }
    };
    Script { diary: diary.clone(), play }
}

async fn send(client: &Client, key: &str, len: usize) {
    let payload = format!(r#"{{"text":"{}"}}"#, "x".repeat(len));
    client.send("t", key, payload.as_bytes()).await.unwrap();
}

/// Each stuck message kept its batch of 900 kB, and a few of them held all the memory there is: the other keys of the
/// partition stood still. A message that may take long goes into a handler without its batch.
#[tokio::test(start_paused = true)]
async fn a_small_message_in_a_handler_does_not_hold_the_batch_it_came_in() {
    let world = World::new(&[("t", 1)]);
    let diary = Diary::default();
    for number in 0..24 {
        let (stuck, other) = (format!("stuck-{number}"), format!("other-{number}"));
        let large = format!("\"{}\"", "x".repeat(900_000));
        let records =
            [(Some(stuck.as_bytes()), Some(&b"1"[..])), (Some(other.as_bytes()), Some(large.as_bytes()))];
        world.cluster.append("t", 0, &records).unwrap();
    }
    let options = [("ShutdownTimeout", "1s"), ("FetchBufferSize", "8MiB")];
    let client = world.builder().configure(set(&options)).build().unwrap();
    client.subscribe(stuck(&world, &diary)).await.unwrap();
    world.until("everything else", || diary.ended().len() == 24).await;
    let _ = client.unsubscribe().await;
}

/// With many partitions the share of each is a mebibyte, and one message as large as that, in a handler that took minutes,
/// kept every other key of its partition waiting, with all other permits and nearly all memory free.
#[tokio::test(start_paused = true)]
async fn one_large_message_in_a_handler_does_not_stop_its_partition() {
    let world = World::new(&[("t", 20)]);
    let (diary, sender) = (Diary::default(), world.client());
    let client = world.builder().configure(set(&[("ShutdownTimeout", "1s")])).build().unwrap();
    client.subscribe(stuck(&world, &diary)).await.unwrap();
    send(&sender, "stuck", 1_000_000).await;
    world.until("it runs", || diary.most_running() == 1).await;
    for number in 0..100 {
        send(&sender, &format!("other-{number}"), 10).await;
    }
    world.until("everything else", || diary.ended().len() == 100).await;
    let _ = client.unsubscribe().await;
}
