//! How are the hand-written messages read and written? A cursor over one body that never reads past its end and never
//! believes a count it cannot see.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::DecodeError;

/// Reads one message body. Every failure names the field.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    flexible: bool,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `body`. `flexible`: compact lengths and tagged fields (KIP-482).
    pub(crate) fn new(body: &'a [u8], flexible: bool) -> Reader<'a> {
        Reader { rest: body, flexible }
    }

    /// Bytes not read yet.
    #[cfg(test)]
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Body(format!("{what} needs {len} bytes, {} remain", self.rest.len()))),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N, what)?;
        taken.try_into().map_err(|_| DecodeError::Body(format!("{what} is cut off")))
    }

    pub(crate) fn i16(&mut self, what: &str) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn i32(&mut self, what: &str) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn i64(&mut self, what: &str) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn uuid(&mut self, what: &str) -> Result<[u8; 16], DecodeError> {
        self.array(what)
    }

    fn uvarint(&mut self, what: &str) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(what)?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Body(format!("{what} is longer than 32 bits")))
    }

    /// A length; `None` is null.
    fn length(&mut self, what: &str, short: bool) -> Result<Option<usize>, DecodeError> {
        let length = match (self.flexible, short) {
            (true, _) => i64::from(self.uvarint(what)?) - 1,
            (false, true) => i64::from(self.i16(what)?),
            (false, false) => i64::from(self.i32(what)?),
        };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(DecodeError::Body(format!("{what} has the length {length}"))),
        }
    }

    /// The number of elements that follow, each at least `smallest` bytes in every version. Null counts as none.
    pub(crate) fn count(&mut self, what: &str, smallest: usize) -> Result<usize, DecodeError> {
        let count = self.length(what, false)?.unwrap_or(0);
        if count > self.rest.len() / smallest.max(1) {
            let remain = self.rest.len();
            return Err(DecodeError::Body(format!("{what} claims {count} elements, {remain} bytes remain")));
        }
        Ok(count)
    }

    /// A string; null is an error.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'a str, DecodeError> {
        self.nullable_string(what)?.ok_or_else(|| DecodeError::Body(format!("{what} is null")))
    }

    pub(crate) fn nullable_string(&mut self, what: &str) -> Result<Option<&'a str>, DecodeError> {
        let Some(length) = self.length(what, true)? else { return Ok(None) };
        let text = std::str::from_utf8(self.take(length, what)?);
        text.map(Some).map_err(|_| DecodeError::Body(format!("{what} is not UTF-8")))
    }

    /// Bytes as a slice of `whole`, the buffer this reader's body came from; null counts as empty.
    pub(crate) fn bytes(&mut self, what: &str, whole: &Bytes) -> Result<Bytes, DecodeError> {
        let length = self.length(what, false)?.unwrap_or(0);
        let taken = self.take(length, what)?;
        Ok(if taken.is_empty() { Bytes::new() } else { whole.slice_ref(taken) })
    }

    /// The tagged fields at this place: each tag with its bytes. None in versions without them.
    pub(crate) fn tags(
        &mut self,
        mut each: impl FnMut(u32, &'a [u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.uvarint("tagged fields")?;
        if count as usize > self.rest.len() / 2 {
            let remain = self.rest.len();
            return Err(DecodeError::Body(format!(
                "{count} tagged fields are claimed, {remain} bytes remain"
            )));
        }
        for _ in 0..count {
            let tag = self.uvarint("tag")?;
            let length = self.uvarint("tagged field")? as usize;
            each(tag, self.take(length, "tagged field")?)?;
        }
        Ok(())
    }

    pub(crate) fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(|_, _| Ok(()))
    }
}

/// A compact length: one more than the length, as an unsigned varint.
pub(crate) fn put_compact_len(out: &mut BytesMut, len: usize) {
    let mut value = u32::try_from(len).unwrap_or(u32::MAX - 1) + 1;
    while value >= 0x80 {
        out.put_u8((value as u8) | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// A string that is not null. Kafka's names are far below the 32 KiB an old version can carry.
pub(crate) fn put_string(out: &mut BytesMut, flexible: bool, text: &str) {
    if flexible {
        put_compact_len(out, text.len());
    } else {
        out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    }
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_held_against_the_bytes_that_remain() {
        let mut reader = Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0], false);
        let refused = reader.count("topics", 3).expect_err("two bytes hold no two billion topics");
        assert_eq!(refused.to_string(), "topics claims 2147483647 elements, 2 bytes remain");
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f], true);
        assert!(reader.count("topics", 3).expect_err("more than 32 bits").to_string().contains("32 bits"));
        let mut reader = Reader::new(&[0], true);
        assert_eq!(reader.count("topics", 3), Ok(0), "null");
    }

    #[test]
    fn compact_lengths_are_read_as_they_are_written() {
        for len in [0, 1, 126, 127, 128, 16_383, 16_384, 2_000_000] {
            let mut out = BytesMut::new();
            put_compact_len(&mut out, len);
            assert_eq!(Reader::new(&out, true).length("it", true), Ok(Some(len)));
        }
    }

    #[test]
    fn tags_are_walked_and_unknown_ones_skipped() {
        let body = [2, 0, 1, 9, 5, 2, 1, 2, 7];
        let mut reader = Reader::new(&body, true);
        let mut seen = Vec::new();
        reader
            .tags(|tag, value| {
                seen.push((tag, value.to_vec()));
                Ok(())
            })
            .expect("well formed");
        assert_eq!(seen, [(0, vec![9]), (5, vec![1, 2])]);
        assert_eq!(reader.remaining(), 1);
        let truncated = Reader::new(&[1, 0, 9, 1], true).skip_tags().expect_err("cut off");
        assert_eq!(truncated.to_string(), "tagged field needs 9 bytes, 1 remain");
    }
}
