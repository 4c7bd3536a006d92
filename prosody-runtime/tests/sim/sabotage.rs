//! Would the simulation notice? Safety checks are switched off, each alone, in a process of its own: the same
//! seeds that pass with it must break a promise without it.

use std::process::Command;

use prosody_base::SABOTAGE;

/// Checks of `prosody_base::SABOTAGE` whose absence breaks a promise of a whole run. The others are guarded closer to where
/// they stand, by the models and tests of their folders.
const NOTICED: [&str; 5] = [
    "group-two-phase",
    "group-session-expiry",
    "group-commit-epoch",
    "watermark-highest-read",
    "watermark-unfinished",
];

/// Seeds a weakened check has to be caught in.
const SEEDS: &str = "0..200";

#[test]
#[ignore = "the parent process runs it once per check"]
fn seeds_with_one_check_off() {
    let mut caught = None;
    // In order and one by one, so that the first seed that notices is known.
    for seed in 0..200 {
        let report = crate::run_watched(&prosody_testkit::sim::Plan::of(seed));
        if !report.violations.is_empty() {
            println!("caught by {report}");
            caught = Some(seed);
            break;
        }
    }
    assert!(caught.is_some(), "no seed of {SEEDS} noticed");
}

#[test]
fn every_check_that_is_switched_off_is_noticed() {
    let program = std::env::current_exe().unwrap();
    let mut missed = Vec::new();
    for (name, promise) in SABOTAGE.iter().filter(|(name, _)| NOTICED.contains(name)) {
        let child = Command::new(&program)
            .args(["--exact", "sabotage::seeds_with_one_check_off", "--ignored", "--nocapture"])
            .env("PROSODY_SABOTAGE", name)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        match said.lines().find(|line| line.contains("BROKEN")) {
            Some(first) => println!("{name}: caught, {}", first.trim()),
            _ => missed.push(format!("{name} ({promise})")),
        }
    }
    assert!(missed.is_empty(), "switched off and not noticed within {SEEDS}: {missed:#?}");
}
