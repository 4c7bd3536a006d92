// The peer: Confluent.Kafka with the keyed worker pool of a user who has looked at a profile. 32 bounded channels by key
// hash, which take records in batches; bytes that are neither copied nor allocated one by one; source-generated JSON;
// offsets stored only when every earlier record of the partition is handled.

using System.Text.Json;
using System.Threading.Channels;
using Confluent.Kafka;

namespace Prosody.Benchmarks;

internal static class ConfluentConsumer
{
    private const int Workers = 32;
    private const int BatchRecords = 128;
    private const int QueuedBatches = 16;
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

        using IConsumer<int, Slice> consumer = new ConsumerBuilder<int, Slice>(config)
            .SetKeyDeserializer(new WorkerOfKey()).SetValueDeserializer(new Copies()).Build();
        var partitions = new Dictionary<int, Watermark>();
        Worker[] workers = [.. Enumerable.Range(0, Workers).Select(_ => new Worker(meter))];

        consumer.Subscribe(topic);
        // A thread of its own, as its users give it: its consume call blocks.
        await Task.Factory.StartNew(
            () =>
            {
                long stored = Environment.TickCount64;
                for (uint seen = 0; !meter.Done.IsCompleted; seen++)
                {
                    // Often enough for a commit each second, and not one call into librdkafka for each record.
                    if (seen % 1024 == 0 && Environment.TickCount64 - stored >= StoreEveryMs)
                    {
                        stored = Environment.TickCount64;
                        foreach (Watermark known in partitions.Values)
                        {
                            known.Store(consumer);
                        }
                    }

                    ConsumeResult<int, Slice>? result = consumer.Consume(0);
                    if (result is null)
                    {
                        // Nothing more for now: what is collected must not wait.
                        foreach (Worker worker in workers)
                        {
                            worker.HandOver();
                        }

                        seen = uint.MaxValue;
                        result = consumer.Consume(StoreEveryMs);
                        if (result is null)
                        {
                            continue;
                        }
                    }

                    if (!partitions.TryGetValue(result.Partition.Value, out Watermark? watermark))
                    {
                        watermark = new Watermark(new TopicPartition(topic, result.Partition));
                        partitions[result.Partition.Value] = watermark;
                    }

                    watermark.Start(result.Offset.Value);
                    workers[result.Message.Key].Add(new Work(result.Message.Value, watermark, result.Offset.Value));
                }
            },
            CancellationToken.None,
            TaskCreationOptions.LongRunning,
            TaskScheduler.Default);
        await Task.WhenAll(workers.Select(static worker => worker.End()));
        consumer.Close();
        meter.Print();
    }

    private readonly record struct Slice(byte[] Bytes, int Start, int Length);

    private readonly record struct Work(Slice Value, Watermark Watermark, long Offset);

    /// <summary>The worker of a key, without a string for the key.</summary>
    private sealed class WorkerOfKey : IDeserializer<int>
    {
        public int Deserialize(ReadOnlySpan<byte> data, bool isNull, SerializationContext context)
        {
            uint hash = 2_166_136_261;
            foreach (byte each in data)
            {
                hash = (hash ^ each) * 16_777_619;
            }

            return (int)(hash % Workers);
        }
    }

    /// <summary>Values one behind the other in large arrays.</summary>
    private sealed class Copies : IDeserializer<Slice>
    {
        private const int ChunkBytes = 64 * 1024;
        private byte[] _chunk = new byte[ChunkBytes];
        private int _used;

        public Slice Deserialize(ReadOnlySpan<byte> data, bool isNull, SerializationContext context)
        {
            if (data.Length > _chunk.Length - _used)
            {
                _chunk = new byte[Math.Max(ChunkBytes, data.Length)];
                _used = 0;
            }

            data.CopyTo(_chunk.AsSpan(_used));
            var slice = new Slice(_chunk, _used, data.Length);
            _used += data.Length;
            return slice;
        }
    }

    private sealed class Worker
    {
        private readonly Channel<List<Work>> _batches = Channel.CreateBounded<List<Work>>(
            new BoundedChannelOptions(QueuedBatches) { SingleReader = true, SingleWriter = true });

        /// <summary>Lists that were handled, to be filled again.</summary>
        private readonly Channel<List<Work>> _free = Channel.CreateUnbounded<List<Work>>(
            new UnboundedChannelOptions { SingleReader = true, SingleWriter = true });

        private readonly Meter _meter;
        private readonly Task _running;
        private List<Work> _collected = new(BatchRecords);

        internal Worker(Meter meter)
        {
            _meter = meter;
            _running = Task.Run(WorkAsync);
        }

        internal void Add(Work work)
        {
            _collected.Add(work);
            if (_collected.Count == BatchRecords)
            {
                HandOver();
            }
        }

        internal void HandOver()
        {
            if (_collected.Count == 0)
            {
                return;
            }

            if (!_batches.Writer.TryWrite(_collected))
            {
                _batches.Writer.WriteAsync(_collected).AsTask().GetAwaiter().GetResult();
            }

            if (!_free.Reader.TryRead(out List<Work>? free))
            {
                free = new(BatchRecords);
            }

            _collected = free;
        }

        internal Task End()
        {
            _batches.Writer.Complete();
            return _running;
        }

        private async Task WorkAsync()
        {
            await foreach (List<Work> batch in _batches.Reader.ReadAllAsync())
            {
                foreach (Work work in batch)
                {
                    Slice value = work.Value;
                    Order? order = JsonSerializer.Deserialize(value.Bytes.AsSpan(value.Start, value.Length), BenchContext.Default.Order);
                    ArgumentNullException.ThrowIfNull(order);
                    _meter.Handled();
                    work.Watermark.Complete(work.Offset);
                }

                batch.Clear();
                _free.Writer.TryWrite(batch);
            }
        }
    }

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
                        wider[known & (wider.Length - 1)] = _done[known & (_done.Length - 1)];
                    }

                    _done = wider;
                }

                _done[offset & (_done.Length - 1)] = false;
                _next = offset + 1;
            }
        }

        internal void Complete(long offset)
        {
            lock (_gate)
            {
                _done[offset & (_done.Length - 1)] = true;
                while (_first < _next && _done[_first & (_done.Length - 1)])
                {
                    _first++;
                }
            }
        }

        internal void Store(IConsumer<int, Slice> consumer)
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
