// How does an option become text for the core?

using System.Globalization;
using Prosody.Interop;

namespace Prosody;

/// <summary>Writes options as texts in the form the core's table of options reads.</summary>
internal sealed class OptionWriter(List<string> problems) : OptionWalk(problems)
{
    internal List<KeyValuePair<string, string>> Pairs { get; } = [];

    internal override string? Text(string name, string? value)
    {
        if (value is not null && string.IsNullOrWhiteSpace(value))
        {
            Problem(name, "is blank; leave it null to use the variable or the default");
            return value;
        }

        return Add(name, value, value);
    }

    internal override string[]? List(string name, string[]? values, bool mayBeEmpty = false)
    {
        if (values is null)
        {
            return null;
        }

        if (values.Length == 0 && !mayBeEmpty)
        {
            Problem(name, "is empty; leave it null to use the variable or the default");
            return values;
        }

        bool good = true;
        var seen = new HashSet<string>(StringComparer.Ordinal);
        foreach (string? value in values)
        {
            string? wrong =
                string.IsNullOrWhiteSpace(value) ? "has a blank entry"
                : value.Trim().Length != value.Length ? $"has spaces around `{value}`"
                : value.Contains(',', StringComparison.Ordinal) ? $"has a comma in `{value}`; give each entry its own string"
                : !seen.Add(value) ? $"has `{value}` twice"
                : null;
            if (wrong is not null)
            {
                Problem(name, wrong);
                good = false;
            }
        }

        // A lone comma is the text of an empty list; no text at all would mean the variable.
        return good ? Add(name, values, values.Length == 0 ? "," : string.Join(',', values)) : values;
    }

    internal override int? Count(string name, int? value) => Add(name, value, value?.ToString(CultureInfo.InvariantCulture));

    internal override int? Port(string name, int? value) => Count(name, value);

    internal override long? Size(string name, long? value) => Add(name, value, value?.ToString(CultureInfo.InvariantCulture));

    internal override double? Number(string name, double? value) => Add(name, value, value?.ToString("R", CultureInfo.InvariantCulture));

    internal override bool? Flag(string name, bool? value) => Add(name, value, value is { } flag ? (flag ? "true" : "false") : null);

    internal override TimeSpan? Duration(string name, TimeSpan? value)
    {
        if (value is not { } duration)
        {
            return value;
        }

        if (duration < TimeSpan.Zero)
        {
            Problem(name, $"is negative ({duration})");
            return value;
        }

        long seconds = duration.Ticks / TimeSpan.TicksPerSecond;
        long nanoseconds = duration.Ticks % TimeSpan.TicksPerSecond * 100;
        return Add(name, value, nanoseconds == 0
            ? string.Create(CultureInfo.InvariantCulture, $"{seconds}s")
            : string.Create(CultureInfo.InvariantCulture, $"{seconds}s {nanoseconds}ns"));
    }

    internal override TimeSpan? DurationOrNone(string name, TimeSpan? value) =>
        value == Timeout.InfiniteTimeSpan ? Add(name, value, "none") : Duration(name, value);

    internal override ClientMode? Mode(string name, ClientMode? value) => Choice(name, value, value switch
    {
        null => null,
        ClientMode.Pipeline => "pipeline",
        ClientMode.LowLatency => "low-latency",
        ClientMode.BestEffort => "best-effort",
        _ => string.Empty,
    });

    internal override SpanRelation? Span(string name, SpanRelation? value) => Choice(name, value, value switch
    {
        null => null,
        SpanRelation.Child => "child",
        SpanRelation.FollowsFrom => "follows_from",
        _ => string.Empty,
    });

    private T Choice<T>(string name, T value, string? text)
    {
        if (text is { Length: 0 })
        {
            Problem(name, $"{value} is not a member of its enum");
            return value;
        }

        return Add(name, value, text);
    }

    private T Add<T>(string name, T value, string? text)
    {
        if (text is not null && !Utf8.HasForm(text))
        {
            Problem(name, "contains a lone surrogate, which has no UTF-8 form");
        }
        else if (text is not null)
        {
            Pairs.Add(new(name, text));
        }

        return value;
    }
}
