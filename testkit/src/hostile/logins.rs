//! What can a peer do while TLS and SASL are not through: alerts, half handshakes, forged challenges?

use super::peers::token;
use super::{Attack, Move, Row};

/// The password of the client under attack. No error may show it.
pub const PASSWORD: &str = "open-sesame";

fn tls(name: &'static str, bytes: Vec<u8>, text: &'static str) -> Row {
    Row { name, attack: Attack::TlsPeer(vec![Move::Blurt(bytes)]), text }
}

/// A TLS record.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// SaslHandshake v1: no error, no mechanisms listed.
pub(super) fn shaken() -> Move {
    Move::Answer(vec![0; 6])
}

pub(super) fn sasl(name: &'static str, mechanism: &'static str, moves: Vec<Move>, text: &'static str) -> Row {
    let moves = [vec![Move::HelloLogin], moves].concat();
    Row { name, attack: Attack::SaslPeer(mechanism, moves), text }
}

/// SaslAuthenticate v0: refused, with this text.
pub(super) fn said(text: &str) -> Vec<u8> {
    [&[0, 58][..], &(text.len() as i16).to_be_bytes(), text.as_bytes(), &[0; 4]].concat()
}

fn challenge(name: &'static str, make: fn(&str) -> String, text: &'static str) -> Row {
    sasl(name, "SCRAM-SHA-256", vec![shaken(), Move::Challenge(make)], text)
}

/// A good challenge, and then this.
fn last(name: &'static str, message: &str, text: &'static str) -> Row {
    let good: fn(&str) -> String = |nonce| format!("r={nonce}x,s=c2FsdA==,i=4096");
    let moves = vec![shaken(), Move::Challenge(good), Move::Answer(token(message.as_bytes()))];
    sasl(name, "SCRAM-SHA-512", moves, text)
}

pub(super) fn rows() -> Vec<Row> {
    let alert = |description| record(0x15, &[2, description]);
    vec![
        tls("tls: hangs up", Vec::new(), "perhaps its listener is plaintext"),
        tls("tls: cut handshake", record(0x16, &[2, 0, 0, 70, 3, 3])[..9].to_vec(), "TLS: the peer closed"),
        tls("tls: HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak TLS"),
        tls("tls: alert handshake_failure", alert(40), "nothing in common: alert HandshakeFailure"),
        tls("tls: alert unrecognized_name", alert(112), "nothing in common: alert UnrecognisedName"),
        tls(
            "tls: alert unknown_ca",
            alert(48),
            "refuses this client's certificate, or that it has none: alert UnknownCA",
        ),
        tls("tls: alert certificate_required", alert(116), "wants a client certificate"),
        tls("tls: alert internal_error", alert(80), "TLS: alert InternalError"),
        tls(
            "tls: record over its limit",
            [&[0x16, 3, 3, 0xff, 0xff][..], &[0; 64]].concat(),
            "TLS: received corrupt message of type MessageTooLarge",
        ),
        tls(
            "tls: handshake message of 16 MiB",
            record(0x16, &[2, 0xff, 0xff, 0xff, 3, 3]),
            "TLS: received corrupt message of type HandshakePayloadTooLarge",
        ),
        tls(
            "tls: data before the handshake",
            record(0x17, &[0; 32]),
            "TLS: received unexpected message: got ApplicationData",
        ),
        sasl(
            "sasl: mechanism refused",
            "SCRAM-SHA-256",
            vec![Move::Answer(vec![0, 33, 0, 0, 0, 1, 0, 1, b'X'])],
            "UNSUPPORTED_SASL_MECHANISM (33): the broker offers X",
        ),
        sasl(
            "sasl: mechanism count",
            "SCRAM-SHA-256",
            vec![Move::Answer(vec![0, 0, 0x7f, 0xff, 0xff, 0xff])],
            "field mechanisms",
        ),
        sasl(
            "sasl: the password comes back",
            "PLAIN",
            vec![shaken(), Move::Answer(said("no open-sesame here"))],
            "SASL_AUTHENTICATION_FAILED (58): no *** here",
        ),
        sasl(
            "sasl: silence",
            "PLAIN",
            vec![shaken(), Move::Silence],
            "SaslAuthenticate: authenticating user `user` by PLAIN at peer:9092: no answer in time",
        ),
        sasl(
            "sasl: silence at once",
            "PLAIN",
            vec![Move::Silence],
            "SaslHandshake: authenticating user `user` by PLAIN at peer:9092: no answer in time",
        ),
        Row {
            name: "sasl: nobody asked",
            attack: Attack::Peer(vec![Move::Hello, Move::RawThenClose(Vec::new())]),
            text: "perhaps this listener asks who its clients are (SASL)",
        },
        sasl(
            "sasl: token length",
            "PLAIN",
            vec![shaken(), Move::Answer(vec![0, 0, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff])],
            "field auth_bytes",
        ),
        challenge(
            "scram: oversize token",
            |_| "r".repeat(1 << 20),
            "message of 1048576 bytes is over the limit",
        ),
        challenge("scram: empty", |_| String::new(), "lacks its attribute r="),
        challenge(
            "scram: mandatory extension",
            |nonce| format!("m=x,r={nonce}x"),
            "demands an unknown extension",
        ),
        challenge("scram: other nonce", |_| "r=x,s=c2FsdA==,i=4096".into(), "nonce does not begin with ours"),
        challenge(
            "scram: nonce not extended",
            |nonce| format!("r={nonce},s=c2FsdA==,i=4096"),
            "added nothing",
        ),
        challenge(
            "scram: nonce with a space",
            |nonce| format!("r={nonce}x y,s=c2FsdA==,i=4096"),
            "added nothing",
        ),
        challenge("scram: no salt", |nonce| format!("r={nonce}x,i=4096"), "lacks its attribute s="),
        challenge(
            "scram: salt not base64",
            |nonce| format!("r={nonce}x,s=?,i=4096"),
            "the salt is empty or not",
        ),
        challenge("scram: salt empty", |nonce| format!("r={nonce}x,s=,i=4096"), "the salt is empty or not"),
        challenge("scram: no count", |nonce| format!("r={nonce}x,s=c2FsdA=="), "lacks its attribute i="),
        challenge(
            "scram: no iterations",
            |nonce| format!("r={nonce}x,s=c2FsdA==,i=0"),
            "asks for `0` iterations",
        ),
        challenge(
            "scram: one iteration too few",
            |nonce| format!("r={nonce}x,s=c2FsdA==,i=4095"),
            "asks for `4095` iterations",
        ),
        challenge(
            "scram: iterations without end",
            |nonce| format!("r={nonce}x,s=c2FsdA==,i=4294967295"),
            "asks for `4294967295` iterations",
        ),
        challenge("scram: extra data", |nonce| format!("r={nonce}x,s=c2FsdA==,i=4096,?"), "behind its last"),
        last("scram: wrong signature", "v=c2lnbmF0dXJl", "it does not know the password"),
        last("scram: signature not base64", "v=?", "signature is not base64"),
        last("scram: no signature", "w=c2lnbmF0dXJl", "lacks its attribute v="),
        last("scram: refusal inside", "e=unknown-user", "the server says `unknown-user`"),
        last("scram: extra data behind the signature", "v=c2lnbmF0dXJl,", "behind its last"),
    ]
}
