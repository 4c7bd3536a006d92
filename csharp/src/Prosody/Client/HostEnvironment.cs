// Which variables does the core get? It never reads the environment itself: what a program sets for itself is invisible
// to native code.

using System.Collections;

namespace Prosody;

/// <summary>The variables of this process that concern the core.</summary>
internal static class HostEnvironment
{
    internal static List<KeyValuePair<string, string>> Read()
    {
        var found = new List<KeyValuePair<string, string>>();
        foreach (DictionaryEntry variable in Environment.GetEnvironmentVariables())
        {
            if (variable is { Key: string name, Value: string value }
                && name != Interop.Native.PathVariable
                && (name.StartsWith("PROSODY_", StringComparison.Ordinal) || name.StartsWith("OTEL_", StringComparison.Ordinal)))
            {
                found.Add(new(name, value));
            }
        }

        // The order of the environment is nobody's; messages about it should not differ from run to run.
        found.Sort(static (a, b) => string.CompareOrdinal(a.Key, b.Key));
        return found;
    }
}
