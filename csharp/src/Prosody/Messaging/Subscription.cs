// What runs an event: which handler, how its payload is read, and which of its exceptions are permanent.

using System.Diagnostics.CodeAnalysis;
using System.Reflection;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using Prosody.Interop;

namespace Prosody;

/// <summary>A subscribed handler, without its payload's type.</summary>
internal abstract class Subscription(object handler, IPermanentErrorClassifier classifier)
{
    private int _classifierFailed;

    internal Type HandlerType => handler.GetType();

    /// <summary>Deserializes and starts the handler; null when the handler gave no task.</summary>
    internal abstract Task? RunMessage(EventItem item, ProsodyContext context);

    /// <summary>Starts the handler of a timer; null when the handler gave no task.</summary>
    internal abstract Task? RunTimer(EventItem item, ProsodyContext context);

    /// <summary>Whether a retry cannot help. The exception is judged as thrown, never unwrapped.</summary>
    internal bool IsPermanent(Exception thrown, bool isTimer)
    {
        if (thrown is IPermanentError)
        {
            return true;
        }

        try
        {
            return isTimer ? classifier.IsTimerErrorPermanent(thrown) : classifier.IsMessageErrorPermanent(thrown);
        }
#pragma warning disable CA1031 // A classifier that throws must not decide, and must not end the dispatcher.
        catch (Exception failure)
#pragma warning restore CA1031
        {
            if (Interlocked.Exchange(ref _classifierFailed, 1) == 0)
            {
                ClientLog.ClassifierThrew(classifier.GetType(), failure);
            }

            return false;
        }
    }
}

/// <summary>A subscribed handler.</summary>
internal sealed class Subscription<T>(IProsodyHandler<T> handler, IPermanentErrorClassifier classifier, JsonTypeInfo<T> payload)
    : Subscription(handler, classifier)
{
    private static readonly long FirstMillisecond = DateTimeOffset.MinValue.ToUnixTimeMilliseconds();
    private static readonly long LastMillisecond = DateTimeOffset.MaxValue.ToUnixTimeMilliseconds();

    internal override Task? RunMessage(EventItem item, ProsodyContext context)
    {
        T? value;
        try
        {
            value = JsonSerializer.Deserialize(item.Payload, payload);
        }
        catch (JsonException)
        {
            item.IsUnreadable = true;
            throw;
        }

        var message = new Message<T>(item.Topic, item.Partition, item.Offset, Time(item.Timestamp), item.ReadKey(), value);
        return handler.OnMessageAsync(context, message, context.CancellationToken);
    }

    internal override Task? RunTimer(EventItem item, ProsodyContext context)
    {
        var timer = new ProsodyTimer(item.ReadKey(), DateTimeOffset.FromUnixTimeSeconds(item.Timestamp));
        return handler.OnTimerAsync(context, timer, context.CancellationToken);
    }

    /// <summary>A producer may write any number as a timestamp; those beyond the calendar end at its ends.</summary>
    private static DateTimeOffset Time(long milliseconds) =>
        DateTimeOffset.FromUnixTimeMilliseconds(Math.Clamp(milliseconds, FirstMillisecond, LastMillisecond));
}

/// <summary>Classifies by the attributes of the handler's two methods.</summary>
internal sealed class AttributeClassifier : IPermanentErrorClassifier
{
    private readonly Type[] _message;
    private readonly Type[] _timer;

    private AttributeClassifier(Type[] message, Type[] timer)
    {
        _message = message;
        _timer = timer;
    }

    /// <summary>What the methods of a handler say; the caller sees to it that they are kept by trimming.</summary>
    internal static AttributeClassifier Of<T>(Type handler)
    {
        // The map also knows explicit implementations. A default body is the interface's own method.
        InterfaceMapping map = handler.GetInterfaceMap(typeof(IProsodyHandler<T>));
        return new(
            Permanent(map, nameof(IProsodyHandler<T>.OnMessageAsync)),
            Permanent(map, nameof(IProsodyHandler<T>.OnTimerAsync)));
    }

    /// <inheritdoc/>
    public bool IsMessageErrorPermanent(Exception exception) => IsOneOf(_message, exception);

    /// <inheritdoc/>
    public bool IsTimerErrorPermanent(Exception exception) => IsOneOf(_timer, exception);

    private static Type[] Permanent(InterfaceMapping map, string method)
    {
        int at = Array.FindIndex(map.InterfaceMethods, candidate => candidate.Name == method);
        MethodInfo? target = at < 0 ? null : map.TargetMethods[at];
        PermanentErrorAttribute? attribute = target?.GetCustomAttribute<PermanentErrorAttribute>(inherit: true);
        return attribute is null ? [] : [.. attribute.ExceptionTypes];
    }

    private static bool IsOneOf(Type[] types, Exception exception)
    {
        foreach (Type type in types)
        {
            if (type.IsInstanceOfType(exception))
            {
                return true;
            }
        }

        return false;
    }
}
