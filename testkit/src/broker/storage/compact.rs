//! What does the log cleaner take from a log?

use std::collections::BTreeMap;

use super::super::batch::{self, Record};
use super::{Log, Stored, kept};

impl Log {
    /// Removes records whose key has a newer one, as the log cleaner does; batches that become empty go. The last batch
    /// stays, as the cleaner never touches the active segment. Returns how many records went.
    pub fn compact(&mut self) -> usize {
        let all = self.records();
        let newest: BTreeMap<_, _> =
            all.iter().filter_map(|one| Some((one.key.clone()?, one.offset))).collect();
        let keep = |record: &Record| {
            let newest = record.key.as_ref().and_then(|key| newest.get(key));
            newest.is_none_or(|newest| *newest <= record.offset)
        };
        let Some(last) = self.batches.pop_back() else { return 0 };
        for mut stored in std::mem::take(&mut self.batches) {
            if !stored.raw {
                let Some(left) = batch::without(&stored.whole(), keep) else { continue };
                stored.body = kept(&left);
            }
            self.batches.push_back(stored);
        }
        self.batches.push_back(last);
        self.bytes = self.batches.iter().map(Stored::len).sum();
        all.len() - self.records().len()
    }
}
