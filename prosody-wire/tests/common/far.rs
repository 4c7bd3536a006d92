//! A broker that is far away: every byte takes its time, in both directions, over a link that carries only so many a second.

use std::io;
use std::time::Duration;

use prosody_base::Network;
use prosody_wire::{BoxFuture, Connector, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;

/// Gigabit Ethernet.
const BYTES_PER_SECOND: u32 = 125_000_000;

#[derive(Debug)]
pub struct FarConnector {
    pub network: Network,
    pub round_trip: Duration,
}

impl Connector for FarConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (read_there, write_there) =
                tokio::io::split(self.network.connect(&format!("{host}:{port}"))?);
            let (near, here) = tokio::io::duplex(1 << 20);
            let (read_here, write_here) = tokio::io::split(here);
            tokio::spawn(carry(read_here, write_there, self.round_trip / 2));
            tokio::spawn(carry(read_there, write_here, self.round_trip / 2));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

async fn carry<S: Stream>(mut from: ReadHalf<S>, mut to: WriteHalf<S>, takes: Duration) {
    let (leave, mut arrive) = tokio::sync::mpsc::unbounded_channel();
    let leaving = async move {
        let mut chunk = vec![0; 256 << 10];
        while let Ok(length @ 1..) = from.read(&mut chunk).await {
            tokio::time::sleep(Duration::from_secs(1) * length as u32 / BYTES_PER_SECOND).await;
            let _ = leave.send((Instant::now() + takes, chunk[..length].to_vec()));
        }
    };
    let arriving = async move {
        while let Some((at, bytes)) = arrive.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(leaving, arriving);
}
