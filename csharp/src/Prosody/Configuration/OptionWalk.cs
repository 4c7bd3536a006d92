// What can be done with every option in turn? They are written for the core, and read from a host's configuration.

using System.Text;

namespace Prosody;

/// <summary>Visits each option by its kind; what a method returns becomes the option's value.</summary>
internal abstract class OptionWalk(List<string> problems)
{
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

    internal abstract string? Text(string name, string? value);

    internal abstract string[]? List(string name, string[]? values, bool mayBeEmpty = false);

    internal abstract int? Count(string name, int? value);

    /// <summary>A count of which <c>none</c> means 0.</summary>
    internal abstract int? Port(string name, int? value);

    /// <summary>A count of bytes.</summary>
    internal abstract long? Size(string name, long? value);

    internal abstract double? Number(string name, double? value);

    internal abstract bool? Flag(string name, bool? value);

    internal abstract TimeSpan? Duration(string name, TimeSpan? value);

    /// <summary>A duration that may also be infinite, which is written <c>none</c>.</summary>
    internal abstract TimeSpan? DurationOrNone(string name, TimeSpan? value);

    internal abstract ClientMode? Mode(string name, ClientMode? value);

    internal abstract SpanRelation? Span(string name, SpanRelation? value);

    protected void Problem(string name, string why) => problems.Add($"{Name(name)}: {why}");

    /// <summary>What the user calls the option.</summary>
    protected virtual string Name(string name) => $"{name} ({Variable(name)})";
}
