// What does the managed side log? Little: what its users' code did wrong and nobody would see otherwise.

using Microsoft.Extensions.Logging;
using Prosody.Logging;

namespace Prosody;

/// <summary>Managed log events, under the category <c>Prosody.Client</c>.</summary>
internal static partial class ClientLog
{
    internal static void ClassifierThrew(Type classifier, Exception thrown) => Tell(logger => ClassifierThrew(logger, classifier, thrown));

    internal static void CancellationCallbackThrew(Exception thrown) => Tell(logger => CancellationCallbackThrew(logger, thrown));

    internal static void ActivityListenerThrew(Exception thrown) => Tell(logger => ActivityListenerThrew(logger, thrown));

    internal static void ReportFailed(Exception thrown) => Tell(logger => ReportFailed(logger, thrown));

    /// <summary>These lines are written where an event ends and on threads that work for all: a sink that throws loses its line.</summary>
    private static void Tell(Action<ILogger> line)
    {
        if (LogDrain.Client is not { } logger)
        {
            return;
        }

        try
        {
            line(logger);
        }
#pragma warning disable CA1031 // Above these frames nobody catches: the process would end.
        catch (Exception)
#pragma warning restore CA1031
        {
        }
    }

    [LoggerMessage(1, LogLevel.Error, "The error classifier {Classifier} threw; the error it was asked about counts as transient. Further failures of this classifier are not logged.")]
    private static partial void ClassifierThrew(ILogger logger, Type classifier, Exception exception);

    [LoggerMessage(2, LogLevel.Warning, "A callback registered on a cancellation token of ours threw.")]
    private static partial void CancellationCallbackThrew(ILogger logger, Exception exception);

    [LoggerMessage(3, LogLevel.Warning, "A listener to the activities of handlers threw.")]
    private static partial void ActivityListenerThrew(ILogger logger, Exception exception);

    [LoggerMessage(4, LogLevel.Error, "An exception of a handler could not be reported to Sentry; its event is not affected.")]
    private static partial void ReportFailed(ILogger logger, Exception exception);
}
