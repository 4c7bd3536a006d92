using System.Diagnostics.CodeAnalysis;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;
using Prosody.Interop;

namespace Prosody;

/// <summary>Sends messages, and runs one handler over the subscribed topics. All members may be used by several threads at once.</summary>
public sealed class ProsodyClient : IDisposable, IAsyncDisposable
{
    private const string Reflection = "Serializes the payload by reflection unless ConfigureJsonOptions adds a source-generated context.";

    private readonly NativeClient _native;
    private readonly NativeHandle _handle;
    private readonly JsonSerializerOptions _json;
    private readonly object _gate = new();
    private Task? _disposal;

    /// <summary>Makes a client, without touching the network.</summary>
    /// <param name="options">Copied, so later changes do not reach the client.</param>
    /// <exception cref="InvalidOperationException">The options cannot be used; the message lists everything that is wrong.</exception>
    public ProsodyClient(ClientOptions options)
        : this(options, [])
    {
    }

    /// <param name="options">Copied.</param>
    /// <param name="json">Run after the options' own.</param>
    /// <param name="refuse">Makes the exception for options that cannot be used, of everything that is wrong with them.</param>
    internal ProsodyClient(
        ClientOptions options, IEnumerable<Action<JsonSerializerOptions>> json, Func<List<string>, Exception>? refuse = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        ClientOptions own = options.Clone();
        _json = JsonDefaults.Create(own.ConfigureJsonOptions is { } configure ? json.Prepend(configure) : json);
        var problems = new List<string>(own.ReadProblems);
        List<KeyValuePair<string, string>> pairs = own.ToPairs(problems);
        NativeClient? native = NativeClient.Create(Utf8.Pairs(pairs), Utf8.Pairs(HostEnvironment.Read()), own.OauthTokenProvider, problems);
        if (native is null || problems.Count > 0)
        {
            if (native is not null)
            {
                new NativeHandle(native.Handle).Dispose();
            }

            throw refuse?.Invoke(problems) ?? new InvalidOperationException(
                "The configuration cannot be used:" + string.Concat(problems.Select(problem => Environment.NewLine + "- " + problem)));
        }

        _native = native;
        _handle = new NativeHandle(native.Handle);
        ProcessEnd.Add(this);
        ClientMetrics.Publish();
    }

    /// <summary>What sent messages say about their origin; empty when neither it nor a group is configured.</summary>
    public string SourceSystem
    {
        get
        {
            ThrowIfDisposed();
            return _native.SourceSystem;
        }
    }

    /// <summary>The native side, for tests.</summary>
    internal NativeClient Native => _native;

    /// <summary>The frozen JSON options, for tests.</summary>
    internal JsonSerializerOptions JsonOptions => _json;

    /// <summary>The graceful stop, and a second for the rest.</summary>
    private TimeSpan Budget => _native.ShutdownTimeout + TimeSpan.FromSeconds(1);

    /// <summary>Where the consumer is in its life.</summary>
    /// <returns>The state.</returns>
    public Task<ConsumerState> GetConsumerStateAsync() => Task.FromResult((ConsumerState)Snapshot().state);

    /// <summary>How many partitions are assigned to this consumer; 0 when it is not running.</summary>
    /// <returns>The number.</returns>
    public Task<uint> AssignedPartitionCountAsync() => Task.FromResult(Snapshot().assigned);

    /// <summary>Whether a partition is stalled; false when the consumer is not running.</summary>
    /// <returns>True when unfinished work has made no progress for the stall threshold.</returns>
    public Task<bool> IsStalledAsync() => Task.FromResult(Snapshot().stalled != 0);

    /// <summary>Sends a message, serialized by the client's JSON options.</summary>
    /// <typeparam name="T">The payload's type.</typeparam>
    /// <param name="topic">The topic.</param>
    /// <param name="key">The key. Messages of one key keep their order.</param>
    /// <param name="payload">The payload; null is sent as JSON <c>null</c>.</param>
    /// <param name="cancellationToken">Stops waiting; the message may be delivered all the same.</param>
    /// <returns>A task that completes when all in-sync replicas have the message.</returns>
    /// <exception cref="ArgumentException">The topic or the key cannot be sent: no topic name, or no valid text.</exception>
    /// <exception cref="ProsodyException">The message was not delivered within the send timeout.</exception>
    [RequiresUnreferencedCode(Reflection)]
    [RequiresDynamicCode(Reflection)]
    public Task SendAsync<T>(string topic, string key, T payload, CancellationToken cancellationToken = default) =>
        SendCoreAsync(topic, key, payload, TypeInfo<T>(), cancellationToken);

    /// <summary>Sends a message, serialized by the given type information and its own options.</summary>
    /// <typeparam name="T">The payload's type.</typeparam>
    /// <param name="topic">The topic.</param>
    /// <param name="key">The key. Messages of one key keep their order.</param>
    /// <param name="payload">The payload; null is sent as JSON <c>null</c>.</param>
    /// <param name="typeInfo">From a source-generated context. Its naming policy applies, so it should be camel case.</param>
    /// <param name="cancellationToken">Stops waiting; the message may be delivered all the same.</param>
    /// <returns>A task that completes when all in-sync replicas have the message.</returns>
    /// <exception cref="ArgumentException">The topic or the key cannot be sent: no topic name, or no valid text.</exception>
    /// <exception cref="ProsodyException">The message was not delivered within the send timeout.</exception>
    public Task SendAsync<T>(string topic, string key, T payload, JsonTypeInfo<T> typeInfo, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(typeInfo);
        return SendCoreAsync(topic, key, payload, typeInfo, cancellationToken);
    }

    /// <summary>Sends a message whose payload is JSON text already. It is not checked.</summary>
    /// <param name="topic">The topic.</param>
    /// <param name="key">The key. Messages of one key keep their order.</param>
    /// <param name="json">JSON in UTF-8. May be changed as soon as this method has returned its task.</param>
    /// <param name="cancellationToken">Stops waiting; the message may be delivered all the same.</param>
    /// <returns>A task that completes when all in-sync replicas have the message.</returns>
    /// <exception cref="ArgumentException">The topic or the key cannot be sent: no topic name, or no valid text.</exception>
    /// <exception cref="ProsodyException">The message was not delivered within the send timeout.</exception>
    public Task SendRawAsync(string topic, string key, ReadOnlyMemory<byte> json, CancellationToken cancellationToken = default)
    {
        CheckSend(topic, key, cancellationToken);
        return _native.SendAsync(topic, key, json.Span, cancellationToken);
    }

    /// <summary>Subscribes a handler to the configured topics. Its <see cref="PermanentErrorAttribute"/>s classify its exceptions.</summary>
    /// <typeparam name="T">The payload's type.</typeparam>
    /// <param name="handler">Handles every message and timer until the client unsubscribes.</param>
    /// <returns>A task that completes when the topics are known to exist and the group is being joined.</returns>
    /// <exception cref="InvalidOperationException">
    /// The client is subscribed already, has no group or topics, or was unsubscribed meanwhile.
    /// </exception>
    /// <exception cref="ProsodyException">The cluster refused, or could not be reached within the subscribe timeout.</exception>
    [RequiresUnreferencedCode("Reads attributes of the handler, and deserializes its payload, by reflection.")]
    [RequiresDynamicCode("Deserializes the payload by reflection.")]
    public Task SubscribeAsync<T>(IProsodyHandler<T> handler)
    {
        ArgumentNullException.ThrowIfNull(handler);
        return SubscribeAsync(handler, AttributeClassifier.Of<T>(handler.GetType()));
    }

    /// <summary>Subscribes a handler to the configured topics, with a classifier instead of attributes.</summary>
    /// <typeparam name="T">The payload's type.</typeparam>
    /// <param name="handler">Handles every message and timer until the client unsubscribes.</param>
    /// <param name="classifier">Says which exceptions a retry cannot resolve.</param>
    /// <returns>A task that completes when the topics are known to exist and the group is being joined.</returns>
    /// <exception cref="InvalidOperationException">
    /// The client is subscribed already, has no group or topics, was unsubscribed meanwhile, or its JSON options do not know
    /// <typeparamref name="T"/>.
    /// </exception>
    /// <exception cref="ProsodyException">The cluster refused, or could not be reached within the subscribe timeout.</exception>
    public Task SubscribeAsync<T>(IProsodyHandler<T> handler, IPermanentErrorClassifier classifier)
    {
        ArgumentNullException.ThrowIfNull(handler);
        ArgumentNullException.ThrowIfNull(classifier);
        ThrowIfDisposed();
        return SubscribeCoreAsync(new Subscription<T>(handler, classifier, TypeInfo<T>()));
    }

    /// <summary>
    /// Stops the consumer: running handlers end or are cancelled within the shutdown timeout, their offsets are committed,
    /// and the group is left. Does nothing when there is no subscription; a subscribe that is under way fails. Awaited
    /// inside a handler of this client it ends with the shutdown timeout, and that handler's event is given up.
    /// </summary>
    /// <returns>A task that completes when the consumer has stopped.</returns>
    public async Task UnsubscribeAsync()
    {
        ThrowIfDisposed();
        if (_native.Subscription is not { } subscription)
        {
            return;
        }

        try
        {
            await _native.UnsubscribeAsync().ConfigureAwait(false);
        }
        finally
        {
            // Also after a failure: it was the farewell that failed.
            Forget(subscription);
        }
    }

    /// <summary>Stops the consumer and frees the client, within the shutdown timeout and a second.</summary>
    public void Dispose()
    {
        StartClose();
        // The pumps end the wait, so a starved thread pool does not hold it up.
        WaitForEnd(Budget);
        Free();
    }

    /// <summary>Stops the consumer and frees the client, within the shutdown timeout and a second.</summary>
    /// <returns>A task that completes when the client is gone.</returns>
    public ValueTask DisposeAsync()
    {
        lock (_gate)
        {
            return new(_disposal ??= DisposeCoreAsync());
        }
    }

    /// <summary>Starts the graceful stop; later calls change nothing.</summary>
    internal void StartClose() => _native.Close();

    /// <summary>Waits for the graceful stop without the thread pool.</summary>
    internal void WaitForEnd(TimeSpan budget) => _native.WaitForEnd(budget);

    private async Task DisposeCoreAsync()
    {
        StartClose();
        // What runs beyond its budget is abandoned: its tokens are stale, its bytes stay until it is done.
        await _native.EndWithin(Budget).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        Free();
    }

    private void Free()
    {
        ProcessEnd.Remove(this);
        _handle.Dispose();
        _native.Subscription = null;
        _native.Root = null;
        _native.Abandon();
    }

    private async Task SubscribeCoreAsync(Subscription subscription)
    {
        lock (_gate)
        {
            if (_native.Subscription is not null)
            {
                throw new InvalidOperationException("The client is subscribed already; unsubscribe it first.");
            }

            // Before the native call, whose first event may come before its answer.
            _native.Subscription = subscription;
            _native.Root = this;
        }

        try
        {
            await _native.SubscribeAsync().ConfigureAwait(false);
        }
        catch
        {
            Forget(subscription);
            throw;
        }
    }

    private void Forget(Subscription subscription)
    {
        lock (_gate)
        {
            if (ReferenceEquals(_native.Subscription, subscription))
            {
                _native.Subscription = null;
                _native.Root = null;
            }
        }
    }

    private Task SendCoreAsync<T>(string topic, string key, T payload, JsonTypeInfo<T> typeInfo, CancellationToken cancellationToken)
    {
        CheckSend(topic, key, cancellationToken);
        using PayloadWriter.Lease json = PayloadWriter.Write(payload, typeInfo);
        return _native.SendAsync(topic, key, json.Bytes, cancellationToken);
    }

    private void CheckSend(string topic, string key, CancellationToken cancellationToken)
    {
        ArgumentNullException.ThrowIfNull(topic);
        ArgumentNullException.ThrowIfNull(key);
        cancellationToken.ThrowIfCancellationRequested();
        ThrowIfDisposed();
        if (_native.SourceSystem.Length == 0)
        {
            throw new InvalidOperationException(
                "Sending needs SourceSystem (PROSODY_SOURCE_SYSTEM), or GroupId (PROSODY_GROUP_ID), which is its default.");
        }
    }

    /// <summary>Looked up once per type: the options are frozen, so the answer cannot change.</summary>
    private JsonTypeInfo<T> TypeInfo<T>()
    {
        if (LastTypeInfo<T>.Value is { } last && ReferenceEquals(last.Options, _json))
        {
            return last;
        }

        try
        {
            var found = (JsonTypeInfo<T>)_json.GetTypeInfo(typeof(T));
            LastTypeInfo<T>.Value = found;
            return found;
        }
        catch (NotSupportedException unknown)
        {
            throw new InvalidOperationException(
                $"The client's JSON options do not know {typeof(T)}. Add a source-generated context that has it: ConfigureJsonOptions(o => o.TypeInfoResolverChain.Add(MyContext.Default)).",
                unknown);
        }
    }

    private PrSnapshot Snapshot()
    {
        ThrowIfDisposed();
        return _native.Snapshot();
    }

    private void ThrowIfDisposed() => ObjectDisposedException.ThrowIf(_handle.IsClosed, this);

    private static class LastTypeInfo<T>
    {
        internal static JsonTypeInfo<T>? Value;
    }
}
