//! How are Kafka's variable-length integers and fixed fields read from, and written to, bytes nobody vouches for?
//!
//! Zig-zag base-128 as in Protocol Buffers: at most 5 bytes for 32 bits, 10 for 64. A number that would not fit its
//! type is refused rather than truncated.

/// The longest encoding of a 32-bit number.
pub(crate) const MAX_VARINT: usize = 5;
/// The longest encoding of a 64-bit number.
pub(crate) const MAX_VARLONG: usize = 10;

/// A shrinking view of bytes; every read either succeeds or leaves `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A 32-bit number as it is written, before zig-zag is undone. One and two bytes cover every length below 8 KiB, so
    /// they are read in line; longer ones, and the last byte of all, take a call.
    #[inline(always)]
    pub(crate) fn unsigned(&mut self) -> Option<u32> {
        if let Some((pair, behind)) = self.rest.split_first_chunk::<2>() {
            let word = u32::from(u16::from_le_bytes(*pair));
            if word & 0x80 == 0 {
                self.rest = self.rest.get(1..)?;
                return Some(word & 0x7f);
            }
            if word & 0x8000 == 0 {
                self.rest = behind;
                return Some(word & 0x7f | word >> 1 & 0x3f80);
            }
        }
        self.long(MAX_VARINT).and_then(|raw| u32::try_from(raw).ok())
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Option<i32> {
        self.unsigned().map(unzigzag32)
    }

    pub(crate) fn varlong(&mut self) -> Option<i64> {
        self.long(MAX_VARLONG).map(unzigzag64)
    }

    /// Three numbers of one or two bytes each behind one skipped byte, as nearly every record begins: read out of one
    /// word, with one bounds check. `None` leaves the cursor where it was.
    #[inline(always)]
    pub(crate) fn three_short(&mut self) -> Option<[u32; 3]> {
        let mut word = u64::from_le_bytes(*self.rest.first_chunk()?) >> 8;
        let mut used = 1;
        let mut numbers = [0; 3];
        for number in &mut numbers {
            if word & 0x80 == 0 {
                *number = word as u32 & 0x7f;
                word >>= 8;
                used += 1;
            } else if word & 0x8000 == 0 {
                *number = word as u32 & 0x7f | (word >> 1) as u32 & 0x3f80;
                word >>= 16;
                used += 2;
            } else {
                return None;
            }
        }
        self.rest = self.rest.get(used..)?;
        Some(numbers)
    }

    #[cold]
    fn long(&mut self, max: usize) -> Option<u64> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(max).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * index);
            // The tenth byte of a 64-bit number has room for one bit only.
            if shifted >> (7 * index) != bits {
                return None;
            }
            value |= shifted;
            if *byte < 0x80 {
                self.rest = self.rest.get(index + 1..)?;
                return Some(value);
            }
        }
        None
    }
}

/// How many bytes `value` takes as a varint of either width.
#[inline]
pub(crate) fn varint_len(value: i64) -> usize {
    // The place of the highest bit, divided by 7 without a division: 9/64 is close enough for all 64 of them.
    let highest = 63 - (zigzag(value) | 1).leading_zeros() as usize;
    (highest * 9 + 73) / 64
}

/// Small numbers of either sign as small numbers without one; the 32-bit encoding is the same bytes as the 64-bit one.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub(crate) fn unzigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline]
pub(crate) fn unzigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: i64) -> Vec<u8> {
        let mut raw = zigzag(value);
        let mut bytes = Vec::new();
        while raw >= 0x80 {
            bytes.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        bytes.push(raw as u8);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_its_length_is_known(value in any::<i64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let bytes = written(value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varlong(), Some(value));
            prop_assert!(cursor.is_empty());
            prop_assert_eq!(Cursor::new(&bytes).varint(), i32::try_from(value).ok());
            prop_assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).varlong(), None);
        }
    }

    #[test]
    fn numbers_too_long_for_their_type_are_refused() {
        let six = [0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(Cursor::new(&six).varint(), None);
        let fifth_byte_too_big = [0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(Cursor::new(&fifth_byte_too_big).varint(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint(), Some(i32::MIN));
        let eleven = [0x80; 11];
        assert_eq!(Cursor::new(&eleven).varlong(), None);
        let mut tenth = [0xff; 10];
        tenth[9] = 0x02;
        assert_eq!(Cursor::new(&tenth).varlong(), None);
        tenth[9] = 0x01;
        assert_eq!(Cursor::new(&tenth).varlong(), Some(i64::MIN));
    }
}
