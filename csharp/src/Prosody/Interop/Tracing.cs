// Where does a handler run in a trace, and on whose behalf is something sent? Activities in, W3C contexts out.

using System.Diagnostics;
using System.Text;

namespace Prosody.Interop;

/// <summary>The bridge between the core's trace contexts and <see cref="Activity"/>.</summary>
internal static unsafe class Tracing
{
    /// <summary>The source of handlers' activities, for whoever exports spans from .NET.</summary>
    internal const string SourceName = "Prosody";

    /// <summary>Members of baggage that are carried; the core carries no more.</summary>
    private const int MaxBaggage = 64;

    private static readonly ActivitySource Source = new(SourceName);

    /// <summary>
    /// Starts the activity of a handler; null when there is nothing to carry on and nobody listens, which costs nothing.
    /// Even without a listener it must be current, or the handler's own activities would begin another trace.
    /// </summary>
    internal static Activity? Begin(in PrEvent native, string topic)
    {
        if ((native.scope->kind & NativeMethods.PR_SCOPE_HERE) == 0 && !Source.HasListeners())
        {
            return null;
        }

        try
        {
            return Start(in native, topic);
        }
#pragma warning disable CA1031 // A listener that throws must not keep a handler from running.
        catch (Exception thrown)
#pragma warning restore CA1031
        {
            ClientLog.ActivityListenerThrew(thrown);
            return null;
        }
    }

    /// <summary>Ends the activity of a handler, whose failure this is.</summary>
    internal static void End(Activity activity, Exception? failure)
    {
        // Stopping an activity makes its parent current, on a thread that may belong to whoever ended the handler's task.
        Activity? current = Activity.Current;
        try
        {
            if (failure is not null)
            {
                string message = ExceptionText.Message(failure);
                activity.SetStatus(ActivityStatusCode.Error, message);
                activity.SetTag("error.type", failure.GetType().FullName);
                activity.AddEvent(new ActivityEvent("exception", tags: new ActivityTagsCollection
                {
                    ["exception.type"] = failure.GetType().FullName,
                    ["exception.message"] = message,
                    ["exception.stacktrace"] = ExceptionText.All(failure),
                }));
            }

            activity.Stop();
        }
#pragma warning disable CA1031 // A listener that throws must not keep an event from ending.
        catch (Exception thrown)
#pragma warning restore CA1031
        {
            ClientLog.ActivityListenerThrew(thrown);
        }

        if (!ReferenceEquals(Activity.Current, current))
        {
            Activity.Current = current;
        }
    }

    /// <summary>On whose behalf this code runs: its ids, unless there is no W3C activity.</summary>
    internal static bool TryCurrent(PrTrace* trace, out byte[]? state, out byte[]? baggage)
    {
        state = baggage = null;
        if (Activity.Current is not { IdFormat: ActivityIdFormat.W3C } activity)
        {
            return false;
        }

        activity.TraceId.CopyTo(new Span<byte>(trace->trace_id, 16));
        activity.SpanId.CopyTo(new Span<byte>(trace->span_id, 8));
        trace->flags = (uint)activity.ActivityTraceFlags;
        if (activity.TraceStateString is { Length: > 0 } text)
        {
            state = Encoding.UTF8.GetBytes(text);
        }

        baggage = Baggage(activity);
        return true;
    }

    private static Activity? Start(in PrEvent native, string topic)
    {
        PrScope* scope = native.scope;
        string name = native.kind == NativeMethods.PR_EVENT_MESSAGE ? "process " + topic : "timer";
        Activity? activity = Source.HasListeners() ? Listened(in native, name, topic) : null;
        bool recorded = activity is { IsAllDataRequested: true, Recorded: true };
        if (activity is null)
        {
            if ((scope->kind & NativeMethods.PR_SCOPE_HERE) == 0)
            {
                return null;
            }

            activity = new Activity(name);
            activity.SetParentId(TraceId(&scope->here), SpanId(&scope->here), (ActivityTraceFlags)scope->here.flags);
            activity.TraceStateString = Text(scope->here.state);
            activity.Start();
        }

        AddBaggage(activity, scope->here.baggage);
        // An activity draws its own id. The core exports the handler's span under it, or not at all.
        activity.TraceId.CopyTo(new Span<byte>(scope->here.trace_id, 16));
        activity.SpanId.CopyTo(new Span<byte>(scope->here.span_id, 8));
        scope->here.flags = (uint)activity.ActivityTraceFlags;
        scope->kind |= NativeMethods.PR_SCOPE_LOCATED | (recorded ? NativeMethods.PR_SCOPE_RECORDED : 0);
        return activity;
    }

    /// <summary>An activity that somebody records; null when its sampler says no.</summary>
    private static Activity? Listened(in PrEvent native, string name, string topic)
    {
        PrScope* scope = native.scope;
        ActivityContext origin = default;
        if ((scope->kind & NativeMethods.PR_SCOPE_ORIGIN) != 0)
        {
            origin = new ActivityContext(
                TraceId(&scope->origin), SpanId(&scope->origin), (ActivityTraceFlags)scope->origin.flags, Text(scope->origin.state), isRemote: true);
        }

        bool isMessage = native.kind == NativeMethods.PR_EVENT_MESSAGE;
        bool follows = (scope->kind & NativeMethods.PR_SCOPE_FOLLOWS) != 0;
        KeyValuePair<string, object?>[] tags =
        [
            new("messaging.system", "kafka"),
            new("messaging.operation.name", "process"),
            new("messaging.operation.type", "process"),
            isMessage
                ? new("messaging.destination.name", topic)
                : new("prosody.timer.scheduled_time", native.timestamp),
            new("messaging.kafka.message.key", Text(native.key)),
            isMessage
                ? new("messaging.destination.partition.id", native.partition.ToString(System.Globalization.CultureInfo.InvariantCulture))
                : default,
            isMessage ? new("messaging.kafka.offset", native.offset) : default,
        ];
        ActivityLink[]? links = follows && origin != default ? [new ActivityLink(origin)] : null;
        return Source.StartActivity(
            name, ActivityKind.Consumer, follows ? default : origin, tags.Where(tag => tag.Key is not null), links);
    }

    private static ActivityTraceId TraceId(PrTrace* trace) => ActivityTraceId.CreateFromBytes(new ReadOnlySpan<byte>(trace->trace_id, 16));

    private static ActivitySpanId SpanId(PrTrace* trace) => ActivitySpanId.CreateFromBytes(new ReadOnlySpan<byte>(trace->span_id, 8));

    private static string? Text(PrBytes bytes) => bytes.len == 0 ? null : Utf8.Decode(bytes);

    /// <summary>W3C Baggage into the activity. Properties of members are not for .NET, which has no place for them.</summary>
    private static void AddBaggage(Activity activity, PrBytes baggage)
    {
        if (Text(baggage) is not { } text)
        {
            return;
        }

        foreach (string member in text.Split(','))
        {
            string pair = member.Split(';')[0];
            int equals = pair.IndexOf('=', StringComparison.Ordinal);
            if (equals > 0)
            {
                activity.AddBaggage(pair[..equals].Trim(), Uri.UnescapeDataString(pair[(equals + 1)..].Trim()));
            }
        }
    }

    private static byte[]? Baggage(Activity activity)
    {
        StringBuilder? text = null;
        int count = 0;
        foreach (KeyValuePair<string, string?> member in activity.Baggage)
        {
            if (++count > MaxBaggage)
            {
                break;
            }

            text = text is null ? new() : text.Append(',');
            text.Append(Uri.EscapeDataString(member.Key)).Append('=').Append(Uri.EscapeDataString(member.Value ?? string.Empty));
        }

        return text is null ? null : Encoding.UTF8.GetBytes(text.ToString());
    }
}
