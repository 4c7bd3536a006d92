using System.Diagnostics.CodeAnalysis;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Options;

namespace Prosody;

/// <summary>
/// Adds to a client of a host. A client has one consumer and one handler: several topics with different payloads are
/// several clients, or one payload type that can hold each of them.
/// </summary>
public sealed class ProsodyHostBuilder
{
    private readonly object? _key;

    internal ProsodyHostBuilder(IServiceCollection services, object? key)
    {
        Services = services;
        _key = key;
    }

    /// <summary>The host's services.</summary>
    public IServiceCollection Services { get; }

    /// <summary>Subscribes what was added; null while nothing was.</summary>
    internal Func<IServiceProvider, ProsodyClient, Task>? Subscribe { get; private set; }

    /// <summary>Adds the handler, which the host subscribes when it starts and unsubscribes when it stops.</summary>
    /// <typeparam name="THandler">The handler. Its <see cref="PermanentErrorAttribute"/>s classify its exceptions.</typeparam>
    /// <typeparam name="TPayload">The payload's type. A trimmed program adds its type information to the client's JSON options.</typeparam>
    /// <param name="lifetime">
    /// <see cref="ServiceLifetime.Scoped"/>, the default, makes a scope and a handler for each event;
    /// <see cref="ServiceLifetime.Singleton"/> uses one handler for all and costs nothing for an event.
    /// </param>
    /// <returns>This builder.</returns>
    /// <exception cref="InvalidOperationException">The client has a handler already.</exception>
    public ProsodyHostBuilder AddHandler<
        [DynamicallyAccessedMembers(
            DynamicallyAccessedMemberTypes.PublicConstructors | DynamicallyAccessedMemberTypes.PublicMethods | DynamicallyAccessedMemberTypes.NonPublicMethods)]
    THandler, TPayload>(ServiceLifetime lifetime = ServiceLifetime.Scoped)
        where THandler : class, IProsodyHandler<TPayload>
    {
        if (Subscribe is not null)
        {
            throw new InvalidOperationException("The client has a handler already; add a client for the second one.");
        }

        Services.TryAdd(new ServiceDescriptor(typeof(THandler), typeof(THandler), lifetime));
        Subscribe = (provider, client) =>
        {
            IProsodyHandler<TPayload> handler = lifetime == ServiceLifetime.Singleton
                ? provider.GetRequiredService<THandler>()
                : new Hosting.ScopedHandler<THandler, TPayload>(provider.GetRequiredService<IServiceScopeFactory>());
            return client.SubscribeAsync(handler, Classifier(provider) ?? AttributeClassifier.Of<TPayload>(typeof(THandler)));
        };
        return this;
    }

    /// <summary>Adds a classifier, which is asked instead of the handler's attributes.</summary>
    /// <typeparam name="TClassifier">Says which exceptions a retry cannot resolve. One serves the whole client.</typeparam>
    /// <returns>This builder.</returns>
    public ProsodyHostBuilder AddPermanentErrorClassifier<
        [DynamicallyAccessedMembers(DynamicallyAccessedMemberTypes.PublicConstructors)] TClassifier>()
        where TClassifier : class, IPermanentErrorClassifier
    {
        if (_key is null)
        {
            Services.AddSingleton<IPermanentErrorClassifier, TClassifier>();
        }
        else
        {
            Services.AddKeyedSingleton<IPermanentErrorClassifier, TClassifier>(_key);
        }

        return this;
    }

    /// <summary>The client of a key; the one without a key when it is null.</summary>
    internal static ProsodyClient ClientOf(IServiceProvider provider, object? key) => key is null
        ? provider.GetRequiredService<ProsodyClient>()
        : provider.GetRequiredKeyedService<ProsodyClient>(key);

    /// <summary>The name of a client's options.</summary>
    internal static string NameOf(object? key) => key?.ToString() ?? Options.DefaultName;

    private IPermanentErrorClassifier? Classifier(IServiceProvider provider) => _key is null
        ? provider.GetService<IPermanentErrorClassifier>()
        : provider.GetKeyedService<IPermanentErrorClassifier>(_key);
}
