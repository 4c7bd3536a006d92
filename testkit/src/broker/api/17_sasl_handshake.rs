//! API 17, SaslHandshake: version 1. Gaps: version 0, which is followed by bytes without frames.

use std::ops::RangeInclusive;

use kafka_protocol::messages::sasl_handshake_request::SaslHandshakeRequest;
use kafka_protocol::messages::sasl_handshake_response::SaslHandshakeResponse;
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::sasl::{Mechanism, Step};
use crate::broker::{ApiKey, code, lock};

pub(super) struct SaslHandshake;

impl Api for SaslHandshake {
    const KEY: ApiKey = ApiKey::SASL_HANDSHAKE;
    const VERSIONS: RangeInclusive<i16> = 1..=1;
    type Request = SaslHandshakeRequest;

    async fn serve(call: &Call, request: SaslHandshakeRequest) -> Result<Answer, Refused> {
        let mut response = SaslHandshakeResponse::default();
        response.error_code = match (&call.shared.config.sasl, call.fault()) {
            (_, Some(fault)) => fault,
            (None, _) => call.noted(code::ILLEGAL_SASL_STATE),
            (Some(sasl), _) => {
                let offered = sasl.mechanisms.iter().any(|name| *name == *request.mechanism);
                match Mechanism::named(&request.mechanism).filter(|_| offered) {
                    Some(mechanism) => {
                        lock(&call.login).step = Step::Chosen(mechanism);
                        code::NONE
                    }
                    None => call.noted(code::UNSUPPORTED_SASL_MECHANISM),
                }
            }
        };
        for name in call.shared.config.sasl.iter().flat_map(|sasl| &sasl.mechanisms) {
            response.mechanisms.push(StrBytes::from_string(name.clone()));
        }
        call.encode(&response)
    }
}
