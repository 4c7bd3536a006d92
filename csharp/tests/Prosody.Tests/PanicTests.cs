// Temporal #856, confluent #661: a failure of native code ends the process. Ours becomes an exception, at every export.

using System.Reflection;
using Prosody.Interop;

namespace Prosody.Tests;

/// <summary>Panics are ordered for a handle; those without one belong to the process, so nothing runs beside these tests.</summary>
[CollectionDefinition(nameof(PanicTests), DisableParallelization = true)]
public sealed class Alone;

[Collection(nameof(PanicTests))]
public sealed class PanicTests
{
    public static TheoryData<string> Exports() =>
        [.. Diagnostics.Externs.Select(static export => export.Name).Where(static name => name is not ("pr_debug_panic" or "pr_logs_take"))];

    [Theory]
    [MemberData(nameof(Exports))]
    public void A_panic_in_any_export_is_a_status(string name)
    {
        NativeClient native = NativeClient.Create(
            Utf8.Pairs([new("Mock", "true"), new("BootstrapServers", Mock.Cluster()), new("GroupId", "g")]), [], null, [])!;
        MethodInfo export = Diagnostics.Externs.Single(export => export.Name == name);
        bool hasHandle = export.GetParameters() is [{ ParameterType: var first }, ..] && first == typeof(ulong);
        ulong handle = hasHandle ? native.Handle : 0;
        Diagnostics.OrderPanic(handle, name);
        object? result = Diagnostics.CallWithNothing(export, handle);
        if (export.ReturnType == typeof(int))
        {
            Assert.Equal(NativeMethods.PR_FAULTED, result);
        }

        Assert.Equal($"panic in {name}: ordered by a test", Failures.FaultText(handle));
        new NativeHandle(native.Handle).Dispose();
    }

    [Fact]
    public async Task After_a_panic_the_client_fails_every_call_with_its_text_and_others_go_on()
    {
        string cluster = Mock.Cluster();
        await using ProsodyClient client = Mock.Builder(cluster).Build();
        await using ProsodyClient other = Mock.Builder(cluster).Build();
        Diagnostics.OrderPanic(client.Native.Handle, "pr_send");
        ProsodyException first = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.Contains("ordered by a test", first.Message, StringComparison.Ordinal);
        ProsodyException later = await Assert.ThrowsAsync<ProsodyException>(() => client.SendAsync("topic", "key", new Payload()).WithPatience());
        Assert.Contains("ordered by a test", later.Message, StringComparison.Ordinal);
        await other.SendAsync("topic", "key", new Payload()).WithPatience();
    }

    [Fact]
    public async Task A_panic_inside_the_wait_does_not_end_the_pumps()
    {
        await using ProsodyClient client = Mock.Builder().Build();
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Diagnostics.OrderPanic(client.Native.Handle, "pr_wait");
        // The next wait panics after an event has woken the last one.
        try
        {
            await client.SendAsync("topic", "key", new Payload()).WithPatience();
        }
        catch (ProsodyException)
        {
        }

        await Assert.ThrowsAsync<ProsodyException>(async () =>
        {
            for (int i = 0; i < 50; i++)
            {
                await client.SendAsync("topic", "key", new Payload()).WithPatience();
            }
        });
    }
}
