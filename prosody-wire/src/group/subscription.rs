//! What does a member tell the group leader about itself?
//!
//! `ConsumerProtocolSubscription` v0–v3: topics and user data; v1 adds the partitions it owns (KIP-429), v2 the
//! generation in which it got them (KIP-792), v3 its rack (KIP-881). Versions above 3 are read as 3 and the rest is
//! ignored, as the protocol asks. Some clients claim a version and leave its fields out; a field that is missing as a
//! whole counts as absent, one that is cut in the middle is an error.

use bytes::Bytes;

use super::wire::{Malformed, Reader, Writer};
use crate::types::{Topic, TopicPartition};

/// The version we write. Readers that know less read a prefix of it.
const VERSION: i16 = 3;
/// What the generation field says when its writer has none.
const NO_GENERATION: i32 = -1;

/// One member's view of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Topics it wants, sorted, each once.
    pub(crate) topics: Vec<Topic>,
    /// Partitions it holds or is still giving up, sorted, each once.
    pub(crate) owned: Vec<TopicPartition>,
    /// The generation in which it held them; `None` when it has not been in one, or does not say.
    pub(crate) generation: Option<i32>,
    /// Where it runs.
    pub(crate) rack: Option<String>,
}

impl Subscription {
    /// The bytes of version 3. The generation is repeated in the user data, where leaders older than KIP-792 look for
    /// it when they balance with `cooperative-sticky`.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        let generation = self.generation.unwrap_or(NO_GENERATION);
        out.i16(VERSION);
        out.count(self.topics.len());
        for topic in &self.topics {
            out.string(topic);
        }
        out.nullable_bytes(Some(&generation.to_be_bytes()));
        out.partitions(&self.owned);
        out.i32(generation);
        out.nullable_string(self.rack.as_deref());
        out.finish()
    }

    /// Reads any version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Subscription, Malformed> {
        let mut from = Reader(bytes);
        let version = from.i16("version")?;
        if version < 0 {
            return Err(Malformed { field: "version", why: "negative" });
        }
        let mut topics: Vec<Topic> = Vec::new();
        for _ in 0..from.count(2, "topics")? {
            topics.push(from.string("topics")?.into());
        }
        topics.sort_unstable();
        topics.dedup();
        let user_data = from.nullable_bytes("user data")?;
        let mut read = Subscription { topics, ..Subscription::default() };
        if version >= 1 && !from.is_empty() {
            read.owned = from.partitions("owned partitions")?;
        }
        let generation = if version >= 2 && !from.is_empty() {
            Some(from.i32("generation")?)
        } else {
            // Older `cooperative-sticky` members say it here, and only here. Foreign user data of the same length
            // would at worst misjudge how fresh a claim is; a wrong claim is withheld from everybody, never doubled.
            user_data.and_then(|data| data.try_into().ok()).map(i32::from_be_bytes)
        };
        read.generation = generation.filter(|known| *known >= 0);
        if version >= 3 && !from.is_empty() {
            read.rack = from.nullable_string("rack")?.map(str::to_owned);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::assignment::{decode_assignment, encode_assignment};
    use proptest::prelude::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }

    /// Bytes as Java's client writes them for topics [a], owned [a-0, a-2], generation 7, rack r1.
    #[test]
    fn version_3_is_the_layout_other_clients_write() {
        let subscription = Subscription {
            topics: vec!["a".into()],
            owned: vec![tp("a", 0), tp("a", 2)],
            generation: Some(7),
            rack: Some("r1".into()),
        };
        let expected: &[u8] = &[
            0, 3, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 2, 0, 0,
            0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 2, b'r', b'1',
        ];
        assert_eq!(subscription.encode(), expected);
    }

    #[test]
    fn older_and_newer_versions_read_as_far_as_they_go() {
        let v0: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 1, b'a', 255, 255, 255, 255];
        let read = Subscription::decode(v0).expect("v0");
        assert_eq!(read, Subscription { topics: vec!["a".into()], ..Subscription::default() });
        // v1 with the generation in the user data.
        let v1: &[u8] = &[
            0, 1, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0,
            0, 5,
        ];
        let read = Subscription::decode(v1).expect("v1");
        assert_eq!((read.generation, read.owned), (Some(9), vec![tp("a", 5)]));
        // A version from the future with trailing bytes.
        let mut v9 = read_v3().to_vec();
        v9[1] = 9;
        v9.extend_from_slice(&[1, 2, 3]);
        assert_eq!(Subscription::decode(&v9).expect("v9").rack.as_deref(), Some("r"));
        // Claims v1 and stops before its field.
        assert!(
            Subscription::decode(&[0, 1, 0, 0, 0, 0, 255, 255, 255, 255]).expect("lenient").owned.is_empty()
        );
    }

    fn read_v3() -> Bytes {
        Subscription { topics: vec!["a".into()], rack: Some("r".into()), ..Subscription::default() }.encode()
    }

    /// Each row attacks another field; none may allocate by the claimed count.
    #[test]
    fn hostile_blobs_are_named_errors() {
        let rows: &[(&[u8], &str)] = &[
            (&[], "version: cut short"),
            (&[255, 255], "version: negative"),
            (&[0, 0, 127, 255, 255, 255], "topics: count larger than the bytes that remain"),
            (&[0, 0, 255, 255, 255, 254], "topics: negative count"),
            (&[0, 0, 0, 0, 0, 1, 255, 255], "topics: null"),
            (&[0, 0, 0, 0, 0, 1, 0, 1, 0xff], "topics: not UTF-8"),
            (&[0, 0, 0, 0, 0, 1, 127, 255], "topics: length larger than the bytes that remain"),
            (&[0, 0, 0, 0, 0, 0, 127, 255, 255, 255], "user data: length larger than the bytes that remain"),
            (&[0, 0, 0, 0, 0, 0, 255, 255, 255, 0], "user data: negative length"),
            (
                &[0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 127, 255, 255, 255],
                "owned partitions: count larger than the bytes that remain",
            ),
            (
                &[
                    0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 255, 255, 255,
                    255,
                ],
                "owned partitions: negative partition",
            ),
            (&[0, 2, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 1], "generation: cut short"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(Subscription::decode(bytes).expect_err("hostile").to_string(), *expected, "{bytes:?}");
        }
    }

    #[test]
    fn one_member_cannot_claim_more_partitions_than_the_bound() {
        let mut out = Writer::default();
        out.i16(1);
        out.count(0);
        out.nullable_bytes(None);
        out.count(2);
        for topic in ["a", "b"] {
            out.string(topic);
            out.count(super::super::wire::MAX_ENTRIES);
            (0..super::super::wire::MAX_ENTRIES)
                .for_each(|partition| out.i32(i32::try_from(partition).expect("fits")));
        }
        let refused = Subscription::decode(&out.finish()).expect_err("too many");
        assert_eq!(refused.why, "more entries than a member may have");
    }

    fn golden(name: &str) -> Vec<u8> {
        let path = format!("{}/testdata/members/{name}.bin", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// `testdata/Golden.java` made the files.
    #[test]
    fn members_that_run_javas_client_are_understood_and_ours_write_the_same_bytes() {
        let owned = vec![tp("orders", 0), tp("orders", 2), tp("users", 1)];
        let all = Subscription {
            topics: vec!["orders".into(), "users".into()],
            owned: owned.clone(),
            generation: Some(7),
            rack: Some("rack-a".to_owned()),
        };
        for version in 0..=3 {
            let mut expected = all.clone();
            if version < 1 {
                expected.owned.clear();
            }
            if version < 3 {
                expected.rack = None;
            }
            let read = Subscription::decode(&golden(&format!("subscription-v{version}")));
            assert_eq!(read, Ok(expected), "version {version}");
            let read = decode_assignment(&golden(&format!("assignment-v{version}")));
            assert_eq!(read.as_ref(), Ok(&owned), "version {version}");
        }
        assert_eq!(all.encode(), golden("subscription-v3"));
        assert_eq!(encode_assignment(&owned), golden("assignment-v0"));
    }

    proptest! {
        #[test]
        fn decode_is_the_inverse_of_encode(
            topics in proptest::collection::btree_set("[a-z.]{1,9}", 0..5),
            owned in proptest::collection::btree_set(("[a-z]{1,3}", 0..64i32), 0..40),
            generation in proptest::option::of(0..i32::MAX),
            rack in proptest::option::of("[a-z0-9]{0,6}"),
        ) {
            let subscription = Subscription {
                topics: topics.iter().map(|topic| topic.as_str().into()).collect(),
                owned: owned.iter().map(|(topic, partition)| tp(topic, *partition)).collect(),
                generation,
                rack,
            };
            prop_assert_eq!(Subscription::decode(&subscription.encode()), Ok(subscription));
        }

        #[test]
        fn any_bytes_end_in_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..60usize) {
            let _ = Subscription::decode(&bytes);
            let good = Subscription { topics: vec!["ab".into()], owned: vec![tp("ab", 1)], generation: Some(1), rack: None };
            let encoded = good.encode();
            let _ = Subscription::decode(&encoded[..cut.min(encoded.len())]);
        }
    }
}
