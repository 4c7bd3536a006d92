//! Headers as peers write them, and as nobody should.

use proptest::prelude::*;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn parent_of(text: &str) -> Option<String> {
    TraceContext::parse(Some(text.as_bytes()), None, None)?.parent()
}

#[test]
fn a_parent_is_read_as_w3c_writes_it_and_what_is_none_is_ignored() {
    let same = Some(PARENT.to_owned());
    assert_eq!(parent_of(PARENT), same);
    let with = |from: &str, to: &str| PARENT.replacen(from, to, 1);
    for later in ["cc", "01", "fe"] {
        assert_eq!(parent_of(&with("00", later)), same, "of version {later}");
        assert_eq!(parent_of(&format!("{}-more", with("00", later))), same);
        assert_eq!(parent_of(&format!("{}.more", with("00", later))), None);
    }
    assert_eq!(
        parent_of(&with("-01", "-ff")),
        Some(with("-01", "-03")),
        "flags that version 00 does not know"
    );
    for none in [
        "",
        "00",
        &PARENT[..54],
        &format!("{PARENT}-"),
        &format!("{PARENT}-more"),
        &with("00", "ff"),
        &with("00", "0g"),
        &PARENT.to_uppercase(),
        &with("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
        &with("00f067aa0ba902b7", &"0".repeat(16)),
        &with("-00f0", "_00f0"),
        &with("4bf9", "4b-9"),
        &with("-01", "- 1"),
        &with("-01", "-é"),
    ] {
        assert_eq!(parent_of(none), None, "{none}");
    }
}

#[test]
fn state_and_baggage_travel_within_bounds() {
    let long = format!("a={}", "x".repeat(511));
    let many = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
    let states = [
        ("a=b", true),
        (" a=b , c@d=e/f", true),
        ("", false),
        (",", false),
        ("a", false),
        ("=b", false),
        ("a=\u{1}", false),
        ("a=é", false),
        (&long[..512], true),
        (&long, false),
        (&many(32), true),
        (&many(33), false),
    ];
    for (state, fits) in states {
        let context = TraceContext::parse(Some(PARENT.as_bytes()), Some(state.as_bytes()), None).unwrap();
        assert_eq!(context.state(), fits.then_some(state.trim()), "{state}");
        assert_eq!(context.parent().as_deref(), Some(PARENT), "the parent counts all the same");
    }
    assert_eq!(TraceContext::parse(None, Some(b"a=b"), None), None, "a state of no trace");
    let alone = TraceContext::parse(Some(b"nonsense"), Some(b"a=b"), Some(b"user=7;secret")).unwrap();
    assert_eq!((alone.baggage(), alone.state(), alone.is_traced()), (Some("user=7;secret"), None, false));
    for none in [&many(65), &format!("a={}", "x".repeat(8_191)), "a=\n"] {
        assert_eq!(TraceContext::parse(None, None, Some(none.as_bytes())), None);
    }
    assert!(!format!("{alone:?}").contains("secret"), "baggage is not for logs");
}

#[test]
fn what_is_written_is_what_is_there() {
    let written = |context: Option<&TraceContext>| {
        let headers = SentHeaders::of(context);
        let all = headers.each().map(|(name, value)| {
            [name, value.unwrap_or_default()]
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .join(": ")
        });
        all.collect::<Vec<_>>()
    };
    assert_eq!(written(None), [""; 0]);
    let baggage = TraceContext::parse(None, None, Some(b"a=b"));
    assert_eq!(written(baggage.as_ref()), ["baggage: a=b"]);
    let all = TraceContext::parse(Some(PARENT.as_bytes()), Some(b"c=d"), Some(b"a=b"));
    assert_eq!(written(all.as_ref()), [&format!("traceparent: {PARENT}"), "tracestate: c=d", "baggage: a=b"]);
}

/// Rows outlive the process that wrote them, so their form is frozen.
#[test]
fn the_form_of_a_row_is_frozen() {
    let context = TraceContext::parse(Some(PARENT.as_bytes()), Some(b"c=d"), Some(b"a=b")).unwrap();
    let row = context.to_row();
    let golden = [
        1, 0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36,
        0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7, 1, b'c', b'=', b'd',
    ];
    assert_eq!(row[..], golden);
    let read = TraceContext::from_row(&row).unwrap();
    assert_eq!((read.parent().as_deref(), read.state(), read.baggage()), (Some(PARENT), Some("c=d"), None));
    let mut later = row.to_vec();
    later[0] = 2;
    assert_eq!(TraceContext::from_row(&later), None);
    assert_eq!(TraceContext::parse(None, None, Some(b"a=b")).unwrap().to_row(), Bytes::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_ids_come_back_from_headers_and_rows(trace: [u8; 16], span: [u8; 8], flags in 0..4u8) {
        if let Some(context) = TraceContext::new(trace, span, flags) {
            let text = context.parent().unwrap();
            prop_assert_eq!(text.len(), PARENT_BYTES);
            let read = TraceContext::parse(Some(text.as_bytes()), None, None);
            prop_assert_eq!(read.as_ref(), Some(&context));
            prop_assert_eq!(TraceContext::from_row(&context.to_row()), Some(context));
        }
    }

    /// Whatever a peer writes is read or ignored; what is read is in bounds and can be written again.
    #[test]
    fn any_headers_are_read_or_ignored(
        parent in proptest::collection::vec(any::<u8>(), 0..80),
        near in "[0-9a-f]{2}[-_][0-9a-fA-F]{30,34}-[0-9a-f]{15,17}-[0-9a-f]{2}.{0,3}",
        lists in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 2),
        row in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        for parent in [&parent[..], near.as_bytes()] {
            if let Some(context) = TraceContext::parse(Some(parent), Some(&lists[0]), Some(&lists[1])) {
                prop_assert!(context.is_traced() || context.baggage().is_some());
                prop_assert!(context.state().is_none_or(|state| state.len() <= STATE_BYTES && state.is_ascii()));
                prop_assert!(context.baggage().is_none_or(|text| text.len() <= BAGGAGE_BYTES && text.is_ascii()));
                let mut headers = Vec::new();
                let sent = SentHeaders::of(Some(&context));
                headers.extend(sent.each());
                let mut again = TraceContext::from_headers(headers.into_iter()).unwrap();
                again.flags = context.flags;
                prop_assert_eq!(again, context);
            }
        }
        if let Some(context) = TraceContext::from_row(&row) {
            prop_assert!(context.is_traced());
        }
    }
}
