//! A scripted peer for this crate's unit tests: what the testkit broker is too well-behaved for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, MetadataResponse};
use kafka_protocol::messages::{BrokerId as MessageBrokerId, metadata_response as mr};
use kafka_protocol::protocol::Encodable;
use prosody_base::{Network, PipeStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::proto::{text, topic_name, versions};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    pub(crate) body: Bytes,
}

impl Asked {
    /// The answer's frame around a body.
    pub(crate) fn answer(&self, body: &[u8]) -> Bytes {
        let tagged = usize::from(self.api.response_header_version(self.version) >= 1);
        let mut frame = BytesMut::new();
        frame.put_i32(i32::try_from(4 + tagged + body.len()).expect("short"));
        frame.put_i32(self.correlation);
        frame.put_bytes(0, tagged);
        frame.put_slice(body);
        frame.freeze()
    }

    /// The answer's frame around a message.
    pub(crate) fn message<M: Encodable>(&self, message: &M) -> Bytes {
        let mut body = Vec::new();
        message.encode(&mut body, self.version).expect("encodes");
        self.answer(&body)
    }
}

/// Reads one request; `None` when the client closed.
pub(crate) async fn request(stream: &mut PipeStream) -> Option<Asked> {
    let length = stream.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(length).expect("positive")];
    stream.read_exact(&mut frame).await.ok()?;
    let mut frame = Bytes::from(frame);
    let api = ApiKey::try_from(frame.get_i16()).expect("an API");
    let version = frame.get_i16();
    let correlation = frame.get_i32();
    let client = usize::try_from(frame.get_i16()).expect("a client id");
    frame.advance(client);
    if api.request_header_version(version) >= 2 {
        assert_eq!(frame.get_u8(), 0, "no tagged fields");
    }
    Some(Asked { api, version, correlation, body: frame })
}

/// An ApiVersions answer that offers all this client speaks.
pub(crate) fn offers_everything(asked: &Asked) -> Bytes {
    offers(asked, versions::SPOKEN)
}

/// An ApiVersions answer that offers these.
pub(crate) fn offers(asked: &Asked, rows: &[(ApiKey, i16, i16)]) -> Bytes {
    let flexible = asked.version >= 3;
    let mut body = BytesMut::new();
    body.put_i16(0);
    if flexible {
        body.put_u8(u8::try_from(rows.len() + 1).expect("few"));
    } else {
        body.put_i32(i32::try_from(rows.len()).expect("few"));
    }
    for (api, low, high) in rows {
        body.put_i16(*api as i16);
        body.put_i16(*low);
        body.put_i16(*high);
        body.put_bytes(0, usize::from(flexible));
    }
    if asked.version >= 1 {
        body.put_i32(0);
    }
    body.put_bytes(0, usize::from(flexible));
    asked.answer(&body)
}

/// Reads ApiVersions and answers it.
pub(crate) async fn greet(stream: &mut PipeStream) {
    let asked = request(stream).await.expect("ApiVersions");
    assert_eq!(asked.api, ApiKey::ApiVersions);
    stream.write_all(&offers_everything(&asked)).await.expect("open");
}

/// What a scripted broker does with a request.
pub(crate) enum Reaction {
    Answer(Bytes),
    Silence,
}

/// A broker that answers by a function, and counts.
pub(crate) struct Scripted {
    pub(crate) connections: AtomicUsize,
    pub(crate) asked: Mutex<Vec<Asked>>,
}

impl Scripted {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How often an API was asked.
    pub(crate) fn count(&self, api: ApiKey) -> usize {
        self.asked.lock().expect("whole").iter().filter(|asked| asked.api == api).count()
    }
}

/// Serves `address`. ApiVersions is answered here, everything else by `react`.
pub(crate) fn serve(
    network: &Network,
    address: &str,
    react: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) -> (Arc<Scripted>, tokio::task::JoinHandle<()>) {
    let mut listener = network.listen(address).expect("a free address");
    let scripted = Arc::new(Scripted { connections: AtomicUsize::new(0), asked: Mutex::default() });
    let (mine, react) = (Arc::clone(&scripted), Arc::new(react));
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok(mut stream) = listener.accept().await {
            mine.connections.fetch_add(1, Ordering::SeqCst);
            let (mine, react) = (Arc::clone(&mine), Arc::clone(&react));
            connections.spawn(async move {
                while let Some(asked) = request(&mut stream).await {
                    mine.asked.lock().expect("whole").push(asked.clone());
                    let reaction = match asked.api {
                        ApiKey::ApiVersions => Reaction::Answer(offers_everything(&asked)),
                        _ => react(&asked),
                    };
                    match reaction {
                        Reaction::Answer(frame) => stream.write_all(&frame).await.expect("open"),
                        Reaction::Silence => {}
                    }
                }
            });
        }
    });
    (scripted, task)
}

/// A topic for a Metadata answer: its id and each partition's leader and epoch.
pub(crate) fn topic(name: &str, id: u8, partitions: &[(i32, i32)]) -> mr::MetadataResponseTopic {
    let rows = partitions.iter().zip(0..).map(|((leader, epoch), partition)| {
        mr::MetadataResponsePartition::default()
            .with_partition_index(partition)
            .with_leader_id(MessageBrokerId(*leader))
            .with_leader_epoch(*epoch)
    });
    let mut topic = mr::MetadataResponseTopic::default()
        .with_name(Some(topic_name(name)))
        .with_partitions(rows.collect());
    topic.topic_id = "00000000-0000-0000-0000-000000000000".parse().expect("an id");
    if id != 0 {
        topic.topic_id = format!("00000000-0000-0000-0000-0000000000{id:02x}").parse().expect("an id");
    }
    topic
}

/// A Metadata answer.
pub(crate) fn metadata(
    brokers: &[(i32, &str, i32)],
    topics: Vec<mr::MetadataResponseTopic>,
) -> MetadataResponse {
    let brokers = brokers.iter().map(|(id, host, port)| {
        mr::MetadataResponseBroker::default()
            .with_node_id(MessageBrokerId(*id))
            .with_host(text(host))
            .with_port(*port)
    });
    MetadataResponse::default().with_brokers(brokers.collect()).with_topics(topics)
}
