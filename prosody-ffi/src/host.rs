//! What is behind a handle? A client, an admin client or a mock cluster of the runtime, its port to .NET, and where it is in its life.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prosody_base::{Doors, Lane};
use prosody_runtime::{
    Admin, Client, ConfigError, ConsumerState, OPTIONS, Options, TokenError, VirtualCluster,
};

use crate::abi::{
    PR_CLIENT_GIVES_TOKENS, PR_CLOSED, PR_ERROR_CONFIG, PR_ERROR_STATE, PR_FAILED, PR_INVALID, PR_OK,
    PR_STALE, PR_STATE_CONFIGURED, PR_STATE_RUNNING, PR_STATE_UNCONFIGURED, PR_TIMER_CLEAR,
    PR_TIMER_CLEAR_AND_SCHEDULE, PR_TIMER_SCHEDULE, PR_TIMER_UNSCHEDULE, PR_TOKEN_GIVEN, PR_TOKEN_REFUSED,
    PrBytes, PrClientInfo, PrCounters, PrResult, PrSnapshot,
};
use crate::bridge::Bridge;
use crate::failure::{self, Failure, failed, of_store};
use crate::handles::Handles;
use crate::pairs::pairs;
use crate::port::Port;
use crate::tokens::{self, Tokens};
use crate::{guard, logs, metrics};

/// How long the end of a client waits for the last operations to report before its queue closes.
const LAST_REPORTS: Duration = Duration::from_secs(1);

static HOSTS: Handles<Host> = Handles::new();

/// See the file's question.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) port: Arc<Port>,
    doors: Doors,
    core: Core,
    /// Shown to .NET by pointer, so it must not move.
    source_system: Box<str>,
    closing: AtomicBool,
    freed: AtomicBool,
}

#[derive(Debug)]
enum Core {
    Client(Client, Arc<Tokens>),
    Admin(Admin),
    Cluster(VirtualCluster),
}

/// The object behind a handle.
pub(crate) fn find(handle: u64) -> Option<Arc<Host>> {
    HOSTS.get(handle)
}

/// Lets go of a freed object once .NET holds no event of it.
pub(crate) fn reap(handle: u64, host: &Host) {
    if host.freed.load(Ordering::Acquire) && host.port.with_host() == 0 {
        drop(HOSTS.remove(handle));
    }
}

/// Logs and panics belong to the host application from the first call on.
pub(crate) fn install() {
    logs::install();
    guard::quiet_panics();
}

/// Live objects of the process.
pub(crate) fn counters() -> PrCounters {
    let mut counters = PrCounters {
        size: size_of::<PrCounters>() as u32,
        handles: 0,
        events: 0,
        operations: 0,
        errors: failure::live(),
    };
    for host in HOSTS.all() {
        counters.handles += 1;
        counters.events += u32::try_from(host.port.with_host()).unwrap_or(u32::MAX);
        counters.operations += host.port.operations();
    }
    counters
}

/// What the metrics of all clients say now.
pub(crate) fn metrics() -> Vec<u8> {
    let readings = HOSTS.all().into_iter().filter_map(|host| match &host.core {
        Core::Client(client, _) if !host.freed.load(Ordering::Acquire) => Some(client.metrics()),
        Core::Client(..) | Core::Admin(_) | Core::Cluster(_) => None,
    });
    metrics::readings(readings)
}

/// The table of options as text.
pub(crate) fn options() -> String {
    OPTIONS.iter().fold(String::new(), |mut text, option| {
        let _ = writeln!(text, "{}\t{}", option.name, option.variable);
        text
    })
}

impl Host {
    /// Makes a client and its handle.
    pub(crate) fn client(options: &[u8], environment: &[u8], flags: u32) -> Result<u64, Failure> {
        install();
        let (mut options, wrong) = parse_options(options)?;
        let (doors, port) = start()?;
        let tokens = Tokens::new(Arc::clone(&port.crew));
        if flags & PR_CLIENT_GIVES_TOKENS != 0 {
            let provider = Arc::clone(&tokens);
            options.set_token_provider(provider);
        }
        let built =
            Client::builder().options(options).environment(parse_pairs(environment, "environment")?).build();
        let client = together(wrong, built)?;
        let source_system = client.source_system().into();
        Ok(Host::register(doors, port, Core::Client(client, tokens), source_system))
    }

    /// Makes an admin client and its handle.
    pub(crate) fn admin(options: &[u8], environment: &[u8]) -> Result<u64, Failure> {
        install();
        let (options, wrong) = parse_options(options)?;
        let built = Admin::new(options, parse_pairs(environment, "environment")?);
        let core = Core::Admin(together(wrong, built)?);
        let (doors, port) = start()?;
        Ok(Host::register(doors, port, core, Box::default()))
    }

    /// Makes a mock cluster with a clock of its own and its handle.
    pub(crate) fn cluster(name: &str) -> Result<u64, Failure> {
        install();
        let (doors, port) = start()?;
        let cluster = VirtualCluster::open(name)
            .map_err(|error| Failure::new(PR_ERROR_STATE, format!("opening a mock cluster: {error}")))?;
        Ok(Host::register(doors, port, Core::Cluster(cluster), Box::default()))
    }

    fn register(doors: Doors, port: Arc<Port>, core: Core, source_system: Box<str>) -> u64 {
        let (closing, freed) = (AtomicBool::new(false), AtomicBool::new(false));
        HOSTS.insert(Arc::new(Host { port, doors, core, source_system, closing, freed }))
    }

    pub(crate) fn info(&self) -> PrClientInfo {
        let shutdown = match &self.core {
            Core::Client(client, _) => client.shutdown_timeout(),
            Core::Admin(_) | Core::Cluster(_) => Duration::ZERO,
        };
        PrClientInfo {
            size: size_of::<PrClientInfo>() as u32,
            shutdown_ms: u64::try_from(shutdown.as_millis()).unwrap_or(u64::MAX),
            source_system: PrBytes::of(self.source_system.as_bytes()),
        }
    }

    pub(crate) fn snapshot(&self) -> PrSnapshot {
        let mut snapshot = PrSnapshot {
            size: size_of::<PrSnapshot>() as u32,
            state: PR_STATE_UNCONFIGURED,
            assigned: 0,
            stalled: 0,
        };
        if let Core::Client(client, _) = &self.core {
            snapshot.state = match client.state() {
                ConsumerState::Unconfigured => PR_STATE_UNCONFIGURED,
                ConsumerState::Configured => PR_STATE_CONFIGURED,
                ConsumerState::Running => PR_STATE_RUNNING,
            };
            snapshot.assigned = u32::try_from(client.assigned_partitions()).unwrap_or(u32::MAX);
            snapshot.stalled = i32::from(client.is_stalled());
        }
        snapshot
    }

    pub(crate) fn subscribe(&self, op: u64, result: &mut PrResult) -> i32 {
        let Core::Client(client, _) = &self.core else { return PR_INVALID };
        let (client, bridge) = (client.clone(), Bridge(Arc::clone(&self.port)));
        let work = async move { client.subscribe(bridge).await.map(|()| 0).map_err(failed) };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    pub(crate) fn unsubscribe(&self, op: u64, result: &mut PrResult) -> i32 {
        let Core::Client(client, _) = &self.core else { return PR_INVALID };
        let client = client.clone();
        let work = async move { client.unsubscribe().await.map(|()| 0).map_err(failed) };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    pub(crate) fn send(&self, op: u64, topic: &str, key: &str, payload: &[u8], result: &mut PrResult) -> i32 {
        let Core::Client(client, _) = &self.core else { return PR_INVALID };
        let delivery = {
            // Queued by the call itself, which may start a batch's timer.
            let _runtime = self.doors.spawner.enter(Lane::Io);
            client.send(topic, key, payload)
        };
        let work = async move { delivery.await.map(|_| 0).map_err(failed) };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    pub(crate) fn timer(&self, token: u64, call: i32, seconds: i64, op: u64, result: &mut PrResult) -> i32 {
        let Ok(context) = self.port.context(token) else { return PR_STALE };
        let time = at(seconds);
        let work = async move {
            let done = match call {
                PR_TIMER_SCHEDULE => context.schedule(time).await,
                PR_TIMER_CLEAR_AND_SCHEDULE => context.clear_and_schedule(time).await,
                PR_TIMER_UNSCHEDULE => context.unschedule(time).await,
                PR_TIMER_CLEAR => context.clear_scheduled().await,
                _ => return Err(Failure::new(PR_ERROR_STATE, format!("there is no timer call {call}"))),
            };
            done.map(|()| 0).map_err(|error| of_store(&error))
        };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    /// The times of a running event's timers. The event's record is in memory, so nothing waits.
    pub(crate) fn timers(&self, token: u64, result: &mut PrResult) -> Result<Vec<i64>, i32> {
        let context = self.port.context(token).map_err(|_| PR_STALE)?;
        let listed = context.scheduled().map_err(|error| {
            result.error = of_store(&error).into_raw();
            PR_FAILED
        })?;
        let seconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        Ok(listed.into_iter().map(seconds).collect())
    }

    /// What .NET says to a question for a token.
    pub(crate) fn token(
        &self,
        question: u64,
        kind: i32,
        text: &str,
        lifetime_ms: u64,
        extensions: &[u8],
    ) -> i32 {
        let Core::Client(_, tokens) = &self.core else { return PR_INVALID };
        let Ok(extensions) = pairs(extensions) else { return PR_INVALID };
        let answer = match kind {
            PR_TOKEN_GIVEN => Ok(tokens::token(text.to_owned(), lifetime_ms, extensions)),
            PR_TOKEN_REFUSED => Err(TokenError::refused(text)),
            _ => Err(TokenError::unavailable(text)),
        };
        if tokens.answer(question, answer).is_ok() { PR_OK } else { PR_STALE }
    }

    pub(crate) fn create_topic(
        &self,
        op: u64,
        name: &str,
        partitions: u32,
        replication: u32,
        result: &mut PrResult,
    ) -> i32 {
        let Core::Admin(admin) = &self.core else { return PR_INVALID };
        let (Ok(partitions), Ok(replication)) = (i32::try_from(partitions), i16::try_from(replication))
        else {
            return PR_INVALID;
        };
        let (admin, name) = (admin.clone(), name.to_owned());
        let work = async move {
            admin.create_topic(&name, partitions, replication).await.map(|()| 0).map_err(failed)
        };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    pub(crate) fn delete_topic(&self, op: u64, name: &str, result: &mut PrResult) -> i32 {
        let Core::Admin(admin) = &self.core else { return PR_INVALID };
        let (admin, name) = (admin.clone(), name.to_owned());
        let work = async move { admin.delete_topic(&name).await.map(|()| 0).map_err(failed) };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    pub(crate) fn advance(&self, op: u64, by: Duration, result: &mut PrResult) -> i32 {
        let Core::Cluster(cluster) = &self.core else { return PR_INVALID };
        let cluster = cluster.clone();
        let work = async move {
            cluster.advance(by).await;
            Ok(0)
        };
        self.port.start(&self.doors.spawner, op, work, result)
    }

    /// What the clock of a mock cluster shows, in milliseconds since the Unix epoch.
    pub(crate) fn now(&self, result: &mut PrResult) -> i32 {
        let Core::Cluster(cluster) = &self.core else { return PR_INVALID };
        let since = cluster.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        result.value = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        PR_OK
    }

    /// Starts the graceful stop; the queue closes at its end.
    pub(crate) fn close(self: &Arc<Self>) -> i32 {
        if self.closing.swap(true, Ordering::AcqRel) {
            return PR_CLOSED;
        }
        let host = Arc::clone(self);
        let work = async move {
            match &host.core {
                Core::Client(client, _) => {
                    if let Err(error) = client.close().await {
                        tracing::warn!("closing the client: {error}");
                    }
                }
                Core::Admin(admin) => admin.close().await,
                Core::Cluster(_) => {}
            }
            let deadline = host.doors.clock.now() + LAST_REPORTS;
            let _ = host.doors.clock.until(deadline, host.port.all_reported()).await;
            host.port.close();
        };
        self.doors.spawner.spawn(Lane::Io, work).detach();
        PR_OK
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Ends the handle; see [`reap`].
    pub(crate) fn free(self: &Arc<Self>) {
        self.freed.store(true, Ordering::Release);
        self.close();
        self.port.close();
    }

    /// A panic in a call: the client behind it cannot be trusted any more.
    pub(crate) fn fault(&self, text: &str) {
        tracing::error!("{text}; the client is unusable from now on");
        self.port.fault(text);
    }
}

fn start() -> Result<(Doors, Arc<Port>), Failure> {
    let doors = Doors::process()
        .map_err(|error| Failure::new(PR_ERROR_STATE, format!("starting the library's threads: {error}")))?;
    let port = Port::new(doors.clone());
    Ok((doors, port))
}

fn parse_pairs(bytes: &[u8], what: &str) -> Result<Vec<(String, String)>, Failure> {
    pairs(bytes).map_err(|_| {
        Failure::new(PR_ERROR_CONFIG, format!("the {what} is not a list of pairs of UTF-8 texts"))
    })
}

/// Options, and the problems of those that do not parse: they are reported together with all others.
fn parse_options(bytes: &[u8]) -> Result<(Options, Vec<String>), Failure> {
    let mut options = Options::default();
    let mut wrong = Vec::new();
    for (name, value) in parse_pairs(bytes, "list of options")? {
        if let Err(problem) = options.set(&name, &value) {
            wrong.push(problem.to_string());
        }
    }
    Ok((options, wrong))
}

/// One failure that lists all problems, one in a line.
fn together<T>(mut wrong: Vec<String>, built: Result<T, ConfigError>) -> Result<T, Failure> {
    let made = match built {
        Ok(made) if wrong.is_empty() => return Ok(made),
        Ok(made) => Some(made),
        Err(error) => {
            wrong.extend(error.problems.iter().map(ToString::to_string));
            None
        }
    };
    drop(made);
    Err(Failure::new(PR_ERROR_CONFIG, wrong.join("\n")))
}

fn at(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}
