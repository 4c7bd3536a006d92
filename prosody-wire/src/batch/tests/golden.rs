//! What the Java client writes is read as it meant it, in every format and codec (`testdata/Golden.java` made the
//! files), and one batch written by us is compared byte by byte with the format's description.

use super::*;

const BASE: i64 = 1000;
const TIME: i64 = 1_600_000_000_000;
const APPEND_TIME: i64 = 1_650_000_000_000;

fn golden(name: &str) -> Bytes {
    let path = format!("{}/testdata/batches/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")).into()
}

/// The five records of `Golden.java`, as a format and a timestamp kind lets them through.
fn expected(magic: i8, times: usize, log_append: bool) -> Vec<Plain> {
    let keys = [None, Some(""), Some("key-2"), Some("key-3"), Some("key-4")];
    let last = "value-4".repeat(times);
    let values = [Some("value-0"), Some("value-1"), None, Some(""), Some(&last)];
    let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> =
        vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None), (b"a".to_vec(), Some(Vec::new()))];
    (0..5_usize)
        .map(|n| Plain {
            offset: BASE + n as i64,
            timestamp: match magic {
                0 => -1,
                _ if log_append => APPEND_TIME,
                _ => TIME + 10 * n as i64,
            },
            key: keys[n].map(|key| key.as_bytes().to_vec()),
            value: values[n].map(|value| value.as_bytes().to_vec()),
            headers: if magic == 2 && n % 2 == 1 { headers.clone() } else { Vec::new() },
        })
        .collect()
}

#[test]
fn every_format_and_codec_of_the_java_client_is_read() {
    for magic in 0..=2_i8 {
        for codec in Compression::ALL {
            if codec == Compression::Zstd && magic < 2 {
                continue;
            }
            let name = format!("v{magic}-{codec}");
            assert_eq!(read_all(golden(&name)).unwrap(), expected(magic, 1, false), "{name}");
            if magic > 0 {
                let name = format!("{name}-logappend");
                assert_eq!(read_all(golden(&name)).unwrap(), expected(magic, 1, true), "{name}");
            }
            if magic == 2 && codec != Compression::None {
                let name = format!("{name}-big");
                assert_eq!(read_all(golden(&name)).unwrap(), expected(magic, 20_000, false), "{name}");
            }
        }
    }
}

/// The wrapper of a compressed set knows its last offset only; opened, it knows the first.
#[test]
fn an_opened_wrapper_knows_its_offsets() {
    for name in ["v0-gzip", "v1-lz4"] {
        let raw = Batches::new(golden(name), BatchLimits::default()).next().unwrap().unwrap();
        assert_eq!((raw.header().base_offset, raw.header().last_offset), (BASE + 4, BASE + 4), "{name}");
        let batch = raw.open(&mut decompressor()).unwrap();
        assert_eq!(
            (batch.base_offset(), batch.last_offset(), batch.record_count()),
            (BASE, BASE + 4, 5),
            "{name}"
        );
    }
}

#[test]
fn transaction_markers_say_what_they_mean() {
    for (name, kind) in [("v2-control-abort", ControlKind::Abort), ("v2-control-commit", ControlKind::Commit)]
    {
        let raw = Batches::new(golden(name), BatchLimits::default()).next().unwrap().unwrap();
        let batch = raw.open(&mut decompressor()).unwrap();
        let header = batch.header();
        assert!(batch.is_control() && header.is_transactional, "{name}");
        assert_eq!((header.producer_id, header.producer_epoch, header.leader_epoch), (4711, 3, 7), "{name}");
        assert_eq!(batch.control_kind(), Some(kind), "{name}");
    }
    let data = Batches::new(golden("v2-none"), BatchLimits::default()).next().unwrap().unwrap();
    assert_eq!(data.open(&mut decompressor()).unwrap().control_kind(), None);
    assert_eq!(ControlKind::of(&[0, 0, 0, 9]), Some(ControlKind::Other(9)));
    assert_eq!(ControlKind::of(&[0, 0, 0]), None);
}

/// Compaction may leave a header without records; its offsets still count, or a reader would ask for them for ever.
#[test]
fn an_empty_batch_still_has_a_last_offset() {
    let raw = Batches::new(golden("v2-empty"), BatchLimits::default()).next().unwrap().unwrap();
    let batch = raw.open(&mut decompressor()).unwrap();
    assert_eq!((batch.base_offset(), batch.last_offset(), batch.record_count()), (BASE, BASE + 9, 0));
    assert!(batch.records().next().is_none());
}

/// Different formats in one response, as a topic that was upgraded holds them.
#[test]
fn formats_may_follow_one_another() {
    let names = ["v0-none", "v1-snappy", "v2-zstd"];
    let bytes: Vec<u8> = names.iter().flat_map(|name| golden(name).to_vec()).collect();
    let read = read_all(bytes.into()).unwrap();
    let wanted: Vec<Plain> = (0..3).flat_map(|magic| expected(magic, 1, false)).collect();
    assert_eq!(read, wanted);
}

/// Every byte as the format's description has it, with a checksum computed bit by bit.
#[test]
fn a_sealed_batch_has_the_bytes_of_the_description() {
    let mut builder = BatchBuilder::new(BufferPool::new(0), 0);
    let headers = [(b"h".as_slice(), Some(b"v".as_slice())), (b"h".as_slice(), None)];
    builder.append(1_000, Some(b"k"), Some(b"val"), headers.into_iter()).unwrap();
    builder.append(999, None, None, std::iter::empty()).unwrap();
    let stamp =
        ProducerStamp { id: 0x0102_0304_0506_0708, epoch: 9, base_sequence: 10, is_transactional: true };
    let sealed = builder.seal(Compression::None, &mut Compressor::new(), stamp).unwrap().unwrap();

    #[rustfmt::skip]
    let after_crc: Vec<u8> = [
        &[0x00, 0x10][..],                                  // attributes: transactional
        &[0, 0, 0, 1],                                      // last offset delta
        &[0, 0, 0, 0, 0, 0, 0x03, 0xe8],                    // base timestamp 1000
        &[0, 0, 0, 0, 0, 0, 0x03, 0xe8],                    // max timestamp 1000
        &[1, 2, 3, 4, 5, 6, 7, 8],                          // producer id
        &[0, 9],                                            // producer epoch
        &[0, 0, 0, 10],                                     // base sequence
        &[0, 0, 0, 2],                                      // record count
        // Length 17, attributes, time +0, offset +0, key, value, two headers: one with a value, one null.
        &[34, 0, 0, 0, 2, b'k', 6, b'v', b'a', b'l', 4, 2, b'h', 2, b'v', 2, b'h', 1],
        // Length 6, attributes, time −1, offset +1, key null, value null, no headers.
        &[12, 0, 1, 2, 1, 1, 0],
    ]
    .concat();
    let mut wanted = vec![0, 0, 0, 0, 0, 0, 0, 0];
    wanted.extend_from_slice(&(after_crc.len() as i32 + 9).to_be_bytes());
    wanted.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 2]);
    wanted.extend_from_slice(&crc32c_bit_by_bit(&after_crc).to_be_bytes());
    wanted.extend_from_slice(&after_crc);
    assert_eq!(sealed.as_ref(), wanted);
}

pub(super) fn crc32c_bit_by_bit(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A producer whose epoch was bumped sends the same records under its new stamp.
#[test]
fn a_sealed_batch_can_be_stamped_again() {
    let records = expected(2, 1, false);
    let pool = BufferPool::new(1 << 20);
    let sealed = write(&records, Compression::Gzip);
    let stamp = ProducerStamp { id: 8, epoch: 2, base_sequence: 0, is_transactional: false };
    let again = restamp(&sealed, &pool, stamp).unwrap();
    let raw = Batches::new(again.clone(), BatchLimits::default()).next().unwrap().unwrap();
    assert_eq!(
        (raw.header().producer_id, raw.header().producer_epoch, raw.header().base_sequence),
        (8, 2, 0)
    );
    assert_eq!(read_all(again).unwrap(), read_all(sealed).unwrap());
    assert!(restamp(&golden("v1-none"), &pool, stamp).is_none());
}
