// How does a client call the native side, and how do its events become handler calls?

using System.Runtime.CompilerServices;

namespace Prosody.Interop;

/// <summary>The native side of one <see cref="ProsodyClient"/>.</summary>
internal sealed unsafe class NativeClient : NativePort
{
    /// <summary>One that works, and one that takes over while user code holds it; more are started as they are needed.</summary>
    private const int Pumps = 2;

    private const int ChunkSlots = 64;

    private readonly object _gate = new();
    private readonly TokenQuestions? _tokens;
    private EventItem[]?[] _chunks = new EventItem[16][];
    private string[] _topics = [];

    private NativeClient(ulong handle, Func<CancellationToken, ValueTask<OauthToken>>? tokens)
        : base(handle, Pumps, nameof(ProsodyClient))
    {
        _tokens = tokens is null ? null : new(handle, tokens);
        PrClientInfo info;
        info.size = (uint)sizeof(PrClientInfo);
        Check(NativeMethods.pr_client_info(handle, &info));
        ShutdownTimeout = TimeSpan.FromMilliseconds(info.shutdown_ms);
        SourceSystem = Utf8.Decode(info.source_system);
    }

    internal string SourceSystem { get; }

    internal TimeSpan ShutdownTimeout { get; }

    /// <summary>What runs the events; null while not subscribed.</summary>
    internal Subscription? Subscription { get; set; }

    /// <summary>Roots the public client while it is subscribed.</summary>
    internal object? Root { get; set; }

    /// <summary>Makes a client, or says everything that is wrong with its options.</summary>
    internal static NativeClient? Create(
        ReadOnlySpan<byte> options, ReadOnlySpan<byte> environment, Func<CancellationToken, ValueTask<OauthToken>>? tokens, List<string> problems)
    {
        Native.EnsureLoaded();
        ulong handle = 0;
        PrError* error = null;
        int status;
        fixed (byte* optionBytes = options, environmentBytes = environment)
        {
            uint flags = tokens is null ? 0 : NativeMethods.PR_CLIENT_GIVES_TOKENS;
            status = NativeMethods.pr_client_new(Bytes(optionBytes, options), Bytes(environmentBytes, environment), flags, &handle, &error);
        }

        if (status == NativeMethods.PR_OK)
        {
            return new NativeClient(handle, tokens);
        }

        if (Failures.Problems(error) is { } lines)
        {
            problems.AddRange(lines);
            NativeMethods.pr_error_free(error);
            return null;
        }

        throw Failures.From(0, status, error, nameof(ProsodyClient));
    }

    internal PrSnapshot Snapshot()
    {
        PrSnapshot snapshot;
        snapshot.size = (uint)sizeof(PrSnapshot);
        Check(NativeMethods.pr_client_snapshot(Handle, &snapshot));
        return snapshot;
    }

    internal Task SubscribeAsync()
    {
        Operation operation = Begin();
        PrResult result = NewResult();
        int status = NativeMethods.pr_subscribe(Handle, operation.Id, &result);
        return Answer(operation, status, result.error);
    }

    internal Task UnsubscribeAsync()
    {
        Operation operation = Begin();
        PrResult result = NewResult();
        int status = NativeMethods.pr_unsubscribe(Handle, operation.Id, &result);
        return Answer(operation, status, result.error);
    }

    /// <summary>Queues a record; the native side has copied everything when this returns.</summary>
    [SkipLocalsInit]
    internal Task SendAsync(string topic, string key, ReadOnlySpan<byte> json, CancellationToken token)
    {
        byte[]? rentedTopic = null;
        byte[]? rentedKey = null;
        try
        {
            ReadOnlySpan<byte> topicBytes = Utf8.Encode(topic, stackalloc byte[Utf8.StackBytes], ref rentedTopic, nameof(topic));
            ReadOnlySpan<byte> keyBytes = Utf8.Encode(key, stackalloc byte[Utf8.StackBytes], ref rentedKey, nameof(key));
            PrTrace trace;
            bool traced = Tracing.TryCurrent(&trace, out byte[]? state, out byte[]? baggage);
            fixed (byte* t = topicBytes, k = keyBytes, j = json, s = state, b = baggage)
            {
                trace.state = Bytes(s, state);
                trace.baggage = Bytes(b, baggage);
                Operation operation = Begin(topic, token);
                if (operation.Task.IsCompleted)
                {
                    Forget(operation);
                    return operation.Task;
                }

                PrSend record;
                record.size = (uint)sizeof(PrSend);
                record.op = operation.Id;
                record.topic = Bytes(t, topicBytes);
                record.key = Bytes(k, keyBytes);
                record.payload = Bytes(j, json);
                record.trace = traced ? &trace : null;
                PrResult result = NewResult();
                int status = NativeMethods.pr_send(Handle, &record, &result);
                return Answer(operation, status, result.error);
            }
        }
        finally
        {
            Utf8.Return(rentedTopic);
            Utf8.Return(rentedKey);
        }
    }

    /// <summary>A timer call of a running event.</summary>
    internal Task TimerAsync(ulong token, int call, long seconds, CancellationToken cancelled)
    {
        PrTrace trace;
        bool traced = Tracing.TryCurrent(&trace, out byte[]? state, out byte[]? baggage);
        fixed (byte* s = state, b = baggage)
        {
            trace.state = Bytes(s, state);
            trace.baggage = Bytes(b, baggage);
            Operation operation = Begin(token: cancelled);
            PrResult result = NewResult();
            int status = NativeMethods.pr_timer(Handle, token, call, seconds, operation.Id, traced ? &trace : null, &result);
            return Answer(operation, status, result.error);
        }
    }

    /// <summary>When the timers of a running event's key are due, in seconds since the Unix epoch.</summary>
    internal long[] Timers(ulong token)
    {
        PrResult result = NewResult();
        long[] times = new long[16];
        while (true)
        {
            int status;
            fixed (long* place = times)
            {
                status = NativeMethods.pr_timers(Handle, token, place, (uint)times.Length, &result);
            }

            if (status != NativeMethods.PR_OK)
            {
                throw Failures.From(Handle, status, result.error, nameof(ProsodyClient));
            }

            int count = (int)result.value;
            if (count <= times.Length)
            {
                return times[..count];
            }

            // Another call of the same handler may have made more of them meanwhile.
            times = new long[count];
        }
    }

    /// <summary>Ends an event. Its bytes are gone and its item may be in use again when this returns.</summary>
    [SkipLocalsInit]
    internal void Complete(ulong token, int outcome, string? error)
    {
        if (error is null)
        {
            NativeMethods.pr_complete(Handle, token, outcome, default);
            return;
        }

        const int MaxErrorChars = 4096;
        string clipped = error.Length > MaxErrorChars ? error[..MaxErrorChars] : error;
        byte[] bytes = System.Text.Encoding.UTF8.GetBytes(clipped);
        fixed (byte* text = bytes)
        {
            NativeMethods.pr_complete(Handle, token, outcome, Bytes(text, bytes));
        }
    }

    /// <summary>The name of a topic number; one string per topic and client.</summary>
    internal string Topic(uint number)
    {
        string[] topics = Volatile.Read(ref _topics);
        return number < topics.Length && topics[number] is { } known ? known : AddTopic(number);
    }

    /// <inheritdoc/>
    private protected override bool Run(in PrEvent native) => Item(native.token).Run(in native, Subscription);

    /// <inheritdoc/>
    private protected override Action? Cancel(ulong token) => Item(token).Cancel(token);

    /// <inheritdoc/>
    internal override void Abandon()
    {
        base.Abandon();
        _tokens?.TakeAllBack();
    }

    /// <inheritdoc/>
    private protected override TokenFailure? TokenFailure => _tokens?.Failure;

    /// <inheritdoc/>
    private protected override void Token(ulong question, bool isWanted)
    {
        if (isWanted)
        {
            _tokens?.Ask(question);
        }
        else
        {
            _tokens?.TakeBack(question);
        }
    }

    private static PrResult NewResult() => new() { size = (uint)sizeof(PrResult) };

    private static PrBytes Bytes(byte* data, ReadOnlySpan<byte> span) => new() { data = data, len = (uint)span.Length };

    private void Check(int status)
    {
        if (status != NativeMethods.PR_OK)
        {
            throw Failures.From(Handle, status, null, nameof(ProsodyClient));
        }
    }

    /// <summary>
    /// The item of an event's slot. A slot has one event at a time until its completion, so its item is never shared;
    /// the native side has as many slots as handlers ever ran at once.
    /// </summary>
    private EventItem Item(ulong token)
    {
        uint slot = (uint)token;
        uint number = slot / ChunkSlots;
        EventItem[]?[] chunks = Volatile.Read(ref _chunks);
        EventItem[]? chunk = number < chunks.Length ? Volatile.Read(ref chunks[number]) : null;
        return (chunk ?? AddChunk(number))[slot % ChunkSlots];
    }

    private EventItem[] AddChunk(uint number)
    {
        lock (_gate)
        {
            EventItem[]?[] chunks = _chunks;
            if (number >= chunks.Length)
            {
                Array.Resize(ref chunks, (int)Math.Max(number + 1, 2 * (uint)chunks.Length));
            }

            if (chunks[number] is not { } chunk)
            {
                chunk = new EventItem[ChunkSlots];
                for (int i = 0; i < chunk.Length; i++)
                {
                    chunk[i] = new EventItem(this);
                }

                Volatile.Write(ref chunks[number], chunk);
            }

            Volatile.Write(ref _chunks, chunks);
            return chunk;
        }
    }

    private string AddTopic(uint number)
    {
        PrBytes name;
        Check(NativeMethods.pr_topic(Handle, number, &name));
        string topic = Utf8.Decode(name);
        lock (_gate)
        {
            string[] topics = _topics;
            if (topics.Length <= number)
            {
                Array.Resize(ref topics, (int)number + 1);
            }

            topics[number] = topic;
            Volatile.Write(ref _topics, topics);
        }

        return topic;
    }
}
