//! Reading partitions, ahead of those who ask, within one memory budget.
//!
//! ```text
//! broker ──▶ Driver ──▶ Part's queue ──▶ PartitionReader::next ──▶ Batch
//!            one Fetch     compressed,      checks, expands,          its bytes are counted
//!            per broker    counted          filters: on the           until the last slice
//!            under way                      caller's thread           is dropped
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `cursor.rs` | where is a partition being read? |
//! | `plan.rs` | how much may be fetched, for which partitions? |
//! | `session.rs` | what has to be said in the next request? |
//! | `validate.rs` | where does reading go on after these records? |
//! | `wire.rs` | what do Fetch messages look like? |
//! | `offsets.rs` | where does a log begin and end? |
//! | `buffer.rs` | what was fetched and not read yet? |
//! | `reader.rs` | what does the reader of a partition hold? |
//! | `aborted.rs` | which batches belong to aborted transactions? |
//! | `records.rs`, `records/` | what is at one offset, or provably not there? |
//! | `driver.rs`, `driver/` | who fetches, and what do the answers mean? |

mod aborted;
mod buffer;
mod cursor;
mod driver;
mod offsets;
mod plan;
mod reader;
mod records;
pub(crate) mod session;
mod validate;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Lane, Task};

use crate::batch::{BufferPool, Decompressor};
use crate::client::Client;
use crate::types::{IsolationLevel, Offset, TopicPartition};
use buffer::Shared;
pub use cursor::StartAt;
pub use reader::{FetchItem, PartitionReader};
pub use records::{Gone, RecordReader, RunAnswer, RunRecord, RunRequest};

/// How a fetcher works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// Bytes of fetched records, decompressed, in the buffers and in the hands of readers. One response may go over it. How
    /// much of it is used follows from how far the brokers are and how fast is read: at first, and with near brokers,
    /// 16 MiB. Default 64 MiB.
    pub buffer_bytes: usize,
    /// How long a broker may wait for new records before it answers. Default 100 ms.
    pub max_wait: Duration,
    /// Bytes of records in one response, compressed; at most 1 MiB less than a frame may have. Default 16 MiB.
    pub max_bytes: usize,
    /// Bytes of one partition in one response, compressed, or half of its share of the memory in use where that is more; a
    /// larger batch comes alone. Default 1 MiB.
    pub max_partition_bytes: usize,
    /// Whether records of open and aborted transactions are seen. Default read committed.
    pub isolation: IsolationLevel,
    /// Where this process runs (`client.rack`): partitions are read from an in-sync follower in the same rack where there
    /// is one and the cluster selects it (KIP-392), and from the leader while it fails. Default none.
    pub client_rack: Option<String>,
}

/// Of a frame, what is left for all that is not records.
const FRAME_SLACK: usize = 1 << 20;

impl Default for FetchConfig {
    fn default() -> FetchConfig {
        FetchConfig {
            buffer_bytes: 64 << 20,
            max_wait: Duration::from_millis(100),
            max_bytes: 16 << 20,
            max_partition_bytes: 1 << 20,
            isolation: IsolationLevel::ReadCommitted,
            client_rack: None,
        }
    }
}

/// Fetches any number of partitions in the background. Cheap to clone; fetching ends when the last clone and the last
/// reader are dropped.
#[derive(Clone, Debug)]
pub struct Fetcher(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    pool: BufferPool,
    _driver: Task<()>,
}

impl Fetcher {
    /// Starts a fetcher. Touches no network before a partition is opened.
    #[must_use]
    pub fn new(client: &Client, mut config: FetchConfig) -> Fetcher {
        // A response that is longer than a frame may be would close its connection, again and again.
        let most = client.cluster().limits().frame_bytes.saturating_sub(FRAME_SLACK).max(1);
        config.max_bytes = config.max_bytes.min(most);
        let pool = BufferPool::new(config.buffer_bytes / 8);
        let shared = Arc::new(Shared::new(client.cluster().clone(), config));
        let driver = driver::Driver::new(Arc::clone(&shared)).run();
        let driver = shared.cluster.doors().spawner.spawn(Lane::Io, driver);
        Fetcher(Arc::new(Handle { shared, pool, _driver: driver }))
    }

    /// Starts fetching a partition. A reader that is already open for it ends with a `Failed` item.
    ///
    /// While a poll of other partitions waits at the broker, this one is asked for beside it, so it does not wait for the poll
    /// to end.
    #[must_use]
    pub fn open(&self, tp: TopicPartition, from: StartAt) -> PartitionReader {
        let (id, held) = self.0.shared.open(tp.clone(), from);
        let decompressor = Decompressor::new(self.0.pool.clone());
        PartitionReader::new(self.clone(), Arc::clone(&self.0.shared), id, tp, held, decompressor)
    }

    /// For each open partition the offset behind the last record that exists, as the last response said.
    #[must_use]
    pub fn high_watermarks(&self) -> BTreeMap<TopicPartition, Offset> {
        let state = self.0.shared.state();
        let known = state.parts.values().filter_map(|part| Some((part.tp.clone(), part.high_watermark?)));
        known.collect()
    }

    /// Bytes held now: buffered and in the hands of readers.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.shared.budget.held()
    }
}
