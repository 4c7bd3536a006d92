//! Who is at the other end of a connection? Users, and how they prove who they are.
//!
//! PLAIN (RFC 4616) and SCRAM (RFC 5802), server side; `bearer.rs` has OAUTHBEARER. Gaps: passwords are kept as they are, not salted once, and
//! authorization ids are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prosody_base::Instant;

use super::bearer;

/// What a listener that wants to know its clients accepts.
#[derive(Clone, Debug)]
pub struct ServerSasl {
    /// Mechanisms it offers. Default: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`; `OAUTHBEARER` is the fourth it knows.
    pub mechanisms: Vec<String>,
    /// Passwords by user.
    pub users: BTreeMap<String, String>,
    /// Tokens that OAUTHBEARER accepts as they are. When empty, the default, it accepts unsecured JWTs that have a
    /// subject and have not expired.
    pub tokens: BTreeSet<String>,
    /// Iterations it asks SCRAM clients for. Default 4,096.
    pub iterations: NonZeroU32,
    /// How long a proof counts (KIP-368); afterwards the next request closes the connection. Default zero: for ever.
    pub session_lifetime: Duration,
}

impl ServerSasl {
    /// Defaults with these users and passwords.
    pub fn new<'a>(users: impl IntoIterator<Item = (&'a str, &'a str)>) -> ServerSasl {
        ServerSasl {
            mechanisms: ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].map(str::to_owned).to_vec(),
            users: users.into_iter().map(|(user, password)| (user.to_owned(), password.to_owned())).collect(),
            tokens: BTreeSet::new(),
            iterations: NonZeroU32::MIN.saturating_add(4_095),
            session_lifetime: Duration::ZERO,
        }
    }
}

/// How far a connection has come.
#[derive(Debug, Default)]
pub(crate) struct Login {
    /// Until when an earlier proof counts: outer `None` without one, inner `None` for ever.
    pub(crate) known: Option<Option<Instant>>,
    pub(crate) step: Step,
}

/// The exchange that is under way.
#[derive(Debug, Default)]
pub(crate) enum Step {
    #[default]
    Idle,
    Chosen(Mechanism),
    Challenged(Challenge),
    /// A token was refused; the client still has to say that it heard.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mechanism {
    Plain,
    Sha256,
    Sha512,
    Bearer,
}

impl Mechanism {
    pub(crate) fn named(name: &str) -> Option<Mechanism> {
        match name {
            "PLAIN" => Some(Mechanism::Plain),
            "SCRAM-SHA-256" => Some(Mechanism::Sha256),
            "SCRAM-SHA-512" => Some(Mechanism::Sha512),
            "OAUTHBEARER" => Some(Mechanism::Bearer),
            _ => None,
        }
    }
}

impl Login {
    /// Whether a request that is no part of an exchange may be served.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        matches!(self.step, Step::Idle)
            && self.known.is_some_and(|until| until.is_none_or(|until| now < until))
    }
}

/// What a client's message leads to; `Err` refuses it.
pub(crate) enum Reply {
    /// The client is who it claims to be, for at most so long.
    Known(Vec<u8>, Option<Duration>),
    /// Another message is wanted.
    More(Vec<u8>, Step),
}

/// A SCRAM exchange whose challenge was sent.
#[derive(Debug)]
pub(crate) struct Challenge {
    mechanism: Mechanism,
    /// `client-first-message-bare,server-first-message,`
    so_far: String,
    nonce: String,
    salted: Vec<u8>,
}

/// Takes the first message of an exchange. `nonce` is the server's part, `now` milliseconds since 1970.
pub(crate) fn begin(
    config: &ServerSasl,
    mechanism: Mechanism,
    message: &[u8],
    nonce: u64,
    now: i64,
) -> Result<Reply, &'static str> {
    let message = std::str::from_utf8(message).map_err(|_| "not UTF-8")?;
    if let Mechanism::Bearer = mechanism {
        return Ok(match bearer::accept(&config.tokens, message, now) {
            Ok(life) => Reply::Known(Vec::new(), life),
            Err(why) => Reply::More(bearer::REFUSAL.to_vec(), Step::Refused(why)),
        });
    }
    if let Mechanism::Plain = mechanism {
        let mut parts = message.split('\0').skip(1);
        let (Some(user), Some(password), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err("three parts wanted");
        };
        let known = config.users.get(user).is_some_and(|known| known == password);
        return if known { Ok(Reply::Known(Vec::new(), None)) } else { Err("invalid credentials") };
    }
    let (_, bare) = message
        .strip_prefix("n,")
        .and_then(|rest| rest.split_once(','))
        .ok_or("a header without channel binding wanted")?;
    let mut attributes = bare.split(',');
    let user = attributes.next().and_then(|part| part.strip_prefix("n=")).ok_or("a user wanted")?;
    let theirs = attributes.next().and_then(|part| part.strip_prefix("r=")).ok_or("a nonce wanted")?;
    let user = user.replace("=2C", ",").replace("=3D", "=");
    let password = config.users.get(&user).ok_or("invalid credentials")?;
    let salt = digest::digest(&digest::SHA256, user.as_bytes());
    let algorithm = match mechanism {
        Mechanism::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        _ => pbkdf2::PBKDF2_HMAC_SHA256,
    };
    let mut salted = vec![0; if let Mechanism::Sha512 = mechanism { 64 } else { 32 }];
    pbkdf2::derive(algorithm, config.iterations, salt.as_ref(), password.as_bytes(), &mut salted);
    let nonce = format!("{theirs}{nonce:016x}");
    let challenge = format!("r={nonce},s={},i={}", BASE64.encode(salt), config.iterations);
    let so_far = format!("{bare},{challenge},");
    let step = Step::Challenged(Challenge { mechanism, so_far, nonce, salted });
    Ok(Reply::More(challenge.into_bytes(), step))
}

/// Takes the proof.
pub(crate) fn finish(challenge: &Challenge, message: &[u8]) -> Result<Vec<u8>, &'static str> {
    let message = std::str::from_utf8(message).map_err(|_| "not UTF-8")?;
    let (unproven, proof) = message.rsplit_once(",p=").ok_or("a proof wanted")?;
    if unproven != format!("c=biws,r={}", challenge.nonce) {
        return Err("the nonce is another one");
    }
    let proof = BASE64.decode(proof).map_err(|_| "the proof is not base64")?;
    let (mac, hash) = match challenge.mechanism {
        Mechanism::Sha512 => (hmac::HMAC_SHA512, &digest::SHA512),
        _ => (hmac::HMAC_SHA256, &digest::SHA256),
    };
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(mac, key), text);
    let text = format!("{}{unproven}", challenge.so_far);
    let stored = digest::digest(hash, sign(&challenge.salted, b"Client Key").as_ref());
    let signature = sign(stored.as_ref(), text.as_bytes());
    let key: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(proof, byte)| proof ^ byte).collect();
    if proof.len() != signature.as_ref().len() || digest::digest(hash, &key).as_ref() != stored.as_ref() {
        return Err("invalid credentials");
    }
    let server = sign(sign(&challenge.salted, b"Server Key").as_ref(), text.as_bytes());
    Ok(format!("v={}", BASE64.encode(server)).into_bytes())
}
