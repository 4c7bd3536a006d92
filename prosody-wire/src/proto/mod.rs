//! What do Kafka's messages look like, and how does a call become one? The only folder that names `kafka-protocol`.
//!
//! | file | question |
//! |---|---|
//! | `versions.rs` | which version of which API is spoken? |
//! | `codes.rs` | what does an error code mean, and what helps? |
//! | `requests.rs` | which request has which response? |
//! | `parity.rs` | do hand-written messages mean the same to the message crate? (tests) |

pub(crate) mod codes;
#[cfg(test)]
mod parity;
pub(crate) mod requests;
pub(crate) mod versions;

pub use codes::{Disposition, ErrorCode};
pub(crate) use kafka_protocol::messages;
pub(crate) use kafka_protocol::messages::ApiKey;
pub(crate) use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
pub(crate) use requests::Request;
pub(crate) use versions::Offered;

use crate::types::Topic;

/// A string for a message.
pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// A topic's name for a message.
pub(crate) fn topic_name(topic: &str) -> messages::TopicName {
    messages::TopicName(text(topic))
}

/// A topic's name out of a message.
pub(crate) fn topic_of(name: &messages::TopicName) -> Topic {
    Topic::from(name.0.as_str())
}
