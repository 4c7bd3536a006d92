//! How does a member get from what it has to its target, without two members ever holding one partition?

use prosody_base::Instant;

use super::{Group, Place, Places, Standing};

impl Group {
    /// One step of a member that has just been heard. `owned` is what it says it holds, if it says so.
    pub(super) fn reconcile(&mut self, id: &str, owned: Option<&Places>, now: Instant) {
        let target = self.target.get(id).cloned().unwrap_or_default();
        let Some(member) = self.members.get(id) else { return };
        let holds = |some: &Places| owned.is_none_or(|owned| !owned.is_disjoint(some));
        match member.standing {
            Standing::Stable if member.epoch == self.target_epoch => return,
            Standing::Revoking if holds(&member.revoking) => return,
            _ => {}
        }
        let keep: Places = member.assigned.intersection(&target).copied().collect();
        let gone: Places = member.assigned.difference(&target).copied().collect();
        let others = || self.members.iter().filter(|(other, _)| *other != id).map(|(_, other)| other);
        let is_free = |place: &Place| {
            others().all(|other| !other.assigned.contains(place) && !other.revoking.contains(place))
        };
        let (free, taken): (Places, Places) = target.difference(&keep).copied().partition(is_free);
        let (timeout, epoch) = (member.rebalance_timeout, self.target_epoch);
        let Some(member) = self.members.get_mut(id) else { return };
        if !gone.is_empty() && holds(&gone) {
            member.standing = Standing::Revoking;
            member.assigned = keep;
            member.revoking = gone;
            member.revoke_by = Some(now + timeout);
            return;
        }
        member.standing = if taken.is_empty() { Standing::Stable } else { Standing::Waiting };
        member.assigned = keep.union(&free).copied().collect();
        member.revoking = Places::new();
        member.revoke_by = None;
        (member.previous, member.epoch) = (member.epoch, epoch);
    }
}
