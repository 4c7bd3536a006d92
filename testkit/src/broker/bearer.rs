//! Which token says who somebody is? OAUTHBEARER (RFC 7628), server side. Pure.
//!
//! Either one of the tokens it was given, or an unsecured JWT (`alg` is `none`, RFC 7519 6) with a subject and an expiry,
//! as Kafka's own unsecured validator takes them. Gaps: no signature is checked; `nbf` and scopes are not looked at;
//! extensions (KIP-342) have to be well-formed and are forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a refused client is told first; it answers with one byte and is told again, with an error code.
pub(super) const REFUSAL: &[u8] = br#"{"status":"invalid_token"}"#;

/// How long the token of this message counts from `now` (milliseconds since 1970); `None` for ever.
pub(super) fn accept(
    tokens: &BTreeSet<String>,
    message: &str,
    now: i64,
) -> Result<Option<Duration>, &'static str> {
    let token = token_of(message)?;
    if !tokens.is_empty() {
        return if tokens.contains(token) { Ok(None) } else { Err("unknown token") };
    }
    let (header, rest) = token.split_once('.').ok_or("not a JWT")?;
    let (payload, signature) = rest.split_once('.').ok_or("not a JWT")?;
    let (header, payload) = (json(header)?, json(payload)?);
    if header.get("alg").and_then(serde_json::Value::as_str) != Some("none") || !signature.is_empty() {
        return Err("only unsecured tokens are known here");
    }
    if payload.get("sub").and_then(serde_json::Value::as_str).is_none_or(str::is_empty) {
        return Err("the token names nobody");
    }
    let expiry = payload.get("exp").and_then(serde_json::Value::as_f64).ok_or("the token has no expiry")?;
    // A float that does not fit saturates.
    let left = ((expiry * 1_000.0) as i64).saturating_sub(now);
    let left = u64::try_from(left).ok().filter(|left| *left > 0).ok_or("the token has expired")?;
    Ok(Some(Duration::from_millis(left)))
}

/// `n,[a=ID],^Aauth=Bearer TOKEN^A[NAME=VALUE^A]…^A`
fn token_of(message: &str) -> Result<&str, &'static str> {
    let (header, rest) = message.split_once('\u{1}').ok_or("no key and value pairs")?;
    if !header.starts_with("n,") || !header.ends_with(',') {
        return Err("a header without channel binding wanted");
    }
    let pairs = rest.strip_suffix("\u{1}\u{1}").ok_or("the end is missing")?;
    let mut token = None;
    for pair in pairs.split('\u{1}') {
        let (name, value) = pair.split_once('=').ok_or("a pair without `=`")?;
        match name {
            "auth" if token.is_none() => {
                let value = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
                token = Some(value.ok_or("`auth` is no bearer token")?.1);
            }
            _ if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_alphabetic())
                || name == "auth" =>
            {
                return Err("an extension with a bad name");
            }
            _ => {}
        }
    }
    token.ok_or("no `auth`")
}

fn json(part: &str) -> Result<serde_json::Value, &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).map_err(|_| "a part is not base64url")?;
    serde_json::from_slice(&bytes).map_err(|_| "a part is not JSON")
}

/// An unsecured JWT for tests: who it is about and until when, in seconds since 1970.
#[must_use]
pub fn unsecured_jwt(subject: &str, expires: i64) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(serde_json::json!({ "alg": "none" }));
    let payload = part(serde_json::json!({ "sub": subject, "iat": 0, "exp": expires, "scope": [] }));
    format!("{header}.{payload}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tokens: &[&str], auth: &str) -> Result<Option<Duration>, &'static str> {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        accept(&tokens, &format!("n,,\u{1}auth=Bearer {auth}\u{1}\u{1}"), 10_000)
    }

    #[test]
    fn a_jwt_counts_until_it_expires_and_a_given_token_for_ever() {
        assert_eq!(ask(&[], &unsecured_jwt("me", 15)), Ok(Some(Duration::from_secs(5))));
        assert_eq!(ask(&["abc"], "abc"), Ok(None));
        for (tokens, auth, why) in [
            (&["abc"][..], "abd", "unknown"),
            (&[], &unsecured_jwt("me", 10), "expired"),
            (&[], &unsecured_jwt("", 15), "nobody"),
            (&[], "abc", "not a JWT"),
            (&[], "!.e30.", "base64url"),
            (&[], "e30.e30.", "unsecured"),
            (&[], &format!("{}x", unsecured_jwt("me", 15)), "unsecured"),
        ] {
            let refused = ask(tokens, auth).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn extensions_are_read_over_and_bad_layouts_refused() {
        let given = BTreeSet::from(["t".to_owned()]);
        let good = "n,a=x,\u{1}auth=bearer t\u{1}traceId=a=b\u{1}\u{1}";
        assert_eq!(accept(&given, good, 0), Ok(None));
        for bad in ["", "n,,", "y,,\u{1}auth=Bearer t\u{1}\u{1}", "n,,\u{1}auth=Bearer t\u{1}"] {
            assert!(accept(&given, bad, 0).is_err(), "{bad:?}");
        }
        for pairs in ["auth=Basic t", "x=y", "auth=Bearer t\u{1}auth=Bearer t", "auth=Bearer t\u{1}1=x"] {
            assert!(accept(&given, &format!("n,,\u{1}{pairs}\u{1}\u{1}"), 0).is_err(), "{pairs:?}");
        }
    }
}
