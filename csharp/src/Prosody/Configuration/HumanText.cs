// How do people write durations and sizes? As the environment's variables take them, so that a value can move between
// both.

using System.Globalization;

namespace Prosody;

/// <summary>Reads durations and sizes.</summary>
internal static class HumanText
{
    private static readonly (string[] Names, long Ticks)[] TimeUnits =
    [
        (["us", "usec", "µs", "micros"], TimeSpan.TicksPerMicrosecond),
        (["ms", "msec", "millis", "millisecond", "milliseconds"], TimeSpan.TicksPerMillisecond),
        (["s", "sec", "secs", "second", "seconds"], TimeSpan.TicksPerSecond),
        (["m", "min", "mins", "minute", "minutes"], TimeSpan.TicksPerMinute),
        (["h", "hr", "hrs", "hour", "hours"], TimeSpan.TicksPerHour),
        (["d", "day", "days"], TimeSpan.TicksPerDay),
        (["w", "week", "weeks"], 7 * TimeSpan.TicksPerDay),
        (["M", "month", "months"], 2_630_016 * TimeSpan.TicksPerSecond),
        (["y", "year", "years"], 31_557_600 * TimeSpan.TicksPerSecond),
    ];

    private static readonly (string[] Names, long Bytes)[] SizeUnits =
    [
        (["", "b"], 1), (["k", "kb"], 1_000), (["ki", "kib"], 1L << 10), (["m", "mb"], 1_000_000),
        (["mi", "mib"], 1L << 20), (["g", "gb"], 1_000_000_000), (["gi", "gib"], 1L << 30),
    ];

    /// <summary>Reads <c>15s</c>, <c>1h 30m</c>, and what a <see cref="TimeSpan"/> prints, <c>00:00:15</c>.</summary>
    internal static bool TryReadDuration(string text, out TimeSpan? duration)
    {
        duration = null;
        if (text.Contains(':', StringComparison.Ordinal))
        {
            duration = TimeSpan.TryParse(text, CultureInfo.InvariantCulture, out TimeSpan span) ? span : null;
            return duration is not null;
        }

        long ticks = 0;
        ReadOnlySpan<char> rest = text.AsSpan().Trim();
        if (rest is not "0")
        {
            do
            {
                if (!TryReadPart(ref rest, TimeUnits, StringComparison.Ordinal, ref ticks))
                {
                    return false;
                }
            }
            while (!rest.IsEmpty);
        }

        duration = TimeSpan.FromTicks(ticks);
        return true;
    }

    /// <summary>Reads <c>67108864</c>, <c>64MiB</c>, <c>1 GB</c>.</summary>
    internal static bool TryReadSize(string text, out long? size)
    {
        long bytes = 0;
        ReadOnlySpan<char> rest = text.AsSpan().Trim();
        size = TryReadPart(ref rest, SizeUnits, StringComparison.OrdinalIgnoreCase, ref bytes) && rest.IsEmpty ? bytes : null;
        return size is not null;
    }

    private static bool TryReadPart(ref ReadOnlySpan<char> rest, (string[] Names, long Factor)[] units, StringComparison comparison, ref long total)
    {
        int digits = 0;
        while (digits < rest.Length && char.IsAsciiDigit(rest[digits]))
        {
            digits++;
        }

        if (!long.TryParse(rest[..digits], NumberStyles.None, CultureInfo.InvariantCulture, out long number))
        {
            return false;
        }

        rest = rest[digits..].TrimStart();
        int letters = 0;
        while (letters < rest.Length && char.IsLetter(rest[letters]))
        {
            letters++;
        }

        ReadOnlySpan<char> unit = rest[..letters];
        rest = rest[letters..].TrimStart();
        foreach ((string[] names, long factor) in units)
        {
            foreach (string name in names)
            {
                if (unit.Equals(name, comparison))
                {
                    Int128 sum = ((Int128)number * factor) + total;
                    total = (long)Int128.Min(sum, long.MaxValue);
                    return sum <= long.MaxValue;
                }
            }
        }

        return false;
    }
}
