//! How is the simulator started? It is a test of prosody-runtime (`tests/sim/`); this runs more seeds of it.

use std::process::ExitCode;

use crate::args::Args;
use crate::report::Tally;
use crate::test::{Tier, cargo_test};
use crate::{Outcome, bugs, run};

/// `cargo xtask sim --seeds A..B`
pub(crate) fn command(mut args: Args) -> Outcome {
    let seeds = args.value("--seeds")?.ok_or("sim needs --seeds A..B")?;
    args.end()?;
    if parse(&seeds).is_none() {
        return Err(format!("--seeds {seeds}: write A..B with A < B"));
    }
    let mut last = String::new();
    let ok = run::lines_of(
        run::cargo()
            .args(["test", "--quiet", "--workspace", "--test", "sim", "--"])
            .args(["--exact", "seeds", "seeds_with_timers", "--nocapture"])
            .env("PROSODY_SIM_SEEDS", &seeds)
            .env(OPTIMISED.0, OPTIMISED.1),
        |line| match line.strip_prefix("sim") {
            Some(_) => last.extend([line, "\n"]),
            None => println!("{line}"),
        },
    )?;
    print!("{last}");
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measured: a seed takes 0.7 s of a core in a debug build and 0.1 s in this one, which builds our own crates anew and
/// takes those of others as they are. It pays from some hundred seeds on; the 200 of every test run stay with the debug
/// build that the other tests need anyway.
const OPTIMISED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "1");

/// What the long tier runs.
const FULL: &str = "0..5000";

/// The seeds of the long tier.
pub(crate) fn full() -> Tally {
    let mut command = run::cargo();
    command.args(["test", "--workspace", "--test", "sim", "--", "--exact", "seeds", "seeds_with_timers"]);
    command.arg("--nocapture").env("PROSODY_SIM_SEEDS", FULL).env(OPTIMISED.0, OPTIMISED.1);
    match run::logged("sim", &mut command) {
        Ok(ran) => {
            let mut tally = Tally::default();
            tally.add_cargo_test(&ran.output);
            let said =
                ran.output.lines().filter(|line| line.starts_with("sim") || line.starts_with("faults "));
            tally.facts.extend(said.map(str::to_owned));
            if !ran.ok && tally.failed == 0 {
                return Tally::failed(ran.tail(40));
            }
            tally
        }
        Err(why) => Tally::failed(why),
    }
}

/// The suite that switches checks off, one at a time, in a build of its own: the simulation, or a test, has to notice.
pub(crate) fn sabotage(_: Tier) -> Tally {
    let features = ["--features", "sabotage", "--", "--exact"];
    let test = "sabotage::every_check_that_is_switched_off_is_noticed";
    let mut tally =
        cargo_test("sabotage", &[&["--workspace", "--test", "sim"], &features[..], &[test]].concat());
    tally.add(bugs::suite());
    tally
}

fn parse(seeds: &str) -> Option<(u64, u64)> {
    let (from, to) = seeds.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_range_of_seeds_has_two_ends_in_order() {
        assert_eq!(super::parse("0..500"), Some((0, 500)));
        for wrong in ["500", "5..5", "9..1", "a..b", "1..=2"] {
            assert_eq!(super::parse(wrong), None, "{wrong}");
        }
    }
}
