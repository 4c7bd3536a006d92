using Prosody.Interop;

namespace Prosody;

/// <summary>Creates and deletes topics, for tests and tools. With <c>PROSODY_MOCK=true</c> it talks to the broker inside this process.</summary>
public sealed class AdminClient : IDisposable, IAsyncDisposable
{
    private static readonly TimeSpan CloseBudget = TimeSpan.FromSeconds(2);

    private readonly NativeAdmin _native;
    private readonly NativeHandle _handle;

    /// <summary>Makes an admin client, without touching the network.</summary>
    /// <param name="bootstrapServers">Each as <c>host:port</c>; none means those of <c>PROSODY_BOOTSTRAP_SERVERS</c>.</param>
    /// <exception cref="ArgumentException">No server is named, or one cannot be used.</exception>
    public AdminClient(params string[] bootstrapServers)
    {
        ArgumentNullException.ThrowIfNull(bootstrapServers);
        var problems = new List<string>();
        var options = new ClientOptions { BootstrapServers = bootstrapServers.Length == 0 ? null : bootstrapServers };
        List<KeyValuePair<string, string>> pairs = options.ToPairs(problems);
        if (problems.Count > 0)
        {
            throw new ArgumentException(string.Join(Environment.NewLine, problems), nameof(bootstrapServers));
        }

        _native = NativeAdmin.Create(Utf8.Pairs(pairs), Utf8.Pairs(HostEnvironment.Read()));
        _handle = new NativeHandle(_native.Handle);
    }

    /// <summary>Creates a topic.</summary>
    /// <param name="name">The topic's name.</param>
    /// <param name="partitionCount">At least 1.</param>
    /// <param name="replicationFactor">At least 1.</param>
    /// <returns>A task that completes when the cluster has the topic.</returns>
    /// <exception cref="ProsodyException">The cluster refused; <c>TOPIC_ALREADY_EXISTS</c> when the topic does.</exception>
    public Task CreateTopicAsync(string name, ushort partitionCount, ushort replicationFactor)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(name);
        ArgumentOutOfRangeException.ThrowIfZero(partitionCount);
        ArgumentOutOfRangeException.ThrowIfZero(replicationFactor);
        ObjectDisposedException.ThrowIf(_handle.IsClosed, this);
        return _native.CreateTopicAsync(name, partitionCount, replicationFactor);
    }

    /// <summary>Deletes a topic.</summary>
    /// <param name="name">The topic's name.</param>
    /// <returns>A task that completes when the controller has accepted it.</returns>
    /// <exception cref="ProsodyException">The cluster refused.</exception>
    public Task DeleteTopicAsync(string name)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(name);
        ObjectDisposedException.ThrowIf(_handle.IsClosed, this);
        return _native.DeleteTopicAsync(name);
    }

    /// <summary>Closes the connections.</summary>
    public void Dispose()
    {
        _native.Close();
        _native.WaitForEnd(CloseBudget);
        Free();
    }

    /// <summary>Closes the connections.</summary>
    /// <returns>A task that completes when they are closed.</returns>
    public async ValueTask DisposeAsync()
    {
        _native.Close();
        await _native.EndWithin(CloseBudget).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        Free();
    }

    private void Free()
    {
        _handle.Dispose();
        _native.Abandon();
    }
}
