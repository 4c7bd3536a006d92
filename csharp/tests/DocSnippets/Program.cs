// Runs the samples one after the other. Their brokers are inside this process (PROSODY_MOCK=true), so what they send is
// here to be handled. Not run: what needs the internet or Cassandra.

using DocSnippets;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Prosody;

(string Name, Func<Task> Run)[] samples =
[
    ("quick start", QuickStart.Run),
    ("quick start, followed up", () => Handle(new QuickStartHandler(), new MyPayload("Hello, Kafka!", ScheduleFollowup: true))),
    ("deferred retry", Configuration.DeferredRetry),
    ("monopolization", Configuration.Monopolization),
    ("handler timeout", Configuration.HandlerTimeout),
    ("probes", Configuration.Probes),
    ("modes", Configuration.Modes),
    ("filter, source and tuning", Configuration.FilterSourceAndTuning),
    ("deduplication", () => HandleAll(new QuickStartHandler(), 2, Configuration.Deduplication)),
    ("mock mode", Configuration.MockMode),
    ("timers", () => Handle(new TimerHandler(), new MyPayload("tick"))),
    ("a handler without timers", () => Handle(new CountHandler(), new Item("counted"))),
    ("attributes", () => Handle(new AttributeHandler(), new MyPayload("fine"))),
    ("permanent exception", () => Handle(new PermanentHandler(), new MyPayload("new", Version: 2))),
    ("loop", () => Handle(new LoopHandler(), new List<Item> { new("first"), new("second") })),
    ("worker", Worker),
    ("static logging", Synchronously(LoggingSamples.Static)),
    ("hosted logging", Synchronously(static () => LoggingSamples.Hosted([]))),
    ("admin", AdminSample.Run),
];

foreach ((string name, Func<Task> run) in samples)
{
    Console.WriteLine($"== {name}");
    await run();
}

return 0;

static Func<Task> Synchronously(Action run) => () =>
{
    run();
    return Task.CompletedTask;
};

static Task Handle<T>(IProsodyHandler<T> sample, T payload) =>
    HandleAll(sample, 1, client => client.SendAsync("my-topic", "message-key", payload));

static async Task HandleAll<T>(IProsodyHandler<T> sample, int count, Func<ProsodyClient, Task> send)
{
    var handler = new Hurried<T>(sample, count);
    // A cluster for each sample, so that they see nothing of each other.
    await using var client = ProsodyClientBuilder.Create()
        .WithBootstrapServers($"mock://{sample.GetType().Name}-{count}")
        .WithSourceSystem("my-application-source")
        .WithGroupId("my-application")
        .WithSubscribedTopics("my-topic")
        .Build();
    await client.SubscribeAsync(handler);
    await send(client);
    await handler.Ended.WaitAsync(TimeSpan.FromSeconds(30));
}

static async Task Worker()
{
    using IHost host = Host.CreateEmptyApplicationBuilder(new HostApplicationBuilderSettings()).Also(static builder => builder.Services.AddHostedService<ProsodyWorker>()).Build();
    await host.StartAsync();
    await host.StopAsync();
}

internal static class Builders
{
    internal static HostApplicationBuilder Also(this HostApplicationBuilder builder, Action<HostApplicationBuilder> act)
    {
        act(builder);
        return builder;
    }
}

/// <summary>
/// Calls a sample's methods, and says which timers its message has scheduled. One timer that is due replaces them, so that
/// the sample's other method is called without a wait of half a minute.
/// </summary>
internal sealed class Hurried<T>(IProsodyHandler<T> sample, int count) : IProsodyHandler<T>
{
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _left = count;

    internal Task Ended => _ended.Task;

    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<T> message, CancellationToken cancellationToken)
    {
        DateTimeOffset now = DateTimeOffset.UtcNow;
        await sample.OnMessageAsync(prosodyContext, message, cancellationToken);
        DateTimeOffset[] times = await prosodyContext.ScheduledAsync();
        if (times.Length == 0)
        {
            End();
            return;
        }

        // Rounded by Prosody, and once more here: a slow machine takes a moment between the two clocks.
        Console.WriteLine("(due in " + string.Join(", ", times.Select(time => Math.Round((time - now).TotalSeconds / 10) * 10)) + " s)");
        await prosodyContext.ClearAndScheduleAsync(DateTimeOffset.UnixEpoch);
    }

    public async Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        await sample.OnTimerAsync(prosodyContext, timer, cancellationToken);
        End();
    }

    private void End()
    {
        if (Interlocked.Decrement(ref _left) == 0)
        {
            _ended.TrySetResult();
        }
    }
}
