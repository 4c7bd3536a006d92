//! One assigned partition: from fetched batches to events that may run, and from finished events to the watermark.
//!
//! | file | question it answers |
//! |---|---|
//! | `offsets.rs` | up to which offset is everything finished? |
//! | `keys.rs` | which event of a key may run, and which must wait behind it? |

pub(crate) mod keys;
pub(crate) mod offsets;
