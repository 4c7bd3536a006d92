//! Which `id` and `type` does a JSON text have, and is it JSON at all?
//!
//! [`scan`] skips from field to field of the top-level object and looks into nothing else; it is not a validator and
//! stops as soon as it knows enough. [`is_valid`] is the strict check (RFC 8259) for the rare text that a handler
//! could not parse. Neither builds a tree, recurses or allocates in the size of the text.

use std::borrow::Cow;
use std::ops::Range;

/// Where a field's text stands in the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    range: Range<u32>,
    /// Holds backslashes, so the text differs from the bytes.
    escaped: bool,
}

impl Text {
    /// The text, of the same payload that was scanned. Escapes that mean nothing read as the replacement character.
    pub(crate) fn of<'a>(&self, payload: &'a [u8]) -> Cow<'a, [u8]> {
        let raw = payload.get(self.range.start as usize..self.range.end as usize).unwrap_or_default();
        if self.escaped { Cow::Owned(unescape(raw)) } else { Cow::Borrowed(raw) }
    }
}

/// What filters and deduplication need of a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The top-level string or integer `id`.
    pub(crate) id: Option<Text>,
    /// The top-level string `type`.
    pub(crate) kind: Option<Text>,
}

/// The text cannot be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// Finds `id`, and `type` if `want_type`. Of a repeated field the first counts.
pub(crate) fn scan(payload: &[u8], want_type: bool) -> Result<Facts, NotJson> {
    let mut at = Cursor { text: payload, at: 0 };
    let mut facts = Facts::default();
    at.skip_space();
    if at.peek() != Some(b'{') {
        at.skip_value()?;
        at.skip_space();
        return if at.peek().is_none() { Ok(facts) } else { Err(NotJson) };
    }
    at.at += 1;
    at.skip_space();
    if at.peek() == Some(b'}') {
        return Ok(facts);
    }
    loop {
        at.skip_space();
        let name = at.string()?;
        at.skip_space();
        at.expect(b':')?;
        at.skip_space();
        match at.field(&name) {
            Field::Id if facts.id.is_none() => facts.id = at.id()?,
            Field::Type if facts.kind.is_none() => facts.kind = at.string_value()?,
            _ => at.skip_value()?,
        }
        if facts.id.is_some() && (facts.kind.is_some() || !want_type) {
            return Ok(facts);
        }
        at.skip_space();
        match at.next() {
            Some(b',') => {}
            Some(b'}') => return Ok(facts),
            _ => return Err(NotJson),
        }
    }
}

enum Field {
    Id,
    Type,
    Other,
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn expect(&mut self, wanted: u8) -> Result<(), NotJson> {
        if self.next() == Some(wanted) { Ok(()) } else { Err(NotJson) }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// A string whose opening quote is next.
    fn string(&mut self) -> Result<Text, NotJson> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.next().ok_or(NotJson)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.next().ok_or(NotJson)?;
                }
                _ => {}
            }
        }
        let range = narrow(start)?..narrow(self.at - 1)?;
        Ok(Text { range, escaped })
    }

    fn field(&self, name: &Text) -> Field {
        match name.of(self.text).as_ref() {
            b"id" => Field::Id,
            b"type" => Field::Type,
            _ => Field::Other,
        }
    }

    /// A value that identifies a message: a string, or an integer in its canonical text. Anything else is skipped.
    fn id(&mut self) -> Result<Option<Text>, NotJson> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => {
                let start = self.at;
                self.skip_scalar()?;
                let text = self.text.get(start..self.at).unwrap_or_default();
                let digits = text.strip_prefix(b"-").unwrap_or(text);
                let integer = digits.iter().all(u8::is_ascii_digit);
                let canonical = !digits.is_empty() && (digits.len() == 1 || digits.first() != Some(&b'0'));
                if !(integer && canonical) {
                    return Ok(None);
                }
                // Zero has no sign.
                let start = if text == b"-0" { start + 1 } else { start };
                Ok(Some(Text { range: narrow(start)?..narrow(self.at)?, escaped: false }))
            }
            _ => self.string_value(),
        }
    }

    /// A string, or nothing after skipping whatever else is there.
    fn string_value(&mut self) -> Result<Option<Text>, NotJson> {
        if self.peek() == Some(b'"') {
            return self.string().map(Some);
        }
        self.skip_value()?;
        Ok(None)
    }

    /// Moves behind the value that starts here, minding strings and nesting and nothing else.
    fn skip_value(&mut self) -> Result<(), NotJson> {
        let mut depth = 0usize;
        loop {
            match self.peek().ok_or(NotJson)? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b' ' | b'\n' | b'\r' | b'\t' | b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_scalar()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A number, `true`, `false` or `null`, judged by its first letter.
    fn skip_scalar(&mut self) -> Result<(), NotJson> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n')) {
            return Err(NotJson);
        }
        while let Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }
}

/// Positions are kept in 32 bits; no record is larger.
fn narrow(at: usize) -> Result<u32, NotJson> {
    u32::try_from(at).map_err(|_| NotJson)
}

fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let Some((&kind, after)) = rest.split_first() else { break };
        rest = after;
        match kind {
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'u' => {
                let decoded = unicode(&mut rest);
                text.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => text.push(other),
        }
    }
    text
}

/// The character whose `\u` was just read, joined with a second half when it needs one.
fn unicode(rest: &mut &[u8]) -> char {
    let Some(first) = hex4(rest) else { return char::REPLACEMENT_CHARACTER };
    if (0xD800..0xDC00).contains(&first) {
        let mut behind = *rest;
        if behind.starts_with(b"\\u") {
            behind = behind.get(2..).unwrap_or_default();
            if let Some(second) = hex4(&mut behind).filter(|unit| (0xDC00..0xE000).contains(unit)) {
                *rest = behind;
                let joined = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
        }
    }
    char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn hex4(rest: &mut &[u8]) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(4)?;
    let mut unit = 0;
    for digit in digits {
        unit = unit * 16 + char::from(*digit).to_digit(16)?;
    }
    *rest = after;
    Some(unit)
}

/// Whether the bytes are one JSON text.
pub(crate) fn is_valid(payload: &[u8]) -> bool {
    std::str::from_utf8(payload).is_ok()
        && check_text(&mut Cursor { text: payload, at: 0 }).is_ok_and(|end| end == payload.len())
}

/// What may come next inside a container.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Value,
    ValueOrEnd,
    CommaOrEnd,
}

fn check_text(at: &mut Cursor<'_>) -> Result<usize, NotJson> {
    // One bit of nesting per level: set for an object.
    let mut nesting: Vec<bool> = Vec::new();
    let mut next = Next::Value;
    loop {
        at.skip_space();
        let inside = nesting.last().copied();
        if next != Next::Value {
            let end = if inside == Some(true) { b'}' } else { b']' };
            if at.peek() == Some(end) {
                at.at += 1;
                nesting.pop();
                if nesting.is_empty() {
                    at.skip_space();
                    return Ok(at.at);
                }
                next = Next::CommaOrEnd;
                continue;
            }
            if next == Next::CommaOrEnd {
                at.expect(b',')?;
                at.skip_space();
            }
        }
        if inside == Some(true) {
            check_string(at)?;
            at.skip_space();
            at.expect(b':')?;
            at.skip_space();
        }
        next = Next::CommaOrEnd;
        match at.peek().ok_or(NotJson)? {
            open @ (b'{' | b'[') => {
                at.at += 1;
                nesting.push(open == b'{');
                next = Next::ValueOrEnd;
            }
            b'"' => check_string(at)?,
            b't' => literal(at, b"true")?,
            b'f' => literal(at, b"false")?,
            b'n' => literal(at, b"null")?,
            _ => check_number(at)?,
        }
        if nesting.is_empty() {
            at.skip_space();
            return Ok(at.at);
        }
    }
}

fn literal(at: &mut Cursor<'_>, word: &[u8]) -> Result<(), NotJson> {
    word.iter().try_for_each(|letter| at.expect(*letter))
}

fn check_string(at: &mut Cursor<'_>) -> Result<(), NotJson> {
    at.expect(b'"')?;
    loop {
        match at.next().ok_or(NotJson)? {
            b'"' => return Ok(()),
            b'\\' => match at.next().ok_or(NotJson)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' => {
                    for _ in 0..4 {
                        if !at.next().is_some_and(|digit| digit.is_ascii_hexdigit()) {
                            return Err(NotJson);
                        }
                    }
                }
                _ => return Err(NotJson),
            },
            0..=0x1F => return Err(NotJson),
            _ => {}
        }
    }
}

fn check_number(at: &mut Cursor<'_>) -> Result<(), NotJson> {
    if at.peek() == Some(b'-') {
        at.at += 1;
    }
    match at.next() {
        Some(b'0') => {}
        Some(b'1'..=b'9') => skip_digits(at),
        _ => return Err(NotJson),
    }
    if at.peek() == Some(b'.') {
        at.at += 1;
        some_digits(at)?;
    }
    if let Some(b'e' | b'E') = at.peek() {
        at.at += 1;
        if let Some(b'+' | b'-') = at.peek() {
            at.at += 1;
        }
        some_digits(at)?;
    }
    Ok(())
}

fn skip_digits(at: &mut Cursor<'_>) {
    while at.peek().is_some_and(|byte| byte.is_ascii_digit()) {
        at.at += 1;
    }
}

fn some_digits(at: &mut Cursor<'_>) -> Result<(), NotJson> {
    let before = at.at;
    skip_digits(at);
    if at.at > before { Ok(()) } else { Err(NotJson) }
}

#[cfg(test)]
mod tests;
