//! Why did a handshake fail, and does a retry help?

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription as Alert, CertificateError, InvalidMessage};

/// A TLS handshake, or the use of a TLS connection, that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// No authority this client trusts has signed the peer's certificate.
    UnknownAuthority,
    /// The peer's certificate is for other names than the one that was dialed.
    WrongName(String),
    /// The peer's certificate is not valid any more, or not yet.
    Expired(String),
    /// The peer's certificate cannot be used for another reason.
    BadCertificate(String),
    /// What was dialed can be no name in a certificate.
    BadName(String),
    /// The peer does not speak TLS.
    Plaintext,
    /// The peer asks for a client certificate and this client has none.
    CertificateRequired,
    /// The peer refuses the client's certificate, or that it has none; the alert it sent.
    CertificateRefused(String),
    /// Both sides have no version or cipher in common, or the peer knows no such name.
    Refused(String),
    /// A file of this client's configuration cannot be used.
    File {
        /// What it should hold.
        file: TlsFile,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The handshake or the connection broke off. Another attempt may succeed.
    Broken(String),
}

/// A file of a TLS configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The authorities to trust.
    Authorities,
    /// The client's certificate.
    Certificate,
    /// The client's private key.
    Key,
}

impl TlsError {
    /// Whether the same dial may succeed later without anyone changing a setting or a certificate.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, TlsError::Broken(_))
    }

    /// The failure of TLS inside an I/O error, if that is what it is.
    pub(crate) fn of(cause: &io::Error) -> Option<TlsError> {
        let inner = cause.get_ref()?;
        let named = inner.downcast_ref::<TlsError>().cloned();
        named.or_else(|| inner.downcast_ref::<rustls::Error>().map(TlsError::from))
    }

    pub(super) fn into_io(self, kind: io::ErrorKind) -> io::Error {
        io::Error::new(kind, self)
    }
}

/// A handshake's failure, by name where rustls has one.
pub(super) fn of_handshake(cause: io::Error) -> io::Error {
    if TlsError::of(&cause).is_some() {
        return cause;
    }
    let kind = cause.kind();
    let why = match kind {
        // A Kafka listener without TLS reads the handshake as an absurd length and hangs up.
        io::ErrorKind::UnexpectedEof => {
            "the peer closed the connection; perhaps its listener is plaintext".to_owned()
        }
        _ => cause.to_string(),
    };
    TlsError::Broken(why).into_io(kind)
}

impl From<&rustls::Error> for TlsError {
    fn from(cause: &rustls::Error) -> TlsError {
        use CertificateError as Bad;
        match cause {
            rustls::Error::InvalidCertificate(bad) => match bad {
                // A bad signature is that of another authority with the same name: one that was created anew.
                Bad::UnknownIssuer | Bad::BadSignature => TlsError::UnknownAuthority,
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                    TlsError::WrongName(bad.to_string())
                }
                Bad::Expired
                | Bad::ExpiredContext { .. }
                | Bad::NotValidYet
                | Bad::NotValidYetContext { .. } => TlsError::Expired(bad.to_string()),
                other => TlsError::BadCertificate(other.to_string()),
            },
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => TlsError::Plaintext,
            rustls::Error::AlertReceived(alert) => match alert {
                Alert::CertificateRequired => TlsError::CertificateRequired,
                Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::DecryptError
                | Alert::AccessDenied => TlsError::CertificateRefused(format!("{alert:?}")),
                Alert::HandshakeFailure
                | Alert::ProtocolVersion
                | Alert::InsufficientSecurity
                | Alert::UnrecognisedName => TlsError::Refused(format!("alert {alert:?}")),
                other => TlsError::Broken(format!("alert {other:?}")),
            },
            rustls::Error::PeerIncompatible(why) => TlsError::Refused(format!("{why:?}")),
            other => TlsError::Broken(other.to_string()),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::UnknownAuthority => {
                f.write_str("TLS: no trusted authority signed the peer's certificate")
            }
            TlsError::WrongName(why) => write!(f, "TLS: the peer's certificate is for another name: {why}"),
            TlsError::Expired(why) => write!(f, "TLS: the peer's certificate is not valid now: {why}"),
            TlsError::BadCertificate(why) => write!(f, "TLS: the peer's certificate cannot be used: {why}"),
            TlsError::BadName(name) => write!(f, "TLS: `{name}` can be no name in a certificate"),
            TlsError::Plaintext => f.write_str(
                "TLS: the peer does not speak TLS: this is perhaps the port of a plaintext listener",
            ),
            TlsError::CertificateRequired => {
                f.write_str("TLS: the peer wants a client certificate and this client has none")
            }
            TlsError::CertificateRefused(alert) => write!(
                f,
                "TLS: the peer refuses this client's certificate, or that it has none: alert {alert}"
            ),
            TlsError::Refused(why) => write!(f, "TLS: both sides have nothing in common: {why}"),
            TlsError::File { file, path, why } => write!(f, "{file} {}: {why}", path.display()),
            TlsError::Broken(why) => write!(f, "TLS: {why}"),
        }
    }
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsFile::Authorities => "trusted authorities",
            TlsFile::Certificate => "client certificate",
            TlsFile::Key => "private key",
        })
    }
}

impl std::error::Error for TlsError {}
