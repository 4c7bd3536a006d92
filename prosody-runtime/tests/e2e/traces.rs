//! Traces with an exporter: what a collector sees, and that no collector can do harm.

use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use prosody_runtime::{
    Client, ClientBuilder, Context, Handler, HandlerError, Message, Mode, SpanRelation, Timer,
};

use crate::collector::{Collector, Manner, Seen, with_collector};
use crate::propagation::{PARENT, header, send_with};
use crate::stage::Stage;
use crate::world::{Diary, World, quick, send_numbered};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENDER: &str = "00f067aa0ba902b7";

/// Sends on, and fails as often as it was told.
struct Relay {
    client: Client,
    fails: Mutex<usize>,
    error: HandlerError,
}

impl Relay {
    fn new(client: &Client, fails: usize) -> Relay {
        Relay { client: client.clone(), fails: Mutex::new(fails), error: HandlerError::transient("not now") }
    }
    fn fail(&self) -> Result<(), HandlerError> {
        let mut fails = self.fails.lock().unwrap();
        if *fails > 0 {
            *fails -= 1;
            return Err(self.error.clone());
        }
        Ok(())
    }
}

impl Handler for Relay {
    async fn on_message(&self, context: Context, message: Message) -> Result<(), HandlerError> {
        self.fail()?;
        if message.key() == "timer" {
            context.schedule(UNIX_EPOCH).await?;
        }
        self.client.send("out", message.key(), b"{}").await?;
        Ok(())
    }
    async fn on_timer(&self, _: Context, timer: Timer) -> Result<(), HandlerError> {
        self.fail()?;
        self.client.send("out", &timer.key, b"{}").await?;
        Ok(())
    }
}

fn start(world: &World, manner: &[Manner]) -> Collector {
    Collector::start(&world.cluster.network(), &world.clock, manner)
}

fn only(mut spans: Vec<Seen>) -> Seen {
    assert_eq!(spans.len(), 1, "{spans:#?}");
    spans.remove(0)
}

/// The `traceparent` of a topic's last record.
fn sent_to(world: &World, topic: &str) -> String {
    header(&world.cluster.log(topic, 0).pop().unwrap(), "traceparent").concat()
}

#[tokio::test(start_paused = true)]
async fn a_collector_sees_one_tree_in_the_words_of_opentelemetry_by_either_protocol() {
    for (protocol, content) in
        [("http/protobuf", "application/x-protobuf"), ("http/json", "application/json")]
    {
        let world = World::new(&[("t", 1), ("out", 1)]);
        let collector = start(&world, &[Manner::Takes]);
        let client = with_collector(world.builder(), protocol).build().unwrap();
        client.subscribe(Relay::new(&client, 0)).await.unwrap();
        send_with(&world, "k\"é", &[("traceparent", PARENT), ("tracestate", "x=y"), ("baggage", "a=b")])
            .await;
        world.until("three spans", || collector.spans().len() == 3).await;
        let [receive, process, send] =
            ["receive t", "process t", "send out"].map(|name| only(collector.named(name)));
        for (span, parent, kind) in [(&receive, SENDER, 3), (&process, SENDER, 5), (&send, &*process.span, 4)]
        {
            assert_eq!((&*span.trace, &*span.parent, span.kind, &*span.state), (TRACE, parent, kind, "x=y"));
            assert!(span.start <= span.end && span.flags == 1 && span.status.0 == 0 && span.links.is_empty());
            let operation = span.name.split(' ').next().unwrap();
            let expected = [
                ("messaging.system", "kafka"),
                ("messaging.operation.name", operation),
                ("messaging.operation.type", operation),
                ("messaging.destination.name", if operation == "send" { "out" } else { "t" }),
                ("messaging.destination.partition.id", "0"),
                ("messaging.kafka.offset", "0"),
                ("messaging.kafka.message.key", "k\"é"),
                ("messaging.client.id", "tests"),
                ("messaging.consumer.group.name", if operation == "send" { "" } else { "g" }),
            ];
            for (name, value) in expected {
                assert_eq!(span.says(name), value, "{name} of {span:?}");
            }
        }
        assert!(receive.end <= send.start && process.start <= send.start && send.end <= process.end);
        assert_eq!(
            sent_to(&world, "out"),
            format!("00-{TRACE}-{}-01", send.span),
            "the record names its own span"
        );
        assert_eq!(header(&world.cluster.log("out", 0)[0], "baggage"), ["a=b"]);
        // What nobody traced begins here: the send, and whoever handles it is its child.
        client.send("t", "root", b"{}").await.unwrap();
        world.until("four more", || collector.spans().len() == 7).await;
        let root = only(collector.named("send t"));
        assert!(root.parent.is_empty() && root.trace != TRACE && root.trace.len() == 32);
        let child = collector.named("process t").into_iter().find(|span| span.trace == root.trace).unwrap();
        assert_eq!(child.parent, root.span);
        for request in collector.requests.lock().unwrap().iter() {
            assert_eq!(*request, [content, "/v1/traces", "secret"]);
        }
        assert_eq!(*collector.connections.lock().unwrap(), 1, "a connection is used again");
        let resource = collector.resources.lock().unwrap()[0].clone();
        for (name, value) in [
            ("service.name", "tests"),
            ("deployment.environment.name", "test"),
            ("telemetry.sdk.name", "prosody"),
        ] {
            assert_eq!(resource[name], value);
        }
        let insight = client.insight();
        assert_eq!((insight.spans_sent, insight.spans_dropped, insight.spans_failed), (7, 0, 0));
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn follows_from_is_a_trace_of_its_own_with_a_link() {
    for (messages, timers) in [
        (None, None), // child, follows_from
        (Some(SpanRelation::FollowsFrom), Some(SpanRelation::Child)),
    ] {
        let stage = Stage::new(1);
        let world = &stage.world;
        world.cluster.create_topic("out", 1).unwrap();
        let collector = start(world, &[Manner::Takes]);
        let client = with_collector(stage.process().0, "http/protobuf").configure(|o| {
            (o.message_spans, o.timer_spans) = (messages, timers);
        });
        let client = client.build().unwrap();
        client.subscribe(Relay::new(&client, 0)).await.unwrap();
        send_with(world, "timer", &[("traceparent", PARENT), ("baggage", "a=b")]).await;
        world.until("five spans", || collector.spans().len() == 5).await;
        let [receive, message, timer] =
            ["receive t", "process t", "timer"].map(|name| only(collector.named(name)));
        assert_eq!(
            (&*receive.trace, &*receive.parent),
            (TRACE, SENDER),
            "how long it waited is told to its sender"
        );
        if messages.is_none() {
            assert_eq!((&*message.trace, &*message.parent), (TRACE, SENDER));
            assert_eq!(timer.links, [[TRACE.to_owned(), message.span.clone()]]);
            assert!(timer.parent.is_empty() && timer.trace != TRACE);
        } else {
            assert_eq!(message.links, [[TRACE.to_owned(), SENDER.to_owned()]]);
            assert!(message.parent.is_empty() && message.trace != TRACE);
            assert_eq!((&timer.trace, &timer.parent), (&message.trace, &message.span));
            assert!(timer.links.is_empty());
        }
        assert_eq!(timer.says("prosody.timer.scheduled_time"), "0");
        let sent = collector.named("send out");
        let of = |cause: &Seen| {
            sent.iter().filter(|s| (&s.trace, &s.parent) == (&cause.trace, &cause.span)).count()
        };
        assert_eq!((of(&message), of(&timer)), (1, 1), "each handler's sends are its own");
        let sent = world.cluster.log("out", 0);
        let baggage: Vec<_> = sent.iter().map(|record| header(record, "baggage").concat()).collect();
        assert_eq!(baggage, ["a=b", ""]);
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_its_span_and_the_failure_topic_names_the_last_one() {
    let world = World::new(&[("t", 1), ("dead", 1)]);
    let collector = start(&world, &[Manner::Takes]);
    let builder = world.builder().mode(Mode::LowLatency).max_retries(1).failure_topic("dead");
    let client = with_collector(builder, "http/json").build().unwrap();
    client.subscribe(Relay::new(&client, 2)).await.unwrap();
    send_with(&world, "a", &[("traceparent", PARENT)]).await;
    world.until("four spans", || collector.spans().len() == 4).await;
    let attempts = collector.named("process t");
    let demands: Vec<_> = attempts.iter().map(|span| span.says("prosody.demand_type")).collect();
    assert_eq!(demands, ["normal", "failure"]);
    for span in &attempts {
        assert_eq!((&*span.trace, &*span.parent, span.says("error.type")), (TRACE, SENDER, "transient"));
        assert_eq!(span.status, (2, "not now".to_owned()));
        assert_eq!((&*span.events[0].0, &*span.events[0].1["exception.message"]), ("exception", "not now"));
    }
    let route = only(collector.named("send dead"));
    assert_eq!((&*route.trace, &route.parent), (TRACE, &attempts[1].span));
    assert_eq!(sent_to(&world, "dead"), format!("00-{TRACE}-{}-01", route.span));
    only(collector.named("receive t"));
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_sampled_is_passed_on_as_not_sampled_and_never_exported() {
    let off = [("OTEL_TRACES_SAMPLER", "always_off")];
    for (parent, sampler, exported) in [
        (PARENT.replace("-01", "-00"), &[][..], 0),
        (PARENT.to_owned(), &off, 0),
        (PARENT.to_owned(), &[], 3),
    ] {
        let world = World::new(&[("t", 1), ("out", 1)]);
        let collector = start(&world, &[Manner::Takes]);
        let mut variables = Collector::variables("http/protobuf");
        variables.extend(sampler.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        let client = world.builder().environment(variables).build().unwrap();
        client.subscribe(Relay::new(&client, 0)).await.unwrap();
        send_with(&world, "a", &[("traceparent", &parent)]).await;
        world.until("sent", || world.cluster.log("out", 0).len() == 1).await;
        let sent = sent_to(&world, "out");
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && !sent.contains(SENDER), "{sent}");
        assert!(sent.ends_with(if exported > 0 { "-01" } else { "-00" }), "{sent}");
        client.close().await.unwrap();
        assert_eq!(collector.spans().len(), exported, "{parent} {sampler:?}");
    }
}

/// A handler must not know whether its collector is well.
#[tokio::test(start_paused = true)]
async fn a_collector_that_is_down_hostile_or_slow_costs_spans_and_nothing_else() {
    let manners: [(Option<Manner>, u64); 7] = [
        (None, 0),
        (Some(Manner::Answers(400, None)), 0),
        (Some(Manner::Answers(503, Some(u64::MAX))), 0),
        (Some(Manner::Hangs), 0),
        (Some(Manner::Babbles), 0),
        (Some(Manner::Floods), 0),
        (Some(Manner::Closes), 0),
    ];
    for (manner, sent) in manners {
        let world = World::new(&[("t", 4)]);
        let _collector = manner.map(|manner| start(&world, &[manner]));
        let client = with_collector(world.builder(), "http/protobuf").build().unwrap();
        let diary = Diary::default();
        client.subscribe(quick(&diary)).await.unwrap();
        world.until("partitions", || client.assigned_partitions() == 4).await;
        let started = world.clock.now();
        for _ in 0..20 {
            send_numbered(&client, 100, 50).await;
        }
        world.until("all handled", || diary.ended().len() == 2_000).await;
        assert!(world.clock.now() - started < Duration::from_secs(5), "{manner:?}");
        let closing = world.clock.now();
        client.close().await.unwrap();
        assert!(world.clock.now() - closing <= Duration::from_secs(31), "{manner:?}: within ShutdownTimeout");
        let insight = client.insight();
        let (lost, made) = (insight.spans_dropped + insight.spans_failed, 6_000);
        assert_eq!(insight.spans_sent, sent, "{manner:?}");
        assert!(insight.spans_failed > 0 && lost <= made, "{manner:?}: {insight:?}");
        // While the first batch waits for an answer no more than the queue holds can wait.
        assert!(insight.spans_dropped > 0 || lost == made, "{manner:?}: {insight:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_for_a_moment_loses_nothing_and_the_last_spans_leave_with_the_client() {
    let world = World::new(&[("t", 1), ("out", 1)]);
    let manner = [Manner::Answers(503, Some(2)), Manner::Answers(429, None), Manner::Takes];
    let collector = start(&world, &manner);
    let mut variables = Collector::variables("http/protobuf");
    variables.push(("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "60000".to_owned()));
    let client = world.builder().environment(variables).build().unwrap();
    client.subscribe(Relay::new(&client, 0)).await.unwrap();
    send_with(&world, "a", &[("traceparent", PARENT)]).await;
    world.until("sent", || world.cluster.log("out", 0).len() == 1).await;
    assert_eq!(collector.spans().len(), 0, "they wait for others");
    let closing = world.clock.now();
    client.close().await.unwrap();
    assert_eq!(collector.spans().len(), 3);
    let took = world.clock.now() - closing;
    assert!((2..5).contains(&took.as_secs()), "as long as it was asked to wait: {took:?}");
    assert_eq!(client.insight().spans_sent, 3);
}

#[test]
fn grpc_is_refused_by_name_and_without_an_endpoint_it_is_nobodys_business() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), "grpc".to_owned());
    let endpoint = |url: &str| ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), url.to_owned());
    let build = |variables: Vec<(String, String)>| {
        ClientBuilder::default().mock(true).group_id("g").environment(variables).build()
    };
    build(vec![grpc.clone()]).unwrap();
    let why = build(vec![grpc, endpoint("http://localhost:4317")]).expect_err("grpc").to_string();
    assert!(
        why.contains("OTEL_EXPORTER_OTLP_PROTOCOL: `grpc` is not spoken; use http/protobuf or http/json"),
        "{why}"
    );
    for (url, said) in [
        ("localhost:4318", "no URL"),
        ("ftp://h", "begins neither"),
        ("http://", "no URL"),
        ("http://u:p@h", "user and password"),
    ] {
        let why = build(vec![endpoint(url)]).expect_err(url).to_string();
        assert!(why.contains("OTEL_EXPORTER_OTLP_ENDPOINT: ") && why.contains(said), "{why}");
    }
}
