//! The consumer group protocol of KIP-848: one heartbeat that joins, holds on, gives up and leaves; the coordinator divides.
//!
//! | file | question |
//! |---|---|
//! | `machine.rs` | what does a member do next? |
//! | `answers.rs` | what does each answer of the coordinator mean? |
//! | `places.rs` | which topics are meant by the ids of an assignment? |
//! | `codec.rs` | how do heartbeats become Kafka messages? |

mod answers;
pub(super) mod codec;
pub(super) mod machine;
mod places;
