//! What is a token, and how is it shown and refused? The messages of OAUTHBEARER (RFC 7628, KIP-255, KIP-342). Pure.

use std::fmt::{self, Debug};
use std::time::Duration;

use crate::net::BoxFuture;
use crate::secret::Secret;

/// Longest token. Brokers take half a megabyte before they know a client (`sasl.server.max.receive.size`).
const TOKEN_BYTES: usize = 256 << 10;
/// Most extensions of a token, and the longest name or value.
const EXTENSIONS: usize = 64;
const EXTENSION_BYTES: usize = 4 << 10;

/// What proves to brokers who a client is, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    value: Secret,
    lifetime: Option<Duration>,
    extensions: Vec<(String, String)>,
}

impl Token {
    /// A token that is used until a broker refuses it.
    pub fn new(value: impl Into<String>) -> Token {
        Token { value: Secret::new(value), lifetime: None, extensions: Vec::new() }
    }

    /// How long it counts from now on. The next one is asked for at 80 % of it.
    #[must_use]
    pub fn lifetime(self, lifetime: Duration) -> Token {
        Token { lifetime: Some(lifetime), ..self }
    }

    /// A SASL extension (KIP-342), sent beside the token: a name of letters, and printable text.
    #[must_use]
    pub fn extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Token {
        self.extensions.push((name.into(), value.into()));
        self
    }

    pub(super) fn lives(&self) -> Option<Duration> {
        self.lifetime
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.value
    }

    /// Why no broker could read it, if so. Never says what it is.
    pub(super) fn problem(&self) -> Option<String> {
        let value = self.value.reveal();
        if value.is_empty() || value.len() > TOKEN_BYTES {
            return Some(format!("a token of {} bytes; 1 to {TOKEN_BYTES} are possible", value.len()));
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Some("a token with characters that are not printable ASCII".to_owned());
        }
        if self.extensions.len() > EXTENSIONS {
            return Some(format!("a token with more than {EXTENSIONS} extensions"));
        }
        self.extensions.iter().find_map(|(name, value)| {
            let letters = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            let text = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let fits = name.len() <= EXTENSION_BYTES && value.len() <= EXTENSION_BYTES && !value.is_empty();
            if letters && fits && name != "auth" && value.bytes().all(text) {
                return None;
            }
            let name: String = name.chars().take(40).collect();
            Some(format!(
                "a token with extension `{name}`: a name is letters and not `auth`, a value printable ASCII"
            ))
        })
    }

    /// The message that shows it: no channel binding, no other identity, the token, and its extensions.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut message = format!("n,,\u{1}auth=Bearer {}\u{1}", self.value.reveal());
        for (name, value) in &self.extensions {
            message.push_str(&format!("{name}={value}\u{1}"));
        }
        message.push('\u{1}');
        message.into_bytes()
    }
}

/// What a broker said instead of accepting a token: its JSON in one line.
pub(crate) fn refusal(answer: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(answer).ok();
    let field = |name: &str| json.as_ref()?.get(name)?.as_str();
    let Some(status) = field("status") else {
        return format!("it refuses the token: {}", String::from_utf8_lossy(answer));
    };
    let mut said = format!("it refuses the token: {status}");
    for name in ["scope", "openid-configuration"] {
        if let Some(text) = field(name) {
            said.push_str(&format!("; {name} {text}"));
        }
    }
    said
}

/// Gives tokens. Asked in the background: when a client first connects, at 80 % of each token's life, and again after a
/// broker refused one. An answer that takes more than 10 seconds counts as a failure; the future is dropped then.
pub trait TokenProvider: Send + Sync + Debug {
    /// A token that counts now.
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>>;
}

/// The same token for ever.
#[derive(Clone, Debug)]
pub struct FixedToken(pub Token);

impl TokenProvider for FixedToken {
    fn token(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    pub(super) why: String,
    pub(super) retriable: bool,
}

impl TokenError {
    /// Nobody could be asked, or nobody answered: another attempt may succeed.
    pub fn unavailable(why: impl Into<String>) -> TokenError {
        TokenError { why: why.into(), retriable: true }
    }

    /// The answer was no: the same question has the same answer until somebody changes a setting.
    pub fn refused(why: impl Into<String>) -> TokenError {
        TokenError { why: why.into(), retriable: false }
    }

    /// Whether another attempt may succeed without anyone changing a setting.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.retriable
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no token: {}", self.why)
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_message_with_its_extensions_behind_it() {
        let token = Token::new("abc").extension("logicalCluster", "lkc-1").extension("traceId", "a b");
        let text = String::from_utf8(token.message()).unwrap();
        assert_eq!(text, "n,,\u{1}auth=Bearer abc\u{1}logicalCluster=lkc-1\u{1}traceId=a b\u{1}\u{1}");
        assert_eq!(token.problem(), None);
        assert_eq!(Token::new("x").message(), b"n,,\x01auth=Bearer x\x01\x01");
    }

    #[test]
    fn what_no_broker_could_read_is_named_without_showing_it() {
        let ok = || Token::new("secret");
        for (token, wanted) in [
            (Token::new(""), "a token of 0 bytes"),
            (Token::new("s".repeat(TOKEN_BYTES + 1)), "a token of 262145 bytes"),
            (Token::new("secret\u{1}auth=Bearer other"), "not printable ASCII"),
            (ok().extension("auth", "x"), "extension `auth`"),
            (ok().extension("a1", "x"), "extension `a1`"),
            (ok().extension("a", "x\u{1}y=z"), "extension `a`"),
            (ok().extension("a", ""), "extension `a`"),
            ((0..=EXTENSIONS).fold(ok(), |token, _| token.extension("a", "b")), "more than 64 extensions"),
        ] {
            let problem = token.problem().expect(wanted);
            assert!(problem.contains(wanted) && !problem.contains("secret"), "{problem}");
        }
        assert!(!format!("{:?}", ok()).contains("secret"));
    }

    #[test]
    fn a_brokers_refusal_is_one_line() {
        let json = br#"{"status":"invalid_token","scope":"kafka","openid-configuration":"https://idp/x"}"#;
        let said = "it refuses the token: invalid_token; scope kafka; openid-configuration https://idp/x";
        assert_eq!(refusal(json), said);
        assert_eq!(refusal(b"no json"), "it refuses the token: no json");
        assert_eq!(refusal(br#"{"status":7}"#), r#"it refuses the token: {"status":7}"#);
    }
}
