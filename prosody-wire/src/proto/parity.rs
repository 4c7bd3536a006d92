//! Do the messages we write and read by hand mean the same to the message crate? Both ways, in every version.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self as m, fetch_response as fr, produce_response as pr};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::{text, topic_name};
use crate::conn::Body;
use crate::fetch::session::{Key, Params, SessionRequest};
use crate::fetch::wire::{self as fetch, Ask, TopicRef};
use crate::group::assignment::encode_assignment;
use crate::group::{decode_assignment, subscription::Subscription};
use crate::produce::wire::{self as produce, PartitionBatch};
use crate::types::{IsolationLevel, TopicId, TopicPartition};

fn bytes_of(body: Body) -> Bytes {
    body.into_segments().concat().into()
}

fn encoded<M: Encodable>(message: &M, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).expect("fits the version");
    out.freeze()
}

fn decoded<M: Decodable>(mut body: Bytes, version: i16) -> M {
    let message = M::decode(&mut body, version).expect("readable");
    assert_eq!(body.len(), 0, "bytes are left");
    message
}

fn topic() -> impl Strategy<Value = String> {
    "[a-z]{1,8}"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_fetch_request_says_what_we_mean(
        version in 10i16..18,
        (wait, max_bytes, committed, session, epoch) in (0i32..9_000, 0i32.., any::<bool>(), any::<i32>(), any::<i32>()),
        asked in proptest::collection::btree_map((topic(), 0i32..9), (0i64.., any::<i32>(), any::<i32>(), 0i32..), 0..6),
        forgotten in proptest::collection::btree_set((topic(), 0i32..9), 0..4),
    ) {
        let key = |topic: &str, partition| {
            let mut id = [7; 16];
            id[..topic.len()].copy_from_slice(topic.as_bytes());
            Key { topic: topic.into(), topic_id: Some(TopicId(id)), partition }
        };
        let send = asked.iter().map(|((topic, partition), (offset, leader, last, max))| {
            let params = Params { offset: *offset, leader_epoch: *leader, last_epoch: *last, max_bytes: *max as usize };
            (key(topic, *partition), params)
        });
        let forget = forgotten.iter().map(|(topic, partition)| key(topic, *partition));
        let request = SessionRequest { id: session, epoch, send: send.collect(), forget: forget.collect() };
        let isolation = if committed { IsolationLevel::ReadCommitted } else { IsolationLevel::ReadUncommitted };
        let rack = if committed { "r1" } else { "" };
        let ask = Ask { max_wait: Duration::from_millis(wait as u64), max_bytes: max_bytes as usize, isolation, rack };
        let read: m::FetchRequest = decoded(bytes_of(fetch::request(version, ask, &request)), version);
        prop_assert_eq!((read.max_wait_ms, read.min_bytes, read.max_bytes), (wait, 1, max_bytes));
        prop_assert_eq!((read.isolation_level, read.session_id, read.session_epoch), (i8::from(committed), session, epoch));
        prop_assert_eq!(read.rack_id.as_str(), if version >= 11 { rack } else { "" });
        prop_assert_eq!((read.replica_id.0, read.replica_state.replica_id.0), (-1, -1));
        let named = |name: &m::TopicName, id: &[u8; 16]| {
            if version >= 13 { id.to_vec() } else { name.as_bytes().to_vec() }
        };
        let ours = |key: &Key| named(&topic_name(&key.topic), &key.topic_id.expect("an id").0);
        let rows: Vec<_> = read.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |row| {
            let last = if version >= 12 { row.last_fetched_epoch } else { -1 };
            (named(&topic.topic, topic.topic_id.as_bytes()), row.partition, row.fetch_offset, row.current_leader_epoch, last, row.partition_max_bytes, row.log_start_offset)
        })).collect();
        let expected: Vec<_> = request.send.iter().map(|(key, params)| {
            let last = if version >= 12 { params.last_epoch } else { -1 };
            (ours(key), key.partition, params.offset, params.leader_epoch, last, params.max_bytes as i32, -1)
        }).collect();
        prop_assert_eq!(rows, expected);
        let rows: Vec<_> = read.forgotten_topics_data.iter().flat_map(|topic| {
            topic.partitions.iter().map(move |row| (named(&topic.topic, topic.topic_id.as_bytes()), *row))
        }).collect();
        prop_assert_eq!(rows, request.forget.iter().map(|key| (ours(key), key.partition)).collect::<Vec<_>>());
    }

    #[test]
    fn a_fetch_response_means_to_us_what_it_says(
        version in 10i16..18,
        (throttle, session, code, racks) in (0i32..60_000, any::<i32>(), 0i16..120, any::<bool>()),
        topics in proptest::collection::vec((topic(), proptest::collection::vec(
            (any::<i32>(), 0i16..120, (any::<i64>(), any::<i64>()), proptest::collection::vec((any::<i64>(), any::<i64>()), 0..3),
             proptest::collection::vec(any::<u8>(), 0..40), proptest::option::of((0i32.., 0i64..)), proptest::option::of((0i32.., any::<i32>()))),
            0..4)), 0..4),
    ) {
        let id = |at: usize| [u8::try_from(at + 1).expect("few"); 16];
        let rows = topics.iter().enumerate().map(|(at, (name, partitions))| {
            let partitions = partitions.iter().map(|(number, code, (high, stable), aborted, records, diverging, leader)| {
                let aborted = aborted.iter().map(|(producer, first)| {
                    fr::AbortedTransaction::default().with_producer_id((*producer).into()).with_first_offset(*first)
                });
                let mut row = fr::PartitionData::default()
                    .with_partition_index(*number).with_error_code(*code).with_high_watermark(*high)
                    .with_last_stable_offset(*stable).with_aborted_transactions(Some(aborted.collect()))
                    .with_records(Some(records.clone().into()));
                if version >= 11 {
                    row.preferred_read_replica = (*number).into();
                }
                if let (Some((epoch, end)), true) = (diverging, version >= 12) {
                    row.diverging_epoch = fr::EpochEndOffset::default().with_epoch(*epoch).with_end_offset(*end);
                }
                if let (Some((broker, epoch)), true) = (leader, version >= 12) {
                    row.current_leader = fr::LeaderIdAndEpoch::default().with_leader_id((*broker).into()).with_leader_epoch(*epoch);
                }
                row
            });
            let row = fr::FetchableTopicResponse::default().with_partitions(partitions.collect());
            if version >= 13 { row.with_topic_id(uuid_of(id(at))) } else { row.with_topic(topic_name(name)) }
        });
        let mut response = m::FetchResponse::default()
            .with_throttle_time_ms(throttle).with_error_code(code).with_session_id(session).with_responses(rows.collect());
        if version >= 16 {
            let node = fr::NodeEndpoint::default().with_node_id(3.into()).with_host(text("b3")).with_port(9092);
            response.node_endpoints = vec![node.with_rack(racks.then(|| text("r")))];
        }
        let read = fetch::response(version, &encoded(&response, version)).expect("readable");
        prop_assert_eq!((read.throttle, read.error, read.session_id), (Duration::from_millis(throttle as u64), code, session));
        prop_assert_eq!(read.nodes.len(), usize::from(version >= 16));
        prop_assert!(read.nodes.iter().all(|node| node.id == 3 && node.host == "b3" && node.rack.is_some() == racks));
        let expected = topics.iter().enumerate().flat_map(|(at, (name, partitions))| {
            let topic = if version >= 13 { TopicRef::Id(TopicId(id(at))) } else { TopicRef::Name(name.as_str().into()) };
            partitions.iter().map(move |row| (topic.clone(), row))
        });
        let expected: Vec<_> = expected.collect();
        prop_assert_eq!(read.partitions.len(), expected.len());
        for (got, (topic, (number, code, (high, stable), aborted, records, diverging, leader))) in read.partitions.iter().zip(expected) {
            prop_assert_eq!((&got.topic, got.partition, got.error.0), (&topic, *number, *code));
            prop_assert_eq!((got.high_watermark, got.last_stable), (*high, *stable));
            prop_assert_eq!(&got.aborted.iter().map(|one| (one.producer_id, one.first_offset)).collect::<Vec<_>>(), aborted);
            prop_assert_eq!(&got.records[..], &records[..]);
            let preferred = got.preferred.map(|broker| broker.0);
            prop_assert_eq!(preferred, (version >= 11 && *number >= 0).then_some(*number));
            prop_assert_eq!(got.diverging, diverging.filter(|_| version >= 12));
            prop_assert_eq!(got.leader.map(|(broker, epoch)| (broker.0, epoch)), leader.filter(|_| version >= 12));
        }
    }

    #[test]
    fn a_produce_request_says_what_we_mean(
        version in 7i16..13,
        timeout in 0i32..90_000,
        topics in proptest::collection::btree_map(topic(), proptest::collection::btree_map(any::<i32>(), proptest::collection::vec(any::<u8>(), 0..300), 1..4), 0..4),
    ) {
        let ours: Vec<_> = topics.iter().map(|(topic, partitions)| {
            let batches = partitions.iter().map(|(partition, batch)| PartitionBatch { partition: *partition, batch: batch.clone().into() });
            (topic.as_str().into(), batches.collect::<Vec<_>>())
        }).collect();
        let body = bytes_of(produce::request(version, Duration::from_millis(timeout as u64), &ours));
        let read: m::ProduceRequest = decoded(body, version);
        prop_assert_eq!((read.acks, read.timeout_ms, read.transactional_id), (-1, timeout, None));
        let rows: Vec<_> = read.topic_data.iter().flat_map(|topic| topic.partition_data.iter().map(|row| {
            (topic.name.to_string(), row.index, row.records.clone().unwrap_or_default().to_vec())
        })).collect();
        let expected: Vec<_> = topics.into_iter().flat_map(|(topic, partitions)| {
            partitions.into_iter().map(move |(partition, batch)| (topic.clone(), partition, batch))
        }).collect();
        prop_assert_eq!(rows, expected);
    }

    #[test]
    fn a_produce_response_means_to_us_what_it_says(
        version in 7i16..13,
        throttle in 0i32..60_000,
        rows in proptest::collection::vec((topic(), any::<i32>(), 0i16..120, any::<i64>(), proptest::option::of(0i64..), proptest::option::of("[a-z ]{1,9}"), proptest::option::of((0i32.., any::<i32>()))), 0..5),
    ) {
        let topics = rows.iter().map(|(name, partition, code, base, time, message, leader)| {
            let mut row = pr::PartitionProduceResponse::default()
                .with_index(*partition).with_error_code(*code).with_base_offset(*base).with_log_append_time_ms(time.unwrap_or(-1));
            if version >= 8 {
                row.error_message = message.as_deref().map(text);
            }
            if let (Some((broker, epoch)), true) = (leader, version >= 10) {
                row.current_leader = pr::LeaderIdAndEpoch::default().with_leader_id((*broker).into()).with_leader_epoch(*epoch);
            }
            pr::TopicProduceResponse::default().with_name(topic_name(name)).with_partition_responses(vec![row])
        });
        let response = m::ProduceResponse::default().with_throttle_time_ms(throttle).with_responses(topics.collect());
        let read = produce::response(version, &encoded(&response, version)).expect("readable");
        prop_assert_eq!(read.throttle, Duration::from_millis(throttle as u64));
        prop_assert_eq!(read.partitions.len(), rows.len());
        for (got, (name, partition, code, base, time, message, leader)) in read.partitions.iter().zip(rows) {
            prop_assert_eq!((&got.topic, got.partition, got.error.0, got.base_offset), (&name, partition, code, base));
            prop_assert_eq!((got.append_time, &got.message), (time, &message.filter(|_| version >= 8)));
            prop_assert_eq!(got.leader.map(|(broker, epoch)| (broker.0, epoch)), leader.filter(|_| version >= 10));
        }
    }

    #[test]
    fn members_of_other_clients_and_ours_understand_each_other(
        theirs in 0i16..4,
        topics in proptest::collection::btree_set(topic(), 0..5),
        owned in proptest::collection::btree_set((topic(), 0i32..99), 0..9),
        generation in proptest::option::of(0i32..),
        rack in proptest::option::of("[a-z]{1,5}"),
    ) {
        let owned: Vec<_> = owned.iter().map(|(topic, partition)| TopicPartition::new(topic.as_str(), *partition)).collect();
        let ours = Subscription { topics: topics.iter().map(|topic| topic.as_str().into()).collect(), owned: owned.clone(), generation, rack: rack.clone() };
        let mut body = ours.encode();
        prop_assert_eq!(&body.split_to(2)[..], [0, 3]);
        let read: m::ConsumerProtocolSubscription = decoded(body, 3);
        prop_assert_eq!(read.topics.iter().map(ToString::to_string).collect::<Vec<_>>(), topics.iter().cloned().collect::<Vec<_>>());
        prop_assert_eq!((read.generation_id, read.rack_id.as_ref().map(ToString::to_string)), (generation.unwrap_or(-1), rack));
        let rows = read.owned_partitions.iter().flat_map(|row| row.partitions.iter().map(|partition| TopicPartition::new(row.topic.as_str(), *partition)));
        prop_assert_eq!(rows.collect::<Vec<_>>(), owned.clone());
        // What they wrote, in each of their versions; user data is theirs alone.
        let mut written = BytesMut::from(&theirs.to_be_bytes()[..]);
        let mut theirs_says = read.with_user_data(None);
        if theirs < 1 { theirs_says.owned_partitions.clear(); }
        if theirs < 2 { theirs_says.generation_id = -1; }
        if theirs < 3 { theirs_says.rack_id = None; }
        theirs_says.encode(&mut written, theirs).expect("fits the version");
        let mut expected = ours;
        if theirs < 1 { expected.owned.clear(); }
        if theirs < 2 { expected.generation = None; }
        if theirs < 3 { expected.rack = None; }
        prop_assert_eq!(Subscription::decode(&written).expect("readable"), expected);

        let mut body = encode_assignment(&owned);
        let version = i16::from_be_bytes([body[0], body[1]]);
        let read: m::ConsumerProtocolAssignment = decoded(body.split_off(2), version);
        let rows = read.assigned_partitions.iter().flat_map(|row| row.partitions.iter().map(|partition| TopicPartition::new(row.topic.as_str(), *partition)));
        prop_assert_eq!(rows.collect::<Vec<_>>(), owned.clone());
        let mut written = BytesMut::from(&theirs.to_be_bytes()[..]);
        read.encode(&mut written, theirs).expect("fits the version");
        prop_assert_eq!(decode_assignment(&written).expect("readable"), owned);
    }
}

fn uuid_of(bytes: [u8; 16]) -> uuid::Uuid {
    uuid::Uuid::from_bytes(bytes)
}
