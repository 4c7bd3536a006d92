//! How does mock mode work? The same code as everywhere else, over pipes to a broker inside this process.

use std::sync::Arc;

use prosody_base::Clock;
use prosody_state::KeyStore;
use prosody_wire::Connector;

/// The cluster of a client in mock mode; clients of one process that name it equally share it.
#[cfg(feature = "mock")]
pub(crate) struct Mock(prosody_testkit::mock::Mock);

#[cfg(feature = "mock")]
impl Mock {
    pub(crate) fn open(name: &str) -> Result<Mock, String> {
        let cluster = prosody_testkit::mock::cluster(name);
        cluster.map(Mock).map_err(|why| format!("the broker inside this process did not start: {why}"))
    }

    pub(crate) fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(prosody_wire::PipeConnector(self.0.network()))
    }

    pub(crate) fn seeds(&self) -> Vec<String> {
        self.0.bootstrap().split(',').map(str::to_owned).collect()
    }

    /// The store of the cluster's clients.
    pub(crate) fn store(&self, clock: &Clock) -> Option<Arc<dyn KeyStore>> {
        let store = self.0.companion(|| prosody_state::MemoryStore::new(clock.clone()))?;
        Some(store)
    }

    /// Creates a topic that does not exist; every other check is the broker's.
    pub(crate) fn ensure_topic(&self, name: &str) {
        if self.0.partitions(name).is_none()
            && let Err((code, why)) = self.0.create_topic(name, prosody_testkit::mock::MOCK_PARTITIONS)
        {
            tracing::debug!(name, code, "a topic of the mock cluster was not created: {why}");
        }
    }
}

/// A build without the `mock` feature has no broker inside.
#[cfg(not(feature = "mock"))]
pub(crate) enum Mock {}

#[cfg(not(feature = "mock"))]
impl Mock {
    pub(crate) fn open(_: &str) -> Result<Mock, String> {
        Err("this build of prosody-runtime has no broker inside; enable its feature `mock`".to_owned())
    }

    pub(crate) fn connector(&self) -> Arc<dyn Connector> {
        match *self {}
    }

    pub(crate) fn seeds(&self) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn store(&self, _: &Clock) -> Option<Arc<dyn KeyStore>> {
        match *self {}
    }

    pub(crate) fn ensure_topic(&self, _: &str) {
        match *self {}
    }
}
