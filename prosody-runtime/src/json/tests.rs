use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn found(payload: &[u8]) -> (Option<String>, Option<String>) {
    let facts = scan(payload, true).expect("JSON");
    let text = |text: Option<Text>| text.map(|text| String::from_utf8_lossy(&text.of(payload)).into_owned());
    (text(facts.id), text(facts.kind))
}

#[test]
fn finds_id_and_type_at_the_top_level_only() {
    let pair = |id: Option<&str>, kind: Option<&str>| (id.map(str::to_owned), kind.map(str::to_owned));
    for (payload, id, kind) in [
        (r#"{"id":"a","type":"user.created"}"#, Some("a"), Some("user.created")),
        (r#" { "type" : "t" , "x" : {"id":"inner"}, "id" : -12 } "#, Some("-12"), Some("t")),
        (r#"{"id":-0}"#, Some("0"), None),
        (r#"{"id":1.5,"type":7}"#, None, None),
        (r#"{"id":1e3}"#, None, None),
        (r#"{"id":null,"type":["x"]}"#, None, None),
        (r#"{"\u0069d":"q\"\u00e9\ud83d\ude00"}"#, Some("q\"é😀"), None),
        (r#"{"x":"}\"{","id":"b"}"#, Some("b"), None),
        (r#"[{"id":"a"}]"#, None, None),
        ("null", None, None),
        ("{}", None, None),
    ] {
        assert_eq!(found(payload.as_bytes()), pair(id, kind), "{payload}");
    }
}

#[test]
fn what_cannot_be_json_is_refused() {
    for payload in
        ["", "   ", "hello", "{", r#"{"a""#, r#"{"a":}"#, r#"{"a":1"#, "<xml/>", "\u{0}", "{'id':1}", "}"]
    {
        assert_eq!(scan(payload.as_bytes(), true), Err(NotJson), "{payload}");
        assert!(!is_valid(payload.as_bytes()), "{payload}");
    }
}

#[test]
fn depth_costs_no_stack() {
    let deep = [vec![b'['; 300_000], vec![b']'; 300_000]].concat();
    assert!(scan(&deep, true).is_ok() && is_valid(&deep));
    assert!(!is_valid(&deep[1..]));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| serde_json::Number::from_f64(number).map_or(Value::Null, Value::from)),
        "\\PC{0,8}".prop_map(Value::from),
        "[\\x00-\\x20\"\\\\]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let name = prop_oneof![Just("id".to_owned()), Just("type".to_owned()), "\\PC{0,4}"];
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(name, inner, 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_real_parser(value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("serializes");
        let id = match value.get("id") {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) if id.is_i64() || id.is_u64() => Some(id.to_string()),
            _ => None,
        };
        let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
        prop_assert_eq!(found(text.as_bytes()), (id, kind));
        prop_assert!(is_valid(text.as_bytes()));
    }

    #[test]
    fn the_strict_check_is_the_parsers(
        value in value(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..4),
    ) {
        let mut text = serde_json::to_vec(&value).expect("serializes");
        for (place, byte, kind) in edits {
            let at = place.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                _ => text.truncate(at),
            }
        }
        // Huge exponents are grammar; that parser refuses them as numbers, and lone surrogates as text.
        let parsed = serde_json::from_slice::<Value>(&text);
        let beyond_grammar = parsed.as_ref().is_err_and(|error| {
            let text = error.to_string();
            text.contains("out of range") || text.contains("surrogate") || text.contains("hex escape")
        });
        if !beyond_grammar {
            prop_assert_eq!(is_valid(&text), parsed.is_ok(), "{}", String::from_utf8_lossy(&text));
        }
        if is_valid(&text) {
            prop_assert!(scan(&text, true).is_ok());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(facts) = scan(&bytes, true) {
            let _ = (facts.id.map(|id| id.of(&bytes).len()), facts.kind.map(|kind| kind.of(&bytes).len()));
        }
        let _ = is_valid(&bytes);
    }
}
