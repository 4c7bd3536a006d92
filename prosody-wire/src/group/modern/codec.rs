//! How do heartbeats become Kafka messages, and answers values?

use std::time::Duration;

use crate::conn::Connection;
use crate::error::Error;
use crate::group::calls::{Answer, Beat, Beaten, Places};
use crate::group::codec::{check, doing, group_id, instance_id, milliseconds};
use crate::group::config::GroupConfig;
use crate::proto::messages::consumer_group_heartbeat_request::TopicPartitions;
use crate::proto::messages::describe_configs_request::DescribeConfigsResource;
use crate::proto::messages::{self as m};
use crate::proto::{ApiKey, ErrorCode, StrBytes, text, topic_name};
use crate::types::TopicId;

/// What the coordinator shall divide by.
const ASSIGNOR: &str = "uniform";
/// DescribeConfigs' resource type of groups.
const GROUP_RESOURCE: i8 = 32;
/// The group's own setting.
const SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";

/// A heartbeat.
pub(crate) async fn beat(
    connection: &Connection,
    config: &GroupConfig,
    beat: Beat,
    request_timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::ConsumerGroupHeartbeat)?;
    let mut request = m::ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id(config))
        .with_member_id(StrBytes::from_string(beat.member_id))
        .with_member_epoch(beat.epoch)
        .with_instance_id(instance_id(config))
        .with_rebalance_timeout_ms(-1)
        .with_topic_partitions(beat.owned.map(topic_partitions));
    if let Some(wanted) = beat.full {
        request.rack_id = config.client_rack.as_deref().map(text);
        request.rebalance_timeout_ms = milliseconds(config.rebalance_timeout);
        request.subscribed_topic_names = Some(wanted.topics.iter().map(|topic| topic_name(topic)).collect());
        request.subscribed_topic_regex = wanted.regex.map(StrBytes::from_string);
        request.server_assignor = Some(StrBytes::from_static_str(ASSIGNOR));
    }
    let answer = connection.call_version(&request, version, request_timeout.min(beat.patience)).await?;
    check(answer.error_code, || {
        let doing = doing("sending a heartbeat to", config, connection);
        match answer.error_message.as_deref() {
            Some(why) if !why.is_empty() => format!("{doing} ({})", shortened(why)),
            _ => doing,
        }
    })?;
    let interval = Duration::from_millis(u64::try_from(answer.heartbeat_interval_ms).unwrap_or(0));
    Ok(Answer::Beaten(Beaten {
        epoch: answer.member_epoch,
        interval,
        assignment: answer.assignment.map(|assignment| {
            let mut places = Places::new();
            for topic in assignment.topic_partitions {
                let Some(id) = TopicId::known(*topic.topic_id.as_bytes()) else { continue };
                let partitions = topic.partitions.into_iter().filter(|partition| *partition >= 0);
                places.entry(id).or_default().extend(partitions);
            }
            for partitions in places.values_mut() {
                partitions.sort_unstable();
                partitions.dedup();
            }
            places
        }),
    }))
}

/// The broker's words, as far as an error needs them.
fn shortened(why: &str) -> &str {
    why.char_indices().nth(200).map_or(why, |(at, _)| why.get(..at).unwrap_or(why))
}

fn topic_partitions(places: Places) -> Vec<TopicPartitions> {
    let one = |(id, partitions): (TopicId, Vec<i32>)| {
        TopicPartitions::default().with_topic_id(uuid::Uuid::from_bytes(id.0)).with_partitions(partitions)
    };
    places.into_iter().map(one).collect()
}

/// The group's own session timeout.
pub(crate) async fn session_timeout(
    connection: &Connection,
    config: &GroupConfig,
    request_timeout: Duration,
) -> Result<Answer, Error> {
    let version = connection.require(ApiKey::DescribeConfigs)?;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(GROUP_RESOURCE)
        .with_resource_name(text(&config.group_id))
        .with_configuration_keys(Some(vec![StrBytes::from_static_str(SESSION_TIMEOUT)]));
    let request = m::DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = connection.call_version(&request, version, request_timeout).await?;
    let Some(result) = answer.results.into_iter().next() else {
        return Ok(Answer::SessionTimeout(None));
    };
    let what = || doing("reading the session timeout of", config, connection);
    ErrorCode::check(result.error_code).map_err(|code| Error::broker(what(), code))?;
    let value = result.configs.into_iter().find(|one| one.name.as_str() == SESSION_TIMEOUT);
    let ms = value.and_then(|one| one.value?.parse::<u64>().ok());
    Ok(Answer::SessionTimeout(ms.map(Duration::from_millis)))
}
