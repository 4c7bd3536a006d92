//! Which records are no business of the handler? Decided before a record enters its key's queue. *Pure.*

use prosody_wire::batch::{Headers, RecordView};

use crate::json;

/// The header that says which system sent a message.
pub(crate) const SOURCE_SYSTEM: &str = "source-system";

/// Why a record is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// This group's own application sent it.
    Own,
    /// Its type starts with none of the allowed prefixes.
    Type,
}

/// Why a record is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poison {
    NoKey,
    Key,
    Payload,
}

impl Poison {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Poison::NoKey => "it has no key",
            Poison::Key => "its key is not UTF-8",
            Poison::Payload => "its payload is not JSON",
        }
    }
}

/// What the filters compare with.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) group_id: std::sync::Arc<str>,
    /// Empty allows all.
    pub(crate) allowed_events: Vec<String>,
}

impl Filter {
    /// Judges a record; its `id` when it is a message.
    pub(crate) fn judge(&self, record: &RecordView<'_>) -> Result<Result<Option<json::Text>, Poison>, Skip> {
        let source = Headers::last(&record.headers(), SOURCE_SYSTEM);
        if source.is_some_and(|source| source == self.group_id.as_bytes()) {
            return Err(Skip::Own);
        }
        let Some(key) = record.key() else { return Ok(Err(Poison::NoKey)) };
        if std::str::from_utf8(key).is_err() {
            return Ok(Err(Poison::Key));
        }
        let Some(payload) = record.value() else { return Ok(Ok(None)) };
        let Ok(facts) = json::scan(payload, !self.allowed_events.is_empty()) else {
            return Ok(Err(Poison::Payload));
        };
        if let Some(kind) = &facts.kind {
            let kind = kind.of(payload);
            let allowed = |prefix: &String| kind.starts_with(prefix.as_bytes());
            if !self.allowed_events.is_empty() && !self.allowed_events.iter().any(allowed) {
                return Err(Skip::Type);
            }
        }
        Ok(Ok(facts.id))
    }
}
