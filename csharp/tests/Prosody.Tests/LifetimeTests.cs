// Cancelling, stopping and disposing, at every point.

using System.Runtime.CompilerServices;
using Prosody.Interop;

namespace Prosody.Tests;

public sealed class LifetimeTests
{
    private static ProsodyClientBuilder Quick(string? cluster = null) => Mock.Builder(cluster).Configure(static options =>
    {
        options.ShutdownTimeout = TimeSpan.FromMilliseconds(500);
        options.MaxRetryDelay = TimeSpan.FromMilliseconds(20);
    });

    [Fact]
    public async Task A_client_that_did_nothing_is_disposed_in_any_way_and_twice()
    {
        await Quick().Build().DisposeAsync();
        ProsodyClient client = Quick().Build();
        client.Dispose();
        client.Dispose();
        await client.DisposeAsync();
        Assert.Throws<ObjectDisposedException>(() => { _ = client.SendAsync("t", "k", 1); });
        Assert.Throws<ObjectDisposedException>(() => client.SourceSystem);
        Assert.Throws<ObjectDisposedException>(() => { _ = client.GetConsumerStateAsync(); });
        await Assert.ThrowsAsync<ObjectDisposedException>(client.UnsubscribeAsync);
        Assert.Throws<ObjectDisposedException>(() => { _ = client.SubscribeAsync(new Recorder<int>()); });
    }

    [Fact]
    public async Task Unsubscribe_and_dispose_back_to_back()
    {
        ProsodyClient client = Quick().Build();
        await client.SubscribeAsync(new Recorder<Payload>()).WithPatience();
        await client.UnsubscribeAsync().WithPatience();
        client.Dispose();
    }

    [Fact]
    public async Task Dispose_while_subscribing()
    {
        for (int i = 0; i < 10; i++)
        {
            ProsodyClient client = Quick().Build();
            Task subscribing = client.SubscribeAsync(new Recorder<Payload>());
            await client.DisposeAsync().AsTask().WithPatience();
            await subscribing.ContinueWith(static _ => { }, TaskScheduler.Default).WithPatience();
        }
    }

    [Fact]
    public async Task Dispose_while_sending_ends_every_send()
    {
        ProsodyClient client = Quick().Build();
        Task[] sends = [.. Enumerable.Range(0, 500).Select(n => client.SendAsync("topic", "key", new Payload(Number: n)))];
        await client.DisposeAsync().AsTask().WithPatience();
        await Task.WhenAll(sends).ContinueWith(static _ => { }, TaskScheduler.Default).WithPatience();
        Assert.All(sends, static send => Assert.True(send.IsCompleted));
    }

    [Fact]
    public async Task Dispose_from_eight_threads()
    {
        ProsodyClient client = Quick().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        await Task.WhenAll(Enumerable.Range(0, 8).Select(n => Task.Run(async () =>
        {
            if (n % 2 == 0)
            {
                client.Dispose();
            }
            else
            {
                await client.DisposeAsync();
            }
        }))).WithPatience();
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Dispose_inside_a_handler_is_bounded(bool asynchronous)
    {
        ProsodyClient client = Quick().Build();
        var took = new TaskCompletionSource<long>(TaskCreationOptions.RunContinuationsAsynchronously);
        var handler = new Recorder<Payload>(async (_, _, _) =>
        {
            long start = Environment.TickCount64;
            if (asynchronous)
            {
                await client.DisposeAsync();
            }
            else
            {
                client.Dispose();
            }

            took.TrySetResult(Environment.TickCount64 - start);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.InRange(await took.Task.WithPatience(), 0, 500 + 1_000 + 1_000);
    }

    [Fact]
    public async Task A_handler_that_ignores_everything_is_abandoned_within_the_budget()
    {
        ProsodyClient client = Quick().Build();
        var entered = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var leave = new TaskCompletionSource();
        ProsodyContext? captured = null;
        var handler = new Recorder<Payload>(async (context, _, _) =>
        {
            captured = context;
            entered.TrySetResult();
            await leave.Task;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await entered.Task.WithPatience();
        long start = Environment.TickCount64;
        await client.DisposeAsync().AsTask().WithPatience();
        Assert.InRange(Environment.TickCount64 - start, 300, 3_000);
        // Its token was cancelled; its calls fail; its end is harmless and frees its bytes.
        Assert.True(captured!.ShouldCancel);
        await Assert.ThrowsAnyAsync<Exception>(() => captured.ScheduleAsync(default));
        leave.SetResult();
        await handler.NextAsync();
    }

    [Fact]
    public async Task Unsubscribing_cancels_late_and_waits_for_the_handler()
    {
        await using ProsodyClient client = Quick().Build();
        var entered = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        bool signalled = false;
        int attempts = 0;
        var handler = new Recorder<Payload>(async (context, _, token) =>
        {
            if (Interlocked.Increment(ref attempts) > 1)
            {
                return;
            }

            Task onCancel = context.OnCancelAsync();
            Assert.False(context.ShouldCancel);
            entered.TrySetResult();
            await onCancel;
            signalled = context.ShouldCancel && token.CanBeCanceled;
            await Task.Delay(Timeout.Infinite, token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await entered.Task.WithPatience();
        await client.UnsubscribeAsync().WithPatience();
        Assert.True(signalled);
        // It threw, so the message is not done and comes again.
        await client.SubscribeAsync(handler).WithPatience();
        await handler.NextAsync();
        Assert.Equal(2, attempts);
    }

    [Fact]
    public async Task A_timeout_cancels_the_attempt_and_the_next_one_has_a_fresh_token()
    {
        await using ProsodyClient client = Quick().Configure(static options => options.Timeout = TimeSpan.FromMilliseconds(50)).Build();
        int attempts = 0;
        CancellationToken first = default;
        var handler = new Recorder<Payload>(async (_, _, token) =>
        {
            if (Interlocked.Increment(ref attempts) == 1)
            {
                first = token;
                await Task.Delay(Timeout.Infinite, token);
            }

            Assert.False(token.IsCancellationRequested);
            Assert.NotEqual(first, token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        Assert.Equal(2, attempts);
        Assert.True(first.IsCancellationRequested);
    }

    [Fact]
    public async Task A_context_kept_beyond_its_handler_is_refused()
    {
        await using ProsodyClient client = Quick().Build();
        var kept = new TaskCompletionSource<(ProsodyContext Context, CancellationToken Token, Task OnCancel)>();
        var handler = new Recorder<Payload>((context, _, token) =>
        {
            kept.TrySetResult((context, token, context.OnCancelAsync()));
            return Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        (ProsodyContext context, CancellationToken token, Task onCancel) = await kept.Task.WithPatience();
        await handler.NextAsync();
        // The handler ended first, so cancellation was never signalled.
        await Assert.ThrowsAsync<TaskCanceledException>(() => onCancel.WithPatience());
        Assert.Throws<ObjectDisposedException>(() => context.ShouldCancel);
        Assert.Throws<ObjectDisposedException>(() => { _ = context.OnCancelAsync(); });
        Assert.Throws<ObjectDisposedException>(() => { _ = context.ScheduleAsync(default); });
        await Assert.ThrowsAsync<ObjectDisposedException>(context.ScheduledAsync);
        // No later event cancels it.
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        Assert.False(token.IsCancellationRequested);
        // The native side refuses its token by itself.
        Assert.Throws<ObjectDisposedException>(() => client.Native.TimerAsync(context.Token, NativeMethods.PR_TIMER_CLEAR, 0, default).GetAwaiter().GetResult());
    }

    [Fact]
    public async Task Cancelled_sends_end_and_leave_no_registration()
    {
        await using ProsodyClient client = Quick().Build();
        using var cancelled = new CancellationTokenSource();
        await cancelled.CancelAsync();
        Assert.Throws<OperationCanceledException>(() => { _ = client.SendAsync("topic", "key", new Payload(), cancelled.Token); });

        using var living = new CancellationTokenSource();
        for (int i = 0; i < 2_000; i++)
        {
            await client.SendAsync("topic", "key", new Payload(Number: i), living.Token).WithPatience();
        }

        Assert.Equal(0, Registrations(living));

        // Before, while and after: each send ends once, whatever wins.
        for (int i = 0; i < 300; i++)
        {
            using var racing = new CancellationTokenSource();
            Task send = client.SendAsync("topic", "key", new Payload(Number: i), racing.Token);
            if (i % 3 == 0)
            {
                await Task.Yield();
            }

            await racing.CancelAsync();
            await send.ContinueWith(static _ => { }, TaskScheduler.Default).WithPatience();
            Assert.True(send.IsCompletedSuccessfully || send.IsCanceled);
        }

        await Mock.Until(() => client.Native.PendingOperations == 0, "all operations ended");
    }

    // YAHA #153: disposing inside a cancellation callback deadlocks on the registration.
    [Fact]
    public async Task A_cancellation_callback_may_dispose_the_client()
    {
        ProsodyClient client = Quick().Build();
        using var source = new CancellationTokenSource();
        using CancellationTokenRegistration registration = source.Token.Register(client.Dispose);
        Task send = client.SendAsync("topic", "key", new Payload(), source.Token);
        await Task.Run(source.Cancel, CancellationToken.None).WithPatience();
        await send.ContinueWith(static _ => { }, TaskScheduler.Default).WithPatience();
        await client.DisposeAsync();
    }

    // YAHA #46: a buffer that is reused corrupts what was sent.
    [Fact]
    public async Task A_buffer_may_be_changed_as_soon_as_the_send_returns_its_task()
    {
        await using ProsodyClient client = Quick().Build();
        var handler = new Recorder<int>();
        await client.SubscribeAsync(handler).WithPatience();
        byte[] buffer = new byte[4];
        Task[] sends = new Task[500];
        for (int i = 0; i < sends.Length; i++)
        {
            System.Text.Encoding.UTF8.GetBytes($"{1000 + i}", buffer);
            sends[i] = client.SendRawAsync("topic", "key", buffer);
            Array.Fill(buffer, (byte)'9');
        }

        await Task.WhenAll(sends).WithPatience();
        Assert.Equal(Enumerable.Range(1000, 500), (await handler.TakeAsync(500)).Select(static message => message.Payload));
    }

    // Temporal #248 and #279: continuations that run on the pump thread stop it.
    [Fact]
    public async Task Continuations_never_run_on_a_pump_thread()
    {
        await using ProsodyClient client = Quick().Build();
        for (int i = 0; i < 100; i++)
        {
            await client.SendAsync("topic", "key", new Payload());
            Assert.DoesNotContain("Prosody", Thread.CurrentThread.Name ?? string.Empty, StringComparison.Ordinal);
        }
    }

    // H5: what one handler leaves in its thread's context must not reach the next.
    [Fact]
    public async Task Nothing_leaks_from_one_event_to_the_next()
    {
        var local = new AsyncLocal<string?>();
        local.Value = "of the subscriber";
        var leaks = new List<string>();
        await using ProsodyClient client = Quick().Build();
        var handler = new Recorder<Payload>((_, message, _) =>
        {
            lock (leaks)
            {
                if (local.Value is { } value)
                {
                    leaks.Add(value);
                }

                if (SynchronizationContext.Current is not null)
                {
                    leaks.Add("synchronization context");
                }

                if (Thread.CurrentThread.CurrentCulture.Name == "tr-TR")
                {
                    leaks.Add("culture");
                }

                if (System.Diagnostics.Activity.Current is not null)
                {
                    leaks.Add("activity");
                }
            }

            local.Value = message.Key;
            Thread.CurrentThread.CurrentCulture = new System.Globalization.CultureInfo("tr-TR");
            SynchronizationContext.SetSynchronizationContext(new SynchronizationContext());
            new System.Diagnostics.Activity("left running").Start();
            return Task.CompletedTask;
        });
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, 300).Select(n => client.SendAsync("topic", $"{n}", new Payload()))).WithPatience();
        await handler.TakeAsync(300);
        Assert.Empty(leaks);
    }

    [Fact]
    public async Task A_client_nobody_refers_to_stays_while_it_is_subscribed_and_goes_otherwise()
    {
        string cluster = Mock.Cluster();
        var handler = new Recorder<Payload>();
        (WeakReference running, WeakReference idle) = await Forget(cluster, handler);
        await Mock.Until(
            () =>
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
                return !idle.IsAlive;
            },
            "the idle client is collected although it has sent");
        await using (ProsodyClient producer = Mock.Builder(cluster).Build())
        {
            await producer.SendAsync("topic", "key", new Payload("still")).WithPatience();
            Assert.Equal("still", (await handler.NextAsync()).Payload!.Text);
        }

        await ((ProsodyClient)running.Target!).DisposeAsync();

        [MethodImpl(MethodImplOptions.NoInlining)]
        static async Task<(WeakReference Running, WeakReference Idle)> Forget(string cluster, Recorder<Payload> handler)
        {
            ProsodyClient running = Quick(cluster).Build();
            await running.SubscribeAsync(handler).WithPatience();
            ProsodyClient idle = Quick(cluster).Build();
            await idle.SendAsync("other", "key", new Payload()).WithPatience();
            return (new(running), new(idle));
        }
    }

    /// <summary>Callbacks registered on a source, counted by what a cancellation would run.</summary>
    private static int Registrations(CancellationTokenSource source)
    {
        object? registrations = typeof(CancellationTokenSource)
            .GetField("_registrations", System.Reflection.BindingFlags.Instance | System.Reflection.BindingFlags.NonPublic)!.GetValue(source);
        object? node = registrations?.GetType().GetField("Callbacks")!.GetValue(registrations);
        int count = 0;
        for (; node is not null; node = node.GetType().GetField("Next")!.GetValue(node))
        {
            count++;
        }

        return count;
    }
}
