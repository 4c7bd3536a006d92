//! Which deferred messages of a key come first? Known without asking the store, as long as this owner put them there or
//! read them. *Pure.*

use std::collections::VecDeque;

use prosody_state::{DeferredMessage, KeyBatch, Queue};

/// Entries of a key kept in mind, and read at once. What comes behind them is read when they are done.
pub(super) const HEAD: usize = 128;

/// The beginning of a key's queue of deferred messages, valid for one version of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// All entries with numbers below `until`.
    entries: VecDeque<(u64, DeferredMessage)>,
    until: u64,
}

impl Head {
    /// What a read found that asked for [`HEAD`] entries from the queue's head on.
    pub(super) fn read(entries: Vec<(u64, DeferredMessage)>, queue: &Queue) -> Head {
        let last = entries.last().filter(|_| entries.len() >= HEAD).map(|(number, _)| number + 1);
        Head { entries: entries.into(), until: last.unwrap_or(queue.tail) }
    }

    /// The first of the queue, when it is known.
    pub(super) fn first(&self) -> Option<(u64, DeferredMessage)> {
        self.entries.front().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A batch was applied; `before` is the queue as it was.
    pub(super) fn applied(&mut self, before: &Queue, batch: &KeyBatch) {
        if before.count == 0 {
            *self = Head { entries: VecDeque::new(), until: before.tail };
        }
        for removed in &batch.remove_messages {
            self.entries.retain(|(number, _)| number != removed);
        }
        for (number, entry) in (before.tail..).zip(&batch.append_messages) {
            if self.until == number && self.entries.len() < HEAD {
                self.entries.push_back((number, *entry));
                self.until += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use prosody_state::{KeyImage, Writer};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a queue that holds everything: what is known is its beginning, and only what nobody told is not known.
        #[test]
        fn what_is_known_is_the_beginning_of_the_queue(steps in prop::collection::vec(0..8u8, 0..600)) {
            let (mut image, mut head) = (KeyImage::default(), Head::default());
            let mut all = BTreeMap::new();
            // Nothing was dropped, and never were there more than are kept, since the queue was empty.
            let mut complete = true;
            for (offset, step) in (0i64..).zip(steps) {
                let mut batch = KeyBatch::default();
                match step {
                    0..4 => {
                        let entry = DeferredMessage { leader_epoch: 0, offset, writer: Writer(1) };
                        batch.append_messages.push(entry);
                        all.insert(image.messages.tail, entry);
                    }
                    4..7 => batch.remove_messages.extend(all.pop_first().map(|(number, _)| number)),
                    // Dropped from memory.
                    _ => (head, complete) = (Head::default(), false),
                }
                head.applied(&image.messages, &batch);
                image.apply(&batch, Writer(1));
                let known: Vec<_> = head.entries.iter().copied().collect();
                let first: Vec<_> = all.iter().map(|(number, entry)| (*number, *entry)).take(known.len()).collect();
                prop_assert_eq!(&known, &first);
                prop_assert!(known.len() <= HEAD);
                complete = all.is_empty() || (complete && all.len() <= HEAD);
                prop_assert!(!complete || known.len() == all.len());
                if head.first().is_none() && !all.is_empty() {
                    let page = all.iter().map(|(number, entry)| (*number, *entry)).take(HEAD).collect();
                    head = Head::read(page, &image.messages);
                    prop_assert_eq!(head.first(), all.first_key_value().map(|(number, entry)| (*number, *entry)));
                }
            }
        }
    }
}
