using Sentry;

namespace Prosody.Sentry;

/// <summary>Reports exceptions of handlers to Sentry, when the application has initialized it.</summary>
public static class SentryReporter
{
    /// <summary>Captures an exception. Does nothing unless Sentry is initialized.</summary>
    /// <param name="exception">What the handler threw.</param>
    /// <param name="eventType">The tag <c>prosody.event_type</c>: <c>message</c> or <c>timer</c>.</param>
    /// <param name="errorClass">The tag <c>prosody.error_class</c>: <c>transient</c> or <c>permanent</c>.</param>
    /// <param name="context">The context <c>prosody</c>: which event it was.</param>
    public static void Report(Exception exception, string eventType, string errorClass, IReadOnlyDictionary<string, string> context)
    {
        if (!SentrySdk.IsEnabled)
        {
            return;
        }

        SentrySdk.CaptureException(exception, scope =>
        {
            scope.SetTag("prosody.event_type", eventType);
            scope.SetTag("prosody.error_class", errorClass);
            scope.Contexts["prosody"] = context;
        });
    }
}
