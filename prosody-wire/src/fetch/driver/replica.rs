//! Which of a partition's brokers is read from? The leader, or the follower near us that it names (KIP-392).
//!
//! A follower that fails, is behind, or knows another history than what we read is left for the leader, which then is not
//! told our rack for a while: it would name the follower again until it has noticed itself.

use std::time::Duration;

use prosody_base::Instant;

use crate::fetch::buffer::Part;
use crate::types::BrokerId;

/// How long the leader alone is read from after a follower failed: the controller misses a dead broker after 9 s.
const LEADER_ALONE: Duration = Duration::from_secs(10);

impl Part {
    /// Whom to ask now; nobody without a leader.
    pub(super) fn source(&self, now: Instant) -> Option<BrokerId> {
        let leader = self.leader?;
        Some(self.replica.filter(|(_, until)| *until > now).map_or(leader, |(follower, _)| follower))
    }

    /// Somebody names the follower to read from: the leader is asked again after `age`. Says whether that is followed:
    /// followers name nobody, and a leader that names itself would be asked for ever.
    pub(super) fn named(&mut self, by: BrokerId, follower: BrokerId, now: Instant, age: Duration) -> bool {
        let is_followed = self.leader == Some(by) && by != follower && !self.is_leader_alone(now);
        if is_followed {
            self.replica = Some((follower, now + age));
        } else {
            self.leader_alone_until = Some(now + LEADER_ALONE);
        }
        is_followed
    }

    /// Back to the leader, if `id` is the follower in use. Says whether it is.
    pub(super) fn leave_follower(&mut self, id: BrokerId, now: Instant) -> bool {
        let left = self.replica.take_if(|(follower, _)| *follower == id).is_some();
        if left {
            self.leader_alone_until = Some(now + LEADER_ALONE);
        }
        left
    }

    /// Whether followers are left alone.
    pub(super) fn is_leader_alone(&self, now: Instant) -> bool {
        self.leader_alone_until.is_some_and(|until| until > now)
    }
}
