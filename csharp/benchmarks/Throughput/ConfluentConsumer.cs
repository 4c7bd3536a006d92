// The peer: Confluent.Kafka with the keyed worker pool a careful user writes. 32 bounded channels by key hash,
// source-generated JSON, offsets stored only when every earlier record of the partition is handled.

using System.Text.Json;
using System.Threading.Channels;
using Confluent.Kafka;

namespace Prosody.Benchmarks;

internal static class ConfluentConsumer
{
    private const int Workers = 32;
    private const int QueuedPerWorker = 1_024;
    private const int StoreEveryMs = 100;

    internal static async Task Run(string bootstrap, string topic, string group, int count)
    {
        var meter = new Meter(count);
        var config = new ConsumerConfig
        {
            BootstrapServers = bootstrap,
            GroupId = group,
            AutoOffsetReset = AutoOffsetReset.Earliest,
            EnableAutoCommit = true,
            AutoCommitIntervalMs = 1_000,
            EnableAutoOffsetStore = false,
            IsolationLevel = IsolationLevel.ReadCommitted,
            PartitionAssignmentStrategy = PartitionAssignmentStrategy.CooperativeSticky,
        };
        // At its default it sits idle in catch-up reads.
        config.Set("fetch.queue.backoff.ms", "1");
        // Headers, timestamp and topic name of each record cost it a microsecond, and nobody here reads them.
        config.Set("dotnet.consumer.consume.result.fields", "none");

        Channel<Work>[] channels = [.. Enumerable.Range(0, Workers).Select(static _ => Channel.CreateBounded<Work>(
            new BoundedChannelOptions(QueuedPerWorker) { SingleReader = true, SingleWriter = true }))];
        using IConsumer<string, byte[]> consumer = new ConsumerBuilder<string, byte[]>(config).Build();
        var partitions = new Dictionary<int, Watermark>();
        Task[] workers = [.. channels.Select(channel => Task.Run(async () =>
        {
            await foreach (Work work in channel.Reader.ReadAllAsync())
            {
                Order? order = JsonSerializer.Deserialize(work.Value, BenchContext.Default.Order);
                ArgumentNullException.ThrowIfNull(order);
                meter.Handled();
                work.Watermark.Complete(work.Offset);
            }
        }))];

        consumer.Subscribe(topic);
        // A thread of its own, as its users give it: its consume call blocks.
        await Task.Factory.StartNew(
            () =>
            {
                long stored = Environment.TickCount64;
                while (!meter.Done.IsCompleted)
                {
                    // Often enough for a commit each second, and not one call into librdkafka for each record.
                    if (Environment.TickCount64 - stored >= StoreEveryMs)
                    {
                        stored = Environment.TickCount64;
                        foreach (Watermark known in partitions.Values)
                        {
                            known.Store(consumer);
                        }
                    }

                    ConsumeResult<string, byte[]>? result = consumer.Consume(TimeSpan.FromMilliseconds(100));
                    if (result is null)
                    {
                        continue;
                    }

                    if (!partitions.TryGetValue(result.Partition.Value, out Watermark? watermark))
                    {
                        watermark = new Watermark(new TopicPartition(topic, result.Partition));
                        partitions[result.Partition.Value] = watermark;
                    }

                    watermark.Start(result.Offset.Value);
                    int worker = (int)((uint)result.Message.Key.GetHashCode(StringComparison.Ordinal) % Workers);
                    var work = new Work(result.Message.Value, watermark, result.Offset.Value);
                    if (!channels[worker].Writer.TryWrite(work))
                    {
                        channels[worker].Writer.WriteAsync(work).AsTask().GetAwaiter().GetResult();
                    }
                }
            },
            CancellationToken.None,
            TaskCreationOptions.LongRunning,
            TaskScheduler.Default);
        foreach (Channel<Work> channel in channels)
        {
            channel.Writer.Complete();
        }

        await Task.WhenAll(workers);
        consumer.Close();
        meter.Print();
    }

    private readonly record struct Work(byte[] Value, Watermark Watermark, long Offset);

    /// <summary>The records of a partition in progress, in order; stores the offset after the last one without a gap.</summary>
    private sealed class Watermark(TopicPartition partition)
    {
        private readonly object _gate = new();
        private bool[] _done = new bool[1024];
        private long _first = -1;
        private long _next;

        internal void Start(long offset)
        {
            lock (_gate)
            {
                if (_first < 0)
                {
                    _first = offset;
                }

                if (offset - _first >= _done.Length)
                {
                    bool[] wider = new bool[_done.Length * 2];
                    for (long known = _first; known < _next; known++)
                    {
                        wider[known % wider.Length] = _done[known % _done.Length];
                    }

                    _done = wider;
                }

                _done[offset % _done.Length] = false;
                _next = offset + 1;
            }
        }

        internal void Complete(long offset)
        {
            lock (_gate)
            {
                _done[offset % _done.Length] = true;
                while (_first < _next && _done[_first % _done.Length])
                {
                    _first++;
                }
            }
        }

        internal void Store(IConsumer<string, byte[]> consumer)
        {
            long store;
            lock (_gate)
            {
                store = _first;
            }

            consumer.StoreOffset(new TopicPartitionOffset(partition, store));
        }
    }
}
