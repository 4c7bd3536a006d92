//! What does an application hold? A client that can subscribe one handler and send messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Checked, ConfigError, Mode, Options, check, read_environment};
use crate::error::{Error, ErrorKind};
use crate::handler::Handler;

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
    config: Checked,
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
    /// Missing topics and a broker's refusal at once; a cluster that cannot be reached after `SubscribeTimeout`. The
    /// client stays as it was and may try again.
    pub async fn subscribe<H: Handler>(&self, handler: H) -> Result<(), Error> {
        drop(handler);
        Err(Error::new(ErrorKind::Other, "subscribing is not built yet"))
    }

    /// Stops the subscription: drains running handlers within `ShutdownTimeout`, commits, leaves the group. Does
    /// nothing when there is none.
    ///
    /// # Errors
    /// When the final commit or the farewell failed; the subscription has ended all the same.
    pub async fn unsubscribe(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Sends one message, whose payload is JSON text. It is queued when this is called, so messages that one caller
    /// sends to one key keep their order; the result waits for all in-sync replicas, at most `SendTimeout`. Dropping
    /// the future does not take the message back.
    ///
    /// # Errors
    /// With [`Error::may_have_been_written`], which says whether the record can be in the log all the same.
    pub fn send(
        &self,
        topic: &str,
        key: &str,
        payload: &[u8],
    ) -> impl Future<Output = Result<Delivery, Error>> + Send + 'static {
        let _ = (topic, key, payload);
        async { Err(Error::new(ErrorKind::Other, "sending is not built yet")) }
    }

    /// Where the client is in its life.
    #[must_use]
    pub fn state(&self) -> ConsumerState {
        let config = &self.shared.config;
        match config.group_id.is_some() && !config.topics.is_empty() {
            true => ConsumerState::Configured,
            false => ConsumerState::Unconfigured,
        }
    }

    /// Partitions this client owns now; 0 when it is not subscribed.
    #[must_use]
    pub fn assigned_partitions(&self) -> usize {
        0
    }

    /// Whether a partition has unfinished work of which nothing finished for `StallThreshold`. An idle partition is
    /// not stalled.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        false
    }

    /// What the `source-system` header of sent messages says; empty when neither it nor a group id is set.
    #[must_use]
    pub fn source_system(&self) -> &str {
        &self.shared.config.source_system
    }

    /// How long [`unsubscribe`](Client::unsubscribe) may take to drain.
    #[must_use]
    pub fn shutdown_timeout(&self) -> Duration {
        self.shared.config.shutdown_timeout
    }

    /// Unsubscribes, waits for sends in flight within their own timeouts, and closes every connection. Later calls
    /// fail.
    ///
    /// # Errors
    /// As [`unsubscribe`](Client::unsubscribe); the client is closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        self.unsubscribe().await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// Collects options and builds a [`Client`]. Later calls win over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    options: Options,
    environment: Vec<(String, String)>,
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

    /// How long a send may take; `Duration::MAX` waits without bound.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.options.send_timeout = Some(timeout);
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

    /// Checks everything and builds the client, without touching the network.
    ///
    /// # Errors
    /// One error that lists every problem by option and variable.
    pub fn build(self) -> Result<Client, ConfigError> {
        let environment = read_environment(self.environment);
        for warning in environment.warnings {
            tracing::warn!("{warning}");
        }
        let config = check(self.options.or(environment.options), environment.problems)?;
        Ok(Client { shared: Arc::new(Shared { config }) })
    }
}
