// The Meter: the same metrics and numbers as /metrics, read when somebody collects.

using System.Diagnostics.Metrics;
using System.Globalization;
using System.Net;
using System.Net.Sockets;
using Prosody.Interop;

namespace Prosody.Tests;

public sealed class MeterTests
{
    [Fact]
    public void Every_metric_of_the_table_has_its_instruments()
    {
        using var collector = new Collector();
        using (Mock.Builder().Build())
        {
            string[] expected = [.. NativeMetrics.Table().SelectMany(static metric =>
            {
                string name = ClientMetrics.InstrumentOf(metric.Name, metric.Unit).Name;
                return metric.Kind == MetricKind.Histogram ? [name + ".count", name + ".sum", name + ".bucket"] : (string[])[name];
            })];
            Assert.Contains("prosody.messages", expected);
            Assert.Equal(expected.Order(StringComparer.Ordinal), collector.Instruments.Select(static instrument => instrument.Name).Order(StringComparer.Ordinal));
        }

        Assert.All(collector.Instruments, static instrument => Assert.True(instrument.IsObservable && instrument.Description?.Length > 0, instrument.Name));
    }

    [Theory]
    [InlineData("prosody_messages_total", "messages", "prosody.messages", "{messages}")]
    [InlineData("prosody_handler_duration_seconds", "seconds", "prosody.handler_duration", "s")]
    [InlineData("prosody_broker_throttled_seconds_total", "seconds", "prosody.broker_throttled", "s")]
    [InlineData("prosody_broker_bytes_total", "bytes", "prosody.broker_bytes", "By")]
    [InlineData("prosody_permits", "permits", "prosody.permits", "{permits}")]
    public void Names_are_those_of_the_table_as_net_writes_them(string metric, string unit, string name, string code) =>
        Assert.Equal((name, code), ClientMetrics.InstrumentOf(metric, unit));

    [Fact]
    public async Task A_collection_says_what_metrics_says()
    {
        int port = FreePort();
        string group = $"metrics-{port}";
        await using ProsodyClient client = Mock.Builder(group: group).WithProbePort((ushort)port).Configure(static options =>
        {
            options.ProbeAddress = "127.0.0.1";
            options.MaxRetryDelay = TimeSpan.FromMilliseconds(20);
        }).Build();
        int attempts = 0;
        var handler = new Recorder<Payload>((_, message, _) => message.Key == "3" && attempts++ == 0 ? throw new InvalidOperationException("once") : Task.CompletedTask);
        await client.SubscribeAsync(handler).WithPatience();
        await Task.WhenAll(Enumerable.Range(0, 7).Select(n => client.SendAsync("topic", $"{n}", new Payload()))).WithPatience();
        await handler.TakeAsync(7);

        using var http = new HttpClient();
        using var collector = new Collector();
        await Mock.Until(() => collector.Collect(group).GetValueOrDefault("prosody.messages{outcome=ok}") == 7, "seven messages are counted");
        // What goes on by itself (fetches, commits) may move between the two looks.
        string[] quiet =
        [
            "prosody_messages_total", "prosody_attempts_failed_total", "prosody_retries_total", "prosody_permits", "prosody_partitions_assigned", "prosody_sent_total",
            "prosody_partition_lag", "prosody_handler_duration_seconds_count", "prosody_handler_duration_seconds_sum", "prosody_handler_duration_seconds_bucket", "prosody_skipped_total",
        ];
        Dictionary<string, double> collected = collector.Collect(group);
        Dictionary<string, double> scraped = Scraped(await http.GetStringAsync(new Uri($"http://127.0.0.1:{port}/metrics")), group);
        Assert.Equal(1, scraped["prosody_attempts_failed_total{class=transient}"]);
        foreach ((string name, double value) in scraped.Where(sample => quiet.Contains(sample.Key.Split('{')[0])))
        {
            Assert.Equal((name, value), (name, collected[InstrumentOf(name)]));
        }
    }

    [Fact]
    public async Task Each_client_has_its_samples_until_it_is_disposed()
    {
        string cluster = Mock.Cluster();
        (string one, string two) = (Guid.NewGuid().ToString("N"), Guid.NewGuid().ToString("N"));
        using var collector = new Collector();
        ProsodyClient first = Mock.Builder(cluster, one).Build();
        await using ProsodyClient second = Mock.Builder(cluster, two).WithMaxConcurrency(7).Build();
        await first.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Equal((1, 0), (collector.Collect(one)["prosody.sent{result=ok}"], collector.Collect(two)["prosody.sent{result=ok}"]));
        await first.DisposeAsync();
        Assert.Empty(collector.Collect(one));
        Assert.NotEmpty(collector.Collect(two));
    }

    [Fact]
    public async Task A_collection_is_of_one_moment_and_the_next_one_of_a_later()
    {
        string group = Guid.NewGuid().ToString("N");
        using var collector = new Collector();
        await using ProsodyClient client = Mock.Builder(group: group).Build();
        double before = collector.Collect(group)["prosody.sent{result=ok}"];
        await client.SendAsync("topic", "key", new Payload()).WithPatience();
        Assert.Equal((0, 1), (before, collector.Collect(group)["prosody.sent{result=ok}"]));
    }

    /// <summary>The series of one group in Prometheus text, without the labels every series has.</summary>
    private static Dictionary<string, double> Scraped(string text, string group)
    {
        var series = new Dictionary<string, double>();
        foreach (string line in text.Split('\n').Where(line => line.Contains($"group=\"{group}\"", StringComparison.Ordinal)))
        {
            int open = line.IndexOf('{', StringComparison.Ordinal);
            int close = line.LastIndexOf('}');
            string[] labels = line[(open + 1)..close].Replace("\"", "", StringComparison.Ordinal).Split(',');
            series[line[..open] + Labels(labels.Skip(2))] = double.Parse(line[(close + 2)..], CultureInfo.InvariantCulture);
        }

        return series;
    }

    private static string Labels(IEnumerable<string> labels)
    {
        string all = string.Join(',', labels);
        return all.Length == 0 ? string.Empty : $"{{{all}}}";
    }

    private static string InstrumentOf(string series)
    {
        string[] parts = series.Split('{');
        string part = new[] { "_bucket", "_sum", "_count" }.FirstOrDefault(part => parts[0].EndsWith("seconds" + part, StringComparison.Ordinal)) ?? string.Empty;
        string name = ClientMetrics.InstrumentOf(parts[0][..^part.Length], string.Empty).Name + part.Replace('_', '.');
        return parts.Length == 1 ? name : $"{name}{{{parts[1]}";
    }

    private static int FreePort()
    {
        using var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        return ((IPEndPoint)listener.LocalEndpoint).Port;
    }

    /// <summary>What an exporter is.</summary>
    private sealed class Collector : IDisposable
    {
        private readonly MeterListener _listener = new();
        private readonly Dictionary<string, double> _series = [];
        private string _group = string.Empty;

        internal Collector()
        {
            _listener.InstrumentPublished = (instrument, listener) =>
            {
                if (instrument.Meter.Name == "Prosody")
                {
                    Instruments.Add(instrument);
                    listener.EnableMeasurementEvents(instrument);
                }
            };
            _listener.SetMeasurementEventCallback<long>((instrument, value, tags, _) => Add(instrument, value, tags));
            _listener.SetMeasurementEventCallback<double>((instrument, value, tags, _) => Add(instrument, value, tags));
            _listener.Start();
        }

        internal List<Instrument> Instruments { get; } = [];

        public void Dispose() => _listener.Dispose();

        internal Dictionary<string, double> Collect(string group)
        {
            _series.Clear();
            _group = group;
            _listener.RecordObservableInstruments();
            return new(_series);
        }

        private void Add(Instrument instrument, double value, ReadOnlySpan<KeyValuePair<string, object?>> tags)
        {
            if (tags.Length >= 2 && tags[0] is { Key: "client", Value: long } && tags[1] is { Key: "group", Value: string of } && of == _group)
            {
                _series[instrument.Name + Labels(tags[2..].ToArray().Select(static tag => $"{tag.Key}={tag.Value}"))] = value;
            }
        }
    }
}
