//! TLS: what works, and that everything that does not ends at once in an error with a name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::Doors;
use prosody_testkit::{Cluster, ClusterConfig, ServerTls};
use prosody_wire::batch::Compression;
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig};
use prosody_wire::{
    Client, ClientConfig, Error, ErrorKind, PipeConnector, TcpConnector, TlsConnector, TlsError, TlsFile,
    TlsIdentity, TlsOptions,
};

use crate::certificates::{Authority, Folder, Signed};

const MINUTE: Duration = Duration::from_secs(60);

fn cluster(doors: &Doors, server: &Signed, clients: Option<&Authority>) -> Cluster {
    let pem = clients.map(Authority::pem);
    let tls = ServerTls::new(&server.certificate, &server.key, pem.as_deref()).unwrap();
    let config = ClusterConfig { tls: Some(tls), ..ClusterConfig::default() };
    let cluster = Cluster::start(config, doors.clone());
    cluster.create_topic("t", 2).unwrap();
    cluster
}

fn trusting(authorities: PathBuf) -> TlsOptions {
    TlsOptions { authorities: Some(authorities), ..TlsOptions::default() }
}

fn client(cluster: &Cluster, doors: &Doors, options: TlsOptions) -> Client {
    let tls = TlsConnector::new(Arc::new(PipeConnector(cluster.network())), options).unwrap();
    let seeds = ClientConfig::new(cluster.bootstrap().split(','));
    Client::new(seeds, Arc::new(tls), doors.clone()).unwrap()
}

/// What a client of a broker with this certificate is told, and that it does not wait for the deadline to be told.
async fn refusal(server: &Signed, clients: Option<&Authority>, options: TlsOptions) -> TlsError {
    let doors = Doors::simulated(1);
    let cluster = cluster(&doors, server, clients);
    let client = client(&cluster, &doors, options);
    let begun = doors.clock.now();
    let error = client.partition_count("t", begun + MINUTE).await.unwrap_err();
    assert!(doors.clock.now() < begun + Duration::from_secs(1), "{error}");
    assert!(!error.is_retriable() && error.is_refusal(), "{error}");
    assert!(error.to_string().contains("b1:9092"), "the address is named: {error}");
    tls_error(&error)
}

fn tls_error(error: &Error) -> TlsError {
    match error.kind() {
        ErrorKind::Tls(error) => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn records_travel_over_encrypted_pipes() {
    let (doors, folder, authority) = (Doors::simulated(1), Folder::new(), Authority::new());
    let cluster = cluster(&doors, &authority.sign("b1"), None);
    let client = client(&cluster, &doors, trusting(folder.write("ca.pem", &authority.pem())));
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    let uncompressed = ProducerConfig { compression: Compression::None, ..ProducerConfig::default() };
    let producer = Producer::new(&client, uncompressed);
    // Some of them fill the pipe and leave their end in the buffer of TLS, from where only a flush moves it.
    for kib in [1, 200, 260, 300, 520, 800] {
        let value = vec![7; kib << 10];
        let record = OutgoingRecord {
            topic: "t",
            partition: Some(0),
            key: None,
            value: Some(&value),
            headers: &[],
            timestamp: None,
        };
        producer.send(record, Some(doors.clock.now() + MINUTE)).await.unwrap();
    }
    assert_eq!(cluster.log("t", 0).len(), 6);
}

#[tokio::test]
async fn sockets_are_encrypted_too_and_an_address_may_be_the_name() {
    let (doors, folder, authority) = (Doors::process().unwrap(), Folder::new(), Authority::new());
    let cluster = cluster(&doors, &authority.sign("127.0.0.1"), None);
    cluster.serve_tcp(0).unwrap();
    let options = trusting(folder.write("ca.pem", &authority.pem()));
    let tls = TlsConnector::new(Arc::new(TcpConnector), options).unwrap();
    let seeds = ClientConfig::new(cluster.tcp_bootstrap().split(','));
    let client = Client::new(seeds, Arc::new(tls), doors.clone()).unwrap();
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_a_stranger_is_refused() {
    let folder = Folder::new();
    let options = trusting(folder.write("ca.pem", &Authority::named("a").pem()));
    // The second is what an authority is that was created anew under its old name.
    for stranger in [Authority::named("b"), Authority::named("a")] {
        let refused = refusal(&stranger.sign("b1"), None, options.clone()).await;
        assert_eq!(refused, TlsError::UnknownAuthority);
    }
}

#[tokio::test(start_paused = true)]
async fn the_platform_trusts_no_authority_of_a_test() {
    let refused = refusal(&Authority::new().sign("b1"), None, TlsOptions::default()).await;
    assert_eq!(refused, TlsError::UnknownAuthority);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_for_another_name_is_refused() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let options = trusting(folder.write("ca.pem", &authority.pem()));
    let refused = refusal(&authority.sign("b2"), None, options).await;
    assert!(matches!(refused, TlsError::WrongName(_)), "{refused}");
    assert!(refused.to_string().contains("b1") && refused.to_string().contains("b2"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_has_expired_is_refused() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let options = trusting(folder.write("ca.pem", &authority.pem()));
    let refused = refusal(&authority.sign_until("b1", 2020), None, options).await;
    assert!(matches!(refused, TlsError::Expired(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_its_certificate_is_refused_by_name() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let options = trusting(folder.write("ca.pem", &authority.pem()));
    let refused = refusal(&authority.sign("b1"), Some(&authority), options).await;
    assert_eq!(refused, TlsError::CertificateRequired);
}

fn identity(folder: &Folder, signed: &Signed) -> Option<TlsIdentity> {
    let certificate = folder.write("client.pem", &signed.certificate);
    Some(TlsIdentity { certificate, key: folder.write("client.key", &signed.key), key_password: None })
}

#[tokio::test(start_paused = true)]
async fn a_clients_certificate_is_shown_and_a_strangers_is_refused() {
    let (doors, folder, authority) = (Doors::simulated(1), Folder::new(), Authority::named("a"));
    let ca = folder.write("ca.pem", &authority.pem());
    let server = authority.sign("b1");
    let options = TlsOptions { identity: identity(&folder, &authority.sign("client")), ..trusting(ca) };
    let cluster = cluster(&doors, &server, Some(&authority));
    let client = client(&cluster, &doors, options.clone());
    assert_eq!(client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap(), 2);
    for stranger in [Authority::named("b"), Authority::named("a")] {
        let identity = identity(&folder, &stranger.sign("client"));
        let options = TlsOptions { identity, ..options.clone() };
        let refused = refusal(&server, Some(&authority), options).await;
        assert!(matches!(refused, TlsError::CertificateRefused(_)), "{refused}");
    }
}

/// Certificates live for hours where they are issued by machines, and the process that uses them for months.
#[tokio::test(start_paused = true)]
async fn replaced_files_are_used_by_the_next_dial_and_broken_ones_are_not() {
    let (doors, folder) = (Doors::simulated(1), Folder::new());
    let (old, new) = (Authority::new(), Authority::new());
    let cluster = cluster(&doors, &new.sign("b1"), None);
    let client = client(&cluster, &doors, trusting(folder.write("ca.pem", &old.pem())));
    let soon = || doors.clock.now() + MINUTE;
    let refused = client.partition_count("t", soon()).await.unwrap_err();
    assert_eq!(tls_error(&refused), TlsError::UnknownAuthority);
    folder.write("ca.pem", &new.pem());
    assert_eq!(client.partition_count("t", soon()).await.unwrap(), 2);
    folder.write("ca.pem", "half a fi");
    cluster.cut_connections(1);
    cluster.create_topic("u", 3).unwrap();
    assert_eq!(client.partition_count("u", soon()).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_side_in_plaintext_is_an_error_that_says_so() {
    let (doors, folder, authority) = (Doors::simulated(1), Folder::new(), Authority::new());
    let encrypted = cluster(&doors, &authority.sign("b1"), None);
    let seeds = ClientConfig::new(["b1:9092"]);
    let plain = Client::new(seeds, Arc::new(PipeConnector(encrypted.network())), doors.clone()).unwrap();
    let error = plain.partition_count("t", doors.clock.now() + MINUTE).await.unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("the peer speaks TLS"), "{error}");
    // A broker without TLS hangs up, as one that is starting does: this may pass, so it is retried and named at the end.
    let open = Cluster::start(ClusterConfig::default(), doors.clone());
    let client = client(&open, &doors, trusting(folder.write("ca.pem", &authority.pem())));
    let error = client.partition_count("t", doors.clock.now() + MINUTE).await.unwrap_err();
    assert!(
        error.is_retriable() && error.to_string().contains("perhaps its listener is plaintext"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_shakes_hands_costs_its_share_of_the_dial() {
    let (doors, folder) = (Doors::simulated(1), Folder::new());
    let network = prosody_base::Network::default();
    let mut listener = network.listen("b1:9092").unwrap();
    let _silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(stream) = listener.accept().await {
            held.push(stream);
        }
    });
    let options = trusting(folder.write("ca.pem", &Authority::new().pem()));
    let tls = TlsConnector::new(Arc::new(PipeConnector(network)), options).unwrap();
    let client = Client::new(ClientConfig::new(["b1:9092"]), Arc::new(tls), doors.clone()).unwrap();
    let deadline = doors.clock.now() + Duration::from_secs(8);
    let error = client.partition_count("t", deadline).await.unwrap_err();
    assert!(error.is_retriable() && error.to_string().contains("TLS: no answer within 5s"), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let signed = authority.sign("client");
    let ca = folder.write("ca.pem", &authority.pem());
    let bad = |options: TlsOptions| {
        let inner = Arc::new(PipeConnector(prosody_base::Network::default()));
        match TlsConnector::new(inner, options).unwrap_err() {
            TlsError::File { file, path, why } => {
                (file, path.file_name().unwrap().to_str().unwrap().to_owned(), why)
            }
            other => panic!("{other}"),
        }
    };
    let with = |certificate: PathBuf, key: PathBuf| {
        let identity = Some(TlsIdentity { certificate, key, key_password: None });
        TlsOptions { identity, ..trusting(ca.clone()) }
    };
    let certificate = folder.write("client.pem", &signed.certificate);
    let key = folder.write("client.key", &signed.key);
    let text = folder.write("text", "hello");
    let locked = signed.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let locked = folder.write("locked.key", &locked);
    let other = folder.write("other.key", &authority.sign("client").key);
    for (options, file, name, why) in [
        (
            trusting(folder.write("gone", "").with_file_name("missing")),
            TlsFile::Authorities,
            "missing",
            "No such",
        ),
        (trusting(text.clone()), TlsFile::Authorities, "text", "no PEM section CERTIFICATE"),
        (with(key.clone(), key.clone()), TlsFile::Certificate, "client.key", "no PEM section CERTIFICATE"),
        (with(certificate.clone(), text), TlsFile::Key, "text", "no PEM section PRIVATE KEY"),
        (
            with(certificate.clone(), locked),
            TlsFile::Key,
            "locked.key",
            "it is encrypted: its password is needed",
        ),
        (with(certificate, other), TlsFile::Key, "other.key", "does not fit the certificate"),
    ] {
        let (got_file, got_name, got_why) = bad(options);
        assert_eq!((got_file, got_name.as_str()), (file, name), "{got_why}");
        assert!(got_why.contains(why), "{got_why}");
    }
}
