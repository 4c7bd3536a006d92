//! What can a token endpoint do to a client, and a broker to its token?

use super::logins::{said, sasl, shaken};
use super::peers::token;
use super::{Attack, Move, PASSWORD, Row};

fn endpoint(name: &'static str, answer: impl Into<Vec<u8>>, text: &'static str) -> Row {
    Row { name, attack: Attack::TokenEndpoint(vec![Move::Blurt(answer.into())]), text }
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn bearer(name: &'static str, moves: Vec<Move>, text: &'static str) -> Row {
    sasl(name, "OAUTHBEARER", moves, text)
}

pub(super) fn rows() -> Vec<Row> {
    let ok = |body: &str| answer("200 OK", body);
    let long = "x".repeat(300_000);
    vec![
        endpoint("token: hangs up", "", "connection closed before message completed"),
        endpoint("token: no HTTP", [0x16, 3, 3, 0, 1, 0], "invalid HTTP"),
        endpoint("token: other version", "HTTP/9.9 200 OK\r\n\r\n", "invalid HTTP version"),
        endpoint("token: status", "HTTP/1.1 9 OK\r\n\r\n", "invalid HTTP status"),
        endpoint(
            "token: header without end",
            format!("HTTP/1.1 200 OK\r\na: {long}"),
            "message head is too large",
        ),
        endpoint(
            "token: headers without end",
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200)),
            "message head is too large",
        ),
        endpoint("token: endless body", answer("200 OK", &long), "its answer is longer than 65536 bytes"),
        endpoint(
            "token: claimed body",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n{}",
            "message head is too large",
        ),
        endpoint(
            "token: absurd chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
            "error reading a body",
        ),
        endpoint(
            "token: two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            "invalid content-length parsed",
        ),
        endpoint("token: cut body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "error reading a body"),
        endpoint("token: no JSON", ok("<html>sign in</html>"), "its answer holds no `access_token`"),
        endpoint("token: deep JSON", ok(&"[".repeat(60_000)), "its answer holds no `access_token`"),
        endpoint("token: not a text", ok(r#"{"access_token":7}"#), "its answer holds no `access_token`"),
        endpoint("token: empty", ok(r#"{"access_token":""}"#), "gave a token of 0 bytes"),
        endpoint(
            "token: another message inside",
            ok(r#"{"access_token":"a\u0001auth=Bearer b"}"#),
            "gave a token with characters that are not printable ASCII",
        ),
        endpoint(
            "token: redirect",
            "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
            "http://endpoint:80/token: HTTP 302",
        ),
        endpoint(
            "token: the secret comes back",
            answer(
                "401 Unauthorized",
                &format!(r#"{{"error":"invalid_client","error_description":"{PASSWORD}\n!"}}"#),
            ),
            "HTTP 401: invalid_client: ***!",
        ),
        endpoint(
            "token: endless reason",
            answer("400 Bad Request", &format!(r#"{{"error":"{}"}}"#, "e".repeat(60_000))),
            "HTTP 400: eeeeeeee",
        ),
        Row {
            name: "token: silence",
            attack: Attack::TokenEndpoint(vec![Move::Silence]),
            text: "no token: its provider did not answer within 10s",
        },
        bearer(
            "oauth: refused in JSON",
            vec![shaken(), Move::Answer(token(br#"{"status":"invalid_token","scope":"kafka"}"#))],
            "SASL_AUTHENTICATION_FAILED (58): it refuses the token: invalid_token; scope kafka",
        ),
        bearer(
            "oauth: the token comes back",
            vec![shaken(), Move::Answer(token(PASSWORD.as_bytes()))],
            "it refuses the token: ***",
        ),
        bearer(
            "oauth: the token comes back in an error",
            vec![shaken(), Move::Answer(said("not open-sesame"))],
            "SASL_AUTHENTICATION_FAILED (58): not ***",
        ),
        bearer(
            "oauth: endless refusal",
            vec![shaken(), Move::Answer(token(&[b'['; 1 << 20]))],
            "it refuses the token: [[[[",
        ),
        bearer(
            "oauth: mechanism refused",
            vec![Move::Answer(vec![0, 33, 0, 0, 0, 1, 0, 5, b'P', b'L', b'A', b'I', b'N'])],
            "authenticating by OAUTHBEARER at peer:9092: the broker answered UNSUPPORTED_SASL_MECHANISM (33): the \
             broker offers PLAIN",
        ),
        bearer(
            "oauth: silence",
            vec![shaken(), Move::Silence],
            "SaslAuthenticate: authenticating by OAUTHBEARER",
        ),
    ]
}
