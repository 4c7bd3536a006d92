// How is the application asked for a token? On the thread pool, so that it holds up nobody, and one question at a time.
// Whatever it does becomes an answer.

namespace Prosody.Interop;

/// <summary>Why the last question had no token, and how the native side was told.</summary>
internal sealed record TokenFailure(Exception Cause, string Text);

/// <summary>The questions of one client. The native side gives each ten seconds and takes it back then.</summary>
internal sealed class TokenQuestions(ulong client, Func<CancellationToken, ValueTask<OauthToken>> provider)
{
    private const int MaxTextChars = 1024;

    private readonly object _gate = new();
    private Question? _open;
    private TokenFailure? _failure;

    /// <summary>Why there is no new token; null while there is one.</summary>
    internal TokenFailure? Failure => Volatile.Read(ref _failure);

    internal void Ask(ulong number)
    {
        var question = new Question(this, number);
        bool free;
        lock (_gate)
        {
            free = _open is null;
            _open ??= question;
        }

        if (free)
        {
            ThreadPool.UnsafeQueueUserWorkItem(static question => _ = question.RunAsync(), question, preferLocal: false);
        }
        else
        {
            // Callbacks that never end must not pile up.
            Refuse(number, new InvalidOperationException(
                $"{nameof(ClientOptions.OauthTokenProvider)} has not returned yet from the call before this one, although that one was cancelled."));
        }
    }

    /// <summary>Nobody waits for the answer any more.</summary>
    internal void TakeBack(ulong number)
    {
        Question? open;
        lock (_gate)
        {
            open = _open;
        }

        if (open?.Number == number)
        {
            _ = open.CancelAsync();
        }
    }

    /// <summary>Nobody waits for any answer any more.</summary>
    internal void TakeAllBack()
    {
        Question? open;
        lock (_gate)
        {
            open = _open;
        }

        _ = open?.CancelAsync();
    }

    private void Close()
    {
        lock (_gate)
        {
            _open = null;
        }
    }

    private void Give(ulong number, OauthToken token)
    {
        // Zero would mean that it counts for ever.
        TimeSpan? left = token.ExpiresOn - DateTimeOffset.UtcNow;
        if (left < TimeSpan.FromMilliseconds(1))
        {
            Refuse(number, new InvalidOperationException($"{nameof(ClientOptions.OauthTokenProvider)} gave a token that expired at {token.ExpiresOn:O}."));
            return;
        }

        Volatile.Write(ref _failure, null);
        Answer(number, NativeMethods.PR_TOKEN_GIVEN, token.Value, (ulong)(left?.TotalMilliseconds ?? 0), Utf8.Pairs(token.Extensions));
    }

    private void Refuse(ulong number, Exception cause)
    {
        string text = $"{cause.GetType()}: {ExceptionText.Message(cause)}";
        text = text.Length > MaxTextChars ? text[..MaxTextChars] : text;
        // First: the answer may end a call that wants to know its cause.
        Volatile.Write(ref _failure, new TokenFailure(cause, text));
        Answer(number, cause is IPermanentError ? NativeMethods.PR_TOKEN_REFUSED : NativeMethods.PR_TOKEN_UNAVAILABLE, text, 0, []);
    }

    private unsafe void Answer(ulong number, int kind, string text, ulong lifetime, ReadOnlySpan<byte> extensions)
    {
        byte[] bytes = System.Text.Encoding.UTF8.GetBytes(text);
        fixed (byte* t = bytes, e = extensions)
        {
            PrToken answer;
            answer.size = (uint)sizeof(PrToken);
            answer.kind = kind;
            answer.lifetime_ms = lifetime;
            answer.text = new PrBytes { data = t, len = (uint)bytes.Length };
            answer.extensions = new PrBytes { data = e, len = (uint)extensions.Length };
            NativeMethods.pr_token(client, number, &answer);
        }
    }

#pragma warning disable CA1001 // A source without timer and wait handle holds nothing, and the callback may keep its token.
    private sealed class Question(TokenQuestions all, ulong number)
#pragma warning restore CA1001
    {
        private readonly CancellationTokenSource _cancellation = new();

        internal ulong Number => number;

        internal async Task RunAsync()
        {
            try
            {
                OauthToken? token = await all.Provide(_cancellation.Token).ConfigureAwait(false);
                all.Close();
                if (token is null)
                {
                    throw new InvalidOperationException($"{nameof(ClientOptions.OauthTokenProvider)} returned null instead of a token.");
                }

                all.Give(number, token);
            }
#pragma warning disable CA1031 // Whatever a callback throws is its answer.
            catch (Exception thrown)
#pragma warning restore CA1031
            {
                all.Close();
                all.Refuse(number, thrown);
            }
        }

        internal async Task CancelAsync()
        {
            try
            {
                await _cancellation.CancelAsync().ConfigureAwait(false);
            }
            catch (AggregateException thrown)
            {
                ClientLog.CancellationCallbackThrew(thrown);
            }
        }
    }

    private ValueTask<OauthToken> Provide(CancellationToken token) => provider(token);
}
