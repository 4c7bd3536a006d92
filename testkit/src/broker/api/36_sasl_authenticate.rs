//! API 36, SaslAuthenticate: versions 0–2. A refused proof is answered with error 58 and the connection closes with the
//! next request that is no part of an exchange.

use std::ops::RangeInclusive;
use std::time::Duration;

use kafka_protocol::messages::sasl_authenticate_request::SaslAuthenticateRequest;
use kafka_protocol::messages::sasl_authenticate_response::SaslAuthenticateResponse;
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::sasl::{Reply, Step, begin, finish};
use crate::broker::{ApiKey, code, lock};

/// Longest session; a token may claim any expiry.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

pub(super) struct SaslAuthenticate;

impl Api for SaslAuthenticate {
    const KEY: ApiKey = ApiKey::SASL_AUTHENTICATE;
    const VERSIONS: RangeInclusive<i16> = 0..=2;
    type Request = SaslAuthenticateRequest;

    async fn serve(call: &Call, request: SaslAuthenticateRequest) -> Result<Answer, Refused> {
        let mut response = SaslAuthenticateResponse::default();
        let Some(config) = &call.shared.config.sasl else {
            response.error_code = call.noted(code::ILLEGAL_SASL_STATE);
            return call.encode(&response);
        };
        if let Some(fault) = call.fault() {
            response.error_code = fault;
            return call.encode(&response);
        }
        let mut login = lock(&call.login);
        let reply = match std::mem::take(&mut login.step) {
            Step::Idle => {
                response.error_code = call.noted(code::ILLEGAL_SASL_STATE);
                return call.encode(&response);
            }
            Step::Chosen(mechanism) => {
                let (nonce, now) = (call.shared.doors.rng.next_u64(), call.shared.doors.clock.unix_millis());
                begin(config, mechanism, &request.auth_bytes, nonce, now)
            }
            Step::Challenged(challenge) => {
                finish(&challenge, &request.auth_bytes).map(|message| Reply::Known(message, None))
            }
            Step::Refused(why) => Err(why),
        };
        match reply {
            Ok(Reply::More(message, step)) => {
                response.auth_bytes = message.into();
                login.step = step;
            }
            Ok(Reply::Known(message, life)) => {
                response.auth_bytes = message.into();
                // What ends first: the session or what proved it.
                let ends = [Some(config.session_lifetime).filter(|session| !session.is_zero()), life];
                let lifetime = ends.into_iter().flatten().min().map(|lifetime| lifetime.min(LONGEST));
                login.known = Some(lifetime.map(|lifetime| call.shared.doors.clock.now() + lifetime));
                if let Some(lifetime) = lifetime.filter(|_| call.version >= 1) {
                    response.session_lifetime_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
                }
            }
            Err(why) => {
                login.known = None;
                response.error_code = call.noted(code::SASL_AUTHENTICATION_FAILED);
                response.error_message = Some(StrBytes::from_string(format!("Authentication failed: {why}")));
            }
        }
        call.encode(&response)
    }
}
