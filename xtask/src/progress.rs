//! What does a person see while it works? One changing line on a terminal, nothing in a pipe.

use std::io::{IsTerminal, Write};

/// Shows what is being done now, on a terminal only.
pub(crate) fn doing(what: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let short: String = what.chars().take(100).collect();
        let _ = write!(err, "\r\x1b[2K{short}");
        let _ = err.flush();
    }
}

/// Clears the changing line and prints one that stays.
pub(crate) fn say(line: &str) {
    doing("");
    println!("{line}");
}
