// Tokens from the application (OAUTHBEARER), shown to a broker that knows one of them.

using System.Diagnostics;
using System.Reflection;

namespace Prosody.Tests;

public sealed class OauthTests
{
    private const string Good = "the-good-token";
    private const string Secret = "a-token-nobody-may-see";

    [Fact]
    public async Task A_token_of_the_application_logs_in()
    {
        using var broker = new Broker("--token", Good);
        int calls = 0;
        bool onPool = false;
        await using ProsodyClient client = Client(broker, token =>
        {
            Interlocked.Increment(ref calls);
            onPool = Thread.CurrentThread.IsThreadPoolThread && token.CanBeCanceled;
            return new(new OauthToken(Good) { Extensions = new Dictionary<string, string> { ["traceId"] = "a b" } });
        });
        var handler = new Recorder<Payload>();
        await client.SubscribeAsync(handler).WithPatience();
        await client.SendAsync("topic", "key", new Payload("through")).WithPatience();
        Assert.Equal("through", (await handler.NextAsync()).Payload!.Text);
        Assert.Equal(1, calls);
        Assert.True(onPool, "called on the thread pool");
    }

    [Fact]
    public async Task The_next_token_is_asked_for_before_the_first_one_ends()
    {
        using var broker = new Broker("--token", Good);
        var asked = new SemaphoreSlim(0);
        await using ProsodyClient client = Client(broker, async _ =>
        {
            await Task.Yield();
            asked.Release();
            return new OauthToken(Good, DateTimeOffset.UtcNow.AddSeconds(2));
        });
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        for (int call = 0; call < 3; call++)
        {
            Assert.True(await asked.WaitAsync(Mock.Patience), $"call {call + 1} never came");
        }

        await client.SendAsync("topic", "key", new Payload()).WithPatience();
    }

    [Fact]
    public async Task What_the_callback_throws_is_the_cause_and_it_is_asked_again()
    {
        using var broker = new Broker("--token", Good);
        var away = new InvalidOperationException("the identity provider is away");
        bool isBack = false;
        await using ProsodyClient client = Client(broker, async _ =>
        {
            await Task.Yield();
            return Volatile.Read(ref isBack) ? new OauthToken(Good) : throw away;
        });
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.Same(away, failed.InnerException);
        Assert.Contains("System.InvalidOperationException: the identity provider is away", failed.Message, StringComparison.Ordinal);
        Assert.True(failed.IsTransient);
        Assert.False(failed.MayHaveBeenWritten);
        Volatile.Write(ref isBack, true);
        await Eventually(() => client.SendAsync("topic", "key", new Payload()));
    }

    // Its text threw where the answer was made, so there was none: calls waited for ten seconds and got another cause.
    [Fact]
    public async Task An_exception_whose_text_throws_is_the_cause_too()
    {
        using var broker = new Broker("--token", Good);
        await using ProsodyClient client = Client(broker, static _ => throw new TextThrows());
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.IsType<TextThrows>(failed.InnerException);
    }

    [Fact]
    public async Task A_permanent_error_fails_calls_at_once()
    {
        using var broker = new Broker("--token", Good);
        var never = new PermanentException("this client does not exist");
        await using ProsodyClient client = Client(broker, _ => throw never, sendTimeout: TimeSpan.FromMinutes(5));
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.Same(never, failed.InnerException);
        Assert.False(failed.IsTransient);
    }

    [Theory]
    [InlineData("null", "returned null")]
    [InlineData("expired", "expired at")]
    [InlineData("unprintable", "not printable ASCII")]
    [InlineData("unknown", "invalid_token")]
    public async Task A_token_that_cannot_be_used_is_named_without_showing_it(string kind, string expected)
    {
        using var broker = new Broker("--token", Good);
        await using ProsodyClient client = Client(broker, _ => new((kind switch
        {
            "null" => null,
            "expired" => new OauthToken(Secret, DateTimeOffset.UtcNow.AddSeconds(-1)),
            "unprintable" => new OauthToken(Secret + "\n"),
            _ => new OauthToken(Secret),
        })!));
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.Contains(expected, failed.Message, StringComparison.Ordinal);
        Assert.DoesNotContain(Secret, failed.ToString(), StringComparison.Ordinal);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task A_callback_that_hangs_holds_up_only_calls_that_need_its_token(bool holdsItsThread)
    {
        using var broker = new Broker("--token", Good);
        using var leave = new ManualResetEventSlim();
        var cancelled = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        int calls = 0;
        ProsodyClient client = Client(broker, async token =>
        {
            Interlocked.Increment(ref calls);
            token.Register(() => cancelled.TrySetResult());
            if (holdsItsThread)
            {
                leave.Wait(CancellationToken.None);
            }
            else
            {
                // Ignores its cancellation.
                await Task.Run(leave.Wait, CancellationToken.None);
            }

            return new OauthToken(Good);
        }, sendTimeout: TimeSpan.FromSeconds(1));
        long start = Environment.TickCount64;
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.InRange(Environment.TickCount64 - start, 500, 5_000);
        Assert.True(failed.IsTransient);
        await using (ProsodyClient other = Mock.Builder().Build())
        {
            await other.SendAsync("topic", "key", new Payload()).WithPatience();
        }

        start = Environment.TickCount64;
        await client.DisposeAsync().AsTask().WithPatience();
        Assert.InRange(Environment.TickCount64 - start, 0, 5_000);
        await cancelled.Task.WithPatience();
        Assert.Equal(1, calls);
        leave.Set();
    }

    // The bound on a call is ten seconds; a callback that ignores its cancellation is not called on top of itself.
    [Fact]
    public async Task A_call_is_cancelled_at_its_deadline_and_no_second_one_begins_beside_it()
    {
        using var broker = new Broker("--token", Good);
        var leave = new TaskCompletionSource();
        var cancelled = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        int calls = 0;
        await using ProsodyClient client = Client(broker, async token =>
        {
            if (Interlocked.Increment(ref calls) == 1)
            {
                token.Register(() => cancelled.TrySetResult());
                await leave.Task;
            }

            return new OauthToken(Good);
        }, sendTimeout: TimeSpan.FromSeconds(13));
        ProsodyException failed = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.True(cancelled.Task.IsCompleted, "the call was cancelled");
        Assert.Contains("has not returned yet", failed.Message, StringComparison.Ordinal);
        Assert.Equal(1, calls);
        leave.SetResult();
        await Eventually(() => client.SendAsync("topic", "key", new Payload()));
    }

    [Fact]
    public void A_provider_needs_the_mechanism_it_is_for()
    {
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(
            static () => Mock.Builder().Configure(static options => options.OauthTokenProvider = static _ => new(new OauthToken(Good))).Build());
        Assert.Contains("SaslMechanism (PROSODY_SASL_MECHANISM)", refused.Message, StringComparison.Ordinal);
        Assert.Contains("token provider", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_token_never_prints_itself()
    {
        var token = new OauthToken(Secret, DateTimeOffset.UnixEpoch);
        Assert.Equal("OauthToken until 1970-01-01T00:00:00.0000000+00:00", token.ToString());
        Assert.Equal("OauthToken", new OauthToken(Secret).ToString());
        Assert.Equal("{ToString(),nq}", typeof(OauthToken).GetCustomAttribute<DebuggerDisplayAttribute>()!.Value);
        Assert.Equal(DebuggerBrowsableState.Never, typeof(OauthToken).GetProperty(nameof(OauthToken.Value))!.GetCustomAttribute<DebuggerBrowsableAttribute>()!.State);
        Assert.DoesNotContain(Secret, new ClientOptions { OauthTokenProvider = _ => new(token) }.ToString(), StringComparison.Ordinal);
        Assert.Throws<ArgumentException>(static () => new OauthToken(""));
        Assert.Throws<ArgumentNullException>(static () => new OauthToken(null!));
    }

    private static ProsodyClient Client(Broker broker, Func<CancellationToken, ValueTask<OauthToken>> provider, TimeSpan? sendTimeout = null) =>
        ProsodyClientBuilder.Create().WithBootstrapServers(broker.Bootstrap).WithGroupId("group").WithSourceSystem("tests").WithSubscribedTopics("topic")
            .WithSendTimeout(sendTimeout ?? TimeSpan.FromSeconds(3)).Configure(options =>
            {
                options.ProbePort = 0;
                options.SecurityProtocol = "sasl_plaintext";
                options.SaslMechanism = "OAUTHBEARER";
                options.OauthTokenProvider = provider;
            }).Build();

    private static async Task Eventually(Func<Task> act)
    {
        long end = Environment.TickCount64 + (long)Mock.Patience.TotalMilliseconds;
        while (true)
        {
            try
            {
                await act().WithPatience();
                return;
            }
            catch (ProsodyException) when (Environment.TickCount64 < end)
            {
            }
        }
    }
}
