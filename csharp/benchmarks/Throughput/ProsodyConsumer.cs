// Ours, with default options.

namespace Prosody.Benchmarks;

internal static class ProsodyConsumer
{
    internal static async Task Run(string bootstrap, string topic, string group, int count, bool mock)
    {
        var handler = new Handler(new Meter(count));
        await using ProsodyClient client = ProsodyClientBuilder.Create()
            .WithBootstrapServers(bootstrap).WithGroupId(group).WithSourceSystem("bench").WithSubscribedTopics(topic).WithMock(mock)
            .Configure(static options => options.ProbePort = 0)
            .ConfigureJsonOptions(static options => options.TypeInfoResolverChain.Add(BenchContext.Default))
            .Build();
        if (mock)
        {
            await Filler.Send(client, topic, count, size: 100, keys: 10_000);
        }

        await client.SubscribeAsync(handler, new NothingIsPermanent());
        await handler.Meter.Done;
        await client.UnsubscribeAsync();
        handler.Meter.Print();
    }

    private sealed class Handler(Meter meter) : IProsodyHandler<Order>
    {
        internal Meter Meter => meter;

        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Order> message, CancellationToken cancellationToken)
        {
            ArgumentNullException.ThrowIfNull(message.Payload);
            meter.Handled();
            return Task.CompletedTask;
        }
    }

    private sealed class NothingIsPermanent : IPermanentErrorClassifier
    {
        public bool IsMessageErrorPermanent(Exception exception) => false;

        public bool IsTimerErrorPermanent(Exception exception) => false;
    }
}
