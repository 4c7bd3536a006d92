//! What does a request know of its connection, and may it do what it asks?

use std::sync::atomic::{AtomicI16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_protocol::protocol::Encodable;

use super::{Answer, Refused};
use crate::broker::sasl::Login;
use crate::broker::storage::Segments;
use crate::broker::topics::{Partition, Topic};
use crate::broker::{Shared, Transport, code};

/// One connection, as its requests see it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) broker: i32,
    pub(crate) connection: u64,
    pub(crate) transport: Transport,
    pub(crate) peer: String,
    /// Wakes a fetch of this connection; one is enough, for its requests are served one after another.
    pub(crate) waiter: Arc<tokio::sync::Notify>,
    pub(crate) client_id: Arc<str>,
    pub(super) login: Mutex<Login>,
    pub(super) version: i16,
    pub(super) fault: Option<Fault>,
    pub(super) throttle: Duration,
    pub(super) error: AtomicI16,
    /// A rule delayed something here: when the requests of this connection were sent is not known any more.
    pub(super) held_back: bool,
}

/// An error that a rule wants answered.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) code: i16,
    pub(super) topic: Option<String>,
    pub(super) partition: Option<i32>,
}

impl Call {
    pub(crate) fn new(
        shared: Arc<Shared>,
        broker: i32,
        connection: u64,
        transport: Transport,
        peer: String,
    ) -> Call {
        Call {
            shared,
            broker,
            connection,
            transport,
            peer,
            waiter: Arc::default(),
            client_id: "".into(),
            login: Mutex::default(),
            version: 0,
            fault: None,
            throttle: Duration::ZERO,
            error: AtomicI16::new(0),
            held_back: false,
        }
    }

    /// Notes why this connection is closed.
    pub(crate) fn refuse(&self, why: String) {
        tracing::debug!(broker = self.broker, peer = self.peer, why, "a connection is closed");
        self.shared.journal.refuse(why);
    }

    /// A member asks for something: it must not have left before.
    pub(super) fn asks(&self, group: &str, member: &str, api: &'static str) {
        if !self.held_back {
            self.shared.invariants.asks(group, member, api);
        }
    }

    /// The error a rule wants for a request that is about no single partition.
    pub(super) fn fault(&self) -> Option<i16> {
        let code = self.fault.as_ref().map(|fault| fault.code)?;
        Some(self.noted(code))
    }

    /// The error a rule wants for one partition.
    pub(super) fn fault_at(&self, topic: &str, partition: i32) -> Option<i16> {
        let fault = self.fault.as_ref()?;
        let named = fault.topic.as_ref().is_none_or(|named| named == topic);
        let struck = named && fault.partition.is_none_or(|named| named == partition);
        struck.then(|| self.noted(fault.code))
    }

    /// Remembers the first error of an answer for the journal, and returns it.
    pub(super) fn noted(&self, error: i16) -> i16 {
        let _ = self.error.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed);
        error
    }

    pub(super) fn throttle_ms(&self) -> i32 {
        i32::try_from(self.throttle.as_millis()).unwrap_or(i32::MAX)
    }

    pub(super) fn encode<R: Encodable>(&self, response: &R) -> Result<Answer, Refused> {
        let mut segments = Segments::default();
        response.encode(segments.open(), self.version).map_err(|error| {
            tracing::error!(version = self.version, %error, "an answer cannot be encoded");
            Refused
        })?;
        Ok(Some(segments))
    }

    /// The partition, if this broker leads it and the client's leader epoch (−1 for none) is the current one.
    pub(super) fn led(
        &self,
        topic: Option<&Topic>,
        index: i32,
        client_epoch: i32,
    ) -> Result<Arc<Partition>, i16> {
        let partition =
            topic.and_then(|topic| topic.partition(index)).ok_or(code::UNKNOWN_TOPIC_OR_PARTITION)?;
        let (leader, epoch) = {
            let inner = partition.lock();
            (inner.leader, inner.epoch)
        };
        if leader != self.broker {
            return Err(code::NOT_LEADER_OR_FOLLOWER);
        }
        match client_epoch {
            -1 => Ok(partition),
            known if known < epoch => Err(code::FENCED_LEADER_EPOCH),
            known if known > epoch => Err(code::UNKNOWN_LEADER_EPOCH),
            _ => Ok(partition),
        }
    }

    /// PRODUCER_FENCED as a client of this version knows it: before `since` it was INVALID_PRODUCER_EPOCH (KIP-588).
    pub(super) fn fenced(&self, error: i16, since: i16) -> i16 {
        if error == code::PRODUCER_FENCED && self.version < since {
            code::INVALID_PRODUCER_EPOCH
        } else {
            error
        }
    }

    /// Whether this broker coordinates the group.
    pub(super) fn coordinates(&self, group: &str) -> Result<(), i16> {
        if group.is_empty() {
            return Err(code::INVALID_GROUP_ID);
        }
        match self.shared.coordinator_of(group) {
            Some(broker) if broker == self.broker => Ok(()),
            Some(_) => Err(code::NOT_COORDINATOR),
            None => Err(code::COORDINATOR_NOT_AVAILABLE),
        }
    }
}
