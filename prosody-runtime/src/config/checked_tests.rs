//! Options that fit and options that do not.

use super::super::places::MOCK_CLUSTER;
use super::super::table::{OPTIONS, Support};
use super::*;

fn problems(options: Options) -> Vec<String> {
    match check(options, vec![]) {
        Ok(_) => vec![],
        Err(error) => error.problems.iter().map(ToString::to_string).collect(),
    }
}

fn with(pairs: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for (name, text) in pairs {
        options.set(name, text).unwrap();
    }
    options
}

#[test]
fn defaults_are_those_of_the_table() {
    let checked = check(with(&[("Mock", "true"), ("GroupId", "g")]), vec![]).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!((checked.mode, checked.max_concurrency, checked.max_uncommitted), (Mode::Pipeline, 32, 64));
    assert_eq!((checked.stall_threshold, checked.timeout), (seconds(300), seconds(240)));
    assert_eq!((checked.shutdown_timeout, checked.session_timeout), (seconds(30), seconds(45)));
    assert_eq!((checked.commit_interval, checked.poll_interval), (seconds(1), Duration::from_millis(100)));
    assert_eq!((checked.subscribe_timeout, checked.send_timeout), (seconds(30), Some(seconds(30))));
    assert_eq!((checked.fetch_buffer, checked.state_owned_cache), (64 << 20, 64 << 20));
    let retry = (checked.max_retries, checked.retry_base, checked.max_retry_delay);
    assert_eq!(retry, (3, Duration::from_millis(20), seconds(300)));
    assert_eq!((checked.idempotence_version.as_str(), checked.loader_seek_timeout), ("1", seconds(30)));
    assert_eq!((checked.isolation, checked.compression), (IsolationLevel::ReadCommitted, Compression::Lz4));
    assert_eq!((checked.partitioner, checked.group_protocol), (Partitioner::Crc32, GroupProtocol::Auto));
    assert!(checked.telemetry.is_none() && checked.failure_topic.is_none() && !checked.probe_details);
    assert!(checked.client_rack.is_none() && checked.instance_id.is_none());
    assert_eq!((checked.idempotence_cache, checked.idempotence_ttl.as_secs()), (8_192, 7 * 86_400));
    assert_eq!(checked.source_system.as_ref(), "g");
    assert_eq!(
        (checked.message_spans, checked.timer_spans),
        (SpanRelation::Child, SpanRelation::FollowsFrom)
    );
    assert_eq!(checked.mock.as_deref(), Some(MOCK_CLUSTER));
}

/// What CONFIGURATION.md says of a default is what a client does without the option.
#[test]
fn the_text_of_a_default_is_what_happens_without_the_option() {
    // In words: none, or what depends on other options. Tests of their own say what happens then.
    let in_words = [
        "BootstrapServers GroupId SubscribedTopics AllowedEvents SourceSystem Timeout ProbePort ProbeAddress",
        "FailureTopic DeferEnabled SaslMechanism SaslUsername SaslPassword SaslOauthTokenEndpoint",
        "SaslOauthClientId SaslOauthClientSecret SaslOauthScope SslCaLocation SslCertificateLocation",
        "SslKeyLocation SslKeyPassword ClientRack GroupInstanceId",
    ];
    let in_words: Vec<&str> = in_words.iter().flat_map(|line| line.split(' ')).collect();
    assert!(in_words.iter().all(|name| OptionSpec::find(name).is_some()));
    let said = |pairs: &[(&str, &str)]| format!("{:?}", check(with(pairs), vec![]).unwrap());
    let options = OPTIONS.iter().filter(|spec| spec.support == Support::Full);
    for spec in options.filter(|spec| !in_words.contains(&spec.name)) {
        // Where the events of TelemetryTopic go shows only when there are some.
        let telemetry = if spec.name == "TelemetryTopic" { "true" } else { "" };
        let base = [("BootstrapServers", "b:1"), ("GroupId", "g"), ("TelemetryEnabled", telemetry)];
        let given = said(&[&base[..], &[(spec.name, spec.default)]].concat());
        assert_eq!(given, said(&base), "{} = {}", spec.name, spec.default);
    }
}

#[test]
fn every_bound_is_checked_and_what_lies_on_it_fits() {
    for (option, wrong, right) in [
        ("MaxConcurrency", "0", "1"),
        ("MaxUncommitted", "0", "1"),
        ("Timeout", "0s", "1ms"),
        ("StallThreshold", "0s", "1ms"),
        ("ShutdownTimeout", "0s", "1ms"),
        ("ShutdownTimeout", "3601s", "1h"),
        ("CommitInterval", "0s", "1ms"),
        ("PollInterval", "0s", "1ms"),
        ("PollInterval", "10001ms", "10s"),
        ("SubscribeTimeout", "0s", "1ms"),
        ("FetchBufferSize", "1048575", "1MiB"),
        ("SendTimeout", "0s", "1ms"),
        ("RetryBase", "0s", "1ms"),
        ("RetryBase", "301s", "5m"),
        ("MaxRetryDelay", "19ms", "20ms"),
        ("DeferBase", "999ms", "1s"),
        ("DeferMaxDelay", "999ms", "1s"),
        ("DeferFailureWindow", "999ms", "1s"),
        ("DeferFailureWindow", "86401s", "1d"),
        ("DeferFailureThreshold", "0", "1"),
        ("MonopolizationWindow", "999ms", "1s"),
        ("MonopolizationWindow", "86401s", "1d"),
        ("MonopolizationThreshold", "1.01", "1"),
        ("SchedulerMaxWait", "0s", "1ms"),
        ("IdempotenceCacheSize", "0", "1"),
        ("IdempotenceTtl", "59s", "1m"),
        ("LoaderSeekTimeout", "0s", "1ms"),
        ("SessionTimeout", "999ms", "1s"),
        ("SessionTimeout", "3601s", "1h"),
    ] {
        let found = |text| problems(with(&[("Mock", "true"), (option, text)]));
        let (wrong, right) = (found(wrong), found(right));
        assert!(wrong.len() == 1 && wrong[0].contains(option), "{option}: {wrong:?}");
        assert_eq!(right, Vec::<String>::new(), "{option}");
    }
}

/// What reaches the real cluster may stay in the environment of a test.
#[test]
fn a_mock_cluster_is_reached_in_plaintext_whatever_the_real_one_asks_for() {
    let real = [
        ("SecurityProtocol", "sasl_ssl"),
        ("SaslMechanism", "PLAIN"),
        ("SaslUsername", "u"),
        ("SaslPassword", "p"),
        ("SslCaLocation", "/nowhere/ca.pem"),
    ];
    let security = check(with(&[&real[..], &[("Mock", "true")]].concat()), vec![]).unwrap().security;
    assert!(security.tls.is_none() && security.identity.is_none() && !security.is_exposed());
    let found = problems(with(&[&real[..], &[("BootstrapServers", "b:1")]].concat()));
    assert!(found.len() == 1 && found[0].starts_with("SslCaLocation"), "{found:?}");
}

#[test]
fn one_error_lists_every_problem_by_option_and_variable() {
    let options = with(&[
        ("BootstrapServers", "nohost, b:9092, c:99999"),
        ("MaxConcurrency", "0"),
        ("IdempotenceCacheSize", "0"),
        ("ProbeAddress", "localhost"),
        ("SendTimeout", "0s"),
        ("RetryBase", "10m"),
        ("SubscribedTopics", "ok, not ok, ^pattern.*, ^(a"),
        ("Mode", "low-latency"),
        ("SaslPassword", "hunter2"),
    ]);
    let problems = problems(options);
    for expected in [
        "BootstrapServers (PROSODY_BOOTSTRAP_SERVERS): `nohost`",
        "BootstrapServers (PROSODY_BOOTSTRAP_SERVERS): `c:99999`",
        "MaxConcurrency (PROSODY_MAX_CONCURRENCY): must be at least 1",
        "IdempotenceCacheSize (PROSODY_IDEMPOTENCE_CACHE_SIZE): must be at least 1",
        "ProbeAddress (PROSODY_PROBE_ADDRESS): `localhost` is not an IP address",
        "SendTimeout (PROSODY_SEND_TIMEOUT): must be longer than 0",
        "RetryBase (PROSODY_RETRY_BASE): must not be longer",
        "SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS): `not ok`",
        "SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS): reading the topic pattern `^(a`: unclosed group",
        "FailureTopic (PROSODY_FAILURE_TOPIC): required in low-latency mode",
        "SaslPassword (PROSODY_SASL_PASSWORD): has no effect",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(expected)), "{expected} in {problems:#?}");
    }
    assert_eq!(problems.len(), 11, "{problems:#?}");
    assert!(!problems.concat().contains("hunter2"), "a secret never prints");
}

#[test]
fn values_that_ask_for_nothing_are_accepted_for_features_that_do_not_exist() {
    for (name, off) in
        [("ProbePort", "0"), ("ProbePort", "none"), ("AcceptPartitionGrowth", "false"), ("Log", "debug")]
    {
        assert_eq!(problems(with(&[("Mock", "true"), (name, off)])), Vec::<String>::new(), "{name}={off}");
    }
    assert_eq!(problems(with(&[("Mock", "true"), ("AcceptPartitionGrowth", "true")])).len(), 1);
}

#[test]
fn probes_are_on_unless_in_mock_mode_or_switched_off() {
    let place = |pairs: &[(&str, &str)]| check(with(pairs), Vec::new()).expect("fits").probes;
    let port = |pairs: &[(&str, &str)]| place(pairs).map(|place| place.port);
    let (real, mock) = (("BootstrapServers", "b:1"), ("Mock", "true"));
    assert_eq!(port(&[real]), Some(8_000));
    assert_eq!(port(&[real, ("ProbePort", "0")]), None);
    assert_eq!(port(&[real, ("ProbePort", "none")]), None);
    assert_eq!(port(&[mock]), None);
    assert_eq!(port(&[mock, ("ProbePort", "9000")]), Some(9_000), "who asks for them gets them");
    let local = place(&[real, ("ProbeAddress", "::1")]).expect("on");
    assert_eq!(local.address, Some("::1".parse().expect("an address")));
    assert!(Options::default().set("ProbePort", "70000").is_err());
}

#[test]
fn a_failure_topic_is_no_subscribed_one_and_required_in_low_latency() {
    let problems = |pairs: &[(&str, &str)]| problems(with(&[&[("Mock", "true")], pairs].concat()));
    let topics = ("SubscribedTopics", "t, u");
    for mode in ["pipeline", "low-latency", "best-effort"] {
        let mode = ("Mode", mode);
        assert_eq!(
            problems(&[mode, topics, ("FailureTopic", "dead"), ("MaxRetries", "0")]),
            Vec::<String>::new()
        );
        for (name, why) in [
            ("u", "must not be one of SubscribedTopics"),
            ("no t", "`no t` is not a topic name"),
            ("^dead", "`^dead` is a pattern"),
        ] {
            let problems = problems(&[mode, topics, ("FailureTopic", name)]);
            assert!(problems.len() == 1 && problems[0].contains(why), "{problems:?}");
        }
    }
    assert!(problems(&[("Mode", "low-latency"), topics])[0].contains("required"));
}

/// What failed would be read again as soon as it is written: the pattern takes in the failure topic.
#[test]
fn no_pattern_takes_in_a_topic_that_is_written_to() {
    let problems = |pairs: &[(&str, &str)]| problems(with(&[&[("Mock", "true")], pairs].concat()));
    let topics = ("SubscribedTopics", "t, ^orders.*");
    let fine = [topics, ("FailureTopic", "failed-orders"), ("TelemetryEnabled", "true")];
    assert_eq!(problems(&fine), Vec::<String>::new());
    for [topic, name] in [["FailureTopic", "orders-failed"], ["TelemetryTopic", "orders"]] {
        let found = problems(&[topics, ("TelemetryEnabled", "true"), (topic, name)]);
        let why = "must not be one of SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS), which has `^orders.*`";
        assert!(found.len() == 1 && found[0].starts_with(topic) && found[0].contains(why), "{found:?}");
    }
}

#[test]
fn a_mock_cluster_is_named_by_its_bootstrap_text() {
    let name = |pairs: &[(&str, &str)]| check(with(pairs), vec![]).unwrap().mock;
    assert_eq!(name(&[("BootstrapServers", "mock://blue")]).as_deref(), Some("blue"));
    assert_eq!(name(&[("BootstrapServers", "a:1"), ("Mock", "true")]).as_deref(), Some("a:1"));
    assert_eq!(name(&[("BootstrapServers", "a:1")]), None);
}

#[test]
fn without_a_bound_is_only_for_sends() {
    let mut options = with(&[("Mock", "true"), ("SendTimeout", "none")]);
    assert_eq!(check(options.clone(), vec![]).unwrap().send_timeout, None);
    options.stall_threshold = Some(Duration::MAX);
    assert_eq!(problems(options).len(), 1);
}

/// A SourceSystem of two megabytes was refused as a problem of BootstrapServers: no client id is as long.
#[test]
fn a_text_that_is_too_long_is_a_problem_of_its_option() {
    let found = |len| problems(with(&[("Mock", "true"), ("SourceSystem", &"x".repeat(len))]));
    assert_eq!(found(1_024), Vec::<String>::new());
    assert_eq!(found(1_025), ["SourceSystem (PROSODY_SOURCE_SYSTEM): must have at most 1024 bytes"]);
}

#[test]
fn none_is_no_value_where_that_is_the_default_and_a_secret_may_be_that_word() {
    for spec in OPTIONS.iter().filter(|spec| spec.default.starts_with("none")) {
        let mut options = Options::default();
        options.set(spec.name, " None ").unwrap_or_else(|why| panic!("{why}"));
        let word = match spec.name {
            "SaslPassword" => options.sasl_password.take().is_some(),
            "SaslOauthClientSecret" => options.sasl_oauth_client_secret.take().is_some(),
            "SslKeyPassword" => options.ssl_key_password.take().is_some(),
            "DeferMaxRetries" => options.defer_max_retries.take() == Some(u32::MAX),
            "ProbePort" => options.probe_port.take() == Some(0),
            _ => true,
        };
        assert!(word && options == Options::default(), "{}: {options:?}", spec.name);
    }
    assert_eq!(with(&[("GroupId", "none"), ("TelemetryTopic", "none")]).group_id.as_deref(), Some("none"));
}

#[test]
fn security_options_that_do_not_fit_together_are_all_named() {
    let wrong = |pairs: &[(&str, &str)]| -> Vec<String> {
        let problems = problems(with(&[&[("BootstrapServers", "a:1")], pairs].concat()));
        problems
            .iter()
            .map(|problem| problem.split(" (PROSODY_").next().unwrap_or_default().to_owned())
            .collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(wrong(&[("SecurityProtocol", "plaintext")]), none);
    assert_eq!(wrong(&[("SecurityProtocol", "sasl_ssl")]), ["SaslMechanism", "SaslUsername", "SaslPassword"]);
    let user = [("SaslUsername", "u"), ("SaslPassword", "p")];
    assert_eq!(wrong(&user), ["SaslUsername", "SaslPassword"], "without a protocol nobody is told");
    assert_eq!(wrong(&[user[0], user[1], ("SecurityProtocol", "sasl_plaintext")]), ["SaslMechanism"]);
    let all = [user[0], user[1], ("SaslMechanism", "SCRAM-SHA-512"), ("SecurityProtocol", "SASL_PLAINTEXT")];
    assert_eq!(wrong(&all), none);
    let files = [("SslCaLocation", "/ca"), ("SslCertificateLocation", "/c"), ("SslKeyLocation", "/k")];
    assert_eq!(wrong(&files), ["SslCaLocation", "SslCertificateLocation", "SslKeyLocation"]);
    let tls = ("SecurityProtocol", "ssl");
    assert_eq!(wrong(&[tls, files[1]]), ["SslKeyLocation"], "a certificate without its key");
    assert_eq!(wrong(&[tls, files[2]]), ["SslCertificateLocation"]);
    assert_eq!(wrong(&[tls, files[0]]), ["SslCaLocation"], "the file is read when the client is built");
    assert_eq!(wrong(&[("SslKeyPassword", "x")]), ["SslKeyPassword"]);
    let token = [("SecurityProtocol", "sasl_plaintext"), ("SaslMechanism", "OAUTHBEARER")];
    let (endpoint, id, secret) = ("SaslOauthTokenEndpoint", "SaslOauthClientId", "SaslOauthClientSecret");
    assert_eq!(wrong(&token), [endpoint, id, secret]);
    let by_endpoint =
        [(endpoint, "https://idp.example/token"), (id, "me"), (secret, "s"), ("SaslOauthScope", "k")];
    assert_eq!(wrong(&[&token[..], &by_endpoint].concat()), none);
    assert_eq!(wrong(&[&token[..], &by_endpoint, &user].concat()), ["SaslUsername", "SaslPassword"]);
    assert_eq!(wrong(&[&all[..], &by_endpoint].concat()), [endpoint, id, secret, "SaslOauthScope"]);
    assert_eq!(wrong(&by_endpoint), [endpoint, id, secret, "SaslOauthScope"]);
    for url in ["ftp://idp/", "idp.example/token", "https://", "https://me:s@idp.example/"] {
        let given = [(endpoint, url), by_endpoint[1], by_endpoint[2]];
        assert_eq!(wrong(&[&token[..], &given].concat()), [endpoint], "{url}");
    }
    let mut by_code = with(&[&token[..], &[("BootstrapServers", "a:1"), by_endpoint[3]]].concat());
    by_code.set_token_provider(std::sync::Arc::new(prosody_wire::FixedToken(prosody_wire::Token::new("t"))));
    assert!(problems(by_code.clone())[0].starts_with("SaslOauthScope"), "the code decides");
    by_code.sasl_oauth_scope = None;
    assert!(check(by_code.clone(), vec![]).is_ok());
    by_code.sasl_mechanism = Some(crate::SaslMechanism::Plain);
    assert!(problems(by_code).concat().contains("a token provider has no effect"), "nobody would ask it");
    let text = format!("{:?}", check(with(&[&[("BootstrapServers", "a:1")], &all[..]].concat()), vec![]));
    assert!(text.contains("***") && !text.contains("\"p\""), "{text}");
}

#[test]
fn deferral_takes_waits_shares_and_a_number_of_retries() {
    let deferral = |pairs: &[(&str, &str)]| check(with(&[&[("Mock", "true")], pairs].concat()), vec![]);
    let checked = deferral(&[]).unwrap();
    let seconds = Duration::from_secs;
    assert!(checked.deferral.enabled && !checked.defer_asked && checked.monopoly.is_some());
    assert_eq!((checked.deferral.base, checked.deferral.max), (seconds(1), seconds(86_400)));
    assert_eq!((checked.deferral.threshold, checked.deferral.window), (0.9, seconds(300)));
    assert_eq!((checked.deferral.max_retries, checked.loader_cache), (None, 64 << 20));
    let given = [("DeferMaxRetries", "3"), ("MonopolizationEnabled", "no"), ("DeferEnabled", "true")];
    let checked = deferral(&given).unwrap();
    assert!(checked.deferral.max_retries == Some(3) && checked.monopoly.is_none() && checked.defer_asked);
    assert_eq!(deferral(&[("DeferMaxRetries", "none")]).unwrap().deferral.max_retries, None);
    let refused = |pairs: &[(&str, &str)]| -> Vec<String> {
        deferral(pairs).unwrap_err().problems.into_iter().map(|problem| problem.option).collect()
    };
    assert_eq!(refused(&[("DeferBase", "999ms")]), ["DeferBase"]);
    assert_eq!(refused(&[("DeferBase", "2s"), ("DeferMaxDelay", "1s")]), ["DeferBase"]);
    for share in ["0", "1.1", "NaN", "-1"] {
        assert_eq!(refused(&[("DeferFailureThreshold", share)]), ["DeferFailureThreshold"]);
        assert_eq!(refused(&[("MonopolizationThreshold", share)]), ["MonopolizationThreshold"]);
    }
    assert_eq!(refused(&[("DeferFailureWindow", "0s")]), ["DeferFailureWindow"]);
    assert_eq!(refused(&[("MonopolizationWindow", "0s")]), ["MonopolizationWindow"]);
    assert_eq!(refused(&[("LoaderSeekTimeout", "0s")]), ["LoaderSeekTimeout"]);
}

#[test]
fn the_scheduler_takes_a_share_a_wait_and_a_weight() {
    let scheduler = |pairs: &[(&str, &str)]| check(with(&[&[("Mock", "true")], pairs].concat()), vec![]);
    let checked = scheduler(&[]).unwrap().scheduler;
    assert_eq!((checked.failure_weight, checked.wait_weight), (0.3, 200.0));
    assert_eq!(checked.max_wait, Duration::from_secs(120));
    let given =
        [("SchedulerFailureWeight", "0.5"), ("SchedulerMaxWait", "10s"), ("SchedulerWaitWeight", "0")];
    let checked = scheduler(&given).unwrap().scheduler;
    assert_eq!((checked.failure_weight, checked.wait_weight), (0.5, 0.0));
    assert_eq!(checked.max_wait, Duration::from_secs(10));
    for (name, text) in [
        ("SchedulerFailureWeight", "0"),
        ("SchedulerFailureWeight", "1"),
        ("SchedulerFailureWeight", "NaN"),
        ("SchedulerMaxWait", "0s"),
        ("SchedulerWaitWeight", "-1"),
        ("SchedulerWaitWeight", "inf"),
    ] {
        let problems = problems(with(&[("Mock", "true"), (name, text)]));
        assert!(problems.len() == 1 && problems[0].starts_with(name), "{name}={text}: {problems:?}");
    }
    assert!(Options::default().set("SchedulerWaitWeight", "much").is_err());
}

#[test]
fn spans_are_children_or_follow_and_nothing_else() {
    let text = [("Mock", "true"), ("MessageSpans", "Follows_From"), ("TimerSpans", "child")];
    let checked = check(with(&text), vec![]).unwrap();
    assert_eq!(
        (checked.message_spans, checked.timer_spans),
        (SpanRelation::FollowsFrom, SpanRelation::Child)
    );
    let why = Options::default().set("TimerSpans", "sibling").unwrap_err().to_string();
    assert_eq!(why, "TimerSpans (PROSODY_TIMER_SPANS): `sibling` is not one of child, follows_from");
}
