// How does an admin client call the native side?

namespace Prosody.Interop;

/// <summary>The native side of one <see cref="AdminClient"/>.</summary>
internal sealed unsafe class NativeAdmin : NativePort
{
    private NativeAdmin(ulong handle)
        : base(handle, pumpCount: 1, nameof(AdminClient))
    {
    }

    internal static NativeAdmin Create(ReadOnlySpan<byte> options, ReadOnlySpan<byte> environment)
    {
        Native.EnsureLoaded();
        ulong handle = 0;
        PrError* error = null;
        int status;
        fixed (byte* optionBytes = options, environmentBytes = environment)
        {
            var optionView = new PrBytes { data = optionBytes, len = (uint)options.Length };
            var environmentView = new PrBytes { data = environmentBytes, len = (uint)environment.Length };
            status = NativeMethods.pr_admin_new(optionView, environmentView, &handle, &error);
        }

        if (status == NativeMethods.PR_OK)
        {
            return new NativeAdmin(handle);
        }

        if (Failures.Problems(error) is { } problems)
        {
            NativeMethods.pr_error_free(error);
            throw new ArgumentException(string.Join(Environment.NewLine, problems));
        }

        throw Failures.From(0, status, error, nameof(AdminClient));
    }

    internal Task CreateTopicAsync(string name, ushort partitions, ushort replication)
    {
        byte[]? rented = null;
        try
        {
            ReadOnlySpan<byte> bytes = Utf8.Encode(name, stackalloc byte[Utf8.StackBytes], ref rented, nameof(name));
            fixed (byte* text = bytes)
            {
                Operation operation = Begin(topic: name);
                var result = new PrResult { size = (uint)sizeof(PrResult) };
                var view = new PrBytes { data = text, len = (uint)bytes.Length };
                int status = NativeMethods.pr_create_topic(Handle, operation.Id, view, partitions, replication, &result);
                return Answer(operation, status, result.error);
            }
        }
        finally
        {
            Utf8.Return(rented);
        }
    }

    internal Task DeleteTopicAsync(string name)
    {
        byte[]? rented = null;
        try
        {
            ReadOnlySpan<byte> bytes = Utf8.Encode(name, stackalloc byte[Utf8.StackBytes], ref rented, nameof(name));
            fixed (byte* text = bytes)
            {
                Operation operation = Begin(topic: name);
                var result = new PrResult { size = (uint)sizeof(PrResult) };
                var view = new PrBytes { data = text, len = (uint)bytes.Length };
                int status = NativeMethods.pr_delete_topic(Handle, operation.Id, view, &result);
                return Answer(operation, status, result.error);
            }
        }
        finally
        {
            Utf8.Return(rented);
        }
    }
}
