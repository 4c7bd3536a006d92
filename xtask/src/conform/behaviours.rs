//! What has to come out the same with every client and every broker? The one list: each behaviour comes from a row of
//! WIRE 1 or 4 and is visible as a record, an offset, an assignment or an error.

use super::agent::Outcome;
use super::stage::Stage;
use super::{admin, data, groups, mixed, reading, transactions};

/// Which runs a behaviour is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Both,
    /// Our client and brokers of others.
    Ours,
    /// Clients of others and our broker.
    Theirs,
}
use Way::{Both, Ours, Theirs};

pub(super) struct Behaviour {
    /// The row of the design.
    pub(super) row: &'static str,
    /// What is seen, as a sentence.
    pub(super) name: &'static str,
    pub(super) way: Way,
    pub(super) play: fn(&Stage<'_>) -> Outcome,
}

const fn row(row: &'static str, name: &'static str, way: Way, play: fn(&Stage<'_>) -> Outcome) -> Behaviour {
    Behaviour { row, name, way, play }
}

pub(super) const BEHAVIOURS: &[Behaviour] = &[
    row("1 Producer", "a null key arrives as null", Both, data::null_key),
    row("1 Producer", "a null value arrives as null", Both, data::null_value),
    row("1 Producer", "an empty value is not null", Both, data::empty_value),
    row("1 Producer", "an empty key is not null", Both, data::empty_key),
    row("1 Producer", "text beyond ASCII arrives as it is", Both, data::unicode),
    row("1 Producer", "headers keep names, values and order", Both, data::headers),
    row("1 Producer", "a header's name may repeat", Both, data::repeated_headers),
    row("1 Producer", "a header without a value arrives as null", Both, data::null_header),
    row("1 Producer", "a record keeps the timestamp it was given", Both, data::timestamp),
    row("1 Fetch", "LogAppendTime replaces the timestamp", Both, data::log_append_time),
    row("1 Producer", "uncompressed batches are read by the other client", Both, data::none_written),
    row("1 Producer", "gzip is read by the other client", Both, data::gzip_written),
    row("1 Producer", "snappy is read by the other client", Both, data::snappy_written),
    row("1 Producer", "lz4 is read by the other client", Both, data::lz4_written),
    row("1 Producer", "zstd is read by the other client", Both, data::zstd_written),
    row("1 Fetch", "uncompressed batches of the other client are read", Both, data::none_read),
    row("1 Fetch", "gzip of the other client is read", Both, data::gzip_read),
    row("1 Fetch", "snappy of the other client is read", Both, data::snappy_read),
    row("1 Fetch", "lz4 of the other client is read", Both, data::lz4_read),
    row("1 Fetch", "zstd of the other client is read", Both, data::zstd_read),
    row("1 Producer", "a thousand records keep their order", Both, data::a_thousand_in_order),
    row("1 Producer", "an acknowledgement names the offset", Both, data::offsets_returned),
    row("1 Producer", "records of a key stay together, in order", Both, data::keys_stay_together),
    row("1 Producer", "murmur2 chooses Java's partitions", Both, data::murmur2),
    row("1 Producer", "crc32 chooses librdkafka's partitions", Ours, data::crc32),
    row("1 Producer", "a record of 900 kB arrives", Both, data::large),
    row("1 Producer", "a record over max.message.bytes is refused", Both, data::too_large),
    row("1 Producer", "acks=0 records arrive", Theirs, data::acks_0),
    row("1 Producer", "acks=1 records arrive", Theirs, data::acks_1),
    row("1 Producer", "idempotent records are there once, in order", Both, data::idempotent),
    row("1 Metadata", "a missing topic is an error and is not created", Both, data::missing_topic),
    row("1 Metadata", "a missing partition is an error", Both, data::missing_partition),
    row("1 Metadata", "forty partitions are found and filled", Both, data::many_partitions),
    row("1 Metadata", "a topic made again starts empty", Both, reading::recreated),
    row("1 Fetch", "a batch larger than the fetch comes whole", Both, data::larger_than_the_fetch),
    row("1 Fetch", "reading from the beginning", Both, reading::from_earliest),
    row("1 Fetch", "reading from the end sees new records only", Both, reading::from_latest),
    row("1 Single-record reads", "reading starts inside a batch", Both, reading::in_the_middle),
    row("1 Fetch", "a waiting reader gets a record at once", Both, reading::long_poll),
    row("1 Fetch", "an empty partition gives nothing, in time", Both, reading::nothing_there),
    row("4 ListOffsets loop", "an offset beyond the end is reset", Both, reading::out_of_range),
    row("1 Fetch", "deleted records are not there any more", Both, reading::after_trimming),
    row("4 ListOffsets loop", "an offset below the start is reset", Both, reading::below_the_start),
    row("1 Fetch", "committed transactions are read, their markers are not", Both, transactions::committed),
    row("1 Fetch", "aborted transactions are not read", Both, transactions::aborted),
    row("1 Fetch", "read_uncommitted reads aborted transactions", Both, transactions::uncommitted),
    row("1 Fetch", "an open transaction holds back what follows", Both, transactions::open),
    row("1 Admin", "the latest offset is the end", Both, reading::latest_offset),
    row("1 Admin", "the earliest offset is the start", Both, reading::earliest_offset),
    row("1 Admin", "the earliest offset moves with deleted records", Both, reading::earliest_after_trimming),
    row("1 Admin", "an offset is found by time", Both, reading::offset_by_time),
    row("1 Admin", "no offset is found in the future", Both, reading::offset_in_the_future),
    row("1 Groups", "one member owns and reads everything", Both, groups::one_member),
    row("1 Groups", "two members share", Both, groups::two_members),
    row("1 Groups", "a member too many idles", Both, groups::more_members_than_partitions),
    row("1 Groups", "leaving hands over at once", Both, groups::leaving),
    row("4 removed yet consuming", "a killed member is missed after its session", Both, groups::killed),
    row("1 Commits", "the next member resumes at the commit", Both, groups::resumes),
    row("1 Commits", "a clean hand-over loses and repeats nothing", Both, groups::hand_over),
    row("1 Commits", "what was not committed comes again after a rebalance", Both, groups::offered_again),
    row("1 Commits", "a commit keeps its metadata", Both, groups::commit_metadata),
    row("1 Commits", "a commit may go back", Both, groups::commit_backwards),
    row("1 Commits", "metadata over the limit is refused, the next is not", Both, groups::metadata_too_large),
    row("1 Commits", "a new group has committed nothing", Both, groups::nothing_committed),
    row("4 starts at latest", "without a commit, earliest reads everything", Both, groups::reset_earliest),
    row("4 starts at latest", "without a commit, latest reads what is new", Both, groups::reset_latest),
    row("1 Commits", "a commit beyond the end is reset", Both, groups::committed_out_of_range),
    row("1 Commits", "a group starts where it was set to", Both, groups::starts_where_told),
    row("1 Groups", "two groups read the same", Both, groups::two_groups),
    row("1 Groups", "one member reads two topics", Both, groups::two_topics),
    row("1 Metadata", "a group notices new partitions", Both, groups::growth_is_noticed),
    row("1 Metadata", "a group notices its topic when it is made", Both, groups::later_topic),
    row("1 Groups", "range divides each topic", Both, groups::range),
    row("1 Groups", "round-robin deals all partitions", Both, groups::round_robin),
    row("1 Groups", "cooperative-sticky moves no partition twice", Both, groups::cooperative),
    row("1 Groups", "a static member comes back without a rebalance", Both, groups::static_member),
    row("1 Groups", "a pattern takes in later topics", Both, groups::pattern),
    row(
        "1 Groups",
        "a pattern is matched by the coordinator where it can",
        Ours,
        groups::pattern_by_coordinator,
    ),
    row("1 Commits", "an outsider cannot commit for a group in use", Both, groups::outsiders_cannot_commit),
    row("1 Groups", "a mixed group shares, the other client first", Both, mixed::mixed_they_lead),
    row("1 Groups", "a mixed group shares, the subject second", Both, mixed::mixed_we_lead),
    row("1 Groups", "the subject takes over from the other client", Both, mixed::mixed_we_leave),
    row("1 Groups", "the other client takes over from the subject", Both, mixed::mixed_they_leave),
    row("1 Commits", "the subject resumes at the other's commit", Both, mixed::carried_on_by_the_subject),
    row("1 Commits", "the other resumes at the subject's commit", Both, mixed::carried_on_by_the_peer),
    row("1 Admin", "a topic is created", Both, admin::creates),
    row("1 Admin", "topics are listed", Both, admin::lists_topics),
    row("1 Admin", "a topic is not created twice", Both, admin::exists_already),
    row("1 Admin", "a bad name is refused", Both, admin::bad_name),
    row("1 Admin", "no partitions are refused", Both, admin::no_partitions),
    row("1 Admin", "more replicas than brokers are refused", Both, admin::too_many_replicas),
    row("1 Admin", "a topic is created with a setting", Both, admin::created_with_config),
    row("1 Admin", "a bad setting is refused at creation", Both, admin::created_with_bad_config),
    row("1 Admin", "settings are described", Both, admin::describes_config),
    row("1 Admin", "a setting is changed", Both, admin::alters_config),
    row("1 Admin", "a bad change is refused", Both, admin::alters_to_nonsense),
    row("1 Admin", "a topic is deleted", Both, admin::deletes),
    row("1 Admin", "a missing topic is not deleted", Both, admin::deletes_what_is_missing),
    row("1 Admin", "a topic grows", Both, admin::grows),
    row("1 Admin", "a topic does not shrink", Both, admin::shrinks),
    row("1 Admin", "records are deleted", Both, admin::trims),
    row("1 Admin", "records beyond the end are not deleted", Both, admin::trims_beyond_the_end),
    row("1 Admin", "the cluster is described", Both, admin::describes_cluster),
    row("1 Admin", "groups are listed", Both, admin::lists_groups),
    row("1 Admin", "a group is described", Both, admin::describes_group),
    row("1 Admin", "a missing group is dead", Both, admin::describes_no_group),
    row("1 Admin", "an empty group is deleted", Both, admin::deletes_group),
    row("1 Admin", "a group in use is not deleted", Both, admin::keeps_a_group_in_use),
    row("1 Admin", "a missing group is not deleted", Both, admin::deletes_no_group),
    row("1 Admin", "a group's offsets are read", Both, admin::reads_group_offsets),
    row("1 Admin", "a group's offsets are set", Both, admin::sets_group_offsets),
];

#[cfg(test)]
mod tests {
    use super::{BEHAVIOURS, Both};
    use std::collections::BTreeSet;

    #[test]
    fn sixty_behaviours_each_way_and_none_twice() {
        assert!(BEHAVIOURS.iter().filter(|one| one.way == Both).count() >= 60);
        let names: BTreeSet<&str> = BEHAVIOURS.iter().map(|one| one.name).collect();
        let plays: BTreeSet<usize> = BEHAVIOURS.iter().map(|one| one.play as usize).collect();
        assert_eq!((names.len(), plays.len()), (BEHAVIOURS.len(), BEHAVIOURS.len()));
        assert!(BEHAVIOURS.iter().all(|one| one.row.starts_with("1 ") || one.row.starts_with("4 ")));
    }
}
