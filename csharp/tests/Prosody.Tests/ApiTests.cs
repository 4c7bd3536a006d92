// The contract's signatures, exactly: names, parameters, defaults, annotations.

using System.Diagnostics.CodeAnalysis;
using System.Reflection;

namespace Prosody.Tests;

public sealed class ApiTests
{
    [Theory]
    [InlineData("Task SendAsync<T>(String topic, String key, T payload, CancellationToken cancellationToken = default)", true)]
    [InlineData("Task SendAsync<T>(String topic, String key, T payload, JsonTypeInfo<T> typeInfo, CancellationToken cancellationToken = default)", false)]
    [InlineData("Task SendRawAsync(String topic, String key, ReadOnlyMemory<Byte> json, CancellationToken cancellationToken = default)", false)]
    [InlineData("Task SubscribeAsync<T>(IProsodyHandler<T> handler)", true)]
    [InlineData("Task SubscribeAsync<T>(IProsodyHandler<T> handler, IPermanentErrorClassifier classifier)", false)]
    [InlineData("Task UnsubscribeAsync()", false)]
    [InlineData("Task<ConsumerState> GetConsumerStateAsync()", false)]
    [InlineData("Task<UInt32> AssignedPartitionCountAsync()", false)]
    [InlineData("Task<Boolean> IsStalledAsync()", false)]
    [InlineData("Void Dispose()", false)]
    [InlineData("ValueTask DisposeAsync()", false)]
    public void Client_methods(string signature, bool needsReflection)
    {
        MethodInfo method = Assert.Single(typeof(ProsodyClient).GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly), method => Describe(method) == signature);
        Assert.Equal(needsReflection, method.GetCustomAttribute<RequiresUnreferencedCodeAttribute>() is not null);
        Assert.Equal(needsReflection, method.GetCustomAttribute<RequiresDynamicCodeAttribute>() is not null);
    }

    [Theory]
    [InlineData("WithBootstrapServers(params String[] servers)")]
    [InlineData("WithGroupId(String groupId)")]
    [InlineData("WithSubscribedTopics(params String[] topics)")]
    [InlineData("WithMode(ClientMode mode)")]
    [InlineData("WithAllowedEvents(params String[] prefixes)")]
    [InlineData("WithSourceSystem(String sourceSystem)")]
    [InlineData("WithMock(Boolean mock)")]
    [InlineData("WithMaxConcurrency(UInt32 maxConcurrency)")]
    [InlineData("WithMaxRetries(UInt32 maxRetries)")]
    [InlineData("WithFailureTopic(String topic)")]
    [InlineData("WithProbePort(UInt16 port)")]
    [InlineData("WithSendTimeout(TimeSpan timeout)")]
    [InlineData("Configure(Action<ClientOptions> configure)")]
    [InlineData("ConfigureJsonOptions(Action<JsonSerializerOptions> configure)")]
    public void Builder_methods(string signature) => Assert.Single(
        typeof(ProsodyClientBuilder).GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly), method => Describe(method) == "ProsodyClientBuilder " + signature);

    [Theory]
    [InlineData(typeof(AdminClient), "Task CreateTopicAsync(String name, UInt16 partitionCount, UInt16 replicationFactor)")]
    [InlineData(typeof(AdminClient), "Task DeleteTopicAsync(String name)")]
    [InlineData(typeof(AdminClient), "Void Dispose()")]
    [InlineData(typeof(IProsodyHandler<>), "Task OnMessageAsync(ProsodyContext prosodyContext, Message<TPayload> message, CancellationToken cancellationToken)")]
    [InlineData(typeof(IProsodyHandler<>), "Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)")]
    [InlineData(typeof(ProsodyContext), "Task OnCancelAsync()")]
    [InlineData(typeof(ProsodyContext), "Task ScheduleAsync(DateTimeOffset time)")]
    [InlineData(typeof(ProsodyContext), "Task ClearAndScheduleAsync(DateTimeOffset time)")]
    [InlineData(typeof(ProsodyContext), "Task UnscheduleAsync(DateTimeOffset time)")]
    [InlineData(typeof(ProsodyContext), "Task ClearScheduledAsync()")]
    [InlineData(typeof(ProsodyContext), "Task<DateTimeOffset[]> ScheduledAsync()")]
    [InlineData(typeof(IPermanentErrorClassifier), "Boolean IsMessageErrorPermanent(Exception exception)")]
    [InlineData(typeof(IPermanentErrorClassifier), "Boolean IsTimerErrorPermanent(Exception exception)")]
    public void Other_methods(Type type, string signature) =>
        Assert.Single(type.GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly), method => Describe(method) == signature);

    [Fact]
    public void Admin_takes_any_number_of_servers()
    {
        ParameterInfo servers = Assert.Single(Assert.Single(typeof(AdminClient).GetConstructors()).GetParameters());
        Assert.Equal("bootstrapServers", servers.Name);
        Assert.True(servers.IsDefined(typeof(ParamArrayAttribute)));
    }

    [Fact]
    public void Enums_have_the_contract_s_members_from_0_on()
    {
        Assert.Equal(["Pipeline", "LowLatency", "BestEffort"], Enum.GetNames<ClientMode>());
        Assert.Equal(["Unconfigured", "Configured", "Running"], Enum.GetNames<ConsumerState>());
        Assert.Equal(["Permanent", "Transient"], Enum.GetNames<StateErrorCategory>());
        Assert.Equal(["Child", "FollowsFrom"], Enum.GetNames<SpanRelation>());
        Assert.Equal(0, (int)ClientMode.Pipeline);
        Assert.Equal(0, (int)ConsumerState.Unconfigured);
        Assert.Equal(0, (int)StateErrorCategory.Permanent);
        Assert.Equal(0, (int)SpanRelation.Child);
    }

    [Fact]
    public void Public_types_are_in_the_contract_s_namespaces()
    {
        string?[] namespaces = [.. typeof(ProsodyClient).Assembly.GetExportedTypes().Select(static type => type.Namespace).Distinct().Order(StringComparer.Ordinal)];
        Assert.Equal(["Microsoft.Extensions.DependencyInjection", "Prosody", "Prosody.Logging"], namespaces);
        Assert.Null(typeof(ProsodyClient).Assembly.GetType("Prosody.Prosody"));
    }

    [Fact]
    public void A_message_is_a_sealed_class_made_in_tests_too()
    {
        var now = DateTimeOffset.FromUnixTimeMilliseconds(1);
        var message = new Message<int>("t", 1, 2, now, "k", 3);
        Assert.Equal(("t", 1, 2L, now, "k", 3), (message.Topic, message.Partition, message.Offset, message.Timestamp, message.Key, message.Payload));
        Assert.True(typeof(Message<int>).IsSealed);
        Assert.False(message.Equals(new Message<int>("t", 1, 2, now, "k", 3)));
        Assert.Throws<ArgumentNullException>(() => new Message<int>(null!, 0, 0, now, "k", 0));
    }

    [Fact]
    public void Exceptions_have_the_standard_constructors_and_categories()
    {
        foreach (Type type in (Type[])[typeof(PermanentException), typeof(ProsodyException), typeof(TransientStateException), typeof(NullValueException), typeof(PermanentStateException)])
        {
            var inner = new InvalidOperationException();
            Assert.NotNull(Activator.CreateInstance(type));
            Assert.Equal("m", ((Exception)Activator.CreateInstance(type, "m")!).Message);
            Assert.Same(inner, ((Exception)Activator.CreateInstance(type, "m", inner)!).InnerException);
            Assert.False(type.IsSealed, type.Name);
        }

        Assert.Equal(StateErrorCategory.Transient, new NullValueException().Category);
        Assert.Equal(StateErrorCategory.Permanent, new PermanentStateException().Category);
        Assert.IsAssignableFrom<IPermanentError>(new PermanentStateException());
        Assert.IsAssignableFrom<IPermanentError>(new PermanentException());
        Assert.IsAssignableFrom<TransientStateException>(new NullValueException());
        Assert.True(typeof(StateException).IsAbstract);
        Assert.Empty(typeof(IPermanentError).GetMembers());
    }

    [Fact]
    public void Permanent_attribute_checks_its_types()
    {
        Assert.Throws<ArgumentNullException>(static () => new PermanentErrorAttribute(null!));
        Assert.Throws<ArgumentNullException>(static () => new PermanentErrorAttribute([null!]));
        Assert.Throws<ArgumentException>(static () => new PermanentErrorAttribute());
        Assert.Throws<ArgumentException>(static () => new PermanentErrorAttribute(typeof(string)));
        AttributeUsageAttribute usage = typeof(PermanentErrorAttribute).GetCustomAttribute<AttributeUsageAttribute>()!;
        Assert.Equal((AttributeTargets.Method, true, false), (usage.ValidOn, usage.Inherited, usage.AllowMultiple));
    }

    [Fact]
    public async Task A_handler_without_timers_refuses_them_by_its_name()
    {
        IProsodyHandler<int> handler = new Recorder<int>();
        NotImplementedException refused = await Assert.ThrowsAsync<NotImplementedException>(() => handler.OnTimerAsync(null!, new ProsodyTimer("k", default), default));
        Assert.Contains(nameof(Recorder<int>), refused.Message, StringComparison.Ordinal);
    }

    /// <summary>A signature as a reader writes it.</summary>
    private static string Describe(MethodInfo method)
    {
        string generic = method.IsGenericMethod ? $"<{string.Join(", ", method.GetGenericArguments().Select(Name))}>" : string.Empty;
        return $"{Name(method.ReturnType)} {method.Name}{generic}({string.Join(", ", method.GetParameters().Select(Parameter))})";

        static string Parameter(ParameterInfo parameter) =>
            (parameter.IsDefined(typeof(ParamArrayAttribute)) ? "params " : string.Empty)
            + $"{Name(parameter.ParameterType)} {parameter.Name}" + (parameter.HasDefaultValue ? " = default" : string.Empty);

        static string Name(Type type) => type.IsArray
            ? Name(type.GetElementType()!) + "[]"
            : type.IsGenericType ? $"{type.Name.Split('`')[0]}<{string.Join(", ", type.GetGenericArguments().Select(Name))}>" : type.Name;
    }
}
