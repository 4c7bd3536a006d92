//! How fast is it, beside its peers and its bars?

use crate::Outcome;
use crate::args::Args;

/// `cargo xtask bench [NAME]... [--quick] [--json FILE]`
pub(crate) fn command(mut args: Args) -> Outcome {
    let _json = args.value("--json")?;
    let _quick = args.flag("--quick");
    let name = args.word();
    args.end()?;
    Err(format!("there is no bench {} yet", name.unwrap_or_default()))
}
