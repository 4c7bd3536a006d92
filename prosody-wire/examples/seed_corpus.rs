#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "a tool for a checkout"
)]
//! What do the fuzzers start from? Writes `fuzz/corpus/TARGET/seed-*`: the hostile table, the Java client's batches, and
//! what our encoder writes.
//!
//! To be run when a target or the table has changed: `cargo run -p prosody-wire --example seed_corpus`, then
//! `cargo xtask fuzz --seconds 60 --keep`.

use std::path::PathBuf;

fn main() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let save = |target: &str, name: &str, bytes: &[u8]| {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        if bytes.len() <= 4096 {
            std::fs::write(folder.join(format!("seed-{name}")), bytes).unwrap();
        }
    };
    let section = |name: &str, bytes: &[u8]| {
        let target = ["gzip", "snappy", "lz4", "zstd"].into_iter().find(|target| name.starts_with(target));
        if let Some(target) = target {
            save(target, name, bytes.get(61..).unwrap_or_default());
        }
    };
    let spoken = prosody_wire::internals::spoken();
    for row in prosody_testkit::hostile::rows() {
        use prosody_testkit::hostile::Attack;
        match row.attack {
            Attack::Records(bytes) => {
                section(row.name, &bytes);
                save("batches", row.name, &[&[0], &bytes[..]].concat());
            }
            Attack::Bomb(_) | Attack::TlsPeer(_) | Attack::SaslPeer(..) | Attack::TokenEndpoint(..) => {}
            // These are for a broker.
            Attack::Client(_) | Attack::ClientBomb(_) => {}
            Attack::Body { api, version, body } => {
                let index = spoken.iter().position(|row| row.0 == api).unwrap();
                let version = version - spoken[index].1;
                if (0..=spoken[index].2 - spoken[index].1).contains(&version) {
                    save("responses", row.name, &[&[index as u8, version as u8], &body[..]].concat());
                }
            }
            Attack::Subscription(bytes) => save("groups", row.name, &[&[0], &bytes[..]].concat()),
            Attack::Assignment(bytes) => save("groups", row.name, &[&[1], &bytes[..]].concat()),
            Attack::Peer(moves) => save("frames", row.name, &bytes_of(&moves)),
        }
    }
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/batches");
    for entry in std::fs::read_dir(golden).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        save("batches", &path.file_stem().unwrap().to_string_lossy(), &[&[0], &bytes[..]].concat());
        for codec in ["gzip", "snappy", "lz4", "zstd"] {
            if path.file_stem().unwrap().to_string_lossy().starts_with(&format!("v2-{codec}")) {
                save(codec, &path.file_stem().unwrap().to_string_lossy(), &bytes[61..]);
            }
        }
    }
    let cut = std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/batches/v2-none.bin"))
        .unwrap();
    save("batches", "cut", &[&[0], &cut[..100]].concat());
    save("snappy", "claim", &[0xff, 0xff, 0x1f, 0]);
    let frame = |correlation: u8, body: &[u8]| {
        [&[0, 0, 0, body.len() as u8 + 4, 0, 0, 0, correlation], body].concat()
    };
    let metadata = [&[0; 8][..], &[0xff, 0xff], &[0; 8], &[0x80, 0, 0, 0]].concat();
    let hello = prosody_testkit::hostile::hello();
    save("frames", "good", &[&[0][..], &frame(0, &hello), &frame(1, &metadata)].concat());
    save(
        "frames",
        "broker count",
        &[&[0][..], &frame(0, &hello), &frame(1, &[0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff])].concat(),
    );
    save(
        "frames",
        "versions without end",
        &[&[1][..], &frame(0, &[0, 0, 99]), &frame(1, &[0, 0, 0, 0, 0, 9])].concat(),
    );
    let subscription: &[u8] =
        &[0, 3, 0, 0, 0, 1, 0, 1, b'a', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1];
    let subscription = [subscription, &[0, 0, 0, 2, 0, 0, 0, 7, 0, 2, b'r', b'1']].concat();
    save("groups", "subscription", &[&[0][..], &subscription].concat());
    save("groups", "topics negative", &[0, 0, 0, 0xff, 0xff, 0xff, 0xfe]);
    save("groups", "user data negative", &[0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
    save(
        "groups",
        "assignment",
        &[1, 0, 0, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff],
    );
    let good = "x,s=c2FsdA==,i=4096\n";
    for (name, mode, text) in [
        ("good", 6, good.to_owned()),
        ("good 512", 7, good.to_owned()),
        ("extended", 6, "x,s=c2FsdA==,i=4096,a=1,b=2\n,c=3".to_owned()),
        ("extra", 2, "x,s=c2FsdA==,i=4096,\n".to_owned()),
        ("foreign", 0, "r=other,s=c2FsdA==,i=4096\n".to_owned()),
        ("same", 2, ",s=c2FsdA==,i=4096\n".to_owned()),
        ("iterations", 2, "x,s=c2FsdA==,i=1000001\n".to_owned()),
        ("mandatory", 0, "m=x,r=nonce\n".to_owned()),
        ("missing", 2, "x,i=4096\n".to_owned()),
        ("salt", 2, "x,s=?,i=4096\n".to_owned()),
        ("refused", 2, format!("{good}e=other-error")),
        ("signature", 2, format!("{good}v=?")),
        ("wrong signature", 2, format!("{good}v=c2FsdA==")),
        ("long", 2, "x".repeat(4_095)),
    ] {
        save("scram", name, &[&[mode], text.as_bytes()].concat());
    }
    save("scram", "not text", &[2, 0xff]);
    // Nothing but zeros is an empty message in most versions of most APIs.
    for (index, (api, low, high)) in spoken.iter().enumerate() {
        for version in [0, high - low] {
            save(
                "responses",
                &format!("zeros-{api}-{version}"),
                &[&[index as u8, version as u8], &[0; 80][..]].concat(),
            );
            let ones = [
                &[index as u8, version as u8][..],
                &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat();
            save("responses", &format!("ones-{api}-{version}"), &ones);
        }
    }
    // DescribeCluster has a text that may not be null: throttle, error, its text; the cluster `c`, controller, no brokers.
    let cluster = [&[0; 7][..], &[2, b'c'], &[0; 4], &[1], &[0; 5]].concat();
    let index = spoken.iter().position(|row| row.0 == 60).unwrap();
    save("responses", "cluster", &[&[index as u8, 0], &cluster[..]].concat());
    for (name, codec) in [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)] {
        use prosody_wire::batch::{BufferPool, Compression, Compressor};
        let codec = Compression::from_code(codec).unwrap();
        for (what, plain) in [("text", b"one two one two one two three".to_vec()), ("bomb", vec![0; 3 << 20])]
        {
            let mut out = BufferPool::new(0).take(0);
            Compressor::new().compress(codec, &plain, &mut out).unwrap();
            save(name, what, out.written());
            let mut batch =
                prosody_testkit::hostile::Batch::compressed(codec.code().into(), out.written().to_vec());
            save("batches", &format!("{name}-{what}"), &[&[0], &batch.bytes()[..]].concat());
            batch.records = prosody_testkit::hostile::Batch::good().records;
            save("batches", &format!("{name}-{what}-plain"), &[&[1], &batch.bytes()[..]].concat());
        }
    }
}

/// What this peer answers, and how the `frames` target is to send it.
fn bytes_of(moves: &[prosody_testkit::hostile::Move]) -> Vec<u8> {
    use prosody_testkit::hostile::{Move, hello};
    const ENDS: u8 = 2;
    let mut bytes = vec![0];
    for (correlation, next) in moves.iter().enumerate() {
        let mut frame = |correlation: usize, body: &[u8]| {
            bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
            bytes.extend_from_slice(&(correlation as i32).to_be_bytes());
            bytes.extend_from_slice(body);
        };
        match next {
            Move::Hello => frame(correlation, &hello()),
            Move::Answer(body) => frame(correlation, body),
            Move::AnswerOther(body) => frame(correlation + 7, body),
            Move::AnswerTwice(body) => {
                frame(correlation, body);
                frame(correlation, body);
            }
            Move::Raw(raw) => bytes.extend_from_slice(raw),
            Move::RawThenClose(raw) => {
                bytes.extend_from_slice(raw);
                bytes[0] |= ENDS;
            }
            Move::HelloLogin | Move::Challenge(_) | Move::Blurt(_) | Move::Silence => {}
        }
    }
    bytes
}
