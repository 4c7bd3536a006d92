//! How does a listener speak TLS?

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The certificate of every broker of a cluster, and whether clients must show theirs.
#[derive(Clone)]
pub struct ServerTls(pub(super) Arc<ServerConfig>);

impl ServerTls {
    /// A certificate chain and its key, in PEM. With `client_authorities` (PEM) a client without a certificate of theirs
    /// is refused.
    ///
    /// # Errors
    /// What is wrong with the texts.
    pub fn new(chain: &str, key: &str, client_authorities: Option<&str>) -> Result<ServerTls, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|why| why.to_string())?;
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(pem)? {
                    roots.add(authority).map_err(|why| why.to_string())?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|why| why.to_string())?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|why| why.to_string())?;
        let config = builder.with_single_cert(certificates(chain)?, key).map_err(|why| why.to_string())?;
        Ok(ServerTls(Arc::new(config)))
    }

    /// The server's side of a handshake, for other servers of a test.
    ///
    /// # Errors
    /// When it fails.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    read.map_err(|why| why.to_string())
}
