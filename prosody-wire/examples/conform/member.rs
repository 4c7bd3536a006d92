//! A member of a group that does what its application should: it reads what it is assigned, hands over what it is asked
//! for, and keeps what it read until somebody polls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_base::Instant;
use prosody_wire::batch::Record;
use prosody_wire::fetch::{FetchConfig, FetchItem, Fetcher, StartAt};
use prosody_wire::group::{
    AssignedPartition, AssignmentEpoch, Assignor, CommitError, CommitOffset, Committer, Group, GroupConfig,
    GroupEvent, GroupProtocol, TopicPattern,
};
use prosody_wire::{Client, TopicPartition};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::answer::{Answer, Ask, Problem, record};

pub struct Member {
    shared: Arc<Shared>,
    committer: Committer,
    leave: oneshot::Sender<Instant>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    owned: BTreeMap<TopicPartition, (AssignmentEpoch, JoinHandle<()>)>,
    records: VecDeque<(TopicPartition, Record)>,
    failed: Option<Problem>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn give_up(&mut self, partitions: &[TopicPartition]) {
        for tp in partitions {
            if let Some((_, reader)) = self.owned.remove(tp) {
                reader.abort();
            }
        }
        self.records.retain(|(tp, _)| !partitions.contains(tp));
    }
}

impl Member {
    pub fn join(client: &Client, ask: &Ask<'_>) -> Result<Member, Problem> {
        let topics = ask.list("topics").filter_map(Value::as_str);
        let mut config = GroupConfig::new(ask.text("group")?, topics.map(Into::into));
        // The others of its group, or the strategy that is asked for, want the protocol in which members divide.
        config.protocol = match ask.text("protocol") {
            Ok("auto") => GroupProtocol::Auto,
            _ => GroupProtocol::Classic,
        };
        if let Ok(pattern) = ask.text("pattern") {
            config.patterns.push(TopicPattern::new(pattern)?);
        }
        config.assignors = match ask.text("strategy").unwrap_or("cooperative-sticky") {
            "range" => vec![Assignor::Range],
            "roundrobin" => vec![Assignor::RoundRobin],
            _ => vec![Assignor::CooperativeSticky],
        };
        config.instance_id = ask.text("instance").ok().map(str::to_owned);
        config.heartbeat_interval = Duration::from_millis(300);
        if let Some(session) = ask.millis("session_ms") {
            config.session_timeout = session;
        }
        let reset = if ask.text("reset").unwrap_or("earliest") == "latest" {
            StartAt::Latest
        } else {
            StartAt::Earliest
        };
        let group = Group::join(client, config);
        let (committer, shared) = (group.committer(), Arc::new(Shared::default()));
        let (leave, leaving) = oneshot::channel();
        let fetcher = Fetcher::new(client, FetchConfig::default());
        let task = tokio::spawn(follow(group, fetcher, reset, Arc::clone(&shared), leaving));
        Ok(Member { shared, committer, leave, task })
    }

    /// What was read since the last poll, as soon as there is something, and what is owned now.
    pub async fn poll(&mut self, wait: Duration, commit: bool) -> Answer {
        let by = Instant::now() + wait;
        loop {
            let news = self.shared.news.notified();
            if let Some(problem) = self.shared.state().failed.take() {
                return Err(problem);
            }
            if !self.shared.state().records.is_empty() || tokio::time::timeout_at(by, news).await.is_err() {
                break;
            }
        }
        let (mut records, orders, owned) = {
            let mut state = self.shared.state();
            let records: Vec<(TopicPartition, Record)> = state.records.drain(..).collect();
            let mut orders: BTreeMap<AssignmentEpoch, BTreeMap<TopicPartition, i64>> = BTreeMap::new();
            for (tp, record) in records.iter().filter(|_| commit) {
                if let Some((epoch, _)) = state.owned.get(tp) {
                    orders.entry(*epoch).or_default().insert(tp.clone(), record.offset() + 1);
                }
            }
            (
                records,
                orders,
                state.owned.keys().map(|tp| json!([*tp.topic, tp.partition])).collect::<Vec<_>>(),
            )
        };
        for (epoch, offsets) in orders {
            let offsets = offsets.into_iter().map(|(tp, offset)| at(tp, offset, String::new()));
            match self.committer.commit(epoch, offsets.collect()).await {
                // Taken away meanwhile: the records are for the next owner.
                Err(CommitError::NotOwned(partitions)) => records.retain(|(tp, _)| !partitions.contains(tp)),
                done => done?,
            }
        }
        let records = records.iter().map(|(tp, one)| record(&tp.topic, tp.partition, one));
        Ok(json!({"records": records.collect::<Vec<_>>(), "assigned": owned}))
    }

    pub async fn commit(&mut self, ask: &Ask<'_>) -> Result<(), Problem> {
        let mut orders: BTreeMap<AssignmentEpoch, Vec<CommitOffset>> = BTreeMap::new();
        for one in ask.list("offsets") {
            let one = Ask(one);
            let tp = TopicPartition::new(one.text("topic")?, one.whole("partition")? as i32);
            let epoch = self.shared.state().owned.get(&tp).map(|(epoch, _)| *epoch);
            let epoch = epoch.ok_or_else(|| Problem::text("not assigned"))?;
            let metadata = one.text("metadata").unwrap_or_default().to_owned();
            orders.entry(epoch).or_default().push(at(tp, one.whole("offset")?, metadata));
        }
        for (epoch, offsets) in orders {
            self.committer.commit(epoch, offsets).await?;
        }
        Ok(())
    }

    pub async fn leave(self, by: Instant) {
        let _ = self.leave.send(by);
        let _ = self.task.await;
    }
}

fn at(tp: TopicPartition, offset: i64, metadata: String) -> CommitOffset {
    CommitOffset { tp, offset, leader_epoch: None, metadata }
}

async fn follow(
    mut group: Group,
    fetcher: Fetcher,
    reset: StartAt,
    shared: Arc<Shared>,
    mut leaving: oneshot::Receiver<Instant>,
) {
    loop {
        let event = tokio::select! {
            biased;
            by = &mut leaving => {
                let everything: Vec<TopicPartition> = shared.state().owned.keys().cloned().collect();
                shared.state().give_up(&everything);
                if let Ok(by) = by {
                    group.leave(by).await;
                }
                return;
            }
            event = group.event() => event,
        };
        match event {
            GroupEvent::Assigned { epoch, partitions } => {
                for one in partitions {
                    let tp = one.tp.clone();
                    let reader = tokio::spawn(read(fetcher.clone(), one, reset, Arc::clone(&shared)));
                    shared.state().owned.insert(tp, (epoch, reader));
                }
            }
            GroupEvent::Revoke { partitions, done, .. } => {
                shared.state().give_up(&partitions);
                done.done();
            }
            GroupEvent::Lost { partitions, .. } => shared.state().give_up(&partitions),
            GroupEvent::Failed(why) => shared.state().failed = Some(why.into()),
        }
        shared.news.notify_one();
    }
}

async fn read(fetcher: Fetcher, one: AssignedPartition, reset: StartAt, shared: Arc<Shared>) {
    let from = one.committed.map_or(reset, |at| StartAt::Offset {
        offset: at.offset,
        leader_epoch: at.leader_epoch.unwrap_or(-1),
    });
    let mut reader = fetcher.open(one.tp.clone(), from);
    loop {
        match reader.next().await {
            FetchItem::Batch(batch) => {
                let records = batch.records().map_while(Result::ok).map(|record| record.to_record());
                let rows = records.map(|record| (one.tp.clone(), record));
                shared.state().records.extend(rows);
            }
            FetchItem::Reset { .. } => {}
            FetchItem::Failed(why) => shared.state().failed = Some(why.into()),
        }
        shared.news.notify_one();
    }
}
