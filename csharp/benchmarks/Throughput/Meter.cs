// What does a run cost?

using System.Diagnostics;
using System.Text.Json;

namespace Prosody.Benchmarks;

/// <summary>Counts handled records; knows when the warm-up and the run end.</summary>
internal sealed class Meter(int count)
{
    private readonly TaskCompletionSource _done = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly int _warmUp = count / 10;
    private int _handled;
    private double _cpuAtStart;
    private long _allocatedAtStart;
    private long _start;
    private string _line = string.Empty;

    internal Task Done => _done.Task;

    internal void Handled()
    {
        int handled = Interlocked.Increment(ref _handled);
        if (handled == _warmUp)
        {
            _cpuAtStart = Cpu();
            _allocatedAtStart = GC.GetTotalAllocatedBytes();
            _start = Stopwatch.GetTimestamp();
        }
        else if (handled == count)
        {
            int records = count - _warmUp;
            double cpu = Cpu() - _cpuAtStart;
            double seconds = Stopwatch.GetElapsedTime(_start).TotalSeconds;
            long allocated = GC.GetTotalAllocatedBytes() - _allocatedAtStart;
            _line = JsonSerializer.Serialize(new { records, cpu_seconds = cpu, seconds, allocated_bytes = allocated, bytes_per_record = allocated / records });
            _done.TrySetResult();
        }
    }

    internal void Print() => Console.WriteLine(_line);

    /// <summary>User and system time of all threads, as rusage counts it.</summary>
    private static double Cpu()
    {
        using Process self = Process.GetCurrentProcess();
        return self.TotalProcessorTime.TotalSeconds;
    }
}
