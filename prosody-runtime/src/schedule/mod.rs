//! Which event runs next, and on what?
//!
//! | file | question it answers |
//! |---|---|
//! | `gate.rs` | which worker runs the next event, within `MaxConcurrency`? |
//! | `fair.rs` | which waiting event is next? |
//! | `usage.rs` | how much execution time did keys and classes take lately? |
//! | `retries.rs` | which failed events wait, and until when? |
//! | `routes.rs` | which events wait until the failure topic has them? |

pub(crate) mod fair;
pub(crate) mod gate;
pub(crate) mod retries;
pub(crate) mod routes;
mod usage;
