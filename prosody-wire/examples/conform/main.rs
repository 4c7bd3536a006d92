//! Our own Kafka layer as an agent of the conformance suite: a JSON line in asks for one operation, a JSON line out says
//! what came of it. `conformance/README.md` lists the operations; agents in other languages speak the same lines.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a program of its own: it owns its runtime and its clock"
)]

mod answer;
mod member;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Instant};
use prosody_wire::batch::Compression;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, StartAt};
use prosody_wire::group::CommittedOffset;
use prosody_wire::produce::{OutgoingRecord, Partitioner, Producer, ProducerConfig};
use prosody_wire::{
    Client, ClientConfig, IsolationLevel, Limits, NewTopic, OffsetAt, TcpConnector, TopicPartition,
};
use serde_json::{Value, json};

use answer::{Answer, Ask, Problem, record};
use member::Member;

/// For operations that name no other bound.
const PATIENCE: Duration = Duration::from_secs(15);

// Members work on the other thread while this one waits for a line.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bootstrap = std::env::args().nth(1).ok_or("usage: conform HOST:PORT[,...]")?;
    let mut config = ClientConfig::new(bootstrap.split(','));
    // Topics come and go by the second here.
    config.limits = Limits { metadata_age: Duration::from_secs(1), ..Limits::default() };
    let doors = Doors::process()?;
    let client = Client::new(config.clone(), Arc::new(TcpConnector), doors.clone())?;
    let mut agent = Agent { config, doors, client, members: HashMap::new() };
    for line in std::io::stdin().lock().lines() {
        let ask: Value = serde_json::from_str(&line?)?;
        let answer = match agent.run(&Ask(&ask)).await {
            Ok(value) => json!({ "ok": value }),
            Err(Problem::Failed { code, text }) => json!({"error": {"code": code, "text": text}}),
            Err(Problem::Lacks(what)) => json!({ "lacks": what }),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

struct Agent {
    config: ClientConfig,
    doors: Doors,
    client: Client,
    members: HashMap<String, Member>,
}

fn deadline(within: Duration) -> Instant {
    Instant::now() + within
}

impl Agent {
    async fn run(&mut self, ask: &Ask<'_>) -> Answer {
        let admin = self.client.admin();
        let by = deadline(ask.millis("ms").unwrap_or(PATIENCE));
        match ask.text("op")? {
            "create" => {
                let mut topic = NewTopic::new(ask.text("topic")?);
                topic.partitions = ask.number("partitions").map(|count| count as i32);
                topic.replication = ask.number("replication").map(|count| count as i16);
                topic.configs = ask.pairs("configs");
                admin.create_topic(&topic, by).await?;
            }
            "delete" => admin.delete_topic(ask.text("topic")?, by).await?,
            "grow" => admin.create_partitions(ask.text("topic")?, ask.whole("total")? as i32, by).await?,
            "configs" => {
                let entries = admin.describe_topic(ask.text("topic")?, by).await?;
                return Ok(entries.into_iter().map(|entry| (entry.name, json!(entry.value))).collect());
            }
            "alter" => {
                let change = [(ask.text("name")?, Some(ask.text("value")?))];
                admin.alter_topic(ask.text("topic")?, &change, by).await?;
            }
            "trim" => {
                let (topic, partition) = (ask.text("topic")?, ask.whole("partition")? as i32);
                return Ok(json!(admin.delete_records(topic, partition, ask.whole("offset")?, by).await?));
            }
            "topics" => return Ok(json!(admin.list_topics(by).await?)),
            "partitions" => return Ok(json!(self.client.partition_count(ask.text("topic")?, by).await?)),
            "cluster" => {
                let found = admin.describe_cluster(by).await?;
                let brokers: Vec<i32> = found.brokers.keys().map(|id| id.0).collect();
                return Ok(json!({"brokers": brokers, "controller": found.controller.map(|id| id.0)}));
            }
            "groups" => {
                let found = admin.list_groups(by).await?;
                return Ok(found.into_iter().map(|group| json!(group.group_id)).collect());
            }
            "group" => {
                let found = admin.describe_group(ask.text("group")?, by).await?;
                let members = found.members.iter();
                let assigned = members.map(|member| member.partitions.len()).sum::<usize>();
                return Ok(
                    json!({"state": found.state, "members": found.members.len(), "partitions": assigned}),
                );
            }
            "drop_group" => admin.delete_group(ask.text("group")?, by).await?,
            "committed" => {
                let found = admin.group_offsets(ask.text("group")?, ask.text("topic")?, by).await?;
                let row = |(partition, at): (i32, CommittedOffset)| {
                    (partition.to_string(), json!({"offset": at.offset, "metadata": at.metadata}))
                };
                return Ok(found.into_iter().map(row).collect());
            }
            "set_offsets" => {
                let to = |(partition, offset): (&String, &Value)| {
                    let to = CommittedOffset {
                        offset: offset.as_i64()?,
                        leader_epoch: None,
                        metadata: String::new(),
                    };
                    Some((partition.parse().ok()?, to))
                };
                let offsets: BTreeMap<i32, CommittedOffset> = ask.object("offsets").filter_map(to).collect();
                admin.set_group_offsets(ask.text("group")?, ask.text("topic")?, &offsets, by).await?;
            }
            "offsets" => {
                let at = match ask.0.get("at") {
                    Some(Value::String(at)) if at == "earliest" => OffsetAt::Earliest,
                    Some(Value::Number(at)) => OffsetAt::Timestamp(at.as_i64().unwrap_or(0)),
                    _ => OffsetAt::Latest,
                };
                let found = admin.offsets(ask.text("topic")?, at, by).await?;
                return Ok(found.into_iter().map(|(at, offset)| (at.to_string(), json!(offset))).collect());
            }
            "produce" => return self.produce(ask).await,
            "read" => return self.read(ask).await,
            "join" => {
                // A client of its own, as another process would have.
                let client = Client::new(self.config.clone(), Arc::new(TcpConnector), self.doors.clone())?;
                let member = Member::join(&client, ask)?;
                self.members.insert(ask.text("member")?.to_owned(), member);
            }
            "poll" => {
                let wait = ask.millis("ms").unwrap_or_default();
                return self.member(ask)?.poll(wait, ask.flag("commit")).await;
            }
            "commit" => self.member(ask)?.commit(ask).await?,
            "leave" => {
                let member = self.members.remove(ask.text("member")?);
                member.ok_or_else(|| Problem::text("no such member"))?.leave(by).await;
            }
            other => return Err(Problem::Lacks(format!("no operation {other}"))),
        }
        Ok(Value::Null)
    }

    fn member(&mut self, ask: &Ask<'_>) -> Result<&mut Member, Problem> {
        self.members.get_mut(ask.text("member")?).ok_or_else(|| Problem::text("no such member"))
    }

    async fn produce(&self, ask: &Ask<'_>) -> Answer {
        if ask.0.get("transaction").is_some_and(|id| !id.is_null()) {
            return Err(Problem::Lacks("this client writes no transactions".to_owned()));
        }
        if ask.number("acks").is_some() {
            return Err(Problem::Lacks("this client always waits for all replicas".to_owned()));
        }
        let config = ProducerConfig {
            compression: match ask.text("compression").unwrap_or("none") {
                "gzip" => Compression::Gzip,
                "snappy" => Compression::Snappy,
                "lz4" => Compression::Lz4,
                "zstd" => Compression::Zstd,
                _ => Compression::None,
            },
            partitioner: match ask.text("partitioner") {
                Ok("murmur2") => Partitioner::Murmur2,
                _ => Partitioner::Crc32Consistent,
            },
            ..ProducerConfig::default()
        };
        let producer = Producer::new(&self.client, config);
        let (topic, by) = (ask.text("topic")?, deadline(ask.millis("ms").unwrap_or(PATIENCE)));
        let mut sending = Vec::new();
        for one in ask.list("records") {
            let one = Ask(one);
            let headers: Vec<(&[u8], Option<&[u8]>)> =
                one.list("headers").filter_map(answer::header).collect();
            let outgoing = OutgoingRecord {
                topic,
                partition: one.number("partition").map(|partition| partition as i32),
                key: one.text("key").ok().map(str::as_bytes),
                value: one.text("value").ok().map(str::as_bytes),
                headers: &headers,
                timestamp: one.number("timestamp"),
            };
            sending.push(producer.send(outgoing, Some(by)));
        }
        let mut written = Vec::new();
        for one in sending {
            let at = one.await.map_err(|failed| Problem::from(failed.error))?;
            written.push(json!({"partition": at.partition, "offset": at.offset, "timestamp": at.timestamp}));
        }
        producer.close(by).await?;
        Ok(json!(written))
    }

    async fn read(&self, ask: &Ask<'_>) -> Answer {
        let mut config = FetchConfig { isolation: IsolationLevel::ReadUncommitted, ..FetchConfig::default() };
        if ask.flag("committed") {
            config.isolation = IsolationLevel::ReadCommitted;
        }
        if let Some(bytes) = ask.number("max_bytes") {
            config.max_bytes = bytes as usize;
            config.max_partition_bytes = bytes as usize;
        }
        let tp = TopicPartition::new(ask.text("topic")?, ask.whole("partition")? as i32);
        let from = match ask.0.get("offset") {
            Some(Value::Number(at)) => StartAt::Offset { offset: at.as_i64().unwrap_or(0), leader_epoch: -1 },
            Some(Value::String(at)) if at == "latest" => StartAt::Latest,
            _ => StartAt::Earliest,
        };
        let (count, by) = (ask.whole("count")? as usize, deadline(ask.millis("ms").unwrap_or(PATIENCE)));
        let mut reader = Fetcher::new(&self.client, config).open(tp.clone(), from);
        let mut found = Vec::new();
        while found.len() < count {
            match tokio::time::timeout_at(by, reader.next()).await {
                Ok(FetchItem::Batch(batch)) => {
                    for one in batch.records() {
                        let one = one.map_err(|why| Problem::text(&why.to_string()))?;
                        found.push(record(&tp.topic, tp.partition, &one.to_record()));
                    }
                }
                Ok(FetchItem::Reset { .. }) => {}
                Ok(FetchItem::Failed(why)) => return Err(why.into()),
                Err(_) => break,
            }
        }
        Ok(json!(found))
    }
}
