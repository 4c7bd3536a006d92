// A consumer as a service of the generic host. Run it without a broker:
//
//     Prosody__Mock=true dotnet run
//
// or on a real one, which needs the topic `orders`:
//
//     Prosody__BootstrapServers=localhost:9092 dotnet run
//
// Options come from appsettings.json, section `Prosody`; the environment's `Prosody__Name` overrides them.

using Prosody;

HostApplicationBuilder builder = Host.CreateApplicationBuilder(args);
builder.Services.AddProsodyLogging();
builder.Services.AddProsodyClient().AddHandler<OrderHandler, Order>();
builder.Services.AddSingleton<Shipping>();
await builder.Build().RunAsync();

/// <summary>What an order's messages say.</summary>
public record Order(string? Id, decimal Total);

/// <summary>A service of the application.</summary>
public class Shipping(ILogger<Shipping> logger)
{
    /// <summary>Ships an order.</summary>
    public Task ShipAsync(string customer, Order order, CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        logger.LogInformation("Shipping order {Id} of {Customer}", order.Id, customer);
        return Task.CompletedTask;
    }
}

/// <summary>Made anew, with a scope of its own, for each message.</summary>
public class OrderHandler(Shipping shipping) : IProsodyHandler<Order>
{
    /// <inheritdoc/>
    [PermanentError(typeof(ArgumentException))]
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<Order> message, CancellationToken cancellationToken)
    {
        Order order = message.Payload ?? throw new ArgumentException("an order is missing");
        await shipping.ShipAsync(message.Key, order, cancellationToken);
    }
}
