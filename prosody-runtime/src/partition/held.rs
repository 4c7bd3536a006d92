//! Which keys do abandoned handlers of earlier assignments still hold?

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prosody_base::Instant;
use prosody_wire::TopicPartition;

use super::event::Position;
use super::keys::KeySlot;
use super::runtime::Partition;
use crate::schedule::gate::Running;

/// Keys whose abandoned handlers still run, over all subscriptions of a client. A partition that comes back lets each
/// such key wait until its old handler has ended, or two events of one key would overlap.
#[derive(Default)]
pub(crate) struct Held(Mutex<Vec<HeldKey>>);

struct HeldKey {
    tp: TopicPartition,
    key: bytes::Bytes,
    position: Position,
    /// When its handler started.
    since: Instant,
    /// Who holds it: a partition that was given up, and the slot there.
    by: (u64, KeySlot),
    /// Who waits for it.
    blocked: Option<(Arc<Partition>, KeySlot)>,
}

impl Held {
    pub(super) fn hold(&self, tp: &TopicPartition, running: &Running, key: &[u8]) {
        let (tp, key) = (tp.clone(), bytes::Bytes::copy_from_slice(key));
        let (position, since, by) = (running.position, running.since, (running.partition, running.slot));
        self.lock().push(HeldKey { tp, key, position, since, by, blocked: None });
    }

    pub(super) fn block(&self, partition: &Arc<Partition>) {
        let mut held = self.lock();
        for held in held.iter_mut().filter(|held| held.tp == *partition.tp()) {
            let slot = partition.lock().window.block(&held.key);
            held.blocked = slot.map(|slot| (Arc::clone(partition), slot));
        }
    }

    pub(super) fn release(&self, partition: u64, slot: KeySlot) {
        let released = {
            let mut held = self.lock();
            let at = held.iter().position(|held| held.by == (partition, slot));
            at.map(|at| held.swap_remove(at))
        };
        if let Some((partition, slot)) = released.and_then(|held| held.blocked) {
            partition.unblock(slot);
        }
    }

    /// Keys of a partition that wait: key, event, and since when each runs.
    pub(super) fn of(&self, tp: &TopicPartition) -> Vec<(String, Position, Instant)> {
        let held = self.lock();
        let mine = held.iter().filter(|held| held.tp == *tp);
        mine.map(|held| (String::from_utf8_lossy(&held.key).into_owned(), held.position, held.since))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HeldKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
