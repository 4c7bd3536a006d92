//! How does the coordinator divide partitions? `uniform`: even loads, as few moves as that allows. `range`: consecutive
//! partitions of each topic, so that equal numbers of two topics meet.

use std::collections::{BTreeMap, BTreeSet};

use super::{Catalog, Member, Place, Places};

/// A way to divide partitions, as the protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Even loads, few moves. What members get that name none.
    Uniform,
    /// Consecutive partitions of each topic.
    Range,
}

impl Assignor {
    /// The name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// The assignor of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Assignor> {
        [Assignor::Uniform, Assignor::Range].into_iter().find(|one| one.name() == name)
    }
}

/// Member → its target. `before` is the last one.
pub(super) fn assign(
    assignor: Assignor,
    members: &BTreeMap<String, Member>,
    topics: &Catalog,
    before: &BTreeMap<String, Places>,
) -> BTreeMap<String, Places> {
    match assignor {
        Assignor::Uniform => uniform(members, topics, before),
        Assignor::Range => range(members, topics),
    }
}

fn range(members: &BTreeMap<String, Member>, topics: &Catalog) -> BTreeMap<String, Places> {
    let mut given: BTreeMap<String, Places> = members.keys().map(|id| (id.clone(), Places::new())).collect();
    for (name, (id, count)) in topics {
        let mut readers: Vec<(Option<&String>, &String)> = members
            .iter()
            .filter(|(_, member)| member.wanted.contains(name))
            .map(|(id, member)| (member.instance.as_ref(), id))
            .collect();
        // Static members keep their place whatever id they come back with.
        readers.sort_by_key(|(instance, id)| (instance.is_none(), instance.map_or(*id, |instance| instance)));
        let Ok(among) = i32::try_from(readers.len()) else { continue };
        let mut next = 0;
        for (at, (_, reader)) in (0..among).zip(readers) {
            let share = count / among + i32::from(at < count % among);
            if let Some(given) = given.get_mut(reader) {
                given.extend((next..next + share).map(|partition| (*id, partition)));
            }
            next += share;
        }
    }
    given
}

fn uniform(
    members: &BTreeMap<String, Member>,
    topics: &Catalog,
    before: &BTreeMap<String, Places>,
) -> BTreeMap<String, Places> {
    let names: BTreeMap<[u8; 16], (&String, i32)> =
        topics.iter().map(|(name, (id, count))| (*id, (name, *count))).collect();
    let wants = |id: &String, place: &Place| {
        let Some((name, count)) = names.get(&place.0) else { return false };
        place.1 < *count && members.get(id).is_some_and(|member| member.wanted.contains(*name))
    };
    let mut given: BTreeMap<String, Places> = BTreeMap::new();
    let mut placed = Places::new();
    for id in members.keys() {
        let kept: Places =
            before.get(id).into_iter().flatten().filter(|place| wants(id, place)).copied().collect();
        placed.extend(&kept);
        given.insert(id.clone(), kept);
    }
    let all = names.iter().flat_map(|(id, (_, count))| (0..*count).map(|partition| (*id, partition)));
    for place in all.filter(|place| !placed.contains(place)) {
        let lightest =
            given.iter_mut().filter(|(id, _)| wants(id, &place)).min_by_key(|(_, held)| held.len());
        if let Some((_, held)) = lightest {
            held.insert(place);
        }
    }
    even_out(&mut given, wants);
    given
}

/// Moves partitions from the heaviest member to the lightest that wants one, while that makes them more equal.
fn even_out(given: &mut BTreeMap<String, Places>, wants: impl Fn(&String, &Place) -> bool) {
    let mut heavy: BTreeSet<(usize, String)> =
        given.iter().map(|(id, held)| (held.len(), id.clone())).collect();
    while let Some((load, from)) = heavy.last().cloned() {
        let held = given.get(&from).cloned().unwrap_or_default();
        let lighter = given.iter().filter(|(_, other)| other.len() + 2 <= load);
        let takes = |id: &String| held.iter().rev().find(|place| wants(id, place)).copied();
        let moved = lighter
            .filter_map(|(id, other)| Some((other.len(), id.clone(), takes(id)?)))
            .min_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        heavy.remove(&(load, from.clone()));
        let Some((light, to, place)) = moved else { continue };
        if let Some(held) = given.get_mut(&from) {
            held.remove(&place);
        }
        if let Some(held) = given.get_mut(&to) {
            held.insert(place);
        }
        heavy.insert((load - 1, from));
        if heavy.remove(&(light, to.clone())) {
            heavy.insert((light + 1, to));
        }
    }
}
