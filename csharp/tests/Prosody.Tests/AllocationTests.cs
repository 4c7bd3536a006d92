// Gates on garbage: deterministic where times are not. Measured for the whole process, so nothing runs beside them.

namespace Prosody.Tests;

[Collection(nameof(PanicTests))]
public sealed class AllocationTests
{
    private const int Messages = 10_000;

    [Fact]
    public async Task A_consumed_message_costs_at_most_320_bytes()
    {
        string cluster = Mock.Cluster();
        await using ProsodyClient client = Mock.Builder(cluster).Build();
        for (int sent = 0; sent < 2 * Messages; sent += 1_000)
        {
            await Task.WhenAll(Enumerable.Range(sent, 1_000).Select(n => client.SendRawAsync("topic", $"key {n % 500}", "7"u8.ToArray()))).WithPatience();
        }

        var handler = new Counting(warmUp: Messages, end: 2 * Messages);
        await client.SubscribeAsync(handler).WithPatience();
        long allocated = await handler.Allocated.WithPatience();
        double each = (double)allocated / Messages;
        TestContext.Current.TestOutputHelper?.WriteLine($"{each:F0} bytes for each message");
        Assert.InRange(each, 50, 320);
    }

    [Fact]
    public async Task An_awaited_send_costs_at_most_256_bytes()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        byte[] json = "7"u8.ToArray();
        const int Sends = 2_000;
        long start = 0;
        for (int n = 0; n < 2 * Sends; n++)
        {
            if (n == Sends)
            {
                start = GC.GetTotalAllocatedBytes(precise: true);
            }

            await client.SendRawAsync("topic", "key", json);
        }

        double each = (double)(GC.GetTotalAllocatedBytes(precise: true) - start) / Sends;
        TestContext.Current.TestOutputHelper?.WriteLine($"{each:F0} bytes for each send");
        Assert.InRange(each, 50, 256);
    }

    private sealed class Counting(int warmUp, int end) : IProsodyHandler<int>
    {
        private readonly TaskCompletionSource<long> _allocated = new(TaskCreationOptions.RunContinuationsAsynchronously);
        private int _count;
        private long _start;

        internal Task<long> Allocated => _allocated.Task;

        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken)
        {
            int count = Interlocked.Increment(ref _count);
            if (count == warmUp)
            {
                _start = GC.GetTotalAllocatedBytes(precise: true);
            }
            else if (count == end)
            {
                _allocated.TrySetResult(GC.GetTotalAllocatedBytes(precise: true) - _start);
            }

            return Task.CompletedTask;
        }
    }
}
