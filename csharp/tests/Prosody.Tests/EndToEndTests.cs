// One event from a send to a handler and back, on the mock cluster.

using System.Collections.Concurrent;
using System.Text.Json;
using System.Text.Json.Serialization;

namespace Prosody.Tests;

public sealed partial class EndToEndTests
{
    [Fact]
    public async Task A_message_arrives_as_it_was_sent()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        DateTimeOffset before = DateTimeOffset.UtcNow.AddSeconds(-1);
        await client.SubscribeAsync(handler).WithPatience();
        Assert.Equal(ConsumerState.Running, await client.GetConsumerStateAsync());
        await client.SendAsync("topic", "key", new { Text = "żółć", Number = 7 }).WithPatience();
        Message<Payload> message = await handler.NextAsync();
        Assert.Equal(("topic", "key", "żółć", 7), (message.Topic, message.Key, message.Payload!.Text, message.Payload.Number));
        Assert.Equal(0L, message.Offset);
        Assert.InRange(message.Partition, 0, 3);
        Assert.Equal(TimeSpan.Zero, message.Timestamp.Offset);
        Assert.InRange(message.Timestamp, before, DateTimeOffset.UtcNow.AddSeconds(1));
        await client.UnsubscribeAsync().WithPatience();
        Assert.Equal(ConsumerState.Configured, await client.GetConsumerStateAsync());
    }

    [Fact]
    public async Task Events_of_a_key_are_in_order_and_never_overlap_and_keys_run_side_by_side()
    {
        const int Keys = 8;
        const int Each = 200;
        var running = new int[Keys];
        var seen = new ConcurrentDictionary<int, List<int>>();
        int most = 0;
        int now = 0;
        var handler = new Recorder<Payload>(async (_, message, _) =>
        {
            int key = int.Parse(message.Key, System.Globalization.CultureInfo.InvariantCulture);
            Assert.Equal(1, Interlocked.Increment(ref running[key]));
            int sideBySide = Interlocked.Increment(ref now);
            InterlockedMax(ref most, sideBySide);
            if (message.Payload!.Number % 3 == 0)
            {
                await Task.Yield();
            }

            seen.GetOrAdd(key, static _ => []).Add(message.Payload.Number);
            Interlocked.Decrement(ref now);
            Interlocked.Decrement(ref running[key]);
        });
        await using ProsodyClient client = Mock.Builder().Build();
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, Keys * Each).Select(n => client.SendAsync("topic", $"{n % Keys}", new Payload(Number: n)))).WithPatience();
        await handler.TakeAsync(Keys * Each);
        Assert.All(seen, key => Assert.Equal(Enumerable.Range(0, Each).Select(n => (n * Keys) + key.Key), key.Value));
        Assert.True(most > 1, "keys run side by side");
    }

    [Fact]
    public async Task A_transient_error_is_retried_and_a_permanent_one_is_not()
    {
        var attempts = new ConcurrentDictionary<string, int>();
        var handler = new Recorder<Payload>((_, message, _) =>
        {
            int attempt = attempts.AddOrUpdate(message.Key, 1, static (_, n) => n + 1);
            return message.Key switch
            {
                "transient" when attempt < 3 => throw new InvalidOperationException("not yet"),
                "async" when attempt < 3 => Task.FromException(new InvalidOperationException("not yet")),
                "cancelled" when attempt < 3 => Task.FromCanceled(new CancellationToken(canceled: true)),
                "permanent" => throw new PermanentException("never"),
                _ => Task.CompletedTask,
            };
        });
        await using ProsodyClient client = Mock.Builder().Configure(static options => options.MaxRetryDelay = TimeSpan.FromMilliseconds(20)).Build();
        await client.SubscribeAsync(handler).WithPatience();
        foreach (string key in (string[])["permanent", "transient", "async", "cancelled"])
        {
            await client.SendAsync("topic", key, new Payload()).WithPatience();
        }

        string[] done = [.. (await handler.TakeAsync(3)).Select(static message => message.Key).Order(StringComparer.Ordinal)];
        Assert.Equal(["async", "cancelled", "transient"], done);
        Assert.Equal(3, attempts["transient"]);
        Assert.Equal(3, attempts["async"]);
        Assert.Equal(3, attempts["cancelled"]);
        Assert.Equal(1, attempts["permanent"]);
    }

    // H4: a handler that returns no task, one that throws before its first await, one whose exception has no text.
    [Fact]
    public async Task Odd_handlers_fail_their_event_and_nothing_else()
    {
        int attempts = 0;
        await using ProsodyClient client = Mock.Builder().Configure(static options => options.MaxRetryDelay = TimeSpan.FromMilliseconds(20)).Build();
        var odd = new Odd(() => Interlocked.Increment(ref attempts));
        await client.SubscribeAsync(odd).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await odd.Done.WithPatience();
        Assert.Equal(4, attempts);
    }

    [Fact]
    public async Task A_payload_of_another_shape_is_judged_like_the_handler_s_error()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new OnlyNumbers();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendRawAsync("topic", "key", "\"no number\""u8.ToArray()).WithPatience();
        await client.SendRawAsync("topic", "key", "5"u8.ToArray()).WithPatience();
        Assert.Equal(5, (await handler.NextAsync()).Payload);
    }

    [Fact]
    public async Task Bytes_that_are_not_JSON_never_block_their_key()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<JsonElement>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendRawAsync("topic", "key", "{ not json"u8.ToArray()).WithPatience();
        await client.SendRawAsync("topic", "key", "{\"fine\":true}"u8.ToArray()).WithPatience();
        Assert.True((await handler.NextAsync()).Payload.GetProperty("fine").GetBoolean());
    }

    [Fact]
    public async Task JSON_null_is_a_null_payload()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync<Payload?>("topic", "key", null).WithPatience();
        Assert.Null((await handler.NextAsync()).Payload);
    }

    [Fact]
    public async Task Trim_clean_overloads_use_their_own_names()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<JsonElement>();
        await client.SubscribeAsync(handler, new NothingIsPermanent()).WithPatience();
        await client.SendAsync("topic", "key", new Payload("t"), Pascal.Default.Payload).WithPatience();
        Assert.Equal("t", (await handler.NextAsync()).Payload.GetProperty("Text").GetString());
    }

    [Fact]
    public async Task Equal_ids_of_a_key_are_handled_once()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key1", new { Id = "msg-123", Text = "Hello!" }).WithPatience();
        await client.SendAsync("topic", "key1", new { Id = "msg-123", Text = "Hello again!" }).WithPatience();
        await client.SendAsync("topic", "key1", new { Id = "msg-124", Text = "next" }).WithPatience();
        Assert.Equal(["Hello!", "next"], (await handler.TakeAsync(2)).Select(static message => message.Payload!.Text));
    }

    [Fact]
    public async Task Only_allowed_event_types_arrive_and_messages_without_one()
    {
        await using ProsodyClient client = Mock.Builder().WithAllowedEvents("user.", "account.").Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        foreach (string? type in (string?[])["admin.user.created", "user.created", "my.account.deleted", "account.deleted", "notification", null])
        {
            await client.SendAsync("topic", "key", new { Type = type }).WithPatience();
        }

        Assert.Equal(["user.created", "account.deleted", null], (await handler.TakeAsync(3)).Select(static message => message.Payload!.Type));
    }

    [Fact]
    public async Task A_client_skips_what_its_own_group_sent()
    {
        string cluster = Mock.Cluster();
        await using ProsodyClient own = Mock.Builder(cluster).WithSourceSystem("group").Build();
        await using ProsodyClient other = Mock.Builder(cluster).WithSourceSystem("other").Build();
        var handler = new Recorder<Payload>();
        await own.SubscribeAsync(handler).WithPatience();
        await own.SendAsync("topic", "key", new Payload("own")).WithPatience();
        await other.SendAsync("topic", "key", new Payload("other")).WithPatience();
        Assert.Equal("other", (await handler.NextAsync()).Payload!.Text);
    }

    [Fact]
    public async Task A_handler_may_send_with_its_own_client()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>(async (_, message, token) =>
        {
            if (message.Payload!.Number < 3)
            {
                await client.SendAsync("topic", message.Key, message.Payload with { Number = message.Payload.Number + 1 }, token);
            }
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Equal([0, 1, 2, 3], (await handler.TakeAsync(4)).Select(static message => message.Payload!.Number));
    }

    [Fact]
    public async Task Two_clients_of_one_process_share_a_cluster_by_its_name()
    {
        string cluster = Mock.Cluster();
        await using ProsodyClient consumer = Mock.Builder(cluster).Build();
        await using ProsodyClient producer = ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(cluster).WithSourceSystem("p").Build();
        await using ProsodyClient stranger = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await consumer.SubscribeAsync(handler).WithPatience();
        await stranger.SendAsync("topic", "key", new Payload("elsewhere")).WithPatience();
        await producer.SendAsync("topic", "key", new Payload("here")).WithPatience();
        Assert.Equal("here", (await handler.NextAsync()).Payload!.Text);
    }

    [Fact]
    public async Task A_client_subscribes_again_after_it_unsubscribed_and_not_twice()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var first = new Recorder<Payload>();
        await client.SubscribeAsync(first).WithPatience();
        await Assert.ThrowsAsync<InvalidOperationException>(() => client.SubscribeAsync(new Recorder<Payload>()));
        await client.SendAsync("topic", "key", new Payload("1")).WithPatience();
        await first.NextAsync();
        await client.UnsubscribeAsync().WithPatience();
        await client.UnsubscribeAsync().WithPatience();
        var second = new Recorder<Payload>();
        await client.SendAsync("topic", "key", new Payload("2")).WithPatience();
        await client.SubscribeAsync(second).WithPatience();
        // What was handled before is committed.
        Assert.Equal("2", (await second.NextAsync()).Payload!.Text);
    }

    [Fact]
    public async Task Without_topics_subscribing_says_what_is_missing()
    {
        await using ProsodyClient client = ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(Mock.Cluster()).WithGroupId("g").Build();
        InvalidOperationException refused = await Assert.ThrowsAsync<InvalidOperationException>(() => client.SubscribeAsync(new Recorder<Payload>()).WithPatience());
        Assert.Contains("SubscribedTopics", refused.Message, StringComparison.Ordinal);
        Assert.Equal(ConsumerState.Unconfigured, await client.GetConsumerStateAsync());
    }

    [Fact]
    public async Task Admin_creates_and_deletes_topics_of_a_mock_cluster()
    {
        string cluster = Mock.Cluster();
        await using var admin = new AdminClient(cluster);
        await admin.CreateTopicAsync(name: "made", partitionCount: 2, replicationFactor: 1).WithPatience();
        ProsodyException exists = await Assert.ThrowsAsync<ProsodyException>(() => admin.CreateTopicAsync("made", 2, 1).WithPatience());
        Assert.Equal("TOPIC_ALREADY_EXISTS", exists.Code);
        Assert.Equal("made", exists.Topic);
        await admin.DeleteTopicAsync("made").WithPatience();
        ProsodyException gone = await Assert.ThrowsAsync<ProsodyException>(() => admin.DeleteTopicAsync("made").WithPatience());
        Assert.StartsWith("UNKNOWN_TOPIC", gone.Code, StringComparison.Ordinal);
        Assert.Throws<ArgumentOutOfRangeException>(() => { _ = admin.CreateTopicAsync("none", 0, 1); });
        Assert.Throws<ArgumentNullException>(() => { _ = admin.DeleteTopicAsync(null!); });
        admin.Dispose();
        admin.Dispose();
        Assert.Throws<ObjectDisposedException>(() => { _ = admin.DeleteTopicAsync("made"); });
    }

    [Fact]
    public void Admin_needs_a_server()
    {
        Assert.SkipUnless(Environment.GetEnvironmentVariable("PROSODY_BOOTSTRAP_SERVERS") is null && Environment.GetEnvironmentVariable("PROSODY_MOCK") is null, "the variables are set");
        ArgumentException refused = Assert.Throws<ArgumentException>(static () => new AdminClient());
        Assert.Contains("PROSODY_BOOTSTRAP_SERVERS", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_unreachable_cluster_fails_sends_and_subscribing_within_their_bounds()
    {
        await using ProsodyClient client = ProsodyClientBuilder.Create().WithBootstrapServers("127.0.0.1:1").WithGroupId("g").WithSubscribedTopics("t")
            .WithSendTimeout(TimeSpan.FromMilliseconds(300))
            .Configure(static options => { options.SubscribeTimeout = TimeSpan.FromMilliseconds(300); options.ProbePort = 0; }).Build();
        ProsodyException send = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("t", "k", 1).WithPatience());
        Assert.IsType<TimeoutException>(send.InnerException);
        Assert.False(send.MayHaveBeenWritten);
        Assert.True(send.IsTransient);
        Assert.Equal("t", send.Topic);
        Assert.Contains("127.0.0.1:1", send.Message, StringComparison.Ordinal);
        ProsodyException subscribe = await Assert.ThrowsAsync<ProsodyException>(() => client.SubscribeAsync(new Recorder<Payload>()).WithPatience());
        Assert.Contains("127.0.0.1:1", subscribe.Message, StringComparison.Ordinal);
        Assert.Equal(ConsumerState.Configured, await client.GetConsumerStateAsync());
    }

    [Theory]
    [InlineData("")]
    [InlineData("nul\0inside")]
    [InlineData("\U0001F600 żółć")]
    public async Task Keys_of_any_text_arrive_whole(string key)
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", key, new Payload()).WithPatience();
        Assert.Equal(key, (await handler.NextAsync()).Key);
        ArgumentException refused = Assert.Throws<ArgumentException>(() => { _ = client.SendAsync("topic", "\ud800", new Payload()); });
        Assert.Equal("key", refused.ParamName);
    }

    [Fact]
    public async Task A_large_key_and_payload_arrive_whole()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        string key = new('k', 200_000);
        string text = new('t', 500_000);
        await client.SendAsync("topic", key, new Payload(text)).WithPatience();
        Message<Payload> message = await handler.NextAsync();
        Assert.Equal(key, message.Key);
        Assert.Equal(text, message.Payload!.Text);
    }

    private static void InterlockedMax(ref int place, int value)
    {
        int seen = Volatile.Read(ref place);
        while (value > seen)
        {
            int before = Interlocked.CompareExchange(ref place, value, seen);
            if (before == seen)
            {
                return;
            }

            seen = before;
        }
    }

    private sealed class OnlyNumbers : Recorder<int>
    {
        [PermanentError(typeof(JsonException))]
        public override Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) =>
            base.OnMessageAsync(prosodyContext, message, cancellationToken);
    }

    private sealed class NothingIsPermanent : IPermanentErrorClassifier
    {
        public bool IsMessageErrorPermanent(Exception exception) => false;

        public bool IsTimerErrorPermanent(Exception exception) => false;
    }

    private sealed class Odd(Func<int> next) : IProsodyHandler<Payload>
    {
        private readonly TaskCompletionSource _done = new();

        internal Task Done => _done.Task;

        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            switch (next())
            {
                case 1:
                    return null!;
                case 2:
                    throw new InvalidOperationException("before the first await");
                case 3:
                    throw new TextThrows();
                default:
                    _done.TrySetResult();
                    return Task.CompletedTask;
            }
        }
    }

    private sealed class TextThrows : Exception
    {
        public override string ToString() => throw new InvalidOperationException();
    }

    [JsonSerializable(typeof(Payload))]
    private sealed partial class Pascal : JsonSerializerContext;
}
