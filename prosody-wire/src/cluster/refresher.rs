//! When is metadata asked for again, and by whom? By one task; everyone else only says that they would like it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use prosody_base::{Instant, watch};
use tokio::sync::Notify;

use super::Inner;
use crate::error::{Error, ErrorKind};
use crate::group::TopicPattern;
use crate::group::pattern::any_matches;
use crate::proto::messages::MetadataRequest;
use crate::proto::messages::metadata_request::MetadataRequestTopic;
use crate::proto::{ApiKey, ErrorCode, topic_name, topic_of};
use crate::types::{Topic, TopicId};

/// Age at which metadata is refreshed while a topic that is kept fresh is missing: it may just have been created.
const MISSING_AGE: Duration = Duration::from_secs(1);

/// When the next refresh is due. Pure.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    asked: bool,
    /// No refresh before this.
    not_before: Option<Instant>,
    /// The age limit of what is known.
    stale_at: Option<Instant>,
    /// Refreshes in a row that somebody asked for and that changed nothing.
    streak: u32,
}

impl Pacing {
    pub(super) fn ask(&mut self, now: Instant, quiet: Duration) {
        // After a quiet time the first request is answered at once, however long the last series was.
        if self.not_before.is_some_and(|at| now > at + quiet) {
            self.streak = 0;
        }
        self.asked = true;
    }

    /// When to refresh; `None` while nothing calls for it.
    pub(super) fn due(&self) -> Option<Instant> {
        match (self.asked, self.not_before, self.stale_at) {
            (true, Some(at), _) => Some(at),
            (true, None, _) => None,
            (false, _, stale) => stale,
        }
    }

    /// Whether a refresh is due now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        if self.asked {
            self.not_before.is_none_or(|at| now >= at)
        } else {
            self.stale_at.is_some_and(|at| now >= at)
        }
    }

    pub(super) fn started(&mut self) {
        self.asked = false;
    }

    /// A refresh ended. `wait` computes the pause for a streak.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        news: bool,
        failed: bool,
        age: Duration,
        wait: impl FnOnce(u32) -> Duration,
    ) {
        self.streak = if news { 0 } else { self.streak.saturating_add(1) };
        self.not_before = Some(now + wait(self.streak));
        self.stale_at = Some(now + age);
        self.asked |= failed;
    }
}

/// What callers and the task share.
#[derive(Debug)]
pub(super) struct Refresher {
    state: Mutex<State>,
    bell: Arc<Notify>,
    status: watch::Sender<Status>,
}

#[derive(Debug, Default)]
struct State {
    pacing: Pacing,
    /// Counts requests; a refresh covers those made before it started.
    asked: u64,
    /// Topics kept fresh.
    tracked: BTreeSet<Topic>,
    /// Topics asked for by id in the next request only.
    ids: BTreeSet<TopicId>,
    /// While one of these lives, all topics are asked for, and those that match are kept.
    followed: Vec<Weak<[TopicPattern]>>,
    /// Topics somebody waits for, with the number of those who do.
    wanted: std::collections::BTreeMap<Topic, usize>,
}

/// How far the task has come.
#[derive(Clone, Debug, Default)]
struct Status {
    /// Requests up to this number are answered.
    covered: u64,
    /// Requests up to this number met a refusal for good, which is in `error`.
    refused: u64,
    /// How the last refresh failed.
    error: Option<Error>,
    /// The client was closed: there will be no other refresh.
    closed: bool,
}

impl Refresher {
    pub(super) fn new() -> Refresher {
        let (status, _) = watch::channel(Status::default());
        Refresher { state: Mutex::default(), bell: Arc::new(Notify::new()), status }
    }

    /// Asks for a refresh that starts after now. Returns the number to wait for.
    pub(super) fn ask(&self, now: Instant, quiet: Duration) -> u64 {
        let mut state = self.state();
        state.asked += 1;
        state.pacing.ask(now, quiet);
        self.bell.notify_one();
        state.asked
    }

    /// Keeps topics fresh from now on. `true` when one of them is new.
    pub(super) fn track(&self, topics: &[Topic]) -> bool {
        let mut state = self.state();
        topics.iter().fold(false, |news, topic| state.tracked.insert(topic.clone()) | news)
    }

    /// Keeps topics that match, as long as the patterns live.
    pub(super) fn follow(&self, patterns: &Arc<[TopicPattern]>) {
        let mut state = self.state();
        let new = Arc::downgrade(patterns);
        state.followed.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&new));
        state.followed.push(new);
    }

    /// Asks for topics by id, once.
    pub(super) fn identify(&self, ids: Vec<TopicId>) {
        self.state().ids.extend(ids);
    }

    /// Asks for a topic while the returned value lives.
    pub(super) fn want(&self, topic: Topic) -> Want<'_> {
        *self.state().wanted.entry(topic.clone()).or_default() += 1;
        Want { refresher: self, topic }
    }

    /// Waits until a refresh that started after `number` was handed out has ended well, or with a refusal for good: waiting
    /// on would only hide a wrong password or certificate until the deadline.
    pub(super) async fn covers(&self, number: u64) -> Result<(), Error> {
        let mut status = self.status.subscribe();
        let ended = |status: &Status| status.covered.max(status.refused) >= number || status.closed;
        let status = status.wait_for(ended).await;
        let closed = || Error::new("refreshing metadata", ErrorKind::Closed("this client was closed"));
        match status {
            Ok(status) if status.covered >= number => Ok(()),
            Ok(status) if !status.closed => Err(status.error.clone().unwrap_or_else(closed)),
            _ => Err(closed()),
        }
    }

    /// How the last refresh failed.
    pub(super) fn last_error(&self) -> Option<Error> {
        self.status.borrow().error.clone()
    }

    /// Fails everyone who waits, now and later.
    pub(super) fn close(&self) {
        self.status.send_modify(|status| status.closed = true);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Someone waits for a topic.
#[derive(Debug)]
pub(super) struct Want<'a> {
    refresher: &'a Refresher,
    topic: Topic,
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        let mut state = self.refresher.state();
        if let Some(count) = state.wanted.get_mut(&self.topic) {
            *count -= 1;
            if *count == 0 {
                state.wanted.remove(&self.topic);
            }
        }
    }
}

/// The task. Holds the cluster only while it works, so that dropping the last client ends it.
pub(super) async fn run(cluster: Weak<Inner>) {
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        let bell = Arc::clone(&inner.refresher.bell);
        let clock = inner.doors.clock.clone();
        let (is_due, due) = {
            let mut state = inner.refresher.state();
            let is_due = state.pacing.is_due(clock.now());
            if is_due {
                state.pacing.started();
            }
            (is_due, state.pacing.due())
        };
        if is_due {
            refresh(&inner).await;
            continue;
        }
        drop(inner);
        match due {
            Some(at) => {
                let _ = clock.until(at, bell.notified()).await;
            }
            None => bell.notified().await,
        }
    }
}

async fn refresh(inner: &Arc<Inner>) {
    let (covers, question) = {
        let mut state = inner.refresher.state();
        let topics = state.tracked.iter().chain(state.wanted.keys()).cloned().collect();
        let ids = std::mem::take(&mut state.ids);
        let patterns = state.followed.iter().filter_map(Weak::upgrade).collect();
        (state.asked, Question { topics, ids, patterns })
    };
    let result = ask_brokers(inner, &question).await;
    let limits = &inner.config.limits;
    let now = inner.doors.clock.now();
    {
        let wait = |streak| inner.doors.rng.backoff(limits.refresh_gap, limits.backoff_max, streak);
        let news = *result.as_ref().unwrap_or(&false);
        let mut state = inner.refresher.state();
        // A broker that lags behind does not know a topic that was just created.
        let is_missing = {
            let known = inner.metadata.borrow();
            state.tracked.iter().any(|topic| known.failed.contains_key(topic))
        };
        let age = if is_missing { limits.metadata_age.min(MISSING_AGE) } else { limits.metadata_age };
        state.pacing.ended(now, news, result.is_err(), age, wait);
    }
    if let Err(error) = &result {
        // A broker that cannot be reached was told of by the dial.
        if error.maybe_sent() {
            tracing::warn!(%error, "metadata could not be refreshed; trying again");
        } else {
            tracing::debug!(%error, "metadata could not be refreshed; trying again");
        }
    }
    inner.refresher.status.send_modify(|status| {
        match &result {
            Ok(_) => status.covered = covers,
            Err(error) if error.is_refusal() => status.refused = covers,
            Err(_) => {}
        }
        status.error = result.err();
    });
}

/// What one request asks for.
struct Question {
    topics: BTreeSet<Topic>,
    ids: BTreeSet<TopicId>,
    patterns: Vec<Arc<[TopicPattern]>>,
}

/// Versions 10 and 11 have the field, but must not be asked by id.
const VERSION_WITH_IDS: i16 = 12;

/// One Metadata request to any broker. `true` when it brought news.
async fn ask_brokers(inner: &Arc<Inner>, question: &Question) -> Result<bool, Error> {
    let connection = inner.any().await?;
    let version = connection.require(ApiKey::Metadata)?;
    let all = !question.patterns.is_empty();
    let names = question
        .topics
        .iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))));
    let ids = question.ids.iter().filter(|_| version >= VERSION_WITH_IDS);
    let ids = ids.map(|id| {
        MetadataRequestTopic::default().with_topic_id(uuid::Uuid::from_bytes(id.0)).with_name(None)
    });
    let request = MetadataRequest::default()
        .with_topics((!all).then(|| names.chain(ids).collect()))
        .with_allow_auto_topic_creation(false);
    let mut answer = connection.call_version(&request, version, inner.config.limits.request_timeout).await?;
    if let Err(code) = ErrorCode::check(answer.error_code) {
        let doing = format!("asking {} for metadata", connection.peer());
        connection.close("it does not answer for its cluster");
        if code == ErrorCode::REBOOTSTRAP_REQUIRED {
            inner.learn(|known| Ok(known.without_brokers()))?;
        }
        return Err(Error::broker(doing, code));
    }
    // A broker that is just starting may know nothing yet.
    let all = all && !answer.brokers.is_empty();
    let there: BTreeSet<Topic> =
        answer.topics.iter().filter_map(|topic| topic.name.as_ref()).map(topic_of).collect();
    let is_meant = |name: &str| {
        question.topics.contains(name) || question.patterns.iter().any(|patterns| any_matches(patterns, name))
    };
    inner.learn(|known| {
        if all {
            answer.topics.retain(|topic| {
                topic
                    .name
                    .as_ref()
                    .is_some_and(|name| known.topic(name).is_some() || (is_meant(name) && !topic.is_internal))
            });
        }
        let next = known
            .merge(&answer, inner.config.limits.brokers)
            .map_err(|cause| Error::decode(format!("Metadata from {}", connection.peer()), cause))?;
        Ok(if all { next.with_only(&there, &question.topics) } else { next })
    })
}
