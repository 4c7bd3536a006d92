//! How do tests and tools create and delete topics?

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Lane};
use prosody_wire::NewTopic;

use crate::client::connect;
use crate::config::{ConfigError, Options, check, read_environment};
use crate::error::{Error, ErrorKind};
use crate::mock::Mock;

/// How long one call may take.
const CALL_TIME: Duration = Duration::from_secs(30);

/// Creates and deletes topics. Building one touches no network.
#[derive(Clone)]
pub struct Admin {
    wire: prosody_wire::Client,
    doors: Doors,
    _mock: Option<Arc<Mock>>,
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
        let config = check(options.or(environment.options), environment.problems)?;
        let (wire, doors, mock) = connect(&config, None)?;
        Ok(Admin { wire, doors, _mock: mock.map(Arc::new) })
    }

    /// Creates a topic and waits until its partitions have leaders; −1 leaves a number to the broker. Takes at most
    /// 30 s.
    ///
    /// # Errors
    /// With the code `TOPIC_ALREADY_EXISTS` when it does.
    pub async fn create_topic(&self, name: &str, partitions: i32, replication: i16) -> Result<(), Error> {
        let mut topic = NewTopic::new(name);
        topic.partitions = (partitions >= 0).then_some(partitions);
        topic.replication = (replication >= 0).then_some(replication);
        let (admin, deadline) = (self.wire.admin(), self.doors.clock.now() + CALL_TIME);
        self.call(async move { admin.create_topic(&topic, deadline).await }).await
    }

    /// Deletes a topic. Done when the controller has accepted it; takes at most 30 s.
    ///
    /// # Errors
    /// With the code `UNKNOWN_TOPIC_OR_PARTITION` when it does not exist.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let (admin, name) = (self.wire.admin(), name.to_owned());
        let deadline = self.doors.clock.now() + CALL_TIME;
        self.call(async move { admin.delete_topic(&name, deadline).await }).await
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.wire.close();
    }

    /// On our own threads, so that the caller may await this on any executor.
    async fn call(
        &self,
        call: impl Future<Output = Result<(), prosody_wire::Error>> + Send + 'static,
    ) -> Result<(), Error> {
        match self.doors.spawner.spawn(Lane::Io, call).await {
            Ok(result) => result.map_err(|why| Error::from_wire("an administrative call failed", &why)),
            Err(died) => Err(Error::new(ErrorKind::Other, format!("an administrative call died: {died}"))),
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}
