//! A log that loses records which were read: its leader goes while the only other replica is behind, and that one leads
//! (`unclean.leader.election.enable`).

use std::process::Command;
use std::time::Duration;

use kafka_protocol::messages as m;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, PartitionReader, StartAt};
use prosody_wire::{Limits, NewTopic};

use crate::raw::{ask, text};
use crate::stage::{CLASSIC, PATIENCE, Stage, next, numbered, play, values};
use crate::wires::Wires;

/// The processes of the brokers, in the order of their addresses.
const PROCESSES: &str = "PROSODY_REAL_KAFKA_PROCESSES";
const METADATA: i16 = 12;
/// For answers of brokers, of which some are frozen.
const SHORT: Duration = Duration::from_secs(2);

/// A broker that stands still while this lives.
struct Frozen(String);

impl Frozen {
    fn freeze(process: &str) -> Frozen {
        signal("STOP", process);
        Frozen(process.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), process]).status().unwrap().success());
}

/// The partition as this broker sees it: the place of its leader among the addresses, those of the replicas that are in
/// sync, and those of all replicas.
async fn seen_by(stage: &Stage, at: usize) -> (Option<usize>, Vec<usize>, Vec<usize>) {
    let wanted = m::metadata_request::MetadataRequestTopic::default();
    let wanted = wanted.with_name(Some(m::TopicName(text(&stage.topic))));
    let request = m::MetadataRequest::default().with_topics(Some(vec![wanted]));
    let answer = ask(&stage.brokers[at], METADATA, &request).await;
    let place = |id: &m::BrokerId| {
        let broker = answer.brokers.iter().find(|broker| broker.node_id == *id)?;
        let address = format!("{}:{}", broker.host, broker.port);
        stage.brokers.iter().position(|one| *one == address)
    };
    let partition = &answer.topics[0].partitions[0];
    let places = |ids: &[m::BrokerId]| ids.iter().filter_map(place).collect();
    (place(&partition.leader_id), places(&partition.isr_nodes), places(&partition.replica_nodes))
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Reads one value after the other until these are read; then the epoch of the last batch.
async fn epoch_behind(reader: &mut PartitionReader, wanted: Vec<String>) -> i32 {
    let (mut seen, mut epoch) = (Vec::new(), -1);
    while seen.len() < wanted.len() {
        let FetchItem::Batch(batch) = next(reader).await else { panic!("not a batch") };
        epoch = batch.header().leader_epoch;
        let value = |record: prosody_wire::batch::RecordView<'_>| record.value().unwrap_or_default().to_vec();
        seen.extend(batch.records().map(|record| String::from_utf8(value(record.unwrap())).unwrap()));
    }
    assert_eq!(seen, wanted);
    epoch
}

/// Records were skipped in silence: others had taken the offsets of those that were lost, and reading went on behind them.
/// Here the epoch of what was read last says that the logs part ways; the reader says from where to where it went back, and
/// reads what is there now.
#[test]
fn a_log_that_was_truncated_is_read_again_from_where_it_parts() {
    let Ok(processes) = std::env::var(PROCESSES) else {
        return eprintln!("unclean: skipped, {PROCESSES} names no brokers that may be frozen");
    };
    let processes: Vec<String> = processes.split(',').map(str::to_owned).collect();
    let processes = &processes;
    play("unclean", 3, CLASSIC, |mut stage| async move {
        // Requests that a frozen broker has are given up soon.
        let limits = Limits { request_timeout: SHORT, ..Limits::default() };
        stage.client = stage.client_over(&Wires::new(), limits);
        let settings = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
        let mut topic = NewTopic::new(stage.topic.as_str()).partitions(1);
        topic.replication = Some(2);
        topic.configs = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        stage.client.admin().create_topic(&topic, stage.deadline()).await.unwrap();
        let from = |offset, leader_epoch| {
            let fetcher = Fetcher::new(&stage.client, FetchConfig::default());
            fetcher.open(stage.tp(0), StartAt::Offset { offset, leader_epoch })
        };
        let mut reader = from(0, -1);
        stage.fill(0, numbered(0..10)).await;
        assert_eq!(values(&mut reader, 10).await, numbered(0..10));

        let (Some(leader), _, replicas) = seen_by(&stage, 0).await else { panic!("no leader") };
        let behind = *replicas.iter().find(|one| **one != leader).expect("two replicas");
        let third = (0..3).find(|one| !replicas.contains(one)).expect("a third broker");
        let frozen = Frozen::freeze(&processes[behind]);
        until("the follower to be out of sync", async || seen_by(&stage, third).await.1 == [leader]).await;
        stage.fill(0, numbered(10..20)).await;
        let epoch = epoch_behind(&mut reader, numbered(10..20)).await;

        let leader_frozen = Frozen::freeze(&processes[leader]);
        drop(frozen);
        until("the follower to lead", async || seen_by(&stage, third).await.0 == Some(behind)).await;
        stage.fill(0, numbered(100..125)).await;
        // One that read on the whole time, and one that comes with an offset and its epoch, such as a commit.
        for mut one in [reader, from(20, epoch)] {
            match next(&mut one).await {
                FetchItem::Reset { from: 20, to: 10, why } => assert!(why.contains("truncated"), "{why}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(values(&mut one, 25).await, numbered(100..125));
        }
        drop(leader_frozen);
        until("all replicas to be in sync", async || seen_by(&stage, third).await.1.len() == 2).await;
    });
}

/// A commit named an epoch that its topic, which was created again since, has never reached: the broker refused the offset
/// for ever, although it lies within the log. Here the position is given up, once, and the log is read from its start.
#[test]
fn an_epoch_that_the_log_has_not_reached_is_no_dead_end() {
    play("unknown-epoch", 1, CLASSIC, |stage| async move {
        stage.create(1, &[]).await;
        stage.fill(0, numbered(0..50)).await;
        let fetcher = Fetcher::new(&stage.client, FetchConfig::default());
        let mut reader = fetcher.open(stage.tp(0), StartAt::Offset { offset: 30, leader_epoch: 7 });
        match next(&mut reader).await {
            FetchItem::Reset { from: 30, to: 0, why } => assert!(why.contains("epoch"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(values(&mut reader, 50).await, numbered(0..50));
    });
}
