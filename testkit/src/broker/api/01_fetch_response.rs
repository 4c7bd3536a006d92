//! How is a fetch answered without copying records? The response, written by hand into segments.

use bytes::{BufMut, BytesMut};

use super::{AbortedList, hinted};
use crate::broker::api::Call;
use crate::broker::code;
use crate::broker::sessions::TopicKey;
use crate::broker::storage::{LogEnd, Segments};

/// What the answer says about one partition.
#[derive(Debug)]
pub(super) struct Piece {
    key: TopicKey,
    index: i32,
    pub(super) error: i16,
    pub(super) ends: LogEnd,
    pub(super) aborted: AbortedList,
    pub(super) diverging: Option<(i32, i64)>,
    pub(super) leader: Option<(i32, i32)>,
    /// The follower to read from instead.
    pub(super) preferred: Option<i32>,
    pub(super) records: Segments,
}

impl Piece {
    pub(super) fn empty(key: TopicKey, index: i32, ends: LogEnd) -> Piece {
        Piece {
            key,
            index,
            error: code::NONE,
            ends,
            aborted: None,
            diverging: None,
            leader: None,
            preferred: None,
            records: Segments::default(),
        }
    }

    pub(super) fn failed(key: TopicKey, index: i32, error: i16) -> Piece {
        let ends = LogEnd { start: -1, end: -1, stable: -1 };
        Piece { error, ..Piece::empty(key, index, ends) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.len()
    }
}

/// Writes the body of the response.
pub(super) fn write(call: &Call, out: &mut Segments, error: i16, session: i32, pieces: Vec<Piece>) {
    let version = call.version;
    let flexible = version >= 12;
    let hints = if version >= 16 { hinted(&pieces) } else { Default::default() };
    let head = out.open();
    head.put_i32(call.throttle_ms());
    if version >= 7 {
        head.put_i16(error);
        head.put_i32(session);
    }
    let mut topics: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        match topics.last_mut() {
            Some(topic) if topic.last().is_some_and(|last| last.key == piece.key) => topic.push(piece),
            _ => topics.push(vec![piece]),
        }
    }
    put_count(head, flexible, topics.len());
    for topic in topics {
        let head = out.open();
        if let Some(first) = topic.first() {
            if version >= 13 {
                head.put_slice(&first.key.id);
            } else {
                put_text(head, flexible, &first.key.name);
            }
        }
        put_count(head, flexible, topic.len());
        for piece in topic {
            write_partition(out, version, piece);
        }
        if flexible {
            out.open().put_u8(0);
        }
    }
    if flexible {
        write_endpoints(call, out.open(), &hints);
    }
}

fn write_partition(out: &mut Segments, version: i16, piece: Piece) {
    let flexible = version >= 12;
    let head = out.open();
    head.put_i32(piece.index);
    head.put_i16(piece.error);
    head.put_i64(piece.ends.end);
    head.put_i64(piece.ends.stable);
    if version >= 5 {
        head.put_i64(piece.ends.start);
    }
    match &piece.aborted {
        None if flexible => head.put_u8(0),
        None => head.put_i32(-1),
        Some(aborted) => {
            put_count(head, flexible, aborted.len());
            for transaction in aborted {
                head.put_i64(transaction.producer_id);
                head.put_i64(transaction.first_offset);
                if flexible {
                    head.put_u8(0);
                }
            }
        }
    }
    if version >= 11 {
        head.put_i32(piece.preferred.unwrap_or(-1));
    }
    put_count(head, flexible, piece.records.len());
    for part in piece.records.finish() {
        out.push(part);
    }
    if flexible {
        let head = out.open();
        let leader = piece.leader;
        put_varint(head, u32::from(piece.diverging.is_some()) + u32::from(leader.is_some()));
        if let Some((epoch, end)) = piece.diverging {
            head.put_slice(&[0, 13]);
            head.put_i32(epoch);
            head.put_i64(end);
            head.put_u8(0);
        }
        if let Some((leader, epoch)) = leader {
            head.put_slice(&[1, 9]);
            head.put_i32(leader);
            head.put_i32(epoch);
            head.put_u8(0);
        }
    }
}

/// The tag section of the response: where the hinted leaders are (version 16 and later).
fn write_endpoints(call: &Call, head: &mut BytesMut, hints: &std::collections::BTreeSet<i32>) {
    let mut nodes = BytesMut::new();
    let mut count = 0;
    for leader in hints {
        if let Some((host, port)) = call.shared.address(*leader, call.transport) {
            count += 1;
            nodes.put_i32(*leader);
            put_text(&mut nodes, true, &host);
            nodes.put_i32(i32::from(port));
            nodes.put_slice(&[0, 0]);
        }
    }
    if count == 0 {
        head.put_u8(0);
        return;
    }
    let mut field = BytesMut::new();
    put_count(&mut field, true, count);
    field.put_slice(&nodes);
    put_varint(head, 1);
    put_varint(head, 0);
    put_varint(head, u32::try_from(field.len()).unwrap_or(u32::MAX));
    head.put_slice(&field);
}

/// The count of an array or the length of bytes.
fn put_count(out: &mut BytesMut, flexible: bool, count: usize) {
    if flexible {
        put_varint(out, u32::try_from(count).unwrap_or(u32::MAX - 1).saturating_add(1));
    } else {
        out.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
    }
}

fn put_text(out: &mut BytesMut, flexible: bool, text: &str) {
    if flexible {
        put_count(out, true, text.len());
    } else {
        out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    }
    out.put_slice(text.as_bytes());
}

fn put_varint(out: &mut BytesMut, mut rest: u32) {
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}
