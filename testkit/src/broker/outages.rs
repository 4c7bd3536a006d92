//! How does a test break a cluster? Brokers that stop and start, leaders and coordinators that move.

use super::group::{Cell, Identity};
use super::topics::{Topic, lock};
use super::{Cluster, Told, code};
use crate::net::{listen_pipe, listen_tcp};

impl Cluster {
    /// The leader of a partition, −1 for none.
    #[must_use]
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.inner(topic, partition, |inner| inner.leader)
    }

    /// Gives a partition to another leader, in a new epoch. Waiting fetches are answered at once.
    pub fn move_leader(&self, topic: &str, partition: i32, broker: i32) -> bool {
        self.inner(topic, partition, |inner| inner.lead(broker)).is_some()
    }

    /// An unclean election: a broker leads that does not have the records from `offset` on, as far as whole batches go. They
    /// are gone, and others will take their offsets. False when there is no such partition.
    pub fn elect_unclean(&self, topic: &str, partition: i32, broker: i32, offset: i64) -> bool {
        let Some(id) = self.topic_id(topic) else { return false };
        self.inner(topic, partition, |inner| {
            inner.log.truncate(offset);
            self.shared.invariants.truncated(id, partition);
            inner.lead(broker);
        })
        .is_some()
    }

    /// Makes metadata say something else about a partition than what is so; `Told::default()` makes it say the truth again.
    pub fn script_metadata(&self, topic: &str, partition: i32, told: Told) {
        lock(&self.shared.script).insert((topic.to_owned(), partition), told);
    }

    /// Makes metadata say the truth about everything again.
    pub fn clear_script(&self) {
        lock(&self.shared.script).clear();
    }

    /// The broker that coordinates a group.
    #[must_use]
    pub fn coordinator(&self, group: &str) -> Option<i32> {
        self.shared.coordinator_of(group)
    }

    /// Gives a group to another coordinator, which knows the last complete generation and the committed offsets. Joins
    /// and syncs that wait are answered NOT_COORDINATOR.
    pub fn move_coordinator(&self, group: &str, broker: i32) {
        self.shared.set_coordinator(group, broker);
    }

    /// Removes a client's members from a group, as an operator may. They learn it from their next request. Returns how
    /// many there were.
    pub fn evict(&self, group: &str, client: &str) -> usize {
        let Some(cell) = self.shared.coordinator.find(group) else { return 0 };
        let members = self.group(group).map(|group| group.members).unwrap_or_default();
        let evicted = members.iter().filter(|(_, member)| member.client_id == client).map(|(id, _)| {
            let who = Identity { member_id: id, instance: None };
            let leave = |cell: &mut Cell, now, out: &mut _| match &mut cell.modern {
                Some(modern) => {
                    if modern.remove(id) {
                        code::NONE
                    } else {
                        code::UNKNOWN_MEMBER_ID
                    }
                }
                None => cell.machine.leave(who, now, out),
            };
            self.shared.coordinator.with(&self.shared, group, &cell, leave)
        });
        evicted.filter(|error| *error == code::NONE).count()
    }

    /// Stops a broker: its connections are cut, its partitions and groups go to others that are up.
    pub fn stop_broker(&self, id: i32) {
        {
            let mut brokers = lock(&self.shared.brokers);
            let Some(broker) = brokers.get_mut(&id) else { return };
            broker.up = false;
            broker.listeners.clear();
            broker.connections.clear();
            lock(&broker.sessions).clear();
        }
        let alive = self.shared.alive();
        for topic in lock(&self.shared.topics).all() {
            self.elect(&topic, &alive, Some(id));
        }
        for group in self.shared.coordinated_by(id) {
            let at = crc32c::crc32c(group.as_bytes()) as usize % alive.len().max(1);
            self.shared.set_coordinator(&group, alive.get(at).copied().unwrap_or(id));
        }
    }

    /// Whether a broker is up; `false` also for one that does not exist.
    #[must_use]
    pub fn is_up(&self, id: i32) -> bool {
        lock(&self.shared.brokers).get(&id).is_some_and(|broker| broker.up)
    }

    /// Starts a broker that was stopped, at its old addresses. It leads what nobody leads.
    pub fn start_broker(&self, id: i32) {
        let tcp = {
            let mut brokers = lock(&self.shared.brokers);
            let Some(broker) = brokers.get_mut(&id).filter(|broker| !broker.up) else { return };
            broker.up = true;
            broker.tcp
        };
        let mut listeners = vec![listen_pipe(&self.shared, id)];
        if let Some(port) = tcp {
            match listen_tcp(&self.shared, id, port) {
                Ok((task, _)) => listeners.push(task),
                Err(error) => tracing::error!(broker = id, port, %error, "a broker cannot listen again"),
            }
        }
        if let Some(broker) = lock(&self.shared.brokers).get_mut(&id) {
            broker.listeners.extend(listeners);
        }
        let alive = self.shared.alive();
        for topic in lock(&self.shared.topics).all() {
            self.elect(&topic, &alive, None);
        }
    }

    /// Cuts every connection of a broker, which stays up.
    pub fn cut_connections(&self, id: i32) {
        if let Some(broker) = lock(&self.shared.brokers).get_mut(&id) {
            broker.connections.clear();
        }
    }

    /// Gives partitions led by `gone`, or by nobody, to a replica that is up.
    fn elect(&self, topic: &Topic, alive: &[i32], gone: Option<i32>) {
        for (index, partition) in (0..).zip(topic.partitions()) {
            let mut inner = partition.lock();
            if inner.leader != -1 && Some(inner.leader) != gone {
                continue;
            }
            let replicas = self.shared.replicas(index, topic.replication);
            let next = replicas.into_iter().find(|broker| alive.contains(broker)).unwrap_or(-1);
            if next != inner.leader {
                inner.lead(next);
            }
        }
    }
}
