// What becomes of failing messages in each mode, and the timeout of an attempt, on the mock cluster.

namespace Prosody.Tests;

public sealed class ModeTests
{
    private static ProsodyClientBuilder LowLatency(string cluster) =>
        Mock.Builder(cluster).WithMode(ClientMode.LowLatency).WithFailureTopic("failed-messages").Configure(static options => options.MaxRetryDelay = TimeSpan.FromMilliseconds(20));

    // Another application, which looks at what failed.
    private static ProsodyClientBuilder Undertaker(string cluster) => Mock.Builder(cluster, group: "undertaker", topic: "failed-messages");

    [Fact]
    public async Task Low_latency_retries_a_few_times_and_then_sends_the_message_to_the_failure_topic()
    {
        string cluster = Mock.Cluster();
        int transient = 0;
        int permanent = 0;
        var handler = new Recorder<Payload>((_, message, _) => message.Key switch
        {
            "transient" => Throw(new InvalidOperationException("not now"), ref transient),
            "permanent" => Throw(new PermanentException("never"), ref permanent),
            _ => Task.CompletedTask,
        });
        await using ProsodyClient client = LowLatency(cluster).WithMaxRetries(2).Build();
        await using ProsodyClient undertaker = Undertaker(cluster).Build();
        var dead = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await undertaker.SubscribeAsync(dead).WithPatience();
        foreach (string key in (string[])["transient", "permanent", "fine"])
        {
            await client.SendAsync("topic", key, new Payload(key, 7)).WithPatience();
        }

        Assert.Equal("fine", (await handler.NextAsync()).Key);
        List<Message<Payload>> buried = await dead.TakeAsync(2);
        Assert.Equal([("permanent", "permanent", 7), ("transient", "transient", 7)], buried.Select(static message => (message.Key, message.Payload!.Text!, message.Payload.Number)).Order());
        Assert.Equal((3, 1), (transient, permanent));

        // They are done: nothing comes again.
        await client.UnsubscribeAsync().WithPatience();
        var again = new Recorder<Payload>();
        await client.SubscribeAsync(again).WithPatience();
        await client.SendAsync("topic", "last", new Payload()).WithPatience();
        Assert.Equal("last", (await again.NextAsync()).Key);
    }

    [Fact]
    public async Task Best_effort_goes_on_after_one_attempt()
    {
        int attempts = 0;
        var handler = new Recorder<Payload>((_, message, _) => message.Payload!.Number == 0 ? Throw(new InvalidOperationException("not now"), ref attempts) : Task.CompletedTask);
        await using ProsodyClient client = Mock.Builder().WithMode(ClientMode.BestEffort).Build();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload(Number: 0)).WithPatience();
        await client.SendAsync("topic", "key", new Payload(Number: 1)).WithPatience();
        Assert.Equal(1, (await handler.NextAsync()).Payload!.Number);
        Assert.Equal(1, attempts);
    }

    [Fact]
    public async Task A_timeout_cancels_every_attempt_anew_until_the_message_is_given_to_the_failure_topic()
    {
        string cluster = Mock.Cluster();
        var seen = new List<(bool Before, bool After)>();
        var handler = new Recorder<Payload>(async (context, _, token) =>
        {
            bool before = context.ShouldCancel || token.IsCancellationRequested;
            await context.OnCancelAsync();
            await Assert.ThrowsAsync<TaskCanceledException>(() => Task.Delay(Timeout.Infinite, token));
            seen.Add((before, context.ShouldCancel));
            token.ThrowIfCancellationRequested();
        });
        await using ProsodyClient client = LowLatency(cluster).WithMaxRetries(1).Configure(static options => options.Timeout = TimeSpan.FromMilliseconds(50)).Build();
        await using ProsodyClient undertaker = Undertaker(cluster).Build();
        var dead = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await undertaker.SubscribeAsync(dead).WithPatience();
        await client.SendAsync("topic", "key", new Payload("slow")).WithPatience();
        Assert.Equal("slow", (await dead.NextAsync()).Payload!.Text);
        Assert.Equal([(false, true), (false, true)], seen);
    }

    // Its own result decides, however late it comes.
    [Theory]
    [InlineData(ClientMode.Pipeline)]
    [InlineData(ClientMode.LowLatency)]
    [InlineData(ClientMode.BestEffort)]
    public async Task A_handler_that_ignores_its_timeout_and_ends_well_has_succeeded(ClientMode mode)
    {
        int attempts = 0;
        var handler = new Recorder<Payload>(async (context, _, _) =>
        {
            Interlocked.Increment(ref attempts);
            await context.OnCancelAsync();
            await Task.Delay(50, CancellationToken.None);
        });
        await using ProsodyClient client = Mock.Builder().WithMode(mode).WithFailureTopic("failed-messages").Configure(static options => options.Timeout = TimeSpan.FromMilliseconds(20)).Build();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload(Number: 1)).WithPatience();
        Assert.Equal(1, (await handler.NextAsync()).Payload!.Number);
        await client.UnsubscribeAsync().WithPatience();
        Assert.Equal(1, attempts);
    }

    [Fact]
    public void Low_latency_needs_a_failure_topic_that_is_none_of_the_subscribed_ones()
    {
        InvalidOperationException missing = Assert.Throws<InvalidOperationException>(static () => Mock.Builder().WithMode(ClientMode.LowLatency).Build());
        Assert.Contains("FailureTopic (PROSODY_FAILURE_TOPIC)", missing.Message, StringComparison.Ordinal);
        InvalidOperationException loop = Assert.Throws<InvalidOperationException>(static () => Mock.Builder(topic: "same").WithFailureTopic("same").Build());
        Assert.Contains("FailureTopic (PROSODY_FAILURE_TOPIC)", loop.Message, StringComparison.Ordinal);
    }

    private static Task Throw(Exception error, ref int attempts)
    {
        Interlocked.Increment(ref attempts);
        throw error;
    }
}
