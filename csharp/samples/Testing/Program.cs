// How a handler is tested that reminds somebody three hours later. Nothing is needed, and nobody waits:
//
//     dotnet run
//
// In a test of yours the lines below are the test's body, and the handler is your program's.

using Prosody;
using Prosody.Testing;

await using var cluster = new VirtualCluster();
var handler = new Reminder(() => cluster.UtcNow);

await using var client = ProsodyClientBuilder.Create()
    .WithBootstrapServers(cluster.BootstrapServers)
    .WithGroupId("reminders")
    .WithSourceSystem("test")
    .WithSubscribedTopics("orders")
    .Build();
await client.SubscribeAsync(handler);

DateTimeOffset start = cluster.UtcNow;
await client.SendAsync("orders", "order-1", new Order("unpaid"));
await handler.Handled.Task.WaitAsync(TimeSpan.FromSeconds(30));

await cluster.AdvanceAsync(TimeSpan.FromHours(2.9));
Console.WriteLine($"after 2.9 hours: {handler.Reminded.Count} reminders");

await cluster.AdvanceAsync(TimeSpan.FromHours(0.2));
Console.WriteLine($"after 3.1 hours: {handler.Reminded.Count} reminder, after {(handler.Reminded[0] - start).TotalHours:0.0}");

internal sealed record Order(string State);

internal sealed class Reminder(Func<DateTimeOffset> now) : IProsodyHandler<Order>
{
    internal TaskCompletionSource Handled { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);

    internal List<DateTimeOffset> Reminded { get; } = [];

    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<Order> message, CancellationToken cancellationToken)
    {
        if (message.Payload?.State == "unpaid")
        {
            await prosodyContext.ScheduleAsync(now().AddHours(3));
        }

        Handled.TrySetResult();
    }

    public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        Reminded.Add(now());
        return Task.CompletedTask;
    }
}
