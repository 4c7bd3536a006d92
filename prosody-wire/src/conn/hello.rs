//! Which versions does the broker speak? ApiVersions (KIP-511), written and read by hand.
//!
//! The answer comes before anything is known about the peer, and brokers answer a version they do not know in odd
//! layouts. So nothing that arrives here may be trusted, and everything that cannot be read falls back to version 0.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use prosody_base::{Instant, sabotaged};

use super::{Body, Handle};
use crate::error::{DecodeError, Error};
use crate::proto::{ApiKey, ErrorCode, Offered};

/// The version asked first. v3 adds the client's name; newer ones add nothing we use, and every broker answers v3 or
/// UNSUPPORTED_VERSION.
const FIRST: i16 = 3;
/// More APIs than any Kafka has; a longer list is not one.
const APIS: usize = 1_024;

/// Asks, and asks again in version 0 when the first answer says so or cannot be read.
pub(super) async fn ask(connection: &Handle, deadline: Instant) -> Result<Offered, Error> {
    let left = || deadline.saturating_duration_since(connection.clock.now());
    let answer = connection.send(ApiKey::ApiVersions, FIRST, request(), left()).await?;
    let is_refusal = answer.starts_with(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes());
    match decode(answer, FIRST) {
        Ok(offered) => return Ok(offered),
        Err(cause) if !is_refusal && sabotaged("versions-fall-back") => {
            return Err(Error::decode("ApiVersions", cause));
        }
        Err(_) => {}
    }
    let answer = connection.send(ApiKey::ApiVersions, 0, Body::default(), left()).await?;
    decode(answer, 0).map_err(|cause| {
        Error::decode(format!("ApiVersions v0 to {}", connection.shared.machine().peer()), cause)
    })
}

/// `client_software_name` and `client_software_version`, compact strings, and no tagged fields.
fn request() -> Body {
    let mut body = BytesMut::new();
    for value in ["prosody", env!("CARGO_PKG_VERSION")] {
        // Both are short enough for a one-byte length.
        body.put_u8(u8::try_from(value.len() + 1).unwrap_or(1));
        body.put_slice(value.as_bytes());
    }
    body.put_u8(0);
    Body::new(vec![body.freeze()])
}

/// Reads the list of APIs; tolerates everything behind it.
pub(super) fn decode(mut body: Bytes, version: i16) -> Result<Offered, DecodeError> {
    let short = |_| DecodeError::Body("an ApiVersions response ends too early".into());
    let flexible = version >= 3;
    ErrorCode::check(body.try_get_i16().map_err(short)?)
        .map_err(|code| DecodeError::Body(format!("ApiVersions answered {code}")))?;
    let count = if flexible {
        // A compact count is one more than the number of items; two bytes are enough for the limit.
        let low = usize::from(body.try_get_u8().map_err(short)?);
        let count =
            if low < 0x80 { low } else { low & 0x7f | usize::from(body.try_get_u8().map_err(short)?) << 7 };
        count.checked_sub(1)
    } else {
        usize::try_from(body.try_get_i32().map_err(short)?).ok()
    };
    let row_bytes = if flexible { 7 } else { 6 };
    let count = count
        .filter(|count| *count <= APIS && count * row_bytes <= body.remaining())
        .ok_or_else(|| DecodeError::Body("an ApiVersions response claims more APIs than it holds".into()))?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let mut field = || body.try_get_i16().map_err(short);
        rows.push((field()?, field()?, field()?));
        if flexible && body.try_get_u8().map_err(short)? != 0 {
            return Err(DecodeError::Body(
                "an ApiVersions response has tagged fields inside its list".into(),
            ));
        }
    }
    Ok(Offered::new(rows))
}
