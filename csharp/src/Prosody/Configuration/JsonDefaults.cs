// How are payloads written and read unless the user says otherwise?

using System.Diagnostics.CodeAnalysis;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Text.Json.Serialization.Metadata;

namespace Prosody;

/// <summary>The serializer options of a client: defaults, then the user's changes, then frozen.</summary>
internal static class JsonDefaults
{
    internal static JsonSerializerOptions Create(IEnumerable<Action<JsonSerializerOptions>> configure)
    {
        var options = new JsonSerializerOptions
        {
            // Deduplication reads the field `id` and event filters the field `type`, so C# names must become these.
            PropertyNamingPolicy = JsonNamingPolicy.CamelCase,
            PropertyNameCaseInsensitive = true,
            DefaultIgnoreCondition = JsonIgnoreCondition.WhenWritingNull,
        };
        // A switch the trimmer folds: with reflection off, nothing of it is reachable.
        JsonConverter? enumConverter = JsonSerializer.IsReflectionEnabledByDefault ? AddEnumConverter(options) : null;
        foreach (Action<JsonSerializerOptions> change in configure)
        {
            change(options);
        }

        if (enumConverter is not null && options.Converters.Remove(enumConverter))
        {
            // The first converter that fits wins, and that is to be the user's.
            options.Converters.Add(enumConverter);
        }

        if (JsonSerializer.IsReflectionEnabledByDefault)
        {
            AddReflection(options);
        }
        else
        {
            options.TypeInfoResolver ??= JsonTypeInfoResolver.Combine();
        }

        options.MakeReadOnly();
        return options;
    }

    [UnconditionalSuppressMessage("AOT", "IL3050", Justification = "Unreachable where reflection is off, which is so wherever code cannot be generated.")]
    private static JsonStringEnumConverter AddEnumConverter(JsonSerializerOptions options)
    {
        var converter = new JsonStringEnumConverter();
        options.Converters.Add(converter);
        return converter;
    }

    [UnconditionalSuppressMessage("Trimming", "IL2026", Justification = "Unreachable where reflection is off.")]
    [UnconditionalSuppressMessage("AOT", "IL3050", Justification = "Unreachable where reflection is off, which is so wherever code cannot be generated.")]
    private static void AddReflection(JsonSerializerOptions options) =>
        options.TypeInfoResolverChain.Add(new DefaultJsonTypeInfoResolver());
}
