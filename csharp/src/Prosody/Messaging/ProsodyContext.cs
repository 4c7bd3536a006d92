using Prosody.Interop;

namespace Prosody;

/// <summary>
/// The surroundings of one attempt at one event. After the handler has ended every member throws
/// <see cref="ObjectDisposedException"/>.
/// </summary>
#pragma warning disable CA1001 // A source without timer and wait handle holds nothing, and handlers may keep its token.
public sealed class ProsodyContext
#pragma warning restore CA1001
{
    private const int Cancelled = 1;
    private const int Over = 2;

    private readonly NativeClient _client;
    private readonly CancellationTokenSource _cancellation = new();
    private TaskCompletionSource? _onCancel;
    private int _state;

    internal ProsodyContext(NativeClient client, ulong token)
    {
        _client = client;
        Token = token;
    }

    /// <summary>Whether the attempt should end: its timeout passed, or its partition is being given up.</summary>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public bool ShouldCancel
    {
        get
        {
            int state = Volatile.Read(ref _state);
            ThrowIfOver(state);
            return (state & Cancelled) != 0;
        }
    }

    /// <summary>Names the event on the native side.</summary>
    internal ulong Token { get; }

    /// <summary>The token the handler gets. Fresh for each attempt, so one that is kept is never cancelled by another event.</summary>
    internal CancellationToken CancellationToken => _cancellation.Token;

    internal bool IsCancelled => (Volatile.Read(ref _state) & Cancelled) != 0;

    /// <summary>Completes when cancellation is signalled. When the handler ends first, the task is cancelled.</summary>
    /// <returns>A task that runs to completion only if cancellation is signalled.</returns>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task OnCancelAsync()
    {
        int state = Volatile.Read(ref _state);
        ThrowIfOver(state);
        if ((state & Cancelled) != 0)
        {
            return Task.CompletedTask;
        }

        if (Volatile.Read(ref _onCancel) is not { } onCancel)
        {
            var made = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            onCancel = Interlocked.CompareExchange(ref _onCancel, made, null) ?? made;
            // A signal between the check above and the exchange found nothing to complete.
            Settle(onCancel, Volatile.Read(ref _state));
        }

        return onCancel.Task;
    }

    /// <summary>
    /// Schedules a timer of this event's key, rounded to the nearest second. Timer calls count when the handler succeeds;
    /// an attempt that fails leaves nothing of them.
    /// </summary>
    /// <param name="time">When it fires; at once when that has passed.</param>
    /// <returns>A task that completes when the timer is accepted.</returns>
    /// <exception cref="TransientStateException">Timers need a store, which <c>PROSODY_CASSANDRA_NODES</c> names; or the key has 16,384 timers already.</exception>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task ScheduleAsync(DateTimeOffset time) => Timer(NativeMethods.PR_TIMER_SCHEDULE, time);

    /// <summary>Replaces all timers of this event's key by one, rounded to the nearest second.</summary>
    /// <param name="time">When it fires; at once when that has passed.</param>
    /// <returns>A task that completes when the timer is accepted.</returns>
    /// <exception cref="TransientStateException">Timers need a store, which <c>PROSODY_CASSANDRA_NODES</c> names; or the key has 16,384 timers already.</exception>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task ClearAndScheduleAsync(DateTimeOffset time) => Timer(NativeMethods.PR_TIMER_CLEAR_AND_SCHEDULE, time);

    /// <summary>Removes the timer scheduled for the given time, which is rounded in the same way.</summary>
    /// <param name="time">The time it was scheduled for.</param>
    /// <returns>A task that completes when the timer is gone.</returns>
    /// <exception cref="TransientStateException">Timers need a store, which <c>PROSODY_CASSANDRA_NODES</c> names; or the key has 16,384 timers already.</exception>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task UnscheduleAsync(DateTimeOffset time) => Timer(NativeMethods.PR_TIMER_UNSCHEDULE, time);

    /// <summary>Removes all timers of this event's key.</summary>
    /// <returns>A task that completes when they are gone.</returns>
    /// <exception cref="TransientStateException">Timers need a store, which <c>PROSODY_CASSANDRA_NODES</c> names; or the key has 16,384 timers already.</exception>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task ClearScheduledAsync() => Timer(NativeMethods.PR_TIMER_CLEAR, default);

    /// <summary>
    /// The times of this event's key for which timers are scheduled, ascending, in UTC, as the handler's own calls have made
    /// them. The timer that is firing is not among them unless it was scheduled again.
    /// </summary>
    /// <returns>The times; empty when there are none.</returns>
    /// <exception cref="TransientStateException">Timers need a store, which <c>PROSODY_CASSANDRA_NODES</c> names; or the key has 16,384 timers already.</exception>
    /// <exception cref="ObjectDisposedException">The handler has ended.</exception>
    public Task<DateTimeOffset[]> ScheduledAsync()
    {
        ThrowIfOver(Volatile.Read(ref _state));
        CancellationToken token = CancellationToken;
        if (token.IsCancellationRequested)
        {
            return Task.FromCanceled<DateTimeOffset[]>(token);
        }

        try
        {
            return Task.FromResult(Array.ConvertAll(_client.Timers(Token), DateTimeOffset.FromUnixTimeSeconds));
        }
        catch (Exception failed) when (failed is StateException or ProsodyException or ObjectDisposedException)
        {
            return Task.FromException<DateTimeOffset[]>(failed);
        }
    }

    /// <summary>Signals the cancellation: everything but the callbacks of the token, which are user code.</summary>
    /// <returns>What runs those callbacks, or null when the event is over or was cancelled before.</returns>
    internal Action? MarkCancelled()
    {
        int before = Interlocked.Or(ref _state, Cancelled);
        if (before != 0)
        {
            return null;
        }

        Volatile.Read(ref _onCancel)?.TrySetResult();
        return RunCallbacks;
    }

    /// <summary>The handler has ended.</summary>
    internal void End()
    {
        int before = Interlocked.Or(ref _state, Over);
        if (Volatile.Read(ref _onCancel) is { } onCancel)
        {
            Settle(onCancel, before | Over);
        }
    }

    /// <summary>Half a second rounds up; times before the epoch alike.</summary>
    internal static long RoundToSeconds(DateTimeOffset time)
    {
        long ticks = time.UtcTicks - DateTimeOffset.UnixEpoch.Ticks + (TimeSpan.TicksPerSecond / 2);
        long seconds = ticks / TimeSpan.TicksPerSecond;
        return ticks % TimeSpan.TicksPerSecond < 0 ? seconds - 1 : seconds;
    }

    private static void Settle(TaskCompletionSource onCancel, int state)
    {
        if ((state & Cancelled) != 0)
        {
            onCancel.TrySetResult();
        }
        else if ((state & Over) != 0)
        {
            onCancel.TrySetCanceled();
        }
    }

    private static void ThrowIfOver(int state) =>
        ObjectDisposedException.ThrowIf((state & Over) != 0, typeof(ProsodyContext));

    private Task Timer(int call, DateTimeOffset time)
    {
        ThrowIfOver(Volatile.Read(ref _state));
        CancellationToken token = CancellationToken;
        return token.IsCancellationRequested
            ? Task.FromCanceled(token)
            : _client.TimerAsync(Token, call, RoundToSeconds(time), token);
    }

    private void RunCallbacks()
    {
        try
        {
            _cancellation.Cancel();
        }
        catch (AggregateException thrown)
        {
            ClientLog.CancellationCallbackThrew(thrown);
        }
    }
}
