// Who frees a native object nobody disposed of?

using System.Runtime.InteropServices;

namespace Prosody.Interop;

/// <summary>
/// Owns the final release of one native object. Calls do not go through it: they pass the 64-bit number, which the
/// native side checks, so a late call finds a closed object and never freed memory.
/// </summary>
internal sealed class NativeHandle : SafeHandle
{
    private readonly ulong _value;

    internal NativeHandle(ulong value)
        : base(0, ownsHandle: true)
    {
        _value = value;
        SetHandle(1);
    }

    /// <inheritdoc/>
    public override bool IsInvalid => handle == 0;

    /// <summary>Signals the close and never waits, because it may run on the finalizer thread.</summary>
    /// <returns>Whether the object was still there.</returns>
    protected override bool ReleaseHandle() => NativeMethods.pr_free(_value) == NativeMethods.PR_OK;
}
