#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]
//! Does every bad input of the hostile table end in its named error, in a process that may use 512 MiB?
//!
//! Each row runs in a child of its own: this test binary again, under a limit of its address space, with the row's name
//! in the environment. A panic, an abort, a hang or an allocation beyond the limit fails the row.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prosody_base::{Doors, Network};
use prosody_testkit::hostile::{Attack, Move, PASSWORD, Row, attack_broker, play, rows};
use prosody_wire::batch::{BatchLimits, Batches, BufferPool, Decompressor};
use prosody_wire::{
    Client, ClientConfig, ClientCredentials, ClientCredentialsConfig, Connector, Credentials, FixedToken,
    PipeConnector, Sasl, SaslMechanism, Secret, TlsConnector, TlsOptions, Token, internals,
};

const ROW: &str = "PROSODY_HOSTILE_ROW";
const LIMIT_KIB: u32 = 512 << 10;
/// Rows that run at once.
const AT_ONCE: usize = 3;
/// How long a peer that says nothing is waited for, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(45);

#[test]
fn every_row_ends_in_its_named_error() {
    let rows = rows();
    let mut failed = Vec::new();
    for some in rows.chunks(AT_ONCE) {
        let children: Vec<Child> = some.iter().map(start).collect();
        for (row, child) in some.iter().zip(children) {
            let output = child.wait_with_output().expect("the child ends");
            let text = String::from_utf8_lossy(&output.stdout);
            let said = text.lines().find_map(|line| line.split_once("ROW ").map(|(_, said)| said));
            let said = said.unwrap_or("nothing");
            if !output.status.success() || !said.starts_with("error ") || !said.contains(row.text) {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let last = stderr.lines().last().unwrap_or_default();
                failed.push(format!(
                    "{}: wanted \"{}\", got {}: {said} {last}",
                    row.name, row.text, output.status
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {} rows:\n{}", failed.len(), rows.len(), failed.join("\n"));
}

fn start(row: &Row) -> Child {
    let program = std::env::current_exe().expect("this test has a file");
    // The shell sets the limit, so that no unsafe call is needed here.
    Command::new("sh")
        .args(["-c", &format!("ulimit -v {LIMIT_KIB} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--exact", "one_row", "--nocapture", "--test-threads=1"])
        .env(ROW, row.name)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh starts")
}

/// What a child does. Without a row in the environment there is nothing to do.
#[test]
fn one_row() {
    let Ok(name) = std::env::var(ROW) else { return };
    let row = rows().into_iter().find(|row| row.name == name).expect("a row of the table");
    match attack(row.attack) {
        Ok(()) => println!("\nROW accepted"),
        Err(error) => println!("\nROW error {error}"),
    }
}

fn attack(attack: Attack) -> Result<(), String> {
    match attack {
        Attack::Records(bytes) => records(bytes.into()),
        Attack::Bomb(make) => records(make().into()),
        Attack::Peer(moves) => peer(moves, Speaks::Plain),
        Attack::TlsPeer(moves) => peer(moves, Speaks::Tls),
        Attack::SaslPeer(mechanism, moves) => {
            let said = peer(moves, Speaks::Sasl(mechanism));
            assert!(!format!("{said:?}").contains(PASSWORD), "{said:?}");
            said
        }
        Attack::TokenEndpoint(moves) => {
            let said = peer(vec![Move::HelloLogin], Speaks::Endpoint(moves));
            assert!(!format!("{said:?}").contains(PASSWORD), "{said:?}");
            said
        }
        Attack::Body { api, version, body } => {
            internals::response(api, version, &Bytes::from(body)).map_err(|error| error.to_string())
        }
        Attack::Subscription(bytes) => internals::subscription(&bytes).map_err(|error| error.to_string()),
        Attack::Assignment(bytes) => internals::assignment(&bytes).map_err(|error| error.to_string()),
        Attack::Client(bytes) => broker(&bytes),
        Attack::ClientBomb(make) => broker(&make()),
    }
}

/// The broker of the testkit is not to be brought down either.
fn broker(bytes: &[u8]) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(attack_broker(bytes))
}

fn records(bytes: Bytes) -> Result<(), String> {
    let mut decompressor = Decompressor::new(BufferPool::new(1 << 20));
    for raw in Batches::new(bytes, BatchLimits::default()) {
        let batch = raw.map_err(|error| error.to_string())?;
        let batch = batch.open(&mut decompressor).map_err(|error| error.to_string())?;
        for record in batch.records() {
            record.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// What the client does before it asks anything.
enum Speaks {
    Plain,
    Tls,
    Sasl(&'static str),
    /// Asks a token endpoint that does this.
    Endpoint(Vec<Move>),
}

fn serve(network: &Network, address: &str, moves: Vec<Move>) {
    let mut listener = network.listen(address).unwrap();
    let moves = Arc::new(moves);
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let moves = moves.clone();
            tokio::spawn(async move { play(stream, &moves).await });
        }
    });
}

/// A client whose only broker is the peer.
fn peer(moves: Vec<Move>, speaks: Speaks) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async move {
        let network = Network::default();
        serve(&network, "peer:9092", moves);
        let mut config = ClientConfig::new(["peer:9092"]);
        let pipes: Arc<dyn Connector> = Arc::new(PipeConnector(network.clone()));
        let connector = match speaks {
            Speaks::Plain => pipes,
            Speaks::Tls => Arc::new(TlsConnector::new(pipes, TlsOptions::default()).unwrap()),
            Speaks::Sasl("OAUTHBEARER") => {
                config.sasl = Some(Arc::new(Sasl::Bearer(Arc::new(FixedToken(Token::new(PASSWORD))))));
                pipes
            }
            Speaks::Endpoint(moves) => {
                serve(&network, "endpoint:80", moves);
                let oauth = ClientCredentialsConfig {
                    endpoint: "http://endpoint:80/token".to_owned(),
                    client_id: "me".to_owned(),
                    client_secret: Secret::new(PASSWORD),
                    scope: None,
                };
                let oauth = ClientCredentials::new(oauth, pipes.clone(), TlsOptions::default()).unwrap();
                config.sasl = Some(Arc::new(Sasl::Bearer(Arc::new(oauth))));
                pipes
            }
            Speaks::Sasl(name) => {
                let all = [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512];
                let mechanism = all.into_iter().find(|mechanism| mechanism.name() == name).unwrap();
                let (user, password) = ("user".to_owned(), Secret::new(PASSWORD));
                config.sasl = Some(Arc::new(Sasl::Password(Credentials { mechanism, user, password })));
                pipes
            }
        };
        let client = Client::new(config, connector, Doors::simulated(1)).unwrap();
        internals::topic(&client, "t", PATIENCE).await.map_err(|error| error.to_string())
    })
}
