// The boundary itself: what is exported, how it is laid out, what crosses it.

using System.Diagnostics;
using System.Reflection;
using System.Runtime.InteropServices;
using Prosody.Interop;

namespace Prosody.Tests;

public sealed class BoundaryTests
{
    private static readonly MethodInfo[] Externs = [.. Prosody.Interop.Diagnostics.Externs];

    private static string LibraryPath => Path.Combine(
        AppContext.BaseDirectory,
        OperatingSystem.IsWindows() ? "prosody_native.dll" : OperatingSystem.IsMacOS() ? "libprosody_native.dylib" : "libprosody_native.so");

    [Fact]
    public void Every_extern_is_exported()
    {
        nint library = NativeLibrary.Load(LibraryPath);
        Assert.NotEmpty(Externs);
        Assert.All(Externs, method => Assert.True(NativeLibrary.TryGetExport(library, method.Name, out _), method.Name));
    }

    [Fact]
    public void Every_export_has_an_extern_and_nothing_else_is_exported()
    {
        Assert.SkipUnless(OperatingSystem.IsLinux() && File.Exists("/usr/bin/nm"), "needs nm");
        using Process nm = Process.Start(new ProcessStartInfo("/usr/bin/nm", ["-D", "--defined-only", "--format=posix", LibraryPath]) { RedirectStandardOutput = true })!;
        string[] exports = [.. nm.StandardOutput.ReadToEnd().Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static line => line.Split(' ')[0])];
        Assert.Equal(Externs.Select(static method => method.Name).Order(StringComparer.Ordinal), exports.Order(StringComparer.Ordinal));
    }

    [Fact]
    public void Structs_are_laid_out_as_the_native_side_says() => Assert.Equal(Native.Layout(), Prosody.Interop.Diagnostics.NativeLayout());

    [Fact]
    public void Another_interface_version_is_refused_with_both_numbers()
    {
        Native.CheckVersion(NativeMethods.pr_abi_version());
        ProsodyException refused = Assert.Throws<ProsodyException>(static () => Native.CheckVersion(99));
        Assert.Contains("99", refused.Message, StringComparison.Ordinal);
        Assert.Contains($"needs {NativeMethods.PR_ABI_VERSION}", refused.Message, StringComparison.Ordinal);
    }

    // Confluent #33 and #264: a delegate that native code holds is collected. A pointer to a static method cannot be.
    [Fact]
    public void Only_blittable_values_cross_and_no_delegate()
    {
        foreach (MethodInfo method in Externs)
        {
            foreach (Type type in method.GetParameters().Select(static parameter => parameter.ParameterType).Append(method.ReturnType))
            {
                bool number = type.IsPrimitive && type != typeof(bool) && type != typeof(char);
                Assert.True(type.IsPointer || type.IsUnmanagedFunctionPointer || type == typeof(void) || type == typeof(PrBytes) || number, $"{method.Name}: {type}");
            }
        }
    }

    [Fact]
    public void Unknown_handles_and_null_pointers_are_refused_not_followed()
    {
        // Slot and generation that no client has: the first of all may be one of another test that runs now.
        foreach (ulong handle in (ulong[])[0, 1, ulong.MaxValue, 0xFFFF_FFFF_0000_0000])
        {
            foreach (MethodInfo export in Externs.Where(static export => export.Name is not ("pr_logs_take" or "pr_logs_configure" or "pr_debug_panic")))
            {
                object? status = Prosody.Interop.Diagnostics.CallWithNothing(export, handle);
                if (export.ReturnType == typeof(int) && export.GetParameters() is [{ ParameterType: var first }, ..] && first == typeof(ulong))
                {
                    Assert.Equal(NativeMethods.PR_CLOSED, status);
                }
            }
        }
    }

    [Fact]
    public void Malformed_option_bytes_are_an_error() =>
        Assert.Contains("pairs", Prosody.Interop.Diagnostics.NewClientError([255, 255, 255, 255, 1]), StringComparison.Ordinal);

    [Theory]
    [InlineData("", 0)]
    [InlineData("plain", 5)]
    [InlineData("nul\0inside", 10)]
    [InlineData("żółć — 漢字", 19)]
    [InlineData("\U0001F600", 4)]
    public void Texts_survive_the_boundary(string text, int bytes)
    {
        Assert.Equal(text, Prosody.Interop.Diagnostics.RoundTrip(text, out int length, out bool onHeap));
        Assert.Equal(bytes, length);
        Assert.False(onHeap);
    }

    [Fact]
    public void A_lone_surrogate_is_an_argument_error_not_a_replacement()
    {
        // Not as inline data: metadata has no lone surrogates either.
        foreach (string text in (string[])["\ud800", "a\udc00b"])
        {
            ArgumentException refused = Assert.Throws<ArgumentException>(() => Prosody.Interop.Diagnostics.RoundTrip(text, out _, out _));
            Assert.Contains("surrogate", refused.Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public void Long_texts_go_to_the_heap()
    {
        string text = new('é', 1 << 20);
        Assert.Equal(text, Prosody.Interop.Diagnostics.RoundTrip(text, out int length, out bool onHeap));
        Assert.Equal(2 << 20, length);
        Assert.True(onHeap);
    }

    [Fact]
    public void A_missing_library_says_what_was_looked_for()
    {
        // The resolver of this process has succeeded long ago; its text is checked in a child.
        Child ended = Child.Run("load", (Native.PathVariable, "/nowhere/libprosody_native.so"));
        Assert.Contains("/nowhere/libprosody_native.so", ended.Output, StringComparison.Ordinal);
    }
}
