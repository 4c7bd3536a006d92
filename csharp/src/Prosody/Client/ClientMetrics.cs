// Which metrics does .NET see? Those of the native table, under the same names in the form of .NET. Nothing happens
// until somebody collects: there are only observable instruments.

using System.Diagnostics.Metrics;
using System.Globalization;
using System.Reflection;
using Prosody.Interop;

namespace Prosody;

/// <summary>The meter of this process, over all its clients.</summary>
internal sealed class ClientMetrics
{
    internal const string MeterName = "Prosody";

    /// <summary>A collection that takes longer may see two moments.</summary>
    private const long OneMomentMilliseconds = 1_000;

    private static readonly Lazy<ClientMetrics> OfProcess = new(static () => new());

    private readonly object _gate = new();
    private readonly MetricSpec[] _table = NativeMetrics.Table();
    private readonly HashSet<string> _told = new(StringComparer.Ordinal);
    private List<MetricSample>[] _samples = [];
    private long _readAt;

    private ClientMetrics()
    {
        string? version = typeof(ClientMetrics).Assembly.GetCustomAttribute<AssemblyInformationalVersionAttribute>()?.InformationalVersion;
#pragma warning disable CA2000 // Lives as long as the process.
        var meter = new Meter(MeterName, version);
#pragma warning restore CA2000
        for (int metric = 0; metric < _table.Length; metric++)
        {
            Create(meter, metric, _table[metric]);
        }
    }

    /// <summary>Makes the instruments, unless they are there.</summary>
    internal static void Publish() => _ = OfProcess.Value;

    /// <summary><c>prosody_handler_duration_seconds</c> is <c>prosody.handler_duration</c> with the unit <c>s</c>.</summary>
    internal static (string Name, string Unit) InstrumentOf(string name, string unit)
    {
        string plain = name["prosody_".Length..];
        foreach (string ending in (string[])["_total", "_seconds"])
        {
            plain = plain.EndsWith(ending, StringComparison.Ordinal) ? plain[..^ending.Length] : plain;
        }

        return ("prosody." + plain, unit switch { "seconds" => "s", "bytes" => "By", _ => $"{{{unit}}}" });
    }

    private void Create(Meter meter, int metric, MetricSpec spec)
    {
        (string name, string unit) = InstrumentOf(spec.Name, spec.Unit);
        bool fractions = spec.Unit == "seconds";
        switch (spec.Kind)
        {
            case MetricKind.Counter when fractions:
                meter.CreateObservableCounter(name, () => Values(name, metric), unit, spec.Help);
                break;
            case MetricKind.Counter:
                meter.CreateObservableCounter(name, () => Whole(name, metric), unit, spec.Help);
                break;
            case MetricKind.Gauge when fractions:
                meter.CreateObservableGauge(name, () => Values(name, metric), unit, spec.Help);
                break;
            case MetricKind.Gauge:
                meter.CreateObservableGauge(name, () => Whole(name, metric), unit, spec.Help);
                break;
            case MetricKind.Histogram:
            default:
                // .NET has no histogram that is observed, so its parts are counters, as in Prometheus text.
                (string count, string sum, string bucket) = (name + ".count", name + ".sum", name + ".bucket");
                meter.CreateObservableCounter(count, () => Samples(count, metric).Select(static sample => new Measurement<long>(sample.Count, sample.Tags)), null, spec.Help);
                meter.CreateObservableCounter(sum, () => Values(sum, metric), unit, spec.Help);
                meter.CreateObservableCounter(bucket, () => Samples(bucket, metric).SelectMany(Buckets), null, spec.Help);
                break;
        }
    }

    private IEnumerable<Measurement<long>> Whole(string instrument, int metric) =>
        Samples(instrument, metric).Select(static sample => new Measurement<long>((long)sample.Value, sample.Tags));

    private IEnumerable<Measurement<double>> Values(string instrument, int metric) =>
        Samples(instrument, metric).Select(static sample => new Measurement<double>(sample.Value, sample.Tags));

    private static IEnumerable<Measurement<long>> Buckets(MetricSample sample) =>
        sample.Buckets!
            .Select(bucket => (Within: bucket.Within, Bound: bucket.Bound.ToString(CultureInfo.InvariantCulture)))
            .Append((Within: sample.Count, Bound: "+Inf"))
            .Select(bucket => new Measurement<long>(bucket.Within, [.. sample.Tags, new("le", bucket.Bound)]));

    /// <summary>
    /// A collection asks each instrument once, and all its answers are of one moment. Whoever asks an instrument a second
    /// time begins the next collection.
    /// </summary>
    private List<MetricSample> Samples(string instrument, int metric)
    {
        lock (_gate)
        {
            long now = Environment.TickCount64;
            if (_samples.Length == 0 || now - _readAt > OneMomentMilliseconds || _told.Contains(instrument))
            {
                _told.Clear();
                _samples = NativeMetrics.Read(_table);
                _readAt = now;
            }

            _told.Add(instrument);
            return _samples[metric];
        }
    }
}
