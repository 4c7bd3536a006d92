namespace Prosody;

/// <summary>A call of a client or an admin client failed. The text says what was being done, to what, and what came back.</summary>
public class ProsodyException : Exception
{
    /// <summary>Makes the exception with a default text.</summary>
    public ProsodyException()
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    public ProsodyException(string message)
        : base(message)
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    /// <param name="innerException">What caused it.</param>
    public ProsodyException(string message, Exception? innerException)
        : base(message, innerException)
    {
    }

    /// <summary>Kafka's name of the error, for example <c>TOPIC_ALREADY_EXISTS</c>; null when the failure is not a broker's answer.</summary>
    public string? Code { get; init; }

    /// <summary>Whether the same call may succeed later.</summary>
    public bool IsTransient { get; init; }

    /// <summary>For a send: whether the record may be in the log all the same. False means that it certainly is not.</summary>
    public bool MayHaveBeenWritten { get; init; }

    /// <summary>The topic of the call, where it has one.</summary>
    public string? Topic { get; init; }
}
