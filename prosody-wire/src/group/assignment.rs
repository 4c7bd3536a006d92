//! Which partitions did the group leader give to a member?
//!
//! `ConsumerProtocolAssignment` v0–v3, which all share one layout: partitions and user data. Newer versions are read
//! as far as they are known. A missing blob (length 0) is how a broker says "nothing for you".

use bytes::Bytes;

use super::wire::{Malformed, Reader, Writer};
use crate::types::TopicPartition;

/// The version we write: the first, which every client reads.
const VERSION: i16 = 0;

/// The bytes that give `partitions` (sorted, each once) to a member.
pub(crate) fn encode_assignment(partitions: &[TopicPartition]) -> Bytes {
    let mut out = Writer::default();
    out.i16(VERSION);
    out.partitions(partitions);
    out.nullable_bytes(None);
    out.finish()
}

/// Reads any version. Sorted, each partition once.
pub(crate) fn decode_assignment(bytes: &[u8]) -> Result<Vec<TopicPartition>, Malformed> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut from = Reader(bytes);
    if from.i16("version")? < 0 {
        return Err(Malformed { field: "version", why: "negative" });
    }
    let partitions = from.partitions("assigned partitions")?;
    if !from.is_empty() {
        from.nullable_bytes("user data")?;
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }

    #[test]
    fn the_layout_is_the_one_other_clients_read() {
        let expected: &[u8] =
            &[0, 0, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 255, 255, 255, 255];
        assert_eq!(encode_assignment(&[tp("a", 0), tp("a", 3)]), expected);
        assert_eq!(decode_assignment(expected), Ok(vec![tp("a", 0), tp("a", 3)]));
        assert_eq!(decode_assignment(&[]), Ok(vec![]));
    }

    #[test]
    fn hostile_blobs_are_named_errors() {
        let rows: &[(&[u8], &str)] = &[
            (&[0], "version: cut short"),
            (&[128, 0], "version: negative"),
            (&[0, 0, 0, 0, 0, 9], "assigned partitions: count larger than the bytes that remain"),
            (
                &[0, 0, 0, 0, 0, 1, 0, 1, b'a', 63, 255, 255, 255],
                "assigned partitions: count larger than the bytes that remain",
            ),
            (&[0, 0, 0, 0, 0, 0, 127, 0, 0, 0], "user data: length larger than the bytes that remain"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(decode_assignment(bytes).expect_err("hostile").to_string(), *expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn decode_is_the_inverse_of_encode(
            partitions in proptest::collection::btree_set(("[a-z]{1,3}", 0..64i32), 0..40),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let partitions: Vec<_> = partitions.iter().map(|(topic, partition)| tp(topic, *partition)).collect();
            prop_assert_eq!(decode_assignment(&encode_assignment(&partitions)), Ok(partitions));
            let _ = decode_assignment(&noise);
        }
    }
}
