#if NET10_0_OR_GREATER // The samples are programs of one framework.
// The samples as their first lines say to run them, without a broker.

using System.Diagnostics;
using System.Net;
using System.Net.Http.Json;
using System.Reflection;

namespace Prosody.Tests;

public sealed class SampleTests
{
    [Fact]
    public async Task The_quick_start_handles_its_message_and_ends()
    {
        using var sample = new Sample("QuickStart", ("PROSODY_MOCK", "true"));
        await sample.Line("Received message: MyPayload { Content = Hello, Kafka!");
        Assert.Equal(0, await sample.ExitAsync());
    }

    [Fact]
    public async Task The_sample_of_a_test_lets_three_hours_pass_in_no_time()
    {
        using var sample = new Sample("Testing");
        await sample.Line("after 2.9 hours: 0 reminders");
        await sample.Line("after 3.1 hours: 1 reminder, after 3.0");
        Assert.Equal(0, await sample.ExitAsync());
    }

    [Fact]
    public async Task The_worker_runs_until_it_is_told_to_stop()
    {
        using var sample = new Sample("Worker", ("Prosody__Mock", "true"));
        await sample.Line("Application started");
        sample.Terminate();
        Assert.Equal(0, await sample.ExitAsync());
    }

    [Fact]
    public async Task The_web_service_answers_with_what_it_received()
    {
        using var sample = new Sample("WebApi", ("Prosody__Mock", "true"), ("ASPNETCORE_URLS", "http://127.0.0.1:0"));
        string listening = await sample.Line("Now listening on: ");
        using var http = new HttpClient { BaseAddress = new(listening[listening.IndexOf("http", StringComparison.Ordinal)..]) };
        var room = new Uri("/rooms/kitchen", UriKind.Relative);
        using HttpResponseMessage sent = await http.PostAsJsonAsync(room, new { celsius = 21.5 });
        Assert.Equal(HttpStatusCode.Accepted, sent.StatusCode);
        long end = Environment.TickCount64 + (long)Mock.Patience.TotalMilliseconds;
        HttpResponseMessage? answer;
        while ((answer = await http.GetAsync(room)).StatusCode == HttpStatusCode.NotFound)
        {
            Assert.True(Environment.TickCount64 < end, "the message never came back");
        }

        Assert.Equal("{\"celsius\":21.5}", await answer.Content.ReadAsStringAsync());
        Assert.Equal("Healthy", await http.GetStringAsync(new Uri("/health/ready", UriKind.Relative)));
        Assert.Equal("Healthy", await http.GetStringAsync(new Uri("/health/live", UriKind.Relative)));
        sample.Terminate();
        Assert.Equal(0, await sample.ExitAsync());
    }

    /// <summary>A sample that runs.</summary>
    private sealed class Sample : IDisposable
    {
        private readonly Process _process;

        internal Sample(string name, params (string Name, string Value)[] environment)
        {
            string pattern = typeof(Sample).Assembly.GetCustomAttributes<AssemblyMetadataAttribute>().Single(static data => data.Key == "Samples").Value!;
            string program = pattern.Replace("*", name, StringComparison.Ordinal);
            var start = new ProcessStartInfo(program) { RedirectStandardOutput = true, WorkingDirectory = Path.GetDirectoryName(program) };
            foreach ((string variable, string value) in environment)
            {
                start.Environment[variable] = value;
            }

            _process = Process.Start(start)!;
        }

        public void Dispose()
        {
            if (!_process.HasExited)
            {
                _process.Kill(entireProcessTree: true);
            }

            _process.Dispose();
        }

        /// <summary>Waits for a line with this text.</summary>
        internal async Task<string> Line(string text)
        {
            string? line;
            do
            {
                line = await _process.StandardOutput.ReadLineAsync().WaitAsync(Mock.Patience);
                Assert.True(line is not null, $"it ended without saying `{text}`");
            }
            while (!line.Contains(text, StringComparison.Ordinal));
            return line;
        }

        /// <summary>What a service manager does.</summary>
        internal void Terminate()
        {
            using Process kill = Process.Start("kill", ["-TERM", _process.Id.ToString(System.Globalization.CultureInfo.InvariantCulture)]);
            kill.WaitForExit();
        }

        internal async Task<int> ExitAsync()
        {
            await _process.StandardOutput.ReadToEndAsync().WaitAsync(Mock.Patience);
            await _process.WaitForExitAsync().WaitAsync(Mock.Patience);
            return _process.ExitCode;
        }
    }
}
#endif
