// Who carries native log lines to ILogger? One thread of the process, so that a slow sink delays nothing but logs.

using Microsoft.Extensions.Logging;
using Prosody.Interop;

namespace Prosody.Logging;

/// <summary>The factories in use, the last of which gets the lines, and the thread that carries them.</summary>
internal static class LogDrain
{
    /// <summary>The category of native lines.</summary>
    internal const string Category = "Prosody.Native";

    /// <summary>How long a wait for lines takes; levels are sampled as often.</summary>
    private const uint WaitMilliseconds = 1_000;

    /// <summary>Everything, in the numbers of the native side.</summary>
    private const int HighestLevel = 5;

    private static readonly object Gate = new();
    private static readonly List<(ILoggerFactory Factory, int Users)> Factories = [];
    private static bool _configured;
    private static Drain? _drain;

    /// <summary>The logger of managed events, or null.</summary>
    internal static ILogger? Client => Volatile.Read(ref _drain)?.ClientLogger;

    /// <summary>Takes the one factory of a program without a host.</summary>
    internal static void Configure(ILoggerFactory factory)
    {
        lock (Gate)
        {
            if (_configured)
            {
                throw new InvalidOperationException("Prosody's logging is configured already.");
            }

            AddLocked(factory);
            _configured = true;
        }
    }

    /// <summary>Takes the factory of a host that starts.</summary>
    internal static void Attach(ILoggerFactory factory)
    {
        lock (Gate)
        {
            AddLocked(factory);
        }
    }

    /// <summary>Lets go of the factory of a host that stops. It is not used any more when this returns.</summary>
    internal static void Detach(ILoggerFactory factory)
    {
        lock (Gate)
        {
            int at = Factories.FindIndex(known => ReferenceEquals(known.Factory, factory));
            if (at < 0)
            {
                return;
            }

            (ILoggerFactory known, int users) = Factories[at];
            if (users > 1)
            {
                Factories[at] = (known, users - 1);
                return;
            }

            Factories.RemoveAt(at);
            SwitchLocked();
        }
    }

    /// <summary>Lets go of everything.</summary>
    internal static void Reset()
    {
        lock (Gate)
        {
            _configured = false;
            Factories.Clear();
            SwitchLocked();
        }
    }

    private static void AddLocked(ILoggerFactory factory)
    {
        // A factory that cannot be used says so to its owner, and nothing has changed.
        _ = factory.CreateLogger(Category);
        int at = Factories.FindIndex(known => ReferenceEquals(known.Factory, factory));
        int users = at < 0 ? 0 : Factories[at].Users;
        if (at >= 0)
        {
            Factories.RemoveAt(at);
        }

        Factories.Add((factory, users + 1));
        SwitchLocked();
    }

    private static void SwitchLocked()
    {
        while (true)
        {
            ILoggerFactory? factory = Factories.Count == 0 ? null : Factories[^1].Factory;
            if (_drain is { } before && ReferenceEquals(before.Factory, factory))
            {
                return;
            }

            Drain? next;
            try
            {
                next = factory is null ? null : new Drain(factory);
            }
#pragma warning disable CA1031 // Its owner has disposed of it without taking it back, which is no affair of the caller's.
            catch (Exception)
#pragma warning restore CA1031
            {
                Factories.RemoveAt(Factories.Count - 1);
                continue;
            }

            _drain?.Stop();
            Volatile.Write(ref _drain, next);
            next?.Start();
            if (next is null)
            {
                // Lines are kept for the next factory, whose levels nobody knows yet.
                Filter(HighestLevel);
            }

            return;
        }
    }

    private static void Filter(int highest) =>
        NativeLogs.Configure(Environment.GetEnvironmentVariable("PROSODY_LOG") ?? string.Empty, highest);

    /// <summary>One thread that carries lines to one factory.</summary>
    private sealed class Drain
    {
        private readonly ILogger _logger;
        private readonly Thread _thread;
        private volatile bool _stopped;

        internal Drain(ILoggerFactory factory)
        {
            Factory = factory;
            _logger = factory.CreateLogger(Category);
            ClientLogger = factory.CreateLogger("Prosody.Client");
            _thread = new Thread(Run) { IsBackground = true, Name = "Prosody logs" };
        }

        internal ILoggerFactory Factory { get; }

        internal ILogger ClientLogger { get; }

        internal void Start()
        {
            SampleLevel();
            _thread.UnsafeStart();
        }

        /// <summary>Returns once the factory is not used any more; a sink that never returns is given up after a while.</summary>
        internal void Stop()
        {
            _stopped = true;
            NativeLogs.Wake();
            if (Environment.CurrentManagedThreadId != _thread.ManagedThreadId)
            {
                _thread.Join(TimeSpan.FromSeconds(5));
            }
        }

        private void Run()
        {
            byte[] buffer = NativeLogs.NewBuffer();
            var lines = new List<NativeLogLine>();
            while (!_stopped)
            {
                lines.Clear();
                ulong dropped = NativeLogs.Take(buffer, WaitMilliseconds, lines);
                if (dropped > 0)
                {
                    Write(new NativeLogLine(2, 0, "prosody", string.Empty, $"{dropped} log lines were lost because their sink is too slow", []));
                }

                foreach (NativeLogLine line in lines)
                {
                    Write(line);
                }

                SampleLevel();
            }
        }

        private void Write(NativeLogLine line)
        {
            try
            {
                _logger.Log(NativeLogState.LevelOf(line.Level), default, new NativeLogState(line), null, NativeLogState.Format);
            }
#pragma warning disable CA1031 // A sink that throws loses its line, not the lines of others.
            catch (Exception)
#pragma warning restore CA1031
            {
            }
        }

        /// <summary>The filter lives on the native side, so that a line nobody takes costs nothing.</summary>
        private void SampleLevel()
        {
            int highest = 0;
            for (int level = HighestLevel; level > 0 && highest == 0; level--)
            {
                if (IsEnabled(NativeLogState.LevelOf(level)))
                {
                    highest = level;
                }
            }

            Filter(highest);
        }

        private bool IsEnabled(LogLevel level)
        {
            try
            {
                return _logger.IsEnabled(level);
            }
#pragma warning disable CA1031 // As above.
            catch (Exception)
#pragma warning restore CA1031
            {
                return true;
            }
        }
    }
}
