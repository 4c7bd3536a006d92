//! Encrypted and authenticated brokers, by options alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prosody_runtime::{Client, ErrorKind, FixedToken, Token};
use prosody_testkit::{ClusterConfig, ServerSasl, ServerTls};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{Diary, Said, World, quick, send_numbered, set};

/// A broker with a certificate of its own for `b1`, and the file that makes it trusted.
fn secure() -> (World, PathBuf) {
    let certified = rcgen::generate_simple_self_signed(["b1".to_owned()]).unwrap();
    let pem = certified.cert.pem();
    let tls = ServerTls::new(&pem, &certified.signing_key.serialize_pem(), None).unwrap();
    let mut sasl = ServerSasl::new([("alice", "sesame")]);
    sasl.mechanisms.push("OAUTHBEARER".to_owned());
    sasl.tokens.insert("a-token".to_owned());
    let config = ClusterConfig { tls: Some(tls), sasl: Some(sasl), ..ClusterConfig::default() };
    let name = format!("prosody-e2e-{}-{:?}.pem", std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, pem).unwrap();
    (World::with(config, &[("t", 2)]), file)
}

#[test]
fn what_travels_in_the_clear_is_warned_of_when_the_client_is_built() {
    let exposed = ("SecurityProtocol", "sasl_plaintext");
    let password =
        [exposed, ("SaslMechanism", "PLAIN"), ("SaslUsername", "alice"), ("SaslPassword", "sesame")];
    let endpoint = [
        exposed,
        ("SaslMechanism", "OAUTHBEARER"),
        ("SaslOauthTokenEndpoint", "http://idp.example/token"),
        ("SaslOauthClientId", "me"),
        ("SaslOauthClientSecret", "sesame"),
    ];
    let (records, secret) = ("credentials and records travel unencrypted", "secret travels unencrypted");
    let cases =
        [(&[][..], &[][..]), (&password[..], &[records][..]), (&endpoint[..], &[records, secret][..])];
    for (settings, warnings) in cases {
        let (said, _listening) = Said::listen();
        let builder = Client::builder().bootstrap_servers(["b:1"]).source_system("tests");
        builder.configure(set(settings)).build().unwrap();
        let said = said.text();
        assert_eq!(said.lines().count(), warnings.len(), "{said}");
        assert!(warnings.iter().all(|warning| said.contains(warning)) && !said.contains("sesame"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_handled_over_sasl_ssl() {
    let (world, ca) = secure();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"] {
        let settings = [
            ("SecurityProtocol", "sasl_ssl"),
            ("SaslMechanism", mechanism),
            ("SaslUsername", "alice"),
            ("SaslPassword", "sesame"),
            ("SslCaLocation", ca.to_str().unwrap()),
        ];
        let client = world.builder().configure(set(&settings)).build().unwrap();
        let diary = Diary::default();
        client.subscribe(quick(&diary)).await.unwrap();
        send_numbered(&client, 20, 5).await;
        world.until("handled", || diary.ended().len() == 20).await;
        client.close().await.unwrap();
    }
    let _ = std::fs::remove_file(ca);
}

/// A wrong password is wrong for ever, and brokers lock users who try it again and again.
#[tokio::test(start_paused = true)]
async fn a_refused_password_or_certificate_fails_subscribe_at_once() {
    let (world, ca) = secure();
    let trusted = ca.to_str().unwrap();
    let right = [
        ("SecurityProtocol", "sasl_ssl"),
        ("SaslMechanism", "SCRAM-SHA-512"),
        ("SaslUsername", "alice"),
        ("SaslPassword", "sesame"),
        ("SslCaLocation", trusted),
    ];
    for (wrong, kind, text) in [
        (("SaslPassword", "sesamy"), ErrorKind::Broker, "user `alice` by SCRAM-SHA-512"),
        (("SslCaLocation", ""), ErrorKind::Other, "no trusted authority signed the peer's certificate"),
    ] {
        let builder = world.builder().configure(set(&[&right[..], &[wrong]].concat()));
        let client = builder.build().unwrap();
        let start = world.clock.now();
        let refused = client.subscribe(quick(&Diary::default())).await.unwrap_err();
        assert!(world.clock.now() - start < Duration::from_secs(2), "{refused}");
        assert_eq!((refused.kind(), refused.is_retriable()), (kind, false), "{refused}");
        assert!(refused.to_string().contains(text) && !refused.to_string().contains("sesam"), "{refused}");
    }
    let _ = std::fs::remove_file(ca);
}

#[tokio::test(start_paused = true)]
async fn events_are_handled_with_tokens_of_the_application_and_of_an_endpoint() {
    let (world, ca) = secure();
    let shared = [
        ("SecurityProtocol", "sasl_ssl"),
        ("SaslMechanism", "OAUTHBEARER"),
        ("SslCaLocation", ca.to_str().unwrap()),
    ];
    let endpoint = [
        ("SaslOauthTokenEndpoint", "http://idp:8080/token"),
        ("SaslOauthClientId", "me"),
        ("SaslOauthClientSecret", "sesame"),
    ];
    let mut listener = world.cluster.network().listen("idp:8080").unwrap();
    let idp = tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            let body = r#"{"access_token":"a-token","expires_in":3600}"#;
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            // A server that speaks before it is asked is hung up on.
            let asked = stream.read(&mut [0; 4_096]).await.unwrap();
            assert!(asked > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    for by_code in [true, false] {
        let mut builder = world.builder().configure(set(&shared));
        builder = if by_code {
            builder.token_provider(Arc::new(FixedToken(Token::new("a-token"))))
        } else {
            builder.configure(set(&endpoint))
        };
        let client = builder.build().unwrap();
        let diary = Diary::default();
        client.subscribe(quick(&diary)).await.unwrap();
        send_numbered(&client, 20, 5).await;
        world.until("handled", || diary.ended().len() == 20).await;
        client.close().await.unwrap();
    }
    idp.abort();
    let _ = std::fs::remove_file(ca);
}
