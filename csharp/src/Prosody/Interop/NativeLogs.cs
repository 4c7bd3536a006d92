// How do native log lines arrive? One thread of the process takes them from the native ring in batches.

using System.Buffers.Binary;
using System.Text;

namespace Prosody.Interop;

/// <summary>One native log line.</summary>
internal readonly record struct NativeLogLine(
    int Level, uint Line, string Target, string File, string Message, KeyValuePair<string, string>[] Fields);

/// <summary>The native log ring.</summary>
internal static unsafe class NativeLogs
{
    private const int BufferBytes = 64 * 1024;

    internal static void Configure(string directives, int highest)
    {
        Native.EnsureLoaded();
        byte[] bytes = Encoding.UTF8.GetBytes(directives);
        fixed (byte* text = bytes)
        {
            NativeMethods.pr_logs_configure(new PrBytes { data = text, len = (uint)bytes.Length }, highest);
        }
    }

    /// <summary>Waits for lines; returns how many were lost since the last call.</summary>
    internal static ulong Take(byte[] buffer, uint timeoutMilliseconds, List<NativeLogLine> lines)
    {
        uint written = 0;
        ulong dropped = 0;
        fixed (byte* place = buffer)
        {
            NativeMethods.pr_logs_take(place, (uint)buffer.Length, timeoutMilliseconds, &written, &dropped);
        }

        Parse(buffer.AsSpan(0, (int)written), lines);
        return dropped;
    }

    internal static byte[] NewBuffer() => new byte[BufferBytes];

    internal static void Wake() => NativeMethods.pr_logs_wake();

    internal static void Parse(ReadOnlySpan<byte> bytes, List<NativeLogLine> lines)
    {
        while (bytes.Length >= 16)
        {
            int length = BinaryPrimitives.ReadInt32LittleEndian(bytes);
            ReadOnlySpan<byte> line = bytes[4..length];
            int level = BinaryPrimitives.ReadInt32LittleEndian(line);
            uint number = BinaryPrimitives.ReadUInt32LittleEndian(line[4..]);
            int fieldCount = BinaryPrimitives.ReadInt32LittleEndian(line[8..]);
            line = line[12..];
            string target = ReadText(ref line);
            string file = ReadText(ref line);
            string message = ReadText(ref line);
            var fields = new KeyValuePair<string, string>[fieldCount];
            for (int i = 0; i < fieldCount; i++)
            {
                fields[i] = new(ReadText(ref line), ReadText(ref line));
            }

            lines.Add(new(level, number, target, file, message, fields));
            bytes = bytes[length..];
        }
    }

    private static string ReadText(ref ReadOnlySpan<byte> bytes)
    {
        int length = BinaryPrimitives.ReadInt32LittleEndian(bytes);
        string text = Encoding.UTF8.GetString(bytes.Slice(4, length));
        bytes = bytes[(4 + length)..];
        return text;
    }
}
