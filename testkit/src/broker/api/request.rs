//! What does a request frame say before its body, and is its body safe to decode?

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey as Known;
use kafka_protocol::protocol::Decodable;
use prosody_base::guard;

use crate::broker::ApiKey;

/// Tagged fields a header may carry.
const HEADER_TAGS: u32 = 64;

/// The header of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) correlation: i32,
    pub(super) client_id: String,
}

/// Bytes that are no Kafka request, and what is wrong with them.
#[derive(Debug)]
pub(super) struct Undecodable(pub(super) String);

impl Head {
    /// Reads the header; the rest of the frame is the body.
    pub(super) fn read(mut frame: Bytes) -> Result<(Head, Bytes), Undecodable> {
        let api = ApiKey(frame.try_get_i16().map_err(|_| cut_off("API key"))?);
        let version = frame.try_get_i16().map_err(|_| cut_off("version"))?;
        let correlation = frame.try_get_i32().map_err(|_| cut_off("correlation id"))?;
        let mut client_id = String::new();
        match frame.try_get_i16().map_err(|_| cut_off("client id"))? {
            -1 => {}
            length => {
                let text = take(&mut frame, i64::from(length), "client id")?;
                client_id = String::from_utf8_lossy(&text).into_owned();
            }
        }
        if is_flexible(api, version) {
            let tags = varint(&mut frame, "tag count")?;
            if tags > HEADER_TAGS {
                return Err(Undecodable(format!(
                    "a header with {tags} tagged fields; the limit is {HEADER_TAGS}"
                )));
            }
            for _ in 0..tags {
                let _tag = varint(&mut frame, "tag")?;
                let length = varint(&mut frame, "size of a tagged field")?;
                take(&mut frame, i64::from(length), "tagged field")?;
            }
        }
        Ok((Head { api, version, correlation, client_id }, frame))
    }
}

/// Whether requests of this version have tagged fields, and so have their headers. Unknown APIs have none.
pub(super) fn is_flexible(api: ApiKey, version: i16) -> bool {
    Known::try_from(api.0).is_ok_and(|known| known.request_header_version(version) >= 2)
}

/// Decodes a body once the guard has seen that its counts and lengths fit its bytes: the decoder reserves what a peer
/// claims. Trailing bytes are let pass, as Kafka does.
pub(super) fn decode_request<R: Decodable>(head: &Head, mut body: Bytes) -> Result<R, Undecodable> {
    let named = |why: String| Undecodable(format!("{} v{}: {why}", head.api, head.version));
    guard::check_request(head.api.0, head.version, &body).map_err(|error| named(error.to_string()))?;
    R::decode(&mut body, head.version).map_err(|error| named(error.to_string()))
}

fn cut_off(what: &str) -> Undecodable {
    Undecodable(format!("a header that ends in its {what}"))
}

fn take(frame: &mut Bytes, length: i64, what: &str) -> Result<Bytes, Undecodable> {
    match usize::try_from(length) {
        Ok(fits) if fits <= frame.len() => Ok(frame.split_to(fits)),
        _ => Err(Undecodable(format!("a header whose {what} claims {length} bytes, {} remain", frame.len()))),
    }
}

fn varint(frame: &mut Bytes, what: &str) -> Result<u32, Undecodable> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = frame.try_get_u8().map_err(|_| cut_off(what))?;
        value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Undecodable(format!("a header whose {what} has no end")))
}
