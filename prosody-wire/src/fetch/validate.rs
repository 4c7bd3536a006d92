//! Where does reading go on after these records? Only lengths and offsets are looked at here, on the connection's thread;
//! checksums and records are the reader's work. Pure.

use prosody_base::sabotaged;

/// What a partition's records field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Bytes of complete batches; what follows is a batch the broker cut off.
    pub(crate) complete: usize,
    /// The offset to fetch next: the last complete batch's last offset + 1, whatever records it still has, so that
    /// compacted, empty and control batches are passed.
    pub(crate) next: i64,
    /// The leader epoch of the last complete batch, −1 when it has none.
    pub(crate) last_epoch: i32,
    /// Some complete batch may grow when it is expanded.
    pub(crate) compressed: bool,
}

/// Offset and length: found in every format.
const PREFIX: usize = 12;
/// The byte of the attributes whose low three bits name the codec.
const CODEC: usize = 22;
const LAST_OFFSET_DELTA: usize = 23;
const RECORD_COUNT: usize = 57;

/// Walks the batches of `records`, fetched from `from`. Stops at the first one it cannot follow, which the reader will
/// then name; that one counts as complete, so that it reaches the reader.
pub(crate) fn walk(records: &[u8], from: i64) -> Walk {
    let mut walk = Walk { complete: 0, next: from, last_epoch: -1, compressed: false };
    while let Some(rest) = records.get(walk.complete..).filter(|rest| rest.len() >= PREFIX) {
        let (Some(base), Some(length)) = (i64_at(rest, 0), i32_at(rest, 8)) else { break };
        let Ok(length) = usize::try_from(length) else {
            walk.complete = records.len();
            break;
        };
        let whole = rest.get(..PREFIX.saturating_add(length));
        let Some(batch) = whole.or(sabotaged("truncated-tail").then_some(rest)) else { break };
        let modern = batch.get(16) == Some(&2);
        let delta = if modern { i32_at(batch, LAST_OFFSET_DELTA) } else { Some(0) };
        let delta = if sabotaged("fetch-past-gaps") && modern { records_of(batch) } else { delta };
        let last = delta.and_then(|delta| base.checked_add(i64::from(delta)));
        match last.filter(|last| base >= 0 && *last >= base && *last < i64::MAX) {
            Some(last) => {
                walk.complete += batch.len();
                walk.next = walk.next.max(last + 1);
                walk.last_epoch = if modern { i32_at(batch, PREFIX).unwrap_or(-1) } else { -1 };
                walk.compressed |= !modern || batch.get(CODEC).is_some_and(|codec| codec & 7 != 0);
            }
            None => {
                walk.complete = records.len();
                break;
            }
        }
    }
    walk
}

/// The delta that the last record would have if none were missing.
fn records_of(batch: &[u8]) -> Option<i32> {
    i32_at(batch, RECORD_COUNT)?.checked_sub(1)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(base: i64, delta: i32, epoch: i32, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; 61 + body];
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&(49 + body as i32).to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&delta.to_be_bytes());
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Reads went past the boundary of a partition, because a batch that the broker had cut off was decoded.
        /// Here complete batches count. Deltas larger than the records left are what compaction leaves behind.
        #[test]
        fn reading_goes_on_behind_the_last_complete_batch(
            batches in proptest::collection::vec((0i32..50, 0i64..9, 0usize..40), 0..8),
            skip in 0i64..60,
            cut in 0usize..100,
        ) {
            let (mut bytes, mut next, mut ends) = (Vec::new(), 100, vec![(0, 100 + skip, -1)]);
            for (epoch, (delta, gap, body)) in batches.into_iter().enumerate() {
                let base = next + gap;
                bytes.extend(batch(base, delta, epoch as i32, body));
                next = base + i64::from(delta) + 1;
                ends.push((bytes.len(), next.max(100 + skip), epoch as i32));
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let walk = walk(&bytes, 100 + skip);
            let (complete, next, last_epoch) =
                *ends.iter().rev().find(|end| end.0 <= bytes.len()).expect("the first is 0");
            prop_assert_eq!(walk, Walk { complete, next, last_epoch, compressed: false });
        }

        #[test]
        fn no_bytes_panic_or_move_the_position_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let walk = walk(&bytes, 7);
            prop_assert!(walk.next >= 7 && walk.complete <= bytes.len());
        }
    }

    #[test]
    fn a_batch_that_cannot_be_followed_reaches_the_reader() {
        let mut bytes = batch(5, 0, 0, 0);
        bytes.extend(batch(6, -1, 0, 0));
        assert_eq!(
            walk(&bytes, 5),
            Walk { complete: bytes.len(), next: 6, last_epoch: 0, compressed: false }
        );
        bytes[8..12].copy_from_slice(&(-1_i32).to_be_bytes());
        assert_eq!(
            walk(&bytes, 5),
            Walk { complete: bytes.len(), next: 5, last_epoch: -1, compressed: false }
        );
    }
}
