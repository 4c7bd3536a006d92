// Scenarios that need a process of their own; the first argument names one.

using System.Runtime.Loader;
using Prosody;

string cluster = "mock://child";

ProsodyClientBuilder Builder() => ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(cluster).WithGroupId("group").WithSourceSystem("child")
    .WithSubscribedTopics("topic").Configure(static options => options.ShutdownTimeout = TimeSpan.FromSeconds(2));

switch (args[0])
{
    case "load":
        try
        {
            Builder().Build().Dispose();
        }
        catch (DllNotFoundException missing)
        {
            Console.WriteLine(missing.Message);
        }

        return 0;

    case "environment":
        try
        {
            ProsodyClientBuilder.Create().Build().Dispose();
        }
        catch (InvalidOperationException refused)
        {
            Console.WriteLine(refused.Message);
        }

        // Set by this process, so invisible to native code's own environment.
        Environment.SetEnvironmentVariable("PROSODY_MAX_CONCURRENCY", "3");
        using (ProsodyClient client = ProsodyClientBuilder.Create().Build())
        {
            Console.WriteLine("source: " + client.SourceSystem);
            Console.WriteLine("set in code: 3");
        }

        return 0;

    case "no reflection":
        // As in a trimmed program, before anything asks.
        AppContext.SetSwitch("System.Text.Json.JsonSerializer.IsReflectionEnabledByDefault", false);
        await using (ProsodyClient client = Builder().Build())
        {
            try
            {
                await client.SubscribeAsync(new Handler(static (_, _) => Task.CompletedTask), new NothingIsPermanent());
            }
            catch (InvalidOperationException refused)
            {
                Console.WriteLine(refused.Message);
            }

            Console.WriteLine($"state: {await client.GetConsumerStateAsync()}");
        }

        return 0;

    case "admin":
        await using (var admin = new AdminClient())
        {
            await admin.CreateTopicAsync(name: "made", partitionCount: 1, replicationFactor: 1);
            Console.WriteLine("created");
        }

        return 0;

    case "silent":
        await using (ProsodyClient client = Builder().Build())
        {
            var handler = new Handler(static (_, _) => Task.CompletedTask);
            await client.SubscribeAsync(handler);
            await client.SendAsync("topic", "key", new { A = 1 });
            await client.SendRawAsync("topic", "key", "not json"u8.ToArray());
            await client.SendAsync("topic", "key", new { A = 2 });
            await handler.Handled(2);
        }

        return 0;

    case "block":
        {
            // Each blocks its thread until it is cancelled; the pool alone would start one or two of them a second.
            const int Handlers = 100;
            ThreadPool.SetMinThreads(2, 2);
            int started = 0;
            int cancelled = 0;
            using var enough = new CountdownEvent(Handlers);
            var handler = new Handler((context, token) =>
            {
                if (Interlocked.Increment(ref started) <= Handlers)
                {
                    enough.Signal();
                }

                token.WaitHandle.WaitOne();
                if (context.ShouldCancel)
                {
                    Interlocked.Increment(ref cancelled);
                }

                throw new OperationCanceledException(token);
            });
            ProsodyClient client = Builder().WithMaxConcurrency(128).Configure(static options => options.MaxUncommitted = 256).Build();
            // Blocking handlers may take the whole pool, so nothing here may need it.
            client.SubscribeAsync(handler).GetAwaiter().GetResult();
            Task.WaitAll([.. Enumerable.Range(0, Handlers).Select(n => client.SendAsync("topic", $"key {n}", new { A = n }))]);
            bool plenty = enough.Wait(TimeSpan.FromSeconds(30));
            long start = Environment.TickCount64;
            client.Dispose();
            long took = Environment.TickCount64 - start;
            Console.WriteLine(plenty && cancelled == started && took < 4_000 ? "passed" : $"{started} started, {cancelled} were cancelled, disposing took {took} ms");
            return 0;
        }

    case "stuck":
        {
            // A hundred handlers block their threads for ever, and so does every callback of their tokens. Everybody else
            // must not notice: other keys, stopping, subscribing again, disposing.
            const int Stuck = 100;
            const int Quick = 2_000;
            const int Again = 500;
            const int Permits = 128;
            ThreadPool.SetMinThreads(2, 2);
            using var stuck = new CountdownEvent(Stuck);
            using var first = new CountdownEvent(Quick);
            using var second = new CountdownEvent(Again);
            var handler = new Stubborn(stuck, first, second);
            ProsodyClient client = Builder().WithMaxConcurrency(Permits).Configure(static options => options.MaxUncommitted = 256).Build();
            void Send(string key, int count) => Task.WaitAll([.. Enumerable.Range(0, count).Select(n => client.SendAsync("topic", $"{key} {n}", new { A = n }))]);
            client.SubscribeAsync(handler).GetAwaiter().GetResult();
            Send("stuck", Stuck);
            bool all = stuck.Wait(TimeSpan.FromSeconds(30));
            Send("quick", Quick);
            bool others = first.Wait(TimeSpan.FromSeconds(30));
            long start = Environment.TickCount64;
            client.UnsubscribeAsync().GetAwaiter().GetResult();
            long stopping = Environment.TickCount64 - start;
            client.SubscribeAsync(handler).GetAwaiter().GetResult();
            Send("again", Again);
            bool again = second.Wait(TimeSpan.FromSeconds(30));
            start = Environment.TickCount64;
            client.Dispose();
            long disposing = Environment.TickCount64 - start;
            // Each stuck handler has kept its permit; the others are all in use, although every handler holds a thread.
            bool permits = handler.Most is > (Permits - Stuck) / 2 and <= Permits - Stuck;
            Console.WriteLine(all && others && again && permits && stopping < 4_000 && disposing < 4_000
                ? "passed"
                : $"all started: {all}, others handled: {others}, stopping took {stopping} ms, again: {again}, at most {handler.Most} at once, disposing took {disposing} ms");
            return 0;
        }

    case "sink throws":
        {
            // Everything that Prosody writes a line about, while the sink of the line throws: a classifier, a callback of a
            // token and a listener that throw. Whatever escapes here ends the process.
            Prosody.Logging.ProsodyLogging.Configure(new Thrower());
            using var listener = new System.Diagnostics.ActivityListener
            {
                ShouldListenTo = static source => source.Name == "Prosody",
                Sample = static (ref System.Diagnostics.ActivityCreationOptions<System.Diagnostics.ActivityContext> _) => System.Diagnostics.ActivitySamplingResult.AllData,
                ActivityStopped = static _ => throw new InvalidOperationException("a listener"),
            };
            System.Diagnostics.ActivitySource.AddActivityListener(listener);
            int attempts = 0;
            var handler = new Handler(async (_, token) =>
            {
                switch (Interlocked.Increment(ref attempts))
                {
                    case 1:
                        throw new InvalidOperationException("on a thread of ours");
                    case 2:
                        await Task.Yield();
                        throw new InvalidOperationException("on a thread of the pool");
                    case 3:
                        token.Register(static () => throw new InvalidOperationException("a callback"));
                        await Task.Delay(Timeout.Infinite, token).ConfigureAwait(false);
                        break;
                    default:
                        break;
                }
            });
            await using (ProsodyClient client = Builder().Configure(static options =>
            {
                options.Timeout = TimeSpan.FromMilliseconds(200);
                options.DeferEnabled = false;
            }).Build())
            {
                await client.SubscribeAsync(handler, new ClassifierThrows());
                await client.SendAsync("topic", "key", new { A = 1 });
                await handler.Handled(1);
            }

            Console.WriteLine(attempts == 4 ? "passed" : $"{attempts} attempts");
            return 0;
        }

    case "exit":
        {
            ProsodyClient client = Builder().Build();
            var handler = new Handler(static async (context, token) => await Task.Delay(Timeout.Infinite, token).ConfigureAwait(false));
            await client.SubscribeAsync(handler);
            Task[] sends = [.. Enumerable.Range(0, 50).Select(n => client.SendAsync("topic", $"key {n}", new { A = n }))];
            await Task.WhenAll(sends);
            await handler.Entered;
            Console.WriteLine("passed");
            return 0;
        }

    case "collect":
        {
            // Every message meets hundreds of full collections, each of which stops all threads.
            const int Messages = 300;
            using var stop = new CancellationTokenSource();
            var collector = new Thread(() =>
            {
                while (!stop.IsCancellationRequested)
                {
                    GC.Collect();
                    Thread.Yield();
                }
            });
            collector.Start();
            await using (ProsodyClient client = Builder().Build())
            {
                var handler = new Handler(static (_, _) => Task.CompletedTask);
                Console.WriteLine("built");
                await client.SubscribeAsync(handler);
                Console.WriteLine("subscribed");
                for (int n = 0; n < Messages; n += 100)
                {
                    await Task.WhenAll(Enumerable.Range(n, 100).Select(n => client.SendAsync("topic", $"key {n % 50}", new { Number = n })));
                }

                Console.WriteLine("sent");
                await handler.Handled(Messages);
                Console.WriteLine("handled");
            }

            Console.WriteLine("disposed");
            await stop.CancelAsync();
            collector.Join();
            Console.WriteLine("passed");
            return 0;
        }

    case "collectible":
        {
            for (int i = 0; i < 3; i++)
            {
                var context = new AssemblyLoadContext($"collectible {i}", isCollectible: true);
                System.Reflection.Assembly prosody = context.LoadFromAssemblyPath(typeof(ProsodyClient).Assembly.Location);
                object builder = prosody.GetType("Prosody.ProsodyClientBuilder")!.GetMethod("Create")!.Invoke(null, null)!;
                builder.GetType().GetMethod("WithMock")!.Invoke(builder, [true]);
                var client = (IDisposable)builder.GetType().GetMethod("Build")!.Invoke(builder, null)!;
                client.Dispose();
                context.Unload();
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }

            Console.WriteLine("passed");
            return 0;
        }

    default:
        Console.WriteLine("no such scenario");
        return 2;
}

/// <summary>Never gives a thread back that a stuck key has lent it; holds one for 5 ms for a key that comes again.</summary>
internal sealed class Stubborn(CountdownEvent stuck, CountdownEvent quick, CountdownEvent again) : IProsodyHandler<System.Text.Json.JsonElement>
{
    private int _now;
    private int _most;

    /// <summary>Most handlers that held a thread for 5 ms at once.</summary>
    internal int Most => _most;

    public Task OnMessageAsync(ProsodyContext prosodyContext, Message<System.Text.Json.JsonElement> message, CancellationToken cancellationToken)
    {
        if (message.Key.StartsWith("stuck", StringComparison.Ordinal))
        {
            cancellationToken.Register(static () => Thread.Sleep(Timeout.Infinite));
            stuck.Signal();
            Thread.Sleep(Timeout.Infinite);
        }

        if (message.Key.StartsWith("quick", StringComparison.Ordinal))
        {
            quick.Signal();
            return Task.CompletedTask;
        }

        int now = Interlocked.Increment(ref _now);
        for (int most = _most; now > most; most = _most)
        {
            Interlocked.CompareExchange(ref _most, now, most);
        }

        Thread.Sleep(5);
        Interlocked.Decrement(ref _now);
        again.Signal();
        return Task.CompletedTask;
    }
}

/// <summary>A sink of which every line throws.</summary>
internal sealed class Thrower : Microsoft.Extensions.Logging.ILoggerFactory, Microsoft.Extensions.Logging.ILogger
{
    public Microsoft.Extensions.Logging.ILogger CreateLogger(string categoryName) => this;

    public void AddProvider(Microsoft.Extensions.Logging.ILoggerProvider provider)
    {
    }

    public IDisposable? BeginScope<TState>(TState state)
        where TState : notnull => null;

    public bool IsEnabled(Microsoft.Extensions.Logging.LogLevel logLevel) => true;

    public void Log<TState>(
        Microsoft.Extensions.Logging.LogLevel logLevel, Microsoft.Extensions.Logging.EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
        throw new InvalidOperationException("a sink");

    public void Dispose()
    {
    }
}

internal sealed class ClassifierThrows : IPermanentErrorClassifier
{
    public bool IsMessageErrorPermanent(Exception exception) => throw new InvalidOperationException("a classifier");

    public bool IsTimerErrorPermanent(Exception exception) => throw new InvalidOperationException("a classifier");
}

internal sealed class NothingIsPermanent : IPermanentErrorClassifier
{
    public bool IsMessageErrorPermanent(Exception exception) => false;

    public bool IsTimerErrorPermanent(Exception exception) => false;
}

internal sealed class Handler(Func<ProsodyContext, CancellationToken, Task> act) : IProsodyHandler<System.Text.Json.JsonElement>
{
    private readonly TaskCompletionSource _entered = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly SemaphoreSlim _handled = new(0);

    internal Task Entered => _entered.Task;

    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<System.Text.Json.JsonElement> message, CancellationToken cancellationToken)
    {
        _entered.TrySetResult();
        await act(prosodyContext, cancellationToken).ConfigureAwait(false);
        _handled.Release();
    }

    internal async Task Handled(int count)
    {
        for (int i = 0; i < count; i++)
        {
            if (!await _handled.WaitAsync(TimeSpan.FromSeconds(30)).ConfigureAwait(false))
            {
                throw new TimeoutException($"{i} of {count} messages were handled");
            }
        }
    }
}
