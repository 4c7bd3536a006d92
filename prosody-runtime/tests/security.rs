//! Every block of options in docs/security.md is accepted as it stands, and each of its lines is needed.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

use std::path::{Path, PathBuf};

use prosody_runtime::{Client, ConfigError, Options};
use rcgen::{CertificateParams, KeyPair};

type Block = Vec<(String, String)>;

fn blocks() -> Vec<Block> {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = std::fs::read_to_string(manual).unwrap();
    let bodies = text.split("```options\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let line = |line: &str| {
        let (name, value) = line.split_once(" = ").expect("NAME = VALUE");
        (name.to_owned(), value.to_owned())
    };
    bodies.map(|body| body.lines().map(line).collect()).collect()
}

/// The files that the blocks name.
struct Files(PathBuf);

impl Files {
    fn new() -> Files {
        let folder = std::env::temp_dir().join(format!("prosody-security-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../prosody-wire/tests/security/keys");
        let plain = KeyPair::from_pem(&std::fs::read_to_string(keys.join("plain.pem")).unwrap()).unwrap();
        let signed = CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&plain).unwrap();
        std::fs::write(folder.join("ca.pem"), signed.pem()).unwrap();
        std::fs::write(folder.join("client.pem"), signed.pem()).unwrap();
        std::fs::copy(keys.join("aes256.pem"), folder.join("client.key")).unwrap();
        Files(folder)
    }

    fn build<'a>(&self, block: impl Iterator<Item = &'a (String, String)>) -> Result<Client, ConfigError> {
        let mut options = Options::default();
        options.set("BootstrapServers", "kafka.example:9093").unwrap();
        for (name, value) in block {
            let is_file = name.ends_with("Location");
            let file = self.0.join(value).display().to_string();
            options.set(name, if is_file { &file } else { value }).unwrap();
        }
        Client::builder().options(options).build()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_block_is_accepted_and_needs_its_lines() {
    let (files, blocks) = (Files::new(), blocks());
    assert_eq!(blocks.len(), 4);
    // What the platform or the provider decides when it is not set.
    let optional = ["SslCaLocation", "SaslOauthScope"];
    for block in blocks {
        files.build(block.iter()).unwrap_or_else(|error| panic!("{block:?}: {error}"));
        for (name, _) in block.iter().filter(|(name, _)| !optional.contains(&name.as_str())) {
            // A client without TLS is one, but not with these options.
            let rest = block.iter().filter(|(other, _)| other != name);
            assert!(files.build(rest).is_err(), "without {name}: {block:?}");
        }
    }
}
