// The builder and the options: rows 1.2, 1.3 and 1.12 of the checklist that need no broker.

using System.Globalization;
using System.Reflection;
using Prosody.Interop;

namespace Prosody.Tests;

public sealed class BuilderTests
{
    /// <summary>The options that can be written down; the others are code.</summary>
    internal static IEnumerable<PropertyInfo> Texts =>
        typeof(ClientOptions).GetProperties().Where(static property => !typeof(Delegate).IsAssignableFrom(property.PropertyType));

    [Fact]
    public void Every_With_method_returns_the_same_builder()
    {
        ProsodyClientBuilder builder = ProsodyClientBuilder.Create();
        ProsodyClientBuilder[] returned =
        [
            builder.WithBootstrapServers("a:1"), builder.WithGroupId("g"), builder.WithSubscribedTopics("t"), builder.WithMode(ClientMode.Pipeline),
            builder.WithAllowedEvents("a."), builder.WithSourceSystem("s"), builder.WithMock(true), builder.WithMaxConcurrency(1), builder.WithMaxRetries(1),
            builder.WithFailureTopic("f"), builder.WithProbePort(0), builder.WithSendTimeout(TimeSpan.FromSeconds(1)), builder.Configure(static _ => { }),
            builder.ConfigureJsonOptions(static _ => { }),
        ];
        Assert.All(returned, same => Assert.Same(builder, same));
    }

    [Fact]
    public void Null_and_blank_arguments_are_refused()
    {
        ProsodyClientBuilder builder = ProsodyClientBuilder.Create();
        Assert.Throws<ArgumentNullException>(() => builder.WithBootstrapServers(null!));
        Assert.Throws<ArgumentNullException>(() => builder.WithSubscribedTopics(null!));
        Assert.Throws<ArgumentNullException>(() => builder.WithAllowedEvents(null!));
        Assert.Throws<ArgumentNullException>(() => builder.WithGroupId(null!));
        Assert.Throws<ArgumentException>(() => builder.WithGroupId(" "));
        Assert.Throws<ArgumentException>(() => builder.WithSourceSystem(""));
        Assert.Throws<ArgumentException>(() => builder.WithFailureTopic("\t"));
        Assert.Throws<ArgumentNullException>(() => builder.Configure(null!));
        Assert.Throws<ArgumentNullException>(() => builder.ConfigureJsonOptions(null!));
        Assert.Throws<ArgumentOutOfRangeException>(() => builder.WithMode((ClientMode)7));
        Assert.Throws<ArgumentOutOfRangeException>(() => builder.WithSendTimeout(TimeSpan.FromSeconds(-5)));
        Assert.Throws<ArgumentOutOfRangeException>(() => builder.WithMaxConcurrency(uint.MaxValue));
        Assert.Throws<ArgumentNullException>(static () => new ProsodyClient(null!));
    }

    [Fact]
    public void Configure_runs_at_once_and_in_order()
    {
        List<int> order = [];
        string? seen = null;
        ProsodyClientBuilder.Create().WithGroupId("first")
            .Configure(options => { order.Add(1); seen = options.GroupId; options.GroupId = "second"; })
            .Configure(options => { order.Add(2); Assert.Equal("second", options.GroupId); });
        Assert.Equal([1, 2], order);
        Assert.Equal("first", seen);
    }

    [Fact]
    public void Json_options_are_configured_at_build_in_order_and_then_frozen()
    {
        List<int> order = [];
        ProsodyClientBuilder builder = Mock.Builder().ConfigureJsonOptions(_ => order.Add(1)).ConfigureJsonOptions(_ => order.Add(2));
        Assert.Empty(order);
        using ProsodyClient client = builder.Build();
        Assert.Equal([1, 2], order);
        Assert.True(client.JsonOptions.IsReadOnly);
    }

    [Fact]
    public async Task A_builder_builds_independent_clients_and_later_changes_reach_none()
    {
        string[] topics = ["topic"];
        ProsodyClientBuilder builder = Mock.Builder().WithSubscribedTopics(topics).WithSourceSystem("one");
        topics[0] = "changed afterwards";
        await using ProsodyClient first = builder.Build();
        await using ProsodyClient second = builder.WithSourceSystem("two").Build();
        Assert.Equal("one", first.SourceSystem);
        Assert.Equal("two", second.SourceSystem);
        await first.DisposeAsync();
        Assert.Equal(ConsumerState.Configured, await second.GetConsumerStateAsync());
    }

    [Fact]
    public void A_client_copies_its_options()
    {
        var options = new ClientOptions { Mock = true, GroupId = "before", SubscribedTopics = ["t"] };
        using var client = new ProsodyClient(options);
        options.GroupId = "after";
        Assert.Equal("before", client.SourceSystem);
    }

    [Fact]
    public void Every_problem_is_named_at_once_with_option_and_variable()
    {
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(static () => Mock.Builder()
            .WithMaxConcurrency(0)
            .Configure(static options =>
            {
                options.IdempotenceCacheSize = 0;
                options.SubscribedTopics = ["a", "a"];
                options.RetryBase = TimeSpan.FromSeconds(-1);
                options.Mode = (ClientMode)9;
            }).Build());
        foreach (string expected in (string[])
        [
            "MaxConcurrency (PROSODY_MAX_CONCURRENCY)", "IdempotenceCacheSize (PROSODY_IDEMPOTENCE_CACHE_SIZE)",
            "SubscribedTopics (PROSODY_SUBSCRIBED_TOPICS)", "RetryBase (PROSODY_RETRY_BASE)", "Mode (PROSODY_MODE)",
        ])
        {
            Assert.Contains(expected, refused.Message, StringComparison.Ordinal);
        }
    }

    // A group `\ud800` became the group of the replacement character, which is another one's.
    [Fact]
    public void A_lone_surrogate_is_a_problem_of_its_option()
    {
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(static () => Mock.Builder()
            .Configure(static options =>
            {
                options.GroupId = "\ud800";
                options.AllowedEvents = ["a\udc00"];
            }).Build());
        Assert.Contains("GroupId (PROSODY_GROUP_ID): contains a lone surrogate", refused.Message, StringComparison.Ordinal);
        Assert.Contains("AllowedEvents (PROSODY_ALLOWED_EVENTS): contains", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Lists_are_not_empty_blank_padded_doubled_or_joined()
    {
        foreach (string[] wrong in (string[][])[[], [""], [" a"], ["a", "a"], ["a,b"]])
        {
            InvalidOperationException refused = Assert.Throws<InvalidOperationException>(
                () => Mock.Builder().WithSubscribedTopics(wrong).Build());
            Assert.Contains("SubscribedTopics", refused.Message, StringComparison.Ordinal);
        }

        // Topics are case-sensitive.
        using ProsodyClient fine = Mock.Builder().WithSubscribedTopics("a", "A").Build();
    }

    [Fact]
    public void A_feature_this_version_lacks_is_refused_by_name()
    {
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(
            static () => Mock.Builder().Configure(static options => options.CassandraNodes = ["localhost:9042"]).Build());
        Assert.Contains("CassandraNodes (PROSODY_CASSANDRA_NODES)", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Without_group_and_topics_a_client_only_sends()
    {
        using ProsodyClient client = ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(Mock.Cluster()).WithSourceSystem("s").Build();
        Assert.Equal(ConsumerState.Unconfigured, await client.GetConsumerStateAsync());
        Assert.Equal(0u, await client.AssignedPartitionCountAsync());
        Assert.False(await client.IsStalledAsync());
    }

    [Fact]
    public void The_source_system_defaults_to_the_group_and_is_needed_to_send()
    {
        using ProsodyClient grouped = ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(Mock.Cluster()).WithGroupId("g").Build();
        Assert.Equal("g", grouped.SourceSystem);
        using ProsodyClient nameless = ProsodyClientBuilder.Create().WithMock(true).WithBootstrapServers(Mock.Cluster()).Build();
        Assert.Equal("", nameless.SourceSystem);
        InvalidOperationException refused = Assert.Throws<InvalidOperationException>(() => { _ = nameless.SendAsync("t", "k", 1); });
        Assert.Contains("PROSODY_SOURCE_SYSTEM", refused.Message, StringComparison.Ordinal);
        Assert.Contains("PROSODY_GROUP_ID", refused.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Every_option_of_the_core_is_a_property_and_no_other()
    {
        Dictionary<string, string> core = Diagnostics.Options();
        // `Log` is read here; the cache of published state comes with published state.
        core.Remove("Log");
        core.Remove("StateReadCache");
        string[] ours = [.. Texts.Select(static property => property.Name)];
        Assert.Equal(core.Keys.Order(StringComparer.Ordinal), ours.Order(StringComparer.Ordinal));
        Assert.All(core, option => Assert.Equal(option.Value, OptionWriter.Variable(option.Key)));
    }

    [Fact]
    public void Every_option_is_nullable_and_unset()
    {
        var options = new ClientOptions();
        Assert.All(typeof(ClientOptions).GetProperties(), property =>
        {
            Assert.True(property.CanWrite, property.Name);
            Assert.Null(property.GetValue(options));
        });
        Assert.Empty(options.ToPairs([]));
    }

    [Fact]
    public void Every_option_reaches_the_core()
    {
        var options = new ClientOptions();
        foreach (PropertyInfo property in Texts)
        {
            Type type = Nullable.GetUnderlyingType(property.PropertyType) ?? property.PropertyType;
            property.SetValue(options, type == typeof(string) ? "x" : type == typeof(string[]) ? new[] { "x" } : type == typeof(TimeSpan) ? TimeSpan.FromSeconds(7)
                : type.IsEnum ? Enum.GetValues(type).GetValue(1) : Convert.ChangeType(1, type, CultureInfo.InvariantCulture));
        }

        List<string> problems = [];
        string[] written = [.. options.ToPairs(problems).Select(static pair => pair.Key)];
        Assert.Empty(problems);
        Assert.Equal(
            Texts.Select(static property => property.Name).Order(StringComparer.Ordinal),
            written.Order(StringComparer.Ordinal));
    }

    [Fact]
    public void Durations_are_written_exactly()
    {
        Dictionary<string, string> pairs = new ClientOptions
        {
            Timeout = TimeSpan.FromMilliseconds(1500),
            RetryBase = TimeSpan.FromTicks(1),
            SendTimeout = Timeout.InfiniteTimeSpan,
            IdempotenceTtl = TimeSpan.MaxValue,
        }.ToPairs([]).ToDictionary();
        Assert.Equal("1s 500000000ns", pairs["Timeout"]);
        Assert.Equal("0s 100ns", pairs["RetryBase"]);
        Assert.Equal("none", pairs["SendTimeout"]);
        Assert.Equal("922337203685s 477580700ns", pairs["IdempotenceTtl"]);
    }

    [Fact]
    public void Infinite_is_only_where_none_is_allowed()
    {
        Assert.Throws<InvalidOperationException>(static () => Mock.Builder().Configure(static options => options.Timeout = Timeout.InfiniteTimeSpan).Build());
        using ProsodyClient fine = Mock.Builder().WithSendTimeout(Timeout.InfiniteTimeSpan).Build();
    }

    [Fact]
    public void Options_never_print_secrets()
    {
        string text = new ClientOptions { GroupId = "g", SaslPassword = "hush", CassandraPassword = "hush", SaslOauthClientSecret = "hush", SslKeyPassword = "hush" }.ToString();
        Assert.DoesNotContain("hush", text, StringComparison.Ordinal);
        Assert.Contains("GroupId = g", text, StringComparison.Ordinal);
    }

    [Fact]
    public void Variables_fill_in_what_is_not_set()
    {
        Child ended = Child.Run("environment", ("PROSODY_MOCK", "true"), ("PROSODY_GROUP_ID", "from-variable"), ("PROSODY_MAX_CONCURRENCY", "0"));
        Assert.Contains("MaxConcurrency (PROSODY_MAX_CONCURRENCY)", ended.Output, StringComparison.Ordinal);
        Assert.Contains("source: from-variable", ended.Output, StringComparison.Ordinal);
        Assert.Contains("set in code: 3", ended.Output, StringComparison.Ordinal);
    }

    // YAHA #134, #135, #159, #122: what a failed construction leaves behind.
    [Fact]
    public void Failed_constructions_leak_nothing()
    {
        uint errors = Diagnostics.Counters().errors;
        for (int i = 0; i < 10_000; i++)
        {
            Assert.Throws<InvalidOperationException>(static () => Mock.Builder().WithMaxConcurrency(0).Build());
        }

        Assert.True(Diagnostics.Counters().errors <= errors + 4, "errors are freed");
    }

    [Fact]
    public async Task Building_never_touches_the_network()
    {
        // A host that does not exist; the clients of a background service are made in its constructor.
        using ProsodyClient client = ProsodyClientBuilder.Create().WithBootstrapServers("host.invalid:9092").WithGroupId("g").WithSubscribedTopics("t").WithProbePort(0).Build();
        Assert.Equal(ConsumerState.Configured, await client.GetConsumerStateAsync());
    }
}
