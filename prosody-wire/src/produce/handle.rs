//! What does a user of the producer hold?

use std::sync::Arc;

use prosody_base::Instant;

use super::accumulator::{Accumulator, Bounds};
use super::completion::Sending;
use super::driver::{self, Ended, Shared};
use super::partitioner::Partitioner;
use super::record::OutgoingRecord;
use crate::batch::{BufferPool, Compression};
use crate::client::Client;
use crate::error::{Error, ErrorKind};

/// How a producer works. Always idempotent, with acks = all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerConfig {
    /// How batches are compressed. Default LZ4.
    pub compression: Compression,
    /// How keys choose partitions. Default [`Partitioner::Crc32Consistent`].
    pub partitioner: Partitioner,
    /// Bytes a batch grows to under load, before compression. A larger record makes a larger batch. A batch that is larger
    /// than its topic takes (`max.message.bytes`) is split, and later ones are smaller (KIP-126). Default 128 KiB.
    pub batch_size: usize,
    /// Bytes of batches after which a request is sent. Default 1 MiB.
    pub request_size: usize,
    /// Bytes of records that may wait for their acknowledgement; later ones wait in line, in order. Default 32 MiB.
    pub memory: usize,
    /// Bytes of records that may wait in that line, each a copy of its own with about 512 bytes around it. A send beyond fails at once, as not
    /// written: whoever never awaits must learn it before the process has no memory left. Default 256 MiB.
    pub line: usize,
}

impl Default for ProducerConfig {
    fn default() -> ProducerConfig {
        ProducerConfig {
            compression: Compression::Lz4,
            partitioner: Partitioner::default(),
            batch_size: 128 << 10,
            request_size: 1 << 20,
            memory: 32 << 20,
            line: 256 << 20,
        }
    }
}

/// Writes records: each acknowledged one is in the log exactly once, in the order of the sends to its partition.
///
/// Cheap to clone. When the last clone is dropped, what is under way still has the request timeout to arrive;
/// [`Producer::close`] says whether it did.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    ended: Ended,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let cluster = &self.shared.cluster;
        self.shared.close_by(cluster.doors().clock.now() + cluster.limits().request_timeout);
    }
}

impl Producer {
    /// Starts a producer. Touches no network before the first send.
    #[must_use]
    pub fn new(client: &Client, config: ProducerConfig) -> Producer {
        let cluster = client.cluster().clone();
        let pool = BufferPool::new(config.memory / 4);
        let bounds = Bounds {
            partitioner: config.partitioner,
            batch_size: config.batch_size,
            memory: config.memory,
            line: config.line,
        };
        let state = Accumulator::new(bounds, pool.clone(), cluster.doors().rng.fork());
        let shared = Arc::new(Shared::new(cluster, config, state));
        let ended = driver::start(&shared, pool);
        Producer(Arc::new(Handle { shared, ended }))
    }

    /// Sends a record. Its place among the records of its partition is taken by this call, not when the future is
    /// awaited. An idle partition is sent to at once; under load, records share batches.
    ///
    /// The future resolves when the record is acknowledged, when no retry can help, or at `deadline` (`None`: no
    /// bound; at most 1 ms late). Retries happen until then. Dropping the future does not unsend the record.
    ///
    /// # Errors
    /// [`SendError`](super::SendError) tells what happened last, and whether the log can hold the record: `NotWritten` is certain.
    pub fn send(&self, record: OutgoingRecord<'_>, deadline: Option<Instant>) -> Sending {
        let shared = &self.0.shared;
        let now_ms = match record.timestamp {
            Some(_) => 0,
            None => shared.cluster.doors().clock.unix_millis(),
        };
        let (sending, ring) = {
            let mut state = shared.state();
            let rung = state.attention;
            let sending = state.send(&record, now_ms, deadline);
            (sending, state.attention && !rung)
        };
        if ring {
            shared.ring();
        }
        sending
    }

    /// Takes no more records and waits for those under way. Always ends by `deadline`; what has no answer then fails.
    ///
    /// # Errors
    /// When records had to be given up, with their number. Each of their futures says which it was.
    pub async fn close(&self, deadline: Instant) -> Result<(), Error> {
        let shared = &self.0.shared;
        let closed = Error::new("sending", ErrorKind::Closed("the producer is closed"));
        shared.state().closed.get_or_insert(closed);
        shared.close_by(deadline);
        let mut ended = self.0.ended.clone();
        let abandoned = match ended.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(0),
            Err(_) => 0,
        };
        match abandoned {
            0 => Ok(()),
            records => Err(Error::new(
                format!("closing a producer with {records} records under way"),
                ErrorKind::Timeout,
            )),
        }
    }
}
