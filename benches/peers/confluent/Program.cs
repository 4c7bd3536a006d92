// Confluent.Kafka: byte arrays, `fetch.queue.backoff.ms=1`, delivery reports counted.
//
// produce|consume --bootstrap B --topic T --count N --size S --keys K --partitions P, send … --count N, first … --group G

using System.Diagnostics;
using System.Globalization;
using System.Text;
using Confluent.Kafka;

const int Pool = 1 << 14;
var patience = TimeSpan.FromSeconds(60);
Dictionary<string, string> options = [];
for (int at = 1; at + 1 < args.Length; at += 2)
{
    options[args[at].TrimStart('-')] = args[at + 1];
}

int Number(string name) => int.Parse(options[name], CultureInfo.InvariantCulture);
string topic = options["topic"];

switch (args[0])
{
    case "produce":
        Produce();
        return 0;
    case "consume":
        Consume();
        return 0;
    case "send":
        await Send();
        return 0;
    case "first":
        First();
        return 0;
    default:
        throw new ArgumentException(args[0]);
}

byte[][] Values(int size)
{
    const string Letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
    var random = new Random(1);
    return [.. Enumerable.Range(0, Pool).Select(id =>
    {
        var text = new StringBuilder($"{{\"id\":\"{id:D8}\",\"type\":\"order.created\",\"note\":\"");
        while (text.Length + 2 < size)
        {
            text.Append(Letters[random.Next(Letters.Length)]);
        }

        return Encoding.UTF8.GetBytes(text.Append("\"}").ToString());
    })];
}

byte[][] Keys(int count) => [.. Enumerable.Range(0, count).Select(key => Encoding.UTF8.GetBytes($"key-{key:D6}"))];

IProducer<byte[], byte[]> Producer(double? linger)
{
    var config = new ProducerConfig
    {
        BootstrapServers = options["bootstrap"],
        EnableIdempotence = true,
        CompressionType = CompressionType.Lz4,
        LingerMs = linger,
        // What the report of each record does not need to say.
        DeliveryReportFields = "none",
    };
    return new ProducerBuilder<byte[], byte[]>(config).Build();
}

void Produce()
{
    int count = Number("count");
    byte[][] values = Values(Number("size")), keys = Keys(Number("keys"));
    long delivered = 0;
    var meter = new Meter();
    using IProducer<byte[], byte[]> producer = Producer(null);
    Error? failed = null;
    Action<DeliveryReport<byte[], byte[]>> report = report =>
    {
        if (report.Error.IsError)
        {
            failed = report.Error;
        }
        else
        {
            // Two threads serve reports: the one in the background, and the one that polls while the queue is full.
            Interlocked.Increment(ref delivered);
        }
    };
    for (int n = 0; n < count; n++)
    {
        var message = new Message<byte[], byte[]> { Key = keys[(long)n * 7_919 % keys.Length], Value = values[n & (Pool - 1)] };
        while (true)
        {
            try
            {
                producer.Produce(topic, message, report);
                break;
            }
            catch (ProduceException<byte[], byte[]> full) when (full.Error.Code == ErrorCode.Local_QueueFull)
            {
                producer.Poll(TimeSpan.FromMilliseconds(1));
            }
        }
    }

    producer.Flush(patience);
    Check(Interlocked.Read(ref delivered) == count, $"{delivered} of {count} were delivered: {failed}");
    meter.Report(count, "");
}

IConsumer<byte[], byte[]> Consumer(string group)
{
    var config = new ConsumerConfig
    {
        BootstrapServers = options["bootstrap"],
        GroupId = group,
        EnableAutoCommit = false,
        AutoOffsetReset = AutoOffsetReset.Earliest,
    };
    // At its default it sits idle in catch-up reads.
    config.Set("fetch.queue.backoff.ms", "1");
    // Headers, timestamp and topic name of each record cost it a microsecond, and nobody here reads them.
    config.Set("dotnet.consumer.consume.result.fields", "none");
    return new ConsumerBuilder<byte[], byte[]>(config).Build();
}

void Consume()
{
    int count = Number("count"), partitions = Number("partitions");
    long[] next = new long[partitions];
    long seen = 0, bytes = 0;
    var meter = new Meter();
    using IConsumer<byte[], byte[]> consumer = Consumer("peer-confluent");
    consumer.Assign(Enumerable.Range(0, partitions).Select(at => new TopicPartitionOffset(topic, at, Offset.Beginning)));
    while (seen < count)
    {
        ConsumeResult<byte[], byte[]> result = consumer.Consume(patience) ?? throw new TimeoutException("no records");
        Check(result.Offset.Value == next[result.Partition.Value]++, "a gap");
        bytes += result.Message.Key.Length + result.Message.Value.Length;
        seen++;
    }

    meter.Report(seen, $",\"bytes\":{bytes}");
}

async Task Send()
{
    int count = Number("count");
    byte[][] values = Values(100), keys = Keys(16);
    double[] took = new double[count];
    var meter = new Meter();
    using IProducer<byte[], byte[]> producer = Producer(0);
    for (int n = 0; n < count; n++)
    {
        long start = Stopwatch.GetTimestamp();
        await producer.ProduceAsync(topic, new Message<byte[], byte[]> { Key = keys[n % 16], Value = values[n & (Pool - 1)] });
        took[n] = Stopwatch.GetElapsedTime(start).TotalMicroseconds;
    }

    Array.Sort(took);
    meter.Report(count, string.Create(CultureInfo.InvariantCulture, $",\"p50_us\":{took[count / 2]:F1}"));
}

void First()
{
    var meter = new Meter();
    long start = Stopwatch.GetTimestamp();
    IConsumer<byte[], byte[]> consumer = Consumer(options["group"]);
    consumer.Subscribe(topic);
    Check(consumer.Consume(patience) is not null, "no record");
    double first = Stopwatch.GetElapsedTime(start).TotalMilliseconds;
    long closing = Stopwatch.GetTimestamp();
    consumer.Commit();
    consumer.Close();
    double closed = Stopwatch.GetElapsedTime(closing).TotalMilliseconds;
    meter.Report(1, string.Create(CultureInfo.InvariantCulture, $",\"first_ms\":{first:F1},\"close_ms\":{closed:F1}"));
}

static void Check(bool holds, string problem)
{
    if (!holds)
    {
        throw new InvalidOperationException(problem);
    }
}

/// <summary>Wall clock and the CPU time of all threads since it was made; starting the runtime is not counted.</summary>
internal sealed class Meter
{
    private readonly long _start = Stopwatch.GetTimestamp();
    private readonly double _cpu = Cpu();

    internal void Report(long records, string extra)
    {
        string peak = File.ReadLines("/proc/self/status").First(static line => line.StartsWith("VmHWM:", StringComparison.Ordinal));
        string kib = new([.. peak.Where(char.IsAsciiDigit)]);
        double seconds = Stopwatch.GetElapsedTime(_start).TotalSeconds;
        Console.WriteLine(string.Create(CultureInfo.InvariantCulture, $"{{\"records\":{records},\"seconds\":{seconds:F4},\"cpu_seconds\":{Cpu() - _cpu:F3},\"peak_rss_kib\":{kib}{extra}}}"));
    }

    private static double Cpu()
    {
        using Process self = Process.GetCurrentProcess();
        return self.TotalProcessorTime.TotalSeconds;
    }
}
