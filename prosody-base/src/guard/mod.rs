//! May a decoder see these bytes? Checks a message's body against a description of its layout, before it is decoded.
//!
//! The decoder of the message crate reserves memory for whatever count a peer claims: seven bytes are enough to abort
//! the process. So every body is walked first, by both sides: counts and lengths are bounded by the bytes that remain,
//! strings are UTF-8, nothing is null that must not be, and a tagged field is as long as it says.
//!
//! To add an API: write its fields down in `table/`, in the order and with the versions of Kafka's message
//! description. The tests compare the table with the decoder in every version.
//!
//! | file | question |
//! |---|---|
//! | `table/` | which fields does each message have? |
//! | `schema.rs` | the words the tables are written in |
//! | `walk.rs` | do these bytes hold what they claim? |

mod schema;
mod table;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;

use schema::{Api, Field};

/// Checks the body of a request, header excluded. Bytes behind the message are not looked at.
///
/// # Errors
/// When the API or version is not in the table, or the body is not what it claims to be.
pub fn check_request(api_key: i16, version: i16, body: &[u8]) -> Result<(), GuardError> {
    check(api_key, version, body, |api| api.request)
}

/// Checks the body of a response, header excluded. Bytes behind the message are not looked at.
///
/// # Errors
/// When the API or version is not in the table, or the body is not what it claims to be.
pub fn check_response(api_key: i16, version: i16, body: &[u8]) -> Result<(), GuardError> {
    check(api_key, version, body, |api| api.response)
}

/// The name of an API in the table.
#[must_use]
pub fn api_name(api_key: i16) -> Option<&'static str> {
    find(api_key).map(|api| api.name)
}

fn check(
    api_key: i16,
    version: i16,
    body: &[u8],
    fields: impl FnOnce(&Api) -> &'static [Field],
) -> Result<(), GuardError> {
    let unlisted = |refusal| GuardError { field: "", at: 0, refusal };
    let api = find(api_key).ok_or(unlisted(Refusal::UnknownApi { api_key }))?;
    let (lowest, highest) = api.versions;
    if version < lowest || version > highest {
        return Err(unlisted(Refusal::UnknownVersion { version, lowest, highest }));
    }
    walk::walk(body, fields(api), version, version >= api.flexible)
}

fn find(api_key: i16) -> Option<&'static Api> {
    table::all().find(|api| api.key == api_key)
}

/// Why a body was refused, in which field, and how many bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardError {
    /// The field being read; empty before the first.
    pub field: &'static str,
    /// Bytes of the body read before that (of the tagged value, inside a tagged field).
    pub at: usize,
    /// What is wrong.
    pub refusal: Refusal,
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table has no such API.
    UnknownApi {
        /// The API's number.
        api_key: i16,
    },
    /// The table does not describe this version of the API.
    UnknownVersion {
        /// The version.
        version: i16,
        /// Lowest version described.
        lowest: i16,
        /// Highest version described.
        highest: i16,
    },
    /// The body ends inside a field.
    Short,
    /// A list claims more items than bytes remain.
    Count {
        /// Items claimed.
        claimed: usize,
        /// Bytes left.
        remain: usize,
    },
    /// A string, bytes or tagged field claims more bytes than remain.
    Length {
        /// Bytes claimed.
        claimed: usize,
        /// Bytes left.
        remain: usize,
    },
    /// A length under −1.
    Negative {
        /// The length.
        claimed: i64,
    },
    /// Null where this version has none.
    Null,
    /// A string that is not UTF-8.
    Utf8,
    /// A variable-length number that does not end or does not fit 32 bits.
    Varint,
    /// More items in all lists together than any real message has.
    TooMany {
        /// Items so far.
        items: usize,
    },
    /// More tagged fields behind one struct than the bound.
    Tags {
        /// Fields claimed.
        count: u32,
    },
    /// A tag that is not above the one before it.
    TagOrder {
        /// The tag.
        tag: u32,
    },
    /// A known tagged field that is longer than its layout.
    TagSize {
        /// The tag.
        tag: u32,
        /// Bytes its layout does not explain.
        unread: usize,
    },
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "field {} at byte {}: ", self.field, self.at)?;
        }
        match self.refusal {
            Refusal::UnknownApi { api_key } => write!(f, "API {api_key} is not known"),
            Refusal::UnknownVersion { version, lowest, highest } => {
                write!(f, "version {version} is not known, only {lowest} to {highest}")
            }
            Refusal::Short => f.write_str("the message ends here"),
            Refusal::Count { claimed, remain } => {
                write!(f, "the list claims {claimed} items, {remain} bytes remain")
            }
            Refusal::Length { claimed, remain } => {
                write!(f, "the value claims {claimed} bytes, {remain} bytes remain")
            }
            Refusal::Negative { claimed } => write!(f, "the length {claimed} is negative"),
            Refusal::Null => f.write_str("null is not allowed"),
            Refusal::Utf8 => f.write_str("the text is not UTF-8"),
            Refusal::Varint => f.write_str("the variable-length number has no end"),
            Refusal::TooMany { items } => {
                write!(f, "{items} list items are over the limit of {}", walk::ITEMS)
            }
            Refusal::Tags { count } => {
                write!(f, "{count} tagged fields are over the limit of {}", walk::TAGS)
            }
            Refusal::TagOrder { tag } => write!(f, "tag {tag} is out of order"),
            Refusal::TagSize { tag, unread } => write!(f, "tagged field {tag} is {unread} bytes too long"),
        }
    }
}

impl std::error::Error for GuardError {}
