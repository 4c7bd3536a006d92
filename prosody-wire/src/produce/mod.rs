//! Writing records, each acknowledged one exactly once and in order.
//!
//! ```text
//! Producer::send ──▶ Accumulator ──▶ Driver ──▶ broker
//!   (any thread)      partitions'     seals, sends,     │
//!        ▲            batches         reads answers ◀───┘
//!        └── Sending ◀── Completion of the batch ◀── Sequencer: what an answer means
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `handle.rs` | what does a user hold? |
//! | `record.rs` | what is sent? |
//! | `accumulator.rs`, `accumulator/ends.rs` | where does a record wait, and how does it end unsent? |
//! | `queue.rs` | what waits for one partition? |
//! | `sequencer.rs` | which batch goes next, under which sequence? |
//! | `partitioner.rs` | which partition does a key belong to? |
//! | `completion.rs` | how does a sender learn its record's fate? |
//! | `wire.rs` | what do Produce messages look like? |
//! | `driver.rs`, `driver/` | who sends, and who reads the answers? |

mod accumulator;
mod completion;
mod driver;
mod handle;
mod partitioner;
mod queue;
mod record;
mod sealed;
mod sequencer;
#[cfg(test)]
mod sequencer_model;
pub(crate) mod wire;

pub use completion::{Delivery, SendError, SendOutcome, Sending};
pub use handle::{Producer, ProducerConfig};
pub use partitioner::Partitioner;
pub use record::OutgoingRecord;
