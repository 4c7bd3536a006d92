using System.Diagnostics;

namespace Prosody;

/// <summary>A Kafka message. Two messages are the same record when topic, partition and offset are equal.</summary>
/// <typeparam name="T">What the JSON payload is deserialized to.</typeparam>
/// <param name="topic">The topic's name.</param>
/// <param name="partition">The partition number.</param>
/// <param name="offset">The offset within the partition.</param>
/// <param name="timestamp">When the message was created or sent.</param>
/// <param name="key">The key.</param>
/// <param name="payload">The deserialized payload.</param>
[DebuggerDisplay("{Topic,nq}[{Partition}]@{Offset} {Key}")]
public sealed class Message<T>(string topic, int partition, long offset, DateTimeOffset timestamp, string key, T? payload)
{
    /// <summary>The topic's name.</summary>
    public string Topic { get; } = topic ?? throw new ArgumentNullException(nameof(topic));

    /// <summary>The partition number.</summary>
    public int Partition { get; } = partition;

    /// <summary>The offset within the partition.</summary>
    public long Offset { get; } = offset;

    /// <summary>When the message was created or sent, in UTC, with a precision of a millisecond.</summary>
    public DateTimeOffset Timestamp { get; } = timestamp;

    /// <summary>The key.</summary>
    public string Key { get; } = key ?? throw new ArgumentNullException(nameof(key));

    /// <summary>The payload, deserialized once before the handler is invoked. Null when the JSON is <c>null</c>.</summary>
    public T? Payload { get; } = payload;
}
