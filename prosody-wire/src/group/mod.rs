//! How does a process share topics with the other members of its consumer group?
//!
//! [`Group::join`] starts a member that finds its coordinator, joins, heartbeats and rejoins by itself, whatever the
//! application does. [`Group::event`] says which partitions come and go; a [`Committer`] stores positions.
//!
//! | file | question |
//! |---|---|
//! | `config.rs` | what does a member need to know? |
//! | `event.rs` | what does it hear, and what must it answer? |
//! | `commit.rs` | which offsets are committed when, and what does a failure mean? |
//! | `outbox.rs` | what has been decided that nobody has read? |
//! | `driver.rs`, `running.rs` | who moves the member? (one task; the only files that wait) |
//! | `core.rs` | what does any member do, whatever protocol its group speaks? (pure) |
//! | `classic/` | what does a member of a classic group do next? (pure) |
//! | `modern/` | what does a member of a group of the consumer protocol (KIP-848) do next? (pure) |
//! | `calls.rs`, `remedy.rs` | what can a member ask, what comes back, and what does an error ask of it? |
//! | `pattern.rs` | which topics does a subscription by pattern mean? |
//! | `holdings.rs` | which partitions does a member hold, and how firmly? |
//! | `codec.rs` | how do calls become Kafka messages? |
//! | `subscription.rs`, `assignment.rs`, `wire.rs` | what do members tell each other? |

pub(crate) mod assignment;
mod calls;
mod classic;
mod codec;
mod commit;
mod config;
mod core;
mod driver;
mod event;
mod holdings;
mod modern;
mod outbox;
pub(crate) mod pattern;
mod remedy;
mod running;
mod shared;
pub(crate) mod subscription;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Clock, Instant, Lane, Task, sabotaged};
use tokio::sync::{mpsc, oneshot};

use crate::client::Client;

pub(crate) use assignment::decode_assignment;
pub use classic::Assignor;
pub use commit::{CommitError, CommitOffset, Committer};
pub use config::{GroupConfig, GroupProtocol};
pub use event::{AssignedPartition, AssignmentEpoch, CommittedOffset, GroupEvent, RevokeAck};
pub use pattern::TopicPattern;
#[cfg(feature = "internals")]
pub(crate) use subscription::Subscription;

use driver::Driver;
use outbox::Notice;
use shared::Shared;

/// How long [`Group::prepare`] asks. A member asks anew after that: the broker that was asked may be gone.
const HEAD_START: Duration = Duration::from_secs(1);

/// One member of a consumer group. Dropping it ends the member without a word, as a crash would: the others get its
/// partitions after the session timeout. [`Group::leave`] hands them over at once.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    committer: Committer,
    leave: oneshot::Sender<()>,
    task: Task<()>,
    clock: Clock,
}

impl Group {
    /// Asks in the background who coordinates the group, while the caller still looks at its topics: [`Group::join`] need
    /// not wait for the answer then, and asks by itself where none came.
    pub fn prepare(client: &Client, group_id: &str) {
        let (cluster, group_id) = (client.cluster().clone(), group_id.to_owned());
        let doors = cluster.doors().clone();
        let until = doors.clock.now() + HEAD_START;
        let find = async move { drop(doors.clock.until(until, cluster.coordinator(&group_id)).await) };
        client.cluster().doors().spawner.spawn(Lane::Io, find).detach();
    }

    /// Becomes a member. Returns at once; what happens is told by [`Group::event`].
    #[must_use]
    pub fn join(client: &Client, config: GroupConfig) -> Group {
        let cluster = client.cluster().clone();
        let doors = cluster.doors().clone();
        let shared = Arc::new(Shared::default());
        let (orders, incoming) = mpsc::channel(commit::COMMIT_QUEUE);
        let (leave, leaving) = oneshot::channel();
        let unanswered = Arc::default();
        let driver = Driver::new(cluster, config.clone(), Arc::clone(&shared), Arc::clone(&unanswered));
        let (clock, timeout) = (doors.clock.clone(), config.commit_timeout);
        let committer = Committer { orders, clock, timeout, unanswered };
        let task = doors.spawner.spawn(Lane::Io, driver.run(incoming, leaving));
        Group { shared, committer, leave, task, clock: doors.clock }
    }

    /// The next event. Heartbeats and rebalances go on whether or not this is called; what was decided and undone
    /// unread is never told. Waits for ever once the member is over. May be dropped and called again.
    pub async fn event(&mut self) -> GroupEvent {
        loop {
            if let Some(notice) = self.shared.read() {
                return self.event_of(notice);
            }
            self.shared.news.notified().await;
        }
    }

    /// Commits positions of this member's partitions.
    #[must_use]
    pub fn committer(&self) -> Committer {
        self.committer.clone()
    }

    /// Leaves the group after the commits made so far, at the latest at `deadline`. Drain and commit before: no event
    /// tells of the partitions given up here. The partitions of a static member wait for its return until the session
    /// timeout: by the classic protocol it says nothing, by the consumer protocol that it will be back.
    pub async fn leave(self, deadline: Instant) {
        let Group { leave, task, clock, .. } = self;
        let _ = leave.send(());
        let late = if sabotaged("leave-deadline") { Duration::from_secs(60) } else { Duration::ZERO };
        let deadline = deadline + late;
        let _ = clock.until(deadline, task).await;
    }

    fn event_of(&self, notice: Notice) -> GroupEvent {
        match notice {
            Notice::Assigned { epoch, partitions } => GroupEvent::Assigned { epoch, partitions },
            Notice::Revoke { ticket, partitions, deadline } => {
                let done = RevokeAck { ticket, shared: Arc::clone(&self.shared) };
                GroupEvent::Revoke { partitions, deadline, done }
            }
            Notice::Lost { partitions, why } => GroupEvent::Lost { partitions, why },
            Notice::Failed(why) => GroupEvent::Failed(why),
        }
    }
}
