//! How are topics created, grown, deleted and described?

use prosody_base::Instant;

use super::Admin;
use crate::cluster::Attempt;
use crate::error::{DecodeError, Error, ErrorKind};
use crate::proto::messages::create_partitions_request::CreatePartitionsTopic;
use crate::proto::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use crate::proto::messages::delete_topics_request::DeleteTopicState;
use crate::proto::messages::describe_configs_request::DescribeConfigsResource;
use crate::proto::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use crate::proto::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
};
use crate::proto::{ApiKey, ErrorCode, StrBytes, text, topic_name};

/// The broker's default, for partitions and replication.
const BROKER_DEFAULT: i16 = -1;
/// DescribeConfigs' resource type of topics.
const TOPIC_RESOURCE: i8 = 2;
/// IncrementalAlterConfigs' operations.
const SET: i8 = 0;
const DELETE: i8 = 1;
/// From this version on DeleteTopics names topics by name or id.
const DELETE_BY_STATE: i16 = 6;

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Partitions; `None` takes the broker's default (`num.partitions`).
    pub partitions: Option<i32>,
    /// Replicas of each; `None` takes the broker's default (`default.replication.factor`).
    pub replication: Option<i16>,
    /// Settings such as `("cleanup.policy", "compact")`.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// A topic with the broker's defaults.
    pub fn new(name: impl Into<String>) -> NewTopic {
        NewTopic { name: name.into(), partitions: None, replication: None, configs: Vec::new() }
    }

    /// The same topic with this many partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: i32) -> NewTopic {
        self.partitions = Some(partitions);
        self
    }
}

/// One setting of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` when it is a secret.
    pub value: Option<String>,
    /// Whether it was set for this topic and not inherited.
    pub own: bool,
}

impl Admin {
    /// Creates a topic and waits until metadata shows all its partitions with their leaders.
    ///
    /// # Errors
    /// What the broker answered (TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, …), or at `deadline` the last cause.
    pub async fn create_topic(&self, topic: &NewTopic, deadline: Instant) -> Result<(), Error> {
        let doing = format!("creating topic {}", topic.name);
        self.cluster.attempts(&doing, deadline, |attempt| self.try_create(topic, attempt)).await?;
        self.wait_for_leaders(&topic.name, 1, deadline).await
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// What the broker answered (UNKNOWN_TOPIC_OR_PARTITION, …), or at `deadline` the last cause.
    pub async fn delete_topic(&self, topic: &str, deadline: Instant) -> Result<(), Error> {
        let doing = format!("deleting topic {topic}");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_delete(topic, attempt)).await
    }

    /// Grows a topic to `total` partitions and waits until metadata shows them with their leaders.
    ///
    /// # Errors
    /// What the broker answered (INVALID_PARTITIONS when it has that many already, …), or at `deadline` the last cause.
    pub async fn create_partitions(&self, topic: &str, total: i32, deadline: Instant) -> Result<(), Error> {
        let doing = format!("growing topic {topic} to {total} partitions");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_grow(topic, total, attempt)).await?;
        self.wait_for_leaders(topic, usize::try_from(total).unwrap_or(0), deadline).await
    }

    /// A topic's settings, by name.
    ///
    /// # Errors
    /// What the broker answered, or at `deadline` the last cause.
    pub async fn describe_topic(&self, topic: &str, deadline: Instant) -> Result<Vec<ConfigEntry>, Error> {
        let doing = format!("describing topic {topic}");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_describe(topic, attempt)).await
    }

    /// Changes settings of a topic and leaves the others alone (KIP-339; Kafka 2.3 and later). `None` goes back to the
    /// broker's default.
    ///
    /// # Errors
    /// What the broker answered (INVALID_CONFIG, …), or at `deadline` the last cause.
    pub async fn alter_topic(
        &self,
        topic: &str,
        changes: &[(&str, Option<&str>)],
        deadline: Instant,
    ) -> Result<(), Error> {
        let doing = format!("changing the settings of topic {topic}");
        self.cluster.attempts(&doing, deadline, |attempt| self.try_alter(topic, changes, attempt)).await
    }

    /// Waits until metadata shows at least `count` partitions, all of them with a leader. Brokers learn of a change one
    /// after the other, so the first answer may still be the old one.
    async fn wait_for_leaders(&self, topic: &str, count: usize, deadline: Instant) -> Result<(), Error> {
        let doing = format!("waiting for the leaders of topic {topic}");
        self.cluster
            .attempts(&doing, deadline, |_| async {
                let known = self.cluster.topic(topic, deadline).await?;
                let led = known.partitions.iter().filter(|partition| partition.leader.is_some()).count();
                if led >= count && led == known.partitions.len() {
                    return Ok(());
                }
                self.cluster.refresh(deadline).await?;
                Err(Error::broker(format!("{led} partitions"), ErrorCode::LEADER_NOT_AVAILABLE))
            })
            .await
    }

    async fn try_create(&self, topic: &NewTopic, attempt: Attempt) -> Result<(), Error> {
        let connection = self.cluster.controller().await?;
        let configs = topic.configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        });
        let new = CreatableTopic::default()
            .with_name(topic_name(&topic.name))
            .with_num_partitions(topic.partitions.unwrap_or(BROKER_DEFAULT.into()))
            .with_replication_factor(topic.replication.unwrap_or(BROKER_DEFAULT))
            .with_configs(configs.collect());
        let request =
            CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(attempt.timeout_ms());
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("CreateTopics to {}", connection.peer());
        let row = only(answer.topics, &doing)?;
        match verdict(row.error_code, row.error_message.as_ref(), doing) {
            Err(error) if attempt.unclear && error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => Ok(()),
            verdict => verdict,
        }
    }

    async fn try_delete(&self, topic: &str, attempt: Attempt) -> Result<(), Error> {
        let connection = self.cluster.controller().await?;
        let version = connection.require(ApiKey::DeleteTopics)?;
        let request = DeleteTopicsRequest::default().with_timeout_ms(attempt.timeout_ms());
        let request = if version >= DELETE_BY_STATE {
            request.with_topics(vec![DeleteTopicState::default().with_name(Some(topic_name(topic)))])
        } else {
            request.with_topic_names(vec![topic_name(topic)])
        };
        let answer = connection.call_version(&request, version, attempt.timeout).await?;
        let doing = format!("DeleteTopics to {}", connection.peer());
        let row = only(answer.responses, &doing)?;
        match verdict(row.error_code, row.error_message.as_ref(), doing) {
            // Here a missing topic is an answer and not a reason to refresh metadata and ask again.
            Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                if attempt.unclear {
                    Ok(())
                } else {
                    Err(error.final_answer())
                }
            }
            verdict => verdict,
        }
    }

    async fn try_grow(&self, topic: &str, total: i32, attempt: Attempt) -> Result<(), Error> {
        let connection = self.cluster.controller().await?;
        let grown = CreatePartitionsTopic::default()
            .with_name(topic_name(topic))
            .with_count(total)
            .with_assignments(None);
        let request =
            CreatePartitionsRequest::default().with_topics(vec![grown]).with_timeout_ms(attempt.timeout_ms());
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("CreatePartitions to {}", connection.peer());
        let row = only(answer.results, &doing)?;
        match verdict(row.error_code, row.error_message.as_ref(), doing) {
            Err(error) if attempt.unclear && error.code() == Some(ErrorCode::INVALID_PARTITIONS) => Ok(()),
            verdict => verdict,
        }
    }

    async fn try_describe(&self, topic: &str, attempt: Attempt) -> Result<Vec<ConfigEntry>, Error> {
        let connection = self.cluster.any().await?;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC_RESOURCE)
            .with_resource_name(text(topic))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("DescribeConfigs to {}", connection.peer());
        let row = only(answer.results, &doing)?;
        verdict(row.error_code, row.error_message.as_ref(), doing).map_err(about_topic)?;
        let entries = row.configs.iter().map(|config| ConfigEntry {
            name: config.name.to_string(),
            value: config.value.as_ref().map(ToString::to_string),
            own: config.config_source == 1, // DYNAMIC_TOPIC_CONFIG
        });
        Ok(entries.collect())
    }

    async fn try_alter(
        &self,
        topic: &str,
        changes: &[(&str, Option<&str>)],
        attempt: Attempt,
    ) -> Result<(), Error> {
        let connection = self.cluster.controller().await?;
        let configs = changes.iter().map(|(name, value)| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(if value.is_some() { SET } else { DELETE })
                .with_value(value.map(text))
        });
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC_RESOURCE)
            .with_resource_name(text(topic))
            .with_configs(configs.collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let answer = connection.call(&request, attempt.timeout).await?;
        let doing = format!("IncrementalAlterConfigs to {}", connection.peer());
        let row = only(answer.responses, &doing)?;
        verdict(row.error_code, row.error_message.as_ref(), doing).map_err(about_topic)
    }
}

/// The one row of an answer to a request about one thing.
pub(super) fn only<T>(rows: Vec<T>, doing: &str) -> Result<T, Error> {
    rows.into_iter().next().ok_or_else(|| {
        Error::decode(doing, DecodeError::Body("the answer leaves out what was asked for".to_owned()))
    })
}

pub(super) fn verdict(code: i16, message: Option<&StrBytes>, doing: String) -> Result<(), Error> {
    ErrorCode::check(code).map_err(|code| {
        let message = message.map(ToString::to_string).filter(|text| !text.is_empty());
        Error::new(doing, ErrorKind::Broker(code, message))
    })
}

/// Here a missing topic is an answer and not a reason to refresh metadata and ask again.
fn about_topic(error: Error) -> Error {
    if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) { error.final_answer() } else { error }
}
