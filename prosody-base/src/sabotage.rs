//! Which safety checks can be switched off to prove that tests notice?
//!
//! A check that guards a promise is written `if sabotaged("name") || check { .. }`. Without the feature the function
//! is a constant and costs nothing. With it, `PROSODY_SABOTAGE=name` weakens exactly one check of the process.

/// Every check that can be switched off, with the promise it guards.
pub const SABOTAGE: &[(&str, &str)] = &[
    ("produce-lost-answer", "a batch whose answer was lost may be in the log"),
    ("produce-drain", "after a failure nothing goes out until everything in flight has come back"),
    ("produce-renumber", "no new epoch while a batch's fate is unknown"),
    ("group-two-phase", "a partition goes to nobody while another member still claims it"),
    ("group-session-expiry", "without an answered heartbeat for the session timeout everything is lost"),
    ("group-revoke-ack", "KIP-848: a partition is said to be let go when its reader is done"),
    ("group-release-by", "KIP-848: who did not let go in time has lost everything"),
    ("group-commit-epoch", "a commit is refused unless its partition is owned since its epoch"),
    ("group-offset-error", "an OffsetFetch error is no missing offset"),
    ("state-version", "G9: a batch is applied only to the version it expects"),
    ("timer-early", "G5: a timer fires when its second has begun"),
    ("timer-meanwhile", "G5: a row that comes while a page is read is kept in mind"),
    ("timer-in-vain", "G5: a page counts only when no row was let go while it was read"),
    ("timer-unsettled", "G5: a slab is not trimmed while the end of a batch with a row in it is unknown"),
    ("timer-look", "G5: what a former owner puts late is found"),
    ("timer-placed", "G5: no row is put where the index was trimmed"),
    ("timer-held", "G5: the row of a lost batch is deleted only when its key does not have the timer"),
    ("produce-same-sequence", "G4: a batch whose answer was lost goes out again under the same sequence"),
    ("produce-unknown-outcome", "G4: \"not written\" is only said of what cannot be in the log"),
    ("fetch-skip-below", "a batch that begins below the position gives no record from below it"),
    ("defer-holds-back", "G2: what comes behind deferred events of its key does not run before them"),
    ("defer-forgets", "G1: a message that was set aside is not remembered as processed"),
    ("defer-keeps-timer", "G1: the timer of deferred events stays as long as there are some"),
    ("defer-void", "G2: what a former owner set aside late does not run again behind younger messages"),
    ("defer-unread", "G1: a deferred message that cannot be read is not gone"),
    ("gone-proof", "G1: a record is gone only when its log proves it"),
    ("watermark-highest-read", "G1: only finished work moves the watermark"),
    ("watermark-unfinished", "G1: an event that did not end for good is not finished"),
    ("key-exclusive", "G2: one event of a key is out at a time"),
    ("rewind-guard", "a record that comes twice in one assignment runs once"),
    ("drain-starts-nothing", "G2: nothing starts once a partition is being given up"),
    ("drain-waits", "G2: a partition is given up when its handlers have ended"),
    ("one-life", "G2: a partition that comes back waits for what still runs of its last life"),
    ("retry-holds-key", "G2: an event that waits for its retry holds its key"),
    ("transient-is-not-done", "G1: a transient error is no end"),
    ("route-acknowledged", "G1: what goes to the failure topic is done when that has it"),
    ("root-known", "an event starts when its key's record is known"),
    ("skip-done", "a message whose effects are durable does not run again"),
    ("timer-live", "a timer that was taken away does not fire"),
    ("settle-before-offset", "G1: an offset is done when the effects of its message are durable"),
    ("commit-lost", "a batch counts only when it was applied"),
    ("dedup-after-done", "G1: an id is remembered when its message is done"),
];

/// Checks that one named test each notices: the guards of `docs/bugs-of-others.md`, each with what it keeps away. A row of
/// that page may also name one of [`SABOTAGE`].
pub const GUARDS: &[(&str, &str)] = &[
    ("commit-overlap", "a commit that meets a rebalance is made again"),
    ("commit-member-lost", "a member error of a commit is one of the membership"),
    ("coordinator-forgotten", "a coordinator that is none any more is looked for again"),
    ("offset-fetch-again", "a refused OffsetFetch is asked again soon"),
    ("leader-epoch-forward", "an older leader epoch is not believed"),
    ("pause-ends", "what an earlier reader of a partition holds does not stop the next one"),
    ("unknown-topic-held", "an assigned topic without a name is asked for"),
    ("stale-epoch-stays", "a member whose epoch is behind keeps what it holds"),
    ("leave-deadline", "leaving ends by its deadline"),
    ("fetch-past-gaps", "reading goes on behind the last offset of a batch, not behind its last record"),
    ("frame-limit", "a frame longer than the limit is not read"),
    ("versions-fall-back", "an ApiVersions answer that cannot be read falls back to version 0"),
    ("out-of-range-asked", "OFFSET_OUT_OF_RANGE is no reset while the offset lies within the log"),
    ("retained-stays", "a partition that stays ours is not started again"),
    ("truncated-tail", "a batch that the broker cut off is not taken for a whole one"),
    ("rebootstrap", "when no known broker answers the bootstrap addresses are asked"),
    ("request-timeout", "a request without an answer ends its connection at its deadline"),
    ("fetch-budget", "what is held leaves less to ask for, whatever each partition's share is"),
    ("token-early", "the next token is asked for before the last one ends"),
    ("offers-named", "a refused protocol is told with what this member offers"),
    ("idle-connection", "a connection that was idle for long is replaced before it is used"),
    ("stale-ticket", "what ends from before a reset does not finish the record that took its offset"),
    ("map-base", "a map of another offset than its own is not used"),
    ("map-topic", "a map of another topic is not used"),
    ("map-empty", "nothing above the watermark is the empty text"),
    ("map-prefix", "a map that is too large is cut"),
    ("retry-identity", "a waiting retry has a place of its own"),
    ("commit-deadline", "a commit ends by its deadline"),
    ("drain-beats", "heartbeats do not wait for a drain"),
    ("attempt-cancelled", "an attempt that was cancelled is not used for the next one"),
    ("defer-frees", "an event that fails is set aside"),
    ("drain-retries", "a drain takes back what waits for a retry"),
    ("reset-commits", "a commit may go back after a reset"),
    ("produce-close-deadline", "closing a producer ends by its deadline"),
];

/// Whether the named check is switched off in this process.
#[cfg(not(feature = "sabotage"))]
#[inline(always)]
#[must_use]
pub const fn sabotaged(_name: &str) -> bool {
    false
}

/// Whether the named check is switched off in this process.
///
/// # Panics
/// When the name is neither in [`SABOTAGE`] nor in [`GUARDS`].
#[cfg(feature = "sabotage")]
#[must_use]
pub fn sabotaged(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let listed = SABOTAGE.iter().chain(GUARDS).any(|(known, _)| *known == name);
    assert!(listed, "sabotage point {name} is not listed");
    CHOSEN.get_or_init(|| std::env::var("PROSODY_SABOTAGE").ok()).as_deref() == Some(name)
}
