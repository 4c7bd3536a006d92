// How does a mock cluster with a clock of its own call the native side?

namespace Prosody.Interop;

/// <summary>The native side of one virtual cluster.</summary>
internal sealed unsafe class NativeCluster : NativePort
{
    private const string Owner = "VirtualCluster";

    private NativeCluster(ulong handle)
        : base(handle, pumpCount: 1, Owner)
    {
    }

    internal static NativeCluster Open(string name)
    {
        Native.EnsureLoaded();
        byte[]? rented = null;
        try
        {
            ReadOnlySpan<byte> bytes = Utf8.Encode(name, stackalloc byte[Utf8.StackBytes], ref rented, nameof(name));
            fixed (byte* text = bytes)
            {
                ulong handle = 0;
                PrError* error = null;
                var view = new PrBytes { data = text, len = (uint)bytes.Length };
                int status = NativeMethods.pr_cluster_new(view, &handle, &error);
                return status == NativeMethods.PR_OK ? new NativeCluster(handle) : throw Failures.From(0, status, error, Owner);
            }
        }
        finally
        {
            Utf8.Return(rented);
        }
    }

    internal Task AdvanceAsync(TimeSpan by)
    {
        Operation operation = Begin();
        var result = new PrResult { size = (uint)sizeof(PrResult) };
        int status = NativeMethods.pr_cluster_advance(Handle, operation.Id, (ulong)by.TotalMilliseconds, &result);
        return Answer(operation, status, result.error);
    }

    internal DateTimeOffset Now()
    {
        var result = new PrResult { size = (uint)sizeof(PrResult) };
        int status = NativeMethods.pr_cluster_now(Handle, &result);
        return status == NativeMethods.PR_OK
            ? DateTimeOffset.FromUnixTimeMilliseconds((long)result.value)
            : throw Failures.From(Handle, status, result.error, Owner);
    }
}
