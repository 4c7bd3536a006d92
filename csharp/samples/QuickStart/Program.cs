// The quick start of the README. Run it without a broker:
//
//     PROSODY_MOCK=true dotnet run
//
// or on a real one:
//
//     PROSODY_BOOTSTRAP_SERVERS=localhost:9092 dotnet run
//
// Lines marked "changed" differ from the README, so that the program runs anywhere and ends by itself.

using Prosody;

// changed: a real broker needs the topic first; the mock one creates it by itself.
if (Environment.GetEnvironmentVariable("PROSODY_MOCK") != "true")
{
    await using var admin = new AdminClient();
    try
    {
        await admin.CreateTopicAsync(name: "my-topic", partitionCount: 4, replicationFactor: 1);
    }
    catch (ProsodyException exists) when (exists.Code == "TOPIC_ALREADY_EXISTS")
    {
        // It is left from an earlier run.
    }
}

// Initialize the client with the builder pattern
await using var client = ProsodyClientBuilder.Create()
    // changed: the bootstrap servers come from PROSODY_BOOTSTRAP_SERVERS.
    // To allow loopbacks, the SourceSystem must be different from the GroupId.
    // Normally, the SourceSystem would be left unspecified, which would default to the GroupId.
    .WithSourceSystem("my-application-source")
    // The GroupId should be set to the name of your application
    .WithGroupId("my-application")
    // Topics the client should subscribe to
    .WithSubscribedTopics("my-topic")
    .Build();

// Define a message handler
var messageHandler = new MyHandler();

// Subscribe to messages using the message handler
await client.SubscribeAsync(messageHandler);

// Send a message to a topic
await client.SendAsync("my-topic", "message-key", new { Content = "Hello, Kafka!" });

// changed: wait for the message before the end.
await messageHandler.Received.WaitAsync(TimeSpan.FromSeconds(30));

// Ensure proper shutdown when done
await client.UnsubscribeAsync();

/// <summary>What the messages say.</summary>
public record MyPayload(string? Content, bool ScheduleFollowup = false);

/// <summary>Handler implementation.</summary>
public class MyHandler : IProsodyHandler<MyPayload>
{
    // changed: tells the program that a message was handled.
    private readonly TaskCompletionSource _received = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>Completes with the first handled message.</summary>
    public Task Received => _received.Task;

    /// <inheritdoc/>
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

        _received.TrySetResult(); // changed
    }

    /// <inheritdoc/>
    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        // Handle timer firing
        Console.WriteLine($"Timer fired for key: {timer.Key} at {timer.Time}");
        return Task.CompletedTask;
    }
}
