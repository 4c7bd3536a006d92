//! Do these bytes hold what they claim? One walk over a body by its description. Allocates nothing.

use super::schema::{Field, Kind};
use super::{GuardError, Refusal};

/// Most items of lists of structs and strings in one message. A decoder spends up to 150 bytes on each, whatever it
/// takes on the wire; no cluster has a tenth as many partitions.
pub(super) const ITEMS: usize = 500_000;
/// Most tagged fields behind one struct. The protocol knows four at most.
pub(super) const TAGS: u32 = 128;

/// Walks `fields` from the start of `body`; what lies behind them is not looked at.
pub(super) fn walk(
    body: &[u8],
    fields: &'static [Field],
    version: i16,
    flexible: bool,
) -> Result<(), GuardError> {
    let mut walk = Walk { rest: body, version, flexible, items: 0, field: "" };
    match walk.fields(fields) {
        Ok(()) => Ok(()),
        Err(refusal) => Err(GuardError { field: walk.field, at: body.len() - walk.rest.len(), refusal }),
    }
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    /// Items seen so far, of all lists.
    items: usize,
    /// The field being read.
    field: &'static str,
}

impl<'a> Walk<'a> {
    fn fields(&mut self, fields: &'static [Field]) -> Result<(), Refusal> {
        for field in fields {
            if field.tag.is_none() && field.exists(self.version) {
                self.value(field)?;
            }
        }
        if self.flexible { self.tagged(fields) } else { Ok(()) }
    }

    fn value(&mut self, field: &'static Field) -> Result<(), Refusal> {
        self.field = field.name;
        let nullable = field.null_from <= self.version;
        match field.kind {
            Kind::Fixed(size) => self.take(size).map(|_| ()),
            Kind::Text => self.text(nullable),
            Kind::Blob => self.sized(4, nullable).map(|_| ()),
            // One byte says whether a struct that may be null is there: 1, and to the decoder anything else is null.
            Kind::Struct(_) if nullable && self.take(1)? != [1] => Ok(()),
            Kind::Struct(fields) => self.fields(fields),
            // Numbers take as much memory as they take bytes here; counting their bytes is enough.
            Kind::Numbers(size) => {
                let bytes = self.count(nullable)?.checked_mul(size).ok_or(Refusal::Short)?;
                self.take(bytes).map(|_| ())
            }
            Kind::Texts => (0..self.items(nullable)?).try_for_each(|_| self.text(false)),
            Kind::Structs(fields) => (0..self.items(nullable)?).try_for_each(|_| self.fields(fields)),
        }
    }

    fn text(&mut self, nullable: bool) -> Result<(), Refusal> {
        let bytes = self.sized(2, nullable)?;
        std::str::from_utf8(bytes).map(|_| ()).map_err(|_| Refusal::Utf8)
    }

    /// The count of a list whose items cost a decoder more memory than they have bytes.
    fn items(&mut self, nullable: bool) -> Result<usize, Refusal> {
        let count = self.count(nullable)?;
        self.items += count;
        if self.items > ITEMS { Err(Refusal::TooMany { items: self.items }) } else { Ok(count) }
    }

    /// A list's count, bounded by the bytes that remain: no item is empty.
    fn count(&mut self, nullable: bool) -> Result<usize, Refusal> {
        let claimed = self.length(4, nullable)?.unwrap_or(0);
        let remain = self.rest.len();
        if claimed > remain { Err(Refusal::Count { claimed, remain }) } else { Ok(claimed) }
    }

    /// A length and that many bytes; none for null.
    fn sized(&mut self, prefix: usize, nullable: bool) -> Result<&'a [u8], Refusal> {
        let Some(claimed) = self.length(prefix, nullable)? else { return Ok(&[]) };
        let remain = self.rest.len();
        self.take(claimed).map_err(|_| Refusal::Length { claimed, remain })
    }

    /// A length field; `None` for null.
    fn length(&mut self, prefix: usize, nullable: bool) -> Result<Option<usize>, Refusal> {
        let length = if self.flexible {
            i64::from(self.varint()?) - 1
        } else {
            let bytes = self.take(prefix)?;
            let sign = if bytes.first().is_some_and(|first| *first >= 0x80) { -1 } else { 0 };
            bytes.iter().fold(sign, |value: i64, byte| value << 8 | i64::from(*byte))
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 && nullable => Ok(None),
            Err(_) if length == -1 => Err(Refusal::Null),
            Err(_) => Err(Refusal::Negative { claimed: length }),
        }
    }

    fn tagged(&mut self, fields: &'static [Field]) -> Result<(), Refusal> {
        let inside = self.field;
        self.field = "tagged fields";
        let count = self.varint()?;
        if count > TAGS {
            return Err(Refusal::Tags { count });
        }
        let mut previous = None;
        for _ in 0..count {
            self.field = "tagged fields";
            let tag = self.varint()?;
            if previous.is_some_and(|previous| tag <= previous) {
                return Err(Refusal::TagOrder { tag });
            }
            previous = Some(tag);
            let claimed = usize::try_from(self.varint()?).map_err(|_| Refusal::Short)?;
            let remain = self.rest.len();
            let value = self.rest.get(..claimed).ok_or(Refusal::Length { claimed, remain })?;
            let behind = self.rest.get(claimed..).unwrap_or(&[]);
            let known = |field: &&Field| field.tag == Some(tag) && field.exists(self.version);
            if let Some(field) = fields.iter().find(known) {
                // A decoder reads the value by its own layout and trusts that it ends where the size says.
                self.rest = value;
                self.value(field)?;
                if !self.rest.is_empty() {
                    return Err(Refusal::TagSize { tag, unread: self.rest.len() });
                }
            }
            self.rest = behind;
        }
        self.field = inside;
        Ok(())
    }

    /// An unsigned varint of at most five bytes that fits 32 bits.
    fn varint(&mut self) -> Result<u32, Refusal> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?.first().copied().ok_or(Refusal::Short)?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Refusal::Varint)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Refusal::Short)?;
        self.rest = rest;
        Ok(taken)
    }
}
