//! What could a peer send to make a client panic, abort, hang or swallow memory? A table of bad inputs.
//!
//! A row attacks one field or one limit, and names the text with which the check that protects it must refuse it. The
//! rows are bytes and expectations only; whoever owns the decoders runs each in a process of its own with little memory.
//!
//! | file | question it answers |
//! |---|---|
//! | `craft.rs` | how are batches made that are wrong in one place only? |
//! | `batches.rs`, `records.rs`, `bombs.rs`, `legacy.rs` | what can be wrong with record batches? |
//! | `peers.rs` | what can a whole connection do wrong? |
//! | `bodies.rs`, `admin.rs`, `coordinators.rs`, `logs.rs` | what can be wrong with the messages inside? |
//! | `logins.rs` | what can a peer do while TLS and SASL are not through? |
//! | `tokens.rs` | what can a token endpoint do to a client, and a broker to its token? |
//! | `clients.rs`, `produced.rs` | what can a client do to the broker of this crate? |
#![allow(clippy::indexing_slicing, reason = "the inputs are constants of this table")]

mod admin;
mod batches;
mod bodies;
mod bombs;
mod clients;
mod coordinators;
mod craft;
mod legacy;
mod logins;
mod logs;
mod peers;
mod produced;
mod records;
mod tokens;

pub use clients::attack_broker;
pub use craft::{Batch, Message, Record, crc32c_of};
pub use logins::PASSWORD;
pub use peers::{Move, hello, play};

/// One bad input.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, unique in the table: what is attacked.
    pub name: &'static str,
    /// What is sent.
    pub attack: Attack,
    /// A part of the text of the error it must end with; no other row's check says it in this place.
    pub text: &'static str,
}

/// What is sent, and to which part of a client; or to the broker of this crate.
#[derive(Clone, Debug)]
pub enum Attack {
    /// The `records` field of a fetch response.
    Records(Vec<u8>),
    /// The same, too large to be made before it is needed.
    Bomb(fn() -> Vec<u8>),
    /// A whole peer: what it does with each connection, in order; the last is repeated.
    Peer(Vec<Move>),
    /// The same to a client that speaks TLS.
    TlsPeer(Vec<Move>),
    /// The same to a client that says it is `user` with the password [`PASSWORD`] by this mechanism, or shows that as its
    /// token.
    SaslPeer(&'static str, Vec<Move>),
    /// A token endpoint, `http://endpoint:80/token`, of a client whose secret is [`PASSWORD`]; the broker is a good one.
    TokenEndpoint(Vec<Move>),
    /// The body of a response to a request of this API and version.
    Body {
        /// API key.
        api: i16,
        /// Version of the request that was answered.
        version: i16,
        /// What comes after the response header.
        body: Vec<u8>,
    },
    /// The subscription another member of the group sent.
    Subscription(Vec<u8>),
    /// The assignment the leader of the group sent.
    Assignment(Vec<u8>),
    /// A whole client, to the broker of this crate: what it writes on one connection. See [`attack_broker`].
    Client(Vec<u8>),
    /// The same, too large to be made before it is needed.
    ClientBomb(fn() -> Vec<u8>),
}

impl Attack {
    fn records(bytes: impl Into<Vec<u8>>) -> Attack {
        Attack::Records(bytes.into())
    }
}

/// The whole table.
#[must_use]
pub fn rows() -> Vec<Row> {
    let all = [
        batches::rows(),
        records::rows(),
        bombs::rows(),
        legacy::rows(),
        peers::rows(),
        bodies::rows(),
        admin::rows(),
        coordinators::rows(),
        logs::rows(),
        logins::rows(),
        tokens::rows(),
        clients::rows(),
        produced::rows(),
    ];
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_the_table_is_long_enough() {
        let rows = rows();
        let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.len() >= 300, "{}", rows.len());
    }
}
