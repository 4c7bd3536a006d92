//! Which listeners, users and certificates does a secure cluster have? One broker that clients reach in every way that
//! Kafka knows, with certificates made for it. (The tests' own plaintext listener stays for tools.)

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// User and password of PLAIN and of both SCRAMs.
pub(crate) const USER: (&str, &str) = ("alice", "open-sesame");
/// How long a proof counts: short, so that a run of some seconds sees it renewed.
const REAUTHENTICATE_MS: u32 = 3_000;
/// Listeners lie this far above the plaintext one.
const OFFSET: u16 = 1_000;

/// A listener beside the plaintext one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// SASL_SSL with every mechanism.
    Sasl,
    /// SSL that asks clients for a certificate.
    Mutual,
    /// SSL with a certificate that has expired.
    Expired,
    /// SSL with a certificate for another name.
    Elsewhere,
}

const LISTENERS: [Listener; 4] = [Listener::Sasl, Listener::Mutual, Listener::Expired, Listener::Elsewhere];

impl Listener {
    fn name(self) -> &'static str {
        match self {
            Listener::Sasl => "SASL",
            Listener::Mutual => "MUTUAL",
            Listener::Expired => "EXPIRED",
            Listener::Elsewhere => "ELSEWHERE",
        }
    }

    /// Its port, by that of the plaintext listener.
    pub(crate) fn port(self, plaintext: u16) -> u16 {
        let at = LISTENERS.iter().position(|listener| *listener == self).unwrap_or(0);
        plaintext.saturating_add(OFFSET).saturating_add(at as u16)
    }

    fn file(self) -> &'static str {
        match self {
            Listener::Sasl | Listener::Mutual => "server.pem",
            Listener::Expired => "expired.pem",
            Listener::Elsewhere => "elsewhere.pem",
        }
    }
}

/// Files of a secure cluster: `ca.pem`, `client.pem`, `client.key` and a client of a stranger, for its clients.
#[derive(Clone, Debug)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    /// Makes everything anew.
    pub(crate) fn make(folder: &Path) -> Result<Files, String> {
        let files = Files(folder.join("secure"));
        fs::create_dir_all(&files.0).map_err(|problem| format!("{}: {problem}", files.0.display()))?;
        let authority = Authority::new("Prosody tests")?;
        files.write("ca.pem", &authority.0.pem())?;
        let (next, stranger) = (Authority::new("Prosody tests, next year")?, Authority::new("a stranger")?);
        files.write("next-ca.pem", &next.0.pem())?;
        files.write("both-ca.pem", &format!("{}{}", authority.0.pem(), next.0.pem()))?;
        for (name, by, host, until) in [
            ("server", &authority, "127.0.0.1", 4_096),
            ("next-server", &next, "127.0.0.1", 4_096),
            ("expired", &authority, "127.0.0.1", 2_020),
            ("elsewhere", &authority, "kafka.example", 4_096),
            ("client", &authority, "client", 4_096),
            ("next-client", &authority, "client of next year", 4_096),
            ("stranger", &stranger, "client", 4_096),
        ] {
            let (certificate, key) = by.sign(host, until)?;
            // Kafka reads both from one file, ours from two.
            files.write(&format!("{name}.pem"), &format!("{key}{certificate}"))?;
            files.write(&format!("{name}.key"), &key)?;
        }
        Ok(files)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.0.join(name), text).map_err(|problem| format!("{name}: {problem}"))
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Result<Authority, String> {
        let failed = |why: rcgen::Error| format!("making a certificate: {why}");
        let mut params = CertificateParams::new(vec![]).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(failed)?;
        CertifiedIssuer::self_signed(params, key).map(Authority).map_err(failed)
    }

    /// A certificate for a host and its key, as PEM.
    fn sign(&self, host: &str, until: i32) -> Result<(String, String), String> {
        let failed = |why: rcgen::Error| format!("making a certificate: {why}");
        let mut params = CertificateParams::new(vec![host.to_owned()]).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, host);
        params.not_before = date_time_ymd(2_019, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.0).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// The setting that gives a listener another certificate while the broker runs.
pub(super) fn certificate_setting(listener: Listener, file: &str) -> String {
    format!("listener.name.{}.ssl.keystore.location={file}", listener.name().to_ascii_lowercase())
}

/// How to use the cluster, for people.
pub(super) fn guide(files: &Files, plaintext: u16) -> String {
    let (user, password) = USER;
    format!(
        "SASL_SSL 127.0.0.1:{} by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 as {user} / {password}, or OAUTHBEARER with an \
         unsecured JWT\nSSL 127.0.0.1:{} with client.pem and client.key\nSSL 127.0.0.1:{} has an expired certificate, \
         127.0.0.1:{} one for another name\ncertificates, ca.pem among them: {}",
        Listener::Sasl.port(plaintext),
        Listener::Mutual.port(plaintext),
        Listener::Expired.port(plaintext),
        Listener::Elsewhere.port(plaintext),
        files.0.display(),
    )
}

/// What `listeners` has beside the plaintext one.
pub(super) fn listeners(plaintext: u16) -> String {
    let one = |listener: &Listener| format!(",{}://127.0.0.1:{}", listener.name(), listener.port(plaintext));
    LISTENERS.iter().map(one).collect()
}

/// What `listener.security.protocol.map` has beside the others.
pub(super) const PROTOCOLS: &str = ",SASL:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL,ELSEWHERE:SSL";

/// The other lines of the configuration.
pub(super) fn properties(files: &Files) -> String {
    let (user, password) = USER;
    let mut lines = format!(
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n\
         connections.max.reauth.ms={REAUTHENTICATE_MS}\n\
         listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
         user_{user}=\"{password}\";\n\
         listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
         listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
         listener.name.sasl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.\
         OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";\n\
         listener.name.mutual.ssl.client.auth=required\n"
    );
    for listener in LISTENERS {
        let name = listener.name().to_ascii_lowercase();
        for (key, value) in [
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", files.path(listener.file())),
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", files.path("ca.pem")),
        ] {
            lines.push_str(&format!("listener.name.{name}.{key}={value}\n"));
        }
    }
    lines
}

/// What formatting the storage adds: users of SCRAM live in the log of the controllers.
pub(super) fn format_arguments() -> Vec<String> {
    let (user, password) = USER;
    let one = |mechanism: &str| format!("{mechanism}=[name={user},password={password}]");
    ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        .iter()
        .flat_map(|mechanism| ["--add-scram".to_owned(), one(mechanism)])
        .collect()
}
