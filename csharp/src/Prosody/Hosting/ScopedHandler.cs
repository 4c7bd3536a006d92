using Microsoft.Extensions.DependencyInjection;

namespace Prosody.Hosting;

/// <summary>Makes a scope and a handler for each event, as a web server does for each request.</summary>
internal sealed class ScopedHandler<THandler, TPayload>(IServiceScopeFactory scopes) : IProsodyHandler<TPayload>
    where THandler : class, IProsodyHandler<TPayload>
{
    public async Task OnMessageAsync(ProsodyContext prosodyContext, Message<TPayload> message, CancellationToken cancellationToken)
    {
        AsyncServiceScope scope = scopes.CreateAsyncScope();
        await using (scope.ConfigureAwait(false))
        {
            var handler = scope.ServiceProvider.GetRequiredService<THandler>();
            await handler.OnMessageAsync(prosodyContext, message, cancellationToken).ConfigureAwait(false);
        }
    }

    public async Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken)
    {
        AsyncServiceScope scope = scopes.CreateAsyncScope();
        await using (scope.ConfigureAwait(false))
        {
            IProsodyHandler<TPayload> handler = scope.ServiceProvider.GetRequiredService<THandler>();
            await handler.OnTimerAsync(prosodyContext, timer, cancellationToken).ConfigureAwait(false);
        }
    }
}
