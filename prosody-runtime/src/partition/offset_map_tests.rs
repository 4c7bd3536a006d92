use super::*;
use proptest::prelude::*;

const TOPIC: Option<TopicId> = Some(TopicId([7; 16]));

/// Runs as first offset and the one behind the last.
fn map(base: i64, epoch: i32, runs: &[(i64, i64)]) -> OffsetMap {
    let mut map = OffsetMap::empty(TOPIC, base);
    runs.iter().for_each(|(start, end)| map.add(*start..*end, epoch));
    map
}

fn decode(text: &str) -> Result<OffsetMap, Ignored> {
    OffsetMap::decode(text, TOPIC, 1_000)
}

#[test]
fn the_format_does_not_change_unnoticed() {
    // An update reads what the version before it wrote. Whoever changes this text raises the version.
    let known = map(1_000, 7, &[(1_003, 1_040), (1_041, 1_042)]);
    let text = "prosody:1:07070707070707070707070707070707:1000:7:DhFBB";
    assert_eq!(known.encode(), text);
    assert_eq!(decode(text), Ok(known));
}

/// Elsewhere: the map of a window with nothing above its watermark decoded as "everything from 0 on", and state was thrown
/// away.
#[test]
fn nothing_above_the_watermark_is_the_empty_text_and_reads_back_as_nothing() {
    let nothing = map(1_000, 7, &[]);
    assert_eq!(nothing.encode(), "");
    assert_eq!(decode(""), Ok(nothing));
}

#[test]
fn one_slow_record_and_a_hundred_thousand_done_after_it_take_a_few_characters() {
    // Elsewhere: a map with one bit for each offset grew over what the broker takes, and every commit failed.
    let known = map(1_000, 0, &[(1_001, 101_001)]);
    assert!(known.encode().len() < 60, "{}", known.encode());
    assert_eq!(decode(&known.encode()), Ok(known));
}

/// Elsewhere: one record was slow, a hundred thousand were done behind it, and the commit failed because the text about them
/// was too long.
#[test]
fn a_map_that_is_too_large_is_cut_to_its_longest_prefix() {
    let runs: Vec<_> = (0..50_000).map(|at| (1_001 + 2 * at, 1_002 + 2 * at)).collect();
    let known = map(1_000, 0, &runs);
    let text = known.encode();
    assert!((MAX_TEXT - 1..=MAX_TEXT).contains(&text.len()), "{} characters", text.len());
    let read = decode(&text).unwrap();
    assert_eq!(read.runs[..], known.runs[..read.runs.len()]);
    assert!(read.runs.len() > 1_400 && known.runs.len() == MAX_RUNS, "memory is bounded as well");
}

#[test]
fn a_text_that_says_nothing_about_this_offset_is_ignored() {
    let good = map(1_000, 7, &[(1_003, 1_040)]).encode();
    let with = |old: &str, new: &str| good.replacen(old, new, 1);
    let two_to_63 = format!("o{}A", "g".repeat(11));
    let two_to_65 = format!("_{}A", "_".repeat(12));
    let cases = [
        ("another framework's", "{\"v\":2,\"acks\":[1,2]}".to_owned(), Ignored::Foreign),
        ("a name in another's format", "1,foo:bar".to_owned(), Ignored::Foreign),
        ("no text", "\u{0}\u{ffff}é".to_owned(), Ignored::Foreign),
        ("a version that is no number", with(":1:", ":one:"), Ignored::Foreign),
        ("a newer version", with(":1:", ":2:"), Ignored::Newer(2)),
        ("a newer and longer version", format!("prosody:3:{}", "x".repeat(9_000)), Ignored::Newer(3)),
        ("no version of ours", with(":1:", ":0:"), Ignored::Damaged),
        ("a topic that was created anew", with("0707", "0807"), Ignored::OtherTopic),
        ("no topic id", with(&"07".repeat(16), ""), Ignored::OtherTopic),
        ("another offset", with(":1000:", ":1001:"), Ignored::OtherBase(1_001)),
        ("half of it", good[..good.len() - 1].to_owned(), Ignored::Damaged),
        ("no runs", good[..good.len() - 3].to_owned(), Ignored::Damaged),
        ("a character of no number", with("DhF", "D~F"), Ignored::Damaged),
        ("a number with a leading zero", with("DhF", "DghF"), Ignored::Damaged),
        ("an empty run", with("DhF", "DA"), Ignored::Damaged),
        ("runs that touch", with("DhF", "DhFAB"), Ignored::Damaged),
        ("an end beyond all offsets", with("DhF", &format!("D{two_to_63}")), Ignored::Damaged),
        ("a number beyond all numbers", with("DhF", &format!("D{two_to_65}")), Ignored::Damaged),
        ("a negative offset", with(":1000:", ":-1:"), Ignored::Damaged),
        ("an offset written otherwise", with(":1000:", ":01000:"), Ignored::Damaged),
        ("an epoch that is none", with(":7:", ":x:"), Ignored::Damaged),
        ("more than we write", format!("{good}{}", "BB".repeat(2_000)), Ignored::Damaged),
    ];
    for (what, text, expected) in cases {
        assert_eq!(decode(&text), Err(expected), "{what}: {text}");
    }
    assert_eq!(
        OffsetMap::decode(&good, None, 1_000),
        Err(Ignored::OtherTopic),
        "a broker that gives no ids cannot tell"
    );
}

/// A window: where it begins, and lengths of what is not finished and finished in turn.
fn window() -> impl Strategy<Value = OffsetMap> {
    let length = prop_oneof![4 => 1..40u64, 1 => 1..100_000u64, 1 => 1..u64::from(u32::MAX)];
    let topic = prop::option::of(any::<[u8; 16]>());
    let base = prop_oneof![0..5i64, 0..i64::MAX / 2];
    let runs = prop::collection::vec((length.clone(), length), 0..200);
    (topic, base, -1..9i32, any::<bool>(), runs).prop_map(|(topic, base, epoch, touches, runs)| {
        let mut map = OffsetMap::empty(topic.and_then(TopicId::known), base);
        let mut at = base;
        for (number, (open, done)) in runs.into_iter().enumerate() {
            let open = if number == 0 && touches { 0 } else { open };
            let start = at + open as i64;
            at = start + done as i64;
            map.add(start..at, epoch);
        }
        map
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_window_reads_back_as_it_was(map in window()) {
        let text = map.encode();
        prop_assert!(text.len() <= MAX_TEXT && text.is_ascii());
        let read = OffsetMap::decode(&text, map.topic, map.base).unwrap();
        if read.runs.len() == map.runs.len() {
            prop_assert_eq!(&read, &map);
        } else {
            prop_assert_eq!(&read.runs[..], &map.runs[..read.runs.len()], "a prefix");
            prop_assert!(text.len() + 14 > MAX_TEXT, "and the longest");
        }
        prop_assert_eq!(read.encode(), text);
    }

    #[test]
    fn no_text_is_believed_or_panics_unless_we_would_write_it(
        map in window(),
        cut in any::<prop::sample::Index>(),
        insert in "[A-Za-z0-9_:-]{0,3}|\\PC{0,3}",
        remove in 0..4usize,
    ) {
        let text: Vec<char> = map.encode().chars().collect();
        let at = cut.index(text.len() + 1);
        let rest = text.iter().skip(at + remove);
        let changed: String = text[..at].iter().copied().chain(insert.chars()).chain(rest.copied()).collect();
        if let Ok(read) = OffsetMap::decode(&changed, map.topic, map.base) {
            prop_assert_eq!(read.encode(), changed);
            prop_assert!(read.runs.len() <= MAX_RUNS);
        }
    }

    #[test]
    fn a_cut_forgets_exactly_what_is_above_it(map in window(), at in any::<prop::sample::Index>()) {
        let from = map.base + at.index(usize::try_from(map.end() - map.base).unwrap() + 2) as i64;
        let mut cut = map.clone();
        cut.cut(from);
        prop_assert!(cut.end() <= from.max(map.base));
        let edges = map.runs.iter().flat_map(|run| [run.start - 1, run.start, run.end - 1, run.end]);
        for offset in edges.chain([from - 1, from, from + 1]) {
            prop_assert_eq!(cut.contains(offset), map.contains(offset) && offset < from, "{}", offset);
        }
        prop_assert_eq!(map.from(from).map(|run| run.start).min().unwrap_or(i64::MAX) >= from, true);
    }
}
