//! How do children end when we end, however we end? A watcher outside our process group reads our pipe; when the pipe
//! closes, be it by a normal end, ctrl-c or `kill -9`, it ends every process that is still on the leash.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads `+ PID` and `- PID` lines until the pipe closes, then TERM, ten seconds, KILL.
const WATCHER: &str = r#"
pids=" "
while read -r op pid; do
  case $op in
    +) pids="$pids$pid " ;;
    -) pids="${pids%% $pid *} ${pids#* $pid }" ;;
  esac
done
kill -TERM $pids 2>/dev/null || exit 0
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 $pids 2>/dev/null || exit 0; done
kill -KILL $pids 2>/dev/null
"#;

static WATCH: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();

/// A child process that cannot outlive us. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Leashed(Child);

impl Leashed {
    /// Starts `command`.
    pub(crate) fn spawn(command: &mut Command) -> Result<Leashed, String> {
        let child = command.spawn().map_err(|problem| {
            format!("{} did not start: {problem}", command.get_program().to_string_lossy())
        })?;
        tell('+', child.id());
        Ok(Leashed(child))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, to wait for it or to take its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Whether it is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal by name, such as `TERM` or `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        tell('-', self.0.id());
    }
}

/// Sends a signal by name to any process.
pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn tell(op: char, pid: u32) {
    let watch = WATCH.get_or_init(|| Mutex::new(start_watcher()));
    if let Some(pipe) = watch.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        let _ = writeln!(pipe, "{op} {pid}");
    }
}

fn start_watcher() -> Option<ChildStdin> {
    let mut watcher = Command::new("sh")
        .args(["-c", WATCHER])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    watcher.stdin.take()
}
