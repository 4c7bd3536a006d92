// Runs one scenario in a process of its own.

using System.Diagnostics;

namespace Prosody.Tests;

internal sealed record Child(int ExitCode, string Output, string Error)
{
    /// <summary>Far beyond what any scenario takes, also on a machine that runs three other test programs.</summary>
    private static readonly TimeSpan Patience = TimeSpan.FromMinutes(3);

    /// <summary>Where a program is that the build of the tests names.</summary>
    internal static string Program(string name) =>
        typeof(Child).Assembly.GetCustomAttributes(typeof(System.Reflection.AssemblyMetadataAttribute), false)
            .Cast<System.Reflection.AssemblyMetadataAttribute>().Single(data => data.Key == name).Value!;

    internal static Child Run(string scenario, params (string Name, string Value)[] environment) => RunProgram("Scenarios", [scenario], environment);

    internal static Child RunProgram(string name, string[] arguments, params (string Name, string Value)[] environment)
    {
        var start = new ProcessStartInfo(Program(name), arguments) { RedirectStandardOutput = true, RedirectStandardError = true };
        foreach ((string variable, string value) in environment)
        {
            start.Environment[variable] = value;
        }

        using Process process = Process.Start(start)!;
        Task<string> error = process.StandardError.ReadToEndAsync();
        Task<string> output = process.StandardOutput.ReadToEndAsync();
        if (!process.WaitForExit(Patience))
        {
            process.Kill(entireProcessTree: true);
            Assert.Fail($"{name} {string.Join(' ', arguments)} did not end: {output.Result}{error.Result}");
        }

        return new Child(process.ExitCode, output.Result, error.Result);
    }
}
