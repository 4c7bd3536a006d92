//! API 42, DeleteGroups: versions 0–2. Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use kafka_protocol::messages::delete_groups_response::{DeletableGroupResult, DeleteGroupsResponse};

use super::{Answer, Api, Call, Refused};
use crate::broker::ApiKey;
use crate::broker::control::Scope;

pub(super) struct DeleteGroups;

impl Api for DeleteGroups {
    const KEY: ApiKey = ApiKey::DELETE_GROUPS;
    const VERSIONS: RangeInclusive<i16> = 0..=2;
    type Request = DeleteGroupsRequest;

    fn scope(_call: &Call, request: &DeleteGroupsRequest, scope: &mut Scope) {
        for group in &request.groups_names {
            scope.group(group);
        }
    }

    async fn serve(call: &Call, request: DeleteGroupsRequest) -> Result<Answer, Refused> {
        let mut response = DeleteGroupsResponse::default().with_throttle_time_ms(call.throttle_ms());
        for group in request.groups_names {
            let error = match call.fault().or(call.coordinates(&group).err()) {
                Some(error) => error,
                None => call.shared.coordinator.delete(&group),
            };
            let result = DeletableGroupResult::default().with_error_code(call.noted(error));
            response.results.push(result.with_group_id(group));
        }
        call.encode(&response)
    }
}
