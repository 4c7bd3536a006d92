//! Which topics does a subscription by pattern mean?
//!
//! A pattern means every topic whose *whole* name it matches, as for Kafka's own consumers and coordinators. Here it is
//! read by the crate `regex`, on the coordinator of a group of the consumer protocol by RE2J: both run in linear time and
//! read the same syntax but for exotic classes. A coordinator that cannot read a pattern gets names instead.

use std::fmt;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::{Error, ErrorKind};
use crate::types::Topic;

/// Longest text of a pattern, in bytes.
const PATTERN_BYTES: usize = 1_024;
/// Most memory of a compiled pattern, in bytes: a few characters may ask for millions of repetitions.
const COMPILED_BYTES: usize = 1 << 20;
/// Topics that Kafka keeps for itself. KIP-848 does not say that its coordinators leave them out.
const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// Topics by a regular expression over their whole names, such as `orders-.*`; `^` in front changes nothing. Classes such
/// as `\w` mean ASCII, like the names of topics. Topics that Kafka keeps for itself are never meant.
#[derive(Clone)]
pub struct TopicPattern {
    text: Arc<str>,
    whole: Regex,
}

impl TopicPattern {
    /// Reads a pattern of at most 1,024 bytes.
    ///
    /// # Errors
    /// When it is no regular expression, or one whose compiled form takes more than 1 MiB: with what is wrong.
    pub fn new(text: &str) -> Result<TopicPattern, Error> {
        let refused =
            |why: String| Error::new(format!("reading the topic pattern `{text}`"), ErrorKind::Config(why));
        if text.len() > PATTERN_BYTES {
            return Err(refused(format!("{} bytes are more than {PATTERN_BYTES}", text.len())));
        }
        let compile = |text: &str| {
            let mut builder = RegexBuilder::new(text);
            // Of a drawing over several lines the last one says what is wrong.
            let last = |why: regex::Error| {
                let why = why.to_string();
                refused(why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
            };
            builder.unicode(false).size_limit(COMPILED_BYTES).build().map_err(last)
        };
        // Alone first: `a)(b` is a pattern only between our parentheses.
        compile(text)?;
        let whole = compile(&format!(r"\A(?:{text})\z"))?;
        Ok(TopicPattern { text: text.into(), whole })
    }

    /// The text it was read from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it means this topic.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        !is_internal(topic) && self.whole.is_match(topic.as_bytes())
    }
}

impl fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicPattern({:?})", self.text)
    }
}

/// Whether Kafka keeps the topic for itself.
fn is_internal(topic: &str) -> bool {
    INTERNAL.contains(&topic)
}

/// Whether any of the patterns means the topic.
pub(crate) fn any_matches(patterns: &[TopicPattern], topic: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(topic))
}

/// One expression for the coordinator. `None` without patterns, and when it would match a topic that Kafka keeps for
/// itself: RE2J has no way to take a name out. Its groups capture: librdkafka's mock cluster knows no others, and ends its
/// process on them.
pub(crate) fn for_coordinator(patterns: &[TopicPattern]) -> Option<String> {
    let internal =
        |pattern: &TopicPattern| INTERNAL.iter().any(|topic| pattern.whole.is_match(topic.as_bytes()));
    if patterns.is_empty() || patterns.iter().any(internal) {
        return None;
    }
    let each: Vec<String> = patterns.iter().map(|pattern| format!("({})", pattern.text)).collect();
    Some(each.join("|"))
}

/// Those of `topics` that any of the patterns means, in their order.
pub(crate) fn matching<'a>(patterns: &[TopicPattern], topics: impl Iterator<Item = &'a Topic>) -> Vec<Topic> {
    topics.filter(|topic| any_matches(patterns, topic)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> TopicPattern {
        TopicPattern::new(text).expect(text)
    }

    /// Somebody wrote `^orders` and read `orders-internal` too: an expression that is searched for, not matched.
    #[test]
    fn a_pattern_means_whole_names() {
        let orders = pattern("^orders");
        assert!(orders.matches("orders") && !orders.matches("orders-eu") && !orders.matches("my-orders"));
        let either = pattern("^a|b.*");
        assert!(
            either.matches("a") && either.matches("bee") && !either.matches("ab") && !either.matches("xb")
        );
        let classes = pattern(r"^shop\.[[:alpha:]]+-\d{1,3}(?i)-EU$");
        assert!(classes.matches("shop.north-17-eu") && !classes.matches("shop_north-17-eu"));
    }

    #[test]
    fn topics_of_kafka_itself_are_never_meant_and_keep_a_pattern_from_the_coordinator() {
        let all = pattern("^.*");
        assert!(all.matches("__mine") && INTERNAL.iter().all(|topic| !all.matches(topic)));
        assert_eq!(for_coordinator(&[pattern("^a"), all]), None);
        assert_eq!(for_coordinator(&[]), None);
        assert_eq!(for_coordinator(&[pattern("^a|b"), pattern("c.+")]).as_deref(), Some("(^a|b)|(c.+)"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        let long = "a".repeat(PATTERN_BYTES + 1);
        for (text, why) in [
            ("^(a", "unclosed group"),
            ("a)(b", "unopened group"),
            (r"a(?=b)", "look-around"),
            (r"(a)\1", "backreferences are not supported"),
            ("(a{900}){900}", "exceeds size limit"),
            (long.as_str(), "1025 bytes are more than 1024"),
        ] {
            let refused = TopicPattern::new(text).expect_err(text).to_string();
            assert!(refused.contains(why) && refused.contains("topic pattern"), "{text:.20}: {refused}");
        }
    }
}
