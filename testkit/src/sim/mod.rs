//! What happens in a simulated run? A seed gives the plan: how many brokers and members, which faults, when.
//!
//! Only what a network, a broker and an operating system can do is planned here; the client under test is the shipped
//! one. The plan is data, so a failing seed prints it whole.

use std::fmt;
use std::time::Duration;

use prosody_base::Rng;

use crate::broker::{ApiKey, code};

/// Partitions of the topic of a run.
pub const PARTITIONS: i32 = 6;
/// Keys of a run.
pub const KEYS: u64 = 50;
/// Records in the log of a run, at least; all of them are produced while the faults strike.
pub const RECORDS: u64 = 500;
/// Records that are sent: some have so little time that they are given up before they are written.
pub const SENDS: u64 = 600;
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

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A request is lost with its connection.
    CutBefore(ApiKey),
    /// A request has its effect and its answer is lost with the connection.
    CutAfter(ApiKey),
    /// A request waits before it has its effect.
    Delay(ApiKey, Duration),
    /// An answer waits.
    DelayAnswer(ApiKey, Duration),
    /// A request is answered with a retriable error that this API can carry.
    Refuse(ApiKey, i16),
    /// A broker is away for a while; its leaders move.
    BrokerRestart {
        /// Which broker.
        broker: i32,
        /// How long.
        away: Duration,
    },
    /// A broker goes on serving and none of its answers arrives; then it is away for a while. Whoever had requests at it
    /// does not know which of them had an effect.
    Crash {
        /// Which broker.
        broker: i32,
        /// How long it serves without an answer.
        mute: Duration,
        /// How long it is away.
        away: Duration,
    },
    /// A partition gets another leader.
    LeaderMove {
        /// Which partition.
        partition: i32,
        /// The new leader.
        to: i32,
    },
    /// The group gets another coordinator.
    CoordinatorMove {
        /// The new coordinator.
        to: i32,
    },
    /// A member joins: a rebalance. This and [`Leave`](Fault::Leave) are no faults but may repeat nothing.
    Join,
    /// An operator removes a member from the group, which learns it from its next heartbeat.
    Evict,
    /// A member leaves in peace: drain, commit, leave.
    Leave,
    /// A member's process ends without a word and another one starts after a while.
    Kill {
        /// How long until the next process starts.
        back: Duration,
    },
    /// A member's network is silent for a while: requests arrive, answers do not.
    Silence {
        /// How long.
        lasts: Duration,
    },
    /// For a while half of the statements to the store end badly.
    Store {
        /// How.
        how: StoreFault,
        /// How long.
        lasts: Duration,
    },
}

/// How a statement to the store ends badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It has no effect, and says so.
    Fail,
    /// It has its effect, and no answer comes.
    LoseAnswer,
    /// It waits before it has its effect.
    Delay,
    /// Its answer waits.
    DelayAnswer,
}

impl Fault {
    /// The same fault, striking the heartbeat of the consumer protocol instead of a call of the classic one.
    fn of_the_consumer_protocol(self) -> Fault {
        let beat = |api| match api {
            ApiKey::JOIN_GROUP | ApiKey::SYNC_GROUP | ApiKey::HEARTBEAT => ApiKey::CONSUMER_GROUP_HEARTBEAT,
            other => other,
        };
        match self {
            Fault::CutBefore(api) => Fault::CutBefore(beat(api)),
            Fault::CutAfter(api) => Fault::CutAfter(beat(api)),
            Fault::Delay(api, by) => Fault::Delay(beat(api), by),
            Fault::DelayAnswer(api, by) => Fault::DelayAnswer(beat(api), by),
            // The one error of the classic calls that this one does not have becomes the one that it alone has.
            Fault::Refuse(api, 27) => Fault::Refuse(beat(api), code::FENCED_MEMBER_EPOCH),
            Fault::Refuse(ApiKey::OFFSET_COMMIT, code::REQUEST_TIMED_OUT) => {
                Fault::Refuse(ApiKey::OFFSET_COMMIT, code::STALE_MEMBER_EPOCH)
            }
            Fault::Refuse(api, code) => Fault::Refuse(beat(api), code),
            other => other,
        }
    }

    /// The kind, for counting.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::CutBefore(_) => "cut-before",
            Fault::CutAfter(_) => "cut-after",
            Fault::Delay(..) => "delay",
            Fault::DelayAnswer(..) => "delay-answer",
            Fault::Refuse(..) => "refuse",
            Fault::BrokerRestart { .. } => "broker-restart",
            Fault::Crash { .. } => "crash",
            Fault::LeaderMove { .. } => "leader-move",
            Fault::CoordinatorMove { .. } => "coordinator-move",
            Fault::Join => "join",
            Fault::Evict => "evict",
            Fault::Leave => "leave",
            Fault::Kill { .. } => "kill",
            Fault::Silence { .. } => "silence",
            Fault::Store { how: StoreFault::Fail, .. } => "store-fail",
            Fault::Store { how: StoreFault::LoseAnswer, .. } => "store-lose-answer",
            Fault::Store { how: StoreFault::Delay, .. } => "store-delay",
            Fault::Store { how: StoreFault::DelayAnswer, .. } => "store-delay-answer",
        }
    }

    /// Every kind there is in runs with timers besides.
    pub const STORE_KINDS: [&'static str; 4] =
        ["store-fail", "store-lose-answer", "store-delay", "store-delay-answer"];

    /// Every kind there is in other runs. A run over many seeds in which one of them never struck proves less than it says.
    pub const KINDS: [&'static str; 14] = [
        "cut-before",
        "cut-after",
        "delay",
        "delay-answer",
        "refuse",
        "broker-restart",
        "crash",
        "leader-move",
        "coordinator-move",
        "join",
        "evict",
        "leave",
        "kill",
        "silence",
    ];
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
    /// Members give a record up after few failures and write it to a failure topic: a third of the seeds. In the others
    /// they retry without end.
    pub gives_up: bool,
    /// Members have a store, and handlers schedule timers.
    pub timers: bool,
    /// Members speak the consumer protocol (KIP-848): two fifths of the seeds. In the others they are classic ones.
    pub consumer: bool,
}

/// Requests that carry work, with the retriable errors a broker answers to them.
const TARGETS: [(ApiKey, &[i16]); 11] = [
    (ApiKey::PRODUCE, &[6, 7, 19]),
    (ApiKey::FETCH, &[6, 9, 74, 76]),
    (ApiKey::METADATA, &[]),
    (ApiKey::LIST_OFFSETS, &[6, 9]),
    (ApiKey::FIND_COORDINATOR, &[14, 15]),
    (ApiKey::JOIN_GROUP, &[14, 15, 16]),
    (ApiKey::SYNC_GROUP, &[14, 16, 27]),
    (ApiKey::HEARTBEAT, &[14, 16, 27]),
    (ApiKey::OFFSET_COMMIT, &[7, 14, 15, 16]),
    (ApiKey::OFFSET_FETCH, &[14, 15, 16]),
    (ApiKey::INIT_PRODUCER_ID, &[14, 15, 51]),
];

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
        plan.faults.sort_by_key(|(at, _)| *at);
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
        let gives_up = seed % 3 == 2;
        Plan {
            seed,
            brokers: 1 + i32::try_from(rng.below(3)).unwrap_or(0),
            members: 2 + rng.below(2),
            faults: Vec::new(),
            work: Duration::from_millis(5 + rng.below(200)),
            failing: if gives_up { 4 * rng.below(6) } else { rng.below(6) },
            gives_up,
            timers: false,
            consumer: seed % 5 >= 3,
        }
    }

    /// The plan of a seed, with timers and a store that fails, too.
    #[must_use]
    pub fn with_timers(seed: u64) -> Plan {
        let mut plan = Plan { timers: true, gives_up: false, ..Plan::of(seed) };
        let rng = Rng::seeded(seed ^ 0x5708E);
        for _ in 0..2 + rng.below(3) {
            let how = match rng.below(4) {
                0 => StoreFault::Fail,
                1 => StoreFault::Delay,
                2 => StoreFault::DelayAnswer,
                _ => StoreFault::LoseAnswer,
            };
            let at = STORM.mul_f64(rng.unit());
            let lasts = Duration::from_millis(100 + rng.below(5_000));
            plan.faults.push((at, Fault::Store { how, lasts }));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// [`quiet`](Plan::quiet), with timers.
    #[must_use]
    pub fn quiet_with_timers(seed: u64) -> Plan {
        Plan { timers: true, gives_up: false, ..Plan::quiet(seed) }
    }
}

fn draw(rng: &Rng, brokers: i32) -> Fault {
    let broker = || 1 + i32::try_from(rng.below(u64::try_from(brokers).unwrap_or(1))).unwrap_or(0);
    let pick = rng.below(TARGETS.len() as u64);
    let (api, codes) =
        TARGETS.get(usize::try_from(pick).unwrap_or(0)).copied().unwrap_or((ApiKey::FETCH, &[]));
    let code = codes.get(usize::try_from(rng.below(codes.len() as u64)).unwrap_or(0)).copied();
    let short = Duration::from_millis(1 + rng.below(4_000));
    match rng.below(12) {
        0 => Fault::CutBefore(api),
        1 => Fault::CutAfter(api),
        2 => Fault::Delay(api, short),
        3 => Fault::DelayAnswer(api, short),
        4 => code.map_or(Fault::CutAfter(api), |code| Fault::Refuse(api, code)),
        5 => Fault::BrokerRestart { broker: broker(), away: short },
        6 => Fault::LeaderMove { partition: i32::try_from(rng.below(6)).unwrap_or(0), to: broker() },
        7 => Fault::CoordinatorMove { to: broker() },
        8 => Fault::Join,
        9 => Fault::Leave,
        10 => Fault::Kill { back: short },
        _ => Fault::Silence { lasts: Duration::from_secs(1 + rng.below(20)) },
    }
}

fn draw_more(rng: &Rng, brokers: i32) -> Fault {
    let broker = 1 + i32::try_from(rng.below(u64::try_from(brokers).unwrap_or(1))).unwrap_or(0);
    match rng.below(3) {
        0 => Fault::Evict,
        _ => {
            let short = |most| Duration::from_millis(1 + rng.below(most));
            Fault::Crash { broker, mute: short(3_000), away: short(4_000) }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} brokers, {} {} members, handlers up to {:?}, {} % failing, {}",
            self.seed,
            self.brokers,
            self.members,
            if self.consumer { "consumer-protocol" } else { "classic" },
            self.work,
            self.failing,
            if self.gives_up { "given up after few failures" } else { "retried without end" }
        )?;
        if self.timers {
            writeln!(f, "  with timers")?;
        }
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
