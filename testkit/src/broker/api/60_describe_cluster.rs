//! API 60, DescribeCluster: versions 0–2. Gaps: authorized operations are not computed; controllers are not listed.

use std::ops::RangeInclusive;

use kafka_protocol::messages::BrokerId;
use kafka_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use kafka_protocol::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Api, Call, Refused};
use crate::broker::ApiKey;

pub(super) struct DescribeCluster;

impl Api for DescribeCluster {
    const KEY: ApiKey = ApiKey::DESCRIBE_CLUSTER;
    const VERSIONS: RangeInclusive<i16> = 0..=2;
    type Request = DescribeClusterRequest;

    async fn serve(call: &Call, _request: DescribeClusterRequest) -> Result<Answer, Refused> {
        let alive = call.shared.alive();
        let mut response = DescribeClusterResponse::default()
            .with_throttle_time_ms(call.throttle_ms())
            .with_error_code(call.fault().unwrap_or(0))
            .with_cluster_id(StrBytes::from_string(call.shared.config.cluster_id.clone()))
            .with_controller_id(BrokerId(alive.first().copied().unwrap_or(-1)));
        for broker in alive {
            if let Some((host, port)) = call.shared.address(broker, call.transport) {
                response.brokers.push(
                    DescribeClusterBroker::default()
                        .with_broker_id(BrokerId(broker))
                        .with_host(StrBytes::from_string(host))
                        .with_port(i32::from(port)),
                );
            }
        }
        call.encode(&response)
    }
}
