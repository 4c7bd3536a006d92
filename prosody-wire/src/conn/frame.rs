//! How long is the next frame, and does the peer speak Kafka at all? Checked before anything is allocated.

use bytes::{BufMut, Bytes, BytesMut};
use prosody_base::sabotaged;

use crate::error::DecodeError;
use crate::proto::ApiKey;

/// Bytes of a frame's length field.
pub(super) const LENGTH_BYTES: usize = 4;
/// The shortest response: a correlation id.
const SHORTEST: i32 = 4;

/// The number of bytes that follow the length field.
pub(super) fn length(prefix: [u8; LENGTH_BYTES], limit: usize) -> Result<usize, DecodeError> {
    let claimed = i32::from_be_bytes(prefix);
    match usize::try_from(claimed) {
        Ok(length) if claimed >= SHORTEST && (length <= limit || sabotaged("frame-limit")) => Ok(length),
        _ => Err(match prefix {
            [b'H', b'T', b'T', b'P'] => DecodeError::Http,
            // A TLS record: change-cipher-spec, alert or handshake; version 3.0 to 3.4.
            [0x14..=0x16, 3, 0..=4, _] => DecodeError::Tls,
            _ => DecodeError::FrameLength { claimed, limit },
        }),
    }
}

/// Length field and request header: everything before the body.
pub(super) fn head(
    api: ApiKey,
    version: i16,
    correlation: i32,
    client_id: &str,
    body: usize,
) -> Option<Bytes> {
    let flexible = api.request_header_version(version) >= 2;
    let length = 2 + 2 + 4 + 2 + client_id.len() + usize::from(flexible) + body;
    let mut head = BytesMut::with_capacity(LENGTH_BYTES + length - body);
    head.put_i32(i32::try_from(length).ok()?);
    head.put_i16(api as i16);
    head.put_i16(version);
    head.put_i32(correlation);
    head.put_i16(i16::try_from(client_id.len()).ok()?);
    head.put_slice(client_id.as_bytes());
    if flexible {
        head.put_u8(0); // no tagged fields
    }
    Some(head.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_checked_and_foreign_protocols_are_named() {
        let limit = 1 << 20;
        assert_eq!(length([0, 0, 1, 0], limit), Ok(256));
        assert_eq!(length([0, 16, 0, 0], limit), Ok(limit));
        assert_eq!(length(*b"HTTP", limit), Err(DecodeError::Http));
        assert_eq!(length([0x15, 3, 3, 0], limit), Err(DecodeError::Tls));
        assert_eq!(length([0x16, 3, 1, 2], limit), Err(DecodeError::Tls));
        for prefix in [[0, 16, 0, 1], [0xff; 4], [0, 0, 0, 3], *b"SSH-", [0x15, 3, 9, 0]] {
            let claimed = i32::from_be_bytes(prefix);
            assert_eq!(length(prefix, limit), Err(DecodeError::FrameLength { claimed, limit }));
        }
    }

    #[test]
    fn the_head_is_the_protocols_request_header() {
        let classic = head(ApiKey::Metadata, 7, 9, "me", 5).expect("fits");
        assert_eq!(&classic[..], [0, 0, 0, 17, 0, 3, 0, 7, 0, 0, 0, 9, 0, 2, b'm', b'e']);
        let flexible = head(ApiKey::Metadata, 9, 9, "me", 5).expect("fits");
        assert_eq!(&flexible[..], [0, 0, 0, 18, 0, 3, 0, 9, 0, 0, 0, 9, 0, 2, b'm', b'e', 0]);
    }
}
