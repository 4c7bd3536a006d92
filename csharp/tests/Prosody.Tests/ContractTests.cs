// Rows of the contract that other files do not tell: what each call refuses, and what a handler may rely on.

using System.Collections.Concurrent;
using System.Text.Json;

namespace Prosody.Tests;

public sealed class ContractTests
{
    [Fact]
    public async Task Null_topics_keys_handlers_and_type_infos_are_refused_by_name()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        Assert.Equal("topic", Assert.Throws<ArgumentNullException>(() => { _ = client.SendAsync(null!, "key", 1); }).ParamName);
        Assert.Equal("key", Assert.Throws<ArgumentNullException>(() => { _ = client.SendAsync("topic", null!, 1); }).ParamName);
        Assert.Equal("key", Assert.Throws<ArgumentNullException>(() => { _ = client.SendRawAsync("topic", null!, default); }).ParamName);
        Assert.Equal("typeInfo", Assert.Throws<ArgumentNullException>(() => { _ = client.SendAsync("topic", "key", 1, typeInfo: null!); }).ParamName);
        Assert.Equal("handler", Assert.Throws<ArgumentNullException>(() => { _ = client.SubscribeAsync<int>(null!); }).ParamName);
        Assert.Equal("classifier", Assert.Throws<ArgumentNullException>(() => { _ = client.SubscribeAsync(new Recorder<int>(), null!); }).ParamName);
    }

    // C13: without reflection a payload that no context knows is refused when the handler is subscribed, not when it is called.
    [Fact]
    public void A_payload_no_context_knows_is_refused_at_subscribe_with_the_cure()
    {
        Child ended = Child.Run("no reflection");
        Assert.Contains("do not know System.Text.Json.JsonElement", ended.Output, StringComparison.Ordinal);
        Assert.Contains("TypeInfoResolverChain.Add", ended.Output, StringComparison.Ordinal);
        Assert.Contains("state: Configured", ended.Output, StringComparison.Ordinal);
    }

    // C5.
    [Fact]
    public async Task A_handler_beyond_the_stall_threshold_makes_its_consumer_stalled_until_it_ends()
    {
        await using ProsodyClient client = Mock.Builder().Configure(static options =>
        {
            options.StallThreshold = TimeSpan.FromMilliseconds(200);
            options.ShutdownTimeout = TimeSpan.FromMilliseconds(500);
        }).Build();
        var leave = new TaskCompletionSource();
        var handler = new Recorder<Payload>((_, _, _) => leave.Task);
        await client.SubscribeAsync(handler).WithPatience();
        Assert.False(await client.IsStalledAsync());
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await Mock.Until(client.IsStalledAsync, "the partition stalls");
        Assert.True(await client.AssignedPartitionCountAsync() > 0);
        leave.SetResult();
        await handler.NextAsync();
        await Mock.Until(async () => !await client.IsStalledAsync(), "it goes on");
        await client.UnsubscribeAsync().WithPatience();
        Assert.Equal(0u, await client.AssignedPartitionCountAsync());
    }

    // C14.
    [Fact]
    public async Task Unsubscribing_inside_a_handler_ends_with_the_shutdown_timeout_and_gives_its_event_up()
    {
        string cluster = Mock.Cluster();
        await using ProsodyClient client = Mock.Builder(cluster).Configure(static options => options.ShutdownTimeout = TimeSpan.FromMilliseconds(500)).Build();
        var took = new TaskCompletionSource<long>(TaskCreationOptions.RunContinuationsAsynchronously);
        var handler = new Recorder<Payload>(async (_, _, _) =>
        {
            long start = Environment.TickCount64;
            await client.UnsubscribeAsync();
            took.TrySetResult(Environment.TickCount64 - start);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload("again")).WithPatience();
        Assert.InRange(await took.Task.WithPatience(), 300, 500 + 1_000);
        // It counts as unfinished, although the handler went on to its end.
        var next = new Recorder<Payload>();
        await client.SubscribeAsync(next).WithPatience();
        Assert.Equal("again", (await next.NextAsync()).Payload!.Text);
    }

    // A1 and A5.
    [Fact]
    public void An_admin_client_takes_its_servers_from_the_environment() => Assert.Equal(
        "created", Child.Run("admin", ("PROSODY_BOOTSTRAP_SERVERS", "mock://admin"), ("PROSODY_MOCK", "true")).Output.Trim());

    // H3: one instance for all keys; the message and the timers of a key never overlap.
    [Fact]
    public async Task A_message_and_a_timer_of_one_key_never_overlap()
    {
        var running = new ConcurrentDictionary<string, int>();
        var overlaps = new ConcurrentBag<string>();
        int timers = 0;
        var handler = new Both(async key =>
        {
            if (running.AddOrUpdate(key, 1, static (_, n) => n + 1) > 1)
            {
                overlaps.Add(key);
            }

            await Task.Yield();
            running.AddOrUpdate(key, 0, static (_, n) => n - 1);
        }, () => Interlocked.Increment(ref timers));
        await using ProsodyClient client = Mock.Builder().Build();
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, 200).Select(n => client.SendAsync("topic", $"{n % 4}", new Payload(Number: n)))).WithPatience();
        await handler.Messages(200).WithPatience();
        await Mock.Until(() => Volatile.Read(ref timers) >= 4, "timers of every key fired");
        Assert.Empty(overlaps);
    }

    // H6 and H8: a null for a value type is a payload that does not deserialize; every attempt tries again, and the attribute decides.
    [Fact]
    public async Task Null_for_a_value_type_is_judged_like_any_unreadable_payload()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Numbers();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendRawAsync("topic", "key", "null"u8.ToArray()).WithPatience();
        await client.SendRawAsync("topic", "key", "5"u8.ToArray()).WithPatience();
        Assert.Equal(5, (await handler.NextAsync()).Payload);
    }

    [Fact]
    public async Task Every_attempt_deserializes_again()
    {
        await using ProsodyClient client = Mock.Builder().Configure(static options => options.MaxRetryDelay = TimeSpan.FromMilliseconds(20)).Build();
        var seen = new ConcurrentQueue<Payload>();
        var handler = new Recorder<Payload>((_, message, _) =>
        {
            seen.Enqueue(message.Payload!);
            return seen.Count < 3 ? throw new InvalidOperationException("once more") : Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload("same")).WithPatience();
        await handler.NextAsync();
        Assert.Equal(3, seen.Distinct(ReferenceEqualityComparer.Instance).Count());
        Assert.All(seen, static payload => Assert.Equal("same", payload.Text));
    }

    // X10.
    [Fact]
    public async Task Timer_calls_of_a_cancelled_event_are_cancelled()
    {
        await using ProsodyClient client = Mock.Builder().Configure(static options => options.Timeout = TimeSpan.FromMilliseconds(50)).Build();
        var thrown = new ConcurrentQueue<Type>();
        int attempts = 0;
        var handler = new Recorder<Payload>(async (context, _, token) =>
        {
            if (Interlocked.Increment(ref attempts) > 1)
            {
                return;
            }

            await context.OnCancelAsync();
            await token.WaitAsync();
            foreach (Func<Task> call in (Func<Task>[])
            [
                () => context.ScheduleAsync(DateTimeOffset.UtcNow), () => context.ClearAndScheduleAsync(DateTimeOffset.UtcNow),
                () => context.UnscheduleAsync(DateTimeOffset.UtcNow), context.ClearScheduledAsync, context.ScheduledAsync,
            ])
            {
                thrown.Enqueue((await Record.ExceptionAsync(call))!.GetType());
            }

            token.ThrowIfCancellationRequested();
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        Assert.Equal(5, thrown.Count);
        Assert.All(thrown, static type => Assert.Equal(typeof(TaskCanceledException), type));
    }

    [Fact]
    public void A_timer_has_a_key_and_shows_itself()
    {
        var timer = new ProsodyTimer("key", DateTimeOffset.UnixEpoch);
        Assert.Equal(("key", DateTimeOffset.UnixEpoch), (timer.Key, timer.Time));
        Assert.Throws<ArgumentNullException>(static () => new ProsodyTimer(null!, default));
    }

    private sealed class Numbers : Recorder<int>
    {
        [PermanentError(typeof(JsonException))]
        public override Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) =>
            base.OnMessageAsync(prosodyContext, message, cancellationToken);
    }

    private sealed class Both(Func<string, Task> act, Action fired) : IProsodyHandler<Payload>
    {
        private readonly SemaphoreSlim _messages = new(0);

        public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            await prosodyContext.ScheduleAsync(DateTimeOffset.FromUnixTimeSeconds(message.Payload!.Number));
            await act(message.Key);
            _messages.Release();
        }

        public async Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
        {
            await act(timer.Key);
            fired();
        }

        internal async Task Messages(int count)
        {
            for (int n = 0; n < count; n++)
            {
                await _messages.WaitAsync();
            }
        }
    }
}
