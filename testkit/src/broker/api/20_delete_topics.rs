//! API 20, DeleteTopics: versions 1–6, by name or by id (6). Gaps: none known.

use std::ops::RangeInclusive;

use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::delete_topics_request::DeleteTopicsRequest;
use kafka_protocol::messages::delete_topics_response::{DeletableTopicResult, DeleteTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Answer, Api, Call, Refused};
use crate::broker::control::Scope;
use crate::broker::{ApiKey, code};

pub(super) struct DeleteTopics;

impl Api for DeleteTopics {
    const KEY: ApiKey = ApiKey::DELETE_TOPICS;
    const VERSIONS: RangeInclusive<i16> = 1..=6;
    type Request = DeleteTopicsRequest;

    fn scope(_call: &Call, request: &DeleteTopicsRequest, scope: &mut Scope) {
        for name in &request.topic_names {
            scope.topic(name);
        }
        for name in request.topics.iter().filter_map(|topic| topic.name.as_ref()) {
            scope.topic(name);
        }
    }

    async fn serve(call: &Call, request: DeleteTopicsRequest) -> Result<Answer, Refused> {
        let mut response = DeleteTopicsResponse::default().with_throttle_time_ms(call.throttle_ms());
        let names = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
        let topics = request.topics.into_iter().map(|topic| (topic.name, topic.topic_id));
        for (name, id) in names.chain(topics) {
            response.responses.push(delete(call, name, id));
        }
        call.encode(&response)
    }
}

fn delete(call: &Call, name: Option<TopicName>, id: Uuid) -> DeletableTopicResult {
    let (topic, missing) = match &name {
        Some(name) => (call.shared.topic(name), code::UNKNOWN_TOPIC_OR_PARTITION),
        None => (call.shared.topic_by_id(id.as_bytes()), code::UNKNOWN_TOPIC_ID),
    };
    let known = topic.as_ref().map(|topic| StrBytes::from_string(topic.name.as_ref().to_owned()).into());
    let mut result = DeletableTopicResult::default().with_name(known.or(name));
    if call.version >= 6 {
        result.topic_id = topic.as_ref().map_or(id, |topic| Uuid::from_bytes(topic.id));
    }
    let fault = call.fault_at(result.name.as_deref().map_or("", |name| name.as_str()), -1);
    result.error_code = match (fault, topic) {
        (Some(error), _) => error,
        (None, None) => call.noted(missing),
        (None, Some(topic)) => {
            call.shared.delete_topic(&topic);
            code::NONE
        }
    };
    result
}
