//! How fast is this machine, compared with the one the absolute bars were set on? One thread, the two things a
//! consumer's CPU does most: a checksum and a scan of JSON.

use std::hint::black_box;
use std::time::Instant;

/// What [`work`] took on the machine the bars were set on: 2 virtual cores of a shared server, on 2026-11-30.
const REFERENCE_SECONDS: f64 = 0.065;
const ROUNDS: usize = 5;
const BYTES: usize = 8 << 20;

/// Above 1: this machine is slower.
pub(super) fn factor() -> f64 {
    let best = (0..ROUNDS).map(|_| timed()).fold(f64::INFINITY, f64::min);
    best / REFERENCE_SECONDS
}

fn timed() -> f64 {
    let record =
        br#"{"id":"00000001","type":"order.created","note":"a text with \"quotes\" and numbers 12345.678"}"#;
    let text: Vec<u8> = record.iter().copied().cycle().take(BYTES).collect();
    let start = Instant::now();
    black_box(work(black_box(&text)));
    start.elapsed().as_secs_f64()
}

fn work(text: &[u8]) -> (u32, usize) {
    let table = crc32c_table();
    let mut crc = u32::MAX;
    for byte in text {
        let at = (crc ^ u32::from(*byte)) & 0xff;
        crc = (crc >> 8) ^ table.get(at as usize).copied().unwrap_or(0);
    }
    let (mut strings, mut inside, mut escaped) = (0, false, false);
    for byte in text {
        match (inside, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (true, false, b'"') => inside = false,
            (false, _, b'"') => {
                inside = true;
                strings += 1;
            }
            _ => {}
        }
    }
    (!crc, strings)
}

fn crc32c_table() -> [u32; 256] {
    let mut table = [0; 256];
    for (byte, entry) in (0..).zip(table.iter_mut()) {
        let mut crc: u32 = byte;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        *entry = crc;
    }
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_work_is_the_real_checksum_and_finds_the_strings() {
        let (crc, strings) = super::work(b"123456789");
        assert_eq!((crc, strings), (0xe306_9283, 0));
        assert_eq!(super::work(br#"{"a":"b\"c"}"#).1, 2);
    }
}
