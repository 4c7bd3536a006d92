// Exceptions of handlers reach Sentry with what they are about, when the application has initialized it; and nothing of
// Sentry reaches the events. Sentry belongs to the process, so nothing that fails runs beside these tests.

using System.Collections.Concurrent;
using System.Text.Json;
using Sentry;

namespace Prosody.Tests;

[Collection(nameof(PanicTests))]
public sealed class SentryTests
{
    [Fact]
    public async Task A_handler_s_exceptions_are_reported_with_their_event()
    {
        var events = new ConcurrentQueue<SentryEvent>();
        using IDisposable sentry = Init(events.Enqueue);
        await using ProsodyClient client = Client();
        int attempts = 0;
        var handler = new Failing(
            message => message.Key switch
            {
                "transient" when attempts++ == 0 => throw new InvalidOperationException("not yet"),
                "permanent" => throw new PermanentException("never"),
                _ => Task.CompletedTask,
            });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "transient", new Payload()).WithPatience();
        await client.SendAsync("topic", "permanent", new Payload()).WithPatience();
        await Mock.Until(() => events.Count == 2, "both are reported");
        SentryEvent transient = events.Single(static captured => captured.Exception is InvalidOperationException);
        SentryEvent permanent = events.Single(static captured => captured.Exception is PermanentException);
        Assert.Equal(("message", "transient"), (transient.Tags["prosody.event_type"], transient.Tags["prosody.error_class"]));
        Assert.Equal(("message", "permanent"), (permanent.Tags["prosody.event_type"], permanent.Tags["prosody.error_class"]));
        var context = Assert.IsType<IReadOnlyDictionary<string, string>>(transient.Contexts["prosody"], exactMatch: false);
        Assert.Equal(("topic", "transient", "0"), (context["topic"], context["key"], context["offset"]));
        Assert.Equal(["key", "offset", "partition", "topic"], context.Keys.Order(StringComparer.Ordinal));
    }

    [Fact]
    public async Task A_timer_s_and_a_payload_s_exceptions_are_reported_too()
    {
        var events = new ConcurrentQueue<SentryEvent>();
        using IDisposable sentry = Init(events.Enqueue);
        await using ProsodyClient client = Client();
        await client.SubscribeAsync(new Failing(static _ => Task.CompletedTask, timer: true)).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await client.SendRawAsync("topic", "other", "[]"u8.ToArray()).WithPatience();
        await Mock.Until(() => events.Any(static captured => captured.Exception is JsonException) && events.Any(static captured => captured.Exception is TimeoutException), "both are reported");
        SentryEvent timer = events.First(static captured => captured.Exception is TimeoutException);
        var context = Assert.IsType<IReadOnlyDictionary<string, string>>(timer.Contexts["prosody"], exactMatch: false);
        Assert.Equal(("timer", "key", "1970-01-01T00:00:01.0000000+00:00"), (timer.Tags["prosody.event_type"], context["key"], context["time"]));
        Assert.Equal("message", events.First(static captured => captured.Exception is JsonException).Tags["prosody.event_type"]);
    }

    [Fact]
    public async Task What_a_cancellation_brought_about_is_not_reported_and_a_timeout_of_something_else_is()
    {
        var events = new ConcurrentQueue<SentryEvent>();
        using IDisposable sentry = Init(events.Enqueue);
        await using ProsodyClient client = Client(static options => options.Timeout = TimeSpan.FromSeconds(2));
        var attempts = new ConcurrentDictionary<string, int>();
        var handler = new Recorder<Payload>(async (_, message, token) =>
        {
            if (attempts.AddOrUpdate(message.Key, 1, static (_, n) => n + 1) > 1)
            {
                return;
            }

            if (message.Key == "own")
            {
                throw new TaskCanceledException("an HTTP request took too long");
            }

            await Task.Delay(Timeout.Infinite, token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "cancelled", new Payload()).WithPatience();
        await client.SendAsync("topic", "own", new Payload()).WithPatience();
        await handler.TakeAsync(2);
        Assert.Equal("an HTTP request took too long", Assert.Single(events).Exception!.Message);
    }

    [Fact]
    public async Task A_Sentry_that_throws_changes_nothing_and_none_at_all_neither()
    {
        foreach (bool throws in (bool[])[true, false])
        {
            int asked = 0;
            using IDisposable? sentry = throws ? Init(_ => { asked++; throw new InvalidOperationException("no report"); }) : null;
            await using ProsodyClient client = Client();
            int attempts = 0;
            var handler = new Failing(_ => attempts++ == 0 ? throw new InvalidOperationException("once") : Task.CompletedTask);
            await client.SubscribeAsync(handler).WithPatience();
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
            await Mock.Until(() => Volatile.Read(ref attempts) == 2, "it is tried again");
            Assert.Equal(throws ? 1 : 0, asked);
        }
    }

    [Fact]
    public void The_main_assembly_has_no_reference_to_Sentry() => Assert.DoesNotContain(
        typeof(ProsodyClient).Assembly.GetReferencedAssemblies(), static name => name.Name!.Contains("Sentry", StringComparison.Ordinal));

    private static IDisposable Init(Action<SentryEvent> seen) => SentrySdk.Init(options =>
    {
        // Nothing leaves: every event ends before it is sent.
        options.Dsn = "https://key@127.0.0.1/1";
        options.AutoSessionTracking = false;
        options.SetBeforeSend(captured =>
        {
            seen(captured);
            return null;
        });
    });

    private static ProsodyClient Client(Action<ClientOptions>? configure = null) => Mock.Builder().Configure(static options =>
    {
        options.MaxRetryDelay = TimeSpan.FromMilliseconds(20);
        options.DeferEnabled = false;
    }).Configure(configure ?? (static _ => { })).Build();

    private sealed class Failing(Func<Message<Payload>, Task> act, bool timer = false) : IProsodyHandler<Payload>
    {
        public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            if (timer)
            {
                await prosodyContext.ScheduleAsync(DateTimeOffset.FromUnixTimeSeconds(1));
            }

            await act(message);
        }

        public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => throw new TimeoutException("a timer");
    }
}
