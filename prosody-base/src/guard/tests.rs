//! The table against the decoder it protects: in every version of every API, both must read the same bytes.

use bytes::Bytes;
use kafka_protocol::messages::{self as m, ApiKey};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::schema::{Api, Field, Kind};
use super::{Refusal, check_request, check_response, table};

/// What the decoder makes of a body: the bytes it left, or its refusal.
type Decoder = fn(&mut Bytes, i16) -> Result<(), String>;

fn decode<M: Decodable>(body: &mut Bytes, version: i16) -> Result<(), String> {
    M::decode(body, version).map(|_| ()).map_err(|why| why.to_string())
}

fn encode_default<M: Encodable + Default>(version: i16) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    M::default().encode(&mut body, version).ok().map(|()| body)
}

type Encoder = fn(i16) -> Option<Vec<u8>>;

/// The message crate's side of one row.
struct Peer {
    request: (Decoder, Encoder),
    response: (Decoder, Encoder),
}

macro_rules! peers {
    ($key:expr, $($api:ident: $request:ident, $response:ident;)*) => {
        match ApiKey::try_from($key).expect("a key of the table") {
            $(ApiKey::$api => Peer {
                request: (decode::<m::$request>, encode_default::<m::$request>),
                response: (decode::<m::$response>, encode_default::<m::$response>),
            },)*
            other => panic!("{other:?} is in the table; add it here"),
        }
    };
}

fn peer(key: i16) -> Peer {
    peers!(key,
        Produce: ProduceRequest, ProduceResponse;
        Fetch: FetchRequest, FetchResponse;
        ListOffsets: ListOffsetsRequest, ListOffsetsResponse;
        Metadata: MetadataRequest, MetadataResponse;
        OffsetCommit: OffsetCommitRequest, OffsetCommitResponse;
        OffsetFetch: OffsetFetchRequest, OffsetFetchResponse;
        FindCoordinator: FindCoordinatorRequest, FindCoordinatorResponse;
        JoinGroup: JoinGroupRequest, JoinGroupResponse;
        Heartbeat: HeartbeatRequest, HeartbeatResponse;
        LeaveGroup: LeaveGroupRequest, LeaveGroupResponse;
        SyncGroup: SyncGroupRequest, SyncGroupResponse;
        DescribeGroups: DescribeGroupsRequest, DescribeGroupsResponse;
        ListGroups: ListGroupsRequest, ListGroupsResponse;
        SaslHandshake: SaslHandshakeRequest, SaslHandshakeResponse;
        ApiVersions: ApiVersionsRequest, ApiVersionsResponse;
        CreateTopics: CreateTopicsRequest, CreateTopicsResponse;
        DeleteTopics: DeleteTopicsRequest, DeleteTopicsResponse;
        DeleteRecords: DeleteRecordsRequest, DeleteRecordsResponse;
        InitProducerId: InitProducerIdRequest, InitProducerIdResponse;
        AddPartitionsToTxn: AddPartitionsToTxnRequest, AddPartitionsToTxnResponse;
        EndTxn: EndTxnRequest, EndTxnResponse;
        OffsetForLeaderEpoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
        DescribeConfigs: DescribeConfigsRequest, DescribeConfigsResponse;
        AlterConfigs: AlterConfigsRequest, AlterConfigsResponse;
        SaslAuthenticate: SaslAuthenticateRequest, SaslAuthenticateResponse;
        CreatePartitions: CreatePartitionsRequest, CreatePartitionsResponse;
        IncrementalAlterConfigs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
        OffsetDelete: OffsetDeleteRequest, OffsetDeleteResponse;
        DescribeCluster: DescribeClusterRequest, DescribeClusterResponse;
        DeleteGroups: DeleteGroupsRequest, DeleteGroupsResponse;
        ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;
        ConsumerGroupDescribe: ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;
    )
}

/// Both directions of every API in every version.
fn every_message() -> Vec<(&'static Api, i16, bool)> {
    let versions = |api: &'static Api| (api.versions.0..=api.versions.1).map(move |version| (api, version));
    table::all().flat_map(versions).flat_map(|(api, v)| [(api, v, true), (api, v, false)]).collect()
}

fn check(api: &Api, version: i16, request: bool, body: &[u8]) -> Result<(), super::GuardError> {
    if request { check_request(api.key, version, body) } else { check_response(api.key, version, body) }
}

/// A valid body, written from the table: `choice` supplies every free decision.
fn write(api: &Api, version: i16, request: bool, choice: &mut impl FnMut() -> u8) -> Vec<u8> {
    let mut body = Vec::new();
    let fields = if request { api.request } else { api.response };
    Writer { version, flexible: version >= api.flexible, choice }.fields(fields, &mut body);
    body
}

struct Writer<'a, C> {
    version: i16,
    flexible: bool,
    choice: &'a mut C,
}

impl<C: FnMut() -> u8> Writer<'_, C> {
    fn fields(&mut self, fields: &'static [Field], out: &mut Vec<u8>) {
        let exists = |field: &&'static Field| field.exists(self.version);
        let (tagged, plain): (Vec<_>, Vec<_>) = fields.iter().filter(exists).partition(|f| f.tag.is_some());
        plain.into_iter().for_each(|field| self.value(field, out));
        if self.flexible {
            let mut chosen: Vec<_> =
                tagged.into_iter().filter(|_| (self.choice)().is_multiple_of(2)).collect();
            chosen.sort_by_key(|field| field.tag);
            let unknown = (self.choice)().is_multiple_of(4);
            varint(u32::try_from(chosen.len()).expect("few") + u32::from(unknown), out);
            for field in chosen {
                let mut value = Vec::new();
                self.value(field, &mut value);
                varint(field.tag.expect("tagged"), out);
                varint(u32::try_from(value.len()).expect("short"), out);
                out.extend(value);
            }
            if unknown {
                varint(200, out);
                out.extend([3, 1, 2, 3]);
            }
        }
    }

    fn value(&mut self, field: &'static Field, out: &mut Vec<u8>) {
        let choice = (self.choice)();
        let null = field.null_from <= self.version && choice.is_multiple_of(3);
        match field.kind {
            Kind::Fixed(size) => out.extend(std::iter::repeat_n(choice % 2, size)),
            Kind::Struct(_) if null => out.push(0xff),
            Kind::Struct(fields) => {
                out.extend((field.null_from <= self.version).then_some(1));
                self.fields(fields, out);
            }
            Kind::Text | Kind::Blob => {
                let prefix = if matches!(field.kind, Kind::Text) { 2 } else { 4 };
                let value = (!null).then(|| vec![b'x'; usize::from(choice % 5)]);
                self.length(value.as_ref().map(Vec::len), prefix, out);
                out.extend(value.unwrap_or_default());
            }
            Kind::Numbers(_) | Kind::Texts | Kind::Structs(_) => {
                let count = usize::from(choice % 3);
                self.length((!null).then_some(count), 4, out);
                for _ in 0..if null { 0 } else { count } {
                    match field.kind {
                        Kind::Structs(fields) => self.fields(fields, out),
                        Kind::Numbers(size) => out.extend(std::iter::repeat_n(choice, size)),
                        _ => {
                            self.length(Some(1), 2, out);
                            out.push(b'y');
                        }
                    }
                }
            }
        }
    }

    fn length(&self, length: Option<usize>, prefix: usize, out: &mut Vec<u8>) {
        if self.flexible {
            varint(length.map_or(0, |length| u32::try_from(length).expect("short") + 1), out);
        } else {
            let length = length.map_or(-1, |length| i64::try_from(length).expect("short"));
            out.extend(&length.to_be_bytes()[8 - prefix..]);
        }
    }
}

fn varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f | 0x80).expect("a byte"));
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("a byte"));
}

/// Choices from a list, then from a small generator.
fn choices(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    }
}

#[test]
fn keys_are_listed_once_and_versions_are_known_to_the_decoder() {
    let mut seen = std::collections::BTreeSet::new();
    for api in table::all() {
        assert!(seen.insert(api.key), "{} twice", api.name);
        let key = ApiKey::try_from(api.key).expect("known");
        assert_eq!(api.name, format!("{key:?}"));
        let known = key.valid_versions();
        assert!(known.min <= api.versions.0 && api.versions.1 <= known.max, "{}: {known}", api.name);
    }
}

#[test]
fn what_the_encoder_writes_by_default_passes_in_every_version() {
    for (api, version, request) in every_message() {
        let peer = peer(api.key);
        let (_, encode) = if request { peer.request } else { peer.response };
        if let Some(body) = encode(version) {
            assert_eq!(check(api, version, request, &body), Ok(()), "{} v{version} {request}", api.name);
        }
    }
}

#[test]
fn a_claimed_count_is_refused_before_it_can_be_reserved() {
    // Two billion brokers in nine bytes.
    let body = [0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0];
    let error = check_response(3, 7, &body).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "field brokers at byte 8: the list claims 2147483647 items, 1 bytes remain"
    );
    // The seven bytes before authentication: no error, and all the APIs there can be.
    let error = check_response(18, 3, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]).expect_err("refused");
    assert_eq!(error.refusal, Refusal::Count { claimed: 0xffff_fffe, remain: 0 });
    assert_eq!(error.field, "api_keys");
}

#[test]
fn every_rule_refuses_what_breaks_it() {
    let heartbeat = |version, body: &[u8]| check_request(12, version, body).map_err(|error| error.refusal);
    assert_eq!(heartbeat(0, &[0, 1, b'g', 0, 0, 0, 1, 0, 0]), Ok(()));
    assert_eq!(heartbeat(0, &[0, 1, b'g', 0, 0, 0, 1, 0]), Err(Refusal::Short));
    assert_eq!(heartbeat(0, &[0, 9, b'g']), Err(Refusal::Length { claimed: 9, remain: 1 }));
    assert_eq!(heartbeat(0, &[0xff, 0xff]), Err(Refusal::Null));
    assert_eq!(heartbeat(0, &[0xff, 0xfe]), Err(Refusal::Negative { claimed: -2 }));
    assert_eq!(heartbeat(0, &[0, 1, 0xff]), Err(Refusal::Utf8));
    assert_eq!(heartbeat(4, &[0x80, 0x80, 0x80, 0x80, 0x80]), Err(Refusal::Varint));
    assert_eq!(heartbeat(4, &[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(Refusal::Varint));
    let v4 = |tags: &[u8]| [&[2, b'g', 0, 0, 0, 1, 1, 0][..], tags].concat();
    assert_eq!(heartbeat(4, &v4(&[0])), Ok(()));
    assert_eq!(heartbeat(4, &v4(&[1, 9, 2, 0, 0])), Ok(()), "an unknown tagged field is stepped over");
    assert_eq!(heartbeat(4, &v4(&[0x81, 1])), Err(Refusal::Tags { count: 129 }));
    assert_eq!(heartbeat(4, &v4(&[2, 9, 0, 9, 0])), Err(Refusal::TagOrder { tag: 9 }));
    assert_eq!(heartbeat(4, &v4(&[1, 9, 5, 0])), Err(Refusal::Length { claimed: 5, remain: 1 }));
    assert_eq!(heartbeat(5, &[]), Err(Refusal::UnknownVersion { version: 5, lowest: 0, highest: 4 }));
    assert_eq!(
        check_request(999, 0, &[]).map_err(|error| error.refusal),
        Err(Refusal::UnknownApi { api_key: 999 })
    );
    // ApiVersions v3: zk_migration_ready (tag 3) is one byte, the field says two.
    let body = [0, 0, 1, 0, 0, 0, 0, 1, 3, 2, 1, 1];
    let refused = check_response(18, 3, &body).map_err(|error| error.refusal);
    assert_eq!(refused, Err(Refusal::TagSize { tag: 3, unread: 1 }));
    // DeleteGroups v2 with 600,000 empty names.
    let many = [&[0xc1, 0xcf, 0x24][..], &vec![1; 600_000]].concat();
    assert_eq!(
        check_request(42, 2, &many).map_err(|error| error.refusal),
        Err(Refusal::TooMany { items: 600_000 })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What the table describes is what the decoder reads, to the last byte.
    #[test]
    fn the_decoder_reads_whatever_the_table_writes(seed: u64) {
        for (api, version, request) in every_message() {
            let body = write(api, version, request, &mut choices(seed));
            prop_assert_eq!(check(api, version, request, &body), Ok(()), "{} v{}", api.name, version);
            let peer = peer(api.key);
            let (decode, _) = if request { peer.request } else { peer.response };
            let mut rest = Bytes::from(body);
            let decoded = decode(&mut rest, version);
            prop_assert_eq!(decoded, Ok(()), "{} v{} request: {}", api.name, version, request);
            prop_assert!(rest.is_empty(), "{} v{} request: {}: {} left", api.name, version, request, rest.len());
        }
    }

    /// Cut or changed bytes are refused by one of the two, or decoded; the process survives either way.
    #[test]
    fn damaged_bytes_never_reach_a_decoder_that_would_abort(seed: u64, at: prop::sample::Index, value: u8, cut: bool) {
        for (api, version, request) in every_message() {
            let mut body = write(api, version, request, &mut choices(seed));
            if body.is_empty() {
                continue;
            }
            let at = at.index(body.len());
            if cut {
                body.truncate(at);
                // A body that ends early cannot be whole.
                prop_assert!(check(api, version, request, &body).is_err(), "{} v{}", api.name, version);
            } else {
                body[at] = value;
            }
            if check(api, version, request, &body).is_ok() {
                let peer = peer(api.key);
                let (decode, _) = if request { peer.request } else { peer.response };
                let mut rest = Bytes::from(body);
                let decoded = decode(&mut rest, version);
                // To the guard a tag of later versions is one it skips; the decoder knows it and refuses it, unharmed.
                let later = matches!(&decoded, Err(why) if why.starts_with("Tag "));
                prop_assert!(decoded.is_ok() || later, "the guard passed what the decoder refuses: {} v{}: {:?}", api.name, version, decoded);
            }
        }
    }
}
