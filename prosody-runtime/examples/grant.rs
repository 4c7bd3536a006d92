//! How long does it take to grant a permit while 10,000 events wait? Run by `cargo xtask bench`; prints one JSON line.
//!
//! The scheduler itself, without the client around it, in the state that costs most: every lane is in use, so each grant
//! compares the heads of all of them.
#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "a bench owns its process")]
#![allow(dead_code, unreachable_pub, reason = "files of the library, of which a part is used here")]

#[path = "../src/schedule/fair.rs"]
mod fair;
#[path = "../src/schedule/usage.rs"]
mod usage;

use std::time::Duration;

use fair::{Class, Policy, Selector};

const WAITING: u64 = 10_000;
const GRANTS: u32 = 1_000;
const ROUNDS: usize = 200;

fn main() {
    let policy = Policy { failure_weight: 0.3, max_wait: Duration::from_secs(120), wait_weight: 200.0 };
    let mut now = prosody_base::Instant::now();
    let mut selector = Selector::new(policy, now);
    // Keys of all virtual times, from half a millisecond to ten minutes.
    for key in 0..WAITING {
        selector.push(key, Class::Normal, now, key);
        let (_, grant) = selector.pop(now).expect("one waits");
        selector.release(&grant, now + Duration::from_secs_f64(0.0005 * 1.0014f64.powf(key as f64)));
    }
    now += Duration::from_secs(600);
    (0..WAITING).for_each(|key| selector.push(key, Class::Normal, now, key));
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = std::time::Instant::now();
            for _ in 0..GRANTS {
                let (key, grant) = selector.pop(now).expect("they wait");
                selector.release(&grant, now);
                selector.push(key, Class::Normal, now, key);
            }
            begin.elapsed().as_secs_f64() * 1e6 / f64::from(GRANTS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{{\"grant_us\":{:.3}}}", times.get(ROUNDS / 2).expect("rounds"));
}
