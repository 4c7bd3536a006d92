//! Was every record handled, once, in order per key? What members said, compared with the topic read back.

use std::collections::BTreeMap;

/// One record as the topic holds it, read by another client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stored {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: String,
}

/// One handled event, in the order in which the lines of all members arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handled {
    /// Which process said so.
    pub(crate) member: usize,
    pub(crate) record: Stored,
}

/// What a clean comparison saw.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) records: usize,
    /// Records that were handled more than once.
    pub(crate) duplicates: usize,
}

/// Compares; the error names the first few violations of each kind.
pub(crate) fn compare(stored: &[Stored], handled: &[Handled]) -> Result<Seen, String> {
    let mut times: BTreeMap<(i32, i64), u32> =
        stored.iter().map(|at| ((at.partition, at.offset), 0)).collect();
    let keys: BTreeMap<(i32, i64), &str> =
        stored.iter().map(|at| ((at.partition, at.offset), at.key.as_str())).collect();
    let mut last: BTreeMap<(i32, &str), i64> = BTreeMap::new();
    let mut problems = Vec::new();
    for event in handled {
        let at = (event.record.partition, event.record.offset);
        if keys.get(&at) != Some(&event.record.key.as_str()) {
            problems.push(format!(
                "member {} handled what the topic does not hold: {:?}",
                event.member, event.record
            ));
            continue;
        }
        let seen = times.entry(at).or_default();
        *seen += 1;
        // Order is about first deliveries: after a fault a record may come again, but never before an older one came once.
        let newest = last.entry((at.0, event.record.key.as_str())).or_insert(-1);
        if *seen == 1 && at.1 < *newest {
            problems.push(format!(
                "member {} handled {:?} first after offset {newest}",
                event.member, event.record
            ));
        }
        *newest = (*newest).max(at.1);
    }
    let lost: Vec<_> = times.iter().filter(|(_, seen)| **seen == 0).map(|(at, _)| at).collect();
    if let Some(first) = lost.first() {
        problems.push(format!(
            "{} of {} records were never handled, first {first:?}",
            lost.len(),
            stored.len()
        ));
    }
    if problems.is_empty() {
        return Ok(Seen {
            records: stored.len(),
            duplicates: times.values().filter(|seen| **seen > 1).count(),
        });
    }
    let more = problems.len().saturating_sub(5);
    problems.truncate(5);
    Err(format!("{}\n({more} more)", problems.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::{Handled, Seen, Stored, compare};

    fn record(partition: i32, offset: i64, key: &str) -> Stored {
        Stored { partition, offset, key: key.to_owned() }
    }

    fn topic() -> Vec<Stored> {
        vec![record(0, 0, "a"), record(0, 1, "b"), record(0, 2, "a"), record(1, 0, "c")]
    }

    fn by(order: &[usize]) -> Vec<Handled> {
        order.iter().map(|at| Handled { member: *at % 2, record: topic()[*at].clone() }).collect()
    }

    #[test]
    fn keys_may_overtake_each_other_but_not_themselves() {
        assert_eq!(compare(&topic(), &by(&[3, 1, 0, 2])), Ok(Seen { records: 4, duplicates: 0 }));
        let wrong = compare(&topic(), &by(&[3, 1, 2, 0])).expect_err("a's second came first");
        assert!(wrong.contains("first after offset 2"), "{wrong}");
    }

    #[test]
    fn a_record_may_come_again_and_is_counted() {
        assert_eq!(compare(&topic(), &by(&[0, 2, 0, 2, 1, 3])), Ok(Seen { records: 4, duplicates: 2 }));
    }

    #[test]
    fn loss_and_inventions_are_told() {
        assert!(
            compare(&topic(), &by(&[0, 1, 3]))
                .expect_err("lost")
                .contains("1 of 4 records were never handled")
        );
        let mut invented = by(&[0, 1, 2, 3]);
        invented.push(Handled { member: 0, record: record(1, 7, "c") });
        assert!(compare(&topic(), &invented).expect_err("invented").contains("does not hold"));
    }
}
