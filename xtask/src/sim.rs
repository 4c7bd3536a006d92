//! How is the simulator started? `prosody-runtime/examples/sim.rs` does the work and prints the last line itself.

use std::process::ExitCode;

use crate::args::Args;
use crate::{Outcome, run};

/// `cargo xtask sim --seeds A..B`
pub(crate) fn command(mut args: Args) -> Outcome {
    let seeds = args.value("--seeds")?.ok_or("sim needs --seeds A..B")?;
    args.end()?;
    if parse(&seeds).is_none() {
        return Err(format!("--seeds {seeds}: write A..B with A < B"));
    }
    let program = run::program("sim", run::Profile::Dev)?;
    let status = std::process::Command::new(program)
        .args(["--seeds", &seeds])
        .status()
        .map_err(|problem| format!("sim did not start: {problem}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
