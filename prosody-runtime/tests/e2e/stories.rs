//! What broke other engines of this kind, where no other test tells it already. `docs/rules.md` lists all of them.

use std::sync::Arc;
use std::time::Duration;

use prosody_runtime::HandlerError;
use tokio::sync::Barrier;

use crate::failures::failing;
use crate::world::{Diary, Script, World, quick, sleepy};

/// Elsewhere: queues were found by the key alone, so a key that was in use in one partition never ran in another.
#[tokio::test(start_paused = true)]
async fn one_key_in_two_topics_and_two_partitions_has_four_queues() {
    let world = World::new(&[("t", 2), ("u", 2)]);
    let client = world.builder().subscribed_topics(["t", "u"]).build().unwrap();
    let (diary, four) = (Diary::default(), Arc::new(Barrier::new(4)));
    for (topic, partition) in [("t", 0), ("t", 1), ("u", 0), ("u", 1)] {
        world
            .cluster
            .append(topic, partition, &[(Some(b"same"), Some(b"1")), (Some(b"same"), Some(b"2"))])
            .unwrap();
    }
    let meet = Script {
        diary: diary.clone(),
        play: move |_, _| {
            let four = Arc::clone(&four);
            async move {
                four.wait().await;
                Ok(())
            }
        },
    };
    client.subscribe(meet).await.unwrap();
    world.until("all eight, four at a time", || diary.ended().len() == 8).await;
    assert_eq!(diary.most_running(), 4, "and of each queue one");
    client.unsubscribe().await.unwrap();
}

/// Elsewhere: the queue of retries was ordered by a due time that changed while the entry was in it, so entries were
/// never found again and piled up. Here an event is in the queue once, under the time it was put there with.
#[tokio::test(start_paused = true)]
async fn a_message_that_fails_again_and_again_waits_once_and_never_twice() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    for key in ["a", "b", "c"] {
        world
            .cluster
            .append("t", 0, &[(Some(key.as_bytes()), Some(b"1")), (Some(key.as_bytes()), Some(b"2"))])
            .unwrap();
    }
    client
        .subscribe(failing(&diary, 12, |_| true, || Err(HandlerError::transient("not now"))))
        .await
        .unwrap();
    world.until_within(Duration::from_secs(3_600), "all six", || diary.ended().len() == 6).await;
    assert_eq!((diary.started().len(), diary.overlaps()), (6 * 13, 0));
    assert!(diary.in_order());
    world.until("all committed", || world.committed_sum() == 6).await;
    client.unsubscribe().await.unwrap();
    assert_eq!(diary.started().len(), 6 * 13, "nothing is left behind");
}

/// Elsewhere: a member that waited for its handlers during a revocation did not heartbeat, was removed as dead, and the
/// work it was waiting for ran a second time at the next owner.
#[tokio::test(start_paused = true)]
async fn a_member_that_drains_for_longer_than_its_session_stays_a_member() {
    let world = World::new(&[("t", 2)]);
    // Of the consumer protocol, whose session is the broker's to say.
    let session = Duration::from_secs(45);
    let member = || world.builder().configure(|o| o.shutdown_timeout = Some(8 * session)).build().unwrap();
    let (first, second, diary) = (member(), member(), Diary::default());
    first.subscribe(sleepy(&diary, &world.clock, 4 * session)).await.unwrap();
    world.until("both", || first.assigned_partitions() == 2).await;
    for partition in 0..2 {
        world.cluster.append("t", partition, &[(Some(b"slow"), Some(b"1"))]).unwrap();
    }
    world.until("both run", || diary.started().len() == 2).await;
    second.subscribe(quick(&diary)).await.unwrap();
    world.until_within(8 * session, "one moved", || second.assigned_partitions() == 1).await;
    assert_eq!(diary.ended().len(), 2, "the partition moved after its handler had ended");
    assert_eq!((first.insight().lost_partitions, first.assigned_partitions()), (0, 1));
    world.until("all committed", || world.committed_sum() == 2).await;
    assert_eq!(diary.started().len(), 2, "nothing ran twice");
    first.unsubscribe().await.unwrap();
    second.unsubscribe().await.unwrap();
}
