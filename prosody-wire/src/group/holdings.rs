//! Which partitions does this member hold, and how firmly?

use std::collections::{BTreeMap, BTreeSet};

use prosody_base::{Instant, sabotaged};

use super::event::AssignmentEpoch;
use crate::types::TopicPartition;

/// How firmly a partition is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Given to us; its committed offset is not known yet, so nobody has heard of it. The number tells this stay from an
    /// earlier one: an offset asked for in that one may be stale.
    Fetching(u64),
    /// Announced in this epoch.
    Owned(AssignmentEpoch),
    /// Announced in this epoch, and being given up under this ticket.
    Revoking(AssignmentEpoch, u64),
}

/// The partitions of one member.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: BTreeMap<TopicPartition, Hold>,
    /// Open revocations and when each ends by itself.
    tickets: BTreeMap<u64, Instant>,
    /// What the last assignment gave us, whether or not we have taken it up.
    assigned: BTreeSet<TopicPartition>,
    /// The last number given to an assignment, a ticket or a stay.
    last: u64,
}

impl Holdings {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Everything that nobody else may have: what we say we own. A partition that is being given up is among it until its
    /// reader is done.
    pub(crate) fn claims(&self) -> Vec<TopicPartition> {
        let says = |hold: &Hold| !(sabotaged("group-revoke-ack") && matches!(hold, Hold::Revoking(..)));
        self.held.iter().filter(|(_, hold)| says(hold)).map(|(partition, _)| partition.clone()).collect()
    }

    /// Whether any partition of this topic is held.
    pub(crate) fn holds_of(&self, topic: &str) -> bool {
        self.held.keys().any(|partition| *partition.topic == *topic)
    }

    /// The epoch in which the partition was announced, while it is owned or being given up.
    pub(crate) fn announced(&self, partition: &TopicPartition) -> Option<AssignmentEpoch> {
        match self.held.get(partition)? {
            Hold::Fetching(_) => None,
            Hold::Owned(epoch) | Hold::Revoking(epoch, _) => Some(*epoch),
        }
    }

    /// Takes up an assignment. Returns the ticket of what has to be given up, if anything was announced.
    /// A partition that is being given up stays so even when it was given back: its reader has been told to stop.
    pub(crate) fn reconcile(
        &mut self,
        assigned: Vec<TopicPartition>,
        deadline: Instant,
    ) -> Option<(u64, Vec<TopicPartition>)> {
        self.assigned = assigned.into_iter().collect();
        let given = &self.assigned;
        self.held.retain(|partition, hold| given.contains(partition) || !matches!(hold, Hold::Fetching(_)));
        let gone = self.revoke_where(deadline, |partition, given| !given.contains(partition));
        self.take_up();
        gone
    }

    /// Gives up everything, for an eager rebalance.
    pub(crate) fn revoke_all(&mut self, deadline: Instant) -> Option<(u64, Vec<TopicPartition>)> {
        self.assigned.clear();
        self.held.retain(|_, hold| !matches!(hold, Hold::Fetching(_)));
        self.revoke_where(deadline, |_, _| true)
    }

    /// The reader is done, or its time is up.
    pub(crate) fn finish(&mut self, ticket: u64) {
        if self.tickets.remove(&ticket).is_some() {
            self.held.retain(|_, hold| !matches!(hold, Hold::Revoking(_, under) if *under == ticket));
            self.take_up();
        }
    }

    /// Revocations whose time is up.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<u64> {
        self.tickets.iter().filter(|(_, deadline)| **deadline <= now).map(|(ticket, _)| *ticket).collect()
    }

    /// Whether nothing is being given up.
    pub(crate) fn is_drained(&self) -> bool {
        self.tickets.is_empty()
    }

    /// When the next revocation ends by itself.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.tickets.values().min().copied()
    }

    /// Partitions whose committed offset is wanted, and the number up to which answers are fresh.
    pub(crate) fn fetching(&self) -> (u64, Vec<TopicPartition>) {
        let wanted = self.held.iter().filter(|(_, hold)| matches!(hold, Hold::Fetching(_)));
        (self.last, wanted.map(|(partition, _)| partition.clone()).collect())
    }

    /// Whether any committed offset is wanted.
    pub(crate) fn wants_offsets(&self) -> bool {
        self.held.values().any(|hold| matches!(hold, Hold::Fetching(_)))
    }

    /// Whether an offset that was asked for at `asked` still answers for this stay of the partition.
    pub(crate) fn is_waiting(&self, partition: &TopicPartition, asked: u64) -> bool {
        matches!(self.held.get(partition), Some(Hold::Fetching(since)) if *since <= asked)
    }

    /// Whether an answer to what was asked at `asked` left something out.
    pub(crate) fn is_waiting_since(&self, asked: u64) -> bool {
        self.held.values().any(|hold| matches!(hold, Hold::Fetching(since) if *since <= asked))
    }

    /// Announces partitions whose offsets are known. Returns their epoch.
    pub(crate) fn own<'a>(
        &mut self,
        partitions: impl Iterator<Item = &'a TopicPartition>,
    ) -> AssignmentEpoch {
        let epoch = AssignmentEpoch(self.number());
        for partition in partitions {
            self.held.insert(partition.clone(), Hold::Owned(epoch));
        }
        epoch
    }

    /// Everything is somebody else's. Returns what was announced.
    pub(crate) fn lose_all(&mut self) -> Vec<TopicPartition> {
        self.tickets.clear();
        self.assigned.clear();
        let held = std::mem::take(&mut self.held);
        held.into_iter()
            .filter(|(_, hold)| !matches!(hold, Hold::Fetching(_)))
            .map(|(partition, _)| partition)
            .collect()
    }

    fn revoke_where(
        &mut self,
        deadline: Instant,
        goes: impl Fn(&TopicPartition, &BTreeSet<TopicPartition>) -> bool,
    ) -> Option<(u64, Vec<TopicPartition>)> {
        let ticket = self.number();
        let mut gone = Vec::new();
        for (partition, hold) in &mut self.held {
            if let Hold::Owned(epoch) = *hold
                && goes(partition, &self.assigned)
            {
                *hold = Hold::Revoking(epoch, ticket);
                gone.push(partition.clone());
            }
        }
        if gone.is_empty() {
            return None;
        }
        self.tickets.insert(ticket, deadline);
        Some((ticket, gone))
    }

    /// Starts a stay of every assigned partition that is not held.
    fn take_up(&mut self) {
        let since = self.number();
        for partition in &self.assigned {
            let entry = self.held.entry(partition.clone()).or_insert(Hold::Fetching(since));
            if sabotaged("retained-stays") && matches!(entry, Hold::Owned(_)) {
                *entry = Hold::Fetching(since);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
