// How does an option become text for the core?

using System.Globalization;
using System.Text;

namespace Prosody;

/// <summary>Writes options as texts in the form the core's table of options reads.</summary>
internal sealed class OptionWriter(List<string> problems)
{
    internal List<KeyValuePair<string, string>> Pairs { get; } = [];

    /// <summary>The variable of an option; one of them has a name of its own.</summary>
    internal static string Variable(string name)
    {
        switch (name)
        {
            case "MaxRetryDelay":
                return "PROSODY_RETRY_MAX_DELAY";
            default:
                var text = new StringBuilder("PROSODY_");
                for (int i = 0; i < name.Length; i++)
                {
                    if (i > 0 && char.IsUpper(name[i]))
                    {
                        text.Append('_');
                    }

                    text.Append(char.ToUpperInvariant(name[i]));
                }

                return text.ToString();
        }
    }

    internal void Text(string name, string? value)
    {
        if (value is null)
        {
            return;
        }

        if (string.IsNullOrWhiteSpace(value))
        {
            Problem(name, "is blank; leave it null to use the variable or the default");
            return;
        }

        Add(name, value);
    }

    internal void List(string name, string[]? values, bool mayBeEmpty = false)
    {
        if (values is null)
        {
            return;
        }

        if (values.Length == 0 && !mayBeEmpty)
        {
            Problem(name, "is empty; leave it null to use the variable or the default");
            return;
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

        if (good)
        {
            // A lone comma is the text of an empty list; no text at all would mean the variable.
            Add(name, values.Length == 0 ? "," : string.Join(',', values));
        }
    }

    internal void Count(string name, long? value)
    {
        if (value is { } number)
        {
            Add(name, number.ToString(CultureInfo.InvariantCulture));
        }
    }

    internal void Number(string name, double? value)
    {
        if (value is { } number)
        {
            Add(name, number.ToString("R", CultureInfo.InvariantCulture));
        }
    }

    internal void Flag(string name, bool? value)
    {
        if (value is { } flag)
        {
            Add(name, flag ? "true" : "false");
        }
    }

    internal void Duration(string name, TimeSpan? value)
    {
        if (value is not { } duration)
        {
            return;
        }

        if (duration < TimeSpan.Zero)
        {
            Problem(name, $"is negative ({duration})");
            return;
        }

        long seconds = duration.Ticks / TimeSpan.TicksPerSecond;
        long nanoseconds = duration.Ticks % TimeSpan.TicksPerSecond * 100;
        Add(name, nanoseconds == 0
            ? string.Create(CultureInfo.InvariantCulture, $"{seconds}s")
            : string.Create(CultureInfo.InvariantCulture, $"{seconds}s {nanoseconds}ns"));
    }

    internal void DurationOrNone(string name, TimeSpan? value)
    {
        if (value == Timeout.InfiniteTimeSpan)
        {
            Add(name, "none");
        }
        else
        {
            Duration(name, value);
        }
    }

    internal void Mode(string name, ClientMode? value)
    {
        string? text = value switch
        {
            null => null,
            ClientMode.Pipeline => "pipeline",
            ClientMode.LowLatency => "low-latency",
            ClientMode.BestEffort => "best-effort",
            _ => string.Empty,
        };
        Choice(name, text, value);
    }

    internal void Span(string name, SpanRelation? value)
    {
        string? text = value switch
        {
            null => null,
            SpanRelation.Child => "child",
            SpanRelation.FollowsFrom => "follows_from",
            _ => string.Empty,
        };
        Choice(name, text, value);
    }

    private void Choice(string name, string? text, object? value)
    {
        if (text is { Length: 0 })
        {
            Problem(name, $"{value} is not a member of its enum");
        }
        else if (text is not null)
        {
            Add(name, text);
        }
    }

    private void Problem(string name, string why) => problems.Add($"{name} ({Variable(name)}): {why}");

    private void Add(string name, string value) => Pairs.Add(new(name, value));
}
