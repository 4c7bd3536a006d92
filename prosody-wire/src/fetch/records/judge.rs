//! What does one answer say about a run of offsets? Pure.

use super::{Gone, RunAnswer, RunRecord};
use crate::batch::{BatchError, BatchLimits, Batches, ControlKind, Decompressor};
use crate::fetch::aborted::AbortedRecords;
use crate::fetch::wire::PartitionData;
use crate::types::{IsolationLevel, Offset};

/// The meaning of an answer without an error.
#[derive(Debug)]
pub(super) enum Judged {
    /// At least the first offset is decided.
    Decided(RunAnswer),
    /// Nothing is decided, and asking again may help: why.
    Pending(String),
    /// Not even one batch fits into the bytes asked for.
    TooLarge,
    /// The batch that would decide cannot be read.
    Damaged(BatchError),
}

/// `data` answers a fetch from the first of the offsets `first..=last`.
pub(super) fn judge(
    data: PartitionData,
    (first, last): (Offset, Offset),
    isolation: IsolationLevel,
    limits: BatchLimits,
    decompressor: &mut Decompressor,
) -> Judged {
    let committed = isolation == IsolationLevel::ReadCommitted;
    let (high_watermark, last_stable, bytes) = (data.high_watermark, data.last_stable, data.records.len());
    let mut aborted = AbortedRecords::new(if committed { data.aborted } else { Vec::new() });
    let mut batches = Batches::new(data.records, limits);
    let (mut records, mut next, mut damaged) = (Vec::new(), first, None);
    while next <= last
        && let Some(raw) = batches.next()
    {
        let raw = match raw {
            Ok(raw) => raw,
            Err(why) => {
                damaged = Some(why);
                break;
            }
        };
        let header = *raw.header();
        let skipped = aborted.holds(&header);
        let is_below = header.magic == 2 && header.last_offset < next;
        if (is_below && !header.is_control) || skipped {
            next = next.max(header.last_offset.saturating_add(1));
            continue;
        }
        let mut batch = match raw.open(decompressor) {
            Ok(batch) => batch,
            Err(why) => {
                damaged = Some(why);
                break;
            }
        };
        if batch.is_control() {
            if batch.control_kind() == Some(ControlKind::Abort) {
                aborted.ended(header.producer_id);
            }
        } else {
            batch.skip_below(next);
            let found =
                batch.records().take_while(|view| view.as_ref().is_ok_and(|view| view.offset() <= last));
            let leader_epoch = batch.header().leader_epoch;
            let before = records.len();
            records.extend(found.flatten().map(|view| RunRecord { record: view.to_record(), leader_epoch }));
            if let Some(why) = batch.records().find_map(Result::err) {
                records.truncate(before);
                damaged = Some(why);
                break;
            }
        }
        next = next.max(batch.last_offset().saturating_add(1));
    }
    if next > first {
        return Judged::Decided(RunAnswer {
            records,
            next: next.min(last.saturating_add(1)),
            gone: Gone::NoRecord,
        });
    }
    match damaged {
        Some(why) => Judged::Damaged(why),
        None if bytes > 0 && batches.truncated() == bytes => Judged::TooLarge,
        None if first >= high_watermark => {
            Judged::Pending(format!("the log ends at offset {high_watermark}"))
        }
        None if committed && last_stable >= 0 && first >= last_stable => {
            Judged::Pending(format!("a transaction that is open since offset {last_stable} has to end first"))
        }
        None => Judged::Pending("the broker returned no records; it may be throttling".to_owned()),
    }
}
