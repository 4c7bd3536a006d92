//! How are brokers reached, and as whom? Options of TLS and SASL become what the Kafka layer takes, or problems.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prosody_wire::{
    ClientCredentials, ClientCredentialsConfig, Connector, Credentials, Error, Sasl, TcpConnector,
    TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions, TokenProvider,
};

use super::checked::Check;
use super::choices::{SaslMechanism, SecurityProtocol};
use super::options::Options;

/// A provider of tokens, which can only be given in code.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(pub(crate) Arc<dyn TokenProvider>);

/// The same one, not an equal one.
impl PartialEq for Tokens {
    fn eq(&self, other: &Tokens) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What the Kafka layer is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    /// `None` is plaintext.
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) identity: Option<Identity>,
    /// What the certificate of a token endpoint is checked against.
    endpoint: TlsOptions,
}

/// Who the client is.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    Known(Sasl),
    /// Whoever a token endpoint says.
    Endpoint(ClientCredentialsConfig),
}

impl Security {
    /// Whether a password, or what can be guessed from it, travels in the clear.
    pub(crate) fn is_exposed(&self) -> bool {
        self.identity.is_some() && self.tls.is_none()
    }

    /// Whether the secret of the client travels in the clear to a token endpoint.
    pub(crate) fn is_endpoint_exposed(&self) -> bool {
        let Some(Identity::Endpoint(config)) = &self.identity else { return false };
        config.endpoint.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
    }

    /// What the Kafka layer takes. `tcp` reaches the token endpoint, should there be one.
    pub(crate) fn sasl(&self, tcp: &Arc<dyn Connector>) -> Result<Option<Sasl>, Error> {
        Ok(match &self.identity {
            None => None,
            Some(Identity::Known(sasl)) => Some(sasl.clone()),
            Some(Identity::Endpoint(config)) => {
                let endpoint =
                    ClientCredentials::new(config.clone(), Arc::clone(tcp), self.endpoint.clone())?;
                Some(Sasl::Bearer(Arc::new(endpoint)))
            }
        })
    }
}

/// Options that say something only about TLS or only about SASL are wrong without it: whoever set them believes that the
/// connection is encrypted or authenticated.
pub(super) fn check(check: &mut Check, options: &mut Options, mock: bool) -> Security {
    let protocol = options.security_protocol.unwrap_or_default();
    let (with_tls, with_sasl) = match protocol {
        SecurityProtocol::Plaintext => (false, false),
        SecurityProtocol::Ssl => (true, false),
        SecurityProtocol::SaslPlaintext => (false, true),
        SecurityProtocol::SaslSsl => (true, true),
    };
    let identity = identity(check, options, with_sasl);
    let authorities = options.ssl_ca_location.clone().map(PathBuf::from);
    let tls = tls(check, options, with_tls);
    // A mock cluster listens in plaintext: settings of the real one may stay where they are.
    if mock {
        return Security::default();
    }
    if let Some(Err(why)) = tls.clone().map(|tls| TlsConnector::new(Arc::new(TcpConnector), tls)) {
        check.wrong(option_of(&why), why.to_string());
    }
    let endpoint = TlsOptions { authorities, and_platform: true, identity: None };
    let security = Security { tls, identity, endpoint };
    let tcp: Arc<dyn Connector> = Arc::new(TcpConnector);
    if let Err(why) = security.sasl(&tcp) {
        check.wrong("SaslOauthTokenEndpoint", why.to_string());
    }
    security
}

/// The option that names the file a failure is about.
pub(crate) fn option_of(why: &TlsError) -> &'static str {
    match why {
        TlsError::File { file: TlsFile::Authorities, .. } => "SslCaLocation",
        TlsError::File { file: TlsFile::Certificate, .. } => "SslCertificateLocation",
        TlsError::File { file: TlsFile::Key, .. } => "SslKeyLocation",
        _ => "SecurityProtocol",
    }
}

/// What an option of SASL is to a mechanism.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
    Useless,
}

fn identity(check: &mut Check, options: &mut Options, wanted: bool) -> Option<Identity> {
    use Need::{Optional, Required, Useless};
    let mechanism = options.sasl_mechanism;
    let user = check.text("SaslUsername", options.sasl_username.take());
    let password = options.sasl_password.take();
    let endpoint = check.text("SaslOauthTokenEndpoint", options.sasl_oauth_token_endpoint.take());
    let client_id = check.text("SaslOauthClientId", options.sasl_oauth_client_id.take());
    let client_secret = options.sasl_oauth_client_secret.take();
    let scope = check.text("SaslOauthScope", options.sasl_oauth_scope.take());
    let provider = options.tokens.take();
    let with_token = mechanism == Some(SaslMechanism::OauthBearer);
    let by_password = if with_token { Useless } else { Required };
    let (by_endpoint, by_scope) = match (with_token, &provider) {
        (true, None) => (Required, Optional),
        _ => (Useless, Useless),
    };
    let needs = [
        ("SaslMechanism", mechanism.is_some(), Required),
        ("SaslUsername", user.is_some(), by_password),
        ("SaslPassword", password.is_some(), by_password),
        ("SaslOauthTokenEndpoint", endpoint.is_some(), by_endpoint),
        ("SaslOauthClientId", client_id.is_some(), by_endpoint),
        ("SaslOauthClientSecret", client_secret.is_some(), by_endpoint),
        ("SaslOauthScope", scope.is_some(), by_scope),
    ];
    for (option, given, need) in needs {
        match (wanted, given, need) {
            (false, true, _) => {
                check
                    .wrong(option, "has no effect unless SecurityProtocol is `sasl_ssl` or `sasl_plaintext`");
            }
            (true, false, Required) if with_token => {
                check.wrong(
                    option,
                    "required with SaslMechanism OAUTHBEARER, unless a token provider is given in code",
                );
            }
            (true, false, Required) => {
                check.wrong(option, "required with SecurityProtocol `sasl_ssl` and `sasl_plaintext`");
            }
            (true, true, Useless) if with_token => {
                check.wrong(
                    option,
                    "has no effect with these tokens: they come from elsewhere and say who the client is",
                );
            }
            (true, true, Useless) => {
                check.wrong(option, "has no effect unless SaslMechanism is OAUTHBEARER");
            }
            _ => {}
        }
    }
    if provider.is_some() && !(wanted && with_token) {
        check.wrong(
            "SaslMechanism",
            "a token provider has no effect unless this is OAUTHBEARER, over `sasl_ssl` or `sasl_plaintext`",
        );
    }
    if !wanted {
        return None;
    }
    let mechanism = match mechanism? {
        SaslMechanism::Plain => prosody_wire::SaslMechanism::Plain,
        SaslMechanism::ScramSha256 => prosody_wire::SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512 => prosody_wire::SaslMechanism::ScramSha512,
        SaslMechanism::OauthBearer => {
            return Some(match provider {
                Some(provider) => Identity::Known(Sasl::Bearer(provider.0)),
                None => {
                    let (endpoint, client_id, client_secret) = (endpoint?, client_id?, client_secret?);
                    Identity::Endpoint(ClientCredentialsConfig { endpoint, client_id, client_secret, scope })
                }
            });
        }
    };
    Some(Identity::Known(Sasl::Password(Credentials { mechanism, user: user?, password: password? })))
}

fn tls(check: &mut Check, options: &mut Options, wanted: bool) -> Option<TlsOptions> {
    let mut path = |option: &'static str, text: Option<String>| {
        let path = check.text(option, text).filter(|text| !text.trim().is_empty()).map(PathBuf::from);
        if path.is_some() && !wanted {
            check.wrong(option, "has no effect unless SecurityProtocol is `ssl` or `sasl_ssl`");
        }
        path
    };
    let authorities = path("SslCaLocation", options.ssl_ca_location.take());
    let certificate = path("SslCertificateLocation", options.ssl_certificate_location.take());
    let key = path("SslKeyLocation", options.ssl_key_location.take());
    let key_password = options.ssl_key_password.take();
    if key_password.is_some() && key.is_none() {
        check.wrong("SslKeyPassword", "has no effect without SslKeyLocation");
    }
    let mut missing = |option: &str, other: &str, path: &Path| {
        check.wrong(option, format!("required with {other} `{}`", path.display()));
    };
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key, key_password }),
        (Some(certificate), None) => {
            missing("SslKeyLocation", "SslCertificateLocation", &certificate);
            None
        }
        (None, Some(key)) => {
            missing("SslCertificateLocation", "SslKeyLocation", &key);
            None
        }
        (None, None) => None,
    };
    wanted.then_some(TlsOptions { authorities, and_platform: false, identity })
}
