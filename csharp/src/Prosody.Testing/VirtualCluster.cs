// How does a test make hours pass? A mock cluster with a clock of its own.

using Prosody.Interop;

namespace Prosody.Testing;

/// <summary>
/// A mock cluster whose clock stands still until a test moves it. Timers, retries and times to live of its clients come
/// when the clock is moved there, and not before.
/// </summary>
/// <remarks>
/// Clients use it by <see cref="BootstrapServers"/>. Open it before the first of them is built. The cluster lives while a client
/// or one of these refers to it, and 30 s longer. What a handler waits for by itself, such as <see cref="Task.Delay(TimeSpan)"/>,
/// goes by the machine's clock. What a subscribed client does every few seconds it does on this clock too, about 100,000 times a
/// day, so a move takes as long as that work.
/// </remarks>
public sealed class VirtualCluster : IDisposable, IAsyncDisposable
{
    private static readonly TimeSpan CloseBudget = TimeSpan.FromSeconds(2);
    private static int _count;

    private readonly NativeCluster _native;
    private readonly NativeHandle _handle;

    /// <summary>Opens a cluster that nobody else uses.</summary>
    public VirtualCluster()
        : this($"virtual-{Environment.ProcessId}-{Interlocked.Increment(ref _count)}")
    {
    }

    /// <summary>Opens the cluster of a name.</summary>
    /// <param name="name">Those of one name and process are the same cluster with the same clock.</param>
    /// <exception cref="InvalidOperationException">A client of that cluster made it go by the machine's clock already.</exception>
    public VirtualCluster(string name)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(name);
        _native = NativeCluster.Open(name);
        _handle = new NativeHandle(_native.Handle);
        BootstrapServers = "mock://" + name;
    }

    /// <summary>What a client passes to <see cref="ProsodyClientBuilder.WithBootstrapServers"/>.</summary>
    public string BootstrapServers { get; }

    /// <summary>What the clock shows, in UTC and whole milliseconds. It starts at the machine's time.</summary>
    public DateTimeOffset UtcNow
    {
        get
        {
            ObjectDisposedException.ThrowIf(_handle.IsClosed, this);
            return _native.Now();
        }
    }

    /// <summary>
    /// Moves the clock. It stops at each instant at which something is due, and goes on when all that follows from it has
    /// happened. While a handler runs it stands still; one that has run for 5 s of real time is taken to wait for the clock
    /// itself, for instance for its timeout, and the clock goes on then.
    /// </summary>
    /// <param name="by">0 or longer, in whole milliseconds.</param>
    /// <returns>A task that completes when the clock has arrived.</returns>
    /// <exception cref="ArgumentOutOfRangeException"><paramref name="by"/> is negative.</exception>
    public Task AdvanceAsync(TimeSpan by)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(by, TimeSpan.Zero);
        ObjectDisposedException.ThrowIf(_handle.IsClosed, this);
        return _native.AdvanceAsync(by);
    }

    /// <summary>Lets go of the cluster; a move that is under way goes on without its task.</summary>
    public void Dispose()
    {
        _native.Close();
        _native.WaitForEnd(CloseBudget);
        Free();
    }

    /// <summary>Lets go of the cluster; a move that is under way goes on without its task.</summary>
    /// <returns>A task that completes when it has.</returns>
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
