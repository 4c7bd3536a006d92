// Timers from scheduling to firing, in mock mode.

using System.Threading.Channels;

namespace Prosody.Tests;

public sealed class TimerTests
{
    [Fact]
    public async Task A_timer_fires_with_its_key_and_its_whole_second_and_never_early()
    {
        DateTimeOffset wanted = DateTimeOffset.UtcNow.AddSeconds(1);
        var handler = new Clockwork((context, _) => context.ScheduleAsync(wanted));
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "the key", new Payload()).WithPatience();
        ProsodyTimer timer = await handler.NextAsync();
        DateTimeOffset now = DateTimeOffset.UtcNow;
        Assert.Equal("the key", timer.Key);
        Assert.Equal((0, TimeSpan.Zero), (timer.Time.Ticks % TimeSpan.TicksPerSecond, timer.Time.Offset));
        Assert.InRange((timer.Time - wanted).TotalSeconds, -0.5, 0.5);
        Assert.True(now >= timer.Time, $"at {now:O} for {timer.Time:O}");
    }

    [Fact]
    public async Task A_past_timer_fires_at_once_and_may_schedule_the_next()
    {
        DateTimeOffset first = DateTimeOffset.FromUnixTimeSeconds(1_000);
        var handler = new Clockwork(
            (context, _) => context.ScheduleAsync(first),
            (context, timer) => timer.Time == first ? context.ScheduleAsync(first.AddSeconds(1)) : Task.CompletedTask);
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Equal(first, (await handler.NextAsync()).Time);
        Assert.Equal(first.AddSeconds(1), (await handler.NextAsync()).Time);
    }

    [Fact]
    public async Task Scheduled_times_are_ascending_in_utc_and_show_the_handlers_own_calls()
    {
        DateTimeOffset hour = DateTimeOffset.FromUnixTimeSeconds(DateTimeOffset.UtcNow.ToUnixTimeSeconds() + 3_600);
        var seen = Channel.CreateUnbounded<DateTimeOffset[]>();
        var handler = new Clockwork(async (context, message) =>
        {
            async Task Look() => seen.Writer.TryWrite(await context.ScheduledAsync());
            await Look();
            for (int at = 99; at >= 0; at--)
            {
                await context.ScheduleAsync(hour.AddSeconds(at).ToOffset(TimeSpan.FromHours(2)));
            }

            await Look();
            await context.UnscheduleAsync(hour.AddSeconds(1).AddMilliseconds(400));
            await Look();
            await context.ClearAndScheduleAsync(hour);
            await Look();
            await context.ClearScheduledAsync();
            await Look();
        });
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        var lists = new List<DateTimeOffset[]>();
        for (int at = 0; at < 5; at++)
        {
            lists.Add(await seen.Reader.ReadAsync().AsTask().WithPatience());
        }

        DateTimeOffset[] all = [.. Enumerable.Range(0, 100).Select(at => hour.AddSeconds(at))];
        Assert.Equal([[], all, [.. all.Where(time => time != hour.AddSeconds(1))], [hour], []], lists);
        Assert.All(lists.SelectMany(static times => times), static time => Assert.Equal(TimeSpan.Zero, time.Offset));
    }

    [Fact]
    public async Task A_failed_attempt_leaves_no_timers_and_a_failing_timer_is_tried_again()
    {
        DateTimeOffset past = DateTimeOffset.FromUnixTimeSeconds(2_000);
        var attempts = new Dictionary<DateTimeOffset, int>();
        int messages = 0;
        var handler = new Clockwork(
            async (context, _) =>
            {
                int attempt = messages++;
                Assert.Empty(await context.ScheduledAsync());
                await context.ScheduleAsync(past.AddSeconds(attempt));
                if (attempt < 2)
                {
                    throw new InvalidOperationException("not now");
                }
            },
            (_, timer) => (attempts[timer.Time] = attempts.GetValueOrDefault(timer.Time) + 1) < 3
                ? throw new InvalidOperationException("not now")
                : Task.CompletedTask);
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Equal(past.AddSeconds(2), (await handler.NextAsync()).Time);
        Assert.Equal(3, Assert.Single(attempts).Value);
    }

    [Fact]
    public async Task Timers_outlive_their_client_and_fire_in_another_one()
    {
        string cluster = Mock.Cluster();
        DateTimeOffset due = DateTimeOffset.UtcNow.AddSeconds(1);
        var first = new Recorder<Payload>((context, _, _) => context.ScheduleAsync(due));
        await using (ProsodyClient client = Mock.Builder(cluster).Build())
        {
            await client.SubscribeAsync(first).WithPatience();
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
            await first.NextAsync();
        }

        var second = new Clockwork((_, _) => Task.CompletedTask);
        await using ProsodyClient other = await Start(second, cluster);
        Assert.Equal("key", (await second.NextAsync()).Key);
        Assert.True(DateTimeOffset.UtcNow >= due.AddSeconds(-0.5));
    }

    [Fact]
    public async Task A_key_has_a_limit_of_timers_which_is_a_transient_error()
    {
        DateTimeOffset day = DateTimeOffset.UtcNow.AddDays(1);
        var caught = new TaskCompletionSource<Exception>(TaskCreationOptions.RunContinuationsAsynchronously);
        var handler = new Clockwork(async (context, _) =>
        {
            for (int at = 0; at < 16_384; at++)
            {
                await context.ScheduleAsync(day.AddSeconds(at));
            }

            Assert.Equal(16_384, (await context.ScheduledAsync()).Length);
            caught.TrySetResult(await Assert.ThrowsAsync<TransientStateException>(() => context.ScheduleAsync(day.AddSeconds(-1))));
        });
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Contains("16384", (await caught.Task.WithPatience()).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_context_is_over_when_its_handler_has_ended()
    {
        ProsodyContext? kept = null;
        var handler = new Recorder<Payload>((context, _, _) =>
        {
            kept = context;
            return Task.CompletedTask;
        });
        await using ProsodyClient client = await Start(handler);
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        await handler.NextAsync();
        await Mock.Until(() => Throws(kept!), "the context is over");

        static bool Throws(ProsodyContext context)
        {
            try
            {
                _ = context.ScheduledAsync();
                return false;
            }
            catch (ObjectDisposedException)
            {
                return true;
            }
        }
    }

    private static async Task<ProsodyClient> Start(IProsodyHandler<Payload> handler, string? cluster = null)
    {
        ProsodyClient client = Mock.Builder(cluster).Build();
        await client.SubscribeAsync(handler).WithPatience();
        return client;
    }

    private sealed class Clockwork(
        Func<ProsodyContext, Message<Payload>, Task> onMessage,
        Func<ProsodyContext, ProsodyTimer, Task>? onTimer = null) : IProsodyHandler<Payload>
    {
        private readonly Channel<ProsodyTimer> _fired = Channel.CreateUnbounded<ProsodyTimer>();

        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken) =>
            onMessage(prosodyContext, message);

        public async Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
        {
            if (onTimer is not null)
            {
                await onTimer(prosodyContext, timer);
            }

            _fired.Writer.TryWrite(timer);
        }

        internal Task<ProsodyTimer> NextAsync() => _fired.Reader.ReadAsync().AsTask().WithPatience();
    }
}
