//! What can be wrong with compressed data: bombs of every codec, claims, damage?

use super::craft::Batch;
use super::{Attack, Row};
use std::io::Write;

const GZIP: i16 = 1;
const SNAPPY: i16 = 2;
const LZ4: i16 = 3;
const ZSTD: i16 = 4;
/// More than a client may expand a batch to, and more than a process with 512 MiB could hold.
const BOMB: usize = 600 << 20;
const PIECE: usize = 1 << 16;
const TOO_LARGE: &str = "expands to more than the limit of";

fn bomb(name: &'static str, make: fn() -> Vec<u8>) -> Row {
    Row { name, attack: Attack::Bomb(make), text: TOO_LARGE }
}

fn row(name: &'static str, codec: i16, section: Vec<u8>, text: &'static str) -> Row {
    Row { name, attack: Attack::records(Batch::compressed(codec, section).bytes()), text }
}

fn batch(codec: i16, section: Vec<u8>) -> Vec<u8> {
    Batch::compressed(codec, section).bytes()
}

/// The plain bytes of a bomb, in pieces: nobody here needs as much memory as the victim would.
fn zeros(out: &mut impl Write) {
    some_zeros(out, BOMB);
}

fn some_zeros(out: &mut impl Write, bytes: usize) {
    for _ in 0..bytes / PIECE {
        // Writing to a vector cannot fail.
        let _ = out.write_all(&[0; PIECE]);
    }
}

/// One raw block: its length, a byte, and copies of it, 64 at a time.
fn snappy_bomb() -> Vec<u8> {
    let copies = 10 << 20;
    let mut length = copies * 64 + 1;
    let mut out = Vec::new();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(&[0, b'x']);
    out.extend_from_slice(&[0xfe, 1, 0].repeat(copies));
    out
}

fn zstd_bomb(says_its_size: bool) -> Vec<u8> {
    let Ok(mut out) = zstd::stream::Encoder::new(Vec::new(), 1) else { return Vec::new() };
    if says_its_size {
        let _ = out.set_pledged_src_size(Some(BOMB as u64));
        let _ = out.include_contentsize(true);
    }
    zeros(&mut out);
    out.finish().unwrap_or_default()
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = gzip_rows();
    rows.extend(snappy_rows());
    rows.extend(lz4_rows());
    rows.extend(zstd_rows());
    rows
}

/// One gzip member.
pub(super) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to a vector cannot fail.
    let _ = out.write_all(plain);
    out.finish().unwrap_or_default()
}

/// One gzip member: these bytes, and so many zeros.
pub(super) fn gzip_bomb(head: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let _ = out.write_all(head);
    some_zeros(&mut out, bytes);
    out.finish().unwrap_or_default()
}

fn gzip_rows() -> Vec<Row> {
    let good = gzip(b"0123456789");
    let mut damaged = good.clone();
    damaged[10] = 0x07;
    let mut wrong_length = good.clone();
    *wrong_length.last_mut().unwrap_or(&mut 0) ^= 1;
    let (mut other_magic, mut other_method) = (good.clone(), good.clone());
    other_magic[1] ^= 1;
    other_method[2] = 7;
    let mut endless_name = good[..10].to_vec();
    endless_name[3] = 0x08;
    endless_name.extend_from_slice(&[b'n'; 50]);
    vec![
        bomb("gzip: bomb", || batch(GZIP, gzip_bomb(&[], BOMB))),
        bomb("gzip: bomb of many members", || batch(GZIP, gzip(&[0; PIECE]).repeat(BOMB / PIECE))),
        row("gzip: nothing", GZIP, Vec::new(), "its gzip stream is cut off"),
        row("gzip: no magic", GZIP, b"plain text, no gzip".to_vec(), "it is not a gzip stream"),
        row("gzip: only its magic is wrong", GZIP, other_magic, "it is not a gzip stream"),
        row("gzip: another method than DEFLATE", GZIP, other_method, "it is not a gzip stream"),
        row("gzip: name without an end", GZIP, endless_name, "its gzip stream is cut off"),
        row("gzip: cut off inside", GZIP, good[..14].to_vec(), "its gzip stream is cut off"),
        row(
            "gzip: cut off in its trailer",
            GZIP,
            good[..good.len() - 3].to_vec(),
            "its gzip stream is cut off",
        ),
        row("gzip: damaged", GZIP, damaged, "its DEFLATE data is damaged"),
        row("gzip: wrong length", GZIP, wrong_length, "its gzip length is wrong"),
    ]
}

fn snappy(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).unwrap_or_default()
}

fn xerial(blocks: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for (length, block) in blocks {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(block);
    }
    out
}

fn snappy_rows() -> Vec<Row> {
    let mut damaged = snappy(b"0123456789");
    damaged[1] = 0xff;
    vec![
        bomb("snappy: bomb", || batch(SNAPPY, snappy_bomb())),
        bomb("snappy: bomb of many blocks", || {
            let piece = snappy(&[0; PIECE]);
            batch(SNAPPY, xerial(&vec![(piece.len() as u32, piece.as_slice()); BOMB / PIECE]))
        }),
        row("snappy: absurd claim", SNAPPY, vec![0xff, 0xff, 0xff, 0x1f, 0], "claims more than it can hold"),
        row("snappy: header cut off", SNAPPY, b"\x82SNAPPY\0\0\0".to_vec(), "its snappy header is cut off"),
        row(
            "snappy: block longer than the data",
            SNAPPY,
            xerial(&[(1 << 30, b"x")]),
            "a snappy block is cut off",
        ),
        row("snappy: damaged", SNAPPY, damaged, "a snappy block is damaged"),
        row("snappy: nothing", SNAPPY, Vec::new(), "a snappy block is damaged"),
    ]
}

fn lz4_frame(flags: u8, block_code: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x04, 0x22, 0x4d, 0x18, flags, block_code];
    out.push(0x82);
    out.extend_from_slice(body);
    out
}

fn lz4_block(plain: &[u8]) -> Vec<u8> {
    let block = lz4_flex::block::compress(plain);
    let mut out = (block.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&block);
    out
}

fn lz4_rows() -> Vec<Row> {
    let mut claim = (BOMB as u64).to_le_bytes().to_vec();
    claim.extend_from_slice(&[0; 5]);
    let long_block = (1_u32 << 20).to_le_bytes();
    let far_back = [5, 0, 0, 0, 0x10, b'x', 0xff, 0xff, 0x00];
    let skippable_only = [0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0x7f];
    vec![
        bomb("lz4: bomb", || {
            let blocks = lz4_block(&vec![0; 4 << 20]).repeat(BOMB >> 22);
            batch(LZ4, lz4_frame(0x60, 0x70, &blocks))
        }),
        row("lz4: claimed content size", LZ4, lz4_frame(0x68, 0x40, &claim), TOO_LARGE),
        row("lz4: nothing", LZ4, Vec::new(), "it is cut off"),
        row("lz4: no magic", LZ4, b"plain text, no lz4 frame".to_vec(), "it is not an LZ4 frame"),
        row("lz4: frame version", LZ4, lz4_frame(0xa0, 0x40, &[0; 4]), "its LZ4 frame version is unknown"),
        row("lz4: dictionary", LZ4, lz4_frame(0x61, 0x40, &[0; 8]), "it needs an LZ4 dictionary"),
        row("lz4: block size code", LZ4, lz4_frame(0x60, 0x30, &[0; 4]), "its LZ4 block size is unknown"),
        row(
            "lz4: block above its frame's size",
            LZ4,
            lz4_frame(0x60, 0x40, &long_block),
            "larger than its frame allows",
        ),
        row(
            "lz4: block longer than the data",
            LZ4,
            lz4_frame(0x60, 0x40, &[0xff, 0xff, 0, 0, 1]),
            "it is cut off",
        ),
        row("lz4: no end mark", LZ4, lz4_frame(0x60, 0x40, &lz4_block(b"0123456789")), "it is cut off"),
        row("lz4: offset before the start", LZ4, lz4_frame(0x60, 0x40, &far_back), "an LZ4 block is damaged"),
        row("lz4: skippable frame without an end", LZ4, skippable_only.to_vec(), "it is cut off"),
    ]
}

fn zstd_rows() -> Vec<Row> {
    let bulk = |plain: &[u8]| zstd::bulk::compress(plain, 1).unwrap_or_default();
    let mut damaged = bulk(b"0123456789");
    let last = damaged.len() - 5;
    damaged.truncate(last);
    // A frame that claims a window of 2 GiB, and one block that repeats a byte: right, and no records.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x03, 0x00, 0x10, b'x'];
    vec![
        bomb("zstd: bomb that says its size", || batch(ZSTD, zstd_bomb(true))),
        bomb("zstd: bomb that says nothing", || batch(ZSTD, zstd_bomb(false))),
        row("zstd: nothing", ZSTD, Vec::new(), "it is not a zstd frame"),
        row("zstd: no magic", ZSTD, b"plain text, no zstd frame".to_vec(), "it is not a zstd frame"),
        row("zstd: cut off", ZSTD, damaged, "its zstd frame is damaged"),
        row(
            "zstd: window of 2 GiB costs no memory",
            ZSTD,
            window.to_vec(),
            "record 0 has offset delta 60, outside its batch",
        ),
    ]
}
