//! How does text become a JSON string? *Pure.*

use std::fmt::Write as _;

/// In quotes, with everything escaped that JSON and a page that shows it could trip over.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_quoted_reads_as_it_was(text in any::<String>()) {
            let quoted = quote(&text);
            let bare = quoted.contains(['<', '>', '\n', '\u{2028}']);
            prop_assert!(!bare, "unescaped");
            prop_assert_eq!(serde_json::from_str::<String>(&quoted).ok(), Some(text));
        }
    }
}
