namespace Prosody;

/// <summary>What happens to an event whose handler fails.</summary>
public enum ClientMode
{
    /// <summary>Retried until it succeeds. The default.</summary>
    Pipeline,

    /// <summary>Few retries, then the failure topic.</summary>
    LowLatency,

    /// <summary>Logged and skipped.</summary>
    BestEffort,
}

/// <summary>Where a consumer is in its life.</summary>
public enum ConsumerState
{
    /// <summary>No group or no topics: the client can only send.</summary>
    Unconfigured,

    /// <summary>Ready to subscribe.</summary>
    Configured,

    /// <summary>Subscribed.</summary>
    Running,
}

/// <summary>How the span of an execution relates to the span that caused it.</summary>
public enum SpanRelation
{
    /// <summary>A child in the same trace.</summary>
    Child,

    /// <summary>The root of a new trace, with a link.</summary>
    FollowsFrom,
}
