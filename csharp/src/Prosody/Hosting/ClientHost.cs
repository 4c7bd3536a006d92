// When does a host's client start and stop?

using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace Prosody.Hosting;

/// <summary>
/// Builds a client, and subscribes its handler when it has one. An answer that a second try cannot change, like a missing
/// topic, fails the host's start. A cluster that cannot be reached does not: the host goes on, and so do the tries.
/// </summary>
internal sealed partial class ClientHost(IServiceProvider services, object? key, Func<Func<IServiceProvider, ProsodyClient, Task>?> subscribe)
    : IHostedService, IDisposable
{
    /// <summary>Between two tries, on top of what a try itself waits for the cluster.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(1);

    private readonly ILogger _logger = services.GetRequiredService<ILoggerFactory>().CreateLogger("Prosody.Client");
    private readonly CancellationTokenSource _stop = new();
    private Task _tries = Task.CompletedTask;

    private ProsodyClient Client => ProsodyHostBuilder.ClientOf(services, key);

    public async Task StartAsync(CancellationToken cancellationToken)
    {
        ProsodyClient client = Client;
        if (subscribe() is not { } start)
        {
            return;
        }

        try
        {
            await start(services, client).WaitAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (ProsodyException unreachable) when (unreachable.IsTransient)
        {
            Unreachable(_logger, unreachable);
            _tries = TryAgainAsync(start, client);
        }
    }

    public async Task StopAsync(CancellationToken cancellationToken)
    {
        await _stop.CancelAsync().ConfigureAwait(false);
        if (subscribe() is null)
        {
            return;
        }

        ProsodyClient client = Client;
        try
        {
            await client.UnsubscribeAsync().WaitAsync(cancellationToken).ConfigureAwait(false);
            await _tries.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (ProsodyException farewell)
        {
            // The consumer has stopped. Thrown from here, it would end the program as crashed, and keep other services from their stop.
            NoFarewell(_logger, farewell);
        }
        catch (ObjectDisposedException)
        {
            // The application has disposed of the client itself.
        }
        catch (OperationCanceledException) when (cancellationToken.IsCancellationRequested)
        {
            CutOff(_logger, client.Native.ShutdownTimeout);
        }
    }

    public void Dispose() => _stop.Dispose();

    private async Task TryAgainAsync(Func<IServiceProvider, ProsodyClient, Task> start, ProsodyClient client)
    {
        while (!_stop.IsCancellationRequested)
        {
            try
            {
                await Task.Delay(Pause, _stop.Token).ConfigureAwait(false);
                Task attempt = start(services, client);
                if (_stop.IsCancellationRequested)
                {
                    // The stop may have looked for a subscription before there was one.
                    await client.UnsubscribeAsync().ConfigureAwait(false);
                }

                await attempt.ConfigureAwait(false);
                return;
            }
            catch (ProsodyException unreachable) when (unreachable.IsTransient)
            {
                Unreachable(_logger, unreachable);
            }
#pragma warning disable CA1031 // Nobody awaits this task; the line below and the health checks are how the failure is seen.
            catch (Exception refused)
#pragma warning restore CA1031
            {
                // Stopping ends the wait and the try.
                if (!_stop.IsCancellationRequested)
                {
                    Refused(_logger, refused);
                }

                return;
            }
        }
    }

    [LoggerMessage(3, LogLevel.Error, "The consumer could not subscribe because the cluster cannot be reached; it tries again in the background.")]
    private static partial void Unreachable(ILogger logger, Exception exception);

    [LoggerMessage(4, LogLevel.Critical, "The consumer is not running: the cluster can be reached again, but it refused. A restart is needed once the cause is gone.")]
    private static partial void Refused(ILogger logger, Exception exception);

    [LoggerMessage(5, LogLevel.Warning, "The host stopped waiting before Prosody's ShutdownTimeout of {Own} had passed; what its handlers had not finished is done again. Raise HostOptions.ShutdownTimeout or lower ShutdownTimeout.")]
    private static partial void CutOff(ILogger logger, TimeSpan own);

    [LoggerMessage(6, LogLevel.Warning, "The consumer has stopped, but the cluster did not take its last commit; what was not committed is done again.")]
    private static partial void NoFarewell(ILogger logger, Exception exception);
}
