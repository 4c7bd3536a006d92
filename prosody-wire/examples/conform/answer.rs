//! What is asked for, what is answered, and in which words?

use prosody_wire::batch::Record;
use prosody_wire::group::CommitError;
use prosody_wire::{Error, ErrorCode, ErrorKind};
use serde_json::{Map, Value, json};

pub type Answer = Result<Value, Problem>;

/// Why an operation did not end well.
pub enum Problem {
    /// An error, with Kafka's number for it where there is one.
    Failed { code: Option<i16>, text: String },
    /// The client has no such operation.
    Lacks(String),
}

impl Problem {
    pub fn text(text: &str) -> Problem {
        Problem::Failed { code: None, text: text.to_owned() }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        // An API that the broker does not offer has no number on the wire; other clients call it this one.
        let code = match error.kind() {
            ErrorKind::Unsupported { .. } => Some(ErrorCode::UNSUPPORTED_VERSION),
            _ => error.code(),
        };
        Problem::Failed { code: code.map(|code| code.0), text: error.to_string() }
    }
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Problem {
        let code = match &error {
            CommitError::MetadataTooLarge(_) => Some(ErrorCode::OFFSET_METADATA_TOO_LARGE),
            CommitError::Fenced(why) | CommitError::TimedOut(why) | CommitError::Refused(why) => why.code(),
            CommitError::NotOwned(_) => Some(ErrorCode::ILLEGAL_GENERATION),
            CommitError::Closed => Some(ErrorCode::UNKNOWN_MEMBER_ID),
        };
        Problem::Failed { code: code.map(|code| code.0), text: error.to_string() }
    }
}

/// One operation with its fields.
pub struct Ask<'a>(pub &'a Value);

impl<'a> Ask<'a> {
    pub fn text(&self, name: &str) -> Result<&'a str, Problem> {
        self.0.get(name).and_then(Value::as_str).ok_or_else(|| Problem::text(&format!("{name} is missing")))
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    pub fn whole(&self, name: &str) -> Result<i64, Problem> {
        self.number(name).ok_or_else(|| Problem::text(&format!("{name} is missing")))
    }

    pub fn millis(&self, name: &str) -> Option<std::time::Duration> {
        self.number(name).map(|millis| std::time::Duration::from_millis(millis as u64))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn list(&self, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten()
    }

    pub fn object(&self, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.0.get(name).and_then(Value::as_object).into_iter().flatten()
    }

    pub fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        self.object(name).filter_map(text).collect()
    }
}

/// `[name, value or null]`
pub fn header(pair: &Value) -> Option<(&[u8], Option<&[u8]>)> {
    let name = pair.get(0)?.as_str()?;
    Some((name.as_bytes(), pair.get(1).and_then(Value::as_str).map(str::as_bytes)))
}

/// A record as every agent prints it.
pub fn record(topic: &str, partition: i32, record: &Record) -> Value {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let headers: Vec<Value> =
        record.headers().map(|header| json!([text(Some(header.key)), text(header.value)])).collect();
    let mut row = Map::new();
    row.insert("topic".into(), json!(topic));
    row.insert("partition".into(), json!(partition));
    row.insert("offset".into(), json!(record.offset()));
    row.insert("timestamp".into(), json!(record.timestamp()));
    row.insert("key".into(), json!(text(record.key())));
    row.insert("value".into(), json!(text(record.value())));
    row.insert("headers".into(), json!(headers));
    Value::Object(row)
}
