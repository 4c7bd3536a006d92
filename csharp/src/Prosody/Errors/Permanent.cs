namespace Prosody;

/// <summary>Marks exceptions that a retry cannot resolve. Takes precedence over every other classification.</summary>
#pragma warning disable CA1040 // A marker is what the name says.
public interface IPermanentError;
#pragma warning restore CA1040

/// <summary>An error that a retry cannot resolve, to be thrown by handlers.</summary>
public class PermanentException : Exception, IPermanentError
{
    /// <summary>Makes the exception with a default text.</summary>
    public PermanentException()
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    public PermanentException(string message)
        : base(message)
    {
    }

    /// <summary>Makes the exception.</summary>
    /// <param name="message">What went wrong.</param>
    /// <param name="innerException">What caused it.</param>
    public PermanentException(string message, Exception innerException)
        : base(message, innerException)
    {
    }
}

/// <summary>Names the exceptions of a handler method that a retry cannot resolve; derived types are included.</summary>
[AttributeUsage(AttributeTargets.Method, Inherited = true, AllowMultiple = false)]
public sealed class PermanentErrorAttribute : Attribute
{
    /// <summary>Names the exception types.</summary>
    /// <param name="exceptionTypes">At least one exception type.</param>
    /// <exception cref="ArgumentNullException">The list or one of its entries is null.</exception>
    /// <exception cref="ArgumentException">The list is empty, or a type is no exception.</exception>
    public PermanentErrorAttribute(params Type[] exceptionTypes)
    {
        ArgumentNullException.ThrowIfNull(exceptionTypes);
        if (exceptionTypes.Length == 0)
        {
            throw new ArgumentException("Name at least one exception type.", nameof(exceptionTypes));
        }

        foreach (Type type in exceptionTypes)
        {
            ArgumentNullException.ThrowIfNull(type, nameof(exceptionTypes));
            if (!typeof(Exception).IsAssignableFrom(type))
            {
                throw new ArgumentException($"{type} is not an exception type.", nameof(exceptionTypes));
            }
        }

        ExceptionTypes = [.. exceptionTypes];
    }

    /// <summary>The exception types.</summary>
    public IReadOnlyList<Type> ExceptionTypes { get; }
}

/// <summary>Decides in code which exceptions a retry cannot resolve. Asked after <see cref="IPermanentError"/>, with the exception as thrown.</summary>
public interface IPermanentErrorClassifier
{
    /// <summary>Whether a retry of a message cannot help.</summary>
    /// <param name="exception">What the handler threw, or the deserialization of its payload.</param>
    /// <returns>True for a permanent error.</returns>
    bool IsMessageErrorPermanent(Exception exception);

    /// <summary>Whether a retry of a timer cannot help.</summary>
    /// <param name="exception">What the handler threw.</param>
    /// <returns>True for a permanent error.</returns>
    bool IsTimerErrorPermanent(Exception exception);
}
