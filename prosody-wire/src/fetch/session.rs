//! What has to be said in the next Fetch request, when the broker remembers the last one (KIP-227)? Pure.

use std::collections::BTreeMap;

use crate::types::{Topic, TopicId};

/// Names a partition in a session. A topic made again under its old name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) topic: Topic,
    pub(crate) topic_id: Option<TopicId>,
    pub(crate) partition: i32,
}

/// What is asked of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) offset: i64,
    /// The leader epoch metadata knows, −1 for none.
    pub(crate) leader_epoch: i32,
    /// The leader epoch of the last batch read, −1 for none.
    pub(crate) last_epoch: i32,
    pub(crate) max_bytes: usize,
}

/// The session part of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionRequest {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    /// Partitions to add or to change, sorted.
    pub(crate) send: Vec<(Key, Params)>,
    /// Partitions to leave out from now on, sorted.
    pub(crate) forget: Vec<Key>,
}

/// A request outside any session.
pub(crate) fn sessionless(mut send: Vec<(Key, Params)>) -> SessionRequest {
    send.sort_by(|a, b| a.0.cmp(&b.0));
    SessionRequest { id: 0, epoch: -1, send, forget: Vec::new() }
}

/// A fetch session with one broker.
#[derive(Debug, Default)]
pub(crate) struct Session {
    id: i32,
    /// Of the next request; 0 asks for a new session.
    epoch: i32,
    /// What the broker remembers.
    known: BTreeMap<Key, Params>,
}

impl Session {
    /// The next request, for exactly these partitions.
    pub(crate) fn next(&mut self, wanted: impl IntoIterator<Item = (Key, Params)>) -> SessionRequest {
        let wanted: BTreeMap<Key, Params> = wanted.into_iter().collect();
        let full = self.epoch == 0;
        let changed = wanted.iter().filter(|(key, params)| full || self.known.get(*key) != Some(*params));
        let send = changed.map(|(key, params)| (key.clone(), *params)).collect();
        let forget = match full {
            true => Vec::new(),
            false => self.known.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect(),
        };
        self.known = wanted;
        SessionRequest { id: self.id, epoch: self.epoch, send, forget }
    }

    /// The request was answered without an error of the whole session.
    pub(crate) fn answered(&mut self, session_id: i32) {
        if session_id == 0 {
            // The broker keeps no session (its cache is full): every request is a full one.
            self.reset();
        } else {
            self.id = session_id;
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
    }

    /// The session is gone, or nobody knows how far it got: the next request is a full one.
    pub(crate) fn reset(&mut self) {
        *self = Session::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a broker does with a request, by KIP-227.
    #[derive(Debug, Default)]
    struct Broker {
        next_id: i32,
        session: Option<(i32, i32, BTreeMap<Key, Params>)>,
    }

    impl Broker {
        /// The partitions it would look at, or `None` for a session error.
        fn serve(&mut self, request: &SessionRequest, keeps: bool) -> Option<(i32, BTreeMap<Key, Params>)> {
            if request.epoch == 0 {
                let all: BTreeMap<Key, Params> = request.send.iter().cloned().collect();
                assert!(request.forget.is_empty());
                if !keeps {
                    return Some((0, all));
                }
                self.next_id += 1;
                self.session = Some((self.next_id, 1, all.clone()));
                return Some((self.next_id, all));
            }
            let (id, epoch, known) = self.session.as_mut()?;
            if (*id, *epoch) != (request.id, request.epoch) {
                return None;
            }
            *epoch += 1;
            for (key, params) in &request.send {
                known.insert(key.clone(), *params);
            }
            for key in &request.forget {
                assert!(known.remove(key).is_some(), "forgets what was never asked for: {key:?}");
            }
            Some((*id, known.clone()))
        }
    }

    fn key(n: u8) -> Key {
        Key { topic: format!("t{}", n % 3).into(), topic_id: None, partition: i32::from(n / 3) }
    }

    #[derive(Clone, Debug)]
    enum Fate {
        Answered,
        AnswerLost,
        RequestLost,
        Evicted,
        NoSessionKept,
    }

    fn rounds() -> impl Strategy<Value = Vec<(BTreeMap<u8, i64>, Fate)>> {
        let fate = prop_oneof![
            6 => Just(Fate::Answered),
            1 => Just(Fate::AnswerLost),
            1 => Just(Fate::RequestLost),
            1 => Just(Fate::Evicted),
            1 => Just(Fate::NoSessionKept),
        ];
        let wanted = proptest::collection::btree_map(0u8..9, 0i64..4, 0..9);
        proptest::collection::vec((wanted, fate), 1..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_broker_always_looks_at_exactly_what_is_wanted(rounds in rounds()) {
            let (mut session, mut broker) = (Session::default(), Broker::default());
            for (wanted, fate) in rounds {
                let params = |offset| Params { offset, leader_epoch: 0, last_epoch: -1, max_bytes: 1 };
                let wanted: BTreeMap<Key, Params> =
                    wanted.into_iter().map(|(n, offset)| (key(n), params(offset))).collect();
                let request = session.next(wanted.clone());
                prop_assert!(request.send.is_sorted_by(|a, b| a.0 < b.0));
                match fate {
                    Fate::RequestLost => session.reset(),
                    Fate::Evicted => {
                        broker.session = None;
                        match broker.serve(&request, true) {
                            Some((id, looked_at)) => {
                                prop_assert_eq!(looked_at, wanted);
                                session.answered(id);
                            }
                            None => session.reset(),
                        }
                    }
                    _ => {
                        let served = broker.serve(&request, !matches!(fate, Fate::NoSessionKept));
                        let (id, looked_at) = served.expect("no session error without a cause");
                        prop_assert_eq!(looked_at, wanted);
                        if matches!(fate, Fate::AnswerLost) {
                            session.reset();
                        } else {
                            session.answered(id);
                        }
                    }
                }
            }
        }
    }
}
