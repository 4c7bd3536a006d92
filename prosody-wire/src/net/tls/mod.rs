//! How is a stream encrypted, and is the peer who it claims to be? TLS over the streams of any other connector.
//!
//! | file | question |
//! |---|---|
//! | `files.rs` | which certificates and keys do the files hold now? |
//! | `locked.rs` | how is a private key read that is locked with a password? |
//! | `error.rs` | why did a handshake fail, and does a retry help? |
//!
//! TLS 1.3 and 1.2 by rustls with aws-lc-rs. The name that was dialed is always checked against the certificate; there is
//! no switch that turns this off. Validity is judged by the machine's own clock, also in simulations.

mod error;
mod files;
mod locked;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::connector::{BoxFuture, Connector, Stream};
use crate::secret::Secret;
pub use error::{TlsError, TlsFile};
use files::Material;

/// Longest handshake. A peer that accepts connections and says nothing costs this much, less than the whole dial.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Whom to trust and who we are.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// PEM file with the authorities to trust; `None` trusts those of the platform, as they are when the first connector
    /// of the process is made.
    pub authorities: Option<PathBuf>,
    /// Trusts those of the platform beside those of the file. Default `false`.
    pub and_platform: bool,
    /// What this client shows to brokers that ask for a certificate (mTLS).
    pub identity: Option<TlsIdentity>,
}

/// A client's certificate.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    /// PEM file with the certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// PEM file with the private key: PKCS#8, PKCS#1 or SEC1. May be the same file.
    pub key: PathBuf,
    /// What unlocks an encrypted key: PKCS#8 with PBES2, PBKDF2 and AES-CBC, as OpenSSL writes it since version 1.1. Not
    /// looked at when the key is not encrypted.
    pub key_password: Option<Secret>,
}

/// TLS over another connector's streams. The files are read again at every dial, so that certificates can be replaced
/// while the client runs; files that cannot be used then are reported and the last good ones stay in use.
#[derive(Debug)]
pub struct TlsConnector {
    inner: Arc<dyn Connector>,
    options: TlsOptions,
    current: Mutex<(Material, Arc<ClientConfig>)>,
}

impl TlsConnector {
    /// Reads the files. Never touches the network.
    ///
    /// # Errors
    /// [`TlsError::File`] with the file and what is wrong with it.
    pub fn new(inner: Arc<dyn Connector>, options: TlsOptions) -> Result<TlsConnector, TlsError> {
        let material = Material::read(&options)?;
        let config = Arc::new(material.client_config(&options)?);
        Ok(TlsConnector { inner, options, current: Mutex::new((material, config)) })
    }

    /// What the files say now, or said when they could last be used.
    fn config(&self) -> Arc<ClientConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = Material::read(&self.options).and_then(|material| {
            if material == current.0 {
                return Ok(None);
            }
            let config = material.client_config(&self.options)?;
            Ok(Some((material, Arc::new(config))))
        });
        match renewed {
            Ok(None) => {}
            Ok(Some(renewed)) => {
                tracing::info!("certificates were replaced; new connections use the new ones");
                *current = renewed;
            }
            Err(error) => tracing::warn!(%error, "new certificates cannot be used; the old ones stay in use"),
        }
        Arc::clone(&current.1)
    }
}

impl Connector for TlsConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| TlsError::BadName(host.to_owned()).into_io(io::ErrorKind::InvalidInput))?;
            let stream = self.inner.connect(host, port).await?;
            let connector = tokio_rustls::TlsConnector::from(self.config());
            match tokio::time::timeout(HANDSHAKE, connector.connect(name, stream)).await {
                Ok(Ok(stream)) => Ok(Box::new(stream) as Box<dyn Stream>),
                Ok(Err(cause)) => Err(error::of_handshake(cause)),
                Err(_) => {
                    let silent = TlsError::Broken(format!("no answer within {HANDSHAKE:?}"));
                    Err(silent.into_io(io::ErrorKind::TimedOut))
                }
            }
        })
    }
}
