// Which exception is a native failure?

using System.Text;

namespace Prosody.Interop;

/// <summary>Makes exceptions of statuses and native errors.</summary>
internal static unsafe class Failures
{
    /// <summary>The exception behind a status that is not OK. Frees the error.</summary>
    internal static Exception From(ulong handle, int status, PrError* error, string owner, string? topic = null, TokenFailure? tokens = null)
    {
        if (error is not null)
        {
            try
            {
                return From(error, owner, topic, tokens);
            }
            finally
            {
                NativeMethods.pr_error_free(error);
            }
        }

        return status switch
        {
            NativeMethods.PR_CLOSED => new ObjectDisposedException(owner),
            NativeMethods.PR_STALE => new ObjectDisposedException(nameof(ProsodyContext), "The event this context belongs to has ended."),
            NativeMethods.PR_FAULTED => new ProsodyException("The client is unusable: " + FaultText(handle)),
            _ => new ProsodyException($"The native library refused the call (status {status})."),
        };
    }

    /// <summary>The lines of a configuration error, or null when it is another kind of error.</summary>
    internal static string[]? Problems(PrError* error) =>
        error is not null && error->kind == NativeMethods.PR_ERROR_CONFIG ? Utf8.Decode(error->message).Split('\n') : null;

    /// <summary>What the panic behind PR_FAULTED said.</summary>
    internal static string FaultText(ulong handle)
    {
        byte* buffer = stackalloc byte[4096];
        uint length = NativeMethods.pr_fault_text(handle, buffer, 4096);
        return Encoding.UTF8.GetString(buffer, (int)Math.Min(length, 4096));
    }

    private static Exception From(PrError* error, string owner, string? topic, TokenFailure? tokens)
    {
        string message = Utf8.Decode(error->message);
        bool transient = (error->flags & NativeMethods.PR_FLAG_TRANSIENT) != 0;
        switch (error->kind)
        {
            case NativeMethods.PR_ERROR_CONFIG:
            case NativeMethods.PR_ERROR_STATE:
                return new InvalidOperationException(message);
            case NativeMethods.PR_ERROR_ARGUMENT:
                return new ArgumentException(message);
            case NativeMethods.PR_ERROR_STORE:
                return transient ? new TransientStateException(message) : new PermanentStateException(message);
            case NativeMethods.PR_ERROR_CLOSED:
                return new ObjectDisposedException(owner, message);
            default:
                Exception? inner =
                    tokens is not null && message.Contains(tokens.Text, StringComparison.Ordinal) ? tokens.Cause
                    : error->kind == NativeMethods.PR_ERROR_TIMEOUT ? new TimeoutException(message)
                    : null;
                return new ProsodyException(message, inner)
                {
                    Code = error->code.len == 0 ? null : Utf8.Decode(error->code),
                    IsTransient = transient,
                    MayHaveBeenWritten = (error->flags & NativeMethods.PR_FLAG_MAYBE_WRITTEN) != 0,
                    Topic = topic,
                };
        }
    }
}
