// Who else hears of a handler's exception? Sentry, where the application uses it.

using System.Globalization;

namespace Prosody;

/// <summary>
/// Hands exceptions of handlers to the small assembly that knows Sentry. It is found by name, once per process, so that this
/// one needs no reference; without it there are no reports.
/// </summary>
internal static class ErrorReport
{
    private static readonly Lazy<Action<Exception, string, string, IReadOnlyDictionary<string, string>>?> Sink = new(Find);

    /// <summary>Reports what a message's handler threw, or its deserialization.</summary>
    internal static void Message(Exception thrown, bool isPermanent, string topic, string key, int partition, long offset) => Send(
        thrown,
        "message",
        isPermanent,
        new()
        {
            ["topic"] = topic,
            ["key"] = key,
            ["partition"] = partition.ToString(CultureInfo.InvariantCulture),
            ["offset"] = offset.ToString(CultureInfo.InvariantCulture),
        });

    /// <summary>Reports what a timer's handler threw.</summary>
    internal static void Timer(Exception thrown, bool isPermanent, string key, long seconds) => Send(
        thrown,
        "timer",
        isPermanent,
        new() { ["key"] = key, ["time"] = DateTimeOffset.FromUnixTimeSeconds(seconds).ToString("O", CultureInfo.InvariantCulture) });

    private static void Send(Exception thrown, string eventType, bool isPermanent, Dictionary<string, string> context)
    {
        try
        {
            Sink.Value?.Invoke(thrown, eventType, isPermanent ? "permanent" : "transient", context);
        }
#pragma warning disable CA1031 // A report that fails changes nothing for the event.
        catch (Exception failure)
#pragma warning restore CA1031
        {
            ClientLog.ReportFailed(failure);
        }
    }

    /// <summary>Constant names: the trimmer understands them and keeps what they mean.</summary>
    private static Action<Exception, string, string, IReadOnlyDictionary<string, string>>? Find() =>
        Type.GetType("Prosody.Sentry.SentryReporter, Prosody.Sentry", throwOnError: false)?.GetMethod("Report")
            ?.CreateDelegate<Action<Exception, string, string, IReadOnlyDictionary<string, string>>>();
}
