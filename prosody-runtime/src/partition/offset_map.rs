//! Which offsets above the watermark are finished, and how does a commit say so? Pure.
//!
//! The text that goes with a committed offset (`metadata` of OffsetCommit):
//!
//! ```text
//! prosody:1:TOPIC:BASE:EPOCH:RUNS
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | `1` | version of this format |
//! | `TOPIC` | the topic's id, 32 hex digits; empty where brokers give none (before Kafka 2.8) |
//! | `BASE` | the committed offset it belongs to |
//! | `EPOCH` | leader epoch of the newest record the map knows of; −1 when unknown |
//! | `RUNS` | lengths of runs from `BASE` on, in turn not finished and finished; the last one is finished |
//!
//! A length is a number in base 32, highest digit first. A digit is one character of [`DIGITS`], from its second half
//! when more digits follow. So a run shorter than 32 takes one character. Nothing above the watermark is the empty text.
//!
//! A wrong map loses records, a missing one repeats some. So a text counts only when this module would write exactly it,
//! for the same topic and the same offset; anything else is ignored.

use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;

use prosody_base::sabotaged;
use prosody_wire::TopicId;

/// Longest text in bytes. Brokers take 4,096 by default (`offset.metadata.max.bytes`).
pub(crate) const MAX_TEXT: usize = 3 * 1_024;
/// Most finished runs kept: each takes two characters at least, with what is not finished before it.
const MAX_RUNS: usize = MAX_TEXT / 2;
/// What the texts begin with.
const NAME: &str = "prosody";
/// The version written.
const VERSION: u32 = 1;
/// Characters that no tool, log or shell changes.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Base of the numbers.
const BASE: u64 = 32;

/// The finished offsets of a partition, seen from a watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetMap {
    topic: Option<TopicId>,
    base: i64,
    /// Leader epoch of the newest record below `end`; −1 when unknown, or when there is none.
    epoch: i32,
    /// Finished runs, ascending, not empty, not touching.
    runs: Vec<Range<i64>>,
}

/// Why a text is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Another program wrote it.
    Foreign,
    /// A later version of this library wrote it.
    Newer(u32),
    /// It begins like one of ours and is none.
    Damaged,
    /// It belongs to another topic: one that was deleted and created again, or of a broker that gives no ids.
    OtherTopic,
    /// It belongs to another committed offset.
    OtherBase(i64),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::Foreign => f.write_str("another program wrote it"),
            Ignored::Newer(version) => {
                write!(f, "it has version {version}, this library reads version {VERSION}")
            }
            Ignored::Damaged => f.write_str("it is damaged"),
            Ignored::OtherTopic => f.write_str("it belongs to a topic with another id"),
            Ignored::OtherBase(base) => write!(f, "it belongs to offset {base}"),
        }
    }
}

impl OffsetMap {
    /// Nothing at or above `base` is finished.
    pub(crate) fn empty(topic: Option<TopicId>, base: i64) -> OffsetMap {
        OffsetMap { topic, base, epoch: -1, runs: Vec::new() }
    }

    /// The topic it belongs to.
    pub(crate) fn topic(&self) -> Option<TopicId> {
        self.topic
    }

    /// The watermark it belongs to.
    pub(crate) fn base(&self) -> i64 {
        self.base
    }

    /// Leader epoch of the newest record it knows of.
    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// The offset behind the last finished one; nothing at or above it is.
    pub(crate) fn end(&self) -> i64 {
        self.runs.last().map_or(self.base, |run| run.end)
    }

    /// Whether this offset is finished.
    pub(crate) fn contains(&self, offset: i64) -> bool {
        if offset >= self.end() {
            return false; // nearly always, and cheaper than the search
        }
        let at = self.runs.partition_point(|run| run.end <= offset);
        self.runs.get(at).is_some_and(|run| run.start <= offset)
    }

    /// Finished runs from `offset` on.
    pub(crate) fn from(&self, offset: i64) -> impl Iterator<Item = Range<i64>> {
        let at = self.runs.partition_point(|run| run.end <= offset);
        self.runs.iter().skip(at).map(move |run| run.start.max(offset)..run.end)
    }

    /// Adds a finished run that begins at or above the end. Further runs than a text can hold are left out.
    pub(crate) fn add(&mut self, run: Range<i64>, epoch: i32) {
        if run.is_empty() || run.start < self.end() {
            return;
        }
        let full = self.runs.len() == MAX_RUNS;
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ if full => return,
            _ => self.runs.push(run),
        }
        self.epoch = self.epoch.max(epoch);
    }

    /// Forgets what it says from `offset` on.
    pub(crate) fn cut(&mut self, offset: i64) {
        self.runs.retain(|run| run.start < offset);
        if let Some(last) = self.runs.last_mut() {
            last.end = last.end.min(offset);
        } else {
            self.epoch = -1;
        }
    }

    /// The text: all of it, or the longest prefix that fits.
    pub(crate) fn encode(&self) -> String {
        if self.runs.is_empty() && !sabotaged("map-empty") {
            return String::new();
        }
        let topic = self.topic.map(|id| id.to_string()).unwrap_or_default();
        let mut text = format!("{NAME}:{VERSION}:{topic}:{}:{}:", self.base, self.epoch);
        let mut at = self.base;
        for run in &self.runs {
            let before = text.len();
            push_number(&mut text, run.start.abs_diff(at));
            push_number(&mut text, run.end.abs_diff(run.start));
            if text.len() > MAX_TEXT && !sabotaged("map-prefix") {
                text.truncate(before);
                break;
            }
            at = run.end;
        }
        text
    }

    /// The map of a text that was committed with offset `base` of this topic.
    ///
    /// # Errors
    /// Why the text says nothing about it.
    pub(crate) fn decode(text: &str, topic: Option<TopicId>, base: i64) -> Result<OffsetMap, Ignored> {
        let empty = OffsetMap::empty(topic, base);
        if text.is_empty() {
            return Ok(empty);
        }
        let (name, rest) = text.split_once(':').ok_or(Ignored::Foreign)?;
        if name != NAME {
            return Err(Ignored::Foreign);
        }
        let (version, rest) = rest.split_once(':').ok_or(Ignored::Foreign)?;
        match version.parse() {
            Ok(VERSION) if text.len() <= MAX_TEXT => {}
            Ok(version) if version > VERSION => return Err(Ignored::Newer(version)),
            Ok(_) => return Err(Ignored::Damaged),
            Err(_) => return Err(Ignored::Foreign),
        }
        let map = parse(rest).filter(|map| map.encode() == text).ok_or(Ignored::Damaged)?;
        if map.topic != empty.topic && !sabotaged("map-topic") {
            return Err(Ignored::OtherTopic);
        }
        if map.base != empty.base && !sabotaged("map-base") {
            return Err(Ignored::OtherBase(map.base));
        }
        Ok(map)
    }
}

/// What stands behind the version.
fn parse(text: &str) -> Option<OffsetMap> {
    let mut parts = text.splitn(4, ':');
    let topic = match parts.next()? {
        "" => None,
        hex => Some(TopicId::known(u128::from_str_radix(hex, 16).ok()?.to_be_bytes())?),
    };
    let base: i64 = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let (mut runs, mut at) = (Vec::new(), base);
    let mut digits = parts.next()?.bytes().peekable();
    while digits.peek().is_some() {
        let start = at.checked_add_unsigned(read_number(&mut digits)?)?;
        let end = start.checked_add_unsigned(read_number(&mut digits)?)?;
        if start == end || (start == at && !runs.is_empty()) {
            return None;
        }
        runs.push(start..end);
        at = end;
    }
    (base >= 0 && !runs.is_empty()).then_some(OffsetMap { topic, base, epoch, runs })
}

fn push_number(text: &mut String, number: u64) {
    let mut place = 1u64;
    while number / place >= BASE {
        place *= BASE;
    }
    while place > 0 {
        let more = if place > 1 { BASE } else { 0 };
        let digit = (number / place) % BASE + more;
        let character = usize::try_from(digit).ok().and_then(|at| DIGITS.get(at));
        let _ = text.write_char(character.map_or('?', |byte| char::from(*byte)));
        place /= BASE;
    }
}

fn read_number(digits: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0u64;
    loop {
        let byte = digits.next()?;
        let digit = DIGITS.iter().position(|known| *known == byte)? as u64;
        number = number.checked_mul(BASE)?.checked_add(digit % BASE)?;
        if digit < BASE {
            return Some(number);
        }
    }
}

#[cfg(test)]
#[path = "offset_map_tests.rs"]
mod tests;
