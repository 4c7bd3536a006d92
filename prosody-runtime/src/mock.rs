//! How does mock mode work? The same code as everywhere else, over pipes to a broker inside this process.

use std::sync::Arc;

use prosody_base::{Clock, Doors};
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

    /// Time and tasks of the cluster.
    pub(crate) fn doors(&self) -> Doors {
        self.0.doors().clone()
    }

    pub(crate) fn seeds(&self) -> Vec<String> {
        self.0.bootstrap().split(',').map(str::to_owned).collect()
    }

    /// The store of the cluster's clients.
    pub(crate) fn store(&self, clock: &Clock) -> Option<Arc<dyn KeyStore>> {
        let store = self.0.companion(|| prosody_state::MemoryStore::new(clock.clone()))?;
        let wants = Arc::clone(&store);
        self.0.keep(Box::new(move |topic, partition, offsets| wants.wants(topic, partition, offsets)));
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

/// A mock cluster with a clock of its own, for tests of what takes long: timers, retries and what is remembered for a
/// time come when the clock is moved there, and not before.
///
/// Everything that goes by this clock, handlers in Rust included, runs on one thread. The cluster lives while a client
/// or one of these refers to it, and 30 s longer.
#[cfg(feature = "mock")]
#[derive(Clone, Debug)]
pub struct VirtualCluster(prosody_testkit::mock::Mock);

#[cfg(feature = "mock")]
impl VirtualCluster {
    /// The cluster that clients with bootstrap `mock://name` use. Call it before the first of them is built.
    ///
    /// # Errors
    /// When the cluster goes by the machine's clock already, or the operating system refuses a thread.
    pub fn open(name: &str) -> std::io::Result<VirtualCluster> {
        prosody_testkit::mock::cluster_in_virtual_time(name).map(VirtualCluster)
    }

    /// Moves the clock. It stops at each instant at which something is due, and goes on when all that follows from it has
    /// happened; while a handler runs it stands still. A handler that has run for 5 s of real time is taken to wait for
    /// the clock itself, for instance for its timeout: the clock goes on then. Dropped, it stops where it is.
    pub async fn advance(&self, by: std::time::Duration) {
        if let Some(time) = self.0.time() {
            time.advance(by).await;
        }
    }

    /// What the clock shows. It starts at the machine's time.
    #[must_use]
    pub fn now(&self) -> std::time::SystemTime {
        let millis = u64::try_from(self.0.doors().clock.unix_millis()).unwrap_or_default();
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis)
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

    pub(crate) fn doors(&self) -> Doors {
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
