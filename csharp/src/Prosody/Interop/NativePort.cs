// Who takes events from the native side, and what is a call? Pump threads that block in pr_wait; no native thread ever
// enters managed code.

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

    /// <summary>How long one wait blocks; a wake-up that finds nothing costs one call.</summary>
    private const uint WaitMilliseconds = 60_000;

    /// <summary>Panics in a row inside the wait itself after which a pump gives up.</summary>
    private const int MaxFaultsInARow = 3;

    private readonly OperationTable _operations = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly ManualResetEventSlim _endedEvent = new();
    private readonly object _gate = new();
    private readonly int _pumpCount;
    private readonly string _owner;
    private int _waiting;
    private int _taking;
    private volatile bool _closed;
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

    /// <summary>Completes when the native queue has closed and nothing more will come.</summary>
    internal Task Ended => _ended.Task;

    /// <summary>Whether any pump thread was started.</summary>
    internal bool IsPumping
    {
        get
        {
            lock (_gate)
            {
                return _pumping;
            }
        }
    }

    /// <summary>Waits, without help of the thread pool, until the native queue has closed.</summary>
    internal bool WaitForEnd(TimeSpan timeout) => _endedEvent.Wait(timeout);

    /// <summary>Starts the graceful stop; the queue closes at its end.</summary>
    internal void Close() => NativeMethods.pr_close(Handle);

    /// <summary>Ends every pending operation: the native side will not.</summary>
    internal void AbandonOperations()
    {
        foreach (Operation operation in _operations.Drain())
        {
            operation.End(new ObjectDisposedException(_owner));
        }
    }

    /// <summary>Takes a message or a timer over. Its bytes are valid until its token is completed.</summary>
    /// <returns>The work item that runs it.</returns>
    private protected virtual IThreadPoolWorkItem? Accept(in PrEvent native) => null;

    /// <summary>Marks an event as cancelled.</summary>
    /// <returns>What runs the callbacks of its token; null when the event is over.</returns>
    private protected virtual Action? Cancel(ulong token) => null;

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
            operation.End(status == NativeMethods.PR_OK ? null : Failures.From(Handle, status, error, _owner, operation.Topic));
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

            for (int i = 1; i <= _pumpCount; i++)
            {
                // Without the caller's context: AsyncLocals of whoever called first would reach every handler.
                new Thread(Pump) { IsBackground = true, Name = $"Prosody pump {i}" }.UnsafeStart();
            }

            Volatile.Write(ref _pumping, true);
        }
    }

    private void Pump()
    {
        var batch = (PrEvent*)NativeMemory.Alloc(BatchEvents, (nuint)sizeof(PrEvent));
        int faults = 0;
        Interlocked.Increment(ref _taking);
        try
        {
            while (faults < MaxFaultsInARow)
            {
                uint count = 0;
                Interlocked.Increment(ref _waiting);
                int status = NativeMethods.pr_wait(Handle, batch, BatchEvents, WaitMilliseconds, &count);
                // Counted by one atomic, so of two pumps that wake together at most one finds the other still waiting.
                bool follower = Interlocked.Decrement(ref _waiting) > 0;
                if (status == NativeMethods.PR_CLOSED)
                {
                    break;
                }

                faults = status == NativeMethods.PR_FAULTED ? faults + 1 : 0;
                if (status == NativeMethods.PR_OK)
                {
                    Dispatch(batch, (int)count, follower);
                }
            }
        }
        finally
        {
            NativeMemory.Free(batch);
            _closed = true;
            Took();
        }
    }

    /// <summary>
    /// A pump has dealt with every end of an operation that it took. The queue is closed and empty for one pump while another
    /// still has the last ends in its hands, so the port ends with the last of them.
    /// </summary>
    private void Took()
    {
        if (Interlocked.Decrement(ref _taking) == 0 && _closed)
        {
            AbandonOperations();
            _endedEvent.Set();
            _ended.TrySetResult();
        }
    }

    /// <summary>
    /// Leader and follower: with another pump waiting, this thread runs the first event itself, up to the handler's
    /// first incomplete await. Without one it must stay free, so everything goes to the thread pool.
    /// </summary>
    private void Dispatch(PrEvent* batch, int count, bool follower)
    {
        IThreadPoolWorkItem? mine = null;
        List<Action>? cancellations = null;
        for (int i = 0; i < count; i++)
        {
            PrEvent* native = batch + i;
            switch (native->kind)
            {
                case NativeMethods.PR_EVENT_MESSAGE:
                case NativeMethods.PR_EVENT_TIMER:
                    if (Accept(in *native) is { } item)
                    {
                        if (follower && mine is null)
                        {
                            mine = item;
                        }
                        else
                        {
                            ThreadPool.UnsafeQueueUserWorkItem(item, preferLocal: false);
                        }
                    }

                    break;
                case NativeMethods.PR_EVENT_CANCEL:
                    if (Cancel(native->token) is { } callbacks)
                    {
                        (cancellations ??= []).Add(callbacks);
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
                default:
                    break;
            }
        }

        if (cancellations is null && mine is null)
        {
            return;
        }

        // What runs here is user code, which may block and must not hold up the end.
        Took();
        try
        {
            if (cancellations is not null)
            {
                RunCancellations(cancellations, follower, ref mine);
            }

            if (mine is not null)
            {
                InCleanContext.Run(mine);
            }
        }
        finally
        {
            Interlocked.Increment(ref _taking);
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
        Exception failure = Failures.From(Handle, native->status, native->error, _owner, operation?.Topic);
        operation?.End(failure);
    }

    /// <summary>
    /// Callbacks of cancellation tokens are user code that may block. They never wait for the thread pool, which
    /// blocked handlers may have used up, and never hold up the last pump.
    /// </summary>
    private static void RunCancellations(List<Action> cancellations, bool follower, ref IThreadPoolWorkItem? mine)
    {
        if (follower)
        {
            if (mine is not null)
            {
                ThreadPool.UnsafeQueueUserWorkItem(mine, preferLocal: false);
                mine = null;
            }

            foreach (Action callbacks in cancellations)
            {
                InCleanContext.Run(callbacks);
            }
        }
        else
        {
            new Thread(() => cancellations.ForEach(static callbacks => callbacks()))
            {
                IsBackground = true,
                Name = "Prosody cancellation",
            }.UnsafeStart();
        }
    }
}

/// <summary>Runs user code on a pump thread so that nothing it leaves in the thread's context reaches the next event.</summary>
internal static class InCleanContext
{
    internal static void Run(IThreadPoolWorkItem item) =>
        Run(static state => ((IThreadPoolWorkItem)state!).Execute(), item);

    internal static void Run(Action action) => Run(static state => ((Action)state!)(), action);

    private static void Run(ContextCallback callback, object state)
    {
        // A pump thread starts with the default context and gets it back after each run. Capture gives null only where
        // user code suppressed the flow and did not undo it, which Run undoes for later events as well.
        ExecutionContext? context = ExecutionContext.Capture();
        if (context is null)
        {
            ExecutionContext.RestoreFlow();
            context = ExecutionContext.Capture()!;
        }

        ExecutionContext.Run(context, callback, state);
        SynchronizationContext.SetSynchronizationContext(null);
    }
}
