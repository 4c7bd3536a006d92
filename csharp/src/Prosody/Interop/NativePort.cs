// Who works for the native side, and what is a call? Pump threads inside pr_wait, which calls them back with events; no
// native thread ever enters managed code.

using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Prosody.Interop;

/// <summary>
/// One native object with its pending operations and its pump threads. Pump threads are started by the first call that
/// needs one; they root this object, not its public owner.
/// </summary>
#pragma warning disable CA1001 // The event has no kernel object unless somebody asks for one, and pumps may set it late.
internal abstract unsafe class NativePort
#pragma warning restore CA1001
{
    /// <summary>Events one wait takes at most.</summary>
    private const int BatchEvents = 256;

    /// <summary>A pump that had no work for so long ends, unless it is the last one that waits.</summary>
    private const uint WaitMilliseconds = 20_000;

    /// <summary>Panics in a row inside the wait itself after which a pump gives up.</summary>
    private const int MaxFaultsInARow = 3;

    /// <summary>Whom this thread works for.</summary>
    [ThreadStatic]
    private static NativePort? _employer;

    private readonly OperationTable _operations = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly ManualResetEventSlim _endedEvent = new();
    private readonly object _gate = new();
    private readonly int _pumpCount;
    private readonly string _owner;
    private int _starting;
    private int _started;
    private bool _pumping;

    private protected NativePort(ulong handle, int pumpCount, string owner)
    {
        Handle = handle;
        _pumpCount = pumpCount;
        _owner = owner;
    }

    /// <summary>The number every call passes. The native side checks it, so a late call finds a closed object.</summary>
    internal ulong Handle { get; }

    /// <summary>Operations that have not ended, for tests.</summary>
    internal int PendingOperations => _operations.Count;

    /// <summary>Waits until the native queue has closed, so long at the most, without help of the thread pool. Where no
    /// pump was started nothing is waited for.</summary>
    internal void WaitForEnd(TimeSpan budget)
    {
        if (IsPumping())
        {
            _ = _endedEvent.Wait(budget);
        }
    }

    /// <summary>As <see cref="WaitForEnd"/>; a task that fails when the time is over.</summary>
    internal Task EndWithin(TimeSpan budget) => IsPumping() ? _ended.Task.WaitAsync(budget) : Task.CompletedTask;

    /// <summary>Starts the graceful stop; the queue closes at its end.</summary>
    internal void Close() => NativeMethods.pr_close(Handle);

    /// <summary>Ends everything that is pending: the native side will not.</summary>
    internal virtual void Abandon()
    {
        foreach (Operation operation in _operations.Drain())
        {
            operation.End(new ObjectDisposedException(_owner));
        }
    }

    private bool IsPumping()
    {
        lock (_gate)
        {
            return _pumping;
        }
    }

    /// <summary>Runs the handler of a message or a timer, up to its first incomplete await.</summary>
    /// <returns>Whether the event is done; otherwise it ends by a call of its own.</returns>
    private protected virtual bool Run(in PrEvent native) => false;

    /// <summary>Marks an event as cancelled.</summary>
    /// <returns>What runs the callbacks of its token; null when the event is over.</returns>
    private protected virtual Action? Cancel(ulong token) => null;

    /// <summary>Why there is no token for brokers, if that is so.</summary>
    private protected virtual TokenFailure? TokenFailure => null;

    /// <summary>A token is wanted, or is not wanted any more.</summary>
    private protected virtual void Token(ulong question, bool isWanted)
    {
    }

    /// <summary>Makes the number of an operation that is about to start, and the pumps that will hear of its end.</summary>
    private protected Operation Begin(string? topic = null, CancellationToken token = default)
    {
        StartPumps();
        var operation = new Operation(topic);
        _operations.Add(operation);
        operation.CancelWith(token);
        return operation;
    }

    /// <summary>The task of an operation whose native call has answered.</summary>
    private protected Task Answer(Operation operation, int status, PrError* error)
    {
        if (status != NativeMethods.PR_PENDING)
        {
            // The native side has nothing pending, so nobody else completes it.
            _operations.Remove(operation.Id);
            operation.End(status == NativeMethods.PR_OK ? null : Failures.From(Handle, status, error, _owner, operation.Topic, TokenFailure));
        }

        return operation.Task;
    }

    /// <summary>Forgets an operation whose native call was never made.</summary>
    private protected void Forget(Operation operation)
    {
        _operations.Remove(operation.Id);
        operation.End(null);
    }

    private void StartPumps()
    {
        if (Volatile.Read(ref _pumping))
        {
            return;
        }

        lock (_gate)
        {
            if (_pumping)
            {
                return;
            }

            for (int i = 0; i < _pumpCount; i++)
            {
                StartPump();
            }

            Volatile.Write(ref _pumping, true);
        }
    }

    private void StartPump() =>
        // Without the caller's context: AsyncLocals of whoever called first would reach every handler.
        new Thread(Pump) { IsBackground = true, Name = $"Prosody pump {Interlocked.Increment(ref _started)}" }.UnsafeStart();

    /// <summary>
    /// Before user code runs, which may keep this thread for ever: there must be another one. One at a time, and none when
    /// the system has no more threads; then the others go on as they return.
    /// </summary>
    private void EnsureSpare(uint spare)
    {
        if (spare > 0 || Interlocked.Exchange(ref _starting, 1) != 0)
        {
            return;
        }

        try
        {
            StartPump();
        }
        catch (Exception refused) when (refused is OutOfMemoryException or ThreadStartException)
        {
            Volatile.Write(ref _starting, 0);
        }
    }

    private void Pump()
    {
        _employer = this;
        var batch = (PrEvent*)NativeMemory.Alloc(BatchEvents, (nuint)sizeof(PrEvent));
        Volatile.Write(ref _starting, 0);
        int faults = 0;
        try
        {
            while (faults < MaxFaultsInARow)
            {
                uint count = 0;
                int status = NativeMethods.pr_wait(Handle, &RunOnPump, batch, BatchEvents, WaitMilliseconds, &count);
                if (status == NativeMethods.PR_PENDING)
                {
                    return;
                }

                if (status == NativeMethods.PR_CLOSED)
                {
                    break;
                }

                faults = status == NativeMethods.PR_FAULTED ? faults + 1 : 0;
                if (status == NativeMethods.PR_OK)
                {
                    Dispatch(batch, (int)count);
                }
            }
        }
        finally
        {
            NativeMemory.Free(batch);
        }

        // The native side says so only once every end of an operation that was handed out has been dealt with.
        Abandon();
        _endedEvent.Set();
        _ended.TrySetResult();
    }

    /// <summary>What pr_wait calls, on the pump's own stack.</summary>
    [UnmanagedCallersOnly(CallConvs = [typeof(CallConvCdecl)])]
    private static int RunOnPump(PrEvent* native)
    {
        NativePort employer = _employer!;
        try
        {
            employer.EnsureSpare(native->spare);
            return employer.Run(in *native) ? 0 : 1;
        }
#pragma warning disable CA1031 // Below this frame is native code, which no exception may pass.
        catch (Exception)
#pragma warning restore CA1031
        {
            NativeMethods.pr_complete(employer.Handle, native->token, NativeMethods.PR_OUTCOME_TRANSIENT, default);
            return 1;
        }
    }

    private void Dispatch(PrEvent* batch, int count)
    {
        for (int i = 0; i < count; i++)
        {
            PrEvent* native = batch + i;
            switch (native->kind)
            {
                case NativeMethods.PR_EVENT_CANCEL:
                    if (Cancel(native->token) is { } callbacks)
                    {
                        // User code that may block. It comes alone, so nothing waits behind it.
                        EnsureSpare(native->spare);
                        CleanContext.Run(callbacks);
                    }

                    break;
                case NativeMethods.PR_EVENT_DONE:
                    Done(native);
                    break;
                case NativeMethods.PR_EVENT_FAULT:
                    Exception fault = Failures.From(Handle, NativeMethods.PR_FAULTED, null, _owner);
                    foreach (Operation operation in _operations.Drain())
                    {
                        operation.End(fault);
                    }

                    break;
                case NativeMethods.PR_EVENT_TOKEN:
                case NativeMethods.PR_EVENT_TOKEN_CANCEL:
                    Token(native->token, isWanted: native->kind == NativeMethods.PR_EVENT_TOKEN);
                    break;
                default:
                    break;
            }
        }
    }

    private void Done(PrEvent* native)
    {
        Operation? operation = _operations.Remove(native->token);
        if (native->status == NativeMethods.PR_OK)
        {
            operation?.End(null);
            return;
        }

        // Also for an operation nobody waits for: the error must be freed.
        Exception failure = Failures.From(Handle, native->status, native->error, _owner, operation?.Topic, TokenFailure);
        operation?.End(failure);
    }
}

/// <summary>User code on a pump thread: nothing it leaves in the thread's context reaches the next event.</summary>
internal static class CleanContext
{
    [ThreadStatic]
    private static ExecutionContext? _pristine;

    internal static void Run(Action action)
    {
        Enter();
        action();
        Leave();
    }

    /// <summary>Remembers what the thread started with.</summary>
    internal static void Enter() => _pristine ??= ExecutionContext.Capture();

    /// <summary>Puts it back, where user code left something else.</summary>
    internal static void Leave()
    {
        ExecutionContext? context = ExecutionContext.Capture();
        if (!ReferenceEquals(context, _pristine))
        {
            Restore(context);
        }

        if (SynchronizationContext.Current is not null)
        {
            SynchronizationContext.SetSynchronizationContext(null);
        }
    }

    private static void Restore(ExecutionContext? left)
    {
        if (left is null)
        {
            // The flow is suppressed.
            ExecutionContext.RestoreFlow();
        }

        ExecutionContext.Restore(_pristine!);
    }
}
