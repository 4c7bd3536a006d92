using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;
using Prosody;
using Prosody.Hosting;
using Prosody.Logging;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds Prosody to a host.</summary>
public static class ProsodyServiceCollectionExtensions
{
    private const string DefaultSection = "Prosody";

    /// <summary>Sends Prosody's log lines to the host's logging from its start to its stop.</summary>
    /// <param name="services">The host's services.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddProsodyLogging(this IServiceCollection services)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IHostedService, LoggingService>());
        return services;
    }

    /// <summary>
    /// Adds the client of the configuration's section <c>Prosody</c> as a singleton. It is built, and so its options are
    /// checked, when the host starts; it is disposed with the host.
    /// </summary>
    /// <param name="services">The host's services.</param>
    /// <param name="configure">Runs after the section was read, so it wins.</param>
    /// <returns>What can be added to the client: a handler, which also makes the host subscribe it.</returns>
    public static ProsodyHostBuilder AddProsodyClient(this IServiceCollection services, Action<ClientOptions>? configure = null) =>
        AddProsodyClient(services, DefaultSection, configure);

    /// <summary>Adds the client of a section of the configuration as a singleton; see the other overload.</summary>
    /// <param name="services">The host's services.</param>
    /// <param name="sectionPath">For example <c>Kafka:Orders</c>. A section that does not exist sets nothing.</param>
    /// <param name="configure">Runs after the section was read, so it wins.</param>
    /// <returns>What can be added to the client: a handler, which also makes the host subscribe it.</returns>
    public static ProsodyHostBuilder AddProsodyClient(
        this IServiceCollection services, string sectionPath, Action<ClientOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentException.ThrowIfNullOrWhiteSpace(sectionPath);
        services.AddSingleton(provider => Build(provider, Options.Options.DefaultName));
        return AddHost(services, null, sectionPath, configure);
    }

    /// <summary>Adds a client as a keyed singleton, for hosts that have several.</summary>
    /// <param name="services">The host's services.</param>
    /// <param name="serviceKey">The key it is resolved by; its text names the client's <see cref="ClientOptions"/>.</param>
    /// <param name="sectionPath">The section of the configuration, for example <c>Kafka:Audit</c>.</param>
    /// <param name="configure">Runs after the section was read, so it wins.</param>
    /// <returns>What can be added to the client: a handler, which also makes the host subscribe it.</returns>
    public static ProsodyHostBuilder AddKeyedProsodyClient(
        this IServiceCollection services, object serviceKey, string sectionPath = DefaultSection, Action<ClientOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        ArgumentNullException.ThrowIfNull(serviceKey);
        ArgumentException.ThrowIfNullOrWhiteSpace(sectionPath);
        services.AddKeyedSingleton(serviceKey, static (provider, key) => Build(provider, ProsodyHostBuilder.NameOf(key)));
        return AddHost(services, serviceKey, sectionPath, configure);
    }

    private static ProsodyHostBuilder AddHost(IServiceCollection services, object? key, string sectionPath, Action<ClientOptions>? configure)
    {
        services.AddOptions<ClientOptions>(ProsodyHostBuilder.NameOf(key)).Configure<IServiceProvider>((options, provider) =>
        {
            // A host without configuration has only the delegate and the environment.
            if (provider.GetService<IConfiguration>() is { } configuration)
            {
                OptionReader.Read(configuration.GetSection(sectionPath), options, options.ReadProblems);
            }

            configure?.Invoke(options);
        });
        var builder = new ProsodyHostBuilder(services, key);
        // Not TryAddEnumerable: each client has a host of its own.
        services.AddSingleton<IHostedService>(provider => new ClientHost(provider, key, () => builder.Subscribe));
        return builder;
    }

    private static ProsodyClient Build(IServiceProvider provider, string name)
    {
        ClientOptions options = provider.GetRequiredService<IOptionsMonitor<ClientOptions>>().Get(name);
        return new(options, [], problems => new OptionsValidationException(name, typeof(ClientOptions), problems));
    }

    /// <summary>Two hosts of one process may have one each: the last one started gets the lines.</summary>
    private sealed class LoggingService(ILoggerFactory factory) : IHostedService
    {
        public Task StartAsync(CancellationToken cancellationToken)
        {
            LogDrain.Attach(factory);
            return Task.CompletedTask;
        }

        public Task StopAsync(CancellationToken cancellationToken)
        {
            LogDrain.Detach(factory);
            return Task.CompletedTask;
        }
    }
}
