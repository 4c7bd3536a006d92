using System.ComponentModel;
using Microsoft.Extensions.Logging;

namespace Prosody.Logging;

/// <summary>Connects the log lines of all clients of the process with the application's logging.</summary>
public static class ProsodyLogging
{
    /// <summary>Sends log lines to the given factory, under the category <c>Prosody.Native</c>. Lines from before are kept and come first.</summary>
    /// <param name="loggerFactory">The application's factory.</param>
    /// <exception cref="InvalidOperationException">Logging is configured already.</exception>
    public static void Configure(ILoggerFactory loggerFactory)
    {
        ArgumentNullException.ThrowIfNull(loggerFactory);
        LogDrain.Configure(loggerFactory);
    }

    /// <summary>Undoes <see cref="Configure"/>, for tests. The factory is not used any more when this returns.</summary>
    [EditorBrowsable(EditorBrowsableState.Never)]
    public static void ResetForTesting() => LogDrain.Reset();
}
