using Microsoft.Extensions.Diagnostics.HealthChecks;
using Prosody;

namespace Microsoft.Extensions.DependencyInjection;

/// <summary>Adds Prosody to a host's health checks.</summary>
public static class ProsodyHealthChecksBuilderExtensions
{
    /// <summary>
    /// Adds two checks of a client that <c>AddProsodyClient</c> added: <c>prosody.ready</c> (tag <c>ready</c>) is healthy
    /// while the consumer runs and has at least one partition, and <c>prosody.live</c> (tag <c>live</c>) unless a partition
    /// is stalled. They say what the probe server's <c>/readyz</c> and <c>/livez</c> say.
    /// </summary>
    /// <param name="builder">The host's health checks.</param>
    /// <param name="serviceKey">The key of a keyed client; it is added to the names of the checks.</param>
    /// <returns>The same builder.</returns>
    public static IHealthChecksBuilder AddProsody(this IHealthChecksBuilder builder, object? serviceKey = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        string suffix = serviceKey is null ? string.Empty : $".{serviceKey}";
        builder.Add(new("prosody.ready" + suffix, provider => new Check(ProsodyHostBuilder.ClientOf(provider, serviceKey), ReadyAsync), null, ["ready"]));
        return builder.Add(new("prosody.live" + suffix, provider => new Check(ProsodyHostBuilder.ClientOf(provider, serviceKey), LiveAsync), null, ["live"]));
    }

    private static async Task<(bool Good, string Text)> ReadyAsync(ProsodyClient client)
    {
        ConsumerState state = await client.GetConsumerStateAsync().ConfigureAwait(false);
        uint partitions = await client.AssignedPartitionCountAsync().ConfigureAwait(false);
        return (state == ConsumerState.Running && partitions > 0, $"the consumer is {state} with {partitions} partitions");
    }

    private static async Task<(bool Good, string Text)> LiveAsync(ProsodyClient client) =>
        await client.IsStalledAsync().ConfigureAwait(false)
            ? (false, "a partition has unfinished work of which nothing finished for the stall threshold")
            : (true, "no partition is stalled");

    private sealed class Check(ProsodyClient client, Func<ProsodyClient, Task<(bool Good, string Text)>> ask) : IHealthCheck
    {
        public async Task<HealthCheckResult> CheckHealthAsync(HealthCheckContext context, CancellationToken cancellationToken = default)
        {
            (bool good, string text) = await ask(client).ConfigureAwait(false);
            var data = new Dictionary<string, object>
            {
                ["state"] = (await client.GetConsumerStateAsync().ConfigureAwait(false)).ToString(),
                ["partitions"] = await client.AssignedPartitionCountAsync().ConfigureAwait(false),
            };
            return new(good ? HealthStatus.Healthy : context.Registration.FailureStatus, text, data: data);
        }
    }
}
