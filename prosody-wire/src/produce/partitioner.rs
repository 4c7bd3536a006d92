//! Which partition does a record go to? Pure functions of its key, plus one rule for records without one.

/// How keys choose partitions. Every producer of a topic must use the same one, or the order per key is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioner {
    /// CRC-32 of the key modulo the partition count: librdkafka's `consistent_random`, which .NET and C clients use.
    /// Missing and empty keys have no partition of their own.
    #[default]
    Crc32Consistent,
    /// Murmur2 of the key modulo the partition count: the Java client's default. An empty key is a key here.
    Murmur2,
}

impl Partitioner {
    /// The partition of `key` among `partitions`; `None` when records with this key may go anywhere.
    #[must_use]
    pub fn partition(self, key: Option<&[u8]>, partitions: i32) -> Option<i32> {
        let count = u32::try_from(partitions).ok().filter(|count| *count > 0)?;
        let hash = match (self, key?) {
            (Partitioner::Crc32Consistent, []) => return None,
            (Partitioner::Crc32Consistent, key) => crc32(key),
            (Partitioner::Murmur2, key) => murmur2(key) & 0x7fff_ffff,
        };
        i32::try_from(hash % count).ok()
    }
}

/// Where the next records without a key go (KIP-794). They stay on one partition for as many bytes as a batch has, then
/// move on: bigger batches, and in the long run every partition that keeps up has the same share. One that does not, because
/// its broker is slow, has more batches waiting than the others and is chosen less often, so its queue stops growing.
///
/// `loads` are the batches of each partition that nobody has acknowledged, `None` where there is no leader; `draw` is any
/// number. The weight of a partition is the distance of its load from the greatest, and one.
pub(crate) fn lightest(loads: impl Iterator<Item = Option<usize>> + Clone, draw: u64) -> i32 {
    let most = loads.clone().flatten().max();
    let weight = |load: Option<usize>| match (most, load) {
        (Some(most), Some(load)) => u64::try_from(most - load).map_or(u64::MAX, |less| less + 1),
        (Some(_), None) => 0,
        // Nobody leads anything: one is as good as the other.
        (None, _) => 1,
    };
    let total: u64 = loads.clone().map(weight).sum();
    let mut rest = draw % total.max(1);
    for (partition, load) in (0..).zip(loads) {
        match rest.checked_sub(weight(load)) {
            Some(less) => rest = less,
            None => return partition,
        }
    }
    0
}

/// CRC-32 with the polynomial of zlib (reflected 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let index = ((crc ^ u32::from(*byte)) & 0xff) as usize;
        CRC32.get(index).copied().unwrap_or_default() ^ (crc >> 8)
    };
    !bytes.iter().fold(!0, step)
}

static CRC32: [u32; 256] = crc32_table();

#[allow(clippy::indexing_slicing, reason = "evaluated while compiling")]
const fn crc32_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// MurmurHash2, 32 bits, with the seed every Kafka client uses.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = word.iter().rev().fold(0u32, |k, byte| (k << 8) | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0u32, |k, byte| (k << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_matches_the_published_check_value_and_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of CRC-32/ISO-HDLC");
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"a"), 0xe8b7_be43);
        let mut zlib = flate2::Crc::new();
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        zlib.update(&bytes);
        assert_eq!(crc32(&bytes), zlib.sum());
    }

    /// The values of the Java client's own `UtilsTest.testMurmur2`.
    #[test]
    fn murmur2_matches_java() {
        let cases: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, expected) in cases {
            assert_eq!(murmur2(key).cast_signed(), expected, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn keys_choose_their_partition_and_the_rest_stays_free() {
        let crc = Partitioner::Crc32Consistent;
        assert_eq!(crc.partition(Some(b"123456789"), 10), Some((0xcbf4_3926_u32 % 10) as i32));
        assert_eq!(crc.partition(Some(b""), 10), None, "librdkafka treats an empty key as none");
        assert_eq!(crc.partition(None, 10), None);
        assert_eq!(crc.partition(Some(b"k"), 0), None, "no partition, no choice");
        let java = Partitioner::Murmur2;
        assert_eq!(java.partition(Some(b"foobar"), 1000), Some((-790_332_482_i32 & 0x7fff_ffff) % 1000));
        assert_eq!(java.partition(Some(b""), 1000), Some(275_646_681 % 1000));
        assert_eq!(java.partition(None, 1000), None);
    }

    #[test]
    fn loads_are_weighed_and_who_has_no_leader_is_left_out() {
        let shares = |loads: &[Option<usize>], draws: u64| {
            let mut shares = vec![0; loads.len()];
            (0..draws).for_each(|draw| shares[lightest(loads.iter().copied(), draw) as usize] += 1);
            shares
        };
        assert_eq!(shares(&[Some(0); 3], 30), [10, 10, 10], "nothing waits anywhere");
        assert_eq!(shares(&[Some(7); 3], 30), [10, 10, 10], "all are equally slow");
        assert_eq!(shares(&[Some(9), Some(0), Some(4)], 17), [1, 10, 6]);
        assert_eq!(shares(&[None, Some(3), Some(3)], 30), [0, 15, 15]);
        assert_eq!(shares(&[None; 3], 30), [10, 10, 10], "nobody leads anything");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Any loads: one that has less waiting is chosen at least as often, each by as much as it has less, and nobody who
        /// could be written to is left out for good.
        #[test]
        fn less_is_waiting_is_more_often_chosen(
            loads in proptest::collection::vec(proptest::option::weighted(0.8, 0usize..40), 1..12),
        ) {
            let led: Vec<usize> = loads.iter().flatten().copied().collect();
            let most = led.iter().max().copied().unwrap_or(0);
            let round = if led.is_empty() { loads.len() } else { led.iter().map(|load| most - load + 1).sum() };
            let mut chosen = vec![0; loads.len()];
            for draw in 0..round as u64 {
                chosen[lightest(loads.iter().copied(), draw) as usize] += 1;
            }
            for (load, times) in loads.iter().zip(&chosen) {
                match load {
                    Some(load) => proptest::prop_assert_eq!(load + times, most + 1),
                    None => proptest::prop_assert_eq!(*times, usize::from(led.is_empty())),
                }
            }
        }
    }
}
