//! Which version of which API does this client speak? One table; the rest is an intersection per connection.

use kafka_protocol::messages::ApiKey;

/// One row for each API in use: lowest and highest version this client speaks.
///
/// Floors are what Kafka 2.1 offers, ceilings what Kafka 4.x offers and our encoders know. A broker whose range does not
/// meet ours gets an error that shows both.
pub(crate) const SPOKEN: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 7, 12),
    (ApiKey::Fetch, 10, 17),
    (ApiKey::ListOffsets, 4, 9),
    (ApiKey::Metadata, 7, 13),
    (ApiKey::OffsetCommit, 6, 9),
    (ApiKey::OffsetFetch, 5, 9),
    (ApiKey::FindCoordinator, 2, 6),
    (ApiKey::JoinGroup, 3, 9),
    (ApiKey::Heartbeat, 2, 4),
    (ApiKey::LeaveGroup, 2, 5),
    (ApiKey::SyncGroup, 2, 5),
    (ApiKey::DescribeGroups, 2, 6),
    (ApiKey::ListGroups, 2, 5),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::CreateTopics, 3, 7),
    (ApiKey::DeleteTopics, 3, 6),
    (ApiKey::DeleteRecords, 1, 2),
    (ApiKey::InitProducerId, 1, 5),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::DescribeConfigs, 2, 4),
    (ApiKey::CreatePartitions, 1, 3),
    (ApiKey::DeleteGroups, 1, 2),
    (ApiKey::IncrementalAlterConfigs, 0, 1),
    (ApiKey::DescribeCluster, 0, 2),
    // Version 0 of the handshake is followed by bytes without frames.
    (ApiKey::SaslHandshake, 1, 1),
    (ApiKey::SaslAuthenticate, 0, 2),
    // Version 0 lets the broker choose member ids, and a lost answer then leaves a member behind that nobody is.
    (ApiKey::ConsumerGroupHeartbeat, 1, 1),
    (ApiKey::ConsumerGroupDescribe, 0, 1),
];

/// What this client speaks of `api`; `None` for an API it never uses.
pub(crate) fn spoken(api: ApiKey) -> Option<(i16, i16)> {
    SPOKEN.iter().find(|row| row.0 == api).map(|row| (row.1, row.2))
}

/// What one broker offers, as its ApiVersions response said. Sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered(Vec<(i16, i16, i16)>);

impl Offered {
    /// From (key, lowest, highest) rows in any order.
    pub(crate) fn new(mut rows: Vec<(i16, i16, i16)>) -> Offered {
        rows.sort_unstable();
        Offered(rows)
    }

    /// The broker's own range of `api`.
    pub(crate) fn range(&self, api: ApiKey) -> Option<(i16, i16)> {
        let at = self.0.binary_search_by_key(&(api as i16), |row| row.0).ok()?;
        self.0.get(at).map(|row| (row.1, row.2))
    }

    /// The highest version both sides speak.
    pub(crate) fn negotiate(&self, api: ApiKey) -> Option<i16> {
        let ((floor, ceiling), (low, high)) = (spoken(api)?, self.range(api)?);
        let version = ceiling.min(high);
        (version >= floor && version >= low).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_takes_the_highest_common_version_or_none() {
        let offered = Offered::new(vec![(3, 0, 9), (1, 0, 4), (0, 3, 99), (9, 12, 40)]);
        assert_eq!(offered.negotiate(ApiKey::Metadata), Some(9));
        assert_eq!(offered.negotiate(ApiKey::Produce), Some(12), "never above what our encoder knows");
        assert_eq!(offered.negotiate(ApiKey::Fetch), None, "older than the floor");
        assert_eq!(offered.negotiate(ApiKey::OffsetFetch), None, "newer than the ceiling");
        assert_eq!(offered.negotiate(ApiKey::JoinGroup), None, "not offered");
    }

    #[test]
    fn every_row_is_within_what_the_message_crate_encodes() {
        for (api, floor, ceiling) in SPOKEN {
            let known = api.valid_versions();
            assert!(known.min <= *floor && *ceiling <= known.max && floor <= ceiling, "{api:?}: {known}");
        }
    }
}
