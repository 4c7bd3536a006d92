// What does an exception say? Its texts are user code, which may throw.

namespace Prosody;

/// <summary>Texts of exceptions that users made.</summary>
internal static class ExceptionText
{
    /// <summary>Its type, message and stack.</summary>
    internal static string All(Exception thrown) => Read(thrown, static thrown => thrown.ToString());

    /// <summary>Its message.</summary>
    internal static string Message(Exception thrown) => Read(thrown, static thrown => thrown.Message);

    private static string Read(Exception thrown, Func<Exception, string?> read)
    {
        try
        {
            return read(thrown) ?? thrown.GetType().ToString();
        }
#pragma warning disable CA1031 // Whoever asks is busy with the exception itself, and must come to an end.
        catch (Exception)
#pragma warning restore CA1031
        {
            return thrown.GetType().ToString();
        }
    }
}
