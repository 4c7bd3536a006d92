//! What happens when a static member comes back (KIP-345, KIP-814)?

use bytes::Bytes;
use prosody_base::Instant;

use super::{Effect, Group, Join, Joined, State, Token};
use crate::broker::code;
use crate::broker::group::Member;

impl Group {
    /// A static member came back under its instance: it takes over the old member's place with a new id.
    pub(super) fn replace_static(&mut self, old: &str, join: Join, now: Instant, out: &mut Vec<Effect>) {
        let Some(mut member) = self.members.remove(old) else { return };
        let id = join.new_id.clone();
        self.fence(&mut member, old, out);
        let before = self.protocol.as_deref().and_then(|protocol| member.metadata(protocol));
        member.update(&join);
        member.heard(now);
        let after = self.protocol.as_deref().and_then(|protocol| member.metadata(protocol));
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old);
        if was_leader {
            self.leader = Some(id.clone());
        }
        self.joins += 1;
        member.joined_at = self.joins;
        self.members.insert(id.clone(), member);
        let unchanged = before == after && self.chosen() == self.protocol;
        match self.state {
            State::Stable if unchanged => {
                let mut joined = self.joined(&id, was_leader && join.can_skip);
                joined.skip_assignment = was_leader && join.can_skip;
                if was_leader && !join.can_skip {
                    // An old client must not believe that it leads: it would wait for an assignment of its own.
                    joined.leader = old.to_owned();
                }
                self.persist();
                out.push(Effect::Joined(join.token, Box::new(joined)));
                return;
            }
            State::Stable | State::CompletingRebalance => {
                self.wait_for_join(&id, join.token);
                self.prepare(now, out);
            }
            State::Empty | State::PreparingRebalance => self.wait_for_join(&id, join.token),
        }
        self.try_complete(now, out);
    }

    fn wait_for_join(&mut self, id: &str, token: Token) {
        if let Some(member) = self.members.get_mut(id) {
            member.join = Some(token);
        }
    }

    fn fence(&self, member: &mut Member, id: &str, out: &mut Vec<Effect>) {
        if let Some(token) = member.join.take() {
            out.push(Effect::Joined(token, Box::new(Joined::error(code::FENCED_INSTANCE_ID, id.to_owned()))));
        }
        if let Some(token) = member.sync.take() {
            out.push(Effect::Synced(token, code::FENCED_INSTANCE_ID, Bytes::new()));
        }
    }
}
