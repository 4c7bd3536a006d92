// How do texts cross the boundary? As strict UTF-8, through one pair of functions that count bytes.

using System.Buffers;
using System.Text;

namespace Prosody.Interop;

/// <summary>Texts in UTF-8, on the stack when short.</summary>
internal static unsafe class Utf8
{
    /// <summary>Most bytes that a caller should put on its stack.</summary>
    internal const int StackBytes = 256;

    // A lone surrogate has no UTF-8 form. Replacing it would send a different key than the caller named.
    private static readonly UTF8Encoding Strict = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    /// <summary>Writes <paramref name="text"/> to <paramref name="stack"/> or, when it does not fit, to a rented array.</summary>
    /// <exception cref="ArgumentException">The text contains a lone surrogate.</exception>
    internal static ReadOnlySpan<byte> Encode(string text, Span<byte> stack, ref byte[]? rented, string parameter)
    {
        int bound = text.Length * 3;
        Span<byte> place = stack;
        if (bound > stack.Length)
        {
            rented = ArrayPool<byte>.Shared.Rent(bound);
            place = rented;
        }

        try
        {
            return place[..Strict.GetBytes(text, place)];
        }
        catch (EncoderFallbackException)
        {
            throw new ArgumentException("The text contains a lone surrogate, which has no UTF-8 form.", parameter);
        }
    }

    /// <summary>Whether a text has a UTF-8 form; one with a lone surrogate has none.</summary>
    internal static bool HasForm(string text)
    {
        try
        {
            _ = Strict.GetByteCount(text);
            return true;
        }
        catch (EncoderFallbackException)
        {
            return false;
        }
    }

    /// <summary>Gives a rented array back.</summary>
    internal static void Return(byte[]? rented)
    {
        if (rented is not null)
        {
            ArrayPool<byte>.Shared.Return(rented);
        }
    }

    /// <summary>Reads a text of the native side.</summary>
    internal static string Decode(PrBytes bytes) =>
        bytes.len == 0 ? string.Empty : Encoding.UTF8.GetString(bytes.data, checked((int)bytes.len));

    /// <summary>Writes pairs of texts in the form of <c>pairs.rs</c>.</summary>
    internal static byte[] Pairs(IEnumerable<KeyValuePair<string, string>> pairs)
    {
        using var stream = new MemoryStream();
        Span<byte> length = stackalloc byte[4];
        foreach ((string name, string value) in pairs)
        {
            foreach (string text in (string[])[name, value])
            {
                byte[] bytes = Encoding.UTF8.GetBytes(text);
                System.Buffers.Binary.BinaryPrimitives.WriteInt32LittleEndian(length, bytes.Length);
                stream.Write(length);
                stream.Write(bytes);
            }
        }

        return stream.ToArray();
    }
}
