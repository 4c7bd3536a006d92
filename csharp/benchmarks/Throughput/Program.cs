// Consumes a filled topic with a handler that deserializes JSON and returns, and says what that cost this process.
//
//     Throughput (prosody|confluent) --bootstrap HOST:PORT --topic NAME --count N [--group NAME]
//     Throughput fill --bootstrap HOST:PORT --topic NAME --count N [--size BYTES] [--keys N]    (creates the topic)
//     Throughput json --count N     (no Kafka: what deserializing alone costs, on one thread)
//     Throughput mock --count N     (prosody on the broker inside this process, which is then measured with it)
//
// The last line of the output is a JSON object: records, cpu_seconds (user and system time of all threads, as rusage
// counts it), seconds, allocated_bytes. The first tenth of the records warms up and is not counted.

using System.Globalization;
using System.Text.Json;
using System.Text.Json.Serialization;
using Prosody.Benchmarks;

Dictionary<string, string> options = [];
for (int i = 1; i + 1 < args.Length; i += 2)
{
    options[args[i].TrimStart('-')] = args[i + 1];
}

string Option(string name, string? otherwise = null) =>
    options.GetValueOrDefault(name) ?? otherwise ?? throw new ArgumentException($"--{name} is missing");
int Number(string name, string? otherwise = null) => int.Parse(Option(name, otherwise), CultureInfo.InvariantCulture);

switch (args.FirstOrDefault())
{
    case "prosody":
        await ProsodyConsumer.Run(Option("bootstrap"), Option("topic"), Option("group", $"bench-{Guid.NewGuid():N}"), Number("count"), mock: false);
        return 0;
    case "mock":
        await ProsodyConsumer.Run("mock://throughput", "bench", "bench", Number("count"), mock: true);
        return 0;
    case "confluent":
        await ConfluentConsumer.Run(Option("bootstrap"), Option("topic"), Option("group", $"bench-{Guid.NewGuid():N}"), Number("count"));
        return 0;
    case "json":
        Filler.Deserialize(Number("count"), Number("size", "100"));
        return 0;
    case "fill":
        await Filler.Run(Option("bootstrap"), Option("topic"), Number("count"), Number("size", "100"), Number("keys", "10000"));
        return 0;
    default:
        await Console.Error.WriteLineAsync("usage: Throughput prosody|confluent|fill|mock|json --bootstrap HOST:PORT --topic NAME --count N");
        return 2;
}

/// <summary>About 100 bytes of JSON.</summary>
internal sealed class Order
{
    public long Number { get; set; }

    public string Customer { get; set; } = string.Empty;

    public string Note { get; set; } = string.Empty;

    public double Amount { get; set; }
}

[JsonSourceGenerationOptions(PropertyNamingPolicy = JsonKnownNamingPolicy.CamelCase)]
[JsonSerializable(typeof(Order))]
internal sealed partial class BenchContext : JsonSerializerContext;
