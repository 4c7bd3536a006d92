//! How does a user configure a client? Explicit option, then environment variable, then default.
//!
//! | file | question it answers |
//! |---|---|
//! | `table.rs` | which options exist, under which names, with which defaults and rules? |
//! | `choices.rs` | which choices are there, and how do people write them? |
//! | `options.rs` | what did the user set, in text or in code? |
//! | `env.rs` | which variables does an environment hold, and which are misspelled? |
//! | `checked.rs` | is all of it usable together? |
//! | `places.rs` | which cluster, topics and addresses do they name? |
//! | `security.rs` | how are brokers reached, and as whom? |
//! | `duration.rs` | how do people write durations and sizes? |

mod checked;
mod choices;
mod duration;
mod env;
mod options;
mod places;
mod security;
mod table;

pub(crate) use checked::{Checked, MAX_POLL, check};
pub use choices::{
    Compression, GroupProtocol, IsolationLevel, Mode, Partitioner, SaslMechanism, SecurityProtocol,
    SpanRelation,
};
pub(crate) use env::read as read_environment;
pub use options::Options;
pub(crate) use places::wrong_topic;
pub(crate) use security::option_of;
pub use table::{ConfigError, OPTIONS, OptionSpec, Problem, Support};
