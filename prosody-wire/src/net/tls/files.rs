//! Which certificates and keys do the files hold now?

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{TlsError, TlsFile, TlsIdentity, TlsOptions, locked};

/// Longest file. The roots of a whole platform take a quarter of a megabyte.
const FILE_BYTES: u64 = 4 << 20;

/// What the files hold, byte by byte: a replaced file is noticed whatever its times say.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Material {
    authorities: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

/// Never what is inside.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Material")
    }
}

impl Material {
    pub(super) fn read(options: &TlsOptions) -> Result<Material, TlsError> {
        let mut material = Material::default();
        if let Some(path) = &options.authorities {
            material.authorities = Some(read(TlsFile::Authorities, path)?);
        }
        if let Some(identity) = &options.identity {
            material.certificate = Some(read(TlsFile::Certificate, &identity.certificate)?);
            material.key = Some(read(TlsFile::Key, &identity.key)?);
        }
        Ok(material)
    }

    pub(super) fn client_config(&self, options: &TlsOptions) -> Result<ClientConfig, TlsError> {
        let broken = |why: rustls::Error| TlsError::Broken(why.to_string());
        let roots = match (&self.authorities, &options.authorities) {
            (Some(bytes), Some(path)) => {
                let mut roots = authorities(bytes, path)?;
                if options.and_platform {
                    // A machine without roots of its own is no error here: there are others to trust.
                    roots.roots.extend(platform_roots().iter().flat_map(|more| more.roots.iter().cloned()));
                }
                Arc::new(roots)
            }
            _ => platform_roots()?,
        };
        // Given by hand, so that nothing another library of the process installs is used instead.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(broken)?
            .with_root_certificates(roots);
        let (Some(certificate), Some(key), Some(identity)) =
            (&self.certificate, &self.key, &options.identity)
        else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(TlsFile::Certificate, certificate, &identity.certificate)?;
        let key = private_key(key, identity)?;
        builder.with_client_auth_cert(chain, key).map_err(|why| {
            wrong(TlsFile::Key, &identity.key, format!("it does not fit the certificate: {why}"))
        })
    }
}

fn read(file: TlsFile, path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut bytes));
    opened.map_err(|cause| wrong(file, path, cause.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(wrong(file, path, format!("it is longer than {FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

fn certificates(file: TlsFile, bytes: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, pem::Error>>();
    let found = read.map_err(|cause| wrong(file, path, format!("it is not PEM: {cause}")))?;
    if found.is_empty() {
        return Err(wrong(file, path, "it holds no PEM section CERTIFICATE".to_owned()));
    }
    Ok(found)
}

fn authorities(bytes: &[u8], path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(TlsFile::Authorities, bytes, path)? {
        roots.add(certificate).map_err(|cause| wrong(TlsFile::Authorities, path, cause.to_string()))?;
    }
    Ok(roots)
}

fn private_key(bytes: &[u8], identity: &TlsIdentity) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = &identity.key;
    if let Some(key) = locked::find(bytes) {
        let key = match &identity.key_password {
            Some(password) => key.and_then(|key| locked::unlock(&key, password.reveal())),
            None => Err("it is encrypted: its password is needed".to_owned()),
        };
        return key.map(PrivateKeyDer::Pkcs8).map_err(|why| wrong(TlsFile::Key, path, why));
    }
    let old = b"Proc-Type: 4,ENCRYPTED";
    if bytes.windows(old.len()).any(|window| window == old) {
        let why =
            "it is encrypted in the old format of OpenSSL; `openssl pkcs8 -topk8 -in OLD -out NEW` renews it";
        return Err(wrong(TlsFile::Key, path, why.to_owned()));
    }
    PrivateKeyDer::from_pem_slice(bytes).map_err(|cause| match cause {
        pem::Error::NoItemsFound => {
            wrong(TlsFile::Key, path, "it holds no PEM section PRIVATE KEY".to_owned())
        }
        other => wrong(TlsFile::Key, path, format!("it is not PEM: {other}")),
    })
}

/// Read once in a process: several thousand file operations on some systems.
fn platform_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<(Arc<RootCertStore>, String)> = OnceLock::new();
    let (roots, trouble) = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let trouble = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        for error in found.errors {
            tracing::debug!(%error, "a trusted authority of the platform cannot be read");
        }
        // Platforms keep roots that no current rule accepts; they are left out.
        roots.add_parsable_certificates(found.certs);
        (Arc::new(roots), trouble)
    });
    if roots.is_empty() {
        let why = format!("this machine has no trusted authorities{trouble}; name a PEM file of them");
        return Err(wrong(TlsFile::Authorities, Path::new("of the platform"), why));
    }
    Ok(Arc::clone(roots))
}

fn wrong(file: TlsFile, path: &Path, why: String) -> TlsError {
    TlsError::File { file, path: path.to_owned(), why }
}
