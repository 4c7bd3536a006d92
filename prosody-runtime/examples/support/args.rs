//! `--name value` arguments of the small tools.

use std::collections::BTreeMap;

/// What the command line says.
pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    /// Reads the process's arguments.
    ///
    /// # Errors
    /// For a name that is not in `known`, and for a name without a value.
    pub(crate) fn read(known: &[&str]) -> Result<Args, String> {
        let mut read = BTreeMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| known.contains(name));
            let Some(name) = name else {
                return Err(format!("`{word}` is not one of --{}", known.join(", --")));
            };
            let value = words.next().ok_or_else(|| format!("--{name} needs a value"))?;
            read.insert(name.to_owned(), value);
        }
        Ok(Args(read))
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        self.0.get(name).cloned().ok_or_else(|| format!("--{name} is missing"))
    }

    /// A number, or its default.
    ///
    /// # Errors
    /// When it is no number.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        match self.0.get(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not a number")),
            None => Ok(default),
        }
    }
}
