//! What does an application hold? A client that can subscribe one handler and send messages.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use prosody_base::{Doors, Lane, watch};
use prosody_state::KeyStore;
use prosody_wire::Connector;
use prosody_wire::produce::{OutgoingRecord, Producer};

use crate::config::{Checked, ConfigError, Mode, Options, Problem, check, read_environment, wrong_topic};
use crate::consumer::{Lasting, Subscription, subscribe};
use crate::error::{Error, ErrorKind};
use crate::handler::Handler;
use crate::insight::Insight;
use crate::insight::reading::{Reading, samples};
use crate::insight::status::PartitionStatus;
use crate::mock::Mock;
use crate::pipeline::dedup::Dedup;
use crate::pipeline::filter::SOURCE_SYSTEM;
use crate::telemetry::Telemetry;
use crate::trace::{self, SentHeaders, TraceContext, Tracer, Tracing};

/// Numbers the clients of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Longest wait for sends in flight when a client without a bound on sends is closed.
const CLOSE_TIME: Duration = Duration::from_secs(30);

/// What spans have at least to reach their collector when a client is closed, however long the rest took.
const LAST_SPANS: Duration = Duration::from_millis(500);

/// Where a client is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumerState {
    /// No group id or no topics: the client can only send.
    Unconfigured,
    /// Ready to subscribe.
    Configured,
    /// Subscribed.
    Running,
}

/// An acknowledged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The partition the key chose.
    pub partition: i32,
    /// The record's position in it.
    pub offset: i64,
}

/// A connection to a cluster: sends messages, and runs a handler over the subscribed topics. Cheap to clone; clones
/// share one subscription. Building one touches no network.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    lasting: Arc<Lasting>,
    producer: OnceLock<Producer>,
    current: Mutex<Option<Arc<Subscription>>>,
    /// One subscribe at a time.
    subscribing: tokio::sync::Mutex<()>,
    /// Changed by every unsubscribe, which also ends a subscribe that is under way.
    unsubscribed: watch::Sender<()>,
    closed: AtomicBool,
    mock: Option<Mock>,
}

impl Client {
    /// Starts a configuration.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Joins the group and runs `handler` for every message of the subscribed topics, until
    /// [`unsubscribe`](Client::unsubscribe). Returns once the topics are known to exist and the group is being joined.
    ///
    /// # Errors
    /// Missing topics and a broker's refusal at once; a cluster that cannot be reached after `SubscribeTimeout`;
    /// [`ErrorKind::Unsubscribed`] when the client is unsubscribed meanwhile. The client stays as it was and may try
    /// again.
    pub async fn subscribe<H: Handler>(&self, handler: H) -> Result<(), Error> {
        let mut unsubscribed = self.shared.unsubscribed.subscribe();
        let meanwhile = unsubscribed.clone();
        tokio::select! {
            biased;
            _ = unsubscribed.changed() => Err(self.unsubscribed_meanwhile()),
            result = self.subscribe_unless(handler, meanwhile) => result,
        }
    }

    async fn subscribe_unless<H: Handler>(
        &self,
        handler: H,
        unsubscribed: watch::Receiver<()>,
    ) -> Result<(), Error> {
        let _subscribing = self.shared.subscribing.lock().await;
        self.open()?;
        if self.current().is_some() {
            return Err(Error::new(
                ErrorKind::AlreadySubscribed,
                "subscribing: this client is subscribed already",
            ));
        }
        let lasting = Arc::clone(&self.shared.lasting);
        if let Some(mock) = &self.shared.mock {
            let topics = lasting.config.topics.iter().chain(&lasting.config.failure_topic);
            topics.for_each(|topic| mock.ensure_topic(topic));
        }
        // On our own threads, so that the caller may await this on any executor.
        let spawner = lasting.doors.spawner.clone();
        let subscribed =
            spawner.spawn(Lane::Io, async move { subscribe::subscribe(&lasting, handler).await }).await;
        let subscription = match subscribed {
            Ok(subscribed) => subscribed?,
            Err(died) => {
                return Err(Error::new(ErrorKind::Other, format!("subscribing: the task died: {died}")));
            }
        };
        let mut current = self.current();
        if unsubscribed.has_changed().unwrap_or(true) {
            drop(current);
            // Dropped, it ends gracefully.
            return Err(self.unsubscribed_meanwhile());
        }
        *current = Some(Arc::new(subscription));
        Ok(())
    }

    fn unsubscribed_meanwhile(&self) -> Error {
        self.open().err().unwrap_or_else(|| {
            Error::new(ErrorKind::Unsubscribed, "subscribing: the client was unsubscribed meanwhile")
        })
    }

    /// Stops the subscription: drains running handlers within `ShutdownTimeout`, commits, leaves the group. Does
    /// nothing when there is none; a [`subscribe`](Client::subscribe) that is under way fails. Goes on in the
    /// background when its caller does not wait for it.
    ///
    /// # Errors
    /// When the final commit failed; the subscription has ended all the same.
    pub async fn unsubscribe(&self) -> Result<(), Error> {
        let subscription = {
            // Under the lock, so that a subscribe either sees this or is seen.
            let current = self.current();
            self.shared.unsubscribed.send_replace(());
            current.clone()
        };
        let Some(subscription) = subscription else { return Ok(()) };
        let result = subscription.stop().await;
        let mut current = self.current();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &subscription)) {
            *current = None;
        }
        result
    }

    /// Sends one message, whose payload is JSON text. It is queued when this is called, so messages that one caller
    /// sends to one key keep their order; the result waits for all in-sync replicas, at most `SendTimeout`. Dropping
    /// the future does not take the message back.
    ///
    /// Its headers say where it was sent from in a distributed trace (`traceparent`, `tracestate` and `baggage`): the
    /// [current](TraceContext::current) context when this is called, or a span of its own when spans are exported.
    ///
    /// # Errors
    /// With [`Error::may_have_been_written`], which says whether the record can be in the log all the same.
    pub fn send(
        &self,
        topic: &str,
        key: &str,
        payload: &[u8],
    ) -> impl Future<Output = Result<Delivery, Error>> + Send + 'static {
        let lasting = Arc::clone(&self.shared.lasting);
        let name: Arc<str> = Arc::from(topic);
        let cause = TraceContext::current();
        let (trace, span) = lasting.tracing.sending(&name, Some(key.as_bytes()), cause);
        let sending = self.queue(topic, key, payload, trace.as_ref());
        let topic = name;
        let told = lasting.telemetry.clone().map(|telemetry| (telemetry, key.to_owned(), trace));
        async move {
            let delivered = match sending {
                Ok(sending) => {
                    let sent = sending.await;
                    sent.map_err(|why| Error::from_send(&format!("sending a message to topic {topic}"), &why))
                }
                Err(error) => Err(error),
            };
            match &delivered {
                Ok(delivery) => span.delivered(delivery.partition, delivery.offset),
                Err(why) => span.failed(why.code().unwrap_or("failed"), &why.to_string()),
            }
            let counters = &lasting.counters;
            if delivered.is_ok() { &counters.sent } else { &counters.failed_sends }.one();
            if let (Ok(delivery), Some((telemetry, key, trace))) = (&delivered, told) {
                telemetry.sent((topic, delivery.partition, delivery.offset), key, trace);
            }
            delivered.map(|delivery| Delivery { partition: delivery.partition, offset: delivery.offset })
        }
    }

    fn queue(
        &self,
        topic: &str,
        key: &str,
        payload: &[u8],
        trace: Option<&TraceContext>,
    ) -> Result<prosody_wire::produce::Sending, Error> {
        self.open()?;
        let lasting = &self.shared.lasting;
        if let Some(why) = wrong_topic(topic) {
            return Err(Error::new(ErrorKind::Invalid, format!("sending a message: {why}")));
        }
        if self.source_system().is_empty() {
            return Err(Error::new(
                ErrorKind::Unconfigured,
                "sending a message needs SourceSystem (PROSODY_SOURCE_SYSTEM) or GroupId (PROSODY_GROUP_ID): every \
                 message says where it comes from",
            ));
        }
        if let Some(mock) = &self.shared.mock {
            mock.ensure_topic(topic);
        }
        let sent = SentHeaders::of(trace);
        let source = (SOURCE_SYSTEM.as_bytes(), Some(self.source_system().as_bytes()));
        let mut headers = [source; 4];
        let mut count = 1;
        for (place, header) in headers.iter_mut().skip(1).zip(sent.each()) {
            *place = header;
            count += 1;
        }
        let record = OutgoingRecord {
            topic,
            partition: None,
            key: Some(key.as_bytes()),
            value: Some(payload),
            headers: headers.get(..count).unwrap_or_default(),
            timestamp: None,
        };
        let deadline = lasting.config.send_timeout.map(|timeout| lasting.doors.clock.now() + timeout);
        Ok(self.producer().send(record, deadline))
    }

    /// Where the client is in its life.
    #[must_use]
    pub fn state(&self) -> ConsumerState {
        let config = &self.shared.lasting.config;
        if self.current().is_some() {
            ConsumerState::Running
        } else if config.group_id.is_some() && config.has_topics() {
            ConsumerState::Configured
        } else {
            ConsumerState::Unconfigured
        }
    }

    /// Partitions this client owns now; 0 when it is not subscribed.
    #[must_use]
    pub fn assigned_partitions(&self) -> usize {
        self.current().as_ref().map_or(0, |subscription| subscription.assigned())
    }

    /// Follows which partitions this client owns, over all its subscriptions.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        Assignment(self.shared.lasting.names.subscribe())
    }

    /// What each partition that this client reads looks like now; empty when it is not subscribed.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        let current = self.current().clone();
        current.map(|subscription| subscription.partitions()).unwrap_or_default()
    }

    /// Whether a partition is [stalled](PartitionStatus::stalled): a handler runs for longer than `StallThreshold`, or
    /// there is unfinished work of which nothing finished for that long. An idle partition is not.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.partitions().iter().any(|partition| partition.stalled)
    }

    /// What the `source-system` header of sent messages says; empty when neither it nor a group id is set.
    #[must_use]
    pub fn source_system(&self) -> &str {
        &self.shared.lasting.config.source_system
    }

    /// How long [`unsubscribe`](Client::unsubscribe) may take to drain.
    #[must_use]
    pub fn shutdown_timeout(&self) -> Duration {
        self.shared.lasting.config.shutdown_timeout
    }

    /// How often things happened since the client was built.
    #[must_use]
    pub fn insight(&self) -> Insight {
        self.shared.lasting.counters.read()
    }

    /// All metrics of this client as they are now, for whoever exports them.
    #[must_use]
    pub fn metrics(&self) -> Reading {
        let (lasting, current) = (&self.shared.lasting, self.current().clone());
        let load = current.as_ref().map(|subscription| subscription.load()).unwrap_or_default();
        let partitions = current.map(|subscription| subscription.partitions()).unwrap_or_default();
        let group = lasting.config.group_id.as_deref().unwrap_or_default().to_owned();
        let samples = samples(&lasting.counters, load, &partitions, &lasting.wire.brokers());
        Reading { client: lasting.number, group, samples }
    }

    /// Unsubscribes, waits for sends in flight within their own timeouts, sends the spans that wait within
    /// `ShutdownTimeout`, and closes every connection. Later calls fail.
    ///
    /// # Errors
    /// As [`unsubscribe`](Client::unsubscribe), or when sends were given up; the client is closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        self.shared.closed.store(true, Ordering::Release);
        let lasting = &self.shared.lasting;
        let until = lasting.doors.clock.now() + lasting.config.shutdown_timeout;
        let unsubscribed = self.unsubscribe().await;
        let mut flushed = Ok(());
        if let Some(producer) = self.shared.producer.get() {
            let deadline = lasting.doors.clock.now() + lasting.config.send_timeout.unwrap_or(CLOSE_TIME);
            let closed = producer.close(deadline).await;
            flushed = closed.map_err(|why| Error::from_wire("closing a client", &why));
        }
        if let Some(tracer) = &lasting.tracing.tracer {
            tracer.flush(until.max(lasting.doors.clock.now() + LAST_SPANS)).await;
        }
        lasting.wire.close();
        unsubscribed.and(flushed)
    }

    fn open(&self) -> Result<(), Error> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "this client was closed"));
        }
        Ok(())
    }

    fn producer(&self) -> &Producer {
        self.shared.producer.get_or_init(|| {
            let lasting = &self.shared.lasting;
            Producer::new(&lasting.wire, lasting.config.producer())
        })
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Subscription>>> {
        self.shared.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the partitions of a client; see [`Client::assignment`].
#[derive(Clone, Debug)]
pub struct Assignment(watch::Receiver<Vec<(Arc<str>, i32)>>);

impl Assignment {
    /// Topic and number of each partition owned now, ascending.
    #[must_use]
    pub fn now(&mut self) -> Vec<(Arc<str>, i32)> {
        self.0.borrow_and_update().clone()
    }

    /// Waits until they are others than at the last call, and returns them. Changes in quick succession come as one.
    /// `None` once the client is gone.
    pub async fn changed(&mut self) -> Option<Vec<(Arc<str>, i32)>> {
        self.0.changed().await.ok()?;
        Some(self.now())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// Collects options and builds a [`Client`]. Later calls win over earlier ones.
#[derive(Clone, Default)]
pub struct ClientBuilder {
    options: Options,
    environment: Vec<(String, String)>,
    transport: Option<(Arc<dyn Connector>, Doors)>,
    store: Option<Arc<dyn KeyStore>>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Brokers to ask first, as `host:port`.
    #[must_use]
    pub fn bootstrap_servers(
        mut self,
        servers: impl IntoIterator<Item = impl Into<String>>,
    ) -> ClientBuilder {
        self.options.bootstrap_servers = Some(servers.into_iter().map(Into::into).collect());
        self
    }

    /// The consumer group.
    #[must_use]
    pub fn group_id(mut self, group: impl Into<String>) -> ClientBuilder {
        self.options.group_id = Some(group.into());
        self
    }

    /// Topics to consume.
    #[must_use]
    pub fn subscribed_topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> ClientBuilder {
        self.options.subscribed_topics = Some(topics.into_iter().map(Into::into).collect());
        self
    }

    /// Prefixes of event types to process; an empty list processes all.
    #[must_use]
    pub fn allowed_events(mut self, prefixes: impl IntoIterator<Item = impl Into<String>>) -> ClientBuilder {
        self.options.allowed_events = Some(prefixes.into_iter().map(Into::into).collect());
        self
    }

    /// What sent messages say about their origin.
    #[must_use]
    pub fn source_system(mut self, name: impl Into<String>) -> ClientBuilder {
        self.options.source_system = Some(name.into());
        self
    }

    /// What happens to an event whose handler fails.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> ClientBuilder {
        self.options.mode = Some(mode);
        self
    }

    /// Whether to use a broker inside this process.
    #[must_use]
    pub fn mock(mut self, mock: bool) -> ClientBuilder {
        self.options.mock = Some(mock);
        self
    }

    /// Handlers that run at once.
    #[must_use]
    pub fn max_concurrency(mut self, handlers: u32) -> ClientBuilder {
        self.options.max_concurrency = Some(handlers);
        self
    }

    /// Where low-latency mode sends what failed, and every mode what is no message. The topic must exist and be none of
    /// the subscribed ones.
    ///
    /// A record there has the key, the value and the headers of the original. `source-system` is this client's, and
    /// these headers follow; the last of a name counts where a record failed before: `source-kind` (`message`, or
    /// `poison` for what is no message), `source-topic`, `source-partition`, `source-offset`, `source-timestamp` (RFC
    /// 3339 in UTC, to the millisecond), `source-group-id`, `source-error` (at most 4 KiB) and `source-attempts` (how
    /// often the handler ran).
    ///
    /// The original counts as done once a broker has acknowledged the write, which is repeated until then; the handler
    /// is not. A partition that is given up meanwhile waits 5 s for it; then the next owner handles the message again, so
    /// a record may be there twice.
    #[must_use]
    pub fn failure_topic(mut self, topic: impl Into<String>) -> ClientBuilder {
        self.options.failure_topic = Some(topic.into());
        self
    }

    /// Attempts after the first in low-latency mode.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> ClientBuilder {
        self.options.max_retries = Some(retries);
        self
    }

    /// How long a send may take; `Duration::MAX` waits without bound.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.options.send_timeout = Some(timeout);
        self
    }

    /// Asks this provider for tokens, with SaslMechanism OAUTHBEARER, instead of a token endpoint.
    #[must_use]
    pub fn token_provider(mut self, provider: Arc<dyn prosody_wire::TokenProvider>) -> ClientBuilder {
        self.options.set_token_provider(provider);
        self
    }

    /// Any other option.
    #[must_use]
    pub fn configure(mut self, configure: impl FnOnce(&mut Options)) -> ClientBuilder {
        configure(&mut self.options);
        self
    }

    /// Replaces all options set so far.
    #[must_use]
    pub fn options(mut self, options: Options) -> ClientBuilder {
        self.options = options;
        self
    }

    /// Variables that fill in what is not set in code, instead of those of the process.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> ClientBuilder {
        self.environment = variables.into_iter().collect();
        self
    }

    /// Fills in what is not set in code from the variables of this process. Nothing reads them otherwise.
    #[must_use]
    pub fn from_env(self) -> ClientBuilder {
        let readable = std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.to_string_lossy().into_owned())));
        self.environment(readable)
    }

    /// Reaches brokers, time, randomness and threads through these instead of the process's own. For tests and
    /// simulations: with a paused clock and in-memory pipes a run takes no time and can be repeated.
    #[must_use]
    pub fn transport(mut self, connector: Arc<dyn Connector>, doors: Doors) -> ClientBuilder {
        self.transport = Some((connector, doors));
        self
    }

    /// Keeps timers in this store. For tests and simulations, whose clients share one that lives as long as the test.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn KeyStore>) -> ClientBuilder {
        self.store = Some(store);
        self
    }

    /// Checks everything and builds the client, without touching the network.
    ///
    /// # Errors
    /// One error that lists every problem by option and variable.
    pub fn build(self) -> Result<Client, ConfigError> {
        let spans = trace::settings::read(&self.environment);
        let environment = read_environment(self.environment);
        for warning in environment.warnings.iter().chain(&spans.warnings) {
            tracing::warn!("{warning}");
        }
        let problems = environment.problems.into_iter().chain(spans.problems).collect();
        let mut options = self.options.or(environment.options);
        if self.transport.is_some() {
            // Simulated processes share one real machine, and its ports.
            options.probe_port.get_or_insert(0);
        }
        let config = check(options, problems)?;
        // Collectors are outside of a cluster in this process.
        let tcp = self.transport.as_ref().map_or_else(tcp, |(connector, _)| Arc::clone(connector));
        let (wire, doors, mock) = connect(&config, self.transport)?;
        let store = self.store.or_else(|| mock.as_ref().and_then(|mock| mock.store(&doors.clock)));
        let dedup = Dedup::new(config.idempotence_cache, config.idempotence_ttl);
        let counters = Arc::default();
        let telemetry = config.telemetry.clone().map(|topic| {
            if let Some(mock) = &mock {
                mock.ensure_topic(&topic);
            }
            let source = Arc::clone(&config.source_system);
            Telemetry::start(topic, source, (&wire, config.producer()), &doors, &counters)
        });
        let tracer = match spans.settings {
            Some(settings) => Some(tracer(settings, &config, tcp, &doors, &counters)?),
            None => None,
        };
        let (messages, timers) = (config.message_spans, config.timer_spans);
        let tracing = Arc::new(Tracing { tracer, messages, timers });
        let lasting = Lasting {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            config: Arc::new(config),
            doors,
            wire,
            dedup: Arc::new(dedup),
            counters,
            telemetry,
            tracing,
            held: Arc::default(),
            occupied: Arc::default(),
            names: Arc::new(watch::channel(Vec::new()).0),
            store,
        };
        Ok(Client {
            shared: Arc::new(Shared {
                lasting: Arc::new(lasting),
                producer: OnceLock::new(),
                current: Mutex::new(None),
                subscribing: tokio::sync::Mutex::new(()),
                unsubscribed: watch::Sender::new(()),
                closed: AtomicBool::new(false),
                mock,
            }),
        })
    }
}

fn tracer(
    settings: trace::settings::Settings,
    config: &Checked,
    tcp: Arc<dyn Connector>,
    doors: &Doors,
    counters: &Arc<crate::insight::Counters>,
) -> Result<Arc<Tracer>, ConfigError> {
    let common = trace::Common {
        client_id: if config.source_system.is_empty() {
            Arc::from("prosody")
        } else {
            Arc::clone(&config.source_system)
        },
        group_id: config.group_id.clone(),
    };
    Tracer::start(settings, common, tcp, doors, counters).map_err(|why| {
        let option = "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned();
        ConfigError { problems: vec![Problem { option, variable: String::new(), why: why.to_string() }] }
    })
}

/// The Kafka layer for a configuration: a real cluster, one in this process, or a test's.
pub(crate) fn connect(
    config: &Checked,
    transport: Option<(Arc<dyn Connector>, Doors)>,
) -> Result<(prosody_wire::Client, Doors, Option<Mock>), ConfigError> {
    let problem = |option: &str, why: String| {
        let problem = match crate::config::OptionSpec::find(option) {
            Some(spec) => spec.problem(why),
            None => Problem { option: option.to_owned(), variable: String::new(), why },
        };
        ConfigError { problems: vec![problem] }
    };
    let (connector, doors, seeds, mock) = match (transport, &config.mock) {
        (Some((connector, doors)), _) => (connector, doors, config.bootstrap.clone(), None),
        (None, Some(name)) => {
            let mock = Mock::open(name).map_err(|why| problem("Mock", why))?;
            (mock.connector(), mock.doors(), mock.seeds(), Some(mock))
        }
        (None, None) => {
            let doors = Doors::process()
                .map_err(|why| problem("threads", format!("the operating system refuses threads: {why}")))?;
            (tcp(), doors, config.bootstrap.clone(), None)
        }
    };
    let sasl = config.security.sasl(&connector);
    let sasl = sasl.map_err(|why| problem("SaslOauthTokenEndpoint", why.to_string()))?;
    let connector = match config.security.tls.clone() {
        None => connector,
        Some(tls) => {
            let tls = prosody_wire::TlsConnector::new(connector, tls)
                .map_err(|why| problem(crate::config::option_of(&why), why.to_string()))?;
            Arc::new(tls) as Arc<dyn Connector>
        }
    };
    let mut wire = prosody_wire::ClientConfig::new(seeds);
    wire.sasl = sasl.map(Arc::new);
    if config.security.is_exposed() {
        tracing::warn!("SecurityProtocol is sasl_plaintext: credentials and records travel unencrypted");
    }
    if config.security.is_endpoint_exposed() {
        tracing::warn!("SaslOauthTokenEndpoint is http: the client's secret travels unencrypted");
    }
    if !config.source_system.is_empty() {
        // What brokers log and count by, so that an operator finds the application.
        wire.client_id = config.source_system.to_string();
    }
    let wire = prosody_wire::Client::new(wire, connector, doors.clone())
        .map_err(|why| problem("BootstrapServers", why.to_string()))?;
    Ok((wire, doors, mock))
}

fn tcp() -> Arc<dyn Connector> {
    Arc::new(prosody_wire::TcpConnector)
}
