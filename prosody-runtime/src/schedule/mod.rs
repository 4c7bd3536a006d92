//! Which event runs next, and on what?
//!
//! | file | question it answers |
//! |---|---|
//! | `gate.rs` | which worker runs the next event, within `MaxConcurrency`? |
//! | `retries.rs` | which failed events wait, and until when? |

pub(crate) mod gate;
pub(crate) mod retries;
