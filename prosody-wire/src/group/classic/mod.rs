//! The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.
//!
//! | file | question |
//! |---|---|
//! | `machine.rs` | what does a member do next? |
//! | `calls.rs` | what can it ask, and what comes back? |
//! | `answers.rs` | what does each answer of the coordinator mean? |
//! | `membership.rs` | when is membership over, and when is it begun again? |
//! | `holdings.rs` | which partitions does this member hold, and how firmly? |
//! | `assignors.rs` | how does a leader divide partitions? |
//! | `codec.rs` | how do calls become Kafka messages? |

mod answers;
mod assignors;
pub(super) mod calls;
pub(super) mod codec;
mod holdings;
pub(super) mod machine;
mod membership;

pub(super) use answers::Remedy;
pub use assignors::Assignor;
