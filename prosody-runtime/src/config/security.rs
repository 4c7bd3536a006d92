//! How are brokers reached, and as whom? Options of TLS and SASL become what the Kafka layer takes, or problems.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prosody_wire::{Sasl, TcpConnector, TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions};

use super::checked::Check;
use super::options::{Options, SaslMechanism, SecurityProtocol};

/// What the Kafka layer is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    /// `None` is plaintext.
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) sasl: Option<Sasl>,
}

impl Security {
    /// Whether a password, or what can be guessed from it, travels in the clear.
    pub(crate) fn is_exposed(&self) -> bool {
        self.sasl.is_some() && self.tls.is_none()
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
    let sasl = sasl(check, options, with_sasl);
    let tls = tls(check, options, with_tls);
    // A mock cluster listens in plaintext: settings of the real one may stay where they are.
    if mock {
        return Security::default();
    }
    if let Some(Err(why)) = tls.clone().map(|tls| TlsConnector::new(Arc::new(TcpConnector), tls)) {
        check.wrong(option_of(&why), why.to_string());
    }
    Security { tls, sasl }
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

fn sasl(check: &mut Check, options: &mut Options, wanted: bool) -> Option<Sasl> {
    let mechanism = options.sasl_mechanism;
    let user = check.text("SaslUsername", options.sasl_username.take());
    let password = options.sasl_password.take();
    let given = [mechanism.is_some(), user.is_some(), password.is_some()];
    for (option, given) in ["SaslMechanism", "SaslUsername", "SaslPassword"].into_iter().zip(given) {
        if wanted && !given {
            check.wrong(option, "required with SecurityProtocol `sasl_ssl` and `sasl_plaintext`");
        } else if given && !wanted {
            check.wrong(option, "has no effect unless SecurityProtocol is `sasl_ssl` or `sasl_plaintext`");
        }
    }
    let mechanism = match mechanism? {
        SaslMechanism::Plain => prosody_wire::SaslMechanism::Plain,
        SaslMechanism::ScramSha256 => prosody_wire::SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512 => prosody_wire::SaslMechanism::ScramSha512,
    };
    wanted.then_some(Sasl { mechanism, user: user?, password: password? })
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
    let mut missing = |option: &str, other: &str, path: &Path| {
        check.wrong(option, format!("required with {other} `{}`", path.display()));
    };
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
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
    wanted.then_some(TlsOptions { authorities, identity })
}
