//! Which partitions are ours, and who reads them?

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::{Lane, Task, sabotaged, watch};
use prosody_wire::fetch::StartAt;
use prosody_wire::group::{AssignedPartition, AssignmentEpoch};
use prosody_wire::{TopicId, TopicPartition};
use tracing::warn;

use super::{Inner, durable};
use crate::partition::offset_map::OffsetMap;
use crate::partition::offsets::Offsets;
use crate::partition::reader;
use crate::partition::runtime::Partition;
use crate::partition::window::Window;

/// Numbers partitions of the whole process, each assignment anew.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The names of a client's partitions, for those who follow them.
pub(crate) type Names = Vec<(Arc<str>, i32)>;

/// The partitions of one subscription.
pub(crate) struct Assignments(Mutex<Table>);

struct Table {
    ours: BTreeMap<TopicPartition, Ours>,
    names: Arc<watch::Sender<Names>>,
    /// Partitions that are being given up; the channel closes when that is done.
    leaving: BTreeMap<TopicPartition, watch::Receiver<()>>,
}

/// An assigned partition.
struct Ours {
    epoch: AssignmentEpoch,
    /// `None` until an earlier life of it in this process has ended.
    partition: Option<Arc<Partition>>,
    /// Reads it; ends when this is dropped.
    reader: Task<()>,
}

/// A partition taken out of the table, to be given up.
pub(crate) struct Leaving {
    pub(crate) epoch: AssignmentEpoch,
    pub(crate) partition: Arc<Partition>,
    /// Dropped when it is done.
    _done: watch::Sender<()>,
}

/// Begins to read an assigned partition, once an earlier life of it in this process has ended.
pub(super) fn open(inner: &Arc<Inner>, epoch: AssignmentEpoch, assigned: AssignedPartition) {
    let tp = assigned.tp.clone();
    let mut table = inner.assignments.lock();
    let leaving = table.leaving.get(&tp).cloned();
    let reading = {
        let (inner, tp) = (Arc::clone(inner), tp.clone());
        async move {
            if let Some(mut leaving) = leaving.filter(|_| !sabotaged("one-life")) {
                // Two lives of one partition must not run events of one key at the same time.
                while leaving.changed().await.is_ok() {}
            }
            let (start, offsets) = begin(inner.wire.topic_id(&tp.topic), &assigned);
            let window = Window::new(offsets, inner.config.max_uncommitted, inner.doors.rng.next_u64())
                .within(inner.copies.of_another());
            let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
            let committed = assigned.committed.as_ref().map(|committed| committed.offset);
            let durable = durable::acquire(&inner, &tp, id, committed).await;
            let partition = Partition::new(id, tp.clone(), window, inner.shared.clone(), durable.clone());
            if !inner.assignments.start(&tp, epoch, &partition) {
                return;
            }
            let fetching = inner.fetcher.open(tp, start);
            let (pipeline, clock) = (Arc::clone(&inner.pipeline), inner.doors.clock.clone());
            let reading = reader::read(Arc::clone(&partition), fetching, pipeline, clock);
            match durable {
                None => reading.await,
                Some(durable) => {
                    let firing = Arc::clone(durable.timers()).drive(|due| partition.fire(due));
                    tokio::join!(reading, firing);
                }
            }
        }
    };
    let reader = inner.doors.spawner.spawn(Lane::Work, reading);
    table.ours.insert(tp, Ours { epoch, partition: None, reader });
    table.publish();
}

/// Where reading begins, and what is finished from there on.
fn begin(topic: Option<TopicId>, assigned: &AssignedPartition) -> (StartAt, Offsets) {
    let Some(committed) = &assigned.committed else {
        return (StartAt::Earliest, Offsets::new(OffsetMap::empty(topic, 0), -1));
    };
    let (offset, leader_epoch) = (committed.offset, committed.leader_epoch.unwrap_or(-1));
    let map = OffsetMap::decode(&committed.metadata, topic, offset).unwrap_or_else(|why| {
        warn!(
            partition = %assigned.tp,
            offset,
            "the metadata of a committed offset is ignored, records finished above it may come again: {why}"
        );
        OffsetMap::empty(topic, offset)
    });
    (StartAt::Offset { offset, leader_epoch }, Offsets::new(map, leader_epoch))
}

impl Assignments {
    /// Tells `names` of every change.
    pub(crate) fn new(names: Arc<watch::Sender<Names>>) -> Assignments {
        Assignments(Mutex::new(Table { ours: BTreeMap::new(), names, leaving: BTreeMap::new() }))
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().ours.len()
    }

    /// Stops reading partitions and takes them out, to be given up.
    pub(crate) fn take(&self, partitions: &[TopicPartition]) -> Vec<Leaving> {
        let mut table = self.lock();
        let taken = partitions.iter().filter_map(|tp| table.take(tp)).collect();
        table.publish();
        taken
    }

    /// [`take`](Assignments::take) of all.
    pub(crate) fn take_all(&self) -> Vec<Leaving> {
        let mut table = self.lock();
        let all: Vec<TopicPartition> = table.ours.keys().cloned().collect();
        let taken = all.iter().filter_map(|tp| table.take(tp)).collect();
        table.publish();
        taken
    }

    /// Waits until everything that was being given up is.
    pub(crate) async fn all_left(&self) {
        let leaving: Vec<_> = self.lock().leaving.values().cloned().collect();
        for mut leaving in leaving {
            while leaving.changed().await.is_ok() {}
        }
    }

    /// Partitions that are read, with the epoch of their assignment.
    pub(crate) fn open_partitions(&self) -> Vec<(AssignmentEpoch, Arc<Partition>)> {
        let table = self.lock();
        let open =
            table.ours.values().filter_map(|ours| Some((ours.epoch, Arc::clone(ours.partition.as_ref()?))));
        open.collect()
    }

    /// Makes a partition known to the table; `false` when it was taken away meanwhile.
    fn start(&self, tp: &TopicPartition, epoch: AssignmentEpoch, partition: &Arc<Partition>) -> bool {
        let mut table = self.lock();
        match table.ours.get_mut(tp) {
            Some(ours) if ours.epoch == epoch => {
                ours.partition = Some(Arc::clone(partition));
                true
            }
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn publish(&self) {
        let names = self.ours.keys().map(|tp| (Arc::clone(&tp.topic), tp.partition)).collect();
        self.names.send_replace(names);
    }

    fn take(&mut self, tp: &TopicPartition) -> Option<Leaving> {
        let Ours { epoch, partition, reader, .. } = self.ours.remove(tp)?;
        drop(reader);
        let partition = partition?;
        // Nothing may start from here on, whoever gets to drain it when.
        partition.drain();
        let (done, leaving) = watch::channel(());
        self.leaving.retain(|_, leaving| leaving.has_changed().is_ok());
        self.leaving.insert(tp.clone(), leaving);
        Some(Leaving { epoch, partition, _done: done })
    }
}
