//! Options at their ends: what building takes, everything else has to live with.

use std::time::Duration;

use crate::stage::Stage;
use crate::world::set;

/// Longer than clocks count, as .NET's `TimeSpan.MaxValue`, and as short as can be.
const DURATIONS: [&str; 3] = ["18446744073709551615s", "922337203685s 477580700ns", "1ns"];
const COUNTS: [&str; 2] = ["4294967295", "1"];
const SIZES: [&str; 3] = ["18446744073709551615", "9223372036854775807", "0"];
const SHARES: [&str; 4] = ["1e-300", "0.0001", "0.9999", "0.9999999999999999"];

const OPTIONS: [(&[&str], &[&str]); 5] = [
    (
        &[
            "Timeout",
            "StallThreshold",
            "CommitInterval",
            "SubscribeTimeout",
            "RetryBase",
            "MaxRetryDelay",
            "DeferBase",
            "DeferMaxDelay",
            "DeferFailureWindow",
            "MonopolizationWindow",
            "SchedulerMaxWait",
            "IdempotenceTtl",
            "LoaderSeekTimeout",
            "SessionTimeout",
            "ShutdownTimeout",
            "PollInterval",
            "SendTimeout",
        ],
        &DURATIONS,
    ),
    (&["MaxConcurrency", "MaxUncommitted", "IdempotenceCacheSize", "MaxRetries", "DeferMaxRetries"], &COUNTS),
    (&["FetchBufferSize", "LoaderCacheSize", "StateOwnedCacheSize"], &SIZES),
    (&["DeferFailureThreshold", "MonopolizationThreshold", "SchedulerFailureWeight"], &SHARES),
    (&["SchedulerWaitWeight"], &["0", "1e-300", "1e308"]),
];

/// A timeout of 2^64 s, which building took, ended the worker of every event: the sum with the time of day has no form.
#[tokio::test(start_paused = true)]
async fn an_option_at_its_end_is_refused_by_name_or_lived_with() {
    for (names, values) in OPTIONS {
        for (name, value) in names.iter().flat_map(|name| values.iter().map(move |value| (*name, *value))) {
            lives_with(name, value).await;
        }
    }
}

async fn lives_with(name: &str, value: &str) {
    for defer in ["true", "false"] {
        let stage = Stage::new(2);
        let pairs = [(name, value), ("DeferEnabled", defer)];
        // The longest wait has to be as long as the base.
        let more: &[(&str, &str)] = match name {
            "RetryBase" => &[("MaxRetryDelay", value)],
            "DeferBase" => &[("DeferMaxDelay", value)],
            _ => &[],
        };
        let built = stage.process().0.configure(set(&pairs)).configure(set(more)).build();
        let client = match built {
            Ok(client) => client,
            Err(refused) => {
                assert!(refused.to_string().contains(name), "{name} = {value}: {refused}");
                continue;
            }
        };
        let what = format!("{name} = {value}, deferral {defer}");
        let sender = stage.client();
        stage.send(&sender, "fails", "x").await;
        for n in 0..20 {
            stage.send_as(&sender, &format!("key-{}", n % 5), &format!("id-{n}"), "").await;
        }
        stage.send(&sender, "timer", "s1").await;
        if let Err(refused) = client.subscribe(stage.handler()).await {
            assert_eq!(name, "SubscribeTimeout", "{refused}");
            continue;
        }
        let all = || stage.messages() >= 21 && stage.fired().len() == 1;
        stage.world.until(&what, all).await;
        let begun = stage.clock.now();
        client.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(stage.clock.now() - begun < Duration::from_secs(7_200), "{what}");
    }
}
