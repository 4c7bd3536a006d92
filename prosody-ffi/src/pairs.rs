//! How do options arrive? As pairs of texts: a 32-bit little-endian length and UTF-8 bytes, name and value in turn.

/// The bytes are not a list of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads all pairs.
pub(crate) fn pairs(mut bytes: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        list.push((text(&mut bytes)?, text(&mut bytes)?));
    }
    Ok(list)
}

fn text(bytes: &mut &[u8]) -> Result<String, Malformed> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Malformed)?;
    let (text, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(list: &[(String, String)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in list.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(list in proptest::collection::vec((".{0,20}", ".{0,20}"), 0..20)) {
            prop_assert_eq!(pairs(&write(&list)), Ok(list));
        }

        /// Any bytes: an answer, never a panic, and never more memory than there are bytes.
        #[test]
        fn anything_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(list) = pairs(&bytes) {
                prop_assert_eq!(write(&list), bytes);
            }
        }
    }
}
