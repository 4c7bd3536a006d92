namespace Prosody;

/// <summary>
/// Handles the events of a subscription. One instance serves all of them: events of one key come one at a time and in
/// order, events of other keys at the same time on other threads.
/// </summary>
/// <typeparam name="TPayload">What the JSON payload is deserialized to.</typeparam>
/// <remarks>
/// A task that completes without an exception means that the event is done for good, also after a cancellation. Any
/// exception, <see cref="OperationCanceledException"/> included, means that it is not.
/// </remarks>
public interface IProsodyHandler<TPayload>
{
    /// <summary>Handles a message.</summary>
    /// <param name="prosodyContext">The surroundings of this attempt; not to be used after it.</param>
    /// <param name="message">The message.</param>
    /// <param name="cancellationToken">Cancelled when the attempt should end: its timeout passed, or its partition is being given up.</param>
    /// <returns>A task that completes when the message is handled.</returns>
    Task OnMessageAsync(ProsodyContext prosodyContext, Message<TPayload> message, CancellationToken cancellationToken);

    /// <summary>Handles a timer that fired. The default refuses, so that a timer without a handler is retried and seen, never silently done.</summary>
    /// <param name="prosodyContext">The surroundings of this attempt; not to be used after it.</param>
    /// <param name="timer">The timer.</param>
    /// <param name="cancellationToken">Cancelled when the attempt should end: its timeout passed, or its partition is being given up.</param>
    /// <returns>A task that completes when the timer is handled.</returns>
    /// <exception cref="NotImplementedException">The handler has no method for timers.</exception>
    Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) =>
        throw new NotImplementedException($"A timer fired, but {GetType()} does not implement {nameof(OnTimerAsync)}.");
}
