// Traces across clients: activities of handlers, what sends and timers carry on, and one tree with the core's own spans.

using System.Collections.Concurrent;
using System.Diagnostics;
using System.Net;
using System.Net.Sockets;
using System.Text.Json;

namespace Prosody.Tests;

/// <summary>Listeners are the process's, so nothing runs beside these.</summary>
[Collection(nameof(PanicTests))]
public sealed class TracingTests
{
    private const string Endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    private const string Protocol = "OTEL_EXPORTER_OTLP_PROTOCOL";
    private static readonly ActivitySource User = new("user");

    [Fact]
    public async Task A_handlers_activities_belong_to_the_senders_trace_though_nobody_listens_to_Prosody()
    {
        using var listener = new Listener("user");
        string cluster = Mock.Cluster();
        await using ProsodyClient client = Mock.Builder(cluster).Build();
        await using ProsodyClient next = Mock.Builder(cluster, "another group", "next").Build();
        var last = new Recorder<Payload>((_, _, _) => Work("last"));
        var first = new Recorder<Payload>(async (_, message, token) =>
        {
            await Work("at once");
            await Task.Yield();
            using Activity? inner = User.StartActivity("later");
            await client.SendAsync("next", message.Key, new Payload(), token);
        });
        await next.SubscribeAsync(last).WithPatience();
        await client.SubscribeAsync(first).WithPatience();
        ActivityTraceId trace;
        using (Activity root = User.StartActivity("root")!)
        {
            trace = root.TraceId;
            root.TraceStateString = "x=y";
            root.AddBaggage("user", "a b,ö");
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
        }

        await first.NextAsync();
        await last.NextAsync();
        Activity[] made = listener.Stopped();
        Assert.Equal(["at once", "last", "later", "root"], made.Select(activity => activity.OperationName).Order(StringComparer.Ordinal));
        Assert.All(made, activity => Assert.Equal((trace, "x=y"), (activity.TraceId, activity.TraceStateString)));
        Assert.All(made, activity => Assert.Equal("a b,ö", activity.GetBaggageItem("user")));
        Assert.Equal("process topic", Named(made, "at once").Parent!.OperationName);
        Assert.Equal(Named(made, "at once").ParentSpanId, Named(made, "later").ParentSpanId);
        Assert.Null(Activity.Current);
    }

    [Fact]
    public async Task Without_a_trace_and_a_listener_there_is_no_activity()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var seen = new ConcurrentBag<Activity?>();
        var handler = new Recorder<Payload>((_, _, _) =>
        {
            seen.Add(Activity.Current);
            return Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        Assert.Null(Assert.Single(seen));
    }

    [Fact]
    public async Task Who_listens_to_Prosody_gets_the_handlers_activities_with_their_failures()
    {
        using var listener = new Listener("user", "Prosody");
        await using ProsodyClient client = Mock.Builder().Configure(options => options.MessageSpans = SpanRelation.FollowsFrom).Build();
        int attempts = 0;
        var handler = new Recorder<Payload>(async (_, _, _) =>
        {
            await Task.Yield();
            if (Interlocked.Increment(ref attempts) == 1)
            {
                throw new InvalidOperationException("not now");
            }
        });
        await client.SubscribeAsync(handler).WithPatience();
        ActivityContext root;
        using (Activity activity = User.StartActivity("root")!)
        {
            root = activity.Context;
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
        }

        await handler.NextAsync();
        await Mock.Until(() => listener.Stopped().Length == 3, "three activities");
        Activity[] made = [.. listener.Stopped().Where(activity => activity.OperationName == "process topic")];
        Assert.All(made, activity =>
        {
            Assert.Equal((ActivityKind.Consumer, default), (activity.Kind, activity.ParentSpanId));
            Assert.NotEqual(root.TraceId, activity.TraceId);
            ActivityContext link = Assert.Single(activity.Links).Context;
            Assert.Equal((root.TraceId, root.SpanId), (link.TraceId, link.SpanId));
            Assert.Equal("topic", activity.GetTagItem("messaging.destination.name"));
            Assert.Equal("key", activity.GetTagItem("messaging.kafka.message.key"));
        });
        Assert.Equal([ActivityStatusCode.Error, ActivityStatusCode.Unset], made.Select(activity => activity.Status));
        Assert.Equal("not now", made[0].StatusDescription);
        Assert.Equal("exception", Assert.Single(made[0].Events).Name);
    }

    [Fact]
    public async Task A_listener_that_throws_keeps_no_event_from_running_or_ending()
    {
        using var broken = new ActivityListener
        {
            ShouldListenTo = source => source.Name == "Prosody",
            Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllDataAndRecorded,
            ActivityStarted = _ => throw new InvalidOperationException("a listener"),
            ActivityStopped = _ => throw new InvalidOperationException("a listener"),
        };
        ActivitySource.AddActivityListener(broken);
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>((_, _, _) => Task.CompletedTask);
        await client.SubscribeAsync(handler).WithPatience();
        for (int n = 0; n < 3; n++)
        {
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
        }

        await handler.TakeAsync(3);
    }

    // The activity of a handler that threw an exception without a text was never stopped, so no exporter saw it.
    [Fact]
    public async Task An_exception_whose_text_throws_ends_its_activity_too()
    {
        using var listener = new Listener("Prosody");
        await using ProsodyClient client = Mock.Builder().Build();
        await client.SubscribeAsync(new Recorder<Payload>(static (_, message, _) => message.Key == "throws" ? throw new TextThrows() : Task.CompletedTask)).WithPatience();
        await client.SendAsync("topic", "throws", new Payload()).WithPatience();
        await Mock.Until(() => listener.Stopped().Any(static activity => activity.OperationName == "process topic"), "the activity is stopped");
        Activity failed = listener.Stopped().First(static activity => activity.OperationName == "process topic");
        Assert.Equal((ActivityStatusCode.Error, typeof(TextThrows).ToString()), (failed.Status, failed.StatusDescription));
    }

    [Fact]
    public async Task A_timer_runs_in_the_trace_of_the_activity_that_scheduled_it()
    {
        using var listener = new Listener("user");
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Timed();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Activity fired = await handler.Fired.WithPatience();
        Activity scheduling = Named(listener.Stopped(), "scheduling");
        Assert.Equal((scheduling.TraceId, scheduling.SpanId), (fired.TraceId, handler.Scheduled));
        Assert.Equal("timer", fired.OperationName);
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Spans_of_both_sides_are_one_tree_without_orphans(bool listensToProsody)
    {
        using var collector = new Collector();
        using var listener = new Listener(listensToProsody ? ["user", "Prosody"] : ["user"]);
        string cluster = Mock.Cluster();
        Environment.SetEnvironmentVariable(Endpoint, collector.Url);
        Environment.SetEnvironmentVariable(Protocol, "http/json");
        ProsodyClient client;
        try
        {
            client = Mock.Builder(cluster).Build();
        }
        finally
        {
            Environment.SetEnvironmentVariable(Endpoint, null);
            Environment.SetEnvironmentVariable(Protocol, null);
        }

        var handler = new Recorder<Payload>(async (_, message, token) =>
        {
            await Work("inner");
            await client.SendAsync("next", message.Key, new Payload(), token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        ActivityTraceId trace;
        using (Activity root = User.StartActivity("root")!)
        {
            trace = root.TraceId;
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
        }

        await handler.NextAsync();
        await client.DisposeAsync();
        List<(string Name, string Span, string Parent)> all = [.. collector.Spans(trace.ToHexString())];
        Assert.Equal(listensToProsody ? 0 : 1, all.Count(span => span.Name == "process topic"));
        all.AddRange(listener.Stopped().Select(activity => (activity.OperationName, activity.SpanId.ToHexString(), activity.ParentSpanId.ToHexString())));
        string Parent(string name)
        {
            string parent = all.Single(span => span.Name == name).Parent;
            return all.SingleOrDefault(span => span.Span == parent).Name ?? parent;
        }

        Assert.Equal(
            ["root", "send topic", "send topic", "process topic", "process topic"],
            new[] { "send topic", "receive topic", "process topic", "inner", "send next" }.Select(Parent));
        Assert.Equal(6, all.Count);
    }

    private static Activity Named(IEnumerable<Activity> activities, string name) => activities.Single(activity => activity.OperationName == name);

    private static Task Work(string name)
    {
        using Activity? activity = User.StartActivity(name);
        Assert.NotNull(activity);
        return Task.CompletedTask;
    }

    /// <summary>Schedules a timer inside of an activity, and shows where that fires.</summary>
    private sealed class Timed : IProsodyHandler<Payload>
    {
        private readonly TaskCompletionSource<Activity> _fired = new(TaskCreationOptions.RunContinuationsAsynchronously);

        internal Task<Activity> Fired => _fired.Task;

        internal ActivitySpanId Scheduled { get; private set; }

        public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            using Activity activity = User.StartActivity("scheduling")!;
            Scheduled = activity.SpanId;
            await prosodyContext.ScheduleAsync(DateTimeOffset.UnixEpoch);
        }

        public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
        {
            _fired.TrySetResult(Activity.Current!);
            return Task.CompletedTask;
        }
    }

    /// <summary>Records the activities of some sources.</summary>
    private sealed class Listener : IDisposable
    {
        private readonly ConcurrentQueue<Activity> _stopped = new();
        private readonly ActivityListener _listener;

        internal Listener(params string[] sources)
        {
            _listener = new ActivityListener
            {
                ShouldListenTo = source => sources.Contains(source.Name),
                Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllDataAndRecorded,
                ActivityStopped = _stopped.Enqueue,
            };
            ActivitySource.AddActivityListener(_listener);
        }

        public void Dispose() => _listener.Dispose();

        internal Activity[] Stopped() => [.. _stopped];
    }

    /// <summary>Takes OTLP as JSON.</summary>
    private sealed class Collector : IDisposable
    {
        private readonly HttpListener _listener = new();
        private readonly ConcurrentQueue<JsonDocument> _requests = new();

        internal Collector()
        {
            using (var port = new TcpListener(IPAddress.Loopback, 0))
            {
                port.Start();
                Url = $"http://127.0.0.1:{((IPEndPoint)port.LocalEndpoint).Port}";
            }

            _listener.Prefixes.Add(Url + "/v1/traces/");
            _listener.Start();
            _ = Serve();
        }

        internal string Url { get; }

        public void Dispose() => _listener.Close();

        internal IEnumerable<(string Name, string Span, string Parent)> Spans(string trace) =>
            from request in _requests
            from span in request.RootElement.GetProperty("resourceSpans")[0].GetProperty("scopeSpans")[0].GetProperty("spans").EnumerateArray()
            where span.GetProperty("traceId").GetString() == trace
            select (
                span.GetProperty("name").GetString()!,
                span.GetProperty("spanId").GetString()!,
                span.TryGetProperty("parentSpanId", out JsonElement parent) ? parent.GetString()! : string.Empty);

        private async Task Serve()
        {
            while (_listener.IsListening)
            {
                HttpListenerContext context;
                try
                {
                    context = await _listener.GetContextAsync();
                }
                catch (Exception closed) when (closed is HttpListenerException or ObjectDisposedException)
                {
                    return;
                }

                _requests.Enqueue(await JsonDocument.ParseAsync(context.Request.InputStream));
                context.Response.Close();
            }
        }
    }
}
