using System.Text;
using System.Text.Json;

namespace Prosody;

/// <summary>
/// Everything that can be configured. What is null comes from the environment variable, <c>PROSODY_</c> and the name in
/// capitals with underscores, and then from the default.
/// </summary>
public sealed partial class ClientOptions
{
    /// <summary>Brokers to ask first, as <c>host:port</c>; the rest of the cluster is learned from them. Required unless <see cref="Mock"/>, where any text names a cluster.</summary>
    public string[]? BootstrapServers { get; set; }

    /// <summary>The consumer group, usually the application's name. Required to subscribe.</summary>
    public string? GroupId { get; set; }

    /// <summary>Topics to consume. Required to subscribe. An entry that starts with <c>^</c> is a regular expression over whole names, such as <c>^orders-.*</c>: it means those topics too that appear later, and may match none yet.</summary>
    public string[]? SubscribedTopics { get; set; }

    /// <summary>Prefixes of the event types to process. Default: all; an empty array means all as well.</summary>
    public string[]? AllowedEvents { get; set; }

    /// <summary>What sent messages say about their origin. Default: <see cref="GroupId"/>.</summary>
    public string? SourceSystem { get; set; }

    /// <summary>Names the published state of this client for its readers.</summary>
    public string? Subsystem { get; set; }

    /// <summary>What happens to an event whose handler fails. Default: <see cref="ClientMode.Pipeline"/>.</summary>
    public ClientMode? Mode { get; set; }

    /// <summary>Whether to use a broker inside this process. Default: false.</summary>
    public bool? Mock { get; set; }

    /// <summary>Handlers that run at once, over all partitions. Default: 32.</summary>
    public int? MaxConcurrency { get; set; }

    /// <summary>Messages of one partition in progress at once. Default: 64.</summary>
    public int? MaxUncommitted { get; set; }

    /// <summary>How long one attempt may run before it is asked to cancel. Default: 80 % of <see cref="StallThreshold"/>.</summary>
    public TimeSpan? Timeout { get; set; }

    /// <summary>A partition with unfinished work of which nothing finished for this long is stalled. Default: 5 minutes.</summary>
    public TimeSpan? StallThreshold { get; set; }

    /// <summary>How long running handlers may go on when their partition is given up; they are asked to cancel after 80 % of it. Default: 30 seconds.</summary>
    public TimeSpan? ShutdownTimeout { get; set; }

    /// <summary>How long subscribing may look for the cluster. Default: 30 seconds.</summary>
    public TimeSpan? SubscribeTimeout { get; set; }

    /// <summary>How long a broker may hold back a fetch that has nothing to return. Default: 100 ms.</summary>
    public TimeSpan? PollInterval { get; set; }

    /// <summary>How often finished offsets are committed. Default: 1 second.</summary>
    public TimeSpan? CommitInterval { get; set; }

    /// <summary>How long a send may take, retries included; <see cref="System.Threading.Timeout.InfiniteTimeSpan"/> has no bound. Default: 30 seconds.</summary>
    public TimeSpan? SendTimeout { get; set; }

    /// <summary>A member the cluster has not heard of for this long loses its partitions. Default: 45 seconds.</summary>
    public TimeSpan? SessionTimeout { get; set; }

    /// <summary>Memory for fetched records of all partitions together, in bytes. Default: 64 MiB.</summary>
    public long? FetchBufferSize { get; set; }

    /// <summary>Port of the health probes; 0 disables them. Default: 8000.</summary>
    public int? ProbePort { get; set; }

    /// <summary>Address of the health probes. Default: all interfaces.</summary>
    public string? ProbeAddress { get; set; }

    /// <summary>Whether the health page shows keys. Default: false.</summary>
    public bool? ProbeDetails { get; set; }

    /// <summary>Where low-latency mode, which requires it, sends messages whose handler failed, and every mode sends records that are no messages. It must exist and be none of <see cref="SubscribedTopics"/>, whose patterns must not match it.</summary>
    public string? FailureTopic { get; set; }

    /// <summary>Retries of a failed event in low-latency mode. Default: 3.</summary>
    public int? MaxRetries { get; set; }

    /// <summary>The n-th retry waits a random time up to this · 2ⁿ. Default: 20 ms.</summary>
    public TimeSpan? RetryBase { get; set; }

    /// <summary>The longest wait between two attempts. Default: 5 minutes.</summary>
    public TimeSpan? MaxRetryDelay { get; set; }

    /// <summary>Whether failing keys are moved to timers. Default: true.</summary>
    public bool? DeferEnabled { get; set; }

    /// <summary>First wait of a deferred event; at least a second. Default: 1 second.</summary>
    public TimeSpan? DeferBase { get; set; }

    /// <summary>Longest wait of a deferred event. Default: 24 hours.</summary>
    public TimeSpan? DeferMaxDelay { get; set; }

    /// <summary>Share of failures above which deferral stops. Default: 0.9.</summary>
    public double? DeferFailureThreshold { get; set; }

    /// <summary>Window of that share. Default: 5 minutes.</summary>
    public TimeSpan? DeferFailureWindow { get; set; }

    /// <summary>Retries of a deferred event. Default: no limit.</summary>
    public int? DeferMaxRetries { get; set; }

    /// <summary>Cache of reloaded records, in bytes. Default: 64 MiB.</summary>
    public long? LoaderCacheSize { get; set; }

    /// <summary>Bound on reloading a record. Default: 30 seconds.</summary>
    public TimeSpan? LoaderSeekTimeout { get; set; }

    /// <summary>Whether keys that take most of the time are rejected. Default: true.</summary>
    public bool? MonopolizationEnabled { get; set; }

    /// <summary>Share of the window's time above which a key is rejected. Default: 0.9.</summary>
    public double? MonopolizationThreshold { get; set; }

    /// <summary>Window of that share. Default: 5 minutes.</summary>
    public TimeSpan? MonopolizationWindow { get; set; }

    /// <summary>The share of execution time that retries get while both they and first attempts wait; more than 0 and less than 1. Default: 0.3.</summary>
    public double? SchedulerFailureWeight { get; set; }

    /// <summary>An event that waits for a permit gains priority with the square of its wait, up to this long; more than 0. Default: 2 minutes.</summary>
    public TimeSpan? SchedulerMaxWait { get; set; }

    /// <summary>How many seconds of execution time of its key that wait makes up for; at least 0. Default: 200.</summary>
    public double? SchedulerWaitWeight { get; set; }

    /// <summary>Message ids remembered in memory; at least 1. Default: 8192.</summary>
    public int? IdempotenceCacheSize { get; set; }

    /// <summary>Change it to forget all remembered ids. Default: "1".</summary>
    public string? IdempotenceVersion { get; set; }

    /// <summary>How long an id is remembered; at least a minute. Default: 7 days.</summary>
    public TimeSpan? IdempotenceTtl { get; set; }

    /// <summary>How the span of a message relates to its sender's. Default: <see cref="SpanRelation.Child"/>.</summary>
    public SpanRelation? MessageSpans { get; set; }

    /// <summary>How the span of a timer relates to the one that scheduled it. Default: <see cref="SpanRelation.FollowsFrom"/>.</summary>
    public SpanRelation? TimerSpans { get; set; }

    /// <summary>Nodes of the store, as <c>host:port</c>.</summary>
    public string[]? CassandraNodes { get; set; }

    /// <summary>Keyspace of the store. Default: prosody.</summary>
    public string? CassandraKeyspace { get; set; }

    /// <summary>User of the store.</summary>
    public string? CassandraUser { get; set; }

    /// <summary>Password of the store.</summary>
    public string? CassandraPassword { get; set; }

    /// <summary>Preferred datacenter of the store.</summary>
    public string? CassandraDatacenter { get; set; }

    /// <summary>Preferred rack of the store.</summary>
    public string? CassandraRack { get; set; }

    /// <summary>How long the store keeps what nothing else bounds. Default: a year.</summary>
    public TimeSpan? CassandraRetention { get; set; }

    /// <summary>Replication of a keyspace that is created.</summary>
    public string? CassandraReplication { get; set; }

    /// <summary>Cache of this client's own state, in bytes. Default: 64 MiB.</summary>
    public long? StateOwnedCacheSize { get; set; }

    /// <summary>Cache of published state that is read, in bytes. Default: 1 MiB.</summary>
    public long? StateReadCacheSize { get; set; }

    /// <summary>Whether keys may meet empty state after a topic has got more partitions. Default: false.</summary>
    public bool? AcceptPartitionGrowth { get; set; }

    /// <summary>Whether life-cycle events are sent to <see cref="TelemetryTopic"/>. Default: false.</summary>
    public bool? TelemetryEnabled { get; set; }

    /// <summary>Topic of life-cycle events. Default: prosody.telemetry-events.</summary>
    public string? TelemetryTopic { get; set; }

    /// <summary>plaintext, ssl, sasl_plaintext or sasl_ssl. Default: plaintext.</summary>
    public string? SecurityProtocol { get; set; }

    /// <summary>PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Required with sasl_plaintext and sasl_ssl.</summary>
    public string? SaslMechanism { get; set; }

    /// <summary>User of the brokers. Required with sasl_plaintext and sasl_ssl, except with OAUTHBEARER.</summary>
    public string? SaslUsername { get; set; }

    /// <summary>Password of that user. Never printed.</summary>
    public string? SaslPassword { get; set; }

    /// <summary>URL of the token endpoint that OAUTHBEARER asks, with client credentials, at 80 % of each token's life.</summary>
    public string? SaslOauthTokenEndpoint { get; set; }

    /// <summary>What the identity provider knows this client by. Needs <see cref="SaslOauthTokenEndpoint"/>.</summary>
    public string? SaslOauthClientId { get; set; }

    /// <summary>Secret of that client. Never printed.</summary>
    public string? SaslOauthClientSecret { get; set; }

    /// <summary>What the token should allow, names separated by spaces. Default: left to the provider.</summary>
    public string? SaslOauthScope { get; set; }

    /// <summary>
    /// Gives tokens for OAUTHBEARER instead of <see cref="SaslOauthTokenEndpoint"/>. Asked on the thread pool, one call at a time:
    /// before the first connection, at 80 % of each token's life, and after a broker refused one. A call that takes more than 10
    /// seconds is cancelled and counts as failed. What it throws is the inner exception of calls that failed for want of a token;
    /// an <see cref="IPermanentError"/> fails them at once, anything else is tried again within their timeouts.
    /// </summary>
    public Func<CancellationToken, ValueTask<OauthToken>>? OauthTokenProvider { get; set; }

    /// <summary>PEM file of trusted authorities, read again when it changes. Default: the platform's.</summary>
    public string? SslCaLocation { get; set; }

    /// <summary>PEM file of the client's certificate, read again when it changes. Needs <see cref="SslKeyLocation"/>.</summary>
    public string? SslCertificateLocation { get; set; }

    /// <summary>PEM file of the client's private key, read again when it changes.</summary>
    public string? SslKeyLocation { get; set; }

    /// <summary>Unlocks that key when it is encrypted (PKCS#8). Never printed.</summary>
    public string? SslKeyPassword { get; set; }

    /// <summary>Where this process runs: it reads from an in-sync replica in the same place where the brokers select one, and groups prefer members near a replica.</summary>
    public string? ClientRack { get; set; }

    /// <summary>Makes the member static: it keeps its partitions over a restart.</summary>
    public string? GroupInstanceId { get; set; }

    /// <summary>auto, classic or consumer. Default: auto.</summary>
    public string? GroupProtocol { get; set; }

    /// <summary>read_committed or read_uncommitted. Default: read_committed.</summary>
    public string? IsolationLevel { get; set; }

    /// <summary>none, gzip, snappy, lz4 or zstd. Default: lz4.</summary>
    public string? Compression { get; set; }

    /// <summary>crc32 or murmur2. Default: crc32.</summary>
    public string? Partitioner { get; set; }

    /// <summary>Changes the JSON options after the defaults are applied; null changes nothing.</summary>
    public Action<JsonSerializerOptions>? ConfigureJsonOptions { get; set; }

    /// <summary>What was wrong with texts that these options were read from; building reports it with everything else.</summary>
    internal List<string> ReadProblems { get; } = [];

    /// <summary>The options that are set, without secrets.</summary>
    /// <returns>Names and values.</returns>
    public override string ToString()
    {
        var text = new StringBuilder(nameof(ClientOptions)).Append(" {");
        string gap = " ";
        foreach ((string name, string value) in ToPairs([]))
        {
            text.Append(gap).Append(name).Append(" = ").Append(IsSecret(name) ? "***" : value);
            gap = ", ";
        }

        return text.Append(" }").ToString();
    }

    /// <summary>A copy that later changes do not reach.</summary>
    internal ClientOptions Clone()
    {
        var copy = (ClientOptions)MemberwiseClone();
        copy.BootstrapServers = (string[]?)BootstrapServers?.Clone();
        copy.SubscribedTopics = (string[]?)SubscribedTopics?.Clone();
        copy.AllowedEvents = (string[]?)AllowedEvents?.Clone();
        copy.CassandraNodes = (string[]?)CassandraNodes?.Clone();
        return copy;
    }

    /// <summary>The options that are set, as texts for the core, which checks them. What a text cannot express is checked here.</summary>
    internal List<KeyValuePair<string, string>> ToPairs(List<string> problems)
    {
        var writer = new OptionWriter(problems);
        Walk(writer);
        return writer.Pairs;
    }

    /// <summary>Every option that is text for the core, in the order of CONFIGURATION.md. Each becomes what the walk answers.</summary>
    internal void Walk(OptionWalk walk)
    {
        BootstrapServers = walk.List(nameof(BootstrapServers), BootstrapServers);
        GroupId = walk.Text(nameof(GroupId), GroupId);
        SubscribedTopics = walk.List(nameof(SubscribedTopics), SubscribedTopics);
        AllowedEvents = walk.List(nameof(AllowedEvents), AllowedEvents, mayBeEmpty: true);
        SourceSystem = walk.Text(nameof(SourceSystem), SourceSystem);
        Subsystem = walk.Text(nameof(Subsystem), Subsystem);
        Mode = walk.Mode(nameof(Mode), Mode);
        Mock = walk.Flag(nameof(Mock), Mock);
        MaxConcurrency = walk.Count(nameof(MaxConcurrency), MaxConcurrency);
        MaxUncommitted = walk.Count(nameof(MaxUncommitted), MaxUncommitted);
        Timeout = walk.Duration(nameof(Timeout), Timeout);
        StallThreshold = walk.Duration(nameof(StallThreshold), StallThreshold);
        ShutdownTimeout = walk.Duration(nameof(ShutdownTimeout), ShutdownTimeout);
        SubscribeTimeout = walk.Duration(nameof(SubscribeTimeout), SubscribeTimeout);
        PollInterval = walk.Duration(nameof(PollInterval), PollInterval);
        CommitInterval = walk.Duration(nameof(CommitInterval), CommitInterval);
        SendTimeout = walk.DurationOrNone(nameof(SendTimeout), SendTimeout);
        SessionTimeout = walk.Duration(nameof(SessionTimeout), SessionTimeout);
        FetchBufferSize = walk.Size(nameof(FetchBufferSize), FetchBufferSize);
        ProbePort = walk.Port(nameof(ProbePort), ProbePort);
        ProbeAddress = walk.Text(nameof(ProbeAddress), ProbeAddress);
        ProbeDetails = walk.Flag(nameof(ProbeDetails), ProbeDetails);
        FailureTopic = walk.Text(nameof(FailureTopic), FailureTopic);
        MaxRetries = walk.Count(nameof(MaxRetries), MaxRetries);
        RetryBase = walk.Duration(nameof(RetryBase), RetryBase);
        MaxRetryDelay = walk.Duration(nameof(MaxRetryDelay), MaxRetryDelay);
        DeferEnabled = walk.Flag(nameof(DeferEnabled), DeferEnabled);
        DeferBase = walk.Duration(nameof(DeferBase), DeferBase);
        DeferMaxDelay = walk.Duration(nameof(DeferMaxDelay), DeferMaxDelay);
        DeferFailureThreshold = walk.Number(nameof(DeferFailureThreshold), DeferFailureThreshold);
        DeferFailureWindow = walk.Duration(nameof(DeferFailureWindow), DeferFailureWindow);
        DeferMaxRetries = walk.Count(nameof(DeferMaxRetries), DeferMaxRetries);
        LoaderCacheSize = walk.Size(nameof(LoaderCacheSize), LoaderCacheSize);
        LoaderSeekTimeout = walk.Duration(nameof(LoaderSeekTimeout), LoaderSeekTimeout);
        MonopolizationEnabled = walk.Flag(nameof(MonopolizationEnabled), MonopolizationEnabled);
        MonopolizationThreshold = walk.Number(nameof(MonopolizationThreshold), MonopolizationThreshold);
        MonopolizationWindow = walk.Duration(nameof(MonopolizationWindow), MonopolizationWindow);
        SchedulerFailureWeight = walk.Number(nameof(SchedulerFailureWeight), SchedulerFailureWeight);
        SchedulerMaxWait = walk.Duration(nameof(SchedulerMaxWait), SchedulerMaxWait);
        SchedulerWaitWeight = walk.Number(nameof(SchedulerWaitWeight), SchedulerWaitWeight);
        IdempotenceCacheSize = walk.Count(nameof(IdempotenceCacheSize), IdempotenceCacheSize);
        IdempotenceVersion = walk.Text(nameof(IdempotenceVersion), IdempotenceVersion);
        IdempotenceTtl = walk.Duration(nameof(IdempotenceTtl), IdempotenceTtl);
        MessageSpans = walk.Span(nameof(MessageSpans), MessageSpans);
        TimerSpans = walk.Span(nameof(TimerSpans), TimerSpans);
        CassandraNodes = walk.List(nameof(CassandraNodes), CassandraNodes);
        CassandraKeyspace = walk.Text(nameof(CassandraKeyspace), CassandraKeyspace);
        CassandraUser = walk.Text(nameof(CassandraUser), CassandraUser);
        CassandraPassword = walk.Text(nameof(CassandraPassword), CassandraPassword);
        CassandraDatacenter = walk.Text(nameof(CassandraDatacenter), CassandraDatacenter);
        CassandraRack = walk.Text(nameof(CassandraRack), CassandraRack);
        CassandraRetention = walk.Duration(nameof(CassandraRetention), CassandraRetention);
        CassandraReplication = walk.Text(nameof(CassandraReplication), CassandraReplication);
        StateOwnedCacheSize = walk.Size(nameof(StateOwnedCacheSize), StateOwnedCacheSize);
        StateReadCacheSize = walk.Size(nameof(StateReadCacheSize), StateReadCacheSize);
        AcceptPartitionGrowth = walk.Flag(nameof(AcceptPartitionGrowth), AcceptPartitionGrowth);
        TelemetryEnabled = walk.Flag(nameof(TelemetryEnabled), TelemetryEnabled);
        TelemetryTopic = walk.Text(nameof(TelemetryTopic), TelemetryTopic);
        SecurityProtocol = walk.Text(nameof(SecurityProtocol), SecurityProtocol);
        SaslMechanism = walk.Text(nameof(SaslMechanism), SaslMechanism);
        SaslUsername = walk.Text(nameof(SaslUsername), SaslUsername);
        SaslPassword = walk.Text(nameof(SaslPassword), SaslPassword);
        SaslOauthTokenEndpoint = walk.Text(nameof(SaslOauthTokenEndpoint), SaslOauthTokenEndpoint);
        SaslOauthClientId = walk.Text(nameof(SaslOauthClientId), SaslOauthClientId);
        SaslOauthClientSecret = walk.Text(nameof(SaslOauthClientSecret), SaslOauthClientSecret);
        SaslOauthScope = walk.Text(nameof(SaslOauthScope), SaslOauthScope);
        SslCaLocation = walk.Text(nameof(SslCaLocation), SslCaLocation);
        SslCertificateLocation = walk.Text(nameof(SslCertificateLocation), SslCertificateLocation);
        SslKeyLocation = walk.Text(nameof(SslKeyLocation), SslKeyLocation);
        SslKeyPassword = walk.Text(nameof(SslKeyPassword), SslKeyPassword);
        ClientRack = walk.Text(nameof(ClientRack), ClientRack);
        GroupInstanceId = walk.Text(nameof(GroupInstanceId), GroupInstanceId);
        GroupProtocol = walk.Text(nameof(GroupProtocol), GroupProtocol);
        IsolationLevel = walk.Text(nameof(IsolationLevel), IsolationLevel);
        Compression = walk.Text(nameof(Compression), Compression);
        Partitioner = walk.Text(nameof(Partitioner), Partitioner);
    }

    private static bool IsSecret(string name) => name is
        nameof(CassandraPassword)
        or nameof(SaslPassword)
        or nameof(SaslOauthClientSecret)
        or nameof(SslKeyPassword);
}
