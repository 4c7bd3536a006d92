//! Which cluster does a client in mock mode talk to? Clusters of this process by name.
//!
//! A cluster lives while a [`Mock`] of its name exists, and 30 s longer, so that a client can be stopped and started
//! again on the same records and offsets.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use prosody_base::{Doors, Lane, VirtualTime};

use crate::broker::{Cluster, ClusterConfig, lock};

/// Partitions of a topic that is created because someone uses it.
pub const MOCK_PARTITIONS: i32 = 4;
/// How long a cluster outlives its last user.
pub const MOCK_LINGER: Duration = Duration::from_secs(30);

static CLUSTERS: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Known {
    cluster: Arc<Cluster>,
    companion: Companion,
    /// Present when the cluster has a clock of its own.
    time: Option<VirtualTime>,
    users: usize,
    /// Rises with every user, so that an old farewell does not end a cluster that was used since.
    used: u64,
}

type Companion = Arc<OnceLock<Arc<dyn Any + Send + Sync>>>;

/// A user of a shared cluster. Clones count as users too.
#[derive(Debug)]
pub struct Mock {
    name: String,
    cluster: Arc<Cluster>,
    companion: Companion,
    time: Option<VirtualTime>,
    /// The process's own: a cluster outlives its users in real time.
    process: Doors,
}

impl Mock {
    /// What its users keep beside the cluster, made by the first who asks; it lives as long as the cluster. `None` when
    /// somebody keeps something of another type there.
    pub fn companion<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        Arc::clone(self.companion.get_or_init(|| Arc::new(make()))).downcast().ok()
    }

    /// Time and tasks of the cluster, for its clients.
    #[must_use]
    pub fn doors(&self) -> &Doors {
        self.time.as_ref().map_or(&self.process, VirtualTime::doors)
    }

    /// The cluster's own time, when it was [started with one](cluster_in_virtual_time).
    #[must_use]
    pub fn time(&self) -> Option<&VirtualTime> {
        self.time.as_ref()
    }
}

/// The cluster of a name, started when there is none. It creates topics on demand, with [`MOCK_PARTITIONS`] partitions.
///
/// # Errors
/// When the operating system refuses the process-wide threads.
pub fn cluster(name: &str) -> io::Result<Mock> {
    join(name, Doors::process()?, || Ok(None))
}

/// As [`cluster`]; one that is started here has a clock of its own, which stands still until it is moved.
///
/// # Errors
/// As [`cluster`], and when the cluster runs already by the machine's clock.
pub fn cluster_in_virtual_time(name: &str) -> io::Result<Mock> {
    let mock = join(name, Doors::process()?, || VirtualTime::start().map(Some))?;
    match mock.time {
        Some(_) => Ok(mock),
        None => Err(io::Error::other(format!(
            "the cluster {name} goes by the machine's clock already: ask for a virtual one before its first client"
        ))),
    }
}

fn join(
    name: &str,
    process: Doors,
    time: impl FnOnce() -> io::Result<Option<VirtualTime>>,
) -> io::Result<Mock> {
    let mut clusters = lock(&CLUSTERS);
    if !clusters.contains_key(name) {
        let time = time()?;
        let doors = time.as_ref().map_or(&process, VirtualTime::doors).clone();
        let config = ClusterConfig {
            auto_create: Some(MOCK_PARTITIONS),
            default_partitions: MOCK_PARTITIONS,
            cluster_id: format!("mock-{name}"),
            ..ClusterConfig::default()
        };
        let cluster = Arc::new(Cluster::start(config, doors));
        let known = Known { cluster, companion: Companion::default(), time, users: 0, used: 0 };
        clusters.insert(name.to_owned(), known);
    }
    let known =
        clusters.get_mut(name).ok_or_else(|| io::Error::other("a cluster was started and is gone"))?;
    known.users += 1;
    known.used += 1;
    let (cluster, companion) = (Arc::clone(&known.cluster), Arc::clone(&known.companion));
    Ok(Mock { name: name.to_owned(), cluster, companion, time: known.time.clone(), process })
}

impl Clone for Mock {
    fn clone(&self) -> Mock {
        if let Some(known) = lock(&CLUSTERS).get_mut(&self.name) {
            known.users += 1;
            known.used += 1;
        }
        let (cluster, companion) = (Arc::clone(&self.cluster), Arc::clone(&self.companion));
        let (time, process) = (self.time.clone(), self.process.clone());
        Mock { name: self.name.clone(), cluster, companion, time, process }
    }
}

impl Deref for Mock {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let last = {
            let mut clusters = lock(&CLUSTERS);
            let Some(known) = clusters.get_mut(&self.name) else { return };
            known.users -= 1;
            (known.users == 0).then_some(known.used)
        };
        let Some(used) = last else { return };
        let (name, clock) = (self.name.clone(), self.process.clock.clone());
        let farewell = async move {
            clock.sleep(MOCK_LINGER).await;
            let mut clusters = lock(&CLUSTERS);
            if clusters.get(&name).is_some_and(|known| known.users == 0 && known.used == used) {
                let gone = clusters.remove(&name);
                drop(clusters);
                drop(gone);
            }
        };
        self.process.spawner.spawn(Lane::Io, farewell).detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a paused clock in place of the process's own.
    #[tokio::test(start_paused = true)]
    async fn a_cluster_outlives_its_last_user_by_30_seconds_and_each_user_prolongs_it() {
        let doors = Doors::simulated(1);
        let join = || join("lives-on", doors.clone(), || Ok(None)).unwrap();
        let first = join();
        first.create_topic("t", 3).unwrap();
        let kept = first.companion(|| 7).unwrap();
        drop(first);
        // The last farewell alone counts, and a clone is a user.
        for _ in 0..3 {
            doors.clock.sleep(Duration::from_secs(29)).await;
            let again = join();
            let clone = again.clone();
            drop(again);
            doors.clock.sleep(Duration::from_secs(60)).await;
            assert_eq!((clone.partitions("t"), clone.companion(|| 8)), (Some(3), Some(Arc::clone(&kept))));
        }
        doors.clock.sleep(Duration::from_secs(31)).await;
        let next = join();
        assert_eq!((next.partitions("t"), *next.companion(|| 8).unwrap()), (None, 8));
    }
}
