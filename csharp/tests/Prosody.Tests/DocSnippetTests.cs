// The README's samples run, and say what it promises.

namespace Prosody.Tests;

public sealed class DocSnippetTests
{
    private static readonly Lazy<Dictionary<string, string[]>> Output = new(Run);

    [Fact]
    public void Every_sample_ends() => Assert.Equal(19, Output.Value.Count);

    [Fact]
    public void The_quick_start_follows_up_by_a_timer() => Assert.Equal(
        [
            "Received message: MyPayload { Content = Hello, Kafka!, ScheduleFollowup = True, Version = 1 }", "(due in 30 s)",
            "Timer fired for key: message-key at 01/01/1970 00:00:00 +00:00",
        ],
        Output.Value["quick start, followed up"]);

    [Fact]
    public void The_timer_sample_schedules_three_and_is_told_key_and_time() => Assert.Equal(
        ["Scheduled timers: 3", "(due in 30, 60, 120 s)", "Timer fired!", "Key: message-key", "Scheduled time: 01/01/1970 00:00:00 +00:00"],
        Output.Value["timers"]);

    [Fact]
    public void Of_equal_ids_of_a_key_one_is_handled()
    {
        string[] lines = Output.Value["deduplication"];
        Assert.Equal(2, lines.Length);
        Assert.All(lines, static line => Assert.Contains("Content = Hello!", line, StringComparison.Ordinal));
    }

    [Fact]
    public void The_loop_and_the_worker_come_to_their_ends()
    {
        Assert.Equal(["first", "second"], Output.Value["loop"]);
        // It may have met what the quick start has sent, also while it drained.
        Assert.Contains("Shutting down gracefully...", Output.Value["worker"]);
    }

    /// <summary>The lines each sample has written.</summary>
    private static Dictionary<string, string[]> Run()
    {
        Child ended = Child.RunProgram("DocSnippets", [], ("PROSODY_MOCK", "true"), ("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1"));
        Assert.True(ended.ExitCode == 0, $"{ended.Output}\n{ended.Error}");
        return ended.Output.Split("== ", StringSplitOptions.RemoveEmptyEntries)
            .Select(static sample => sample.Split(['\n', '\r'], StringSplitOptions.RemoveEmptyEntries))
            .ToDictionary(static lines => lines[0], static lines => lines[1..]);
    }
}
