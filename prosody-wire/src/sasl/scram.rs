//! How do both sides prove that they know a password without sending it? SCRAM (RFC 5802, RFC 7677), client side. Pure.
//!
//! ```text
//! Scram::first ─▶ n,,n=user,r=nonce
//!                 r=nonce+theirs,s=salt,i=count ─▶ Scram::challenged ─▶ Salting
//!                                                  Salting::advance, until it is done (the server chose how long)
//!                 c=biws,r=…,p=proof ◀─ Salting::finish
//!                 v=signature ─▶ Expected::check
//! ```
//!
//! Strict where the standard leaves room: a count outside of 4,096..=1,000,000 is refused, so that a hostile server can
//! neither get an easily guessed proof nor burn this process's time; optional extensions are read over, mandatory ones
//! refused.

use std::fmt;

use aws_lc_rs::{constant_time, digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::SaslMechanism;

/// Fewest iterations RFC 7677 and Kafka allow.
const LEAST_ITERATIONS: u32 = 4_096;
/// Most this client computes: about half a second of one core.
const MOST_ITERATIONS: u32 = 1_000_000;
/// Longest server message; Kafka's are 150 bytes.
const MESSAGE_BYTES: usize = 4_096;
/// Channel binding: none ("n,,").
const NO_BINDING: &str = "c=biws";

/// Why a server's message was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScramError {
    /// It is longer than 4,096 bytes.
    TooLong(usize),
    /// It is not UTF-8.
    NotText,
    /// An attribute is not where the standard puts it.
    Missing(char),
    /// It demands an extension this client does not know.
    Mandatory,
    /// The nonce does not begin with the one this client chose.
    ForeignNonce,
    /// The server added nothing to the nonce, or what no nonce may contain.
    NonceNotExtended,
    /// The salt is empty or not base64.
    Salt,
    /// The iteration count is not a number from 4,096 to 1,000,000.
    Iterations(String),
    /// There is something behind the last attribute that is no extension.
    Extra,
    /// The server says no, in its own words.
    Refused(String),
    /// The server's signature is not base64.
    Signature,
    /// The server does not know the password: it is not the one it claims to be.
    WrongSignature,
}

/// An exchange that has not begun.
#[derive(Debug)]
pub(crate) struct Scram {
    hash: Hash,
    /// `n=user,r=nonce`
    bare: String,
    nonce: String,
}

#[derive(Clone, Copy, Debug)]
struct Hash {
    hmac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
}

impl Hash {
    fn mac(self, key: &[u8], message: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(self.hmac, key), message)
    }
}

impl Scram {
    /// An exchange for `user`; `None` for a mechanism that is no SCRAM. `nonce`: printable, without commas, never used
    /// before.
    pub(crate) fn new(mechanism: SaslMechanism, user: &str, nonce: String) -> Option<Scram> {
        let hash = match mechanism {
            SaslMechanism::Plain => return None,
            SaslMechanism::ScramSha256 => Hash { hmac: hmac::HMAC_SHA256, digest: &digest::SHA256 },
            SaslMechanism::ScramSha512 => Hash { hmac: hmac::HMAC_SHA512, digest: &digest::SHA512 },
        };
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Some(Scram { hash, bare: format!("n={user},r={nonce}"), nonce })
    }

    /// The first message.
    pub(crate) fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.bare).into_bytes()
    }

    /// Takes the server's challenge.
    pub(crate) fn challenged(self, message: &[u8], password: &str) -> Result<Salting, ScramError> {
        let challenge = text(message)?;
        if challenge.starts_with("m=") {
            return Err(ScramError::Mandatory);
        }
        let mut attributes = challenge.splitn(4, ',');
        let nonce = attribute(attributes.next(), 'r')?;
        let added = nonce.strip_prefix(self.nonce.as_str()).ok_or(ScramError::ForeignNonce)?;
        if added.is_empty() || !added.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::NonceNotExtended);
        }
        let salt = BASE64.decode(attribute(attributes.next(), 's')?).map_err(|_| ScramError::Salt)?;
        if salt.is_empty() {
            return Err(ScramError::Salt);
        }
        let count = attribute(attributes.next(), 'i')?;
        let iterations = count
            .parse::<u32>()
            .ok()
            .filter(|count| (LEAST_ITERATIONS..=MOST_ITERATIONS).contains(count))
            .ok_or_else(|| ScramError::Iterations(count.chars().take(20).collect()))?;
        extensions(attributes.next())?;
        let key = hmac::Key::new(self.hash.hmac, password.as_bytes());
        let block = hmac::sign(&key, &[salt.as_slice(), &[0, 0, 0, 1]].concat()).as_ref().to_vec();
        let last = format!("{NO_BINDING},r={nonce}");
        Ok(Salting {
            hash: self.hash,
            key,
            salted: block.clone(),
            block,
            left: iterations - 1,
            authenticated: format!("{},{challenge},{last}", self.bare),
            last,
        })
    }
}

/// PBKDF2 with one block (RFC 5802's `Hi`), a piece at a time so that its caller can let others run.
pub(crate) struct Salting {
    hash: Hash,
    key: hmac::Key,
    block: Vec<u8>,
    salted: Vec<u8>,
    left: u32,
    authenticated: String,
    last: String,
}

impl Salting {
    /// Computes at most `iterations` more; `true` when all are done.
    pub(crate) fn advance(&mut self, iterations: u32) -> bool {
        for _ in 0..iterations.min(self.left) {
            let next = hmac::sign(&self.key, &self.block);
            self.block.copy_from_slice(next.as_ref());
            for (salted, byte) in self.salted.iter_mut().zip(&self.block) {
                *salted ^= byte;
            }
        }
        self.left = self.left.saturating_sub(iterations);
        self.left == 0
    }

    /// [`Salting::finish`] without the work, for fuzzers.
    #[cfg(feature = "internals")]
    pub(crate) fn finish_early(mut self) -> (Vec<u8>, Expected) {
        self.left = 0;
        self.finish()
    }

    /// The proof, and what the server must answer. Completes what is left.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Expected) {
        self.advance(self.left);
        let hash = self.hash;
        let client_key = hash.mac(&self.salted, b"Client Key");
        let stored_key = digest::digest(hash.digest, client_key.as_ref());
        let signature = hash.mac(stored_key.as_ref(), self.authenticated.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, byte)| key ^ byte).collect();
        let server_key = hash.mac(&self.salted, b"Server Key");
        let signature = hash.mac(server_key.as_ref(), self.authenticated.as_bytes());
        let last = format!("{},p={}", self.last, BASE64.encode(proof));
        (last.into_bytes(), Expected(signature.as_ref().to_vec()))
    }
}

/// The signature of a server that knows the password.
pub(crate) struct Expected(Vec<u8>);

impl Expected {
    /// What a server that knows the password answers.
    #[cfg(feature = "internals")]
    pub(crate) fn message(&self) -> Vec<u8> {
        format!("v={}", BASE64.encode(&self.0)).into_bytes()
    }

    /// Takes the server's last message.
    pub(crate) fn check(&self, message: &[u8]) -> Result<(), ScramError> {
        let message = text(message)?;
        let mut attributes = message.splitn(2, ',');
        let first = attributes.next();
        if let Ok(refused) = attribute(first, 'e') {
            return Err(ScramError::Refused(refused.chars().take(100).collect()));
        }
        let signature = BASE64.decode(attribute(first, 'v')?).map_err(|_| ScramError::Signature)?;
        extensions(attributes.next())?;
        constant_time::verify_slices_are_equal(&signature, &self.0).map_err(|_| ScramError::WrongSignature)
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES {
        return Err(ScramError::TooLong(message.len()));
    }
    std::str::from_utf8(message).map_err(|_| ScramError::NotText)
}

fn attribute(part: Option<&str>, name: char) -> Result<&str, ScramError> {
    let value = part.and_then(|part| part.strip_prefix(name)).and_then(|rest| rest.strip_prefix('='));
    value.ok_or(ScramError::Missing(name))
}

fn extensions(rest: Option<&str>) -> Result<(), ScramError> {
    let known = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|name| name.is_ascii_alphabetic()) && chars.next() == Some('=')
    };
    if rest.is_none_or(|rest| rest.split(',').all(known)) { Ok(()) } else { Err(ScramError::Extra) }
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SCRAM: ")?;
        match self {
            ScramError::TooLong(bytes) => {
                write!(f, "the server's message of {bytes} bytes is over the limit of {MESSAGE_BYTES}")
            }
            ScramError::NotText => f.write_str("the server's message is not UTF-8"),
            ScramError::Missing(name) => write!(f, "the server's message lacks its attribute {name}="),
            ScramError::Mandatory => f.write_str("the server demands an unknown extension"),
            ScramError::ForeignNonce => f.write_str("the server's nonce does not begin with ours"),
            ScramError::NonceNotExtended => f.write_str("the server added nothing proper to the nonce"),
            ScramError::Salt => f.write_str("the salt is empty or not base64"),
            ScramError::Iterations(count) => write!(
                f,
                "the server asks for `{count}` iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} are computed"
            ),
            ScramError::Extra => f.write_str("the server's message goes on behind its last attribute"),
            ScramError::Refused(why) => write!(f, "the server says `{why}`"),
            ScramError::Signature => f.write_str("the server's signature is not base64"),
            ScramError::WrongSignature => {
                f.write_str("the server's signature is wrong: it does not know the password")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const CHALLENGE: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn scram(user: &str) -> Scram {
        Scram::new(SaslMechanism::ScramSha256, user, NONCE.to_owned()).unwrap()
    }

    fn refused(challenge: &str) -> ScramError {
        scram("user").challenged(challenge.as_bytes(), "pencil").map(|_| ()).unwrap_err()
    }

    #[test]
    fn the_example_of_rfc_7677_comes_out() {
        let scram = scram("user");
        assert_eq!(scram.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let mut salting = scram.challenged(CHALLENGE.as_bytes(), "pencil").unwrap();
        assert!(!salting.advance(4_000) && salting.advance(96));
        let (last, expected) = salting.finish();
        let wanted = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(last).unwrap(), wanted);
        expected.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        assert_eq!(
            expected.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="),
            Err(ScramError::Signature)
        );
        assert_eq!(
            expected.check(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
            Err(ScramError::WrongSignature)
        );
        assert_eq!(expected.check(b"v="), Err(ScramError::WrongSignature));
        assert_eq!(expected.check(b"e=invalid-proof"), Err(ScramError::Refused("invalid-proof".into())));
        assert_eq!(expected.check(b""), Err(ScramError::Missing('v')));
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(scram("a=b,c").first(), b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO");
    }

    #[test]
    fn every_rule_of_a_challenge_is_kept() {
        let ours = |rest: &str| format!("r={NONCE}{rest}");
        assert_eq!(refused("m=new,r=x"), ScramError::Mandatory);
        assert_eq!(refused("s=AAAA,i=4096"), ScramError::Missing('r'));
        assert_eq!(refused("r=another,s=AAAA,i=4096"), ScramError::ForeignNonce);
        assert_eq!(refused(&ours(",s=AAAA,i=4096")), ScramError::NonceNotExtended);
        assert_eq!(refused(&ours("a\u{7f},s=AAAA,i=4096")), ScramError::NonceNotExtended);
        assert_eq!(refused(&ours("a,i=4096,s=AAAA")), ScramError::Missing('s'));
        assert_eq!(refused(&ours("a,s=A*AA,i=4096")), ScramError::Salt);
        assert_eq!(refused(&ours("a,s=,i=4096")), ScramError::Salt);
        assert_eq!(refused(&ours("a,s=AAAA")), ScramError::Missing('i'));
        for count in ["0", "4095", "1000001", "99999999999", "-1", "x", ""] {
            let count = count.to_owned();
            assert_eq!(refused(&ours(&format!("a,s=AAAA,i={count}"))), ScramError::Iterations(count));
        }
        assert_eq!(refused(&ours("a,s=AAAA,i=4096,x")), ScramError::Extra);
        assert_eq!(refused(&"r".repeat(5_000)), ScramError::TooLong(5_000));
        let extended = ours("a,s=AAAA,i=4096,x=1,y=2");
        assert!(scram("user").challenged(extended.as_bytes(), "p").is_ok(), "optional extensions");
        let bytes = scram("user").challenged(&[0xff], "p").map(|_| ());
        assert_eq!(bytes, Err(ScramError::NotText));
    }
}
