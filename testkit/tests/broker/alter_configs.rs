//! Does AlterConfigs replace all settings of a topic, in every version?

use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{AlterConfigsRequest, DescribeConfigsRequest};

use crate::common::{Client, cluster, text};

#[tokio::test(start_paused = true)]
async fn settings_that_are_left_out_go_back_to_their_defaults() {
    for version in 0..=2 {
        let cluster = cluster(1);
        cluster.create_topic("t", 1).unwrap();
        let mut client = Client::new(&cluster, 1);
        assert_eq!(alter(&mut client, version, "retention.ms", "x").await, 40);
        assert_eq!(alter(&mut client, version, "retention.ms", "777").await, 0);
        assert_eq!(alter(&mut client, version, "cleanup.policy", "compact").await, 0);
        let topic = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configuration_keys(None);
        let answer = client.call(4, &DescribeConfigsRequest::default().with_resources(vec![topic])).await;
        let own = answer.results[0].configs.iter().filter(|one| one.config_source == 1);
        assert_eq!(own.map(|one| one.name.to_string()).collect::<Vec<_>>(), ["cleanup.policy"]);
    }
}

async fn alter(client: &mut Client, version: i16, name: &str, value: &str) -> i16 {
    let config = AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    client.call(version, &request).await.responses[0].error_code
}
