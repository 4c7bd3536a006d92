// What waits for a native operation? An object with a number that comes back in its completion event.

namespace Prosody.Interop;

/// <summary>
/// One native operation and the task its caller awaits. The native side completes it exactly once; a cancelled token
/// completes the task earlier and changes nothing else.
/// </summary>
internal sealed class Operation : TaskCompletionSource
{
    private CancellationTokenRegistration _registration;

    internal Operation(string? topic)
        : base(TaskCreationOptions.RunContinuationsAsynchronously) => Topic = topic;

    /// <summary>The number native events name it by.</summary>
    internal ulong Id { get; set; }

    /// <summary>The topic of a send, for its exception.</summary>
    internal string? Topic { get; }

    /// <summary>Lets <paramref name="token"/> end the task. Before the native call, so that its completion finds the registration.</summary>
    internal void CancelWith(CancellationToken token)
    {
        if (token.CanBeCanceled)
        {
            _registration = token.UnsafeRegister(
                static (state, cancelled) => ((Operation)state!).TrySetCanceled(cancelled), this);
        }
    }

    /// <summary>Ends the task; null means success.</summary>
    internal void End(Exception? failure)
    {
        // Does not wait for a callback that runs: it only sets this task.
        _registration.Unregister();
        if (failure is null)
        {
            TrySetResult();
        }
        else if (TrySetException(failure))
        {
            // Whoever dropped the task has said that the failure does not matter.
            _ = Task.Exception;
        }
    }
}

/// <summary>Pending operations by number. A number is used once.</summary>
internal sealed class OperationTable
{
    private readonly object _gate = new();
    private readonly Stack<int> _free = new();
    private Operation?[] _slots = new Operation?[16];
    private uint[] _generations = new uint[16];
    private int _used;

    /// <summary>Operations that have not ended.</summary>
    internal int Count
    {
        get
        {
            lock (_gate)
            {
                return _used - _free.Count;
            }
        }
    }

    internal void Add(Operation operation)
    {
        lock (_gate)
        {
            if (!_free.TryPop(out int slot))
            {
                slot = _used++;
                if (slot == _slots.Length)
                {
                    Array.Resize(ref _slots, slot * 2);
                    Array.Resize(ref _generations, slot * 2);
                }
            }

            _slots[slot] = operation;
            operation.Id = ((ulong)++_generations[slot] << 32) | (uint)slot;
        }
    }

    internal Operation? Remove(ulong id)
    {
        lock (_gate)
        {
            int slot = (int)(uint)id;
            if (slot >= _used || _slots[slot] is not { } operation || operation.Id != id)
            {
                return null;
            }

            _slots[slot] = null;
            _free.Push(slot);
            return operation;
        }
    }

    /// <summary>Takes all that are left.</summary>
    internal List<Operation> Drain()
    {
        lock (_gate)
        {
            List<Operation> left = [.. _slots.OfType<Operation>()];
            Array.Clear(_slots);
            _free.Clear();
            _used = 0;
            return left;
        }
    }
}
