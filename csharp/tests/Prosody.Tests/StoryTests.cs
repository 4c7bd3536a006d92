// What went wrong in neighbouring projects and is not told elsewhere. Elsewhere: Temporal #248 #279 #500 #503 #540 #547 #577
// and YAHA #10 #46 #153 in LifetimeTests; Temporal #856 in PanicTests; YAHA #134 #135 #159 in BuilderTests; confluent #33 in
// BoundaryTests; confluent #201 in LeakTests; confluent #913 #2178 in LoggingTests; YAHA #112 in ProcessTests.

using System.Collections.Concurrent;

namespace Prosody.Tests;

public sealed class StoryTests
{
    // YAHA #94 and #95: a full buffer blocks a native thread, and nothing moves any more.
    [Fact]
    public async Task A_consumer_slower_than_its_producer_holds_up_nobody()
    {
        await using ProsodyClient client = Mock.Builder().WithMaxConcurrency(1).Configure(static options => options.MaxUncommitted = 2).Build();
        var handler = new Recorder<Payload>(static async (_, _, token) => await Task.Delay(1, token));
        await client.SubscribeAsync(handler).WithPatience();
        Task[] sends = [.. Enumerable.Range(0, 300).Select(n => client.SendAsync("topic", $"{n % 7}", new Payload(Number: n)))];
        await Task.WhenAll(sends).WithPatience();
        Assert.Equal(Enumerable.Range(0, 300), (await handler.TakeAsync(300)).Select(static message => message.Payload!.Number).Order());
    }

    // Ours: a host that stopped while its cluster was away had unsubscribed, and became a member all the same once the brokers
    // were back: it held partitions, ran nothing, and could be neither unsubscribed nor subscribed again.
    [Fact]
    public async Task Unsubscribing_or_disposing_ends_a_subscribe_that_is_under_way()
    {
        // Nobody listens there, so subscribing goes on until its timeout.
        ProsodyClient client = ProsodyClientBuilder.Create().WithBootstrapServers("127.0.0.1:1").WithGroupId("group").WithSubscribedTopics("topic")
            .Configure(static options => options.SubscribeTimeout = TimeSpan.FromMinutes(10)).Build();
        Task Subscribe() => client.SubscribeAsync(new Recorder<Payload>(static (_, _, _) => Task.CompletedTask));
        Task first = Subscribe();
        await client.UnsubscribeAsync().WithPatience();
        await Assert.ThrowsAsync<InvalidOperationException>(() => first.WithPatience());
        Task second = Subscribe();
        await client.DisposeAsync().AsTask().WithPatience();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => second.WithPatience());
    }

    // Ours: one pump found the queue closed and ended all that was pending, while the other still had the last acknowledgements
    // in its hands. Of two hundred such disposals about eight told of sends that had arrived that the client was disposed.
    [Fact]
    public async Task A_send_that_arrived_before_the_end_is_told_so()
    {
        for (int round = 0; round < 200; round++)
        {
            ProsodyClient client = Mock.Builder().Build();
            Task[] sends = [.. Enumerable.Range(0, 400).Select(n => client.SendRawAsync("topic", $"{n % 10}", "1"u8.ToArray()))];
            await client.DisposeAsync().AsTask().WithPatience();
            await Task.WhenAll(sends).WithPatience();
        }
    }

    // YAHA PR #171: a callback after the end.
    [Fact]
    public async Task After_its_disposal_a_client_starts_no_handler()
    {
        bool disposed = false;
        int late = 0;
        ProsodyClient client = Mock.Builder().Configure(static options => options.ShutdownTimeout = TimeSpan.FromMilliseconds(300)).Build();
        var handler = new Recorder<Payload>((_, _, _) =>
        {
            if (Volatile.Read(ref disposed))
            {
                Interlocked.Increment(ref late);
            }

            return Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        _ = Enumerable.Range(0, 2_000).Select(n => client.SendAsync("topic", $"{n}", new Payload(Number: n))).ToArray();
        await handler.NextAsync();
        await client.DisposeAsync().AsTask().WithPatience();
        Volatile.Write(ref disposed, true);
        await Task.Delay(100);
        Assert.Equal(0, late);
    }

    // dotnet/runtime #33005 and #46238: native threads that enter managed code.
    [Fact]
    public async Task Handlers_run_on_pool_and_pump_threads_alone()
    {
        var threads = new ConcurrentDictionary<string, int>();
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>((_, _, _) =>
        {
            Thread current = Thread.CurrentThread;
            threads.AddOrUpdate(current.IsThreadPoolThread ? "pool" : current.Name ?? "?", 1, static (_, n) => n + 1);
            return Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, 300).Select(n => client.SendAsync("topic", $"{n}", new Payload()))).WithPatience();
        await handler.TakeAsync(300);
        Assert.All(threads.Keys, static name => Assert.True(name == "pool" || name.StartsWith("Prosody pump ", StringComparison.Ordinal), name));
    }

    // KafkaFlow #602: a produce task that never completes. An acknowledgement, an error, a timeout, a cancellation and a
    // disposal are each an end; the others are in EndToEndTests and LifetimeTests.
    [Fact]
    public async Task A_send_to_a_topic_that_cannot_exist_ends_with_an_error()
    {
        await using ProsodyClient client = Mock.Builder().WithSendTimeout(TimeSpan.FromSeconds(2)).Build();
        ArgumentException failed = await Assert.ThrowsAsync<ArgumentException>(() => client.SendAsync("no spaces allowed", "key", new Payload()).WithPatience());
        Assert.Contains("no spaces allowed", failed.Message, StringComparison.Ordinal);
    }

    // Confluent #2496 and its like: what is sent and received must not make garbage of the binding's own. 1 M of each with
    // PROSODY_SOAK_MESSAGES=1000000.
    [Fact]
    public async Task Many_sends_and_receives_leave_no_managed_memory_behind()
    {
        int count = int.Parse(Environment.GetEnvironmentVariable("PROSODY_SOAK_MESSAGES") ?? "20000", System.Globalization.CultureInfo.InvariantCulture);
        int handled = 0;
        await using ProsodyClient client = Mock.Builder().Build();
        await client.SubscribeAsync(new Counting(() => Interlocked.Increment(ref handled))).WithPatience();
        long after = 0;
        for (int round = 0; round < 4; round++)
        {
            for (int sent = 0; sent < count / 4; sent += 500)
            {
                await Task.WhenAll(Enumerable.Range(sent, 500).Select(n => client.SendAsync("topic", $"{n % 97}", new Payload(Number: n)))).WithPatience();
            }

            int expected = (round + 1) * (count / 4 / 500) * 500;
            await Mock.Until(() => Volatile.Read(ref handled) >= expected, "all are handled");
            long now = GC.GetTotalMemory(forceFullCollection: true);
            after = round == 0 ? now : after;
            Assert.True(now < after + (8 << 20), $"{after} bytes after the first round, {now} after round {round + 1}");
        }

        await Mock.Until(() => client.Native.PendingOperations == 0, "all operations ended");
    }

    private sealed class Counting(Action act) : IProsodyHandler<Payload>
    {
        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            act();
            return Task.CompletedTask;
        }
    }
}
