//! API 16, ListGroups: versions 0–5. Filters by state (4) and type (5; `classic` or `consumer`). Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::list_groups_request::ListGroupsRequest;
use kafka_protocol::messages::list_groups_response::{ListGroupsResponse, ListedGroup};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::ApiKey;
use crate::broker::topics::lock;

pub(super) struct ListGroups;

impl Api for ListGroups {
    const KEY: ApiKey = ApiKey::LIST_GROUPS;
    const VERSIONS: RangeInclusive<i16> = 0..=5;
    type Request = ListGroupsRequest;

    async fn serve(call: &Call, request: ListGroupsRequest) -> Result<Answer, Refused> {
        let mut response = ListGroupsResponse::default();
        if call.version >= 1 {
            response.throttle_time_ms = call.throttle_ms();
        }
        if let Some(error) = call.fault() {
            response.error_code = error;
            return call.encode(&response);
        }
        let wanted = |filter: &[StrBytes], value: &str| {
            filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(value))
        };
        for (name, cell) in call.shared.coordinator.all() {
            let cell = lock(&cell);
            let (kind, state, protocol_type) = match &cell.modern {
                Some(modern) => ("consumer", modern.state(), "consumer"),
                None => ("classic", cell.machine.state().name(), cell.machine.protocol().0),
            };
            let here = call.shared.coordinator_of(&name) == Some(call.broker);
            if !here || !wanted(&request.states_filter, state) || !wanted(&request.types_filter, kind) {
                continue;
            }
            let text = |text: &str| StrBytes::from_string(text.to_owned());
            let mut listed = ListedGroup::default()
                .with_group_id(text(&name).into())
                .with_protocol_type(text(protocol_type));
            if call.version >= 4 {
                listed.group_state = text(state);
            }
            if call.version >= 5 {
                listed.group_type = text(kind);
            }
            response.groups.push(listed);
        }
        call.encode(&response)
    }
}
