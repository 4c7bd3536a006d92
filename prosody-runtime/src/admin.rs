//! How do tests and tools create and delete topics?

use std::fmt;

use crate::config::{ConfigError, Options, check, read_environment};
use crate::error::{Error, ErrorKind};

/// Creates and deletes topics. Building one touches no network.
#[derive(Clone)]
pub struct Admin {
    _private: (),
}

impl Admin {
    /// For the cluster that `options` and the variables of `environment` name; only BootstrapServers and Mock count.
    ///
    /// # Errors
    /// When no cluster is named.
    pub fn new(
        options: Options,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Admin, ConfigError> {
        let environment = read_environment(
            environment
                .into_iter()
                .filter(|(name, _)| name == "PROSODY_BOOTSTRAP_SERVERS" || name == "PROSODY_MOCK"),
        );
        check(options.or(environment.options), environment.problems)?;
        Ok(Admin { _private: () })
    }

    /// Creates a topic; −1 leaves a number to the broker.
    ///
    /// # Errors
    /// With the code `TOPIC_ALREADY_EXISTS` when it does.
    pub async fn create_topic(&self, name: &str, partitions: i32, replication: i16) -> Result<(), Error> {
        let _ = (name, partitions, replication);
        Err(Error::new(ErrorKind::Other, "creating topics is not built yet"))
    }

    /// Deletes a topic. Done when the controller has accepted it.
    ///
    /// # Errors
    /// With the code `UNKNOWN_TOPIC_OR_PARTITION` when it does not exist.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        Err(Error::new(ErrorKind::Other, "deleting topics is not built yet"))
    }

    /// Closes every connection.
    pub async fn close(&self) {}
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}
