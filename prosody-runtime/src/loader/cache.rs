//! Which records that were read before are still in memory? Bounded by bytes; what was used longest ago goes first. *Pure*.

use std::collections::BTreeMap;

use super::{Found, Place};

/// What an entry costs beside its bytes: two tree nodes, a place and a record.
const OVERHEAD: usize = 256;

/// Copies of records, at most so many bytes of them.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    bytes: usize,
    /// Rises with every use.
    clock: u64,
    entries: BTreeMap<(Place, i64), (u64, Found)>,
    /// By last use.
    order: BTreeMap<u64, (Place, i64)>,
}

fn cost(found: &Found) -> usize {
    found.record.data().len().saturating_add(OVERHEAD)
}

impl Cache {
    pub(super) fn new(limit: usize) -> Cache {
        Cache { limit, bytes: 0, clock: 0, entries: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// The record, which counts as used now.
    pub(super) fn get(&mut self, place: &Place, offset: i64) -> Option<Found> {
        let id = (place.clone(), offset);
        let (used, found) = self.entries.get_mut(&id)?;
        self.order.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.order.insert(self.clock, id);
        Some(found.clone())
    }

    /// Keeps a record. One that is larger than the cache is not kept.
    pub(super) fn put(&mut self, place: &Place, found: Found) {
        let (id, cost_now) = ((place.clone(), found.record.offset()), cost(&found));
        self.remove(place, id.1);
        if cost_now > self.limit {
            return;
        }
        self.clock += 1;
        self.bytes += cost_now;
        self.order.insert(self.clock, id.clone());
        self.entries.insert(id, (self.clock, found));
        while self.bytes > self.limit
            && let Some((_, (place, offset))) = self.order.pop_first()
        {
            self.remove(&place, offset);
        }
    }

    /// Lets go of a record that will not be asked for again.
    pub(super) fn remove(&mut self, place: &Place, offset: i64) {
        if let Some((used, found)) = self.entries.remove(&(place.clone(), offset)) {
            self.order.remove(&used);
            self.bytes -= cost(&found);
        }
    }

    /// Bytes kept now, the bookkeeping included.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use prosody_wire::TopicPartition;
    use prosody_wire::batch::Record;

    use super::*;

    fn place(n: i32) -> Place {
        Place { partition: TopicPartition::new("t", n), topic_id: None }
    }

    fn found(offset: i64, bytes: usize) -> Found {
        let value = vec![b'x'; bytes];
        Found {
            record: Arc::new(Record::of_parts((offset, 0), None, Some(&value), (&[], 0))),
            leader_epoch: 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a list of what was used, newest last: the longest tail that fits is what is kept.
        #[test]
        fn the_newest_that_fit_are_kept(
            ops in proptest::collection::vec((0..3u8, 0..2i32, 0..6i64, 0..700usize), 0..60),
            limit in 0..3_000usize,
        ) {
            let (mut cache, mut model) = (Cache::new(limit), Vec::<(i32, i64, usize)>::new());
            for (op, partition, offset, bytes) in ops {
                let known = model.iter().position(|entry| (entry.0, entry.1) == (partition, offset));
                match op {
                    0 => {
                        let got = cache.get(&place(partition), offset).map(|found| found.record.data().len());
                        prop_assert_eq!(got, known.map(|at| model[at].2));
                        if let Some(at) = known {
                            let entry = model.remove(at);
                            model.push(entry);
                        }
                    }
                    1 => {
                        cache.put(&place(partition), found(offset, bytes));
                        model.retain(|entry| (entry.0, entry.1) != (partition, offset));
                        if bytes + OVERHEAD <= limit {
                            model.push((partition, offset, bytes));
                        }
                        while model.iter().map(|entry| entry.2 + OVERHEAD).sum::<usize>() > limit {
                            model.remove(0);
                        }
                    }
                    _ => {
                        cache.remove(&place(partition), offset);
                        model.retain(|entry| (entry.0, entry.1) != (partition, offset));
                    }
                }
                prop_assert_eq!(cache.bytes(), model.iter().map(|entry| entry.2 + OVERHEAD).sum::<usize>());
                prop_assert!(cache.bytes() <= limit && cache.order.len() == cache.entries.len());
            }
        }
    }
}
