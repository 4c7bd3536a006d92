//! Which cluster does a client in mock mode talk to? Clusters of this process by name.
//!
//! A cluster lives while a [`Mock`] of its name exists, and 30 s longer, so that a client can be stopped and started
//! again on the same records and offsets.

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Doors, Lane};

use crate::broker::{Cluster, ClusterConfig, lock};

/// Partitions of a topic that is created because someone uses it.
pub const MOCK_PARTITIONS: i32 = 4;
/// How long a cluster outlives its last user.
pub const MOCK_LINGER: Duration = Duration::from_secs(30);

static CLUSTERS: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Known {
    cluster: Arc<Cluster>,
    users: usize,
    /// Rises with every user, so that an old farewell does not end a cluster that was used since.
    used: u64,
}

/// A user of a shared cluster. Clones count as users too.
#[derive(Debug)]
pub struct Mock {
    name: String,
    cluster: Arc<Cluster>,
    doors: Doors,
}

/// The cluster of a name, started when there is none. It creates topics on demand, with [`MOCK_PARTITIONS`] partitions.
///
/// # Errors
/// When the operating system refuses the process-wide threads.
pub fn cluster(name: &str) -> io::Result<Mock> {
    let doors = Doors::process()?;
    let mut clusters = lock(&CLUSTERS);
    let known = clusters.entry(name.to_owned()).or_insert_with(|| {
        let config = ClusterConfig {
            auto_create: Some(MOCK_PARTITIONS),
            default_partitions: MOCK_PARTITIONS,
            cluster_id: format!("mock-{name}"),
            ..ClusterConfig::default()
        };
        Known { cluster: Arc::new(Cluster::start(config, doors.clone())), users: 0, used: 0 }
    });
    known.users += 1;
    known.used += 1;
    Ok(Mock { name: name.to_owned(), cluster: Arc::clone(&known.cluster), doors })
}

impl Clone for Mock {
    fn clone(&self) -> Mock {
        if let Some(known) = lock(&CLUSTERS).get_mut(&self.name) {
            known.users += 1;
            known.used += 1;
        }
        Mock { name: self.name.clone(), cluster: Arc::clone(&self.cluster), doors: self.doors.clone() }
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
        let (name, clock) = (self.name.clone(), self.doors.clock.clone());
        let farewell = async move {
            clock.sleep(MOCK_LINGER).await;
            let mut clusters = lock(&CLUSTERS);
            if clusters.get(&name).is_some_and(|known| known.users == 0 && known.used == used) {
                let gone = clusters.remove(&name);
                drop(clusters);
                drop(gone);
            }
        };
        self.doors.spawner.spawn(Lane::Io, farewell).detach();
    }
}
