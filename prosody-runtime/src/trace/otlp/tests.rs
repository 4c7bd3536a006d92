//! One request with everything in it, by both forms. The bytes were read with OpenTelemetry's own Python classes once and
//! are frozen since.

use super::*;
use crate::trace::TraceContext;
use crate::trace::span::Kind;

#[allow(clippy::vec_box, reason = "as the queue holds them")]
fn all() -> (Resource, Vec<Box<Span>>) {
    let context = |n: u8| {
        let context = TraceContext::new([n; 16], [n + 1; 8], 1).expect("ids");
        context.with_state(Some(b"x=y"))
    };
    let mut span = Span {
        context: context(0x11),
        parent: Some([0x33; 8]),
        link: Some(context(0x44)),
        name: "process t".to_owned(),
        kind: Kind::Consumer,
        start: 1_700_000_000_000_000_001,
        end: 1_700_000_000_000_000_300,
        attributes: vec![
            ("messaging.system", Value::Word("kafka")),
            ("messaging.kafka.message.key", Value::Text("k\"\né".into())),
            ("messaging.kafka.offset", Value::Int(-1)),
            ("messaging.kafka.message.tombstone", Value::Flag(true)),
        ],
        failed: None,
    };
    span.fail("transient", "not \"now\"");
    let plain = Span {
        context: TraceContext::new([0xaa; 16], [0xbb; 8], 1).expect("ids"),
        parent: None,
        link: None,
        name: "send t".to_owned(),
        kind: Kind::Producer,
        attributes: vec![],
        failed: None,
        ..span.clone()
    };
    (vec![("service.name".to_owned(), "ö".to_owned())], vec![Box::new(span), Box::new(plain)])
}

#[test]
fn the_json_form_is_frozen() {
    let (resource, spans) = all();
    let written: serde_json::Value = serde_json::from_slice(&json(&resource, &spans)).expect("JSON");
    let text = |key: &str, value: &str| serde_json::json!({"key": key, "value": {"stringValue": value}});
    let expected = serde_json::json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "ö")]},
        "scopeSpans": [{
            "scope": {"name": "prosody", "version": VERSION},
            "spans": [{
                "traceId": "11".repeat(16), "spanId": "12".repeat(8), "traceState": "x=y", "parentSpanId": "33".repeat(8),
                "name": "process t", "kind": 5, "flags": 1,
                "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000300",
                "attributes": [
                    text("messaging.system", "kafka"),
                    text("messaging.kafka.message.key", "k\"\né"),
                    {"key": "messaging.kafka.offset", "value": {"intValue": "-1"}},
                    {"key": "messaging.kafka.message.tombstone", "value": {"boolValue": true}},
                    text("error.type", "transient"),
                ],
                "events": [{
                    "timeUnixNano": "1700000000000000300", "name": "exception",
                    "attributes": [text("exception.type", "transient"), text("exception.message", "not \"now\"")],
                }],
                "links": [{"traceId": "44".repeat(16), "spanId": "45".repeat(8), "traceState": "x=y", "flags": 1}],
                "status": {"code": 2, "message": "not \"now\""},
            }, {
                "traceId": "aa".repeat(16), "spanId": "bb".repeat(8), "name": "send t", "kind": 4, "flags": 1,
                "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000300", "attributes": [],
            }],
        }],
    }]});
    assert_eq!(written, expected);
}

#[test]
fn the_protobuf_form_is_frozen() {
    let (resource, spans) = all();
    let written = protobuf(&resource, &spans);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&written), GOLDEN.concat().replace(&hex(b"0.1.0"), &hex(VERSION.as_bytes())));
}

const GOLDEN: [&str; 11] = [
    "0afe030a160a140a0c736572766963652e6e616d6512040a02c3b612e3030a100a0770726f736f64791205302e312e30128e",
    "030a1011111111111111111111111111111111120812121212121212121a03783d79220833333333333333332a0970726f63",
    "657373207430053901002a36fe9c9717412c012a36fe9c97174a1b0a106d6573736167696e672e73797374656d12070a056b",
    "61666b614a260a1b6d6573736167696e672e6b61666b612e6d6573736167652e6b657912070a056b220ac3a94a250a166d65",
    "73736167696e672e6b61666b612e6f6666736574120b18ffffffffffffffffff014a270a216d6573736167696e672e6b6166",
    "6b612e6d6573736167652e746f6d6273746f6e65120210014a190a0a6572726f722e74797065120b0a097472616e7369656e",
    "745a55092c012a36fe9c97171209657863657074696f6e1a1d0a0e657863657074696f6e2e74797065120b0a097472616e73",
    "69656e741a200a11657863657074696f6e2e6d657373616765120b0a096e6f7420226e6f77226a260a104444444444444444",
    "4444444444444444120845454545454545451a03783d7935010000007a0d12096e6f7420226e6f7722180285010100000012",
    "3e0a10aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1208bbbbbbbbbbbbbbbb2a0673656e64207430043901002a36fe9c9717412c",
    "012a36fe9c9717850101000000",
];
