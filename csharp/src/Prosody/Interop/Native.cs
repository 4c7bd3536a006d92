// Is the native library there, and is it the one this assembly was built for?

using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

[assembly: DisableRuntimeMarshalling]

namespace Prosody.Interop;

/// <summary>Finds and checks the native library, once per process, before its first call.</summary>
internal static unsafe class Native
{
    /// <summary>Where to look instead: the path of the library's file.</summary>
    internal const string PathVariable = "PROSODY_NATIVE_LIBRARY_PATH";

    private const string LibraryName = "prosody_native";
    private static readonly object Gate = new();
    private static bool _checked;
    private static string? _foundAt;

    /// <summary>Loads and checks the library.</summary>
    /// <exception cref="DllNotFoundException">It is not there; the message says what was looked for and where.</exception>
    /// <exception cref="ProsodyException">It is another version.</exception>
    internal static void EnsureLoaded()
    {
        if (Volatile.Read(ref _checked))
        {
            return;
        }

        lock (Gate)
        {
            if (!_checked)
            {
                NativeLibrary.SetDllImportResolver(typeof(Native).Assembly, Resolve);
                CheckVersion(NativeMethods.pr_abi_version());
                CheckLayout();
                Volatile.Write(ref _checked, true);
            }
        }
    }

    /// <summary>Compares the interface versions of both sides.</summary>
    internal static void CheckVersion(uint version)
    {
        if (version != NativeMethods.PR_ABI_VERSION)
        {
            throw new ProsodyException(
                $"The native library has interface version {version}, this package needs {NativeMethods.PR_ABI_VERSION}; found at {_foundAt ?? "the default place"}.");
        }
    }

    /// <summary>Sizes and offsets of this side, in the order of the native <c>layout</c>.</summary>
    internal static uint[] Layout()
    {
        PrEvent e;
        PrError r;
        PrSend s;
        PrToken k;
        PrClientInfo i;
        PrSnapshot n;
        PrCounters c;
        PrResult t;
        PrBytes b;
        PrTrace a;
        PrScope o;
        return
        [
            (uint)sizeof(PrBytes), Offset(&b, &b.len),
            (uint)sizeof(PrEvent), Offset(&e, &e.token), Offset(&e, &e.error), Offset(&e, &e.key), Offset(&e, &e.payload), Offset(&e, &e.spare), Offset(&e, &e.scope),
            (uint)sizeof(PrTrace), Offset(&a, a.span_id), Offset(&a, &a.flags), Offset(&a, &a.baggage),
            (uint)sizeof(PrScope), Offset(&o, &o.origin),
            (uint)sizeof(PrError), Offset(&r, &r.message),
            (uint)sizeof(PrResult), Offset(&t, &t.error),
            (uint)sizeof(PrSend), Offset(&s, &s.payload), Offset(&s, &s.trace),
            (uint)sizeof(PrToken), Offset(&k, &k.extensions),
            (uint)sizeof(PrClientInfo), Offset(&i, &i.source_system),
            (uint)sizeof(PrSnapshot), Offset(&n, &n.stalled),
            (uint)sizeof(PrCounters), Offset(&c, &c.errors),
        ];

        static uint Offset(void* start, void* field) => (uint)((byte*)field - (byte*)start);
    }

    private static void CheckLayout()
    {
        uint[] ours = Layout();
        Span<uint> theirs = stackalloc uint[64];
        uint count;
        fixed (uint* numbers = theirs)
        {
            count = NativeMethods.pr_layout(numbers, (uint)theirs.Length);
        }

        if (count > theirs.Length || !theirs[..(int)count].SequenceEqual(ours))
        {
            throw new ProsodyException("The native library's structs differ from this package's: the two come from different builds.");
        }
    }

    private static nint Resolve(string name, Assembly assembly, DllImportSearchPath? searchPath)
    {
        if (name != LibraryName)
        {
            return 0;
        }

        string? explicitPath = Environment.GetEnvironmentVariable(PathVariable);
        if (!string.IsNullOrWhiteSpace(explicitPath))
        {
            _foundAt = explicitPath;
            return NativeLibrary.Load(explicitPath);
        }

        if (NativeLibrary.TryLoad(name, assembly, searchPath, out nint handle))
        {
            return handle;
        }

        // A single-file program keeps its natives beside itself.
        string file = FileName();
        string beside = Path.Combine(AppContext.BaseDirectory, file);
        string packaged = Path.Combine(AppContext.BaseDirectory, "runtimes", Rid(), "native", file);
        foreach (string path in (string[])[beside, packaged])
        {
            if (NativeLibrary.TryLoad(path, out handle))
            {
                _foundAt = path;
                return handle;
            }
        }

        throw new DllNotFoundException(
            $"Prosody's native library {file} for {Rid()} was not found or does not load. Looked beside the program ({beside}), in {packaged}, and where .NET looks by default. " +
            $"Reference the package ProsodyEvents.Prosody from the program itself, publish with -r {Rid()}, or set {PathVariable} to the file.");
    }

    private static string FileName() =>
        OperatingSystem.IsWindows() ? "prosody_native.dll" : OperatingSystem.IsMacOS() ? "libprosody_native.dylib" : "libprosody_native.so";

    /// <summary>The portable name of this platform; musl is a platform of its own.</summary>
    private static string Rid()
    {
        string system = OperatingSystem.IsWindows() ? "win" : OperatingSystem.IsMacOS() ? "osx" : "linux";
        string libc = RuntimeInformation.RuntimeIdentifier.Contains("musl", StringComparison.Ordinal) ? "-musl" : string.Empty;
        string cpu = RuntimeInformation.ProcessArchitecture switch
        {
            Architecture.X64 => "x64",
            Architecture.Arm64 => "arm64",
            Architecture.X86 => "x86",
            Architecture other => other.ToString(),
        };
        return $"{system}{libc}-{cpu}";
    }
}
