// After all other tests: nothing of the native side is left.

using Prosody.Interop;
using Xunit.Sdk;
using Xunit.v3;

namespace Prosody.Tests;

[CollectionDefinition(Name, DisableParallelization = true)]
public sealed class LeaksLast : ITestCollectionOrderer
{
    internal const string Name = "leaks, last";

    public IReadOnlyCollection<TTestCollection> OrderTestCollections<TTestCollection>(IReadOnlyCollection<TTestCollection> testCollections)
        where TTestCollection : ITestCollection => [.. testCollections.OrderBy(static collection => collection.TestCollectionDisplayName == Name)];
}

[Collection(LeaksLast.Name)]
public sealed class LeakTests
{
    // Confluent #201, YAHA #134: handles, operations, events and errors that nobody frees.
    [Fact]
    public async Task No_handle_event_operation_or_error_is_left()
    {
        PrCounters left = default;
        try
        {
            await Mock.Until(
                () =>
                {
                    // Clients that tests left to the collector go with it.
                    GC.Collect();
                    GC.WaitForPendingFinalizers();
                    left = Diagnostics.Counters();
                    return left is { handles: 0, events: 0, operations: 0, errors: 0 };
                },
                "everything is freed");
        }
        catch (Exception)
        {
            Assert.Fail($"left: {left.handles} handles, {left.events} events, {left.operations} operations, {left.errors} errors");
        }
    }
}
