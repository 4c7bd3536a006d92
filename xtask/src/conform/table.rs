//! How is the matrix shown and counted? Printed, and kept in `docs/conformance.md` by the full run.

use std::fmt::Write;

use super::behaviours::Behaviour;
use super::{Column, Mark};
use crate::progress::say;
use crate::report::Tally;
use crate::run;
use crate::test::Tier;

/// Of all cells, at most this many in a hundred may be excused.
const MOST_EXCUSED: usize = 5;

/// Prints everything and counts it.
pub(super) fn close(
    tier: Tier,
    whole: bool,
    behaviours: &[&Behaviour],
    columns: &[Column],
    wrong: Vec<String>,
) -> Tally {
    let matrix = matrix(behaviours, columns);
    say(&matrix);
    let mut tally = Tally { is_part: !whole, ..Tally::default() };
    let (mut told, mut excused, mut lacking) = (0, 0, 0);
    for (pair, cells, _) in columns {
        for (behaviour, cell) in behaviours.iter().zip(cells) {
            match cell {
                Some(Mark::Ok) => tally.passed += 1,
                Some(Mark::Told(_)) => {
                    tally.passed += 1;
                    told += 1;
                }
                Some(Mark::Excused(_)) => excused += 1,
                Some(Mark::Lacks(_)) => lacking += 1,
                Some(Mark::Red(why)) => {
                    tally.failed += 1;
                    let why: String = why.chars().take(600).collect();
                    tally.failures.push(format!("{}: {}: {why}", pair.name(), behaviour.name));
                }
                None => {}
            }
        }
    }
    tally.failed += wrong.len() as u64;
    tally.failures.extend(wrong);
    let cells = tally.passed + tally.failed + excused + lacking;
    tally.facts.push(format!("{cells} cells, {told} of them not offered by the broker, {excused} excused, {lacking} of features that a client or a broker does not have"));
    say(&tally.facts.join("; "));
    if whole && excused * 100 > cells * MOST_EXCUSED as u64 {
        tally.failed += 1;
        tally.failures.push(format!("{excused} of {cells} cells are excused, more than {MOST_EXCUSED} %"));
    }
    if whole && tier == Tier::Full {
        let file = run::root().join("docs/conformance.md");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let head = text.split_once("<!-- matrix -->").map_or(text.as_str(), |(head, _)| head);
        let body = format!("{head}<!-- matrix -->\n\n{matrix}");
        if let Err(problem) = std::fs::write(&file, body) {
            tally.failed += 1;
            tally.failures.push(format!("{}: {problem}", file.display()));
        }
    }
    tally
}

/// Markdown: a row for each behaviour, a column for each pair, then what the marks stand for.
fn matrix(behaviours: &[&Behaviour], columns: &[Column]) -> String {
    let mut out = String::from("| WIRE | behaviour |");
    for (pair, _, _) in columns {
        let _ = write!(out, " {} |", pair.name());
    }
    let _ = write!(out, "\n|---|---|{}\n", "---|".repeat(columns.len()));
    let mut notes: Vec<&str> = Vec::new();
    for (number, behaviour) in behaviours.iter().enumerate() {
        let _ = write!(out, "| {} | {} |", behaviour.row, behaviour.name);
        for (_, cells, _) in columns {
            let mark = match cells.get(number) {
                Some(Some(Mark::Ok)) => "ok".to_owned(),
                Some(Some(Mark::Told(_))) => "says so".to_owned(),
                Some(Some(Mark::Red(_))) => "**RED**".to_owned(),
                Some(Some(Mark::Excused(defect) | Mark::Lacks(defect))) => {
                    let at = notes.iter().position(|note| note == defect).unwrap_or_else(|| {
                        notes.push(defect);
                        notes.len() - 1
                    });
                    let lacks = matches!(cells.get(number), Some(Some(Mark::Lacks(_))));
                    format!("{}({})", if lacks { "–" } else { "" }, at + 1)
                }
                _ => "·".to_owned(),
            };
            let _ = write!(out, " {mark} |");
        }
        out.push('\n');
    }
    out.push('\n');
    for (at, note) in notes.iter().enumerate() {
        let _ = writeln!(out, "{}. {note}", at + 1);
    }
    out
}
