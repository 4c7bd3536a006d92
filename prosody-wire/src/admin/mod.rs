//! How are topics created, changed and asked about? Calls with a deadline, for tools and set-up; not on any hot path.
//!
//! | file | question |
//! |---|---|
//! | `topics.rs` | create, grow, delete and describe topics |
//! | `groups.rs` | which groups are there, and how are their offsets changed from outside? |
//! | `cluster.rs` | which brokers and topics are there, and how are old records dropped? |
//! | `offsets.rs` | where do a topic's partitions begin and end? |

mod cluster;
mod groups;
mod offsets;
mod topics;

use crate::cluster::Cluster;

pub use cluster::ClusterDescription;
pub use groups::{GroupDescription, GroupMember, ListedGroup};
pub use offsets::OffsetAt;
pub use topics::{ConfigEntry, NewTopic};

/// Administrative calls. Each retries what a retry helps (NOT_CONTROLLER, a broker that went away) until its deadline.
#[derive(Clone, Debug)]
pub struct Admin {
    cluster: Cluster,
}

impl Admin {
    pub(crate) fn new(cluster: Cluster) -> Admin {
        Admin { cluster }
    }
}
