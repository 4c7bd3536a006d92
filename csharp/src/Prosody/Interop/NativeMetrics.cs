// What do the metrics of all clients say? metrics.rs has the form of the bytes.

namespace Prosody.Interop;

/// <summary>One metric of the native table.</summary>
internal sealed record MetricSpec(MetricKind Kind, string Name, string Unit, string Help, string[] Labels);

/// <summary>How a metric behaves, in the numbers of the native side.</summary>
internal enum MetricKind
{
    Counter,
    Gauge,
    Histogram,
}

/// <summary>One value. Of a histogram it is the sum, and there are buckets: upper bounds and how many were within each.</summary>
internal sealed record MetricSample(KeyValuePair<string, object?>[] Tags, double Value, long Count = 0, (double Bound, long Within)[]? Buckets = null);

/// <summary>The metrics of the native side.</summary>
internal static unsafe class NativeMetrics
{
    internal static MetricSpec[] Table()
    {
        Native.EnsureLoaded();
        var reader = new NativeReader(Bytes(&NativeMethods.pr_metrics_table));
        var table = new MetricSpec[reader.Count()];
        for (int metric = 0; metric < table.Length; metric++)
        {
            var kind = (MetricKind)reader.Count();
            (string name, string unit, string help) = (reader.Text(), reader.Text(), reader.Text());
            string[] labels = new string[reader.Count()];
            for (int label = 0; label < labels.Length; label++)
            {
                labels[label] = reader.Text();
            }

            table[metric] = new(kind, name, unit, help, labels);
        }

        return table;
    }

    /// <summary>The samples of every metric of the table, of all clients.</summary>
    internal static List<MetricSample>[] Read(MetricSpec[] table)
    {
        List<MetricSample>[] samples = [.. table.Select(static _ => new List<MetricSample>())];
        var reader = new NativeReader(Bytes(&NativeMethods.pr_metrics_read));
        while (!reader.IsAtEnd)
        {
            KeyValuePair<string, object?> client = new("client", reader.Number());
            KeyValuePair<string, object?> group = new("group", reader.Text());
            for (int left = reader.Count(); left > 0; left--)
            {
                int metric = reader.Count();
                string[] labels = table[metric].Labels;
                var tags = new KeyValuePair<string, object?>[labels.Length + 2];
                (tags[0], tags[1]) = (client, group);
                for (int label = 0; label < labels.Length; label++)
                {
                    tags[label + 2] = new(labels[label], reader.Text());
                }

                samples[metric].Add(table[metric].Kind == MetricKind.Histogram ? Times(ref reader, tags) : new(tags, reader.Float()));
            }
        }

        return samples;
    }

    private static MetricSample Times(ref NativeReader reader, KeyValuePair<string, object?>[] tags)
    {
        var buckets = new (double, long)[reader.Count()];
        for (int bucket = 0; bucket < buckets.Length; bucket++)
        {
            buckets[bucket] = (reader.Float(), reader.Number());
        }

        long count = reader.Number();
        return new(tags, reader.Float(), count, buckets);
    }

    private static byte[] Bytes(delegate*<byte*, uint, uint> write)
    {
        byte[] bytes = new byte[16 * 1024];
        while (true)
        {
            fixed (byte* place = bytes)
            {
                uint length = write(place, (uint)bytes.Length);
                if (length <= bytes.Length)
                {
                    return bytes[..(int)length];
                }

                // What there is to say may grow meanwhile.
                bytes = new byte[length + (length / 4)];
            }
        }
    }
}
