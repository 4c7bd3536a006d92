// Native log lines reach ILogger; their sinks reach nothing else.

using System.Collections.Concurrent;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Prosody.Interop;
using Prosody.Logging;

namespace Prosody.Tests;

/// <summary>Logging belongs to the process, so these tests run one after the other, and beside no other.</summary>
[Collection(nameof(PanicTests))]
public sealed class LoggingTests : IDisposable
{
    public void Dispose() => ProsodyLogging.ResetForTesting();

    /// <summary>Lets the native side write a line: an unknown variable is a warning.</summary>
    private static void ProvokeWarning(string name)
    {
        NativeClient? made = NativeClient.Create(
            Utf8.Pairs([new("Mock", "true"), new("BootstrapServers", Mock.Cluster())]), Utf8.Pairs([new("PROSODY_" + name, "x")]), null, []);
        new NativeHandle(made!.Handle).Dispose();
    }

    [Fact]
    public async Task Lines_arrive_structured_under_their_category()
    {
        var sink = new Sink();
        ProsodyLogging.Configure(sink);
        ProvokeWarning("GROUP_IDD");
        Entry entry = await sink.WaitAsync("GROUP_IDD");
        Assert.Equal(("Prosody.Native", LogLevel.Warning), (entry.Category, entry.Level));
        Assert.Equal("target", entry.State[0].Key);
        Assert.StartsWith("prosody", entry.State[0].Value?.ToString(), StringComparison.Ordinal);
        Assert.Equal("message", entry.State[1].Key);
        Assert.Equal("{OriginalFormat}", entry.State[^1].Key);
        Assert.Contains(entry.State, static field => field.Key == "file");
    }

    [Fact]
    public async Task Configure_is_once_until_reset_and_earlier_lines_are_kept()
    {
        ProvokeWarning("EARLY_BIRD");
        var sink = new Sink();
        ProsodyLogging.Configure(sink);
        await sink.WaitAsync("EARLY_BIRD");
        Assert.Throws<InvalidOperationException>(() => ProsodyLogging.Configure(sink));
        Assert.Throws<ArgumentNullException>(static () => ProsodyLogging.Configure(null!));
        ProsodyLogging.ResetForTesting();
        var second = new Sink();
        ProsodyLogging.Configure(second);
        ProvokeWarning("LATER");
        await second.WaitAsync("LATER");
        Assert.DoesNotContain(sink.Entries, static entry => entry.Text.Contains("LATER", StringComparison.Ordinal));
    }

    [Fact]
    public async Task A_host_connects_its_logging_for_its_life_and_two_hosts_share()
    {
        var (first, second) = (new Sink(), new Sink());
        using IHost one = NewHost(first);
        using IHost two = NewHost(second);
        await one.StartAsync(CancellationToken.None);
        await two.StartAsync(CancellationToken.None);
        ProvokeWarning("TO_SECOND");
        await second.WaitAsync("TO_SECOND");
        await two.StopAsync(CancellationToken.None);
        ProvokeWarning("TO_FIRST");
        await first.WaitAsync("TO_FIRST");
        await one.StopAsync(CancellationToken.None);

        static IHost NewHost(Sink sink)
        {
            HostApplicationBuilder builder = Host.CreateEmptyApplicationBuilder(new HostApplicationBuilderSettings());
            builder.Services.AddSingleton<ILoggerFactory>(sink);
            builder.Services.AddProsodyLogging().AddProsodyLogging();
            return builder.Build();
        }
    }

    [Fact]
    public async Task A_sink_that_throws_loses_only_its_line()
    {
        var sink = new Sink { ThrowOn = "FIRST" };
        ProsodyLogging.Configure(sink);
        ProvokeWarning("FIRST");
        ProvokeWarning("SECOND");
        await sink.WaitAsync("SECOND");
    }

    // A factory that cannot be used (disposed, for instance) was remembered all the same: the next one was refused as the second.
    [Fact]
    public async Task A_factory_that_cannot_be_used_stands_in_nobody_s_way()
    {
        var broken = new Sink { IsBroken = true };
        Assert.Throws<ObjectDisposedException>(() => ProsodyLogging.Configure(broken));
        var sink = new Sink();
        ProsodyLogging.Configure(sink);
        ProvokeWarning("AFTER_ALL");
        await sink.WaitAsync("AFTER_ALL");
        // One that breaks later, without having been taken back, is passed over when the one behind it goes.
        var (breaks, last) = (new Sink(), new Sink());
        LogDrain.Attach(breaks);
        LogDrain.Attach(last);
        breaks.IsBroken = true;
        LogDrain.Detach(last);
        ProvokeWarning("STILL_HERE");
        await sink.WaitAsync("STILL_HERE");
    }

    // Confluent #2178: calling the client inside a log handler deadlocks; a slow sink holds up delivery.
    [Fact]
    public async Task A_sink_that_blocks_holds_up_no_message_and_may_use_the_client()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        using var release = new ManualResetEventSlim();
        var sink = new Sink { Block = release, Act = () => client.SendAsync("topic", "log", new Payload("from the sink")) };
        ProsodyLogging.Configure(sink);
        ProvokeWarning("BLOCKED");
        await Mock.Until(() => sink.Blocked, "the sink blocks");
        await client.SendAsync("topic", "key", new Payload("1")).WithPatience();
        Assert.Equal("1", (await handler.NextAsync()).Payload!.Text);
        release.Set();
        await sink.WaitAsync("BLOCKED");
        Assert.Equal("from the sink", (await handler.NextAsync()).Payload!.Text);
    }

    [Fact]
    public async Task Levels_follow_the_sink()
    {
        var sink = new Sink { Minimum = LogLevel.Error };
        ProsodyLogging.Configure(sink);
        ProvokeWarning("UNSEEN");
        Assert.Equal(NativeMethods.PR_OK, NativeMethods.pr_logs_wake());
        ProsodyLogging.ResetForTesting();
        sink = new Sink();
        ProsodyLogging.Configure(sink);
        ProvokeWarning("SEEN");
        await sink.WaitAsync("SEEN");
        Assert.DoesNotContain(sink.Entries, static entry => entry.Text.Contains("PROSODY_UNSEEN", StringComparison.Ordinal));
    }

    // Confluent #913, #1365, #1662: native logs go to standard error.
    [Fact]
    public void Nothing_is_ever_written_to_standard_output_or_error()
    {
        Child ended = Child.Run("silent");
        Assert.Equal((0, "", ""), (ended.ExitCode, ended.Output, ended.Error));
    }

    private sealed record Entry(string Category, LogLevel Level, string Text, IReadOnlyList<KeyValuePair<string, object?>> State);

    private sealed class Sink : ILoggerFactory
    {
        internal ConcurrentQueue<Entry> Entries { get; } = new();

        internal string? ThrowOn { get; init; }

        internal ManualResetEventSlim? Block { get; init; }

        internal Action? Act { get; init; }

        internal LogLevel Minimum { get; init; } = LogLevel.Trace;

        internal bool Blocked { get; set; }

        internal bool IsBroken { get; set; }

        public ILogger CreateLogger(string categoryName)
        {
            ObjectDisposedException.ThrowIf(IsBroken, this);
            return new Logger(this, categoryName);
        }

        public void AddProvider(ILoggerProvider provider)
        {
        }

        public void Dispose()
        {
        }

        internal async Task<Entry> WaitAsync(string part)
        {
            Entry? found = null;
            await Mock.Until(() => (found = Entries.FirstOrDefault(entry => entry.Text.Contains(part, StringComparison.Ordinal))) is not null, $"a line with {part}");
            return found!;
        }
    }

    private sealed class Logger(Sink sink, string category) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => logLevel >= sink.Minimum;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            string text = formatter(state, exception);
            if (sink.ThrowOn is { } part && text.Contains(part, StringComparison.Ordinal))
            {
                throw new InvalidOperationException("a sink that throws");
            }

            if (sink.Block is { } block && !sink.Blocked)
            {
                sink.Blocked = true;
                block.Wait();
                sink.Act?.Invoke();
            }

            sink.Entries.Enqueue(new(category, logLevel, text, [.. (IEnumerable<KeyValuePair<string, object?>>)(object)state!]));
        }
    }
}
