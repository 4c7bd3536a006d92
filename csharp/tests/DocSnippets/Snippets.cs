// Samples of the README that need what exists. A sample is a method or a class of its own; its code is the README's.
#pragma warning disable CA1812, CS1998, CA1822, CA1852

using System.Text.Json;
using Microsoft.Extensions.Hosting;
using Prosody;

namespace DocSnippets;

internal record MyPayload(string? Content, bool ScheduleFollowup = false, int Version = 1);

internal record Item(string Name);

internal static class QuickStart
{
    internal static async Task Run()
    {
        // Initialize the client with the builder pattern
        await using var client = ProsodyClientBuilder.Create()
            .WithBootstrapServers("localhost:9092")
            .WithSourceSystem("my-application-source")
            .WithGroupId("my-application")
            .WithSubscribedTopics("my-topic")
            .Build();

        // Define a message handler
        var messageHandler = new QuickStartHandler();

        // Subscribe to messages using the message handler
        await client.SubscribeAsync(messageHandler);

        // Send a message to a topic
        await client.SendAsync("my-topic", "message-key", new { Content = "Hello, Kafka!" });

        // Ensure proper shutdown when done
        await client.UnsubscribeAsync();
    }
}

// Handler implementation
internal sealed class QuickStartHandler : IProsodyHandler<MyPayload>
{
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<MyPayload> message, CancellationToken cancellationToken)
    {
        // Process the received message
        var payload = message.Payload;
        Console.WriteLine($"Received message: {payload}");

        // Schedule a timer for delayed processing (requires Cassandra unless Mock = true)
        if (payload?.ScheduleFollowup == true)
        {
            var futureTime = DateTimeOffset.UtcNow.AddSeconds(30);
            await prosodyContext.ScheduleAsync(futureTime);
        }
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        // Handle timer firing
        Console.WriteLine($"Timer fired for key: {timer.Key} at {timer.Time}");
        return Task.CompletedTask;
    }
}

internal static class Configuration
{
    internal static async Task DeferredRetry()
    {
        // Configure defer behavior
        await using var client = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Configure(options =>
            {
                options.DeferEnabled = true;                              // Enable deferral (default: true)
                options.DeferBase = TimeSpan.FromSeconds(1);              // Wait 1s before first retry
                options.DeferMaxDelay = TimeSpan.FromHours(24);           // Cap at 24 hours
                options.DeferFailureThreshold = 0.9;                      // Disable when >90% failing
            })
            .Build();
    }

    internal static async Task Monopolization()
    {
        // Configure monopolization detection
        await using var client = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Configure(options =>
            {
                options.MonopolizationEnabled = true;                     // Enable detection (default: true)
                options.MonopolizationThreshold = 0.9;                    // Reject keys using >90% of window
                options.MonopolizationWindow = TimeSpan.FromMinutes(5);   // 5-minute window
            })
            .Build();
    }

    internal static async Task HandlerTimeout()
    {
        await using var client = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Configure(options =>
            {
                options.Timeout = TimeSpan.FromSeconds(30);               // Cancel after 30 seconds
                options.StallThreshold = TimeSpan.FromSeconds(60);        // Report unhealthy after 60 seconds
            })
            .Build();
    }

    internal static async Task Probes()
    {
        await using var client = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .WithProbePort(8000)                                          // Set to 0 to disable
            .Configure(options =>
            {
                options.StallThreshold = TimeSpan.FromSeconds(15);        // 15 seconds before considering a partition stalled
            })
            .Build();

        // Get the number of partitions currently assigned to this consumer
        var partitionCount = await client.AssignedPartitionCountAsync();

        // Check if the consumer has stalled partitions
        if (await client.IsStalledAsync())
        {
            Console.WriteLine("Consumer has stalled partitions");
        }

        uint isUnsigned = partitionCount;
        _ = isUnsigned;
    }

    internal static async Task Modes()
    {
        // Initialize client in pipeline mode
        await using var pipeline = ProsodyClientBuilder.Create()
            .WithMode(ClientMode.Pipeline)  // Explicitly set pipeline mode (this is the default)
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Build();

        // Initialize client in low-latency mode
        await using var lowLatency = ProsodyClientBuilder.Create()
            .WithMode(ClientMode.LowLatency)  // Set low-latency mode
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .WithFailureTopic("failed-messages")  // Specify a topic for failed messages
            .Build();

        // Initialize client in best-effort mode
        await using var bestEffort = ProsodyClientBuilder.Create()
            .WithMode(ClientMode.BestEffort)  // Set best-effort mode
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Build();
    }

    internal static async Task FilterSourceAndTuning()
    {
        // Process only events with types starting with "user." or "account."
        await using var filtered = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .WithAllowedEvents("user.", "account.")
            .Build();

        // Consumer and producer in one application
        await using var client = ProsodyClientBuilder.Create()
            .WithGroupId("my-service")
            .WithSourceSystem("my-service-producer")  // Must differ from GroupId to allow loopbacks; defaults to GroupId
            .WithSubscribedTopics("my-topic")
            .Build();

        await using var tuned = ProsodyClientBuilder.Create()
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Configure(options => options.IdempotenceCacheSize = 16384)   // Tune the shared cache capacity
            .Configure(options => options.IdempotenceVersion = "2")          // Invalidate all prior dedup records
            .Configure(options => options.IdempotenceTtl = TimeSpan.FromDays(14))  // Keep records for 14 days
            .Build();
    }

    internal static async Task Deduplication(ProsodyClient client)
    {
        // Messages with IDs are deduplicated per key
        await client.SendAsync("my-topic", "key1", new
        {
            Id = "msg-123",      // Message will be processed
            Content = "Hello!",
        });

        await client.SendAsync("my-topic", "key1", new
        {
            Id = "msg-123",      // Message will be skipped (duplicate)
            Content = "Hello again!",
        });

        await client.SendAsync("my-topic", "key2", new
        {
            Id = "msg-123",      // Message will be processed (different key)
            Content = "Hello!",
        });
    }

    internal static async Task Cassandra()
    {
        await using var client = ProsodyClientBuilder.Create()
            .WithBootstrapServers("localhost:9092")
            .WithGroupId("my-application")
            .WithSubscribedTopics("my-topic")
            .Configure(options => options.CassandraNodes = ["localhost:9042"])  // Required unless Mock = true
            .Build();
    }

    internal static async Task MockMode()
    {
        // Mock mode for testing (timers work but aren't persisted)
        await using var client = ProsodyClientBuilder.Create()
            .WithBootstrapServers("localhost:9092")
            .WithGroupId("my-application")
            .WithSubscribedTopics("my-topic")
            .WithMock(true)  // No Cassandra required in mock mode
            .Build();
    }
}

internal sealed class TimerHandler : IProsodyHandler<MyPayload>
{
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<MyPayload> message, CancellationToken cancellationToken)
    {
        // Schedule a timer to fire in 30 seconds
        var futureTime = DateTimeOffset.UtcNow.AddSeconds(30);
        await prosodyContext.ScheduleAsync(futureTime);

        // Schedule multiple timers
        var oneMinute = DateTimeOffset.UtcNow.AddMinutes(1);
        var twoMinutes = DateTimeOffset.UtcNow.AddMinutes(2);
        await prosodyContext.ScheduleAsync(oneMinute);
        await prosodyContext.ScheduleAsync(twoMinutes);

        // Check what's scheduled
        var scheduledTimes = await prosodyContext.ScheduledAsync();
        Console.WriteLine($"Scheduled timers: {scheduledTimes.Length}");
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        Console.WriteLine("Timer fired!");
        Console.WriteLine($"Key: {timer.Key}");
        Console.WriteLine($"Scheduled time: {timer.Time}");
        return Task.CompletedTask;
    }
}

// A handler without timers needs no method for them.
internal sealed class CountHandler : IProsodyHandler<Item>
{
    public async Task OnMessageAsync(
        ProsodyContext context,
        Message<Item> message,
        CancellationToken cancellationToken)
    {
    }
}

internal sealed class ProsodyWorker : BackgroundService
{
    private readonly ProsodyClient _client;

    public ProsodyWorker()
    {
        _client = ProsodyClientBuilder.Create()
            .WithBootstrapServers("localhost:9092")
            .WithGroupId("my-consumer-group")
            .WithSubscribedTopics("my-topic")
            .Build();
    }

    protected override async Task ExecuteAsync(CancellationToken stoppingToken)
    {
        await _client.SubscribeAsync(new QuickStartHandler());

        // Wait for shutdown signal
        await Task.Delay(Timeout.Infinite, stoppingToken);
    }

    public override async Task StopAsync(CancellationToken cancellationToken)
    {
        Console.WriteLine("Shutting down gracefully...");
        await _client.UnsubscribeAsync();
        _client.Dispose();
        await base.StopAsync(cancellationToken);
    }
}

internal sealed class AttributeHandler : IProsodyHandler<MyPayload>
{
    [PermanentError(typeof(JsonException), typeof(ArgumentException))]
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<MyPayload> message, CancellationToken cancellationToken)
    {
        // Your message handling logic here
        // JsonException and ArgumentException will be treated as permanent
        // All other exceptions will be treated as transient (default behavior)
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => Task.CompletedTask;
}

internal sealed class PermanentHandler : IProsodyHandler<MyPayload>
{
    private const int MinimumSupportedVersion = 2;

    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<MyPayload> message, CancellationToken cancellationToken)
    {
        var payload = message.Payload;

        if (payload?.Version < MinimumSupportedVersion)
        {
            throw new PermanentException("Message version is no longer supported");
        }

        // Process message...
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => Task.CompletedTask;
}

#pragma warning disable CA1032, CA1064 // As the README writes it.
internal class ValidationException : Exception, IPermanentError
{
    public ValidationException(string message) : base(message) { }
}
#pragma warning restore CA1032, CA1064

internal sealed class CancellationHandler(HttpClient httpClient, ProsodyClient client) : IProsodyHandler<MyPayload>
{
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<MyPayload> message, CancellationToken cancellationToken)
    {
        // Pass the token to HTTP calls — throws OperationCanceledException on cancellation
        var response = await httpClient.GetAsync(new Uri("https://api.example.com"), cancellationToken);
        var data = await response.Content.ReadAsStringAsync(cancellationToken);
        _ = data;

        // Send a message, passing the cancellation token
        await client.SendAsync("topic", "key", new { Data = "value" }, cancellationToken);
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => Task.CompletedTask;
}

internal sealed class LoopHandler : IProsodyHandler<List<Item>>
{
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<List<Item>> message, CancellationToken cancellationToken)
    {
        foreach (var item in message.Payload ?? [])
        {
            // Correct: throws OperationCanceledException, signaling incomplete work
            cancellationToken.ThrowIfCancellationRequested();

            ProcessItem(item);
        }
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => Task.CompletedTask;

    private static void ProcessItem(Item item) => Console.WriteLine(item.Name);
}
