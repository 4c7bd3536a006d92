//! API 18, ApiVersions: versions 0–4.
//!
//! An unsupported version is answered in the format of version 0 with error 35 and the list (KIP-511). The response
//! header has no tags in any version. Gaps: no features are listed.

use std::ops::RangeInclusive;

use bytes::BufMut;
use kafka_protocol::messages::api_versions_request::ApiVersionsRequest;
use kafka_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};

use super::{Answer, Api, Call, Refused, served};
use crate::broker::storage::Segments;
use crate::broker::{ApiKey, code};

pub(super) struct ApiVersions;

impl Api for ApiVersions {
    const KEY: ApiKey = ApiKey::API_VERSIONS;
    const VERSIONS: RangeInclusive<i16> = 0..=4;
    type Request = ApiVersionsRequest;

    async fn serve(call: &Call, _request: ApiVersionsRequest) -> Result<Answer, Refused> {
        let mut response = ApiVersionsResponse::default();
        response.error_code = call.fault().unwrap_or(code::NONE);
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        for (key, versions) in advertised(call) {
            let entry = ApiVersion::default().with_api_key(key.0);
            response
                .api_keys
                .push(entry.with_min_version(*versions.start()).with_max_version(*versions.end()));
        }
        call.encode(&response)
    }
}

/// What librdkafka needs to see to keep compression on: a produce version 0 that nobody uses (KIP-896).
fn advertised(call: &Call) -> impl Iterator<Item = (ApiKey, RangeInclusive<i16>)> {
    served(&call.shared).map(|(key, versions)| {
        if key == ApiKey::PRODUCE { (key, 0..=*versions.end()) } else { (key, versions) }
    })
}

/// The answer to a version this broker does not know.
pub(super) fn unsupported(call: &Call) -> Option<Segments> {
    let mut out = Segments::default();
    let body = out.open();
    let list: Vec<_> = advertised(call).collect();
    body.put_i16(call.noted(code::UNSUPPORTED_VERSION));
    body.put_i32(i32::try_from(list.len()).unwrap_or(0));
    for (key, versions) in list {
        body.put_i16(key.0);
        body.put_i16(*versions.start());
        body.put_i16(*versions.end());
    }
    Some(out)
}
