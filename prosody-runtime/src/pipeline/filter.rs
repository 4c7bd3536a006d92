//! Which records are no business of the handler? Decided before a record enters its key's queue.

use prosody_wire::batch::{Headers, RecordView};

use crate::json;

/// The header that says which system sent a message.
pub(crate) const SOURCE_SYSTEM: &str = "source-system";

/// Why a record does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// This group's own application sent it.
    Own,
    /// Its type starts with none of the allowed prefixes.
    Type,
    /// It is no message: the text says why.
    Poison(&'static str),
}

/// What the filters compare with.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) group_id: std::sync::Arc<str>,
    /// Empty allows all.
    pub(crate) allowed_events: Vec<String>,
}

impl Filter {
    /// Judges a record; its `id` when it runs.
    pub(crate) fn judge(&self, record: &RecordView<'_>) -> Result<Option<json::Text>, Skip> {
        let source = Headers::last(&record.headers(), SOURCE_SYSTEM);
        if source.is_some_and(|source| source == self.group_id.as_bytes()) {
            return Err(Skip::Own);
        }
        let Some(key) = record.key() else { return Err(Skip::Poison("it has no key")) };
        if std::str::from_utf8(key).is_err() {
            return Err(Skip::Poison("its key is not UTF-8"));
        }
        let Some(payload) = record.value() else { return Ok(None) };
        let Ok(facts) = json::scan(payload, !self.allowed_events.is_empty()) else {
            return Err(Skip::Poison("its payload is not JSON"));
        };
        if let Some(kind) = &facts.kind {
            let kind = kind.of(payload);
            let allowed = |prefix: &String| kind.starts_with(prefix.as_bytes());
            if !self.allowed_events.is_empty() && !self.allowed_events.iter().any(allowed) {
                return Err(Skip::Type);
            }
        }
        Ok(facts.id)
    }
}
