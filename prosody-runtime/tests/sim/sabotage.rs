//! Would the simulation notice? Safety checks are switched off, each alone, in a process of its own: the same
//! seeds that pass with it must break a promise without it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use prosody_base::SABOTAGE;
use prosody_testkit::sim::Plan;

/// Checks of `prosody_base::SABOTAGE` whose absence breaks a promise of a whole run, with the seed that noticed first
/// when this was written: it is tried before the others, which saves time and decides nothing.
const NOTICED: &[(&str, u64)] = &[
    ("produce-lost-answer", 0),
    ("produce-renumber", 4),
    ("group-two-phase", 2),
    ("group-session-expiry", 30),
    ("group-revoke-ack", 3),
    ("group-commit-epoch", 3),
    ("group-offset-error", 4),
    ("produce-same-sequence", 0),
    ("produce-unknown-outcome", 0),
    ("fetch-skip-below", 0),
    ("watermark-highest-read", 0),
    ("watermark-unfinished", 8),
    ("key-exclusive", 0),
    ("drain-starts-nothing", 3),
    ("drain-waits", 0),
    ("one-life", 25),
    ("retry-holds-key", 1),
    ("transient-is-not-done", 1),
    ("dedup-after-done", 1),
    ("route-acknowledged", 5),
    ("defer-holds-back", 0),
    ("defer-forgets", 4),
    ("defer-keeps-timer", 0),
    ("defer-unread", 0),
];

/// The same in runs with timers.
const NOTICED_WITH_TIMERS: &[(&str, u64)] =
    &[("timer-early", 0), ("timer-live", 0), ("state-version", 19), ("commit-lost", 19), ("root-known", 0)];

/// Checks that only a model can reach, and which one. Their names in `PROSODY_SABOTAGE` turn it red.
const MODELLED: &[(&str, &str)] = &[
    // What is lost is lost with its connection, and all of it at once, before the producer sends anything again.
    ("produce-drain", "prosody-wire/src/produce/sequencer_model.rs"),
    // A process that stood still just so long; the model keeps the seed.
    ("group-release-by", "prosody-wire/src/group/modern/tests/machine.rs"),
    // The fetcher hands no record out twice as long as `fetch-skip-below` stands.
    ("rewind-guard", "prosody-runtime/src/partition/offsets_tests.rs"),
    ("gone-proof", "prosody-wire/tests/records.rs"),
    // A former owner's batch has to come between two writes of the next one.
    ("defer-void", "prosody-runtime/tests/e2e/timers_store.rs"),
    ("settle-before-offset", "prosody-runtime/tests/e2e/timers_store.rs"),
    ("skip-done", "prosody-runtime/tests/e2e/timers_store.rs"),
    ("timer-held", "prosody-runtime/src/timers/tests"),
    ("timer-meanwhile", "prosody-runtime/src/timers/tests"),
    // It takes more timers than a run has, or a store that is away for longer than a slab.
    ("timer-in-vain", "prosody-runtime/src/timers/index_tests.rs"),
    ("timer-unsettled", "prosody-runtime/src/timers/index_tests.rs"),
    ("timer-placed", "prosody-runtime/src/timers/tests"),
    ("timer-look", "prosody-runtime/src/timers/tests/late.rs"),
];

/// Seeds a weakened check has to be caught in; `seeds` shows that they pass with it.
const SEEDS: Range<u64> = 0..200;

/// Tells the child process which seed to try first.
const FIRST: &str = "PROSODY_SABOTAGE_FIRST";

#[test]
#[ignore = "the parent process runs it once per check"]
fn seeds_with_one_check_off() {
    let name = std::env::var("PROSODY_SABOTAGE").unwrap_or_default();
    let with_timers = NOTICED_WITH_TIMERS.iter().any(|(known, _)| *known == name);
    let plan = if with_timers { Plan::with_timers } else { Plan::of };
    let first = std::env::var(FIRST).ok().and_then(|seed| seed.parse().ok());
    for seed in first.into_iter().filter(|seed| SEEDS.contains(seed)).chain(SEEDS) {
        let report = crate::run_watched(&plan(seed));
        if !report.violations.is_empty() {
            println!("caught by {report}");
            return;
        }
    }
    panic!("no seed of {SEEDS:?} noticed");
}

#[test]
fn every_check_that_is_switched_off_is_noticed() {
    let listed: BTreeSet<&str> = SABOTAGE.iter().map(|(name, _)| *name).collect();
    let noticed = Vec::from_iter(NOTICED.iter().chain(NOTICED_WITH_TIMERS));
    let here = noticed.iter().map(|(name, _)| *name).chain(MODELLED.iter().map(|(name, _)| *name)).collect();
    assert_eq!(listed, here, "each check has its proof, here or in a model");
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((name, first)) = noticed.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match caught(name, *first) {
                        Some(how) => println!("{name}: caught, {how}"),
                        None => missed.lock().unwrap().push(*name),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "switched off and not noticed within {SEEDS:?}: {missed:#?}");
}

/// Switches a check off in a process of its own: the seed that noticed and the first promise it found broken.
fn caught(name: &str, first: u64) -> Option<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sabotage::seeds_with_one_check_off", "--ignored", "--nocapture"])
        .env("PROSODY_SABOTAGE", name)
        .env(FIRST, first.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let seed = said.lines().find_map(|line| line.split("caught by ").nth(1)?.split(':').next());
    let broken = said.lines().find(|line| line.contains("BROKEN"))?;
    Some(format!("{}: {}", seed.unwrap_or("a seed that never ended"), broken.trim()))
}
