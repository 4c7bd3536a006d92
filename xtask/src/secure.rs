//! Does a real Kafka let us in by every mechanism, and are we told why when it does not? Its listeners speak TLS, with
//! certificates made for the run, and end every session after seconds.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::kafka::{Cluster, Files, Listener, USER, Version};
use crate::leash::Leashed;
use crate::progress::doing;
use crate::real::Oracle;
use crate::report::Tally;
use crate::{run, setup};

const PORT: u16 = 19_592;
const RECORDS: usize = 2_000;
/// A refusal is one, not a timeout: it comes well before the client's own deadlines of 30 seconds.
const AT_ONCE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(120);
/// Life of a token: shorter than the run of one consumer, longer than Kafka's session.
const TOKEN_LIFE: u64 = 10;
/// Work under which sessions are renewed several times.
const LOADED: Duration = Duration::from_secs(12);

struct Stage {
    cluster: Cluster,
    files: Files,
    oracle: Oracle,
    produce: PathBuf,
    consume: PathBuf,
    endpoint: Endpoint,
}

type Scenario = fn(&mut Stage) -> Result<(), String>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("PLAIN, SCRAM, OAUTHBEARER and mTLS: records there and back", every_way_in),
    ("wrong credentials and certificates are refused at once, by name", every_refusal),
    ("sessions are renewed under load", renewed_under_load),
    ("certificates of the broker and of the client are replaced without a restart", rotation),
];

/// Runs every scenario on one cluster.
pub(crate) fn suite() -> Tally {
    if let Err(why) = setup::java() {
        return Tally::skipped(why);
    }
    let mut tally = Tally::default();
    let mut stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return Tally::failed(why),
    };
    for (name, scenario) in SCENARIOS {
        doing(&format!("secure Kafka: {name}"));
        let start = Instant::now();
        let result = scenario(&mut stage);
        tally.count(name, result.into(), start.elapsed());
    }
    tally
}

fn stage() -> Result<Stage, String> {
    let (produce, consume) =
        (run::example("produce", run::Profile::Dev)?, run::example("consume", run::Profile::Dev)?);
    let (cluster, files) = Cluster::start_secure(Version::named("4")?, PORT)?;
    let (oracle, endpoint) = (Oracle::of(&cluster)?, Endpoint::open()?);
    Ok(Stage { cluster, files, oracle, produce, consume, endpoint })
}

type Settings = Vec<(&'static str, String)>;

impl Stage {
    fn address(&self, listener: Listener) -> String {
        format!("127.0.0.1:{}", listener.port(self.cluster.first_port()))
    }

    fn by_password(&self, mechanism: &str, password: &str) -> Settings {
        vec![
            ("PROSODY_SECURITY_PROTOCOL", "sasl_ssl".to_owned()),
            ("PROSODY_SSL_CA_LOCATION", self.files.path("ca.pem")),
            ("PROSODY_SASL_MECHANISM", mechanism.to_owned()),
            ("PROSODY_SASL_USERNAME", USER.0.to_owned()),
            ("PROSODY_SASL_PASSWORD", password.to_owned()),
        ]
    }

    fn by_token(&self, secret: &str) -> Settings {
        vec![
            ("PROSODY_SECURITY_PROTOCOL", "sasl_ssl".to_owned()),
            ("PROSODY_SSL_CA_LOCATION", self.files.path("ca.pem")),
            ("PROSODY_SASL_MECHANISM", "OAUTHBEARER".to_owned()),
            ("PROSODY_SASL_OAUTH_TOKEN_ENDPOINT", format!("http://127.0.0.1:{}/token", self.endpoint.port)),
            ("PROSODY_SASL_OAUTH_CLIENT_ID", "me".to_owned()),
            ("PROSODY_SASL_OAUTH_CLIENT_SECRET", secret.to_owned()),
        ]
    }

    fn by_certificate(&self, name: &str, ca: &str) -> Settings {
        vec![
            ("PROSODY_SECURITY_PROTOCOL", "ssl".to_owned()),
            ("PROSODY_SSL_CA_LOCATION", self.files.path(ca)),
            ("PROSODY_SSL_CERTIFICATE_LOCATION", self.files.path(&format!("{name}.pem"))),
            ("PROSODY_SSL_KEY_LOCATION", self.files.path(&format!("{name}.key"))),
        ]
    }

    fn program(
        &self,
        path: &PathBuf,
        listener: Listener,
        settings: &Settings,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new(path);
        command.args(["--bootstrap", &self.address(listener)]).args(arguments);
        command.envs(settings.iter().map(|(name, value)| (*name, value.as_str()))).stdin(Stdio::null());
        command
    }

    /// Produces and consumes; every record has to come back once.
    fn round_trip(&self, topic: &str, listener: Listener, settings: &Settings) -> Result<(), String> {
        self.oracle.create(topic, 2)?;
        let count = RECORDS.to_string();
        let mut produce =
            self.program(&self.produce, listener, settings, &["--topic", topic, "--count", &count]);
        let sent = lines(&mut produce, topic)?;
        let group = format!("{topic}-group");
        let arguments = ["--topic", topic, "--group", &group, "--max", &count];
        let mut consume = self.program(&self.consume, listener, settings, &arguments);
        let seen = lines(&mut consume, topic)?;
        if sent.len() == RECORDS && sent == seen {
            return Ok(());
        }
        Err(format!("{topic}: {} records were acknowledged, {} came back", sent.len(), seen.len()))
    }

    /// Producing fails soon and says this.
    fn refused(&self, listener: Listener, settings: &Settings, wanted: &str) -> Result<(), String> {
        let arguments = ["--topic", "refused", "--count", "1"];
        let start = Instant::now();
        let ran =
            run::logged("secure-refused", &mut self.program(&self.produce, listener, settings, &arguments))?;
        if ran.ok || !ran.output.contains(wanted) {
            return Err(format!("wanted `{wanted}`, got: {}", ran.tail(5)));
        }
        if ran.output.contains("sesam") {
            return Err(format!("a secret was printed: {}", ran.tail(5)));
        }
        let took = start.elapsed();
        if took < AT_ONCE { Ok(()) } else { Err(format!("`{wanted}` took {took:?}")) }
    }
}

/// Topic, partition and offset of each line a program printed.
fn lines(command: &mut Command, topic: &str) -> Result<BTreeSet<(i64, i64)>, String> {
    let mut seen = BTreeSet::new();
    let log = std::fs::File::create(run::scratch("logs")?.join(format!("secure-{topic}.log")));
    command.stderr(log.map_err(|problem| problem.to_string())?);
    let ok = run::lines_of(command, |line| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let number = |field: &str| value.get(field).and_then(serde_json::Value::as_i64);
        if let (Some(partition), Some(offset)) = (number("partition"), number("offset")) {
            seen.insert((partition, offset));
        }
    })?;
    if ok { Ok(seen) } else { Err(format!("see target/xtask/logs/secure-{topic}.log")) }
}

fn every_way_in(stage: &mut Stage) -> Result<(), String> {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let settings = stage.by_password(mechanism, USER.1);
        stage.round_trip(&mechanism.to_ascii_lowercase(), Listener::Sasl, &settings)?;
    }
    stage.round_trip("oauthbearer", Listener::Sasl, &stage.by_token("open-sesame"))?;
    stage.round_trip("mtls", Listener::Mutual, &stage.by_certificate("client", "ca.pem"))
}

fn every_refusal(stage: &mut Stage) -> Result<(), String> {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let settings = stage.by_password(mechanism, "sesame-not");
        stage.refused(Listener::Sasl, &settings, "SASL_AUTHENTICATION_FAILED (58)")?;
    }
    stage.refused(Listener::Sasl, &stage.by_token("sesame-not"), "HTTP 401: invalid_client")?;
    stage.refused(
        Listener::Sasl,
        &stage.by_token("expired-open-sesame"),
        "it refuses the token: invalid_token",
    )?;
    let stranger = stage.by_certificate("stranger", "ca.pem");
    stage.refused(Listener::Mutual, &stranger, "the peer refuses this client's certificate")?;
    let trusting = |ca: &str| -> Settings {
        vec![
            ("PROSODY_SECURITY_PROTOCOL", "ssl".to_owned()),
            ("PROSODY_SSL_CA_LOCATION", stage.files.path(ca)),
        ]
    };
    stage.refused(Listener::Mutual, &trusting("ca.pem"), "certificate")?;
    stage.refused(
        Listener::Mutual,
        &trusting("next-ca.pem"),
        "no trusted authority signed the peer's certificate",
    )?;
    stage.refused(Listener::Expired, &trusting("ca.pem"), "the peer's certificate is not valid now")?;
    stage.refused(Listener::Elsewhere, &trusting("ca.pem"), "the peer's certificate is for another name")
}

/// Handles records for several sessions' time: brokers that get no new proof in time cut the connection, which costs a
/// line of the log each time.
fn renewed_under_load(stage: &mut Stage) -> Result<(), String> {
    for (topic, settings) in [
        ("load-scram", stage.by_password("SCRAM-SHA-512", USER.1)),
        ("load-oauth", stage.by_token("open-sesame")),
    ] {
        stage.oracle.create(topic, 2)?;
        let asked = stage.endpoint.asked();
        let group = format!("{topic}-group");
        let arguments = ["--topic", topic, "--group", &group];
        let log = run::scratch("logs")?.join(format!("secure-{topic}.log"));
        let mut consume = stage.program(&stage.consume, Listener::Sasl, &settings, &arguments);
        let file = std::fs::File::create(&log).map_err(|problem| problem.to_string())?;
        consume.stdout(Stdio::piped()).stderr(file);
        let mut member = Leashed::spawn(&mut consume)?;
        let pipe = member.child().stdout.take().ok_or("the pipe was just asked for")?;
        let counting = std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.filter(|line| line.contains("\"offset\"")).count()
        });
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < LOADED {
            let arguments = ["--topic", topic, "--count", "200"];
            let mut produce = stage.program(&stage.produce, Listener::Sasl, &settings, &arguments);
            let all = run::lines_of(&mut produce, |_| sent += 1)?;
            if !all {
                return Err(format!("{topic}: producing failed"));
            }
        }
        wait_for_end(stage, topic, &group)?;
        member.signal("TERM");
        let handled = counting.join().map_err(|_| "the count broke off")?;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if handled != sent || said.contains("cannot connect") || said.contains("closed the connection") {
            return Err(format!("{topic}: {sent} records sent, {handled} handled; see {}", log.display()));
        }
        // One token for each program, and at least one more for the member, whose first one did not live so long.
        if topic == "load-oauth" && stage.endpoint.asked() < asked + 3 {
            return Err("the token was never renewed".to_owned());
        }
    }
    Ok(())
}

fn wait_for_end(stage: &Stage, topic: &str, group: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut lag = None;
    while Instant::now() < deadline {
        lag = Some(stage.oracle.lag(group, topic)?);
        if lag == Some(0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(format!("{topic}: {lag:?} records are not committed"))
}

/// The broker gets a certificate of next year's authority, and the client another one of its own, while a member runs. It
/// uses them when it next dials: here because the broker is restarted.
fn rotation(stage: &mut Stage) -> Result<(), String> {
    let topic = "rotation";
    stage.oracle.create(topic, 2)?;
    for (from, to) in [("ca.pem", "trusted.pem"), ("client.pem", "used.pem"), ("client.key", "used.key")] {
        replace(stage, from, to)?;
    }
    let settings = stage.by_certificate("used", "trusted.pem");
    let group = format!("{topic}-group");
    let arguments = ["--topic", topic, "--group", &group];
    let mut consume = stage.program(&stage.consume, Listener::Mutual, &settings, &arguments);
    let log = std::fs::File::create(run::scratch("logs")?.join("secure-rotation.log"));
    consume.stdout(Stdio::null()).stderr(log.map_err(|problem| problem.to_string())?);
    let member = Leashed::spawn(&mut consume)?;
    send_some(stage, topic, &settings)?;
    wait_for_end(stage, topic, &group)?;
    for (from, to) in
        [("both-ca.pem", "trusted.pem"), ("next-client.pem", "used.pem"), ("next-client.key", "used.key")]
    {
        replace(stage, from, to)?;
    }
    stage.cluster.change_certificate(Listener::Mutual, &stage.files.path("next-server.pem"))?;
    let old = stage.by_certificate("client", "ca.pem");
    let untrusted = "no trusted authority signed the peer's certificate";
    // The broker takes its time to notice the new setting.
    let deadline = Instant::now() + PATIENCE;
    while let Err(why) = stage.refused(Listener::Mutual, &old, untrusted) {
        if Instant::now() > deadline {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    stage.cluster.stop_broker(0);
    stage.cluster.start_broker(0)?;
    send_some(stage, topic, &settings)?;
    wait_for_end(stage, topic, &group)?;
    member.signal("TERM");
    Ok(())
}

/// A file takes the place of another one at once, as whoever renews certificates should do it.
fn replace(stage: &Stage, from: &str, to: &str) -> Result<(), String> {
    let beside = stage.files.path(&format!("{to}.new"));
    std::fs::copy(stage.files.path(from), &beside)
        .and_then(|_| std::fs::rename(&beside, stage.files.path(to)))
        .map_err(|problem| format!("{from}: {problem}"))
}

fn send_some(stage: &Stage, topic: &str, settings: &Settings) -> Result<(), String> {
    let arguments = ["--topic", topic, "--count", "500"];
    let sent =
        run::lines_of(&mut stage.program(&stage.produce, Listener::Mutual, settings, &arguments), |_| {})?;
    if sent { Ok(()) } else { Err("producing failed".to_owned()) }
}

/// A token endpoint that knows one secret, and gives unsecured JWTs.
struct Endpoint {
    port: u16,
    asked: Arc<AtomicU32>,
}

impl Endpoint {
    fn open() -> Result<Endpoint, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|problem| problem.to_string())?;
        let port = listener.local_addr().map_err(|problem| problem.to_string())?.port();
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = answer(stream);
            }
        });
        Ok(Endpoint { port, asked })
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn answer(mut stream: std::net::TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut text, mut chunk) = (String::new(), [0; 4_096]);
    while !text.contains("grant_type=client_credentials") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            read => text.push_str(&String::from_utf8_lossy(chunk.get(..read).unwrap_or_default())),
        }
    }
    // `me:open-sesame`, and `me:expired-open-sesame`, in base64.
    let life = if text.contains("Basic bWU6b3Blbi1zZXNhbWU=") {
        Some(TOKEN_LIFE as i64)
    } else if text.contains("Basic bWU6ZXhwaXJlZC1vcGVuLXNlc2FtZQ==") {
        Some(-3_600)
    } else {
        None
    };
    let (status, body) = match life {
        None => ("401 Unauthorized", r#"{"error":"invalid_client"}"#.to_owned()),
        Some(life) => {
            let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() as i64);
            let claims = serde_json::json!({ "sub": "me", "iat": now - 7_200, "exp": now + life });
            let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let token = format!("{}.{}.", part(serde_json::json!({ "alg": "none" })), part(claims));
            let body =
                serde_json::json!({ "access_token": token, "expires_in": life.max(TOKEN_LIFE as i64) });
            ("200 OK", body.to_string())
        }
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
