//! Which variables does an environment hold, and which are misspelled?

use super::options::Options;
use super::table::{OPTIONS, OptionSpec, Problem};

/// What every variable of ours starts with.
const PREFIX: &str = "PROSODY_";
/// Edits up to which a known name is suggested for an unknown one.
const NEAR: usize = 4;

/// The options an environment sets.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) options: Options,
    /// Variables whose text does not fit.
    pub(crate) problems: Vec<Problem>,
    /// One sentence for each variable of ours that does not exist.
    pub(crate) warnings: Vec<String>,
}

/// Reads the variables that start with `PROSODY_`; all others are none of our business.
pub(crate) fn read(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
    let mut read = Environment::default();
    let ours = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX));
    for (name, text) in ours {
        match OPTIONS.iter().find(|spec| spec.variable == name) {
            Some(spec) => {
                if let Err(why) = read.options.put(spec, &text) {
                    read.problems.push(spec.problem(why));
                }
            }
            None => read.warnings.push(match nearest(&name) {
                Some(spec) => format!("{name} is not a variable of Prosody; did you mean {}?", spec.variable),
                None => format!("{name} is not a variable of Prosody"),
            }),
        }
    }
    read
}

fn nearest(name: &str) -> Option<&'static OptionSpec> {
    let near = OPTIONS.iter().map(|spec| (distance(name, spec.variable), spec));
    near.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= NEAR).map(|(_, spec)| spec)
}

/// Levenshtein distance over bytes: how many insertions, deletions and replacements turn one name into the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (deleted, a) in from.bytes().enumerate() {
        let mut diagonal = deleted;
        let mut left = deleted + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, b) in row.iter_mut().skip(1).zip(to.bytes()) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *cell;
            left = replaced.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_pairs(pairs: &[(&str, &str)]) -> Environment {
        read(pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn a_misspelled_variable_is_a_warning_that_names_the_nearest() {
        let read = read_pairs(&[("PROSODY_GROUPID", "a"), ("PROSODY_COLOUR_OF_THE_SKY", "b"), ("HOME", "c")]);
        assert_eq!(
            read.warnings,
            [
                "PROSODY_GROUPID is not a variable of Prosody; did you mean PROSODY_GROUP_ID?",
                "PROSODY_COLOUR_OF_THE_SKY is not a variable of Prosody"
            ]
        );
        assert_eq!((read.options, read.problems), (Options::default(), vec![]));
    }

    #[test]
    fn blank_means_unset_and_bad_text_names_option_and_variable() {
        let read = read_pairs(&[
            ("PROSODY_GROUP_ID", "  "),
            ("PROSODY_MAX_CONCURRENCY", "many"),
            ("PROSODY_SUBSCRIBED_TOPICS", " a , b,, "),
        ]);
        assert_eq!(read.options.group_id, None);
        assert_eq!(read.options.subscribed_topics, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(
            read.problems.first().map(ToString::to_string).as_deref(),
            Some(
                "MaxConcurrency (PROSODY_MAX_CONCURRENCY): `many` is not a whole number from 0 to 4294967295"
            )
        );
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }
}
