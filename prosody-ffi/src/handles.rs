//! Which object does a 64-bit handle mean? A table of generational tokens, so that a late call finds nothing instead of
//! freed memory.

use std::sync::{Arc, PoisonError, RwLock};

/// Objects by handle. Handles are never 0 and never reused.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    entries: RwLock<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    slots: Vec<(u32, Option<Arc<T>>)>,
    free: Vec<u32>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub(crate) const fn new() -> Handles<T> {
        Handles { entries: RwLock::new(Entries { slots: Vec::new(), free: Vec::new() }) }
    }

    /// Names `object`.
    pub(crate) fn insert(&self, object: Arc<T>) -> u64 {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let slot = entries.free.pop().unwrap_or_else(|| {
            entries.slots.push((1, None));
            u32::try_from(entries.slots.len() - 1).unwrap_or(u32::MAX)
        });
        match entries.slots.get_mut(slot as usize) {
            Some((generation, place)) => {
                *place = Some(object);
                u64::from(*generation) << 32 | u64::from(slot)
            }
            None => 0,
        }
    }

    /// The object, while its handle is alive.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        match entries.slots.get((handle & u64::from(u32::MAX)) as usize) {
            Some((generation, Some(object))) if u64::from(*generation) == handle >> 32 => {
                Some(Arc::clone(object))
            }
            _ => None,
        }
    }

    /// Ends the handle. The caller drops the object, outside the lock.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let slot = u32::try_from(handle & u64::from(u32::MAX)).ok()?;
        let (generation, place) = entries.slots.get_mut(slot as usize)?;
        if u64::from(*generation) != handle >> 32 {
            return None;
        }
        let object = place.take()?;
        if let Some(next) = generation.checked_add(1) {
            *generation = next;
            entries.free.push(slot);
        }
        Some(object)
    }

    /// Every live object.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.slots.iter().filter_map(|(_, object)| object.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Old handles never reach a new object, removed ones reach nothing.
        #[test]
        fn handles_mean_one_object_for_ever(ops in proptest::collection::vec((0u8..3, any::<prop::sample::Index>()), 1..200)) {
            let table = Handles::new();
            let mut model: BTreeMap<u64, Option<u32>> = BTreeMap::new();
            for (n, (op, pick)) in (0u32..).zip(ops) {
                let known: Vec<u64> = model.keys().copied().collect();
                if op == 0 || known.is_empty() {
                    prop_assert!(model.insert(table.insert(Arc::new(n)), Some(n)).is_none());
                } else if op == 1 {
                    let handle = *pick.get(&known);
                    let removed = table.remove(handle).map(|object| *object);
                    prop_assert_eq!(removed, model.insert(handle, None).flatten());
                }
                for (handle, object) in &model {
                    prop_assert_eq!(table.get(*handle).map(|object| *object), *object);
                }
                prop_assert_eq!(table.all().len(), model.values().flatten().count());
            }
            prop_assert!(table.get(0).is_none() && table.get(u64::MAX).is_none());
        }
    }
}
