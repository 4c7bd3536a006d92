//! What does a client do while brokers come, go, move and fall silent?

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Doors, Network};

use super::{Cluster, Lane};
use crate::client::{Client, ClientConfig};
use crate::error::{Error, ErrorKind};
use crate::net::{BoxFuture, Connector, PipeConnector, Stream};
use crate::proto::messages::{BrokerId as MessageBrokerId, FindCoordinatorResponse, HeartbeatRequest};
use crate::proto::{ApiKey, ErrorCode, text};
use crate::testing::{Asked, Reaction, metadata, serve, topic};
use crate::types::BrokerId;

#[path = "rebootstrap_tests.rs"]
mod rebootstrap;

const LONG: Duration = Duration::from_secs(60);

/// A client over pipes.
fn client(network: &Network, seeds: &[&str]) -> Client {
    let connector = Arc::new(PipeConnector(network.clone()));
    Client::new(ClientConfig::new(seeds.iter().copied()), connector, Doors::simulated(1))
        .expect("a configuration")
}

fn cluster(network: &Network, seeds: &[&str]) -> Cluster {
    client(network, seeds).cluster().clone()
}

/// Answers Metadata with one broker, 1 at `b1:1`, and topic `t`; FindCoordinator with broker 1; all else with nothing.
fn one_broker(asked: &Asked) -> Reaction {
    match asked.api {
        ApiKey::Metadata => {
            let topics = vec![topic("t", 7, &[(1, 0)])];
            Reaction::Answer(asked.message(&metadata(&[(1, "b1", 1)], topics)))
        }
        ApiKey::FindCoordinator => {
            let mut answer = FindCoordinatorResponse::default();
            let row = crate::proto::messages::find_coordinator_response::Coordinator::default()
                .with_key(text("g"))
                .with_node_id(MessageBrokerId(1))
                .with_host(text("b1"))
                .with_port(1);
            answer.coordinators = vec![row];
            Reaction::Answer(asked.message(&answer))
        }
        ApiKey::Heartbeat => Reaction::Answer(asked.answer(&[0; 7])),
        _ => Reaction::Silence,
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_takes_one_connection_and_no_sleep() {
    let network = Network::default();
    let (broker, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    let started = cluster.doors().clock.now();
    let known = cluster.topic("t", started + LONG).await.expect("there");
    assert_eq!(known.partition(0).expect("one").leader, Some(BrokerId(1)));
    assert_eq!(cluster.coordinator("g").await.expect("found"), BrokerId(1));
    cluster.connection(BrokerId(1), Lane::Coordination).await.expect("open");
    assert_eq!(broker.connections(), 1, "the connection to the seed becomes the broker's lane");
    let asked: Vec<ApiKey> = broker.asked.lock().expect("whole").iter().map(|asked| asked.api).collect();
    assert_eq!(asked, [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::FindCoordinator]);
    assert_eq!(cluster.doors().clock.now(), started, "nothing waits for time to pass");
    cluster.connection(BrokerId(1), Lane::Fetch).await.expect("open");
    assert_eq!(broker.connections(), 2, "lanes are dialed when they are used");
}

#[tokio::test(start_paused = true)]
async fn a_connection_closed_while_idle_is_replaced_silently() {
    let network = Network::default();
    let (broker, task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    cluster.refresh(cluster.doors().clock.now() + LONG).await.expect("answered");
    let first = cluster.connection(BrokerId(1), Lane::Coordination).await.expect("open");
    cluster.doors().clock.sleep(Duration::from_secs(60)).await;
    task.abort(); // closes every connection, as an idle limit does
    let _ = task.await;
    let (again, _task) = serve(&network, "b1:1", one_broker);
    let before = cluster.doors().clock.now();
    let second = cluster.connection(BrokerId(1), Lane::Coordination).await.expect("reconnected");
    second.call(&HeartbeatRequest::default(), LONG).await.expect("works");
    assert!(first.closed().is_some() && broker.connections() == 1 && again.connections() == 1);
    assert_eq!(cluster.doors().clock.now(), before, "without a wait");
}

/// The first request after a quiet time failed, because the broker was just closing the idle connection.
/// Here a connection that was idle for nearly as long as brokers allow is replaced before it is used.
#[tokio::test(start_paused = true)]
async fn a_connection_idle_for_almost_as_long_as_brokers_allow_is_replaced_before_use() {
    let network = Network::default();
    let (broker, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    cluster.refresh(cluster.doors().clock.now() + LONG).await.expect("answered");
    cluster.connection(BrokerId(1), Lane::Produce).await.expect("open");
    let before = broker.connections();
    cluster.doors().clock.sleep(Duration::from_secs(8 * 60)).await;
    cluster.connection(BrokerId(1), Lane::Produce).await.expect("open");
    assert_eq!(broker.connections(), before);
    cluster.doors().clock.sleep(Duration::from_secs(60)).await;
    cluster.connection(BrokerId(1), Lane::Produce).await.expect("open");
    assert_eq!(broker.connections(), before + 1);
}

/// The name `kafka` leads to another address at each step, as in a cluster whose machines were all replaced.
#[derive(Debug)]
struct MovingName {
    network: Network,
    now_at: Mutex<&'static str>,
    lookups: AtomicUsize,
}

impl Connector for MovingName {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            let address = if host == "kafka" { *self.now_at.lock().expect("whole") } else { host };
            let stream = self.network.connect(&format!("{address}:{port}"))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// A client that knows nothing but a name, which leads to the host `old`.
fn behind_a_name(network: &Network) -> (Arc<MovingName>, Client) {
    let (now_at, lookups) = (Mutex::new("old"), AtomicUsize::new(0));
    let connector = Arc::new(MovingName { network: network.clone(), now_at, lookups });
    let config = ClientConfig::new(["kafka:1"]);
    let client =
        Client::new(config, Arc::clone(&connector) as _, Doors::simulated(1)).expect("a configuration");
    (connector, client)
}

/// Old addresses were dialed for ever after all machines of a cluster had been replaced.
/// Here names are resolved at every attempt, and the bootstrap addresses are asked again when no known broker answers.
#[tokio::test(start_paused = true)]
async fn when_every_address_changes_the_name_leads_back() {
    let network = Network::default();
    let at = |address: &'static str| {
        move |asked: &Asked| match asked.api {
            ApiKey::Metadata => {
                Reaction::Answer(asked.message(&metadata(&[(1, address, 1)], vec![topic("t", 7, &[(1, 0)])])))
            }
            _ => Reaction::Silence,
        }
    };
    let (_, old) = serve(&network, "old:1", at("old"));
    let (connector, client) = behind_a_name(&network);
    let cluster = client.cluster();
    let clock = &cluster.doors().clock;
    cluster.topic("t", clock.now() + LONG).await.expect("there");
    assert_eq!(&*cluster.metadata().brokers[&BrokerId(1)].host, "old");
    old.abort();
    let _ = old.await;
    let lost = cluster.refresh(clock.now() + Duration::from_secs(3)).await.expect_err("all gone");
    assert!(lost.to_string().contains("broker 1 at old:1") && lost.to_string().contains("kafka:1"), "{lost}");
    let (_, _new) = serve(&network, "new:1", at("new"));
    *connector.now_at.lock().expect("whole") = "new";
    cluster.refresh(clock.now() + LONG).await.expect("found again");
    assert_eq!(&*cluster.metadata().brokers[&BrokerId(1)].host, "new");
    cluster.connection(BrokerId(1), Lane::Produce).await.expect("at its new address");
}

#[tokio::test(start_paused = true)]
async fn when_nobody_can_be_reached_the_error_names_every_address_and_cause() {
    let network = Network::default();
    let cluster = cluster(&network, &["a:1", "b:2"]);
    let clock = &cluster.doors().clock;
    let error = cluster.topic("t", clock.now() + Duration::from_secs(5)).await.expect_err("nobody");
    assert!(error.is_retriable());
    let error = error.to_string();
    assert!(
        error.starts_with("looking up topic t: looking for a broker: no broker could be reached"),
        "{error}"
    );
    for part in ["connecting to a:1: a:1: nothing listens", "connecting to b:2: b:2: nothing listens"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// A connector whose first address swallows everything.
#[derive(Debug)]
struct BlackHole(Network);

impl Connector for BlackHole {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            if host.starts_with("hole") {
                std::future::pending::<()>().await;
            }
            Ok(Box::new(self.0.connect(&format!("{host}:{port}"))?) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_swallows_packets_costs_its_share_and_not_the_whole_timeout() {
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", one_broker);
    let config = ClientConfig::new(["hole1:1", "hole2:1", "b1:1"]);
    let client =
        Client::new(config, Arc::new(BlackHole(network)), Doors::simulated(3)).expect("a configuration");
    let cluster = client.cluster();
    let started = cluster.doors().clock.now();
    cluster.topic("t", started + LONG).await.expect("there");
    let took = cluster.doors().clock.now() - started;
    assert!(took <= 2 * cluster.limits().dial_stagger, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn many_requests_for_metadata_make_few_and_age_makes_one() {
    let network = Network::default();
    let (broker, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    let clock = cluster.doors().clock.clone();
    cluster.topic("t", clock.now() + LONG).await.expect("there");
    assert_eq!(broker.count(ApiKey::Metadata), 1);
    clock.sleep(Duration::from_secs(10)).await;
    for _ in 0..1_000 {
        cluster.refresh_soon("a test");
        clock.sleep(Duration::from_millis(10)).await;
    }
    let asked = broker.count(ApiKey::Metadata) - 1;
    assert!((2..40).contains(&asked), "{asked} requests in ten seconds of asking");
    clock.sleep(Duration::from_secs(60)).await;
    let before = broker.count(ApiKey::Metadata);
    clock.sleep(Duration::from_secs(5 * 60)).await;
    assert_eq!(broker.count(ApiKey::Metadata), before + 1, "metadata.max.age.ms");
    // After the quiet the next request does not wait for the pause the last series had earned.
    let asked_at = clock.now();
    cluster.refresh(asked_at + LONG).await.expect("answered");
    assert_eq!(clock.now(), asked_at);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_is_dialed_less_and_less_often() {
    let network = Network::default();
    let dials = Arc::new(AtomicUsize::new(0));
    #[derive(Debug)]
    struct Refuses(Arc<AtomicUsize>);
    impl Connector for Refuses {
        fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }
    }
    drop(network);
    let config = ClientConfig::new(["b1:1"]);
    let client = Client::new(config, Arc::new(Refuses(Arc::clone(&dials))), Doors::simulated(1))
        .expect("a configuration");
    let cluster = client.cluster();
    let clock = &cluster.doors().clock;
    assert!(cluster.refresh(clock.now() + Duration::from_secs(30)).await.is_err());
    let dialed = dials.load(Ordering::SeqCst);
    assert!((20..60).contains(&dialed), "{dialed} dials in 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_missing_topic_is_an_answer_and_a_missing_broker_is_not() {
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", |asked| {
        let rows = vec![topic("t", 0, &[]).with_error_code(3)];
        Reaction::Answer(asked.message(&metadata(&[(1, "b1", 1)], rows)))
    });
    let cluster = cluster(&network, &["b1:1"]);
    let clock = &cluster.doors().clock;
    let error = cluster.topic("t", clock.now() + LONG).await.expect_err("missing");
    assert_eq!(error.to_string(), "looking up topic t: the broker answered UNKNOWN_TOPIC_OR_PARTITION (3)");
    let error = cluster.connection(BrokerId(9), Lane::Fetch).await.expect_err("unknown");
    assert_eq!(error.code(), Some(ErrorCode::BROKER_NOT_AVAILABLE));
}

/// Creating a topic on librdkafka's mock cluster ended at the deadline: it names broker 0 as its controller, and has none.
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_no_broker_is_anybody() {
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", |asked| {
        let answer = metadata(&[(1, "b1", 1)], Vec::new()).with_controller_id(MessageBrokerId(0));
        Reaction::Answer(asked.message(&answer))
    });
    let cluster = cluster(&network, &["b1:1"]);
    cluster.refresh(cluster.doors().clock.now() + LONG).await.expect("metadata");
    assert_eq!(cluster.controller().await.expect("anybody").peer(), "b1:1");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_is_remembered_until_it_is_forgotten() {
    let network = Network::default();
    let (broker, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    for _ in 0..3 {
        assert_eq!(cluster.coordinator("g").await.expect("found"), BrokerId(1));
    }
    assert_eq!(broker.count(ApiKey::FindCoordinator), 1);
    cluster.forget_coordinator("g", BrokerId(2));
    cluster.coordinator("g").await.expect("found");
    assert_eq!(broker.count(ApiKey::FindCoordinator), 1, "somebody else's mistake");
    cluster.forget_coordinator("g", BrokerId(1));
    cluster.coordinator("g").await.expect("found");
    assert_eq!(broker.count(ApiKey::FindCoordinator), 2);
    // The coordinator's address came with the answer: no Metadata was needed to reach it.
    assert_eq!(broker.count(ApiKey::Metadata), 0);
    cluster.connection(BrokerId(1), Lane::Coordination).await.expect("open");
}

#[tokio::test(start_paused = true)]
async fn those_who_look_for_a_coordinator_at_the_same_time_ask_once() {
    let network = Network::default();
    let (broker, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    let (one, other) = tokio::join!(cluster.coordinator("g"), cluster.coordinator("g"));
    assert_eq!((one.expect("found"), other.expect("found")), (BrokerId(1), BrokerId(1)));
    assert_eq!(broker.count(ApiKey::FindCoordinator), 1);
}

#[tokio::test(start_paused = true)]
async fn a_join_that_waits_at_the_broker_holds_up_nothing_else() {
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", one_broker);
    let cluster = cluster(&network, &["b1:1"]);
    let clock = cluster.doors().clock.clone();
    cluster.refresh(clock.now() + LONG).await.expect("answered");
    let lane = cluster.connection(BrokerId(1), Lane::Coordination).await.expect("open");
    let _join = lane.call_raw(ApiKey::JoinGroup, 3, crate::conn::Body::default(), Duration::from_secs(300));
    cluster.refresh(clock.now() + Duration::from_secs(1)).await.expect("answered beside the join");
    let short = cluster.short(BrokerId(1)).await.expect("open");
    short.call(&HeartbeatRequest::default(), Duration::from_secs(1)).await.expect("answered beside the join");
    assert!(lane.closed().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dial_outlives_the_caller_that_started_it() {
    #[derive(Debug)]
    struct Slow(Network);
    impl Connector for Slow {
        fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(Box::new(self.0.connect(&format!("{host}:{port}"))?) as Box<dyn Stream>)
            })
        }
    }
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", one_broker);
    let config = ClientConfig::new(["b1:1"]);
    let client = Client::new(config, Arc::new(Slow(network)), Doors::simulated(1)).expect("a configuration");
    let cluster = client.cluster();
    let clock = &cluster.doors().clock;
    let started = clock.now();
    for _ in 0..4 {
        // Each caller is more impatient than a dial takes.
        let _: Result<Result<_, Error>, _> =
            clock.until(clock.now() + Duration::from_secs(1), cluster.any()).await;
    }
    assert!(cluster.any().await.is_ok());
    assert!(clock.now() - started <= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_everything_at_once() {
    let network = Network::default();
    let (_, _task) = serve(&network, "b1:1", one_broker);
    let client = client(&network, &["b1:1"]);
    let cluster = client.cluster().clone();
    let clock = &cluster.doors().clock;
    cluster.refresh(clock.now() + LONG).await.expect("answered");
    let lane = cluster.connection(BrokerId(1), Lane::Coordination).await.expect("open");
    let waiting = lane.call_raw(ApiKey::JoinGroup, 3, crate::conn::Body::default(), LONG);
    client.close();
    let error = waiting.await.expect_err("closed");
    assert!(matches!(error.kind(), ErrorKind::Closed("this client was closed")), "{error}");
    let error = cluster.connection(BrokerId(1), Lane::Produce).await.expect_err("closed");
    assert!(matches!(error.kind(), ErrorKind::Closed(_)), "{error}");
    let before = clock.now();
    let error = cluster.topic("u", before + LONG).await.expect_err("closed");
    assert!(matches!(error.kind(), ErrorKind::Closed(_)), "{error}");
    assert_eq!(clock.now(), before, "nobody waits for a client that is closed");
}
