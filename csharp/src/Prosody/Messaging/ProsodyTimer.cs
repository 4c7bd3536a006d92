using System.Diagnostics;

namespace Prosody;

/// <summary>A timer that fired.</summary>
/// <param name="key">The key the timer belongs to.</param>
/// <param name="time">When it was scheduled to fire.</param>
[DebuggerDisplay("{Key} at {Time}")]
public sealed class ProsodyTimer(string key, DateTimeOffset time)
{
    /// <summary>The key the timer belongs to.</summary>
    public string Key { get; } = key ?? throw new ArgumentNullException(nameof(key));

    /// <summary>When it was scheduled to fire: whole seconds, in UTC.</summary>
    public DateTimeOffset Time { get; } = time;
}
