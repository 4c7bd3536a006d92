//! How is a distant broker made of a near one? A proxy that holds every byte back for half of the added round trip, in
//! both directions, and slows nothing else: what came together leaves together.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const CHUNK: usize = 256 * 1024;
/// Chunks of one direction on their way: more than a link of 50 ms carries at the speed of this machine.
const ON_THE_WAY: usize = 4_096;

/// Listens until the program ends.
pub(super) struct Delay {
    address: SocketAddr,
}

impl Delay {
    /// In front of `target`, with `added` on each round trip.
    pub(super) fn before(target: &str, added: Duration) -> Result<Delay, String> {
        let target: SocketAddr = target.parse().map_err(|problem| format!("{target}: {problem}"))?;
        let problem = |problem: std::io::Error| format!("a proxy in front of {target}: {problem}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(problem)?;
        let address = listener.local_addr().map_err(problem)?;
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if let Ok(far) = TcpStream::connect(target) {
                    let _ = join(near, far, added / 2);
                }
            }
        });
        Ok(Delay { address })
    }

    /// `host:port` for programs.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }
}

fn join(near: TcpStream, far: TcpStream, held: Duration) -> std::io::Result<()> {
    for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
        to.set_nodelay(true)?;
        let (send, receive) = sync_channel(ON_THE_WAY);
        thread::spawn(move || take(from, &send, held));
        thread::spawn(move || give(to, &receive));
    }
    Ok(())
}

type Chunk = (Instant, Vec<u8>);

fn take(mut from: TcpStream, chunks: &SyncSender<Chunk>, held: Duration) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default().to_vec();
        if chunks.send((Instant::now() + held, bytes)).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Read);
}

fn give(mut to: TcpStream, chunks: &Receiver<Chunk>) {
    for (due, bytes) in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_the_added_time_and_brings_the_same_bytes() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = echo.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = echo.accept().unwrap();
            let mut bytes = [0; 5];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(&bytes).unwrap();
            }
        });
        let added = Duration::from_millis(40);
        let delay = Delay::before(&target, added).unwrap();
        let mut stream = TcpStream::connect(delay.address()).unwrap();
        for _ in 0..2 {
            let start = Instant::now();
            stream.write_all(b"hello").unwrap();
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!((&bytes, start.elapsed() >= added), (b"hello", true));
        }
    }
}
