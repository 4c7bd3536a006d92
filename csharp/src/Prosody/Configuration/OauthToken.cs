using System.Diagnostics;

namespace Prosody;

/// <summary>What proves to brokers who a client is, for a while (SASL OAUTHBEARER). Neither its text nor a debugger shows it.</summary>
[DebuggerDisplay("{ToString(),nq}")]
public sealed class OauthToken
{
    /// <summary>Takes a token as an identity provider gave it.</summary>
    /// <param name="value">The token: printable ASCII, at most 256 KiB.</param>
    /// <param name="expiresOn">From when on it does not count any more; null when it is to be used until a broker refuses it.</param>
    public OauthToken(string value, DateTimeOffset? expiresOn = null)
    {
        ArgumentException.ThrowIfNullOrEmpty(value);
        Value = value;
        ExpiresOn = expiresOn;
    }

    /// <summary>The token.</summary>
    [DebuggerBrowsable(DebuggerBrowsableState.Never)]
    public string Value { get; }

    /// <summary>From when on it does not count any more. The next one is asked for when 80 % of the time until then have passed.</summary>
    public DateTimeOffset? ExpiresOn { get; }

    /// <summary>SASL extensions (KIP-342), sent beside the token: at most 64, names of letters, printable values. Default: none.</summary>
    public IReadOnlyDictionary<string, string> Extensions { get; init; } = new Dictionary<string, string>();

    /// <summary>When it expires; never the token.</summary>
    /// <returns>The text.</returns>
    public override string ToString() => ExpiresOn is { } expiresOn ? $"{nameof(OauthToken)} until {expiresOn:O}" : nameof(OauthToken);
}
