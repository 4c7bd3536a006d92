// How is a payload serialized without garbage? Into a buffer that each thread keeps.

using System.Buffers;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;

namespace Prosody;

/// <summary>One thread's buffer and writer for payloads.</summary>
#pragma warning disable CA1001 // Lives as long as its thread, and disposing of the writer only flushes it.
internal sealed class PayloadWriter
#pragma warning restore CA1001
{
    /// <summary>A buffer that grew beyond this is not kept.</summary>
    private const int KeptBytes = 256 * 1024;

    [ThreadStatic]
    private static PayloadWriter? _idle;

    private readonly ArrayBufferWriter<byte> _buffer = new(512);
    private readonly JsonSerializerOptions _options;
    private readonly Utf8JsonWriter _writer;

    private PayloadWriter(JsonSerializerOptions options)
    {
        _options = options;
        var writerOptions = new JsonWriterOptions
        {
            Encoder = options.Encoder,
            Indented = options.WriteIndented,
            MaxDepth = options.MaxDepth,
#if NET9_0_OR_GREATER
            IndentCharacter = options.IndentCharacter,
            IndentSize = options.IndentSize,
            NewLine = options.NewLine,
#endif
            // The serializer writes nothing invalid; checking it again costs a fifth of its time.
            SkipValidation = true,
        };
        _writer = new Utf8JsonWriter(_buffer, writerOptions);
    }

    /// <summary>Serializes a payload. The bytes live until the lease is disposed.</summary>
    internal static Lease Write<T>(T payload, JsonTypeInfo<T> typeInfo)
    {
        PayloadWriter? writer = _idle;
        // Taken out while in use: a converter may send a message of its own.
        _idle = null;
        if (writer is null || !ReferenceEquals(writer._options, typeInfo.Options))
        {
            writer = new PayloadWriter(typeInfo.Options);
        }

        JsonSerializer.Serialize(writer._writer, payload, typeInfo);
        writer._writer.Flush();
        return new Lease(writer);
    }

    internal readonly ref struct Lease(PayloadWriter writer)
    {
        internal ReadOnlySpan<byte> Bytes => writer._buffer.WrittenSpan;

        public void Dispose()
        {
            if (writer._buffer.Capacity <= KeptBytes)
            {
                writer._buffer.ResetWrittenCount();
                writer._writer.Reset();
                _idle = writer;
            }
        }
    }
}
