//! What the platform trusts, with a bundle beside it and without. The platform's roots are read once in a process, from where
//! `SSL_CERT_FILE` says: each set of them is tried in a child, which is this program again.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::{Cluster, ClusterConfig, ServerTls};
use prosody_wire::{Client, ClientConfig, PipeConnector, TlsConnector, TlsOptions};

use crate::certificates::{Authority, Folder};

/// The folder a child finds its certificates in; without it there is nothing to do.
const FOLDER: &str = "PROSODY_TEST_PLATFORM";
const SERVERS: [&str; 3] = ["platform", "bundle", "stranger"];

/// What a client that trusts so says of each server, in a process whose platform has its roots in this file.
fn said(folder: &Folder, roots: &str) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "platform::one_process", "--nocapture"])
        .env(FOLDER, folder.path(""))
        .env("SSL_CERT_FILE", folder.path(roots))
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split_once("SAID ").map(|(_, said)| said.to_owned())).collect()
}

/// What a child does.
#[test]
fn one_process() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let bundle = Some(folder.join("bundle.pem"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    for (trust, authorities, and_platform) in
        [("platform", None, false), ("bundle", bundle.clone(), false), ("both", bundle, true)]
    {
        for server in SERVERS {
            let options =
                TlsOptions { authorities: authorities.clone(), and_platform, ..TlsOptions::default() };
            let read = |name: &str| std::fs::read_to_string(folder.join(format!("{server}{name}"))).unwrap();
            let tls = ServerTls::new(&read("-certificate.pem"), &read("-key.pem"), None).unwrap();
            let outcome = runtime.block_on(async {
                let doors = Doors::simulated(1);
                let config = ClusterConfig { tls: Some(tls), ..ClusterConfig::default() };
                let cluster = Cluster::start(config, doors.clone());
                cluster.create_topic("t", 2).unwrap();
                let network = Arc::new(PipeConnector(cluster.network()));
                let connector =
                    TlsConnector::new(network, options).map_err(|why| format!("no client: {why}"))?;
                let seeds = ClientConfig::new(cluster.bootstrap().split(','));
                let client = Client::new(seeds, Arc::new(connector), doors.clone()).unwrap();
                let deadline = doors.clock.now() + Duration::from_secs(60);
                client.partition_count("t", deadline).await.map_err(|why| why.to_string())
            });
            println!("\nSAID {trust} to {server}: {outcome:?}");
        }
    }
}

#[test]
fn the_roots_of_the_platform_and_a_bundle_are_trusted_each_alone_and_both_together() {
    let folder = Folder::new();
    for name in SERVERS {
        let authority = Authority::named(name);
        folder.write(&format!("{name}.pem"), &authority.pem());
        let signed = authority.sign("b1");
        folder.write(&format!("{name}-certificate.pem"), &signed.certificate);
        folder.write(&format!("{name}-key.pem"), &signed.key);
    }
    for (roots, trusted) in [
        (
            "platform.pem",
            ["platform to platform", "bundle to bundle", "both to platform", "both to bundle"].as_slice(),
        ),
        // A platform without roots takes nothing from the bundle.
        ("missing.pem", &["bundle to bundle", "both to bundle"]),
    ] {
        let said = said(&folder, roots);
        assert_eq!(said.len(), 9, "{said:?}");
        for line in said {
            let (who, outcome) = line.split_once(": ").unwrap();
            if trusted.contains(&who) {
                assert_eq!(outcome, "Ok(2)", "{roots}: {who}");
            } else if roots == "missing.pem" && who.starts_with("platform to") {
                assert!(
                    outcome.contains("no trusted authorities") && outcome.contains("missing.pem"),
                    "{who}: {outcome}"
                );
            } else {
                assert!(outcome.contains("no trusted authority"), "{roots}: {who}: {outcome}");
            }
        }
    }
}
