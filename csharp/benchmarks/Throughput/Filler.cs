// Fills a topic with our own producer.

using System.Globalization;
using System.Text;
using System.Text.Json;

namespace Prosody.Benchmarks;

internal static class Filler
{
    private const int InFlight = 5_000;
    private const int Partitions = 8;

    internal static async Task Run(string bootstrap, string topic, int count, int size, int keys)
    {
        await using (var admin = new AdminClient(bootstrap))
        {
            await admin.CreateTopicAsync(topic, Partitions, 1);
        }

        await using ProsodyClient client = ProsodyClientBuilder.Create().WithBootstrapServers(bootstrap).WithSourceSystem("fill").Build();
        await Send(client, topic, count, size, keys);
        Console.WriteLine(JsonSerializer.Serialize(new { records = count }));
    }

    /// <summary>What the payloads of a run cost without any client.</summary>
    internal static void Deserialize(int count, int size)
    {
        var random = new Random(1);
        byte[][] records = [.. Enumerable.Range(0, 10_000).Select(n => Record(n, size, random))];
        var meter = new Meter(count);
        for (int n = 0; n < count; n++)
        {
            ArgumentNullException.ThrowIfNull(JsonSerializer.Deserialize(records[n % records.Length], BenchContext.Default.Order));
            meter.Handled();
        }

        meter.Print();
    }

    /// <summary>JSON with random text, which lz4 shrinks by about a third.</summary>
    internal static async Task Send(ProsodyClient client, string topic, int count, int size, int keys)
    {
        var random = new Random(1);
        var pending = new Queue<Task>(InFlight);
        for (int n = 0; n < count; n++)
        {
            byte[] json = Record(n, size, random);
            if (pending.Count == InFlight)
            {
                await pending.Dequeue();
            }

            pending.Enqueue(client.SendRawAsync(topic, $"key-{random.Next(keys)}", json));
        }

        await Task.WhenAll(pending);
    }

    private static byte[] Record(int number, int size, Random random)
    {
        string start = string.Create(CultureInfo.InvariantCulture, $"{{\"number\":{number},\"customer\":\"customer-{random.Next(100_000)}\",\"amount\":{random.Next(1_000_000) / 100.0},\"note\":\"");
        var text = new StringBuilder(start);
        while (text.Length < size - 2)
        {
            text.Append((char)('a' + random.Next(26)));
        }

        return Encoding.UTF8.GetBytes(text.Append("\"}").ToString());
    }
}
