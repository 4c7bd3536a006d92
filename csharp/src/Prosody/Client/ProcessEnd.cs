// What happens to clients that are alive when the process ends?

namespace Prosody;

/// <summary>Says goodbye to the cluster for clients nobody disposed of, so that others can take over their partitions.</summary>
internal static class ProcessEnd
{
    /// <summary>The runtime gives all handlers of the event a few seconds.</summary>
    private static readonly TimeSpan Budget = TimeSpan.FromSeconds(2);

    private static readonly object Gate = new();
    private static readonly List<WeakReference<ProsodyClient>> Clients = [];
    private static bool _registered;

    internal static void Add(ProsodyClient client)
    {
        lock (Gate)
        {
            if (!_registered)
            {
                _registered = true;
                AppDomain.CurrentDomain.ProcessExit += static (_, _) => CloseAll();
            }

            Clients.RemoveAll(static known => !known.TryGetTarget(out _));
            Clients.Add(new(client));
        }
    }

    internal static void Remove(ProsodyClient client)
    {
        lock (Gate)
        {
            Clients.RemoveAll(known => !known.TryGetTarget(out ProsodyClient? target) || ReferenceEquals(target, client));
        }
    }

    private static void CloseAll()
    {
        WeakReference<ProsodyClient>[] clients;
        lock (Gate)
        {
            clients = [.. Clients];
        }

        long start = Environment.TickCount64;
        foreach (WeakReference<ProsodyClient> known in clients)
        {
            if (known.TryGetTarget(out ProsodyClient? client))
            {
                client.StartClose();
            }
        }

        foreach (WeakReference<ProsodyClient> known in clients)
        {
            TimeSpan left = Budget - TimeSpan.FromMilliseconds(Environment.TickCount64 - start);
            if (left > TimeSpan.Zero && known.TryGetTarget(out ProsodyClient? client))
            {
                client.WaitForEnd(left);
            }
        }
    }
}
