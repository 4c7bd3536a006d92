// Which exceptions are permanent: rows E1, E2, E4, E6 and E7.

using System.Text.Json;
using System.Text.Json.Serialization.Metadata;

namespace Prosody.Tests;

public sealed class ErrorTests
{
    private static Subscription Attributes(IProsodyHandler<int> handler) =>
        new Subscription<int>(handler, AttributeClassifier.Of<int>(handler.GetType()), JsonTypeInfo.CreateJsonTypeInfo<int>(JsonSerializerOptions.Default));

    private static Subscription Classifier(IPermanentErrorClassifier classifier) =>
        new Subscription<int>(new Plain(), classifier, JsonTypeInfo.CreateJsonTypeInfo<int>(JsonSerializerOptions.Default));

    [Fact]
    public void Everything_is_transient_unless_said_otherwise()
    {
        Subscription subscription = Attributes(new Plain());
        Assert.False(subscription.IsPermanent(new InvalidOperationException(), isTimer: false));
        Assert.False(subscription.IsPermanent(new OperationCanceledException(), isTimer: false));
        Assert.False(subscription.IsPermanent(new TransientStateException(), isTimer: true));
    }

    [Fact]
    public void E1_the_marker_wins_over_a_classifier()
    {
        Subscription subscription = Classifier(new Says(false));
        Assert.True(subscription.IsPermanent(new PermanentException(), isTimer: false));
        Assert.True(subscription.IsPermanent(new PermanentStateException(), isTimer: true));
        Assert.False(subscription.IsPermanent(new ArgumentException(), isTimer: true));
    }

    [Fact]
    public void E2_attributes_name_types_and_their_children_per_method()
    {
        Subscription subscription = Attributes(new Attributed());
        Assert.True(subscription.IsPermanent(new ArgumentNullException(), isTimer: false));
        Assert.False(subscription.IsPermanent(new ArgumentNullException(), isTimer: true));
        Assert.True(subscription.IsPermanent(new TimeoutException(), isTimer: true));
    }

    [Fact]
    public void E2_attributes_are_found_on_explicit_and_inherited_methods()
    {
        Assert.True(Attributes(new Explicit()).IsPermanent(new ArgumentException(), isTimer: false));
        Assert.True(Attributes(new Child2()).IsPermanent(new ArgumentException(), isTimer: false));
    }

    [Fact]
    public void E4_a_classifier_is_asked_per_kind_of_event()
    {
        Subscription subscription = Classifier(new Says(message: true, timer: false));
        Assert.True(subscription.IsPermanent(new InvalidOperationException(), isTimer: false));
        Assert.False(subscription.IsPermanent(new InvalidOperationException(), isTimer: true));
    }

    [Fact]
    public void E6_exceptions_are_judged_as_thrown()
    {
        Subscription subscription = Attributes(new Attributed());
        Assert.False(subscription.IsPermanent(new AggregateException(new ArgumentException()), isTimer: false));
        Assert.False(subscription.IsPermanent(new InvalidOperationException("outer", new ArgumentException()), isTimer: false));
        Assert.False(subscription.IsPermanent(new InvalidOperationException("outer", new PermanentException()), isTimer: false));
    }

    [Fact]
    public void E7_a_classifier_that_throws_decides_nothing() =>
        Assert.False(Classifier(new Throws()).IsPermanent(new ArgumentException(), isTimer: false));

    private class Plain : IProsodyHandler<int>
    {
        public virtual Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) => Task.CompletedTask;
    }

    private sealed class Attributed : IProsodyHandler<int>
    {
        [PermanentError(typeof(FormatException), typeof(ArgumentException))]
        public Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) => Task.CompletedTask;

        [PermanentError(typeof(TimeoutException))]
        public Task OnTimerAsync(ProsodyContext prosodyContext, ProsodyTimer timer, CancellationToken cancellationToken) => Task.CompletedTask;
    }

    private sealed class Explicit : IProsodyHandler<int>
    {
        [PermanentError(typeof(ArgumentException))]
        Task IProsodyHandler<int>.OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) => Task.CompletedTask;
    }

    private class Parent : Plain
    {
        [PermanentError(typeof(ArgumentException))]
        public override Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) => Task.CompletedTask;
    }

    private sealed class Child2 : Parent
    {
        public override Task OnMessageAsync(ProsodyContext prosodyContext, Message<int> message, CancellationToken cancellationToken) => Task.CompletedTask;
    }

    private sealed class Says(bool message, bool timer) : IPermanentErrorClassifier
    {
        internal Says(bool always)
            : this(always, always)
        {
        }

        public bool IsMessageErrorPermanent(Exception exception) => message;

        public bool IsTimerErrorPermanent(Exception exception) => timer;
    }

    private sealed class Throws : IPermanentErrorClassifier
    {
        public bool IsMessageErrorPermanent(Exception exception) => throw new NotSupportedException();

        public bool IsTimerErrorPermanent(Exception exception) => throw new NotSupportedException();
    }
}
