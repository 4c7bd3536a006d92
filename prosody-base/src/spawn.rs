//! Which thread runs this task, and who ends it? The only file that spawns.
#![allow(clippy::disallowed_methods, reason = "this file is the door to tasks")]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle};
use tokio::task::{AbortHandle, JoinHandle};

/// Where a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Connections, heartbeats, commits, the producer. User code never runs here, so it never waits for user code.
    Io,
    /// Decoding, partitions and handlers. A blocking handler may hold these threads for as long as it likes.
    Work,
}

/// Starts tasks. Clones share lanes and fate.
#[derive(Clone, Debug)]
pub struct Spawner {
    io: Handle,
    work: Handle,
    /// Threads of the work lane.
    work_threads: usize,
    /// Present where a whole client can be killed at once (simulation); `None` costs nothing.
    group: Option<Arc<Mutex<Group>>>,
}

#[derive(Debug, Default)]
struct Group {
    killed: bool,
    tasks: Vec<AbortHandle>,
}

impl Spawner {
    /// The process-wide lanes: one thread for [`Lane::Io`], one per core for [`Lane::Work`]. Started by the first call.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn process() -> io::Result<Spawner> {
        static LANES: OnceLock<(Handle, Handle)> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        let _one_starter = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if LANES.get().is_none() {
            let io_lane = start("prosody-io", Builder::new_current_thread().enable_all())?;
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let work_lane = start(
                "prosody-work",
                Builder::new_multi_thread().worker_threads(cores).thread_name("prosody-work").enable_all(),
            )?;
            let _ = LANES.set((io_lane, work_lane));
        }
        match LANES.get() {
            Some((io, work)) => {
                let work_threads = work.metrics().num_workers();
                Ok(Spawner { io: io.clone(), work: work.clone(), work_threads, group: None })
            }
            None => Err(io::Error::other("the process-wide threads did not start")),
        }
    }

    /// Both lanes on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Spawner {
        Spawner::on(Handle::current())
    }

    /// Both lanes on one runtime.
    pub(crate) fn on(runtime: Handle) -> Spawner {
        let work_threads = runtime.metrics().num_workers();
        Spawner { io: runtime.clone(), work: runtime, work_threads, group: None }
    }

    /// Both lanes on the current runtime, in a group that [`Spawner::kill`] ends at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn here() -> Spawner {
        let here = Handle::current();
        let work_threads = here.metrics().num_workers();
        Spawner { io: here.clone(), work: here, work_threads, group: Some(Arc::default()) }
    }

    /// The same lanes with a fate of their own: for one simulated process among several.
    #[must_use]
    pub fn separate(&self) -> Spawner {
        let (io, work) = (self.io.clone(), self.work.clone());
        Spawner { io, work, work_threads: self.work_threads, group: Some(Arc::default()) }
    }

    /// How many tasks of [`Lane::Work`] can run at the same instant.
    #[must_use]
    pub fn work_threads(&self) -> usize {
        self.work_threads
    }

    /// Starts a task that ends when the returned [`Task`] is dropped or aborted.
    pub fn spawn<F>(&self, lane: Lane, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let handle = match lane {
            Lane::Io => self.io.spawn(future),
            Lane::Work => self.work.spawn(future),
        };
        if let Some(group) = &self.group {
            let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
            if group.killed {
                handle.abort();
            } else {
                if group.tasks.len() >= 64 && group.tasks.len().is_power_of_two() {
                    group.tasks.retain(|task| !task.is_finished());
                }
                group.tasks.push(handle.abort_handle());
            }
        }
        Task { handle: Some(handle) }
    }

    /// Makes a lane's runtime current on this thread until the guard is dropped: for calls that come from threads of
    /// somebody else and make timers or poll futures once.
    pub fn enter(&self, lane: Lane) -> tokio::runtime::EnterGuard<'_> {
        match lane {
            Lane::Io => self.io.enter(),
            Lane::Work => self.work.enter(),
        }
    }

    /// Ends every task started through this spawner and its clones, like `kill -9` ends a process: no destructor of
    /// ours sends a farewell, because whatever it would spawn is dead at once.
    pub fn kill(&self) {
        if let Some(group) = &self.group {
            let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
            group.killed = true;
            for task in group.tasks.drain(..) {
                task.abort();
            }
        }
    }
}

/// A thread of its own that owns the runtime for the life of the process.
fn start(name: &str, builder: &mut Builder) -> io::Result<Handle> {
    let runtime = builder.build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

/// A running task. Dropping it ends the task at its next await; [`Task::detach`] lets it run on.
#[derive(Debug)]
pub struct Task<T> {
    handle: Option<JoinHandle<T>>,
}

impl<T> Task<T> {
    /// Lets the task run to its end by itself.
    pub fn detach(mut self) {
        self.handle = None;
    }

    /// Ends the task at its next await.
    pub fn abort(&self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
    }

    /// Whether the task has ended, in whatever way.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Resolves to the task's result, or to what ended it: a panic or an abort.
impl<T> Future for Task<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.handle {
            Some(handle) => Pin::new(handle).poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn kill_ends_every_task_of_the_group_and_no_other() {
        let (mine, other) = (Spawner::here(), Spawner::here());
        let killed = mine.spawn(Lane::Work, std::future::pending::<()>());
        let (say, heard) = oneshot::channel();
        other.spawn(Lane::Io, async move { say.send(7) }).detach();
        mine.kill();
        assert!(killed.await.expect_err("killed").is_cancelled());
        assert!(mine.spawn(Lane::Io, async { 1 }).await.is_err(), "a dead process starts nothing");
        assert_eq!(heard.await, Ok(7));
    }

    #[tokio::test]
    async fn a_dropped_task_ends_and_a_detached_one_goes_on() {
        let spawner = Spawner::here();
        let (say, heard) = oneshot::channel::<()>();
        drop(spawner.spawn(Lane::Work, async move {
            std::future::pending::<()>().await;
            let _ = say.send(());
        }));
        assert!(heard.await.is_err());
        let (say, heard) = oneshot::channel();
        spawner.spawn(Lane::Work, async move { say.send(()) }).detach();
        assert_eq!(heard.await, Ok(()));
    }

    #[test]
    fn the_process_lanes_are_threads_of_their_own() {
        let spawner = Spawner::process().expect("threads");
        let (say, heard) = std::sync::mpsc::sync_channel(1);
        spawner
            .spawn(Lane::Io, async move {
                let _ = say.send(std::thread::current().name().map(str::to_owned));
            })
            .detach();
        assert_eq!(heard.recv().expect("ran").as_deref(), Some("prosody-io"));
    }
}
