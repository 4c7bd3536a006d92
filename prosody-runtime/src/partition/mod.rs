//! One assigned partition: from fetched batches to events that may run, and from finished events to the watermark.
//!
//! | file | question it answers |
//! |---|---|
//! | `offsets.rs` | up to which offset is everything finished, and what is finished above it? |
//! | `offset_map.rs` | how does a commit say what is finished above the watermark? |
//! | `keys.rs` | which event of a key may run, and which must wait behind it? |
//! | `window.rs` | which records are in progress, and what may start next? |
//! | `copies.rs` | how much memory do copies of waiting records take? |
//! | `event.rs` | what waits in a key's queue? |
//! | `record.rs` | what does a message keep of the record it came from? |
//! | `reader.rs` | who brings a partition's records in? |
//! | `held.rs` | which keys do abandoned handlers of earlier assignments still hold? |
//! | `runtime.rs` | who moves an assigned partition? |
//! | `status.rs` | what does it look like from outside? |

pub(crate) mod copies;
pub(crate) mod event;
pub(crate) mod held;
pub(crate) mod keys;
pub(crate) mod offset_map;
pub(crate) mod offsets;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod runtime;
mod status;
pub(crate) mod window;
