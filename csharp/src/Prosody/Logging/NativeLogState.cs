// What does a structured logger see of a native line?

using System.Collections;
using System.Globalization;
using System.Text;
using Microsoft.Extensions.Logging;
using Prosody.Interop;

namespace Prosody.Logging;

/// <summary>Ordered names and values: target, message, file and line when known, the line's own fields, the original format.</summary>
internal sealed class NativeLogState : IReadOnlyList<KeyValuePair<string, object?>>
{
    internal static readonly Func<NativeLogState, Exception?, string> Format = static (state, _) => state.ToString();

    private readonly List<KeyValuePair<string, object?>> _values = [];
    private readonly NativeLogLine _line;

    internal NativeLogState(NativeLogLine line)
    {
        _line = line;
        _values.Add(new("target", line.Target));
        _values.Add(new("message", line.Message));
        if (line.File.Length > 0)
        {
            _values.Add(new("file", line.File));
            _values.Add(new("line", line.Line));
        }

        foreach ((string name, string value) in line.Fields)
        {
            _values.Add(new(name, value));
        }

        _values.Add(new("{OriginalFormat}", "{message}"));
    }

    /// <inheritdoc/>
    public int Count => _values.Count;

    /// <inheritdoc/>
    public KeyValuePair<string, object?> this[int index] => _values[index];

    /// <inheritdoc/>
    public IEnumerator<KeyValuePair<string, object?>> GetEnumerator() => _values.GetEnumerator();

    /// <inheritdoc/>
    IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

    /// <summary>The message and its fields.</summary>
    /// <returns>One line of text.</returns>
    public override string ToString()
    {
        var text = new StringBuilder(_line.Message);
        foreach ((string name, string value) in _line.Fields)
        {
            text.Append(CultureInfo.InvariantCulture, $" {name}={value}");
        }

        return text.ToString();
    }

    internal static LogLevel LevelOf(int native) => native switch
    {
        1 => LogLevel.Error,
        2 => LogLevel.Warning,
        3 => LogLevel.Information,
        4 => LogLevel.Debug,
        _ => LogLevel.Trace,
    };
}
