// What the tests share: mock clusters, a recording handler, live-object counters.

using System.Threading.Channels;
using Prosody.Interop;

[assembly: TestCollectionOrderer(typeof(Prosody.Tests.LeaksLast))]

namespace Prosody.Tests;

public sealed record Payload(string? Text = null, int Number = 0, string? Id = null, string? Type = null);

/// <summary>Clients of mock clusters, one cluster for each test.</summary>
internal static class Mock
{
    internal static readonly TimeSpan Patience = TimeSpan.FromSeconds(30);

    private static int _clusters;

    internal static string Cluster() => $"mock://test-{Environment.ProcessId}-{Interlocked.Increment(ref _clusters)}";

    internal static ProsodyClientBuilder Builder(string? cluster = null, string group = "group", string topic = "topic") =>
        ProsodyClientBuilder.Create()
            .WithMock(true)
            .WithBootstrapServers(cluster ?? Cluster())
            .WithGroupId(group)
            .WithSourceSystem("tests")
            .WithSubscribedTopics(topic);

    internal static Task WithPatience(this Task task) => task.WaitAsync(Patience);

    internal static Task<T> WithPatience<T>(this Task<T> task) => task.WaitAsync(Patience);

    /// <summary>Completes when the token is cancelled.</summary>
    internal static Task WaitAsync(this CancellationToken token)
    {
        var cancelled = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        token.Register(cancelled.SetResult);
        return cancelled.Task.WithPatience();
    }

    /// <summary>Waits for a condition that no event announces.</summary>
    internal static Task Until(Func<bool> condition, string what) => Until(() => Task.FromResult(condition()), what);

    /// <inheritdoc cref="Until(Func{bool}, string)"/>
    internal static async Task Until(Func<Task<bool>> condition, string what)
    {
        long end = Environment.TickCount64 + (long)Patience.TotalMilliseconds;
        while (!await condition())
        {
            Assert.True(Environment.TickCount64 < end, "never: " + what);
            await Task.Yield();
            await Task.Delay(1);
        }
    }
}

/// <summary>An exception that says nothing.</summary>
internal sealed class TextThrows : Exception
{
    public override string Message => throw new InvalidOperationException();

    public override string ToString() => throw new InvalidOperationException();
}

/// <summary>A handler that records its messages and does what it is told.</summary>
internal class Recorder<T>(Func<ProsodyContext, Message<T>, CancellationToken, Task>? act = null) : IProsodyHandler<T>
{
    private readonly Channel<Message<T>> _done = Channel.CreateUnbounded<Message<T>>();

    public virtual async Task OnMessageAsync(ProsodyContext prosodyContext, Message<T> message, CancellationToken cancellationToken)
    {
        if (act is not null)
        {
            await act(prosodyContext, message, cancellationToken);
        }

        _done.Writer.TryWrite(message);
    }

    /// <summary>The next message whose handler succeeded.</summary>
    internal Task<Message<T>> NextAsync() => _done.Reader.ReadAsync().AsTask().WithPatience();

    internal async Task<List<Message<T>>> TakeAsync(int count)
    {
        var taken = new List<Message<T>>(count);
        while (taken.Count < count)
        {
            taken.Add(await NextAsync());
        }

        return taken;
    }
}
