//! What never reaches a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prosody_runtime::{Context, Handler, HandlerError, Message};

use crate::world::{Call, Diary, Said, Script, World, quick, sleepy};

#[tokio::test(start_paused = true)]
async fn records_that_are_no_messages_are_counted_and_passed() {
    let (said, _listening) = Said::listen();
    let world = World::new(&[("t", 1)]);
    let records: [(Option<&[u8]>, Option<&[u8]>); 6] = [
        (None, Some(b"{}")),
        (Some(b"\xff\xfe"), Some(b"{}")),
        (Some(b"k"), Some(b"not json")),
        (Some(b"k"), Some(b"")),
        (Some(b"k"), Some(b"{\"n\":1}")),
        (Some(b"k"), Some(b"null")),
    ];
    world.cluster.append("t", 0, &records).unwrap();
    let (client, diary) = (world.client(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("all committed", || world.committed_sum() == 6).await;
    assert_eq!(diary.payloads(), ["{\"n\":1}", "null"]);
    assert_eq!(client.insight().poison, 4);
    client.unsubscribe().await.unwrap();
    let said = said.text();
    let whys =
        ["it has no key", "its key is not UTF-8", "its payload is not JSON", "its payload is not JSON"];
    for (offset, why) in whys.iter().enumerate() {
        let place = format!("topic=\"t\" partition=0 offset={offset} key=");
        let told =
            |line: &&str| line.contains(&place) && line.contains("is no message") && line.contains(why);
        assert_eq!(said.lines().filter(told).count(), 1, "offset {offset}: {said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_its_handler_cannot_read_is_poison_only_when_it_is_not_json() {
    let world = World::new(&[("t", 1)]);
    let records: [(Option<&[u8]>, Option<&[u8]>); 2] =
        [(Some(b"a"), Some(b"{\"n\":1,\"x\":nope}")), (Some(b"b"), Some(b"{\"n\":\"one\"}"))];
    world.cluster.append("t", 0, &records).unwrap();
    let (client, diary) = (world.client(), Diary::default());
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let handler = Script {
        diary: diary.clone(),
        play: move |_, call: Call| {
            let retried = call.key == "b" && counted.fetch_add(1, Ordering::Relaxed) > 0;
            async move { if retried { Ok(()) } else { Err(HandlerError::transient("wrong shape").unreadable()) } }
        },
    };
    client.subscribe(handler).await.unwrap();
    world.until("all committed", || world.committed_sum() == 2).await;
    assert_eq!((client.insight().poison, client.insight().failed_attempts), (1, 1));
    assert_eq!(diary.started().len(), 3, "the scan does not see that `nope` is no JSON; the handler does");
    client.unsubscribe().await.unwrap();
}

struct Tombstones(Arc<AtomicUsize>);

impl Handler for Tombstones {
    async fn on_message(&self, _: Context, _: Message) -> Result<(), HandlerError> {
        Err(HandlerError::permanent("a tombstone is no message"))
    }
    async fn on_tombstone(&self, _: Context, message: Message) -> Result<(), HandlerError> {
        assert!(message.is_tombstone() && message.payload().is_empty() && message.key() == "k");
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_has_a_method_of_its_own() {
    let world = World::new(&[("t", 1)]);
    world.cluster.append("t", 0, &[(Some(b"k"), None)]).unwrap();
    let (client, seen) = (world.client(), Arc::new(AtomicUsize::new(0)));
    client.subscribe(Tombstones(Arc::clone(&seen))).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    let insight = client.insight();
    assert_eq!((seen.load(Ordering::Relaxed), insight.tombstones, insight.permanent_errors), (1, 1, 0));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_passed_by_handlers_that_have_no_method_for_it() {
    let world = World::new(&[("t", 1)]);
    world.cluster.append("t", 0, &[(Some(b"k"), None), (Some(b"k"), Some(b"{}"))]).unwrap();
    let (client, diary) = (world.client(), Diary::default());
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("committed", || world.committed_sum() == 2).await;
    let insight = client.insight();
    assert_eq!((diary.payloads(), insight.tombstones), (vec!["{}".to_owned()], 1));
    assert_eq!((insight.poison, insight.given_up, insight.failed_attempts), (0, 0, 0));
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_own_group_sent_is_skipped_and_what_others_sent_is_not() {
    let world = World::new(&[("t", 1)]);
    let own = world.builder().configure(|o| o.source_system = None).build().unwrap();
    assert_eq!(own.source_system(), "g");
    let (other, diary) = (world.client(), Diary::default());
    own.send("t", "k", b"{\"own\":1}").await.unwrap();
    other.send("t", "k", b"{\"own\":0}").await.unwrap();
    other.subscribe(quick(&diary)).await.unwrap();
    world.until("committed", || world.committed_sum() == 2).await;
    assert_eq!((diary.payloads(), other.insight().skipped_own), (vec!["{\"own\":0}".to_owned()], 1));
    let log = world.cluster.log("t", 0);
    let sources: Vec<_> = log.iter().map(|record| record.headers.clone()).collect();
    assert_eq!(sources.len(), 2);
    assert!(format!("{sources:?}").contains("source-system"));
    other.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_wanted_types_are_handled_and_what_has_none_is() {
    let world = World::new(&[("t", 1)]);
    let client = world.builder().allowed_events(["user.", "account."]).build().unwrap();
    let diary = Diary::default();
    for payload in [
        r#"{"type":"user.created"}"#,
        r#"{"type":"account.deleted"}"#,
        r#"{"type":"admin.user.created"}"#,
        r#"{"type":"my.account.deleted"}"#,
        r#"{"type":"notification"}"#,
        r#"{"kind":"user.created"}"#,
        r#"{"type":7}"#,
    ] {
        client.send("t", "k", payload.as_bytes()).await.unwrap();
    }
    client.subscribe(quick(&diary)).await.unwrap();
    world.until("committed", || world.committed_sum() == 7).await;
    assert_eq!(
        diary.payloads(),
        [
            r#"{"type":"user.created"}"#,
            r#"{"type":"account.deleted"}"#,
            r#"{"kind":"user.created"}"#,
            r#"{"type":7}"#
        ]
    );
    assert_eq!(client.insight().skipped_type, 3);
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_id_is_processed_once_for_each_key_also_when_two_wait_at_once() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    for (key, payload) in [
        ("key1", r#"{"id":"msg-123","n":1}"#),
        ("key1", r#"{"id":"msg-123","n":2}"#),
        ("key2", r#"{"id":"msg-123","n":3}"#),
        ("key1", r#"{"id":"msg-124","n":4}"#),
        ("key1", r#"{"id":7,"n":5}"#),
        ("key1", r#"{"id":7,"n":6}"#),
        ("key1", r#"{"n":7}"#),
        ("key1", r#"{"n":7}"#),
    ] {
        client.send("t", key, payload.as_bytes()).await.unwrap();
    }
    client.subscribe(sleepy(&diary, &world.clock, Duration::from_secs(1))).await.unwrap();
    world.until("committed", || world.committed_sum() == 8).await;
    let mut handled = diary.payloads();
    handled.sort();
    assert_eq!(handled.len(), 6);
    assert!(handled.iter().all(|payload| !payload.contains("\"n\":2") && !payload.contains("\"n\":6")));
    assert_eq!(client.insight().duplicates, 2);
    client.unsubscribe().await.unwrap();
}

/// Without a store, too: ids are the client's, not a partition's.
#[tokio::test(start_paused = true)]
async fn ids_outlive_rebalances_and_subscriptions_and_the_newest_are_known() {
    let world = World::new(&[("t", 2)]);
    let client = world.builder().configure(|o| o.idempotence_cache_size = Some(2)).build().unwrap();
    let (diary, other) = (Diary::default(), world.client());
    let mut sent = 0;
    client.subscribe(quick(&diary)).await.unwrap();
    for (id, duplicates) in [("a", 0), ("a", 1), ("b", 1), ("a", 2), ("c", 2), ("a", 2)] {
        client.send("t", "k", format!(r#"{{"id":"{id}"}}"#).as_bytes()).await.unwrap();
        sent += 1;
        world.until("it is done", || world.committed_sum() == sent).await;
        assert_eq!(client.insight().duplicates, duplicates, "{id}, which is number {sent}");
        if sent == 1 {
            // One partition goes and comes back, and then both.
            other.subscribe(quick(&Diary::default())).await.unwrap();
            world.until("one went", || other.assigned_partitions() == 1).await;
            other.unsubscribe().await.unwrap();
            world.until("it is back", || client.assigned_partitions() == 2).await;
            client.unsubscribe().await.unwrap();
            client.subscribe(quick(&diary)).await.unwrap();
        }
    }
    assert_eq!(diary.ended().len(), 4, "a, b, c, and a once more");
    client.unsubscribe().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_does_not_make_its_retry_a_duplicate() {
    let world = World::new(&[("t", 1)]);
    let (client, diary) = (world.client(), Diary::default());
    client.send("t", "k", br#"{"id":"a"}"#).await.unwrap();
    let attempts = AtomicUsize::new(0);
    let handler = Script {
        diary: diary.clone(),
        play: move |_, _| {
            let failed = attempts.fetch_add(1, Ordering::Relaxed) == 0;
            async move { if failed { Err(HandlerError::transient("not now")) } else { Ok(()) } }
        },
    };
    client.subscribe(handler).await.unwrap();
    world.until("committed", || world.committed_sum() == 1).await;
    assert_eq!((diary.ended().len(), client.insight().duplicates), (1, 0));
    client.unsubscribe().await.unwrap();
}
