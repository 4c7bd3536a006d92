//! Which timers of a partition are due, and who brings them to their keys?
//!
//! The key records say which timers there are. The index of the store says when: this folder reads it slab by slab,
//! ahead of time, and offers each timer to the partition when its second has begun.
//!
//! | file | question it answers |
//! |---|---|
//! | `index.rs` | which rows are kept in mind, which one is due, what is read and trimmed next? |
//! | `look.rs` | when is what was read looked at again? |
//! | `due.rs` | what is a timer that is due, and how does it end? |
//! | `driver.rs` | who asks the store, and tries again when it fails? |

mod driver;
mod due;
mod index;
mod look;
#[cfg(test)]
mod tests;

pub(crate) use driver::{Timers, TimersConfig, TimersHealth};
pub(crate) use due::{DueTimer, TimerEnd};
