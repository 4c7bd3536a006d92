using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Prosody.Logging;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds Prosody to a host.</summary>
public static class ProsodyServiceCollectionExtensions
{
    /// <summary>Sends Prosody's log lines to the host's logging from its start to its stop.</summary>
    /// <param name="services">The host's services.</param>
    /// <returns>The same services.</returns>
    public static IServiceCollection AddProsodyLogging(this IServiceCollection services)
    {
        ArgumentNullException.ThrowIfNull(services);
        services.TryAddEnumerable(ServiceDescriptor.Singleton<IHostedService, LoggingService>());
        return services;
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
