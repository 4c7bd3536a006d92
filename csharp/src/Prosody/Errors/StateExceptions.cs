namespace Prosody;

/// <summary>Whether a retry can resolve a state error.</summary>
public enum StateErrorCategory
{
    /// <summary>A retry cannot.</summary>
    Permanent,

    /// <summary>A retry may.</summary>
    Transient,
}

/// <summary>A call of keyed state or of a timer failed.</summary>
public abstract class StateException : Exception
{
    private protected StateException()
    {
    }

    private protected StateException(string message)
        : base(message)
    {
    }

    private protected StateException(string message, Exception? innerException)
        : base(message, innerException)
    {
    }

    /// <summary>Whether a retry can resolve the error.</summary>
    public abstract StateErrorCategory Category { get; }
}

/// <summary>A temporary failure of the store, or a mistake of the caller.</summary>
public class TransientStateException : StateException
{
    /// <summary>Makes the exception with a default text.</summary>
    public TransientStateException()
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    public TransientStateException(string message)
        : base(message)
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    /// <param name="innerException">What caused it.</param>
    public TransientStateException(string message, Exception? innerException)
        : base(message, innerException)
    {
    }

    /// <inheritdoc/>
    public sealed override StateErrorCategory Category => StateErrorCategory.Transient;
}

/// <summary>A value was null or has no representation. To delete, clear or remove.</summary>
public class NullValueException : TransientStateException
{
    /// <summary>Makes the exception with a default text.</summary>
    public NullValueException()
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    public NullValueException(string message)
        : base(message)
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    /// <param name="innerException">What caused it.</param>
    public NullValueException(string message, Exception? innerException)
        : base(message, innerException)
    {
    }
}

/// <summary>A failure that a retry in this process cannot resolve.</summary>
public class PermanentStateException : StateException, IPermanentError
{
    /// <summary>Makes the exception with a default text.</summary>
    public PermanentStateException()
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    public PermanentStateException(string message)
        : base(message)
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    /// <param name="innerException">What caused it.</param>
    public PermanentStateException(string message, Exception? innerException)
        : base(message, innerException)
    {
    }

    /// <inheritdoc/>
    public sealed override StateErrorCategory Category => StateErrorCategory.Permanent;
}
