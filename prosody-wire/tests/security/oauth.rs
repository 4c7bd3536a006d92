//! OAUTHBEARER: tokens that are fixed, of the application, or of a token endpoint; who asks when, and what is said when
//! there is none.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prosody_base::{Doors, Network};
use prosody_testkit::broker::bearer::unsecured_jwt;
use prosody_testkit::broker::control::{Action, Match};
use prosody_testkit::broker::keys::ApiKey;
use prosody_testkit::{Cluster, ClusterConfig, ServerSasl, ServerTls};
use prosody_wire::{
    BoxFuture, Client, ClientConfig, ClientCredentials, ClientCredentialsConfig, Error, ErrorCode,
    FixedToken, OffsetAt, PipeConnector, Sasl, Secret, TlsOptions, Token, TokenError, TokenProvider,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::certificates::{Authority, Folder};

const MINUTE: Duration = Duration::from_secs(60);
const SECRET: &str = "open-sesame&+";

fn start(tokens: &[&str]) -> (Cluster, Doors) {
    let doors = Doors::simulated(1);
    let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
    let sasl = ServerSasl { mechanisms: vec!["OAUTHBEARER".into()], tokens, ..ServerSasl::new([]) };
    let config = ClusterConfig { sasl: Some(sasl), ..ClusterConfig::default() };
    let cluster = Cluster::start(config, doors.clone());
    cluster.create_topic("t", 2).unwrap();
    (cluster, doors)
}

fn client(cluster: &Cluster, doors: &Doors, tokens: Arc<dyn TokenProvider>) -> Client {
    let mut config = ClientConfig::new(cluster.bootstrap().split(','));
    config.sasl = Some(Arc::new(Sasl::Bearer(tokens)));
    Client::new(config, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap()
}

/// What a client is told, and that it does not wait for the deadline to be told.
async fn refusal(cluster: &Cluster, doors: &Doors, tokens: Arc<dyn TokenProvider>) -> Error {
    let begun = doors.clock.now();
    let error = client(cluster, doors, tokens).partition_count("t", begun + MINUTE).await.unwrap_err();
    assert!(doors.clock.now() < begun + Duration::from_secs(1), "{error}");
    assert!(!error.is_retriable() && error.is_refusal(), "{error}");
    error
}

/// A provider of the application: JWTs of this many seconds, counted.
#[derive(Debug)]
struct Counting {
    doors: Doors,
    life: AtomicU64,
    asked: AtomicU32,
    says: Mutex<Option<TokenError>>,
}

impl Counting {
    fn new(doors: &Doors, seconds: u64) -> Arc<Counting> {
        let (life, asked) = (AtomicU64::new(seconds), AtomicU32::new(0));
        Arc::new(Counting { doors: doors.clone(), life, asked, says: Mutex::default() })
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl TokenProvider for Counting {
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (life, failed) = (self.life.load(Ordering::Relaxed), self.says.lock().unwrap().clone());
        let until = self.doors.clock.unix_millis() / 1_000 + i64::try_from(life).unwrap() + 1;
        let token = Token::new(unsecured_jwt("me", until)).lifetime(Duration::from_secs(life));
        Box::pin(async move { failed.map_or(Ok(token), Err) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_fixed_token_lets_a_client_in_with_its_extensions() {
    let (cluster, doors) = start(&["abc"]);
    let token = Token::new("abc").extension("logicalCluster", "lkc-1");
    let client = client(&cluster, &doors, Arc::new(FixedToken(token)));
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_one_error_with_the_brokers_reason_and_without_the_token() {
    let (cluster, doors) = start(&["abc"]);
    let error = refusal(&cluster, &doors, Arc::new(FixedToken(Token::new("sesame")))).await;
    assert_eq!(error.code(), Some(ErrorCode::SASL_AUTHENTICATION_FAILED), "{error}");
    let text = error.to_string();
    for part in ["authenticating by OAUTHBEARER at", "b1:9092", "it refuses the token: invalid_token"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("sesame"), "{text}");
    // The exchange was ended as RFC 7628 wants it: the broker could say its error code too.
    assert_eq!(cluster.requests(ApiKey::SASL_AUTHENTICATE).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_no_broker_could_read_is_refused_before_it_is_sent() {
    let (cluster, doors) = start(&["abc"]);
    let error = refusal(&cluster, &doors, Arc::new(FixedToken(Token::new("a b")))).await;
    assert!(error.to_string().contains("gave a token with characters that are not printable"), "{error}");
    assert_eq!(cluster.requests(ApiKey::SASL_HANDSHAKE).len(), 0);
}

/// A consumer of a quiet topic asked for its next token when it next connected, hours after the last one had expired.
/// Here the next one is asked for at 80 % of the life of the last, whether or not anything is sent.
#[tokio::test(start_paused = true)]
async fn a_quiet_client_has_its_next_token_at_80_percent_of_the_life_of_the_last() {
    let (cluster, doors) = start(&[]);
    let tokens = Counting::new(&doors, 100);
    let client = client(&cluster, &doors, Arc::clone(&tokens) as Arc<dyn TokenProvider>);
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    assert_eq!(tokens.asked(), 1);
    doors.clock.sleep(Duration::from_secs(79)).await;
    assert_eq!(tokens.asked(), 1);
    doors.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(tokens.asked(), 2);
    doors.clock.sleep(Duration::from_secs(800)).await;
    assert_eq!(tokens.asked(), 12);
}

/// Brokers end a connection with the token that opened it (KIP-368).
#[tokio::test(start_paused = true)]
async fn a_connection_is_renewed_with_the_next_token_while_requests_go_on() {
    let (cluster, doors) = start(&[]);
    let tokens = Counting::new(&doors, 30);
    let client = client(&cluster, &doors, Arc::clone(&tokens) as Arc<dyn TokenProvider>);
    let admin = client.admin();
    let end = doors.clock.now() + 5 * MINUTE;
    while doors.clock.now() < end {
        admin.offsets("t", OffsetAt::Latest, end + MINUTE).await.unwrap();
        doors.clock.sleep(Duration::from_millis(250)).await;
    }
    let connections: BTreeSet<u64> = cluster.journal().iter().map(|entry| entry.connection).collect();
    assert!(connections.len() <= 2, "{connections:?}");
    assert!(cluster.requests(ApiKey::SASL_HANDSHAKE).len() >= 10 * connections.len());
    assert!((12..=14).contains(&tokens.asked()), "{}", tokens.asked());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_costs_nothing_while_the_last_token_counts() {
    let (cluster, doors) = start(&[]);
    let tokens = Counting::new(&doors, 100);
    let client = client(&cluster, &doors, Arc::clone(&tokens) as Arc<dyn TokenProvider>);
    let soon = || doors.clock.now() + Duration::from_secs(5);
    assert_eq!(client.partition_count("t", soon()).await.unwrap(), 2);
    *tokens.says.lock().unwrap() = Some(TokenError::unavailable("the provider is away"));
    doors.clock.sleep(Duration::from_secs(90)).await;
    assert!(tokens.asked() >= 5, "it is asked again and again: {}", tokens.asked());
    cluster.cut_connections(1);
    cluster.create_topic("u", 3).unwrap();
    assert_eq!(client.partition_count("u", soon()).await.unwrap(), 3);
    doors.clock.sleep(Duration::from_secs(20)).await;
    cluster.cut_connections(1);
    cluster.create_topic("v", 3).unwrap();
    let error = client.partition_count("v", soon()).await.unwrap_err();
    assert!(error.is_retriable() && error.to_string().contains("no token: the provider is away"), "{error}");
    *tokens.says.lock().unwrap() = None;
    assert_eq!(client.partition_count("v", soon()).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_no_is_a_refusal_and_not_asked_over_and_over() {
    let (cluster, doors) = start(&[]);
    let tokens = Counting::new(&doors, 100);
    *tokens.says.lock().unwrap() = Some(TokenError::refused("nobody knows me"));
    let client = client(&cluster, &doors, Arc::clone(&tokens) as Arc<dyn TokenProvider>);
    let begun = doors.clock.now();
    let error = client.partition_count("t", begun + MINUTE).await.unwrap_err();
    assert!(doors.clock.now() < begun + Duration::from_secs(1) && error.is_refusal(), "{error}");
    assert!(error.to_string().contains("asking for a token: no token: nobody knows me"), "{error}");
    doors.clock.sleep(MINUTE).await;
    assert!((2..=4).contains(&tokens.asked()), "{}", tokens.asked());
}

#[derive(Debug)]
struct Never;

impl TokenProvider for Never {
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        Box::pin(std::future::pending())
    }
}

#[derive(Debug)]
struct Panics;

impl TokenProvider for Panics {
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        Box::pin(async { panic!("a bug of the application") })
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_never_answers_or_panics_is_named() {
    let (cluster, doors) = start(&[]);
    let never = client(&cluster, &doors, Arc::new(Never));
    let error = never.partition_count("t", doors.clock.now() + MINUTE).await.unwrap_err();
    assert!(error.is_retriable(), "{error}");
    assert!(error.to_string().contains("its provider did not answer within 10s"), "{error}");
    let error = refusal(&cluster, &doors, Arc::new(Panics)).await;
    assert!(error.to_string().contains("its provider panicked"), "{error}");
}

/// The broker forgot every token, as one does that was restarted with another key: the client asks for a new one.
#[tokio::test(start_paused = true)]
async fn after_a_refusal_another_token_is_asked_for() {
    let (cluster, doors) = start(&[]);
    let tokens = Counting::new(&doors, 1_000);
    let client = client(&cluster, &doors, Arc::clone(&tokens) as Arc<dyn TokenProvider>);
    cluster.control().on(Match::api(ApiKey::SASL_AUTHENTICATE).times(1), Action::Error(58));
    let soon = || doors.clock.now() + MINUTE;
    client.partition_count("t", soon()).await.unwrap_err();
    doors.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(client.partition_count("t", soon()).await.unwrap(), 2);
    assert_eq!(tokens.asked(), 2);
}

/// A token endpoint on a pipe: remembers what was asked and answers with what `answer` makes of its number.
fn endpoint(
    network: &Network,
    tls: Option<ServerTls>,
    answer: fn(usize) -> String,
) -> Arc<Mutex<Vec<String>>> {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut listener = network.listen("idp:8443").unwrap();
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let mut stream: Box<dyn prosody_wire::Stream> = match &tls {
                None => Box::new(stream),
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => Box::new(stream),
                    Err(_) => continue,
                },
            };
            let mut text = Vec::new();
            while !String::from_utf8_lossy(&text).contains("grant_type=client_credentials") {
                if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let number = {
                let mut kept = kept.lock().unwrap();
                kept.push(String::from_utf8_lossy(&text).into_owned());
                kept.len()
            };
            let _ = stream.write_all(answer(number).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    asked
}

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn oidc(network: &Network, url: &str, scope: Option<&str>, tls: TlsOptions) -> Arc<dyn TokenProvider> {
    let config = ClientCredentialsConfig {
        endpoint: url.to_owned(),
        client_id: "me:1".to_owned(),
        client_secret: Secret::new(SECRET),
        scope: scope.map(str::to_owned),
    };
    Arc::new(ClientCredentials::new(config, Arc::new(PipeConnector(network.clone())), tls).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_token_endpoint_is_asked_by_client_credentials_and_again_in_time() {
    let (cluster, doors) = start(&["abc"]);
    let network = cluster.network();
    let answer = |_| http("200 OK", r#"{"access_token":"abc","token_type":"Bearer","expires_in":50}"#);
    let asked = endpoint(&network, None, answer);
    let tokens = oidc(&network, "http://idp:8443/realms/k?x=1", Some("kafka read"), TlsOptions::default());
    let client = client(&cluster, &doors, tokens);
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    doors.clock.sleep(Duration::from_secs(85)).await;
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 3, "at 0, 40 and 80 s");
    let first = asked[0].to_ascii_lowercase();
    for part in [
        "post /realms/k?x=1 http/1.1\r\n",
        "\r\nhost: idp:8443\r\n",
        "\r\ncontent-type: application/x-www-form-urlencoded\r\n",
        "\r\n\r\ngrant_type=client_credentials&scope=kafka+read",
    ] {
        assert!(first.contains(part), "{part} in {first}");
    }
    // me%3A1:open-sesame%26%2B: both are encoded, so that a colon in the id does not end it (RFC 6749 2.3.1).
    assert!(asked[0].contains("\r\nauthorization: Basic bWUlM0ExOm9wZW4tc2VzYW1lJTI2JTJC\r\n"), "{first}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_over_https_is_trusted_by_its_authority_alone() {
    let (doors, folder, authority) = (Doors::simulated(1), Folder::new(), Authority::new());
    let signed = authority.sign("idp");
    for (trusted, stranger) in [(&authority, false), (&Authority::new(), true)] {
        let (cluster, _) = start(&["abc"]);
        let network = cluster.network();
        let tls = ServerTls::new(&signed.certificate, &signed.key, None).unwrap();
        endpoint(&network, Some(tls), |_| http("200 OK", r#"{"access_token":"abc","expires_in":"60"}"#));
        let authorities = Some(folder.write("ca.pem", &trusted.pem()));
        let options = TlsOptions { authorities, and_platform: true, ..TlsOptions::default() };
        let tokens = oidc(&network, "https://idp:8443/token", None, options);
        if stranger {
            let error = refusal(&cluster, &doors, tokens).await;
            let text = error.to_string();
            assert!(text.contains("https://idp:8443/token: TLS: no trusted authority"), "{text}");
            continue;
        }
        let client = client(&cluster, &doors, tokens);
        assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoints_no_names_it_and_its_reason_and_never_the_secret() {
    let (cluster, doors) = start(&["abc"]);
    let network = cluster.network();
    endpoint(&network, None, |_| {
        let why = format!(r#"{{"error":"invalid_client","error_description":"no {SECRET} here"}}"#);
        http("401 Unauthorized", &why)
    });
    let error =
        refusal(&cluster, &doors, oidc(&network, "http://idp:8443/t?k=v", None, TlsOptions::default())).await;
    let text = error.to_string();
    assert!(text.contains("http://idp:8443/t: HTTP 401: invalid_client: no *** here"), "{text}");
    assert!(!text.contains("k=v") && !text.contains(SECRET), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_busy_or_away_is_asked_again() {
    let (cluster, doors) = start(&["abc"]);
    let network = cluster.network();
    let asked = endpoint(&network, None, |number| match number {
        1 => http("503 Service Unavailable", "<html>"),
        2 => http("429 Too Many Requests", r#"{"error":"slow_down"}"#),
        3 => String::new(),
        _ => http("200 OK", r#"{"access_token":"abc"}"#),
    });
    let tokens = oidc(&network, "http://idp:8443/token", None, TlsOptions::default());
    let client = client(&cluster, &doors, tokens);
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    assert_eq!(asked.lock().unwrap().len(), 4);
}
