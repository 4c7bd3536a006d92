//! API 22, InitProducerId: versions 0–5.
//!
//! A new id for idempotent producers; for transactional ids the same id with the next epoch, after what was open has been
//! aborted. Gaps: `transaction_timeout_ms` ends nothing, two-phase commit (6) is not served.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use kafka_protocol::messages::ProducerId;
use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct InitProducerId;

impl Api for InitProducerId {
    const KEY: ApiKey = ApiKey::INIT_PRODUCER_ID;
    const VERSIONS: RangeInclusive<i16> = 0..=5;
    type Request = InitProducerIdRequest;

    fn scope(_call: &Call, request: &InitProducerIdRequest, scope: &mut Scope) {
        if let Some(id) = &request.transactional_id {
            scope.group(id);
        }
    }

    async fn serve(call: &Call, request: InitProducerIdRequest) -> Result<Answer, Refused> {
        let response = InitProducerIdResponse::default().with_throttle_time_ms(call.throttle_ms());
        let given = match call.fault() {
            Some(error) => Err(error),
            None => give(call, &request),
        };
        call.encode(&match given {
            Ok((id, epoch)) => response.with_producer_id(ProducerId(id)).with_producer_epoch(epoch),
            Err(error) => response
                .with_error_code(call.noted(error))
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1),
        })
    }
}

fn give(call: &Call, request: &InitProducerIdRequest) -> Result<(i64, i16), i16> {
    let new = || call.shared.next_producer.fetch_add(1, Ordering::Relaxed);
    let Some(id) = &request.transactional_id else { return Ok((new(), 0)) };
    let claimed = (request.producer_id.0, request.producer_epoch);
    let claimed = (call.version >= 3).then_some(claimed).filter(|claimed| *claimed != (-1, -1));
    if id.is_empty() || claimed.is_some_and(|(id, epoch)| id == -1 || epoch == -1) {
        return Err(code::INVALID_REQUEST);
    }
    call.coordinates(id)?;
    call.shared.begin(id, claimed, new).map_err(|error| call.fenced(error, 4))
}
