//! How does a partition get its segment of the store? It is acquired before the partition's first event.

use std::sync::Arc;
use std::time::Duration;

use prosody_state::{Category, SLAB_SECONDS, SegmentFacts, SegmentId, SegmentRow, Time};
use prosody_wire::TopicPartition;
use tracing::{error, info, warn};

use super::Inner;
use crate::durable::{Confirm, Durable, Owned, STATEMENT_TIMEOUT, unanswered};
use crate::pipeline::retry::Backoff;

/// Waits between attempts at a segment.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(10) };
/// Longest wait for the number of a topic's partitions.
const LOOK_UP: Duration = Duration::from_secs(10);

/// Acquires the segment of an assigned partition, however often that takes; dropped when the partition is taken away.
/// `number` is that of the assignment, `committed` what the group had committed by then. `None` without a store.
pub(super) async fn acquire(
    inner: &Arc<Inner>,
    tp: &TopicPartition,
    number: u64,
    committed: Option<i64>,
) -> Option<Arc<Durable>> {
    let store = inner.store.clone()?;
    let (clock, config) = (&inner.doors.clock, &inner.config);
    let cluster = inner.wire.cluster_id().unwrap_or_default();
    let group = config.group_id.as_deref().unwrap_or_default();
    let segment = SegmentId::new(&cluster, group, &tp.topic, tp.partition);
    let topic = inner.wire.topic_id(&tp.topic).map_or([0; 16], |id| id.0);
    let mut tries = 0;
    let (facts, row) = loop {
        let partitions = inner.wire.partition_count(&tp.topic, clock.now() + LOOK_UP).await.unwrap_or(0);
        let facts = SegmentFacts {
            topic,
            partition: tp.partition,
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            committed,
            slab_seconds: SLAB_SECONDS,
            now: Time::floor(clock.unix_millis()),
        };
        let answered = clock.until(clock.now() + STATEMENT_TIMEOUT, store.acquire(segment, facts)).await;
        match answered.unwrap_or_else(|_| Err(unanswered())) {
            Ok(row) => break (facts, row),
            Err(why) => {
                tries += 1;
                inner.counters.store_errors.one();
                let wait = AGAIN.wait(tries, inner.doors.rng.unit());
                if why.category() == Category::Transient {
                    warn!(partition = %tp, tries, "a partition waits for the store, which is asked again: {why}");
                    clock.sleep(wait).await;
                } else {
                    inner.counters.store_refusals.one();
                    error!(
                        partition = %tp,
                        tries,
                        "a partition is refused by the store, and no retry helps before it is repaired: {why}"
                    );
                    clock.sleep(AGAIN.max).await;
                }
            }
        }
    };
    if tries > 0 {
        info!(partition = %tp, "the store is back: the partition begins");
    }
    compare(tp, facts, row);
    let log = row.acquired(&facts).log();
    let owned = Owned {
        segment,
        row,
        topic,
        log,
        max_uncommitted: config.max_uncommitted,
        // It may have heard for the last time just before it lost the partition; then its handlers end, then its statements.
        late_for: config.session_timeout + config.shutdown_timeout + STATEMENT_TIMEOUT,
        idempotence_version: config.idempotence_version.clone(),
        idempotence_ttl: config.idempotence_ttl,
        number,
        images: Arc::clone(&inner.images),
        loader: inner.loader.clone(),
        pipeline: Arc::clone(&inner.pipeline),
    };
    let (weak, asked) = (Arc::downgrade(inner), tp.clone());
    let confirm: Confirm = Box::new(move || {
        let (inner, tp) = (weak.upgrade(), asked.clone());
        Box::pin(async move {
            match inner {
                Some(inner) => inner.commits.confirm(&inner, &tp).await,
                None => std::future::pending().await,
            }
        })
    });
    let counters = Arc::clone(&inner.counters);
    Some(Durable::new(store, inner.doors.clone(), counters, tp.clone(), owned, confirm))
}

/// What has changed since the segment was acquired last, and is to be known by those who changed it.
fn compare(tp: &TopicPartition, facts: SegmentFacts, row: SegmentRow) {
    if row.topic != facts.topic {
        return;
    }
    // Once for a topic: the first partition has one owner in the group.
    if tp.partition == 0 && row.partitions > 0 && row.partitions < facts.partitions {
        warn!(
            topic = &*tp.topic,
            from = row.partitions,
            to = facts.partitions,
            "a topic has more partitions than before: timers and deferred messages of a key stay with its old partition, \
             and are in no order with what is sent to its new one"
        );
    }
    // Without ids of topics, no offset means another topic, of which nothing is done.
    let is_new = facts.committed.is_none() && facts.topic == [0; 16];
    if row.committed.is_some() && facts.committed < row.committed && !is_new {
        let none = || "none".to_owned();
        warn!(
            partition = %tp,
            from = row.committed.map_or_else(none, |offset| offset.to_string()),
            to = facts.committed.map_or_else(none, |offset| offset.to_string()),
            "the committed offset of the group went back: messages that the store knows to be done are skipped all the \
             same; another IdempotenceVersion (PROSODY_IDEMPOTENCE_VERSION) has them processed again"
        );
    }
}
