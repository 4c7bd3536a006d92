// Handlers that do what nobody should: the process lives, the others go on, and stopping keeps its budget. Those that
// block threads for ever need a process of their own (ProcessTests).

using System.Collections.Concurrent;

namespace Prosody.Tests;

public sealed class HostileTests : IDisposable
{
    private const int Hostile = 100;
    private const int Others = 500;
    private static readonly TimeSpan Shutdown = TimeSpan.FromMilliseconds(500);

    // For ever means until the end of the test: an abandoned handler keeps its event until it returns.
    private readonly TaskCompletionSource _end = new(TaskCreationOptions.RunContinuationsAsynchronously);

    public static TheoryData<string> Deeds() =>
    [
        "throws before its first await", "returns no task", "returns a cancelled task", "waits for ever", "disposes the client of another", "throws in a callback of its token",
        "cancels a storm", "leaves its thread's context in disorder", "throws an exception without a text",
    ];

    public void Dispose() => _end.TrySetResult();

    [Theory]
    [MemberData(nameof(Deeds))]
    public async Task A_hundred_hostile_handlers_hold_nobody_up(string deed)
    {
        ProsodyClient client = Client();
        var acts = new ConcurrentDictionary<string, int>();
        var handler = new Handler((context, message, token) =>
        {
            if (!message.Key.StartsWith("hostile", StringComparison.Ordinal))
            {
                return Task.CompletedTask;
            }

            acts.AddOrUpdate(message.Key, 1, static (_, n) => n + 1);
            return Do(deed, context, token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, Hostile).Select(n => client.SendAsync("topic", $"hostile {n}", new Payload()))).WithPatience();
        await Mock.Until(() => acts.Count == Hostile, "every hostile handler has run");
        await Task.WhenAll(Enumerable.Range(0, Others).Select(n => client.SendAsync("topic", $"other {n}", new Payload()))).WithPatience();
        await Mock.Until(() => handler.Handled.Keys.Count(static key => key.StartsWith("other", StringComparison.Ordinal)) == Others, "the others are handled");
        long start = Environment.TickCount64;
        await client.DisposeAsync().AsTask().WithPatience();
        Assert.InRange(Environment.TickCount64 - start, 0, (long)Shutdown.TotalMilliseconds + 1_000 + 1_000);
    }

    // Each handler disposes the client it is called by, all at once.
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Every_handler_may_dispose_its_own_client(bool asynchronous)
    {
        string cluster = Mock.Cluster();
        ProsodyClient client = Client(cluster);
        var longest = new ConcurrentBag<long>();
        var handler = new Handler(async (_, _, _) =>
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

            longest.Add(Environment.TickCount64 - start);
        });
        await using ProsodyClient producer = Mock.Builder(cluster).Build();
        await Task.WhenAll(Enumerable.Range(0, Hostile).Select(n => producer.SendAsync("topic", $"{n}", new Payload()))).WithPatience();
        await client.SubscribeAsync(handler).WithPatience();
        await Mock.Until(() => !longest.IsEmpty, "a handler has disposed its client");
        await client.DisposeAsync().AsTask().WithPatience();
        await Mock.Until(() => longest.Count == handler.Started, "every disposal has ended");
        Assert.InRange(longest.Max(), 0, (long)Shutdown.TotalMilliseconds + 1_000 + 1_000);
        // What they gave up is there for others.
        var next = new Handler(static (_, _, _) => Task.CompletedTask);
        await using ProsodyClient other = Client(cluster);
        await other.SubscribeAsync(next).WithPatience();
        await Mock.Until(() => handler.Handled.Keys.Concat(next.Handled.Keys).Distinct().Count() == Hostile, "every message is handled by somebody");
    }

    // Every attempt is cancelled by its timeout while its handler cancels tokens of its own, with callbacks that throw and that block.
    [Fact]
    public async Task A_storm_of_timeouts_ends_every_attempt_and_the_last_ones_succeed()
    {
        await using ProsodyClient client = Client(configure: static options => options.Timeout = TimeSpan.FromMilliseconds(20));
        var attempts = new ConcurrentDictionary<string, int>();
        var handler = new Handler(async (_, message, token) =>
        {
            if (attempts.AddOrUpdate(message.Key, 1, static (_, n) => n + 1) > 3)
            {
                return;
            }

            token.Register(static () => throw new InvalidOperationException("a callback"));
            token.Register(static () => Thread.Sleep(1));
            using var own = CancellationTokenSource.CreateLinkedTokenSource(token);
            await Task.Delay(Timeout.Infinite, own.Token);
        });
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, Hostile).Select(n => client.SendAsync("topic", $"{n}", new Payload()))).WithPatience();
        await Mock.Until(() => handler.Handled.Count == Hostile, "every message succeeds in the end");
        Assert.All(attempts.Values, static count => Assert.Equal(4, count));
    }

    private static ProsodyClient Client(string? cluster = null, Action<ClientOptions>? configure = null) =>
        Mock.Builder(cluster).WithMaxConcurrency(128).Configure(static options =>
        {
            options.MaxUncommitted = 256;
            options.ShutdownTimeout = Shutdown;
            options.MaxRetryDelay = TimeSpan.FromMilliseconds(20);
            // Set aside, they would not be tried again in the time of a test.
            options.DeferEnabled = false;
        }).Configure(configure ?? (static _ => { })).Build();

    private Task Do(string deed, ProsodyContext context, CancellationToken token)
    {
        switch (deed)
        {
            case "throws before its first await":
                throw new InvalidOperationException(deed);
            case "returns no task":
                return null!;
            case "returns a cancelled task":
                return Task.FromCanceled(new CancellationToken(canceled: true));
            case "waits for ever":
                return _end.Task;
            case "disposes the client of another":
                return Mock.Builder().Build().DisposeAsync().AsTask();
            case "throws in a callback of its token":
                token.Register(static () => throw new InvalidOperationException("a callback"));
                return Task.Delay(Timeout.Infinite, token);
            case "cancels a storm":
                for (int n = 0; n < 50; n++)
                {
                    using var own = CancellationTokenSource.CreateLinkedTokenSource(token);
                    own.Token.Register(static () => { });
                    own.Cancel();
                    Assert.False(context.ShouldCancel && !token.CanBeCanceled);
                }

                throw new OperationCanceledException(token);
            case "leaves its thread's context in disorder":
                SynchronizationContext.SetSynchronizationContext(new SynchronizationContext());
                ExecutionContext.SuppressFlow();
                new System.Diagnostics.Activity("left running").Start();
                throw new InvalidOperationException(deed);
            default:
                throw new TextThrows();
        }
    }

    private sealed class Handler(Func<ProsodyContext, Message<Payload>, CancellationToken, Task> act) : IProsodyHandler<Payload>
    {
        private int _started;

        internal ConcurrentDictionary<string, bool> Handled { get; } = new();

        internal int Started => Volatile.Read(ref _started);

        // Not async: what the deed throws or returns reaches the caller as it is.
        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            Interlocked.Increment(ref _started);
            Task task = act(prosodyContext, message, cancellationToken);
            if (task is null)
            {
                return null!;
            }

            return Ended(task, message.Key);
        }

        private Task Ended(Task task, string key) => task.ContinueWith(
            ended =>
            {
                if (ended.IsCompletedSuccessfully)
                {
                    Handled[key] = true;
                }

                return ended;
            },
            CancellationToken.None, TaskContinuationOptions.ExecuteSynchronously, TaskScheduler.Default).Unwrap();
    }
}
