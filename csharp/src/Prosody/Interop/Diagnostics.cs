// What do tests ask of the boundary? Everything that needs pointers, in one place.

using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;

namespace Prosody.Interop;

/// <summary>Safe views of the boundary for tests.</summary>
internal static unsafe class Diagnostics
{
    /// <summary>Every extern of the assembly.</summary>
    internal static IEnumerable<MethodInfo> Externs =>
        typeof(NativeMethods).GetMethods(BindingFlags.Static | BindingFlags.NonPublic | BindingFlags.Public | BindingFlags.DeclaredOnly)
            .Where(static method => method.GetCustomAttribute<DllImportAttribute>() is not null);

    /// <summary>Live objects of the native side.</summary>
    internal static PrCounters Counters()
    {
        Native.EnsureLoaded();
        PrCounters counters;
        counters.size = (uint)sizeof(PrCounters);
        NativeMethods.pr_counters(&counters);
        return counters;
    }

    /// <summary>Sizes and offsets as the native side has them.</summary>
    internal static uint[] NativeLayout()
    {
        uint[] numbers = new uint[64];
        fixed (uint* place = numbers)
        {
            uint count = NativeMethods.pr_layout(place, (uint)numbers.Length);
            return numbers[..(int)count];
        }
    }

    /// <summary>The core's table of options: names and variables.</summary>
    internal static Dictionary<string, string> Options()
    {
        Native.EnsureLoaded();
        byte[] buffer = new byte[64 * 1024];
        fixed (byte* place = buffer)
        {
            uint length = NativeMethods.pr_options(place, (uint)buffer.Length);
            return Encoding.UTF8.GetString(buffer, 0, (int)length).Split('\n', StringSplitOptions.RemoveEmptyEntries)
                .Select(static line => line.Split('\t')).ToDictionary(static parts => parts[0], static parts => parts[1]);
        }
    }

    /// <summary>Lets the next call of an export on a handle panic.</summary>
    internal static void OrderPanic(ulong handle, string export)
    {
        byte[] name = Encoding.UTF8.GetBytes(export);
        fixed (byte* bytes = name)
        {
            NativeMethods.pr_debug_panic(handle, new PrBytes { data = bytes, len = (uint)name.Length });
        }
    }

    /// <summary>Calls an export with the given handle where it takes one, and zeros and null pointers otherwise.</summary>
    internal static object? CallWithNothing(MethodInfo export, ulong handle) => export.Invoke(null, [.. export.GetParameters().Select(parameter => Nothing(parameter, handle))]);

    private static object? Nothing(ParameterInfo parameter, ulong handle)
    {
        Type type = parameter.ParameterType;
        return type == typeof(ulong) ? parameter.Position == 0 ? handle : 0UL
            : type.IsPointer ? Pointer.Box(null, type)
            : type.IsUnmanagedFunctionPointer ? nint.Zero
            : type == typeof(int) ? 0
            : type == typeof(uint) ? 0u
            : type == typeof(long) ? 0L
            : type == typeof(PrBytes) ? default(PrBytes)
            : throw new NotSupportedException($"{type}");
    }

    /// <summary>Makes a client of raw bytes; the error's text when that fails.</summary>
    internal static string? NewClientError(ReadOnlySpan<byte> options)
    {
        Native.EnsureLoaded();
        ulong handle = 0;
        PrError* error = null;
        fixed (byte* bytes = options)
        {
            var view = new PrBytes { data = bytes, len = (uint)options.Length };
            if (NativeMethods.pr_client_new(view, default, 0, &handle, &error) == NativeMethods.PR_OK)
            {
                NativeMethods.pr_free(handle);
                return null;
            }
        }

        string text = Utf8.Decode(error->message);
        NativeMethods.pr_error_free(error);
        return text;
    }

    /// <summary>A text written to bytes and read back.</summary>
    internal static string RoundTrip(string text, out int length, out bool onHeap)
    {
        byte[]? rented = null;
        try
        {
            ReadOnlySpan<byte> bytes = Utf8.Encode(text, stackalloc byte[Utf8.StackBytes], ref rented, nameof(text));
            length = bytes.Length;
            onHeap = rented is not null;
            fixed (byte* data = bytes)
            {
                return Utf8.Decode(new PrBytes { data = data, len = (uint)bytes.Length });
            }
        }
        finally
        {
            Utf8.Return(rented);
        }
    }
}
