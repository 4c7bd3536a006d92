// Samples of the README around a client: logging and administration.
#pragma warning disable CA1812 // A host makes them.

using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Prosody;
using Prosody.Logging;

namespace DocSnippets;

internal static class LoggingSamples
{
    internal static void Static()
    {
        // Configure logging globally for all Prosody clients (must be called once, before creating clients)
        var loggerFactory = LoggerFactory.Create(builder => builder.AddConsole());
        ProsodyLogging.Configure(loggerFactory);

        ProsodyLogging.ResetForTesting();
    }

    internal static void Hosted(string[] args)
    {
        var builder = Host.CreateApplicationBuilder(args);

        // Auto-configures Prosody logging with the host's ILoggerFactory
        builder.Services.AddProsodyLogging();

        var host = builder.Build();
        host.Dispose();
    }
}

internal static class AdminSample
{
    internal static async Task Run()
    {
        // Initialize admin client
        using var admin = new AdminClient("localhost:9092");

        // Create a topic for testing
        await admin.CreateTopicAsync(
            name: "test-topic",
            partitionCount: 4,
            replicationFactor: 1
        );

        // Delete a topic
        await admin.DeleteTopicAsync("test-topic");
    }
}
