//! Whatever is written is read back the same: all codecs, any keys, values, headers and timestamps.

use super::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

fn blob(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..max), (any::<u8>(), 0..max * 8).prop_map(|(byte, len)| vec![byte; len])]
}

fn record() -> impl Strategy<Value = Plain> {
    let headers = vec((blob(6), of(blob(20))), 0..5);
    let timestamp = prop_oneof![0..2_000_000_000_000_i64, Just(-1), Just(i64::from(i32::MAX) * 1000)];
    (timestamp, of(blob(12)), of(blob(300)), headers).prop_map(|(timestamp, key, value, headers)| Plain {
        offset: 0,
        timestamp,
        key,
        value,
        headers,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 2000 }))]

    /// Headers keep their order and their repeated keys; null and empty stay apart; offsets count up.
    #[test]
    fn records_come_back_as_they_were(
        mut records in vec(record(), 1..40),
        codec in proptest::sample::select(&Compression::ALL),
    ) {
        let sealed = write(&records, codec);
        for (offset, record) in (0..).zip(&mut records) {
            record.offset = offset;
        }
        prop_assert_eq!(read_all(sealed).unwrap(), records);
    }

    /// Several batches in one response, the last cut anywhere: the complete ones are read, the rest ends quietly.
    #[test]
    fn a_truncated_tail_ends_quietly(
        records in vec(record(), 1..5),
        codec in proptest::sample::select(&Compression::ALL),
        cut in any::<proptest::sample::Index>(),
    ) {
        let one = write(&records, codec);
        let mut bytes = one.to_vec();
        bytes.extend_from_slice(&one);
        let cut = one.len() + cut.index(one.len());
        bytes.truncate(cut);
        let mut batches = Batches::new(bytes.into(), BatchLimits::default());
        prop_assert!(batches.next().unwrap().is_ok());
        prop_assert!(batches.next().is_none());
        prop_assert_eq!(batches.truncated(), cut - one.len());
    }

    /// Any byte of a sealed batch that changes is noticed, except those the format leaves unprotected: base offset,
    /// length (which may now look truncated), leader epoch and magic.
    #[test]
    fn a_flipped_bit_behind_the_checksum_is_noticed(
        records in vec(record(), 1..4),
        codec in proptest::sample::select(&Compression::ALL),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut bytes = write(&records, codec).to_vec();
        let at = 17 + at.index(bytes.len() - 17);
        bytes[at] ^= 1 << bit;
        let error = read_all(bytes.into()).unwrap_err();
        prop_assert!(matches!(error.kind, BatchErrorKind::Crc { .. }), "{}", error);
    }
}

#[test]
fn a_builder_is_empty_after_sealing_and_writes_the_next_batch_from_scratch() {
    let pool = BufferPool::new(1 << 20);
    let mut builder = BatchBuilder::new(pool.clone(), 4096);
    let mut compressor = Compressor::new();
    let stamp = ProducerStamp { id: 7, epoch: 1, base_sequence: 40, is_transactional: false };
    for compression in Compression::ALL {
        assert!(builder.seal(compression, &mut compressor, stamp).unwrap().is_none());
        for value in [b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".as_slice(), b"b"] {
            builder.append(1000, None, Some(value), std::iter::empty()).unwrap();
        }
        let sealed = builder.seal(compression, &mut compressor, stamp).unwrap().unwrap();
        let raw = Batches::new(sealed, BatchLimits::default()).next().unwrap().unwrap();
        let header = *raw.header();
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 1, 40));
        assert_eq!((header.base_offset, header.last_offset, header.record_count), (0, 1, 2));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 1000));
        let batch = raw.open(&mut decompressor()).unwrap();
        assert_eq!(batch.records().count(), 2);
    }
    drop(builder);
    assert_eq!(pool.in_use(), 0);
}
