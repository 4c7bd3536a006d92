//! What do all bench programs share? The records they send, the clock and CPU meter, and the line they end with.
//!
//! Included by `#[path]` into our programs and into the peers' programs, which are a workspace of their own.
#![allow(dead_code, reason = "every program uses a part of it")]

use std::time::{Duration, Instant};

/// Values prepared before the clock starts: making them is no client's work. A power of two.
const POOL: usize = 1 << 14;

/// What the caller asked for on the command line: `--name value` pairs.
#[derive(Debug)]
pub struct Options(Vec<String>);

impl Options {
    /// Everything after the program's name and its first word.
    pub fn from_args() -> (String, Options) {
        let mut args = std::env::args().skip(1);
        let what = args.next().unwrap_or_default();
        (what, Options(args.collect()))
    }

    /// The text after `--name`.
    pub fn text(&self, name: &str) -> String {
        self.maybe(name).unwrap_or_else(|| {
            eprintln!("--{name} is missing");
            std::process::exit(2)
        })
    }

    /// The text after `--name`, where there is one.
    pub fn maybe(&self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|word| *word == format!("--{name}"));
        at.and_then(|at| self.0.get(at + 1)).cloned()
    }

    /// The number after `--name`.
    pub fn number(&self, name: &str) -> u64 {
        let text = self.text(name);
        text.parse().unwrap_or_else(|_| {
            eprintln!("--{name} {text}: not a number");
            std::process::exit(2)
        })
    }
}

/// Keys and JSON values with random text; lz4 shrinks a batch of them by 30 to 50 %.
#[derive(Debug)]
pub struct Records {
    keys: Vec<String>,
    values: Vec<Vec<u8>>,
}

impl Records {
    /// `keys` different keys and values of exactly `size` bytes (at least 60).
    pub fn new(keys: u64, size: usize) -> Records {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let values = (0..POOL)
            .map(|id| {
                let mut value =
                    format!("{{\"id\":\"{id:08}\",\"type\":\"order.created\",\"note\":\"").into_bytes();
                while value.len() + 2 < size {
                    value.push(random.letter());
                }
                value.extend_from_slice(b"\"}");
                value
            })
            .collect();
        Records { keys: (0..keys).map(|key| format!("key-{key:06}")).collect(), values }
    }

    /// The key of the n-th record. Neighbours differ, every key comes equally often.
    pub fn key(&self, n: u64) -> &str {
        let at = n.wrapping_mul(7_919) % (self.keys.len() as u64);
        self.keys.get(at as usize).map_or("", String::as_str)
    }

    /// The value of the n-th record.
    pub fn value(&self, n: u64) -> &[u8] {
        self.values.get(n as usize & (POOL - 1)).map_or(&[], Vec::as_slice)
    }
}

struct Random(u64);

impl Random {
    fn letter(&mut self) -> u8 {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        LETTERS.get((self.0 >> 33) as usize % LETTERS.len()).copied().unwrap_or(b'a')
    }
}

/// Wall clock and the CPU time of all threads of this process since it was made.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    cpu: f64,
}

impl Meter {
    pub fn start() -> Meter {
        Meter { start: Instant::now(), cpu: cpu_seconds() }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Prints the line that `cargo xtask bench` reads. `extra` is more JSON fields, or empty.
    pub fn report(&self, records: u64, extra: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - self.cpu;
        let comma = if extra.is_empty() { "" } else { "," };
        println!(
            "{{\"records\":{records},\"seconds\":{seconds:.4},\"cpu_seconds\":{cpu:.3},\"peak_rss_kib\":{}{comma}{extra}}}",
            peak_rss_kib()
        );
    }
}

/// User and system time of every thread, dead ones included: fields 14 and 15 of `/proc/self/stat`, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name in brackets and may hold spaces.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The middle value; sorts its argument.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
