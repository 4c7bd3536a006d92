//! Where does a record without a key go? To one partition for the bytes of a batch, then to another (KIP-794). Pure.
//! A partition without a leader is left at once, if another has one.

use prosody_base::Rng;

use super::PartitionQueue;
use crate::batch::HEADER_BYTES;
use crate::produce::partitioner::lightest;

/// The partition for a record of at most `size` bytes, and whether it was chosen just now. `queues` are the places of the
/// topic's partitions.
pub(super) fn partition(
    sticky: &mut Option<i32>,
    queues: &[usize],
    partitions: &mut [PartitionQueue],
    (size, batch_size): (usize, usize),
    rng: &Rng,
) -> (i32, bool) {
    let place = |partition: i32| usize::try_from(partition).ok().and_then(|at| queues.get(at)).copied();
    let current = sticky.and_then(|at| Some((at, place(at)?)));
    if let Some((partition, at)) = current
        && let Some(queue) = partitions.get(at)
    {
        let has_leader = queue.leader.is_some() || !queues.iter().any(|at| is_led(partitions, *at));
        if queue.stay >= size && has_leader {
            return (partition, false);
        }
        if let Some(batch) = partitions.get_mut(at).and_then(|queue| queue.open.back_mut()) {
            batch.is_left = true;
        }
    }
    let load = |at: &usize| partitions.get(*at).and_then(|queue| queue.leader.map(|_| queue.load()));
    let next = lightest(queues.iter().map(load), rng.next_u64());
    if let Some(queue) = place(next).and_then(|at| partitions.get_mut(at)) {
        queue.stay = batch_size.saturating_sub(HEADER_BYTES);
    }
    *sticky = Some(next);
    (next, true)
}

fn is_led(partitions: &[PartitionQueue], at: usize) -> bool {
    partitions.get(at).is_some_and(|queue| queue.leader.is_some())
}
