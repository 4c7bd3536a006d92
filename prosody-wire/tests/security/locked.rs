//! Private keys that are locked with a password: one key in every encryption OpenSSL writes. All by
//! `openssl pkcs8 -topk8 -in plain.pem -passout pass:sesame` with the options beside each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prosody_wire::{PipeConnector, Secret, TlsConnector, TlsError, TlsFile, TlsIdentity, TlsOptions};
use rcgen::{CertificateParams, KeyPair};

use crate::certificates::Folder;

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security/keys").join(name)
}

fn load(key: PathBuf, password: Option<&str>) -> Result<(), TlsError> {
    let folder = Folder::new();
    let plain = KeyPair::from_pem(&std::fs::read_to_string(self::key("plain.pem")).unwrap()).unwrap();
    let signed = CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&plain).unwrap();
    let certificate = folder.write("client.pem", &signed.pem());
    let identity = TlsIdentity { certificate, key, key_password: password.map(Secret::new) };
    let options = TlsOptions { identity: Some(identity), ..TlsOptions::default() };
    let inner = Arc::new(PipeConnector(prosody_base::Network::default()));
    TlsConnector::new(inner, options).map(|_| ())
}

/// That rustls takes the key says that it is the one of the certificate: the right bytes came out.
#[test]
fn what_openssl_writes_is_unlocked_by_its_password() {
    for (name, password) in [
        ("aes256.pem", Some("sesame")), // -v2 aes-256-cbc, the default: HMAC-SHA-256, 2,048 rounds
        ("aes128sha1.pem", Some("sesame")), // -v2 aes-128-cbc -v2prf hmacWithSHA1
        ("aes192sha512.pem", Some("sesame")), // -v2 aes-192-cbc -v2prf hmacWithSHA512 -iter 10000
        ("plain.pem", Some("not looked at")),
        ("plain.pem", None),
    ] {
        load(key(name), password).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn what_cannot_be_unlocked_is_named_without_the_password() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(key("aes256.pem")).unwrap();
    let half = folder.write("half.pem", text.split("-----END").next().unwrap());
    let odd = folder.write("odd.pem", &text.replace('M', "?"));
    let short = folder.write("short.pem", &text.replacen("\nMI", "\nAA", 1));
    for (file, password, why) in [
        (key("aes256.pem"), None, "it is encrypted: its password is needed"),
        (key("aes256.pem"), Some("sesamy"), "the password does not unlock it"),
        (key("aes256.pem"), Some(""), "the password does not unlock it"),
        (key("des3.pem"), Some("sesame"), "PBES2 with PBKDF2 and AES-CBC can"), // -v2 des3
        (key("scrypt.pem"), Some("sesame"), "scrypt; only PBKDF2 is known"),    // -scrypt
        (key("pbes1.pem"), Some("sesame"), "PBES2 with PBKDF2 and AES-CBC can"), // -v1 PBE-SHA1-3DES
        (key("md5des.pem"), Some("sesame"), "PBES1, which is broken"),          // -v1 PBE-MD5-DES
        (key("rounds.pem"), Some("sesame"), "stretched 3000000 times; at most"), // -iter 3000000
        (key("old.pem"), Some("sesame"), "the old format of OpenSSL"),          // openssl ec -aes256
        (half, Some("sesame"), "the end of its encrypted key is missing"),
        (odd, Some("sesame"), "it is not PEM"),
        (short, Some("sesame"), "its encryption cannot be read"),
    ] {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let error = load(file, password).unwrap_err();
        let TlsError::File { file: TlsFile::Key, why: said, .. } = &error else { panic!("{name}: {error}") };
        assert!(said.contains(why), "{name}: {said}");
        assert!(!error.to_string().contains("sesam"), "{error}");
    }
}
