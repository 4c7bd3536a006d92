// Clients of a host: rows F1 to F5 and O4.

using System.Reflection;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace Prosody.Tests;

public sealed class HostingTests
{
    [Fact]
    public async Task A_host_runs_the_handler_of_its_section_with_a_scope_for_each_message()
    {
        string cluster = Mock.Cluster();
        using IHost host = Host(Section("Prosody", cluster), static services =>
        {
            services.AddScoped<Scoped>();
            services.AddSingleton<Seen>();
            services.AddProsodyClient().AddHandler<ScopedHandler, Payload>();
        });
        await host.StartAsync().WithPatience();
        var client = host.Services.GetRequiredService<ProsodyClient>();
        await client.SendAsync("topic", "key", new Payload("1")).WithPatience();
        await client.SendAsync("topic", "key", new Payload("2")).WithPatience();
        var seen = host.Services.GetRequiredService<Seen>();
        await Mock.Until(() => seen.Disposed.Count == 2, "both scopes are disposed");
        Assert.Equal(["1", "2"], seen.Texts);
        Assert.Equal(2, seen.Disposed.Distinct().Count());
        await host.StopAsync().WithPatience();
        Assert.Equal(ConsumerState.Configured, await client.GetConsumerStateAsync());
    }

    [Fact]
    public async Task A_singleton_handler_is_one_for_all_and_its_attributes_count()
    {
        string cluster = Mock.Cluster();
        using IHost host = Host(Section("Prosody", cluster), static services =>
            services.AddProsodyClient().AddHandler<Attributed, Payload>(ServiceLifetime.Singleton));
        await host.StartAsync().WithPatience();
        await host.Services.GetRequiredService<ProsodyClient>().SendAsync("topic", "key", new Payload("bad")).WithPatience();
        await host.Services.GetRequiredService<ProsodyClient>().SendAsync("topic", "key", new Payload("good")).WithPatience();
        var handler = host.Services.GetRequiredService<Attributed>();
        await Mock.Until(() => handler.Texts.Contains("good"), "the key goes on behind the permanent error");
        Assert.Equal(["bad", "good"], handler.Texts);
        await host.StopAsync().WithPatience();
    }

    [Fact]
    public async Task A_classifier_is_asked_instead_of_the_attributes()
    {
        using IHost host = Host(Section("Prosody", Mock.Cluster()), static services => services.AddProsodyClient()
            .AddHandler<Unattributed, Payload>(ServiceLifetime.Singleton).AddPermanentErrorClassifier<EverythingIsPermanent>());
        await host.StartAsync().WithPatience();
        var client = host.Services.GetRequiredService<ProsodyClient>();
        await client.SendAsync("topic", "key", new Payload("bad")).WithPatience();
        await client.SendAsync("topic", "key", new Payload("good")).WithPatience();
        var handler = host.Services.GetRequiredService<Unattributed>();
        await Mock.Until(() => handler.Texts.Contains("good"), "the key goes on behind the permanent error");
        await host.StopAsync().WithPatience();
    }

    [Fact]
    public async Task Keyed_clients_have_sections_and_handlers_of_their_own()
    {
        var (one, two) = (Mock.Cluster(), Mock.Cluster());
        Dictionary<string, string?> settings = Section("Kafka:Orders", one);
        foreach ((string name, string? value) in Section("Kafka:Audit", two))
        {
            settings[name] = value;
        }

        using IHost host = Host(settings, static services =>
        {
            services.AddProsodyClient("Kafka:Orders", static options => options.SourceSystem = "orders").AddHandler<Attributed, Payload>(ServiceLifetime.Singleton);
            services.AddKeyedProsodyClient("audit", "Kafka:Audit").AddHandler<Unattributed, Payload>(ServiceLifetime.Singleton);
            services.AddHealthChecks().AddProsody().AddProsody("audit");
        });
        await host.StartAsync().WithPatience();
        var orders = host.Services.GetRequiredService<ProsodyClient>();
        var audit = host.Services.GetRequiredKeyedService<ProsodyClient>("audit");
        Assert.Equal("orders", orders.SourceSystem);
        Assert.Equal("tests", audit.SourceSystem);
        await audit.SendAsync("topic", "key", new Payload("to audit")).WithPatience();
        await Mock.Until(() => host.Services.GetRequiredService<Unattributed>().Texts.Contains("to audit"), "the audit handler has it");
        Assert.Empty(host.Services.GetRequiredService<Attributed>().Texts);
        HealthReport report = await UntilAsync(host, static report => report.Status == HealthStatus.Healthy);
        Assert.Equal(
            ["prosody.live", "prosody.live.audit", "prosody.ready", "prosody.ready.audit"],
            report.Entries.Keys.Order(StringComparer.Ordinal));
        await audit.UnsubscribeAsync().WithPatience();
        report = await UntilAsync(host, static report => report.Status == HealthStatus.Unhealthy);
        Assert.Equal(HealthStatus.Unhealthy, report.Entries["prosody.ready.audit"].Status);
        Assert.Equal(HealthStatus.Healthy, report.Entries["prosody.live.audit"].Status);
        Assert.Equal(HealthStatus.Healthy, report.Entries["prosody.ready"].Status);
        Assert.Equal("Configured", report.Entries["prosody.ready.audit"].Data["state"]);
        await host.StopAsync().WithPatience();
    }

    [Fact]
    public async Task Everything_wrong_with_a_section_fails_the_start_in_one_exception()
    {
        Dictionary<string, string?> settings = Section("Prosody", Mock.Cluster());
        settings["Prosody:ComitInterval"] = "1s";
        settings["Prosody:ShutdownTimeout"] = "soon";
        settings["Prosody:Mode"] = "7";
        settings["Prosody:MaxConcurrency"] = "0";
        settings["Prosody:Somebody:Else"] = "is not ours";
        using IHost host = Host(settings, static services => services.AddProsodyClient());
        OptionsValidationException refused = await Assert.ThrowsAsync<OptionsValidationException>(() => host.StartAsync().WithPatience());
        string[] failures = [.. refused.Failures.Order(StringComparer.Ordinal)];
        Assert.Equal(4, failures.Length);
        Assert.Contains("MaxConcurrency (PROSODY_MAX_CONCURRENCY)", failures[0], StringComparison.Ordinal);
        Assert.Equal("Prosody:ComitInterval: there is no such option", failures[1]);
        Assert.Equal("Prosody:Mode: `7` is not one of Pipeline, LowLatency, BestEffort", failures[2]);
        Assert.StartsWith("Prosody:ShutdownTimeout: `soon` is not a duration", failures[3], StringComparison.Ordinal);
    }

    [Fact]
    public void Every_option_can_be_read_from_a_section()
    {
        var settings = new Dictionary<string, string?>();
        foreach (PropertyInfo property in BuilderTests.Texts)
        {
            Type type = Nullable.GetUnderlyingType(property.PropertyType) ?? property.PropertyType;
            settings["S:" + property.Name] = type == typeof(TimeSpan) ? "7s" : type == typeof(bool) ? "true" : type.IsEnum ? Enum.GetNames(type)[1] : "1";
        }

        var options = new ClientOptions();
        List<string> problems = [];
        OptionReader.Read(new ConfigurationBuilder().AddInMemoryCollection(settings).Build().GetSection("S"), options, problems);
        Assert.Empty(problems);
        Assert.All(BuilderTests.Texts, property => Assert.NotNull(property.GetValue(options)));
        Assert.Equal(settings.Keys.Select(static name => name[2..]).Order(StringComparer.Ordinal), options.ToPairs([]).Select(static pair => pair.Key).Order(StringComparer.Ordinal));
    }

    [Theory]
    [InlineData(nameof(ClientOptions.Timeout), "00:00:15", "15s")]
    [InlineData(nameof(ClientOptions.Timeout), "1h 30m", "5400s")]
    [InlineData(nameof(ClientOptions.Timeout), "250ms", "0s 250000000ns")]
    [InlineData(nameof(ClientOptions.Timeout), "1d", "86400s")]
    [InlineData(nameof(ClientOptions.Timeout), "15", null)]
    [InlineData(nameof(ClientOptions.Timeout), "15 parsecs", null)]
    [InlineData(nameof(ClientOptions.Timeout), "99999999999999999999s", null)]
    [InlineData(nameof(ClientOptions.Timeout), "9999999999999y", null)]
    [InlineData(nameof(ClientOptions.SendTimeout), "none", "none")]
    [InlineData(nameof(ClientOptions.ProbePort), "none", "0")]
    [InlineData(nameof(ClientOptions.FetchBufferSize), "64MiB", "67108864")]
    [InlineData(nameof(ClientOptions.FetchBufferSize), "1 gb", "1000000000")]
    [InlineData(nameof(ClientOptions.FetchBufferSize), "9999999999GiB", null)]
    [InlineData(nameof(ClientOptions.Mode), "low-latency", "low-latency")]
    [InlineData(nameof(ClientOptions.Mode), "BestEffort", "best-effort")]
    [InlineData(nameof(ClientOptions.Mode), "1", null)]
    [InlineData(nameof(ClientOptions.TimerSpans), "follows_from", "follows_from")]
    [InlineData(nameof(ClientOptions.Mock), "yes", null)]
    [InlineData(nameof(ClientOptions.SubscribedTopics), " a , b ", "a,b")]
    [InlineData(nameof(ClientOptions.SchedulerFailureWeight), "0.25", "0.25")]
    [InlineData(nameof(ClientOptions.GroupId), "  ", null, false)]
    public void Values_are_read_as_people_write_them(string name, string text, string? written, bool complains = true)
    {
        var options = new ClientOptions();
        List<string> problems = [];
        var settings = new Dictionary<string, string?> { ["S:" + name] = text };
        OptionReader.Read(new ConfigurationBuilder().AddInMemoryCollection(settings).Build().GetSection("S"), options, problems);
        Assert.Equal(written, options.ToPairs([]).Select(static pair => pair.Value).SingleOrDefault());
        Assert.Equal(written is null && complains ? 1 : 0, problems.Count);
        Assert.All(problems, problem => Assert.StartsWith($"S:{name}: `{text}` is not ", problem, StringComparison.Ordinal));
    }

    [Fact]
    public async Task An_unreachable_cluster_does_not_keep_the_host_from_starting_or_stopping()
    {
        var settings = new Dictionary<string, string?>
        {
            ["Prosody:BootstrapServers"] = "127.0.0.1:1",
            ["Prosody:GroupId"] = "group",
            ["Prosody:SubscribedTopics:0"] = "topic",
            ["Prosody:SubscribeTimeout"] = "100ms",
            ["Prosody:ProbePort"] = "none",
        };
        using IHost host = Host(settings, static services =>
        {
            services.AddProsodyClient().AddHandler<Attributed, Payload>(ServiceLifetime.Singleton);
            services.AddHealthChecks().AddProsody();
        });
        await host.StartAsync().WithPatience();
        HealthReport report = await host.Services.GetRequiredService<HealthCheckService>().CheckHealthAsync();
        Assert.Equal(HealthStatus.Unhealthy, report.Entries["prosody.ready"].Status);
        await host.StopAsync().WithPatience();
    }

    // The cluster goes while a handler runs, so the last commit fails. The exception went out of the host's stop: the services behind
    // it were not stopped, and the program ended as crashed.
    [Fact]
    public async Task A_cluster_that_is_gone_does_not_keep_the_host_from_stopping()
    {
        using var broker = new Broker();
        var settings = new Dictionary<string, string?>
        {
            ["Prosody:BootstrapServers"] = broker.Bootstrap,
            ["Prosody:GroupId"] = "group",
            ["Prosody:SourceSystem"] = "tests",
            ["Prosody:SubscribedTopics:0"] = "topic",
            ["Prosody:ShutdownTimeout"] = "1s",
            ["Prosody:CommitInterval"] = "1h",
            ["Prosody:ProbePort"] = "none",
        };
        using IHost host = Host(settings, static services => services.AddProsodyClient().AddHandler<Unattributed, Payload>(ServiceLifetime.Singleton));
        await host.StartAsync().WithPatience();
        await host.Services.GetRequiredService<ProsodyClient>().SendAsync("topic", "key", new Payload("last")).WithPatience();
        await Mock.Until(() => host.Services.GetRequiredService<Unattributed>().Texts.Count == 1, "the message is handled");
        broker.Kill();
        await host.StopAsync().WithPatience();
    }

    [Fact]
    public async Task A_refusal_fails_the_start()
    {
        using IHost host = Host(Section("Prosody", Mock.Cluster()), static services => services.AddProsodyClient().AddHandler<Attributed, Payload>());
        await host.Services.GetRequiredService<ProsodyClient>().SubscribeAsync(new Attributed()).WithPatience();
        await Assert.ThrowsAsync<InvalidOperationException>(() => host.StartAsync().WithPatience());
    }

    [Fact]
    public void A_client_takes_one_handler()
    {
        ProsodyHostBuilder builder = new ServiceCollection().AddProsodyClient().AddHandler<Attributed, Payload>();
        Assert.Throws<InvalidOperationException>(() => builder.AddHandler<Unattributed, Payload>());
    }

    private static IHost Host(Dictionary<string, string?> settings, Action<IServiceCollection> add)
    {
        HostApplicationBuilder builder = Microsoft.Extensions.Hosting.Host.CreateEmptyApplicationBuilder(new HostApplicationBuilderSettings());
        builder.Configuration.AddInMemoryCollection(settings);
        builder.Services.AddLogging(static logging => logging.ClearProviders());
        add(builder.Services);
        return builder.Build();
    }

    private static Dictionary<string, string?> Section(string path, string cluster) => new()
    {
        [$"{path}:Mock"] = "true",
        [$"{path}:BootstrapServers"] = cluster,
        [$"{path}:GroupId"] = "group",
        [$"{path}:SourceSystem"] = "tests",
        [$"{path}:SubscribedTopics:0"] = "topic",
    };

    private static async Task<HealthReport> UntilAsync(IHost host, Func<HealthReport, bool> wanted)
    {
        HealthReport? report = null;
        var service = host.Services.GetRequiredService<HealthCheckService>();
        long end = Environment.TickCount64 + (long)Mock.Patience.TotalMilliseconds;
        do
        {
            Assert.True(Environment.TickCount64 < end, "never the health that is waited for");
            report = await service.CheckHealthAsync();
        }
        while (!wanted(report));
        return report;
    }

    private sealed class Seen
    {
        internal List<string?> Texts { get; } = [];

        internal List<Guid> Disposed { get; } = [];
    }

    private sealed class Scoped(Seen seen) : IDisposable
    {
        private readonly Guid _id = Guid.NewGuid();

        public void Dispose() => seen.Disposed.Add(_id);
    }

    private sealed class ScopedHandler(Scoped scoped, Seen seen) : IProsodyHandler<Payload>
    {
        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            Assert.NotNull(scoped);
            seen.Texts.Add(message.Payload!.Text);
            return Task.CompletedTask;
        }
    }

    private sealed class Attributed : IProsodyHandler<Payload>
    {
        internal List<string?> Texts { get; } = [];

        [PermanentError(typeof(FormatException))]
        Task IProsodyHandler<Payload>.OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            Texts.Add(message.Payload!.Text);
            return message.Payload.Text == "bad" ? throw new FormatException("bad") : Task.CompletedTask;
        }
    }

    private sealed class Unattributed : IProsodyHandler<Payload>
    {
        internal List<string?> Texts { get; } = [];

        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Payload> message, CancellationToken cancellationToken)
        {
            Texts.Add(message.Payload!.Text);
            return message.Payload.Text == "bad" ? throw new FormatException("bad") : Task.CompletedTask;
        }
    }

    private sealed class EverythingIsPermanent : IPermanentErrorClassifier
    {
        public bool IsMessageErrorPermanent(Exception exception) => true;

        public bool IsTimerErrorPermanent(Exception exception) => true;
    }
}
