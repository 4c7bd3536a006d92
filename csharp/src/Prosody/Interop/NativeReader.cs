// How are bytes of the native side read? Numbers are little-endian, a text is a 32-bit length and UTF-8.

using System.Buffers.Binary;
using System.Text;

namespace Prosody.Interop;

/// <summary>Reads from the front of what is left.</summary>
internal ref struct NativeReader(ReadOnlySpan<byte> bytes)
{
    private ReadOnlySpan<byte> _bytes = bytes;

    internal readonly bool IsAtEnd => _bytes.IsEmpty;

    internal int Count() => BinaryPrimitives.ReadInt32LittleEndian(Take(4));

    internal long Number() => BinaryPrimitives.ReadInt64LittleEndian(Take(8));

    internal double Float() => BinaryPrimitives.ReadDoubleLittleEndian(Take(8));

    internal string Text() => Encoding.UTF8.GetString(Take(Count()));

    /// <summary>The next bytes, as they are.</summary>
    internal ReadOnlySpan<byte> Take(int count)
    {
        ReadOnlySpan<byte> taken = _bytes[..count];
        _bytes = _bytes[count..];
        return taken;
    }
}
