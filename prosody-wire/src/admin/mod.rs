//! How are topics created, changed and asked about? Calls with a deadline, for tools and set-up; not on any hot path.
//!
//! | file | question |
//! |---|---|
//! | `topics.rs` | create, grow, delete and describe topics |
//! | `offsets.rs` | where do a topic's partitions begin and end? |

mod offsets;
mod topics;

use crate::cluster::Cluster;

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
