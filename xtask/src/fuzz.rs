//! How are the fuzzers started?

use crate::Outcome;
use crate::args::Args;

/// `cargo xtask fuzz [TARGET] --seconds N`
pub(crate) fn command(mut args: Args) -> Outcome {
    let _seconds: u64 = args.number("--seconds")?.ok_or("fuzz needs --seconds N")?;
    let target = args.word();
    args.end()?;
    Err(format!("there is no fuzz target {} yet", target.unwrap_or_default()))
}
