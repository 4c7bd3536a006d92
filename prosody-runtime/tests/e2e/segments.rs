//! What the next owner of a partition notices: somebody changed the topic, or the group's offsets.

use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::ClusterConfig;
use prosody_wire::{ClientConfig, PipeConnector};

use crate::handover::commit_as_another;
use crate::stage::Stage;
use crate::world::Said;

/// A process comes, owns all partitions and goes.
async fn comes_and_goes(stage: &Stage, partitions: usize) {
    let client = stage.client();
    client.subscribe(stage.handler()).await.unwrap();
    stage.world.until("all begin", || client.partitions().len() == partitions).await;
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_grew_is_warned_of_once() {
    let (said, _listening) = Said::listen();
    let stage = Stage::new(2);
    comes_and_goes(&stage, 2).await;
    comes_and_goes(&stage, 2).await;
    assert_eq!(said.text(), "");
    let config = ClientConfig::new(stage.world.cluster.bootstrap().split(','));
    let connector = Arc::new(PipeConnector(stage.world.cluster.network()));
    let wire = prosody_wire::Client::new(config, connector, Doors::simulated(98)).unwrap();
    let deadline = stage.clock.now() + Duration::from_secs(5);
    wire.admin().create_partitions("t", 4, deadline).await.unwrap();
    comes_and_goes(&stage, 4).await;
    comes_and_goes(&stage, 4).await;
    let said = said.text();
    let told = "more partitions than before";
    assert!(said.lines().count() == 1 && said.contains(told) && said.contains("from=2 to=4"), "{said}");
}

/// Messages that are done in the store are skipped, so who set the offset back to have them processed waits in vain.
#[tokio::test(start_paused = true)]
async fn an_offset_that_was_set_back_is_warned_of_once_with_what_helps() {
    let (said, _listening) = Said::listen();
    let stage = Stage::new(1);
    let client = stage.client();
    for _ in 0..10 {
        stage.send(&client, "a", "").await;
    }
    client.subscribe(stage.handler()).await.unwrap();
    stage.world.until("all", || stage.world.committed(0) == Some(10)).await;
    client.unsubscribe().await.unwrap();
    comes_and_goes(&stage, 1).await;
    assert_eq!(said.text(), "");
    commit_as_another(&stage.world, 4, "").await;
    comes_and_goes(&stage, 1).await;
    comes_and_goes(&stage, 1).await;
    let told = said.text();
    let what = ["went back", "from=\"10\" to=\"4\"", "PROSODY_IDEMPOTENCE_VERSION"];
    assert!(told.lines().count() == 1 && what.iter().all(|part| told.contains(part)), "{told}");
    // A topic that was made again is another one.
    stage.world.cluster.recreate_topic("t").unwrap();
    comes_and_goes(&stage, 1).await;
    assert_eq!(said.text(), told);
}

/// Its offsets begin anew. Without an id the topic looked like the old one, whose messages were done up to a greater offset.
#[tokio::test(start_paused = true)]
async fn messages_of_a_topic_that_was_made_again_are_new_also_where_topics_have_no_ids() {
    for release in ["2.1", "4.2"] {
        let stage = Stage::with(ClusterConfig::default().as_version(release), 1);
        for round in 1..=2 {
            let client = stage.client();
            client.subscribe(stage.handler()).await.unwrap();
            for at in ["s9000", "s9001", "s9002"] {
                stage.send(&client, "a", at).await;
            }
            stage.world.until("all ran", || stage.messages() == 3 * round).await;
            stage.world.until("committed", || stage.world.committed(0) == Some(3)).await;
            client.unsubscribe().await.unwrap();
            stage.world.cluster.recreate_topic("t").unwrap();
        }
    }
}

/// Where topics have no ids, too: a crash before the offset is committed repeats no effects.
#[tokio::test(start_paused = true)]
async fn what_is_done_is_done_also_where_topics_have_no_ids() {
    let stage = Stage::with(ClusterConfig::default().as_version("2.1"), 1);
    let (builder, doors) = stage.process();
    let first = builder.configure(|o| o.session_timeout = Some(Duration::from_secs(6))).build().unwrap();
    first.subscribe(stage.handler()).await.unwrap();
    stage.send(&first, "a", "s9000").await;
    stage.world.until("committed", || stage.world.committed(0) == Some(1)).await;
    stage.send(&first, "a", "s9001").await;
    stage.world.until("it ran", || stage.messages() == 2).await;
    assert_eq!(stage.world.committed(0), Some(1), "not yet");
    doors.spawner.kill();
    drop(first);
    let second = stage.client();
    second.subscribe(stage.handler()).await.unwrap();
    stage.world.until("committed", || stage.world.committed(0) == Some(2)).await;
    assert_eq!((stage.messages(), second.insight().skipped_done), (2, 1));
    second.unsubscribe().await.unwrap();
}
