#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test owns its runtime and its clock"))]
//! What outlives a process: one record for each key, and the index of its timers by time.
//!
//! Everything durable of one Kafka key of one partition is its *key record*. One event changes it with one conditional
//! batch, so its effects are there at once or not at all, and only while its writer owns the key.
//!
//! | file | question it answers |
//! |---|---|
//! | `segment.rs` | whose records are these? |
//! | `event_id.rs` | which messages are the same event? |
//! | `time.rs` | when is a timer due? |
//! | `key_image.rs` | what does a store know of a key, and what does a batch make of it? |
//! | `key_batch.rs` | what does one event change? |
//! | `slab.rs` | where is a timer found by its time? |
//! | `key_store.rs` | what must a store be able to do? |
//! | `overlay.rs` | what do an attempt's timer calls add up to? |
//! | `memory.rs` | the store of tests and of mock mode |
//! | `remembered.rs` | which events does it remember, and which does it forget? |
//! | `faulty.rs` | how does a store fail in a test? |
//! | `error.rs` | may trying again help? |
//! | `suite/` | what must every store be proven to do? |

mod error;
mod event_id;
mod faulty;
mod key_batch;
mod key_image;
mod key_store;
mod memory;
mod overlay;
mod remembered;
mod segment;
mod slab;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod time;

pub use error::{Category, StoreError};
pub use event_id::{EventId, EventScope};
pub use faulty::{Fault, Faulty, Hook, Statement};
pub use key_batch::{DeleteTimer, KeyBatch, PutTimer};
pub use key_image::{
    DeferredMessage, DeferredTimer, KeyImage, Last, Queue, TimerFacts, TimerId, TimerKind, Writer,
};
pub use key_store::{Committed, KeyStore, MAX_KEY_BYTES, Resolution, StoreFuture, resolve};
pub use memory::MemoryStore;
pub use overlay::{Firing, MAX_TIMERS, Overlay};
pub use segment::{SegmentFacts, SegmentId, SegmentRow};
pub use slab::{SLAB_SECONDS, SlabPosition, SlabRow};
pub use time::Time;
