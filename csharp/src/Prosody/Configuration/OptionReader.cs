// How is a section of a host's configuration read into options? Without reflection, so also in a trimmed program.

using System.Globalization;
using Microsoft.Extensions.Configuration;

namespace Prosody;

/// <summary>Sets every option that the section has; the others stay as they are. A blank value counts as absent.</summary>
internal sealed class OptionReader(IConfigurationSection section, List<string> problems) : OptionWalk(problems)
{
    private readonly HashSet<string> _known = new(StringComparer.OrdinalIgnoreCase);

    internal static void Read(IConfigurationSection section, ClientOptions options, List<string> problems)
    {
        var reader = new OptionReader(section, problems);
        options.Walk(reader);
        // A misspelt option would silently have its default. Sections inside belong to somebody else.
        foreach (IConfigurationSection child in section.GetChildren())
        {
            if (child.Value is not null && !reader._known.Contains(child.Key))
            {
                reader.Problem(child.Key, "there is no such option");
            }
        }
    }

    internal override string? Text(string name, string? value) => Find(name) ?? value;

    internal override string[]? List(string name, string[]? values, bool mayBeEmpty = false)
    {
        if (Find(name) is { } text)
        {
            return text.Split(',', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries);
        }

        string[] entries = [.. section.GetSection(name).GetChildren().Select(static entry => entry.Value).OfType<string>()];
        return entries.Length == 0 ? values : entries;
    }

    internal override int? Count(string name, int? value) => Parse(name, value, static (string text, out int? number) =>
    {
        number = int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out int found) ? found : null;
        return number is not null || IsNone(text);
    }, "a whole number");

    internal override int? Port(string name, int? value) => Find(name) is { } text && IsNone(text) ? 0 : Count(name, value);

    internal override long? Size(string name, long? value) =>
        Parse<long?>(name, value, HumanText.TryReadSize, "a size; write bytes, or a number with KiB, MiB or GiB");

    internal override double? Number(string name, double? value) => Parse(name, value, static (string text, out double? number) =>
    {
        number = double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out double found) ? found : null;
        return number is not null;
    }, "a number");

    internal override bool? Flag(string name, bool? value) => Parse(name, value, static (string text, out bool? flag) =>
    {
        flag = bool.TryParse(text, out bool found) ? found : null;
        return flag is not null;
    }, "`true` or `false`");

    internal override TimeSpan? Duration(string name, TimeSpan? value) =>
        Parse<TimeSpan?>(name, value, HumanText.TryReadDuration, "a duration; write one like `00:00:15`, `15s` or `1h 30m`");

    internal override TimeSpan? DurationOrNone(string name, TimeSpan? value) =>
        Find(name) is { } text && IsNone(text) ? Timeout.InfiniteTimeSpan : Duration(name, value);

    internal override ClientMode? Mode(string name, ClientMode? value) => Choice(name, value);

    internal override SpanRelation? Span(string name, SpanRelation? value) => Choice(name, value);

    protected override string Name(string name) => $"{section.Path}:{name}";

    private static bool IsNone(string text) => text.Equals("none", StringComparison.OrdinalIgnoreCase);

    /// <summary>As the enum spells a member, or as the environment does: <c>LowLatency</c>, <c>low-latency</c>.</summary>
    private T? Choice<T>(string name, T? value)
        where T : struct, Enum => Parse(name, value, static (string text, out T? choice) =>
        {
            string plain = text.Replace("-", string.Empty, StringComparison.Ordinal).Replace("_", string.Empty, StringComparison.Ordinal);
            bool isNumber = plain.Length > 0 && !char.IsLetter(plain[0]);
            choice = !isNumber && Enum.TryParse(plain, ignoreCase: true, out T found) && Enum.IsDefined(found) ? found : null;
            return choice is not null;
        }, "one of " + string.Join(", ", Enum.GetNames<T>()));

    private T Parse<T>(string name, T value, Parser<T> parse, string kind)
    {
        if (Find(name) is not { } text)
        {
            return value;
        }

        if (parse(text, out T read))
        {
            return read;
        }

        Problem(name, $"`{text}` is not {kind}");
        return value;
    }

    private string? Find(string name)
    {
        _known.Add(name);
        string? text = section[name]?.Trim();
        return string.IsNullOrEmpty(text) ? null : text;
    }

    private delegate bool Parser<T>(string text, out T value);
}
