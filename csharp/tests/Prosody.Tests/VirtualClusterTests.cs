// Hours that pass in no time: a mock cluster with a clock that the test moves.

using System.Collections.Concurrent;
using Prosody.Testing;

namespace Prosody.Tests;

public sealed class VirtualClusterTests
{
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);

    [Fact]
    public async Task A_timer_hours_ahead_fires_when_the_clock_is_moved_there_and_not_before()
    {
        await using var cluster = new VirtualCluster();
        DateTimeOffset start = cluster.UtcNow;
        Assert.InRange(start, DateTimeOffset.UtcNow.AddMinutes(-1), DateTimeOffset.UtcNow.AddMinutes(1));
        var handler = new Chain(cluster, start);
        await using ProsodyClient client = Mock.Builder(cluster.BootstrapServers).Build();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        Assert.Equal(start, cluster.UtcNow);
        await cluster.AdvanceAsync((3 * Hour) - TimeSpan.FromSeconds(2)).WithPatience();
        Assert.Empty(handler.Fired);
        // Each firing schedules the next one, and takes a while that is none on this clock.
        await cluster.AdvanceAsync(6 * Hour).WithPatience();
        Assert.Equal([3, 6], handler.Fired);
        await cluster.AdvanceAsync(TimeSpan.FromSeconds(4)).WithPatience();
        Assert.Equal([3, 6, 9], handler.Fired);
        Assert.Equal(start + (9 * Hour) + TimeSpan.FromSeconds(2), cluster.UtcNow);
    }

    [Fact]
    public async Task A_cluster_that_goes_by_the_machines_clock_gets_no_other()
    {
        string bootstrap = Mock.Cluster();
        await using ProsodyClient client = Mock.Builder(bootstrap).Build();
        string name = bootstrap["mock://".Length..];
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(() => new VirtualCluster(name));
        Assert.Contains(name, refused.Message, StringComparison.Ordinal);
        Assert.Contains("before its first client", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Its_calls_say_what_is_wrong()
    {
        var cluster = new VirtualCluster();
        await Assert.ThrowsAsync<ArgumentOutOfRangeException>(() => cluster.AdvanceAsync(TimeSpan.FromTicks(-1)));
        await cluster.AdvanceAsync(TimeSpan.Zero).WithPatience();
        await cluster.DisposeAsync();
        cluster.Dispose();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => cluster.AdvanceAsync(Hour));
        Assert.Throws<ObjectDisposedException>(() => cluster.UtcNow);
        Assert.Throws<ArgumentException>(static () => new VirtualCluster(" "));
    }

    /// <summary>Schedules itself three hours ahead, again and again.</summary>
    private sealed class Chain(VirtualCluster cluster, DateTimeOffset start)
        : Recorder<Payload>((context, _, _) => context.ScheduleAsync(start + (3 * Hour))), IProsodyHandler<Payload>
    {
        /// <summary>Hours since the start.</summary>
        internal ConcurrentQueue<double> Fired { get; } = new();

        public async Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
        {
            await Task.Delay(TimeSpan.FromMilliseconds(20), cancellationToken);
            Fired.Enqueue(Math.Round((cluster.UtcNow - start).TotalHours, 3));
            await prosodyContext.ScheduleAsync(timer.Time + (3 * Hour));
        }
    }
}
