//! What goes wrong in a simulated run? Each fault, its kind, and how it is drawn.

use std::time::Duration;

use prosody_base::Rng;

use super::PARTITIONS;
use crate::broker::{ApiKey, code};

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
    /// A request has its effect and its answer is spoilt on the way.
    Spoil(ApiKey, Spoil),
    /// A request is swallowed: no effect, no answer, and nothing else on its connection either.
    BlackHole(ApiKey),
    /// An answer tells its client to keep away for a while (KIP-219).
    Throttle(ApiKey, Duration),
    /// A partition gets another leader, and for a while metadata says what was so before, or that nobody leads it.
    StaleMetadata {
        /// Which partition.
        partition: i32,
        /// The new leader.
        to: i32,
        /// Metadata says that nobody leads it.
        nobody: bool,
        /// How long.
        lasts: Duration,
    },
    /// For a while nearly every call of a handler fails: what all of them need is away.
    Outage {
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

/// How an answer is spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// The broker's direction of the connection ends before it.
    HalfClose,
    /// Only so many bytes of it come, then the connection ends.
    Partial(usize),
    /// It comes twice.
    Duplicate,
    /// It answers a question that nobody asked.
    WrongCorrelation,
    /// Bytes drawn from this seed come instead.
    Garbage(u64),
    /// It claims this length.
    AbsurdLength(i32),
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
    /// It has no effect, and no answer comes, not even a refusal.
    Hang,
    /// It has its effect, and nothing more is heard of it.
    HangAfter,
}

impl Fault {
    /// The same fault, striking the heartbeat of the consumer protocol instead of a call of the classic one.
    pub(super) fn of_the_consumer_protocol(self) -> Fault {
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
            Fault::Spoil(api, how) => Fault::Spoil(beat(api), how),
            Fault::BlackHole(api) => Fault::BlackHole(beat(api)),
            Fault::Throttle(api, by) => Fault::Throttle(beat(api), by),
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
            Fault::Spoil(_, Spoil::HalfClose) => "half-close",
            Fault::Spoil(_, Spoil::Partial(_)) => "partial-write",
            Fault::Spoil(_, Spoil::Duplicate) => "duplicate-answer",
            Fault::Spoil(_, Spoil::WrongCorrelation) => "wrong-correlation",
            Fault::Spoil(_, Spoil::Garbage(_)) => "garbage",
            Fault::Spoil(_, Spoil::AbsurdLength(_)) => "absurd-length",
            Fault::BlackHole(_) => "black-hole",
            Fault::Throttle(..) => "throttle",
            Fault::StaleMetadata { .. } => "stale-metadata",
            Fault::Outage { .. } => "outage",
            Fault::Store { how: StoreFault::Fail, .. } => "store-fail",
            Fault::Store { how: StoreFault::LoseAnswer, .. } => "store-lose-answer",
            Fault::Store { how: StoreFault::Delay, .. } => "store-delay",
            Fault::Store { how: StoreFault::DelayAnswer, .. } => "store-delay-answer",
            Fault::Store { how: StoreFault::Hang, .. } => "store-hang",
            Fault::Store { how: StoreFault::HangAfter, .. } => "store-hang-after",
        }
    }

    /// Every kind there is in runs with timers besides.
    pub const STORE_KINDS: [&'static str; 6] = [
        "store-fail",
        "store-lose-answer",
        "store-delay",
        "store-delay-answer",
        "store-hang",
        "store-hang-after",
    ];

    /// Every kind there is in other runs. A run over many seeds in which one of them never struck proves less than it says.
    pub const KINDS: [&'static str; 24] = [
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
        "half-close",
        "partial-write",
        "duplicate-answer",
        "wrong-correlation",
        "garbage",
        "absurd-length",
        "black-hole",
        "throttle",
        "stale-metadata",
        "outage",
    ];
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

/// Longest fault that only delays something.
const SHORT: u64 = 4_000;

pub(super) fn draw(rng: &Rng, brokers: i32) -> Fault {
    let broker = || 1 + i32::try_from(rng.below(u64::try_from(brokers).unwrap_or(1))).unwrap_or(0);
    let (api, codes) = target(rng);
    let code = codes.get(usize::try_from(rng.below(codes.len() as u64)).unwrap_or(0)).copied();
    let short = Duration::from_millis(1 + rng.below(SHORT));
    match rng.below(12) {
        0 => Fault::CutBefore(api),
        1 => Fault::CutAfter(api),
        2 => Fault::Delay(api, short),
        3 => Fault::DelayAnswer(api, short),
        4 => code.map_or(Fault::CutAfter(api), |code| Fault::Refuse(api, code)),
        5 => Fault::BrokerRestart { broker: broker(), away: short },
        6 => Fault::LeaderMove { partition: partition(rng), to: broker() },
        7 => Fault::CoordinatorMove { to: broker() },
        8 => Fault::Join,
        9 => Fault::Leave,
        10 => Fault::Kill { back: short },
        _ => Fault::Silence { lasts: Duration::from_secs(1 + rng.below(20)) },
    }
}

pub(super) fn draw_more(rng: &Rng, brokers: i32) -> Fault {
    let broker = 1 + i32::try_from(rng.below(u64::try_from(brokers).unwrap_or(1))).unwrap_or(0);
    match rng.below(3) {
        0 => Fault::Evict,
        _ => {
            let short = |most| Duration::from_millis(1 + rng.below(most));
            Fault::Crash { broker, mute: short(3_000), away: short(SHORT) }
        }
    }
}

/// What a broken network or peer does to single answers, and what others do wrong.
pub(super) fn draw_odd(rng: &Rng, brokers: i32) -> Fault {
    let (api, _) = target(rng);
    let (short, some) = (Duration::from_millis(1 + rng.below(SHORT)), rng.below(40));
    let size = usize::try_from(some).unwrap_or(0);
    match rng.below(11) {
        0 => Fault::Spoil(api, Spoil::HalfClose),
        1 => Fault::Spoil(api, Spoil::Partial(size)),
        2 => Fault::Spoil(api, Spoil::Duplicate),
        3 => Fault::Spoil(api, Spoil::WrongCorrelation),
        4 => Fault::Spoil(api, Spoil::Garbage(some)),
        5 => Fault::Spoil(api, Spoil::AbsurdLength(if some < 20 { i32::MAX } else { -1 })),
        6 => Fault::BlackHole(api),
        7 => Fault::Throttle(api, short),
        8 | 9 => {
            let to = 1 + i32::try_from(some).unwrap_or(0) % brokers.max(1);
            Fault::StaleMetadata { partition: partition(rng), to, nobody: some < 20, lasts: short }
        }
        _ => Fault::Outage { lasts: short },
    }
}

pub(super) fn draw_store(rng: &Rng) -> Fault {
    let how = match rng.below(6) {
        0 => StoreFault::Fail,
        1 => StoreFault::Delay,
        2 => StoreFault::DelayAnswer,
        3 => StoreFault::Hang,
        4 => StoreFault::HangAfter,
        _ => StoreFault::LoseAnswer,
    };
    Fault::Store { how, lasts: Duration::from_millis(100 + rng.below(5_000)) }
}

fn target(rng: &Rng) -> (ApiKey, &'static [i16]) {
    let pick = rng.below(TARGETS.len() as u64);
    TARGETS.get(usize::try_from(pick).unwrap_or(0)).copied().unwrap_or((ApiKey::FETCH, &[]))
}

fn partition(rng: &Rng) -> i32 {
    i32::try_from(rng.below(u64::try_from(PARTITIONS).unwrap_or(1))).unwrap_or(0)
}
