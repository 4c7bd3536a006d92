//! What does each fuzz target do with its bytes, and what did it come to?
//!
//! Used by the fuzzers, and by `prosody-wire/tests/corpus.rs`, which replays the saved corpus as an ordinary test. Every
//! target returns a short name of its outcome, so that the replay can tell whether all of them are still reached.

use std::cell::RefCell;

use bytes::Bytes;
use prosody_wire::batch::{
    BatchErrorKind, BatchLimits, Batches, BufferPool, Compression, Compressor, DecompressError, Decompressor,
};
use prosody_wire::{DecodeError, Error, ErrorKind, internals};

/// The targets.
pub const TARGETS: [&str; 9] =
    ["frames", "batches", "gzip", "snappy", "lz4", "zstd", "responses", "groups", "scram"];

/// What a batch may expand to here: small enough that a bomb is found without one.
const OUTPUT: usize = 1 << 16;

/// Runs one input and names its outcome.
pub fn run(target: &str, data: &[u8]) -> String {
    match target {
        "frames" => frames(data),
        "batches" => batches(data),
        "gzip" => decompression(Compression::Gzip, data),
        "snappy" => decompression(Compression::Snappy, data),
        "lz4" => decompression(Compression::Lz4, data),
        "zstd" => decompression(Compression::Zstd, data),
        "responses" => responses(data),
        "groups" => groups(data),
        "scram" => scram(data),
        other => panic!("there is no target {other}"),
    }
}

/// What a peer answers on a connection: a piece of the input for each request, a whole frame where the input has one, else
/// all the rest. Bit 0 of the first byte repairs correlation ids, bit 1 ends the connection after the last piece.
fn frames(data: &[u8]) -> String {
    let Some((mode, rest)) = data.split_first() else { return "nothing".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O");
    let result = runtime.block_on(async {
        let (near, far) = tokio::io::duplex(1 << 16);
        let limits = prosody_wire::Limits { frame_bytes: 1 << 16, ..Default::default() };
        let doors = prosody_base::Doors::simulated(1);
        let client = internals::connection(Box::new(near), &limits, &doors);
        tokio::select! {
            biased;
            result = client => Some(result),
            // The peer waits for the client to hang up, so the client always ends first.
            () = async { peer(far, *mode, rest).await; std::future::pending().await } => None,
        }
    });
    match result {
        Some(Ok(())) => "accepted".to_owned(),
        Some(Err(error)) => error_name(&error),
        None => "the client hangs".to_owned(),
    }
}

async fn peer(mut stream: tokio::io::DuplexStream, mode: u8, mut rest: &[u8]) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    while !rest.is_empty() {
        let Ok(length) = stream.read_i32().await else { return };
        let mut request = vec![0; length as usize];
        if stream.read_exact(&mut request).await.is_err() {
            return;
        }
        let claimed = rest.first_chunk().map(|length| i32::from_be_bytes(*length));
        let whole =
            claimed.and_then(|length| usize::try_from(length).ok()).map(|length| length.saturating_add(4));
        let (piece, behind) = rest.split_at(whole.unwrap_or(rest.len()).min(rest.len()));
        let mut piece = piece.to_vec();
        rest = behind;
        if mode & 1 == 1 && piece.len() >= 8 {
            piece[4..8].copy_from_slice(&request[4..8]);
        }
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    if mode & 2 == 2 {
        let _ = stream.shutdown().await;
    }
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

fn error_name(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Decode(cause) => decode_name(cause),
        other => variant(other),
    }
}

fn decode_name(error: &DecodeError) -> String {
    match error {
        DecodeError::Guard(why) => format!("Guard {}", variant(&why.refusal)),
        other => variant(other),
    }
}

/// The name of an enum's variant, from what `Debug` writes.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// A `records` field. The first byte chooses how the rest is made to look right: checksums are always repaired, so that
/// the fuzzer gets past them, and bit 0 compresses the sections of batches that say they are compressed.
fn batches(data: &[u8]) -> String {
    let Some((mode, rest)) = data.split_first() else { return "nothing".to_owned() };
    let bytes = repaired(rest, mode & 1 == 1);
    let limits = BatchLimits { decompressed_bytes: OUTPUT, headers_per_record: 64 };
    let mut decompressor = Decompressor::new(BufferPool::new(0));
    let mut next_offset = 0;
    let mut batches = Batches::new(bytes.into(), limits);
    for raw in batches.by_ref() {
        let batch = match raw.and_then(|raw| raw.open(&mut decompressor)) {
            Ok(batch) => batch,
            Err(error) => return batch_error(&error.kind),
        };
        assert!(batch.base_offset() <= batch.last_offset() && batch.last_offset() < i64::MAX);
        let mut previous = None;
        for record in batch.records() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return batch_error(&error.kind),
            };
            assert!(previous.is_none_or(|previous| previous < record.offset()));
            assert!((batch.base_offset()..=batch.last_offset()).contains(&record.offset()));
            previous = Some(record.offset());
            let owned = record.to_record();
            assert_eq!((owned.key(), owned.value()), (record.key(), record.value()));
            assert_eq!(record.headers().count(), record.headers().len());
        }
        let _ = batch.control_kind();
        next_offset = batch.last_offset() + 1;
    }
    if batches.truncated() > 0 { "truncated".to_owned() } else { format!("accepted {}", next_offset > 0) }
}

fn batch_error(kind: &BatchErrorKind) -> String {
    match kind {
        BatchErrorKind::Record { why, .. } => format!("Record {}", variant(why)),
        BatchErrorKind::Message { why, .. } => format!("Message {}", variant(why)),
        BatchErrorKind::Decompress { why, .. } => format!("Decompress {}", variant(why)),
        other => variant(other),
    }
}

/// Rewrites the checksum of each batch, and the section of compressed ones.
fn repaired(data: &[u8], compress: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while rest.len() >= 17 {
        let length = i32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]);
        let Some(total) = usize::try_from(length).ok().and_then(|length| length.checked_add(12)) else {
            break;
        };
        if total < 26 || total > rest.len() {
            break;
        }
        let (entry, behind) = rest.split_at(total);
        let mut entry = entry.to_vec();
        rest = behind;
        if entry[16] == 2 && total >= 61 {
            let codec = Compression::from_code(entry[22] & 7).filter(|_| compress);
            if let Some(codec) = codec.filter(|codec| *codec != Compression::None) {
                let mut section = BufferPool::new(0).take(0);
                Compressor::new().compress(codec, &entry[61..], &mut section).expect("memory");
                entry.truncate(61);
                entry.extend_from_slice(section.written());
                let length = (entry.len() - 12) as i32;
                entry[8..12].copy_from_slice(&length.to_be_bytes());
            }
            let crc = crc32c::crc32c(&entry[21..]);
            entry[17..21].copy_from_slice(&crc.to_be_bytes());
        } else if entry[16] < 2 {
            let mut crc = flate2::Crc::new();
            crc.update(&entry[16..]);
            entry[12..16].copy_from_slice(&crc.sum().to_be_bytes());
        }
        out.extend_from_slice(&entry);
    }
    out.extend_from_slice(rest);
    out
}

thread_local! {
    /// Kept from input to input, as connections keep theirs from batch to batch: damaged data must leave nothing behind.
    static KEPT: RefCell<(Compressor, Decompressor)> =
        RefCell::new((Compressor::new(), Decompressor::new(BufferPool::new(4 << 20))));
}

/// Compressed data; then the same bytes as plain ones, which must come back.
fn decompression(codec: Compression, data: &[u8]) -> String {
    KEPT.with_borrow_mut(|(compressor, decompressor)| both_ways(codec, data, compressor, decompressor))
}

fn both_ways(
    codec: Compression,
    data: &[u8],
    compressor: &mut Compressor,
    decompressor: &mut Decompressor,
) -> String {
    let outcome = match decompressor.decompress(codec, data, OUTPUT) {
        Ok(plain) => {
            assert!(plain.len() <= OUTPUT);
            "accepted".to_owned()
        }
        Err(DecompressError::Malformed(why)) => why.to_owned(),
        Err(error) => variant(&error),
    };
    let mut compressed = BufferPool::new(0).take(0);
    compressor.compress(codec, data, &mut compressed).expect("memory");
    let plain = decompressor.decompress(codec, compressed.written(), OUTPUT.max(data.len()));
    assert_eq!(plain.as_deref(), Ok(data));
    outcome
}

/// The first two bytes choose API and version, the rest is the body.
fn responses(data: &[u8]) -> String {
    let [api, version, body @ ..] = data else { return "nothing".to_owned() };
    let spoken = internals::spoken();
    let (api, low, high) = spoken[usize::from(*api) % spoken.len()];
    let version = low + i16::from(*version) % (high - low + 1);
    match internals::response(api, version, &Bytes::copy_from_slice(body)) {
        Ok(()) => format!("accepted {api}"),
        Err(DecodeError::Body(_)) => format!("Body {api}"),
        Err(error) => decode_name(&error),
    }
}

/// The first byte chooses between subscription and assignment.
fn groups(data: &[u8]) -> String {
    let Some((which, blob)) = data.split_first() else { return "nothing".to_owned() };
    let (name, result) = match which & 1 {
        0 => ("subscription", internals::subscription(blob)),
        _ => ("assignment", internals::assignment(blob)),
    };
    match result {
        Ok(()) => format!("{name}: accepted"),
        Err(error) => format!("{name}: {error}"),
    }
}

/// The first byte is the mode; the rest is the challenge and, behind a line break, the server's last message.
fn scram(data: &[u8]) -> String {
    let Some((mode, rest)) = data.split_first() else { return "nothing".to_owned() };
    let mut messages = rest.splitn(2, |byte| *byte == b'\n');
    let (challenge, last) = (messages.next().unwrap_or_default(), messages.next().unwrap_or_default());
    match internals::scram(*mode, challenge, last) {
        Ok(()) => "accepted".to_owned(),
        Err(error) => variant(&error),
    }
}
