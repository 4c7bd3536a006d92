//! Bugs of other clients, played on a real Kafka: the tests of `prosody-wire/tests/real`, on a cluster of their own whose
//! brokers close idle connections within seconds and clean their logs at once.

use crate::kafka::{Cluster, Version};
use crate::progress::{doing, say};
use crate::report::Tally;
use crate::run;

/// Beside the ports of the other scenarios.
const PORTS: [(&str, u16); 2] = [("3.9", 19_352), ("4", 19_452)];
/// Coordinators and leaders move among this many brokers; where nothing moves one is enough.
const BROKERS: [(&str, u16); 2] = [("3.9", 1), ("4", 2)];
const SETTINGS: &str = "connections.max.idle.ms=15000\nlog.cleaner.backoff.ms=500\n";
/// Most of the tests wait most of the time.
const AT_ONCE: &str = "--test-threads=6";

pub(super) fn run(version: &'static str) -> Tally {
    match tests(version) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(why),
    }
}

fn tests(version: &'static str) -> Result<Tally, String> {
    let of = |list: [(&str, u16); 2]| list.iter().find(|(name, _)| *name == version).map_or(1, |(_, of)| *of);
    let cluster = Cluster::start_set(Version::named(version)?, of(BROKERS), of(PORTS), SETTINGS)?;
    doing(&format!("Kafka {version}: bugs of others"));
    let mut command = run::cargo();
    command.args(["test", "--no-fail-fast", "--workspace", "--test", "real", "--", "--nocapture", AT_ONCE]);
    command.env("PROSODY_REAL_KAFKA", cluster.bootstrap());
    if version == "4" {
        command.env("PROSODY_REAL_KAFKA_CONSUMER_PROTOCOL", "yes");
    }
    let ran = run::logged(&format!("bugs-{version}"), &mut command)?;
    let mut tally = Tally::default();
    tally.add_cargo_test(&ran.output);
    // Those that want more brokers than there are, or a protocol that is not served, end at once and say so.
    let skipped = ran.output.matches(": skipped, ").count() as u64;
    tally.passed = tally.passed.saturating_sub(skipped);
    if !ran.ok {
        say(&ran.tail(80));
        tally.failed = tally.failed.max(1);
    }
    tally
        .facts
        .push(format!("bugs of others on Kafka {version}: {} played, {skipped} not for it", tally.passed));
    Ok(tally)
}
