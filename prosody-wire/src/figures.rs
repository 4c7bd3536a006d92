//! What has gone on between us and each broker? Figures that the connections count and anybody may read without a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prosody_base::{Counter, Distribution, Histogram};

use crate::proto::ApiKey;

/// What happened between this client and one address, over all its connections; see
/// [`Client::brokers`](crate::Client::brokers).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerFigures {
    /// `host:port` as it was dialed.
    pub address: String,
    /// Connections that are open.
    pub connections: usize,
    /// Requests that are written and not answered.
    pub in_flight: usize,
    /// From the writing of a Produce request to its answer.
    pub produce: Distribution,
    /// From the writing of a Fetch request to its answer: where nothing is to be had, the broker holds it back.
    pub fetch: Distribution,
    /// From the writing of any other request to its answer. Joining a group takes as long as its members do.
    pub other: Distribution,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of answers.
    pub received_bytes: u64,
    /// How long brokers asked us to write nothing (quotas, KIP-219).
    pub throttled: Duration,
    /// Connections that were opened.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
}

/// The live figures of one address. One thread counts, the io lane's.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    produce: Histogram<1>,
    fetch: Histogram<1>,
    other: Histogram<1>,
    pub(crate) sent_bytes: Counter<1>,
    pub(crate) received_bytes: Counter<1>,
    throttled_ms: Counter<1>,
    pub(crate) connects: Counter<1>,
    pub(crate) failed_connects: Counter<1>,
}

impl Figures {
    pub(crate) fn answered(&self, api: ApiKey, took: Duration) {
        match api {
            ApiKey::Produce => &self.produce,
            ApiKey::Fetch => &self.fetch,
            _ => &self.other,
        }
        .record(took);
    }

    pub(crate) fn throttled(&self, duration: Duration) {
        self.throttled_ms.add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }

    fn read(&self, address: String, connections: usize, in_flight: usize) -> BrokerFigures {
        BrokerFigures {
            address,
            connections,
            in_flight,
            produce: self.produce.read(),
            fetch: self.fetch.read(),
            other: self.other.read(),
            sent_bytes: self.sent_bytes.get(),
            received_bytes: self.received_bytes.get(),
            throttled: Duration::from_millis(self.throttled_ms.get()),
            connects: self.connects.get(),
            failed_connects: self.failed_connects.get(),
        }
    }
}

/// All addresses that were ever dialed, up to a bound.
#[derive(Debug)]
pub(crate) struct Book {
    known: Mutex<BTreeMap<String, Arc<Figures>>>,
    most: usize,
}

impl Book {
    /// Addresses beyond the first `most` are counted as one, under the name `others`.
    pub(crate) fn new(most: usize) -> Book {
        Book { known: Mutex::default(), most }
    }

    pub(crate) fn of(&self, (host, port): &(Arc<str>, u16)) -> Arc<Figures> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{host}:{port}");
        let name =
            if known.len() < self.most || known.contains_key(&name) { name } else { "others".to_owned() };
        Arc::clone(known.entry(name).or_default())
    }

    /// `open` counts the connections and the requests in flight of those who count in these figures.
    pub(crate) fn read(&self, open: impl Fn(&Arc<Figures>) -> (usize, usize)) -> Vec<BrokerFigures> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let figures = known.into_iter().map(|(address, figures)| {
            let (connections, in_flight) = open(&figures);
            figures.read(address, connections, in_flight)
        });
        figures.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beyond_the_bound_are_counted_together() {
        let book = Book::new(2);
        for port in 1..=9 {
            book.of(&(Arc::from("host"), port)).connects.one();
        }
        let read: Vec<(String, u64)> =
            book.read(|_| (0, 0)).into_iter().map(|broker| (broker.address, broker.connects)).collect();
        let expected = [("host:1", 1), ("host:2", 1), ("others", 7)];
        assert_eq!(read, expected.map(|(address, connects)| (address.to_owned(), connects)));
    }
}
