// A broker that can go away, which the one inside this process cannot.

using System.Diagnostics;

namespace Prosody.Tests;

/// <summary>The broker of the workspace in a process of its own, with one topic.</summary>
internal sealed class Broker : IDisposable
{
    private readonly Process _process;

    internal Broker(params string[] arguments)
    {
        string program = Child.Program("Broker");
        Assert.SkipUnless(File.Exists(program), "needs the program prosody-broker: cargo build --workspace --bins");
        _process = Process.Start(new ProcessStartInfo(program, ["--topic", "topic:2", .. arguments]) { RedirectStandardOutput = true })!;
        string? line = _process.StandardOutput.ReadLine();
        Bootstrap = line is not null && line.StartsWith("bootstrap=", StringComparison.Ordinal) ? line["bootstrap=".Length..] : throw new InvalidOperationException($"the broker printed `{line}`");
    }

    internal string Bootstrap { get; }

    /// <summary>Ends it without a farewell.</summary>
    internal void Kill()
    {
        _process.Kill();
        _process.WaitForExit();
    }

    public void Dispose()
    {
        Kill();
        _process.Dispose();
    }
}
