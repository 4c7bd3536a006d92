// A web service that sends what it is told and handles what it receives. Run it without a broker:
//
//     Prosody__Mock=true dotnet run --urls http://127.0.0.1:5080
//     curl -X POST http://127.0.0.1:5080/rooms/kitchen -H 'Content-Type: application/json' -d '{"celsius": 21.5}'
//     curl http://127.0.0.1:5080/rooms/kitchen
//     curl http://127.0.0.1:5080/health/ready

using System.Collections.Concurrent;
using Microsoft.AspNetCore.Diagnostics.HealthChecks;
using Prosody;

WebApplicationBuilder builder = WebApplication.CreateBuilder(args);
builder.Services.AddProsodyLogging();
builder.Services.AddProsodyClient().AddHandler<ReadingHandler, Reading>(ServiceLifetime.Singleton);
builder.Services.AddSingleton<Rooms>();
builder.Services.AddHealthChecks().AddProsody();
WebApplication app = builder.Build();

// Completes when the brokers have the message: what is acknowledged here is not lost.
app.MapPost("/rooms/{room}", async (string room, Reading reading, ProsodyClient client, CancellationToken cancellationToken) =>
{
    await client.SendAsync("readings", room, reading, cancellationToken);
    return Results.Accepted($"/rooms/{room}");
});

app.MapGet("/rooms/{room}", (string room, Rooms rooms) =>
    rooms.TryGetValue(room, out Reading? latest) ? Results.Ok(latest) : Results.NotFound());

app.MapHealthChecks("/health/ready", new HealthCheckOptions { Predicate = check => check.Tags.Contains("ready") });
app.MapHealthChecks("/health/live", new HealthCheckOptions { Predicate = check => check.Tags.Contains("live") });
await app.RunAsync();

/// <summary>A measured temperature.</summary>
public record Reading(double Celsius);

/// <summary>The latest reading of each room.</summary>
public class Rooms : ConcurrentDictionary<string, Reading>;

/// <summary>One for all messages. Those of a room come one after the other, so the last one written is the latest.</summary>
public class ReadingHandler(Rooms rooms) : IProsodyHandler<Reading>
{
    /// <inheritdoc/>
    public Task OnMessageAsync(ProsodyContext prosodyContext, Message<Reading> message, CancellationToken cancellationToken)
    {
        rooms[message.Key] = message.Payload!;
        return Task.CompletedTask;
    }
}
