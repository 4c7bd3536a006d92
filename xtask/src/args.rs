//! What did the user ask for? Words and `--flags`, each taken once by the command that knows it.

/// Command-line arguments that have not been understood yet.
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Args {
        // `--flag=value` is the same as `--flag value`.
        Args(
            words
                .flat_map(|word| match word.split_once('=') {
                    Some((flag, value)) if flag.starts_with("--") => vec![flag.to_owned(), value.to_owned()],
                    _ => vec![word],
                })
                .collect(),
        )
    }

    /// The next word that is no flag.
    pub(crate) fn word(&mut self) -> Option<String> {
        let at = self.0.iter().position(|word| !word.starts_with('-') || word == "-h" || word == "--help")?;
        Some(self.0.remove(at))
    }

    /// Whether `--name` was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// The value after `--name`. Take valued flags before words, or the value is taken for a word.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(at) = self.0.iter().position(|word| word == name) else { return Ok(None) };
        self.0.remove(at);
        if self.0.get(at).is_none_or(|value| value.starts_with("--")) {
            return Err(format!("{name} needs a value"));
        }
        Ok(Some(self.0.remove(at)))
    }

    /// The value after `--name` as a number.
    pub(crate) fn number<N: std::str::FromStr>(&mut self, name: &str) -> Result<Option<N>, String> {
        match self.value(name)? {
            Some(text) => {
                text.parse().map(Some).map_err(|_| format!("{name} {text}: not a number that fits"))
            }
            None => Ok(None),
        }
    }

    /// Every value of a flag that may be given several times.
    pub(crate) fn values(&mut self, name: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        while let Some(value) = self.value(name)? {
            found.push(value);
        }
        Ok(found)
    }

    /// Ends the parsing: whatever is left is a mistake worth telling.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(left) => Err(format!("`{left}` is not understood here; `cargo xtask help` lists what is")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_values_and_words_are_taken_once_and_leftovers_are_told() {
        let mut line = args("kafka start --port=9093 --brokers 3 --full");
        assert_eq!(line.number::<u16>("--port"), Ok(Some(9093)));
        assert_eq!(line.number::<u16>("--brokers"), Ok(Some(3)));
        assert_eq!(line.word().as_deref(), Some("kafka"));
        assert_eq!(line.word().as_deref(), Some("start"));
        assert!(line.end().expect_err("--full is left").contains("--full"));
    }

    #[test]
    fn a_flag_without_its_value_is_an_error_not_a_default() {
        assert!(args("--port").value("--port").is_err());
        assert!(args("--port --full").value("--port").is_err());
        assert!(args("--port many").number::<u16>("--port").is_err());
    }
}
