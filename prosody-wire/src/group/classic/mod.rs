//! The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.
//!
//! | file | question |
//! |---|---|
//! | `machine.rs` | what does a member do next? |
//! | `answers.rs` | what does each answer of the coordinator mean? |
//! | `membership.rs` | when is membership over, and when is it begun again? |
//! | `assignors.rs` | how does a leader divide partitions? |
//! | `codec.rs` | how do calls become Kafka messages? |

mod answers;
mod assignors;
pub(super) mod codec;
pub(super) mod machine;
mod membership;

pub use assignors::Assignor;
pub(crate) use assignors::RackSet;
