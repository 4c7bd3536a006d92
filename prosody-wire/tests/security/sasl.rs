//! SASL: every mechanism against the broker, every way to be refused, and sessions that end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::broker::control::{Action, Match};
use prosody_testkit::broker::keys::ApiKey;
use prosody_testkit::{Cluster, ClusterConfig, ServerSasl};
use prosody_wire::{
    Client, ClientConfig, Credentials, Error, ErrorCode, PipeConnector, Sasl, SaslMechanism, Secret,
};

const MINUTE: Duration = Duration::from_secs(60);
const ALL: [SaslMechanism; 3] =
    [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512];

fn users() -> ServerSasl {
    ServerSasl::new([("alice", "sesame"), ("a=b,c", "пароль, =")])
}

fn start(sasl: Option<ServerSasl>, release: &str) -> (Cluster, Doors) {
    let doors = Doors::simulated(1);
    let config = ClusterConfig { sasl, ..ClusterConfig::default() };
    let cluster = Cluster::start(config.as_version(release), doors.clone());
    cluster.create_topic("t", 2).unwrap();
    (cluster, doors)
}

fn client(cluster: &Cluster, doors: &Doors, sasl: Option<Sasl>) -> Client {
    let mut config = ClientConfig::new(cluster.bootstrap().split(','));
    config.sasl = sasl.map(Arc::new);
    Client::new(config, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap()
}

fn user(mechanism: SaslMechanism, user: &str, password: &str) -> Option<Sasl> {
    Some(Sasl::Password(Credentials { mechanism, user: user.to_owned(), password: Secret::new(password) }))
}

/// What a client is told, at once.
async fn refusal(server: Option<ServerSasl>, sasl: Option<Sasl>) -> Error {
    let (cluster, doors) = start(server, "newest");
    let client = client(&cluster, &doors, sasl);
    let begun = doors.clock.now();
    let error = client.partition_count("t", begun + MINUTE).await.unwrap_err();
    assert!(doors.clock.now() < begun + Duration::from_secs(1), "{error}");
    assert!(!error.is_retriable() && error.is_refusal(), "{error}");
    error
}

#[tokio::test(start_paused = true)]
async fn every_mechanism_lets_its_user_in_on_every_release() {
    for release in ["2.1", "2.8", "3.9", "newest"] {
        for mechanism in ALL {
            for (name, password) in [("alice", "sesame"), ("a=b,c", "пароль, =")] {
                let (cluster, doors) = start(Some(users()), release);
                let client = client(&cluster, &doors, user(mechanism, name, password));
                let count = client.partition_count("t", doors.clock.now() + MINUTE).await;
                assert_eq!(count.unwrap(), 2, "{release} {mechanism} {name}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_or_user_is_one_error_that_names_all_but_the_secret() {
    for mechanism in ALL {
        for (name, password) in [("alice", "sesamy"), ("mallory", "sesamy")] {
            let error = refusal(Some(users()), user(mechanism, name, password)).await;
            assert_eq!(error.code(), Some(ErrorCode::SASL_AUTHENTICATION_FAILED), "{error}");
            let text = error.to_string();
            for part in [&format!("user `{name}` by {mechanism}"), "b1:9092", "invalid credentials"] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert!(!text.contains(password), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mechanism_the_broker_does_not_offer_is_refused_with_those_it_does() {
    let server = ServerSasl { mechanisms: vec!["PLAIN".into(), "GSSAPI".into()], ..users() };
    let error = refusal(Some(server), user(SaslMechanism::ScramSha512, "alice", "sesame")).await;
    assert_eq!(error.code(), Some(ErrorCode::UNSUPPORTED_SASL_MECHANISM), "{error}");
    assert!(error.to_string().contains("by SCRAM-SHA-512"), "{error}");
    assert!(error.to_string().contains("the broker offers PLAIN, GSSAPI"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_asks_nobody_refuses_credentials() {
    let error = refusal(None, user(SaslMechanism::Plain, "alice", "sesame")).await;
    assert_eq!(error.code(), Some(ErrorCode::ILLEGAL_SASL_STATE), "{error}");
}

#[tokio::test(start_paused = true)]
async fn nobody_in_particular_is_not_served() {
    let (cluster, doors) = start(Some(users()), "newest");
    let error =
        client(&cluster, &doors, None).partition_count("t", doors.clock.now() + MINUTE).await.unwrap_err();
    assert!(error.to_string().contains("perhaps this listener asks who its clients are (SASL)"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_missed_at_its_step() {
    for (api, step) in [
        (ApiKey::API_VERSIONS, "ApiVersions v3"),
        (ApiKey::SASL_HANDSHAKE, "SaslHandshake: authenticating user `alice` by PLAIN"),
        (ApiKey::SASL_AUTHENTICATE, "SaslAuthenticate: authenticating user `alice` by PLAIN"),
    ] {
        let (cluster, doors) = start(Some(users()), "newest");
        cluster.control().on(Match::api(api), Action::Hang);
        let client = client(&cluster, &doors, user(SaslMechanism::Plain, "alice", "sesame"));
        let begun = doors.clock.now();
        let error = client.partition_count("t", begun + Duration::from_secs(15)).await.unwrap_err();
        assert!(error.is_retriable() && error.to_string().contains(step), "{step}: {error}");
        assert!(error.to_string().contains("no answer in time"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_broker_could_accept_is_a_wrong_configuration_and_secrets_do_not_print() {
    for (name, password, wrong) in
        [("", "x", "user is empty"), ("a\0b", "x", "NUL"), ("a", "x\0y", "NUL"), ("a", "", "")]
    {
        let mut config = ClientConfig::new(["b1"]);
        config.sasl = user(SaslMechanism::Plain, name, password).map(Arc::new);
        let connector = Arc::new(PipeConnector(prosody_base::Network::default()));
        match Client::new(config, connector, Doors::simulated(1)) {
            Ok(_) => assert_eq!(wrong, ""),
            Err(error) => assert!(!wrong.is_empty() && error.to_string().contains(wrong), "{error}"),
        }
    }
    let mut config = ClientConfig::new(["b1"]);
    config.sasl = user(SaslMechanism::Plain, "alice", "sesame").map(Arc::new);
    let text = format!("{config:?}");
    assert!(text.contains("alice") && text.contains("***") && !text.contains("sesame"), "{text}");
}

/// Brokers with `connections.max.reauth.ms` close a connection whose client did not prove itself again in time, and one
/// that sends anything else between the messages of that proof.
#[tokio::test(start_paused = true)]
async fn a_session_is_renewed_on_its_connection_while_requests_go_on() {
    for mechanism in ALL {
        let server = ServerSasl { session_lifetime: Duration::from_secs(10), ..users() };
        let (cluster, doors) = start(Some(server), "newest");
        let slow = Match::api(ApiKey::SASL_AUTHENTICATE);
        cluster.control().on(slow, Action::Delay(Duration::from_millis(300)));
        let client = client(&cluster, &doors, user(mechanism, "alice", "sesame"));
        let admin = client.admin();
        let end = doors.clock.now() + MINUTE;
        while doors.clock.now() < end {
            admin.offsets("t", prosody_wire::OffsetAt::Latest, end + MINUTE).await.unwrap();
            doors.clock.sleep(Duration::from_millis(50)).await;
        }
        let proofs = cluster.requests(ApiKey::SASL_HANDSHAKE);
        let connections: BTreeSet<u64> = cluster.journal().iter().map(|entry| entry.connection).collect();
        assert!(proofs.len() >= 6 * connections.len(), "{mechanism}: {}", proofs.len());
        assert!(connections.len() <= 2, "{mechanism}: {connections:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_refused_ends_the_connection_with_that_error() {
    let server = ServerSasl { session_lifetime: Duration::from_secs(10), ..users() };
    let (cluster, doors) = start(Some(server), "newest");
    let client = client(&cluster, &doors, user(SaslMechanism::Plain, "alice", "sesame"));
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    cluster.control().on(Match::api(ApiKey::SASL_AUTHENTICATE), Action::Error(58));
    doors.clock.sleep(Duration::from_secs(11)).await;
    let error = client.partition_count("u", doors.clock.now() + MINUTE).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::SASL_AUTHENTICATION_FAILED), "{error}");
}
