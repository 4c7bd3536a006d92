//! What do others get wrong? Each row names the defect. A row whose behaviour works is an error, unless it only works
//! sometimes. The long tier shows each defect of a client with Apache Kafka in place of our broker; a defect of a broker is
//! shown by the columns of Apache Kafka, where our client does the same and it works.

/// When a defect is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Always,
    /// Two messages race.
    Sometimes,
    /// It is no defect: the client, or the broker, has no such feature. Told apart in the matrix, and not counted as excused.
    Lacks,
}
use Seen::{Always, Lacks, Sometimes};

pub(super) struct Excuse {
    /// The client or broker of others.
    pub(super) other: &'static str,
    /// The behaviour's name.
    pub(super) behaviour: &'static str,
    pub(super) seen: Seen,
    pub(super) defect: &'static str,
}

const fn row(other: &'static str, behaviour: &'static str, seen: Seen, defect: &'static str) -> Excuse {
    Excuse { other, behaviour, seen, defect }
}

/// The mock cluster answers a follower's SyncGroup with its assignment only while the leader's has not arrived.
const MOCK_SYNC: &str = "librdkafka's mock cluster: a SyncGroup that arrives after the leader's is refused, so a group of two with a quick leader never settles";
const MISSING_TOPIC: &str =
    "the client does not read the topics that exist while another one of its subscription does not";
const ASSIGNORS: &str = "the client has no such assignor";
const LOST: &str = "the client drops a record for a partition that does not exist, without an error";
const TANSU_CONFIGS: &str = "Tansu keeps the settings of a topic and does not act on them";
const TANSU_LATEST: &str = "Tansu: the latest offset is that of the last batch and not the one behind it";
const TANSU_TIME: &str =
    "Tansu: ListOffsets by time compares with the time of writing, and finds nothing behind the end";
const TANSU_RANGE: &str = "Tansu answers a fetch behind the end with no records and no error";
const TANSU_TRIM: &str = "Tansu closes the connection on DeleteRecords";
const TANSU_METADATA: &str = "Tansu drops the metadata of a commit";
const PLATFORMATIC_ID: &str = "@platformatic/kafka asks for the next epoch of a transactional id with a producer id of 0 instead of none, so a second producer of an id is refused";
const MOCK_TRANSACTIONS: &str =
    "librdkafka's mock cluster writes no markers and hides nothing of a transaction";
const TANSU_TRANSACTIONS: &str = "Tansu names no aborted transactions to its readers";
const TANSU_EMPTY: &str = "Tansu keeps the assignor of a group whose last member has left";
const TANSU_GROUPS: &str = "Tansu lists a group late, describes it without its assignment, has missing ones, and deletes those in use";
const TANSU_CHECKS: &str = "Tansu creates a topic whatever its name, partitions, replicas and settings are";
/// Its coordinator says so of itself: `_on_join_prepare_async` leaves the assignment in place, and
/// `assign_from_subscribed` preserves the position of a partition that comes back. Java's client starts anew. One behaviour
/// shows it always, with Apache Kafka too; in the others it depends on what had been fetched when the rebalance came.
const KEPT_POSITION: &str = "kafka-python: a partition that an eager rebalance takes and gives back goes on at its fetch position and not at the commit, so what was fetched and dropped when it was revoked is not offered again";
const KEPT_FETCH: &str = "@platformatic/kafka: a partition without a commit goes on at its fetch position after a rebalance, so what was fetched and dropped is not offered again";
const NULL_HEADERS: &str = "the client cannot write a header without a value";

pub(super) const EXCUSES: &[Excuse] = &[
    row(
        "mock",
        "an offset is found by time",
        Always,
        "librdkafka's mock cluster: ListOffsets by time answers with the end",
    ),
    row("mock", "two members share", Sometimes, MOCK_SYNC),
    row("mock", "a member too many idles", Sometimes, MOCK_SYNC),
    row("mock", "leaving hands over at once", Sometimes, MOCK_SYNC),
    row("mock", "a killed member is missed after its session", Sometimes, MOCK_SYNC),
    row("mock", "a clean hand-over loses and repeats nothing", Sometimes, MOCK_SYNC),
    row("mock", "range divides each topic", Sometimes, MOCK_SYNC),
    row("mock", "round-robin deals all partitions", Sometimes, MOCK_SYNC),
    row("mock", "cooperative-sticky moves no partition twice", Sometimes, MOCK_SYNC),
    row("mock", "a static member comes back without a rebalance", Sometimes, MOCK_SYNC),
    row("mock", "a mixed group shares, the other client first", Sometimes, MOCK_SYNC),
    row("mock", "a mixed group shares, the subject second", Sometimes, MOCK_SYNC),
    row("mock", "the subject takes over from the other client", Sometimes, MOCK_SYNC),
    row("mock", "the other client takes over from the subject", Sometimes, MOCK_SYNC),
    row("kafka-python", "a header without a value arrives as null", Lacks, NULL_HEADERS),
    row("kafkajs", "a header without a value arrives as null", Lacks, NULL_HEADERS),
    row("aiokafka", "a group notices its topic when it is made", Always, MISSING_TOPIC),
    row("aiokafka", "cooperative-sticky moves no partition twice", Lacks, ASSIGNORS),
    row("aiokafka", "an empty group is deleted", Lacks, "aiokafka has no DeleteGroups"),
    row("aiokafka", "a group in use is not deleted", Lacks, "aiokafka has no DeleteGroups"),
    row("aiokafka", "a missing group is not deleted", Lacks, "aiokafka has no DeleteGroups"),
    row("kafkajs", "a missing partition is an error", Always, LOST),
    row("kafkajs", "a group notices its topic when it is made", Always, MISSING_TOPIC),
    row("kafkajs", "range divides each topic", Lacks, ASSIGNORS),
    row("kafkajs", "cooperative-sticky moves no partition twice", Lacks, ASSIGNORS),
    row("kafkajs", "a static member comes back without a rebalance", Lacks, "kafkajs has no static members"),
    row(
        "kafkajs",
        "a pattern takes in later topics",
        Always,
        "kafkajs matches a pattern once, when it subscribes",
    ),
    row(
        "platformatic",
        "a header's name may repeat",
        Lacks,
        "@platformatic/kafka: headers are a map, a name cannot repeat",
    ),
    row(
        "platformatic",
        "LogAppendTime replaces the timestamp",
        Always,
        "@platformatic/kafka shows the timestamp of the producer where the batch says LogAppendTime",
    ),
    row(
        "platformatic",
        "snappy of the other client is read",
        Always,
        "@platformatic/kafka reads bare snappy blocks and not the framing of the Java library",
    ),
    row("platformatic", "a missing partition is an error", Always, LOST),
    row(
        "platformatic",
        "an offset beyond the end is reset",
        Lacks,
        "@platformatic/kafka has no reset of a position that is out of range",
    ),
    row(
        "platformatic",
        "an offset below the start is reset",
        Lacks,
        "@platformatic/kafka has no reset of a position that is out of range",
    ),
    row(
        "platformatic",
        "a commit beyond the end is reset",
        Lacks,
        "@platformatic/kafka has no reset of a position that is out of range",
    ),
    row("platformatic", "a commit keeps its metadata", Lacks, "@platformatic/kafka commits without metadata"),
    row(
        "platformatic",
        "metadata over the limit is refused, the next is not",
        Lacks,
        "@platformatic/kafka commits without metadata",
    ),
    row(
        "platformatic",
        "a group notices new partitions",
        Always,
        "@platformatic/kafka does not look for new partitions",
    ),
    row("platformatic", "a group notices its topic when it is made", Always, MISSING_TOPIC),
    row("platformatic", "range divides each topic", Lacks, ASSIGNORS),
    row("platformatic", "cooperative-sticky moves no partition twice", Lacks, ASSIGNORS),
    row(
        "platformatic",
        "a pattern takes in later topics",
        Lacks,
        "@platformatic/kafka has no subscription by pattern",
    ),
    row(
        "platformatic",
        "a group is described",
        Always,
        "@platformatic/kafka ends its process on the user data of a subscription",
    ),
    row("Tansu", "LogAppendTime replaces the timestamp", Lacks, TANSU_CONFIGS),
    row("Tansu", "a record over max.message.bytes is refused", Lacks, TANSU_CONFIGS),
    row("Tansu", "forty partitions are found and filled", Always, TANSU_LATEST),
    row("Tansu", "the latest offset is the end", Always, TANSU_LATEST),
    row("Tansu", "reading from the end sees new records only", Always, TANSU_LATEST),
    row("Tansu", "without a commit, latest reads what is new", Always, TANSU_LATEST),
    row("Tansu", "an offset is found by time", Always, TANSU_TIME),
    row("Tansu", "no offset is found in the future", Always, TANSU_TIME),
    row("Tansu", "an offset beyond the end is reset", Always, TANSU_RANGE),
    row("Tansu", "a commit beyond the end is reset", Always, TANSU_RANGE),
    row("Tansu", "deleted records are not there any more", Always, TANSU_TRIM),
    row("Tansu", "an offset below the start is reset", Always, TANSU_TRIM),
    row("Tansu", "the earliest offset moves with deleted records", Always, TANSU_TRIM),
    row("Tansu", "a commit keeps its metadata", Always, TANSU_METADATA),
    row("Tansu", "metadata over the limit is refused, the next is not", Always, TANSU_METADATA),
    row(
        "mock",
        "metadata over the limit is refused, the next is not",
        Lacks,
        "librdkafka's mock cluster takes metadata of any length",
    ),
    row(
        "librdkafka",
        "a commit keeps its metadata",
        Sometimes,
        "confluent-kafka writes a zero byte behind the metadata of a commit, and reads past its end",
    ),
    row("platformatic", "aborted transactions are not read", Always, PLATFORMATIC_ID),
    row("platformatic", "an open transaction holds back what follows", Always, PLATFORMATIC_ID),
    row(
        "platformatic",
        "a static member comes back without a rebalance",
        Always,
        "@platformatic/kafka leaves the group on closing, static or not",
    ),
    row("mock", "committed transactions are read, their markers are not", Lacks, MOCK_TRANSACTIONS),
    row("mock", "aborted transactions are not read", Lacks, MOCK_TRANSACTIONS),
    row("mock", "read_uncommitted reads aborted transactions", Lacks, MOCK_TRANSACTIONS),
    row("mock", "an open transaction holds back what follows", Lacks, MOCK_TRANSACTIONS),
    row("Tansu", "aborted transactions are not read", Always, TANSU_TRANSACTIONS),
    row("Tansu", "an open transaction holds back what follows", Always, TANSU_TRANSACTIONS),
    row("Tansu", "the subject resumes at the other's commit", Always, TANSU_EMPTY),
    row("Tansu", "the other resumes at the subject's commit", Always, TANSU_EMPTY),
    row("Tansu", "a group in use is not deleted", Always, TANSU_GROUPS),
    row("Tansu", "groups are listed", Always, TANSU_GROUPS),
    row("Tansu", "a group is described", Always, TANSU_GROUPS),
    row("Tansu", "a missing group is dead", Always, TANSU_GROUPS),
    row("Tansu", "a missing group is not deleted", Always, TANSU_GROUPS),
    row("Tansu", "a bad name is refused", Always, TANSU_CHECKS),
    row("Tansu", "no partitions are refused", Always, TANSU_CHECKS),
    row("Tansu", "more replicas than brokers are refused", Always, TANSU_CHECKS),
    row("Tansu", "a bad setting is refused at creation", Always, TANSU_CHECKS),
    row("Tansu", "a bad change is refused", Always, TANSU_CHECKS),
    row("Tansu", "records are deleted", Always, TANSU_TRIM),
    row("Tansu", "records beyond the end are not deleted", Always, TANSU_TRIM),
    row("mock", "what was not committed comes again after a rebalance", Sometimes, MOCK_SYNC),
    row("platformatic", "what was not committed comes again after a rebalance", Always, KEPT_FETCH),
    row("kafka-python", "what was not committed comes again after a rebalance", Always, KEPT_POSITION),
    row("kafka-python", "a clean hand-over loses and repeats nothing", Sometimes, KEPT_POSITION),
    row("kafka-python", "the subject takes over from the other client", Sometimes, KEPT_POSITION),
    row("kafka-python", "a mixed group shares, the other client first", Sometimes, KEPT_POSITION),
];

/// What excuses one cell, by the other side's name and the behaviour's.
pub(super) fn find(other: &str, behaviour: &str) -> Option<&'static Excuse> {
    EXCUSES.iter().find(|row| row.other == other && row.behaviour == behaviour)
}

#[cfg(test)]
mod tests {
    use super::EXCUSES;
    use crate::conform::behaviours::BEHAVIOURS;
    use crate::conform::programs::{CLIENTS, SERVERS};

    #[test]
    fn every_excuse_is_of_a_cell_that_exists() {
        for row in EXCUSES {
            assert!(BEHAVIOURS.iter().any(|one| one.name == row.behaviour), "{}", row.behaviour);
            let clients = CLIENTS.iter().map(|one| one.name());
            assert!(
                clients.chain(SERVERS.iter().map(|one| one.name())).any(|name| name == row.other),
                "{}",
                row.other
            );
        }
    }
}
