//! How are a match and an action written in JSON? Pure. Nothing is ignored: a field nobody knows is an error.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use serde_json::{Map, Value};

use crate::broker::{Action, ApiKey, Match};

/// Longest delay or throttle time.
const LONGEST: u64 = 3_600_000;

/// The fields of an object, each to be taken once.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn of(value: Value) -> Result<Fields, String> {
        match value {
            Value::Object(fields) => Ok(Fields(fields)),
            Value::Null => Ok(Fields(Map::new())),
            other => Err(format!("`{}` is no object", short(&other))),
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name).map(|value| text(name, value)).transpose()
    }

    pub(super) fn number<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.take(name).map(|value| number(name, &value)).transpose()
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, String> {
        let flag = |value: Value| {
            value.as_bool().ok_or_else(|| format!("`{name}` is true or false, not `{}`", short(&value)))
        };
        self.take(name).map(flag).transpose()
    }

    /// Nothing may be left.
    pub(super) fn end(self, known: &str) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(other) => Err(format!("`{}` is not known here; {known} are", cut(other))),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

fn short(value: &Value) -> String {
    cut(&value.to_string())
}

fn text(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("`{name}` is a text, not `{}`", short(&other))),
    }
}

fn number<T: TryFrom<i64>>(name: &str, value: &Value) -> Result<T, String> {
    let fits = value.as_i64().and_then(|number| T::try_from(number).ok());
    fits.ok_or_else(|| format!("`{name}` is a whole number in its range, not `{}`", short(value)))
}

/// An API by its name or number.
pub(super) fn api(value: &Value) -> Result<ApiKey, String> {
    let found = match value {
        Value::String(name) => ApiKey::named(name),
        other => other.as_i64().and_then(|key| i16::try_from(key).ok()).map(ApiKey),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = ApiKey::ALL.iter().map(|api| api.name()).collect();
        format!("`{}` is no API; there are {}", short(value), names.join(", "))
    })
}

/// Which requests a rule is about.
pub(super) fn matching(value: Value) -> Result<Match, String> {
    let mut fields = Fields::of(value)?;
    let mut what = Match::any();
    if let Some(value) = fields.take("api") {
        what = what.only_api(api(&value)?);
    }
    if let Some(versions) = fields.take("versions") {
        let pair = versions.as_array().map(Vec::as_slice);
        let Some([first, last]) = pair else { return Err("`versions` is [FIRST, LAST]".to_owned()) };
        what = what.versions(number("versions", first)?..=number("versions", last)?);
    }
    if let Some(broker) = fields.number("broker")? {
        what = what.broker(broker);
    }
    match (fields.text("topic")?, fields.number("partition")?) {
        (Some(topic), Some(partition)) => what = what.partition(&topic, partition),
        (Some(topic), None) => what = what.topic(&topic),
        (None, Some(_)) => return Err("`partition` needs its `topic`".to_owned()),
        (None, None) => {}
    }
    if let Some(group) = fields.text("group")? {
        what = what.group(&group);
    }
    if let Some(member) = fields.text("member")? {
        what = what.member(&member);
    }
    if let Some(client) = fields.text("client")? {
        what = what.client(&client);
    }
    let times = fields.take("times").map(|value| number::<u64>("times", &value)).transpose()?;
    match (fields.number::<u64>("nth")?, fields.number::<u64>("after")?) {
        (Some(_), Some(_)) => return Err("`nth` and `after` say the same thing in two ways".to_owned()),
        (Some(0), None) => return Err("`nth` counts from 1".to_owned()),
        (Some(_), None) if times.is_some() => {
            return Err("`nth` strikes once; `after` goes with `times`".to_owned());
        }
        (Some(nth), None) => what = what.nth(nth),
        (None, Some(after)) => what = what.after(after),
        (None, None) => {}
    }
    if let Some(times) = times {
        what = what.times(times);
    }
    if let Some(value) = fields.take("probability") {
        let chance = value.as_f64().filter(|chance| (0.0..=1.0).contains(chance));
        what = what.probability(chance.ok_or("`probability` is a number from 0 to 1")?);
    }
    if let Some(seed) = fields.number::<u64>("seed")? {
        what = what.seed(seed);
    }
    fields.end(
        "api, versions, broker, topic, partition, group, member, client, nth, after, times, probability and seed",
    )?;
    Ok(what)
}

const ACTIONS: &str = "observe, cut_before, cut_after, hang, hang_after, mute, half_close, wrong_correlation, duplicate, \
                       and with a value error, delay_ms, delay_answer_ms, throttle_ms, garbage, garbage_base64, \
                       body_base64, absurd_length, partial_write";

/// What happens to a request: a name, or an object of one name and its value.
pub(super) fn action(value: &Value) -> Result<Action, String> {
    if let Value::String(name) = value {
        return Ok(match name.as_str() {
            "observe" => Action::Observe,
            "cut_before" => Action::CutBefore,
            "cut_after" => Action::CutAfter,
            "hang" => Action::Hang,
            "hang_after" => Action::HangAfter,
            "mute" => Action::Mute,
            "half_close" => Action::HalfClose,
            "wrong_correlation" => Action::WrongCorrelation,
            "duplicate" => Action::DuplicateAnswer,
            other => return Err(format!("`{}` is no action; there are {ACTIONS}", cut(other))),
        });
    }
    let one = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let Some((name, value)) = one else {
        return Err(format!(
            "an action is one name, or an object of one name and its value; there are {ACTIONS}"
        ));
    };
    let time = || -> Result<Duration, String> {
        match number::<u64>(name, value)? {
            millis if millis <= LONGEST => Ok(Duration::from_millis(millis)),
            _ => Err(format!("`{name}` is at most {LONGEST}")),
        }
    };
    let base64 = || -> Result<Bytes, String> {
        let bytes = value.as_str().and_then(|text| BASE64.decode(text).ok());
        Ok(bytes.ok_or_else(|| format!("`{name}` is base64"))?.into())
    };
    Ok(match name.as_str() {
        "error" => Action::Error(error(value)?),
        "delay_ms" => Action::Delay(time()?),
        "delay_answer_ms" => Action::DelayAnswer(time()?),
        "throttle_ms" => Action::Throttle(time()?),
        "garbage" => Action::Garbage(text(name, value.clone())?.into()),
        "garbage_base64" => Action::Garbage(base64()?),
        "body_base64" => Action::Body(base64()?),
        "absurd_length" => Action::AbsurdLength(number(name, value)?),
        "partial_write" => Action::PartialWrite(number(name, value)?),
        other => return Err(format!("`{}` is no action; there are {ACTIONS}", cut(other))),
    })
}

/// An error code by its number, or by its name as Kafka writes it.
pub(super) fn error(value: &Value) -> Result<i16, String> {
    if let Value::String(name) = value {
        let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
        let wanted = plain(name);
        let known = |code: &i16| {
            ResponseError::try_from_code(*code).is_some_and(|error| plain(&format!("{error:?}")) == wanted)
        };
        return (-1..=200).find(known).ok_or_else(|| format!("`{}` is no error of Kafka", cut(name)));
    }
    number("error", value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_action_has_a_name() {
        let (one_second, bytes) = (Duration::from_secs(1), || Bytes::from_static(b"hi"));
        for (written, action) in [
            (json!("observe"), Action::Observe),
            (json!("cut_before"), Action::CutBefore),
            (json!("cut_after"), Action::CutAfter),
            (json!("hang"), Action::Hang),
            (json!("hang_after"), Action::HangAfter),
            (json!("mute"), Action::Mute),
            (json!("half_close"), Action::HalfClose),
            (json!("wrong_correlation"), Action::WrongCorrelation),
            (json!("duplicate"), Action::DuplicateAnswer),
            (json!({"error": 6}), Action::Error(6)),
            (json!({"error": "NOT_LEADER_OR_FOLLOWER"}), Action::Error(6)),
            (json!({"error": "UNKNOWN_SERVER_ERROR"}), Action::Error(-1)),
            (json!({"delay_ms": 1000}), Action::Delay(one_second)),
            (json!({"delay_answer_ms": 1000}), Action::DelayAnswer(one_second)),
            (json!({"throttle_ms": 1000}), Action::Throttle(one_second)),
            (json!({"garbage": "hi"}), Action::Garbage(bytes())),
            (json!({"garbage_base64": "aGk="}), Action::Garbage(bytes())),
            (json!({"body_base64": "aGk="}), Action::Body(bytes())),
            (json!({"absurd_length": 2147483647}), Action::AbsurdLength(i32::MAX)),
            (json!({"partial_write": 3}), Action::PartialWrite(3)),
        ] {
            assert_eq!(super::action(&written), Ok(action), "{written}");
        }
    }

    #[test]
    fn every_field_of_a_match_is_the_one_of_rust() {
        let written = json!({
            "api": "Fetch", "versions": [4, 12], "broker": 1, "topic": "t", "partition": 2, "group": "g",
            "member": "m", "client": "c", "after": 3, "times": 4, "probability": 0.5, "seed": 7,
        });
        let what = Match::api(ApiKey::FETCH).versions(4..=12).broker(1).partition("t", 2).group("g");
        let what = what.member("m").client("c").after(3).times(4).probability(0.5).seed(7);
        assert_eq!(format!("{:?}", matching(written).unwrap()), format!("{what:?}"));
        assert_eq!(
            format!("{:?}", matching(json!({"nth": 2})).unwrap()),
            format!("{:?}", Match::any().nth(2))
        );
        assert_eq!(format!("{:?}", matching(Value::Null).unwrap()), format!("{:?}", Match::any()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (written, wanted) in [
            (json!([]), "is no object"),
            (json!({"apy": "Fetch"}), "`apy` is not known here"),
            (json!({"api": "Fetsch"}), "`\"Fetsch\"` is no API; there are Produce, Fetch"),
            (json!({"api": 70000}), "is no API"),
            (json!({"versions": [1]}), "`versions` is [FIRST, LAST]"),
            (json!({"versions": [1, 99999]}), "`versions` is a whole number"),
            (json!({"broker": "one"}), "`broker` is a whole number"),
            (json!({"partition": 1}), "`partition` needs its `topic`"),
            (json!({"nth": 0}), "counts from 1"),
            (json!({"nth": 1, "after": 1}), "two ways"),
            (json!({"nth": 1, "times": 2}), "strikes once"),
            (json!({"times": -1}), "`times` is a whole number"),
            (json!({"probability": 1.5}), "from 0 to 1"),
            (json!({"topic": 1}), "`topic` is a text"),
        ] {
            let refused = matching(written).unwrap_err();
            assert!(refused.contains(wanted), "{refused}");
        }
        for (written, wanted) in [
            (json!("explode"), "`explode` is no action; there are observe"),
            (json!({"error": "NO_SUCH"}), "`NO_SUCH` is no error"),
            (json!({"error": 1, "delay_ms": 1}), "an action is one name"),
            (json!({"delay_ms": 3600001}), "at most 3600000"),
            (json!({"garbage_base64": "?"}), "is base64"),
            (json!({"absurd_length": 1e12}), "in its range"),
            (json!(7), "an action is one name"),
        ] {
            let refused = action(&written).unwrap_err();
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
