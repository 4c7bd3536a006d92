//! What went wrong in a store, and may trying again help?

use std::fmt;

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// It may: the store was unavailable, too slow, overloaded, or said nothing we know.
    Transient,
    /// Never with this input: a key that is too long, a value that cannot be stored.
    Permanent,
    /// Never with this store: its schema or keyspace does not fit.
    Terminal,
}

/// A statement that did not do what it should. Its text says what was being done and what came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    category: Category,
    timed_out: bool,
    text: String,
}

impl StoreError {
    /// An error of this category.
    #[must_use]
    pub fn new(category: Category, text: impl Into<String>) -> StoreError {
        StoreError { category, timed_out: false, text: text.into() }
    }

    /// No answer in time: the statement may have been applied, or may be later.
    #[must_use]
    pub fn timed_out(text: impl Into<String>) -> StoreError {
        StoreError { category: Category::Transient, timed_out: true, text: text.into() }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn category(&self) -> Category {
        self.category
    }

    /// Whether the statement may have been applied all the same. Treat every transient error of a commit so: the
    /// store may not know.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.timed_out
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StoreError {}
