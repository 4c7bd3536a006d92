//! Where does a user start? One client: its configuration, its cluster, and what is built on them.

use std::sync::Arc;

use prosody_base::{Doors, Instant};

use crate::admin::Admin;
use crate::cluster::Cluster;
use crate::error::{Error, ErrorKind};
use crate::figures::BrokerFigures;
use crate::limits::Limits;
use crate::net::Connector;
use crate::sasl::Sasl;
use crate::types::TopicId;

/// Kafka's port where an address names none.
const DEFAULT_PORT: u16 = 9092;

/// What a client needs to know before it starts.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of some brokers; the port defaults to 9092. At least one.
    pub seeds: Vec<String>,
    /// The name brokers log and count quotas by (`client.id`). Default "prosody".
    pub client_id: String,
    /// Who this client is to the brokers; `None`, the default, says nothing. Credentials go over whatever the connector
    /// opens: use a [`TlsConnector`](crate::TlsConnector) where others may listen.
    pub sasl: Option<Arc<Sasl>>,
    /// Every bound.
    pub limits: Limits,
}

impl ClientConfig {
    /// Defaults with these seeds.
    pub fn new(seeds: impl IntoIterator<Item = impl Into<String>>) -> ClientConfig {
        ClientConfig {
            seeds: seeds.into_iter().map(Into::into).collect(),
            client_id: "prosody".to_owned(),
            sasl: None,
            limits: Limits::default(),
        }
    }
}

/// A client of one Kafka cluster. Cheap to clone; connections close when the last clone, and the last thing made from
/// it, is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    cluster: Cluster,
}

impl Client {
    /// Checks the configuration. Never touches the network: the first use does.
    ///
    /// # Errors
    /// Only for the configuration: no seed, an address that is none, a client id Kafka cannot carry.
    pub fn new(config: ClientConfig, connector: Arc<dyn Connector>, doors: Doors) -> Result<Client, Error> {
        let wrong = |why: String| Error::new("configuring a client", ErrorKind::Config(why));
        if config.seeds.is_empty() {
            return Err(wrong("no bootstrap server is given".to_owned()));
        }
        if config.client_id.len() > 1_024 {
            return Err(wrong("the client id is longer than 1,024 bytes".to_owned()));
        }
        if let Some(why) = config.sasl.as_ref().and_then(|sasl| sasl.problem()) {
            return Err(wrong(why.to_owned()));
        }
        let seeds = config.seeds.iter().map(|seed| {
            address(seed).ok_or_else(|| wrong(format!("\"{seed}\" is not an address; expected host:port")))
        });
        let seeds = seeds.collect::<Result<Vec<_>, Error>>()?;
        Ok(Client { cluster: Cluster::new(config, seeds, connector, doors) })
    }

    /// Administrative calls.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(self.cluster.clone())
    }

    /// How many partitions a topic has: at once when that is known, else from the next answer of a broker.
    ///
    /// # Errors
    /// What the broker answered (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, …); at `deadline` why no broker
    /// could be asked.
    pub async fn partition_count(&self, topic: &str, deadline: Instant) -> Result<usize, Error> {
        Ok(self.cluster.topic(topic, deadline).await?.partitions.len())
    }

    /// A topic's id as far as it is known now; `None` also where brokers give none (before Kafka 2.8).
    #[must_use]
    pub fn topic_id(&self, topic: &str) -> Option<TopicId> {
        self.cluster.metadata().topic(topic)?.id
    }

    /// What happened between this client and each address it dialed. Nothing that counts waits for this.
    #[must_use]
    pub fn brokers(&self) -> Vec<BrokerFigures> {
        self.cluster.figures()
    }

    /// The cluster's id as far as it is known now; `None` also where brokers give none.
    #[must_use]
    pub fn cluster_id(&self) -> Option<String> {
        self.cluster.metadata().cluster_id.clone()
    }

    /// Ends every connection and task of this client. Open calls fail.
    pub fn close(&self) {
        self.cluster.close();
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// `host`, `host:port`, `[v6]:port`, each perhaps behind `SCHEME://`.
fn address(seed: &str) -> Option<(Arc<str>, u16)> {
    let seed = seed.trim();
    let seed = seed.split_once("://").map_or(seed, |(_, rest)| rest);
    let (host, port) = match seed.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some("9092"))?)
        }
        None => seed.split_once(':').unwrap_or((seed, "")),
    };
    let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().ok()? };
    let plain = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
    (plain && port != 0).then(|| (Arc::from(host), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text| address(text).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(read("kafka:9093").as_deref(), Some("kafka 9093"));
        assert_eq!(read(" kafka ").as_deref(), Some("kafka 9092"));
        assert_eq!(read("PLAINTEXT://kafka:1").as_deref(), Some("kafka 1"));
        assert_eq!(read("[::1]:9094").as_deref(), Some("::1 9094"));
        assert_eq!(read("[::1]").as_deref(), Some("::1 9092"));
        for wrong in ["", ":9092", "kafka:x", "kafka:70000", "kafka:0", "a b:1", "http://a/b", "[::1", "::1"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
