using System.Text.Json;

namespace Prosody;

/// <summary>Configures and makes a <see cref="ProsodyClient"/>. What is set later wins. Not safe for use by several threads at once.</summary>
public sealed class ProsodyClientBuilder
{
    private readonly ClientOptions _options = new();
    private readonly List<Action<JsonSerializerOptions>> _json = [];

    private ProsodyClientBuilder()
    {
    }

    /// <summary>Makes a builder.</summary>
    /// <returns>A builder without any option set.</returns>
    public static ProsodyClientBuilder Create() => new();

    /// <summary>Sets the brokers to ask first.</summary>
    /// <param name="servers">Each as <c>host:port</c>.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithBootstrapServers(params string[] servers)
    {
        ArgumentNullException.ThrowIfNull(servers);
        _options.BootstrapServers = [.. servers];
        return this;
    }

    /// <summary>Sets the consumer group.</summary>
    /// <param name="groupId">Usually the application's name.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithGroupId(string groupId)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(groupId);
        _options.GroupId = groupId;
        return this;
    }

    /// <summary>Sets the topics to consume.</summary>
    /// <param name="topics">Names of topics; one that starts with <c>^</c> is a regular expression over whole names.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithSubscribedTopics(params string[] topics)
    {
        ArgumentNullException.ThrowIfNull(topics);
        _options.SubscribedTopics = [.. topics];
        return this;
    }

    /// <summary>Sets what happens to an event whose handler fails.</summary>
    /// <param name="mode">The mode.</param>
    /// <returns>This builder.</returns>
    /// <exception cref="ArgumentOutOfRangeException">The value is not a member of the enum.</exception>
    public ProsodyClientBuilder WithMode(ClientMode mode)
    {
        if (!Enum.IsDefined(mode))
        {
            throw new ArgumentOutOfRangeException(nameof(mode), mode, "The mode is not a member of the enum.");
        }

        _options.Mode = mode;
        return this;
    }

    /// <summary>Sets the prefixes of event types to process. Without a prefix everything is processed.</summary>
    /// <param name="prefixes">Prefixes of the payload's <c>type</c>.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithAllowedEvents(params string[] prefixes)
    {
        ArgumentNullException.ThrowIfNull(prefixes);
        _options.AllowedEvents = [.. prefixes];
        return this;
    }

    /// <summary>Sets what sent messages say about their origin.</summary>
    /// <param name="sourceSystem">Must differ from the group to consume what the client itself sends.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithSourceSystem(string sourceSystem)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(sourceSystem);
        _options.SourceSystem = sourceSystem;
        return this;
    }

    /// <summary>Sets whether to use a broker inside this process.</summary>
    /// <param name="mock">True for tests.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithMock(bool mock)
    {
        _options.Mock = mock;
        return this;
    }

    /// <summary>Sets how many handlers run at once.</summary>
    /// <param name="maxConcurrency">At least 1.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithMaxConcurrency(uint maxConcurrency)
    {
        _options.MaxConcurrency = ToInt(maxConcurrency, nameof(maxConcurrency));
        return this;
    }

    /// <summary>Sets how often low-latency mode retries.</summary>
    /// <param name="maxRetries">Retries after the first attempt.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithMaxRetries(uint maxRetries)
    {
        _options.MaxRetries = ToInt(maxRetries, nameof(maxRetries));
        return this;
    }

    /// <summary>Sets where low-latency mode sends messages whose handler failed, and every mode records that are no messages.</summary>
    /// <remarks>
    /// A record there has the key, the value and the headers of the original, and headers that say where it came from and why: source-kind
    /// (message or poison), source-topic, source-partition, source-offset, source-timestamp, source-group-id, source-error and
    /// source-attempts. The original counts as done once a broker has acknowledged it; in rare cases it may be there twice.
    /// </remarks>
    /// <param name="topic">Name of a topic.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithFailureTopic(string topic)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(topic);
        _options.FailureTopic = topic;
        return this;
    }

    /// <summary>Sets the port of the health probes.</summary>
    /// <param name="port">0 disables them.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder WithProbePort(ushort port)
    {
        _options.ProbePort = port;
        return this;
    }

    /// <summary>Sets how long a send may take.</summary>
    /// <param name="timeout"><see cref="Timeout.InfiniteTimeSpan"/> has no bound.</param>
    /// <returns>This builder.</returns>
    /// <exception cref="ArgumentOutOfRangeException">The timeout is negative.</exception>
    public ProsodyClientBuilder WithSendTimeout(TimeSpan timeout)
    {
        if (timeout < TimeSpan.Zero && timeout != Timeout.InfiniteTimeSpan)
        {
            throw new ArgumentOutOfRangeException(nameof(timeout), timeout, "The timeout is negative.");
        }

        _options.SendTimeout = timeout;
        return this;
    }

    /// <summary>Sets any option. The action runs at once.</summary>
    /// <param name="configure">Changes the options.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder Configure(Action<ClientOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(configure);
        configure(_options);
        return this;
    }

    /// <summary>Changes the JSON options after the defaults are applied. The action runs when the client is made, in the order of the calls.</summary>
    /// <param name="configure">Changes the options.</param>
    /// <returns>This builder.</returns>
    public ProsodyClientBuilder ConfigureJsonOptions(Action<JsonSerializerOptions> configure)
    {
        ArgumentNullException.ThrowIfNull(configure);
        _json.Add(configure);
        return this;
    }

    /// <summary>Checks the configuration and makes a client, without touching the network. May be called again for another client.</summary>
    /// <returns>The client.</returns>
    /// <exception cref="InvalidOperationException">The configuration cannot be used; the message lists everything that is wrong.</exception>
    public ProsodyClient Build() => new(_options, _json);

    private static int ToInt(uint value, string parameter) => value <= int.MaxValue
        ? (int)value
        : throw new ArgumentOutOfRangeException(parameter, value, $"The number is greater than {int.MaxValue}.");
}
