// How do native log lines arrive? One thread of the process takes them from the native ring in batches.

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
        var reader = new NativeReader(bytes);
        while (!reader.IsAtEnd)
        {
            const int LengthBytes = 4;
            var line = new NativeReader(reader.Take(reader.Count() - LengthBytes));
            int level = line.Count();
            uint number = (uint)line.Count();
            var fields = new KeyValuePair<string, string>[line.Count()];
            (string target, string file, string message) = (line.Text(), line.Text(), line.Text());
            for (int i = 0; i < fields.Length; i++)
            {
                fields[i] = new(line.Text(), line.Text());
            }

            lines.Add(new(level, number, target, file, message, fields));
        }
    }
}
