// What only a process of its own can show.

namespace Prosody.Tests;

public sealed class ProcessTests
{
    private static void Passes(string scenario, params (string Name, string Value)[] environment)
    {
        Child ended = Child.Run(scenario, environment);
        Assert.True(ended.ExitCode == 0 && ended.Output.Contains("passed", StringComparison.Ordinal), $"exit code {ended.ExitCode}\n{ended.Output}\n{ended.Error}");
    }

    // Handlers that block: pumps stay alive, every cancellation is delivered.
    [Fact]
    public void A_hundred_handlers_that_block_their_threads_are_all_cancelled() => Passes("block");

    // They hold their threads, callbacks and permits for ever; nothing else may be held with them.
    [Fact]
    public void A_hundred_handlers_that_never_come_back_hold_nobody_else_up() => Passes("stuck");

    // YAHA #112: a crash while the process ends.
    [Fact]
    public void A_process_may_end_while_handlers_run()
    {
        for (int i = 0; i < 5; i++)
        {
            Passes("exit");
        }
    }

    [Fact]
    public void A_collector_that_never_rests_finds_nothing_to_break() => Passes("collect", ("DOTNET_GCgen0size", "0x10000"));

    // A sink of log lines that threw ended the process when a classifier, or a callback of a cancellation token, had thrown before:
    // the line about it was written where nobody catches.
    [Fact]
    public void A_sink_that_throws_ends_no_process() => Passes("sink throws");

    [Fact]
    public void A_collectible_load_context_does_not_crash() => Passes("collectible");
}
