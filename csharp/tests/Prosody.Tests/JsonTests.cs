// How payloads look on the wire: rows J1 to J4, J9 and J10.

using System.Text;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Text.Json.Serialization.Metadata;

namespace Prosody.Tests;

public sealed partial class JsonTests
{
    public enum Kind
    {
        X,
        LongName,
    }

    private static JsonSerializerOptions Defaults(params Action<JsonSerializerOptions>[] changes) => JsonDefaults.Create(changes);

    private static string Wire<T>(T payload, JsonSerializerOptions options)
    {
        using PayloadWriter.Lease lease = PayloadWriter.Write(payload, (JsonTypeInfo<T>)options.GetTypeInfo(typeof(T)));
        return Encoding.UTF8.GetString(lease.Bytes);
    }

    [Fact]
    public void J1_camel_case_enums_as_text_and_no_nulls() =>
        Assert.Equal("{\"id\":\"a\",\"kind\":\"X\"}", Wire(new { Id = "a", Kind = Kind.X, N = (string?)null }, Defaults()));

    [Fact]
    public void J2_reading_ignores_case() =>
        Assert.Equal("x", JsonSerializer.Deserialize<Payload>("{\"Text\":\"x\"}", Defaults())!.Text);

    [Fact]
    public void J3_dictionary_keys_and_explicit_names_stay_and_syntax_is_strict()
    {
        JsonSerializerOptions options = Defaults();
        Assert.Equal("{\"Big Key\":1}", Wire(new Dictionary<string, int> { ["Big Key"] = 1 }, options));
        Assert.Equal("{\"As-Is\":1}", Wire(new Named(), options));
        Assert.Throws<JsonException>(() => JsonSerializer.Deserialize<Payload>("{\"number\":\"1\"}", options));
        Assert.Throws<JsonException>(() => JsonSerializer.Deserialize<Payload>("{\"number\":1,}", options));
        Assert.Throws<JsonException>(() => JsonSerializer.Deserialize<Payload>("{} // no", options));
    }

    [Fact]
    public void J4_the_user_s_changes_win()
    {
        Assert.Equal("{\"Id\":\"a\"}", Wire(new { Id = "a" }, Defaults(static options => options.PropertyNamingPolicy = null)));
        Assert.Equal("{\"kind\":1}", Wire(new { Kind = Kind.LongName }, Defaults(static options => options.Converters.Clear())));
        Assert.Equal(
            "{\"kind\":\"longName\"}",
            Wire(new { Kind = Kind.LongName }, Defaults(static options => options.Converters.Add(new JsonStringEnumConverter(JsonNamingPolicy.CamelCase)))));
    }

    [Fact]
    public void J9_a_context_comes_before_reflection()
    {
        JsonSerializerOptions options = Defaults(static options => options.TypeInfoResolverChain.Add(TestContext.Default));
        Assert.Same(TestContext.Default, options.TypeInfoResolverChain[0]);
        Assert.IsType<DefaultJsonTypeInfoResolver>(options.TypeInfoResolverChain[^1]);
        Assert.Equal("{\"text\":\"t\",\"number\":0}", Wire(new Payload("t"), options));
        Assert.Equal("{\"other\":1}", Wire(new { Other = 1 }, options));
    }

    [Fact]
    public void J10_options_are_frozen() => Assert.Throws<InvalidOperationException>(() => Defaults().Converters.Clear());

    [Fact]
    public void The_writer_follows_the_options_it_writes_for()
    {
        Assert.Equal("\"\\u00E9\"", Wire("é", Defaults()));
        Assert.Equal("\"é\"", Wire("é", Defaults(static options => options.Encoder = System.Text.Encodings.Web.JavaScriptEncoder.UnsafeRelaxedJsonEscaping)));
        Assert.Contains('\n', Wire(new { A = 1 }, Defaults(static options => options.WriteIndented = true)));
        Assert.Equal("null", Wire<Payload?>(null, Defaults()));
    }

    [Fact]
    public void A_converter_may_serialize_on_the_same_thread()
    {
        JsonSerializerOptions inner = Defaults();
        JsonSerializerOptions outer = Defaults(options => options.Converters.Add(new Nested(inner)));
        Assert.Equal("\"{\\u0022number\\u0022:7}\"", Wire(new Outer(), outer));
    }

    public sealed class Named
    {
        [JsonPropertyName("As-Is")]
        public int Value { get; } = 1;

        public int Field = 9;
    }

    public sealed class Outer;

    private sealed class Nested(JsonSerializerOptions inner) : JsonConverter<Outer>
    {
        public override Outer Read(ref Utf8JsonReader reader, Type typeToConvert, JsonSerializerOptions options) => throw new NotSupportedException();

        public override void Write(Utf8JsonWriter writer, Outer value, JsonSerializerOptions options) => writer.WriteStringValue(Wire(new { Number = 7 }, inner));
    }

    [JsonSourceGenerationOptions(PropertyNamingPolicy = JsonKnownNamingPolicy.CamelCase, DefaultIgnoreCondition = JsonIgnoreCondition.WhenWritingNull)]
    [JsonSerializable(typeof(Payload))]
    internal sealed partial class TestContext : JsonSerializerContext;
}
