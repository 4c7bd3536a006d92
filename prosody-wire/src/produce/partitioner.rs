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

/// Records without a key stay on one partition while its batch fills, then move on (KIP-480): bigger batches, and the
/// same spread in the long run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sticky(Option<i32>);

impl Sticky {
    /// The partition for the next record without a key. `draw` gives any number.
    pub(crate) fn partition(&mut self, partitions: i32, draw: impl FnOnce() -> u64) -> i32 {
        match self.0 {
            Some(partition) if partition < partitions => partition,
            _ => {
                let count = u64::try_from(partitions.max(1)).unwrap_or(1);
                let chosen = i32::try_from(draw() % count).unwrap_or(0);
                self.0 = Some(chosen);
                chosen
            }
        }
    }

    /// The batch of `partition` was closed: the next record may go elsewhere.
    pub(crate) fn moved_on(&mut self, partition: i32) {
        if self.0 == Some(partition) {
            self.0 = None;
        }
    }
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
    fn records_without_a_key_stay_until_their_batch_closes() {
        let mut sticky = Sticky::default();
        assert_eq!(sticky.partition(4, || 6), 2);
        assert_eq!(sticky.partition(4, || 7), 2);
        sticky.moved_on(1);
        assert_eq!(sticky.partition(4, || 7), 2, "another partition's batch does not matter");
        sticky.moved_on(2);
        assert_eq!(sticky.partition(4, || 7), 3);
        assert_eq!(sticky.partition(2, || 7), 1, "a partition that went away is left");
    }
}
