//! What happens in a simulated run? A seed gives the plan: how many brokers and members, which faults, when.
//!
//! Only what a network, a broker and an operating system can do is planned here; the client under test is the shipped
//! one. The plan is data, so a failing seed prints it whole.

mod fault;

use std::fmt;
use std::time::Duration;

use prosody_base::Rng;

pub use fault::{Fault, Spoil, StoreFault};
use fault::{draw, draw_more, draw_odd, draw_store};

/// Partitions of the topic of a run.
pub const PARTITIONS: i32 = 6;
/// Keys of a run.
pub const KEYS: u64 = 50;
/// Records in the log of a run, at least; all of them are produced while the faults strike.
pub const RECORDS: u64 = 500;
/// Records that are sent: some have so little time that they are given up before they are written.
pub const SENDS: u64 = 720;
/// Faults of a run, at least.
pub const MIN_FAULTS: u64 = 6;
/// Faults of a run, at most.
pub const MAX_FAULTS: u64 = 14;
/// Graceful joins and leaves of a run without faults, at least.
pub const MIN_MOVES: u64 = 4;
/// Graceful joins and leaves of a run without faults, at most.
pub const MAX_MOVES: u64 = 8;
/// Longest work of a handler in a run without faults. Long enough that several records of a partition run at once and
/// end out of order; short enough that it ends well within a drain.
pub const LONG_WORK: Duration = Duration::from_secs(2);
/// Time over which records are produced and faults strike.
pub const STORM: Duration = Duration::from_secs(30);

/// What a member does with events whose handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It retries without end, or sets them aside.
    Pipeline,
    /// It gives them up after few failures and writes them to a failure topic: a third of the seeds.
    LowLatency,
    /// It gives them up at once: a ninth of the seeds.
    BestEffort,
}

/// The plan of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where it came from.
    pub seed: u64,
    /// Brokers of the cluster.
    pub brokers: i32,
    /// Members at the start.
    pub members: u64,
    /// Faults by time since the start.
    pub faults: Vec<(Duration, Fault)>,
    /// Longest a handler works.
    pub work: Duration,
    /// Share of handler calls that fail, in percent.
    pub failing: u64,
    /// How most members deal with failures; see [`Plan::mode_of`].
    pub mode: Mode,
    /// Every second member is low-latency, as while an operator changes the mode: it finds what others have set aside.
    pub mixed: bool,
    /// Pipeline members have a store, and set aside what fails.
    pub defers: bool,
    /// Members have a store, and handlers schedule timers.
    pub timers: bool,
    /// Share of handler calls that hang, panic or ignore that they are cancelled, in a thousand.
    pub unruly: u64,
    /// Handlers of one member that run at once.
    pub permits: u32,
    /// Members speak the consumer protocol (KIP-848): two fifths of the seeds. In the others they are classic ones.
    pub consumer: bool,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        let mut plan = Plan::calm(seed);
        let rng = Rng::seeded(seed);
        let count = MIN_FAULTS + rng.below(MAX_FAULTS - MIN_FAULTS + 1);
        for _ in 0..count {
            let at = STORM.mul_f64(rng.unit());
            let fault = draw(&rng, plan.brokers);
            plan.faults.push((at, if plan.consumer { fault.of_the_consumer_protocol() } else { fault }));
        }
        // From a stream of their own: what a kept seed tells stays true when one more kind is added here.
        let rng = Rng::seeded(seed ^ 0xC4A5);
        for _ in 0..1 + rng.below(3) {
            let at = STORM.mul_f64(rng.unit());
            plan.faults.push((at, draw_more(&rng, plan.brokers)));
        }
        let rng = Rng::seeded(seed ^ 0x0DD);
        for _ in 0..1 + rng.below(3) {
            let at = STORM.mul_f64(rng.unit());
            let fault = draw_odd(&rng, plan.brokers);
            plan.faults.push((at, if plan.consumer { fault.of_the_consumer_protocol() } else { fault }));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan.unruly = 10 * rng.below(3);
        plan.permits = if rng.below(4) == 0 { 3 } else { 32 };
        plan
    }

    /// A run without faults: members come and go in peace while handlers end out of order. Nothing may be handled twice
    /// in it.
    #[must_use]
    pub fn quiet(seed: u64) -> Plan {
        let mut plan = Plan { work: LONG_WORK, ..Plan::calm(seed) };
        let rng = Rng::seeded(seed);
        for _ in 0..MIN_MOVES + rng.below(MAX_MOVES - MIN_MOVES + 1) {
            let at = STORM.mul_f64(rng.unit());
            plan.faults.push((at, if rng.below(2) == 0 { Fault::Join } else { Fault::Leave }));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The world of a seed, in which nothing happens.
    fn calm(seed: u64) -> Plan {
        let rng = Rng::seeded(seed ^ 0x5EED);
        let mode = match seed % 9 {
            2 | 5 | 8 => Mode::LowLatency,
            4 => Mode::BestEffort,
            _ => Mode::Pipeline,
        };
        let is_pipeline = mode == Mode::Pipeline;
        Plan {
            seed,
            brokers: 1 + i32::try_from(rng.below(3)).unwrap_or(0),
            members: 2 + rng.below(2),
            faults: Vec::new(),
            work: Duration::from_millis(5 + rng.below(200)),
            failing: if is_pipeline { rng.below(6) } else { 4 * rng.below(6) },
            mode,
            mixed: false,
            // Every second pipeline retries in place.
            defers: is_pipeline && seed.is_multiple_of(2),
            timers: false,
            unruly: 0,
            permits: 32,
            consumer: seed % 5 >= 3,
        }
    }

    /// How a member deals with failures. Members are numbered from 1 in the order in which they start.
    #[must_use]
    pub fn mode_of(&self, member: u64) -> Mode {
        if self.mixed && member.is_multiple_of(2) { Mode::LowLatency } else { self.mode }
    }

    /// The plan of a seed, with timers and a store that fails, too.
    #[must_use]
    pub fn with_timers(seed: u64) -> Plan {
        let mut plan = Plan { timers: true, ..Plan::of(seed) };
        plan.mixed = plan.defers && seed % 10 == 6;
        let rng = Rng::seeded(seed ^ 0x5708E);
        for _ in 0..2 + rng.below(3) {
            let at = STORM.mul_f64(rng.unit());
            plan.faults.push((at, draw_store(&rng)));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// [`quiet`](Plan::quiet), with timers.
    #[must_use]
    pub fn quiet_with_timers(seed: u64) -> Plan {
        Plan { timers: true, ..Plan::quiet(seed) }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.consumer { "consumer-protocol" } else { "classic" };
        writeln!(
            f,
            "seed {}: {} brokers, {} {protocol} members, {:?}{}{}{}",
            self.seed,
            self.brokers,
            self.members,
            self.mode,
            if self.mixed { " mixed with LowLatency" } else { "" },
            if self.defers { ", setting aside" } else { "" },
            if self.timers { ", with timers" } else { "" },
        )?;
        writeln!(
            f,
            "  handlers up to {:?}, {} at once, {} % failing, {} ‰ unruly",
            self.work, self.permits, self.failing, self.unruly
        )?;
        for (at, fault) in &self.faults {
            writeln!(f, "  {at:>12.3?} {fault:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_many_seeds_give_every_kind() {
        assert_eq!(Plan::of(7), Plan::of(7));
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let plan = Plan::of(seed);
            assert!(plan.faults.len() >= 6 && plan.members >= 2);
            seen.extend(plan.faults.iter().map(|(_, fault)| fault.kind()));
        }
        assert_eq!(seen, Fault::KINDS.into_iter().collect());
        let faults = (0..200).flat_map(|seed| Plan::with_timers(seed).faults);
        seen.extend(faults.map(|(_, fault)| fault.kind()));
        assert_eq!(seen, Fault::KINDS.into_iter().chain(Fault::STORE_KINDS).collect());
    }

    #[test]
    fn in_a_quiet_run_members_only_come_and_go() {
        for seed in 0..50 {
            let plan = Plan::quiet(seed);
            assert!(plan.faults.len() >= 4, "{plan}");
            assert!(
                plan.faults.iter().all(|(_, fault)| matches!(fault, Fault::Join | Fault::Leave)),
                "{plan}"
            );
        }
    }
}
