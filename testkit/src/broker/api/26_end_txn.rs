//! API 26, EndTxn: versions 0–4. Gaps: version 5 belongs to the second version of transactions (KIP-890).

use std::ops::RangeInclusive;

use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct EndTxn;

impl Api for EndTxn {
    const KEY: ApiKey = ApiKey::END_TXN;
    const VERSIONS: RangeInclusive<i16> = 0..=4;
    type Request = EndTxnRequest;

    fn scope(_call: &Call, request: &EndTxnRequest, scope: &mut Scope) {
        scope.group(&request.transactional_id);
    }

    async fn serve(call: &Call, request: EndTxnRequest) -> Result<Answer, Refused> {
        let (id, producer) =
            (request.transactional_id.as_str(), (request.producer_id.0, request.producer_epoch));
        let ended = match call.fault() {
            Some(error) => Err(error),
            None => call.coordinates(id).and_then(|()| call.shared.end(id, producer, request.committed)),
        };
        let error = ended.err().map_or(code::NONE, |error| call.fenced(error, 2));
        let response = EndTxnResponse::default().with_throttle_time_ms(call.throttle_ms());
        call.encode(&response.with_error_code(call.noted(error)))
    }
}
