// How does one event run? On a pump thread: deserialize, call the handler, and when it goes on after that, complete the
// token later.

using System.Diagnostics;
using System.Text;

namespace Prosody.Interop;

/// <summary>The one event of a native slot. Reused for the slot's next event once this one is completed.</summary>
internal sealed unsafe class EventItem
{
    private readonly NativeClient _client;
    private readonly Action _continuation;

    private Subscription? _subscription;
    private ProsodyContext? _context;
    private Task? _running;
    private Activity? _activity;
    private ulong _cancelled;
    private byte* _key;
    private byte* _payload;
    private int _keyLength;
    private int _payloadLength;
    private long _timestamp;
    private uint _topic;
    private int _kind;

    internal EventItem(NativeClient client)
    {
        _client = client;
        _continuation = OnHandlerTaskEnded;
    }

    /// <summary>Set when the payload does not deserialize; the core then checks whether it is JSON at all.</summary>
    internal bool IsUnreadable { get; set; }

    internal int Partition { get; private set; }

    internal long Offset { get; private set; }

    internal long Timestamp => _timestamp;

    /// <summary>The topic's name, one string per topic.</summary>
    internal string Topic => _client.Topic(_topic);

    /// <summary>JSON, valid until completion.</summary>
    internal ReadOnlySpan<byte> Payload => new(_payload, _payloadLength);

    /// <summary>The key, as a new string.</summary>
    internal string ReadKey() => _keyLength == 0 ? string.Empty : Encoding.UTF8.GetString(_key, _keyLength);

    /// <summary>Runs an event, on a pump thread.</summary>
    /// <returns>Whether it is done; otherwise its token was completed, or will be.</returns>
    internal bool Run(in PrEvent native, Subscription? subscription)
    {
        Accept(native, subscription);
        CleanContext.Enter();
        bool done = Start(in native);
        CleanContext.Leave();
        return done;
    }

    private void Accept(in PrEvent native, Subscription? subscription)
    {
        _subscription = subscription;
        IsUnreadable = false;
        _kind = native.kind;
        _topic = native.topic;
        Partition = native.partition;
        Offset = native.offset;
        _timestamp = native.timestamp;
        _key = native.key.data;
        _keyLength = (int)native.key.len;
        _payload = native.payload.data;
        _payloadLength = (int)native.payload.len;

        var context = new ProsodyContext(_client, native.token);
        // Another pump may hold this event's cancellation: either it finds the context, or its token is found here.
        Volatile.Write(ref _context, context);
        Interlocked.MemoryBarrier();
        if (Volatile.Read(ref _cancelled) == native.token)
        {
            context.MarkCancelled();
        }
    }

    /// <summary>Marks the event as cancelled, on a pump thread.</summary>
    /// <returns>What runs the callbacks of its token, or null when there is nothing to run.</returns>
    internal Action? Cancel(ulong token)
    {
        Volatile.Write(ref _cancelled, token);
        Interlocked.MemoryBarrier();
        ProsodyContext? context = Volatile.Read(ref _context);
        return context is not null && context.Token == token ? context.MarkCancelled() : null;
    }

    private bool Start(in PrEvent native)
    {
        ProsodyContext context = _context!;
        if (context.IsCancelled)
        {
            // Its callbacks would have nobody to stop; and after a loss of its partition nothing new may start.
            Complete(NativeMethods.PR_OUTCOME_TRANSIENT, "The event was cancelled before its handler started.");
            return false;
        }

        if (_subscription is not { } subscription)
        {
            Complete(NativeMethods.PR_OUTCOME_TRANSIENT, "The client is not subscribed any more.");
            return false;
        }

        _activity = Tracing.Begin(in native, native.kind == NativeMethods.PR_EVENT_MESSAGE ? Topic : string.Empty);
        Task? task;
        try
        {
            task = _kind == NativeMethods.PR_EVENT_MESSAGE
                ? subscription.RunMessage(this, context)
                : subscription.RunTimer(this, context);
        }
#pragma warning disable CA1031 // Whatever a handler throws is the outcome of its event.
        catch (Exception thrown)
#pragma warning restore CA1031
        {
            Fail(thrown, IsUnreadable ? NativeMethods.PR_OUTCOME_UNREADABLE : 0);
            return false;
        }

        if (task is null)
        {
            Complete(NativeMethods.PR_OUTCOME_TRANSIENT, $"{subscription.HandlerType} returned null instead of a task.");
        }
        else if (task.IsCompletedSuccessfully)
        {
            EndActivity(null);
            Clear();
            return true;
        }
        else if (task.IsCompleted)
        {
            End(task);
        }
        else
        {
            _running = task;
            task.ConfigureAwait(false).GetAwaiter().UnsafeOnCompleted(_continuation);
        }

        return false;
    }

    private void OnHandlerTaskEnded() => End(_running!);

    private void End(Task task)
    {
        if (task.IsCompletedSuccessfully)
        {
            Complete(NativeMethods.PR_OUTCOME_OK, null);
        }
        else
        {
            Fail(Thrown(task), 0);
        }
    }

    /// <summary>What an await would throw: of a cancelled task too, whose exception says what was cancelled and where.</summary>
    private static Exception Thrown(Task task)
    {
        try
        {
            task.GetAwaiter().GetResult();
        }
#pragma warning disable CA1031 // Whatever a handler throws is the outcome of its event.
        catch (Exception thrown)
#pragma warning restore CA1031
        {
            return thrown;
        }

        return new TaskCanceledException(task);
    }

    private void Fail(Exception thrown, int flags)
    {
        bool permanent = _subscription!.IsPermanent(thrown, isTimer: _kind == NativeMethods.PR_EVENT_TIMER);
        int outcome = permanent ? NativeMethods.PR_OUTCOME_PERMANENT : NativeMethods.PR_OUTCOME_TRANSIENT;
        // An event that was cancelled and said so is no error of its handler.
        Exception? failure = thrown is OperationCanceledException && _context!.IsCancelled ? null : thrown;
        if (failure is not null)
        {
            Report(failure, permanent);
        }

        EndActivity(failure);
        Complete(outcome | flags, ExceptionText.All(thrown));
    }

    private void EndActivity(Exception? failure)
    {
        if (_activity is { } activity)
        {
            _activity = null;
            Tracing.End(activity, failure);
        }
    }

    /// <summary>While the event's bytes are still here.</summary>
    private void Report(Exception thrown, bool permanent)
    {
        if (_kind == NativeMethods.PR_EVENT_TIMER)
        {
            ErrorReport.Timer(thrown, permanent, ReadKey(), _timestamp);
        }
        else
        {
            ErrorReport.Message(thrown, permanent, Topic, ReadKey(), Partition, Offset);
        }
    }

    private void Complete(int outcome, string? error)
    {
        EndActivity(null);
        ulong token = Clear();
        // From here on the item may already run the slot's next event.
        _client.Complete(token, outcome, error);
    }

    private ulong Clear()
    {
        ProsodyContext context = _context!;
        _context = null;
        _subscription = null;
        _running = null;
        context.End();
        return context.Token;
    }
}
