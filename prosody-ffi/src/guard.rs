//! What if we panic? Every export runs inside [`guard`], because a panic that reaches `extern "C"` aborts the host.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::abi::PR_FAULTED;

/// Longest panic text kept.
const TEXT_BYTES: usize = 4 * 1024;

/// The last panic of an export that belongs to no client.
static LAST: Mutex<String> = Mutex::new(String::new());
/// Whether any panic was ordered by `pr_debug_panic`; one relaxed load per call when not.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Ordered panics: handle and export.
static ORDERED: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

/// Runs the body of an export and returns its status, or `PR_FAULTED` after a panic, which then is the fault of the
/// client behind `handle` (0 = of none).
pub(crate) fn guard(export: &'static str, handle: u64, body: impl FnOnce() -> i32) -> i32 {
    guard_or(export, handle, PR_FAULTED, body)
}

/// As [`guard`], for exports that return something else than a status.
pub(crate) fn guard_or<T>(export: &'static str, handle: u64, otherwise: T, body: impl FnOnce() -> T) -> T {
    // Unwind safety: what a panic may leave half-done is behind mutexes whose poison is ignored and behind the client's
    // fault flag, after which no call reaches it.
    let run = AssertUnwindSafe(|| {
        explode_if_ordered(export, handle);
        body()
    });
    match catch_unwind(run) {
        Ok(result) => result,
        Err(panic) => {
            let text = format!("panic in {export}: {}", panic_text(panic.as_ref()));
            // Nothing below may panic again.
            let _ = catch_unwind(AssertUnwindSafe(|| match crate::host::find(handle) {
                Some(host) => host.fault(&text),
                None => *lock(&LAST) = text,
            }));
            otherwise
        }
    }
}

/// The text of the last panic that belonged to no client.
pub(crate) fn last_panic() -> String {
    lock(&LAST).clone()
}

/// Orders a panic in the next call of `export` on `handle`.
pub(crate) fn order_panic(handle: u64, export: String) {
    lock(&ORDERED).push((handle, export));
    ARMED.store(true, Ordering::Relaxed);
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown".to_owned());
    clip(text, TEXT_BYTES)
}

/// Cuts a text to at most `bytes`, between characters.
pub(crate) fn clip(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Panics are logged like everything else; the host's standard error stays clean.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(place, "panic: {}", panic_text(panic.payload()));
        }));
    });
}

#[allow(clippy::panic, reason = "this is the panic that tests order")]
fn explode_if_ordered(export: &'static str, handle: u64) {
    if !ARMED.load(Ordering::Relaxed) {
        return;
    }
    let mut ordered = lock(&ORDERED);
    if let Some(at) = ordered.iter().position(|(of, name)| *of == handle && name == export) {
        ordered.swap_remove(at);
        ARMED.store(!ordered.is_empty(), Ordering::Relaxed);
        drop(ordered);
        panic!("ordered by a test");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::PR_OK;

    #[test]
    fn a_panic_becomes_a_status_and_its_text_is_kept() {
        assert_eq!(guard("pr_test", 0, || PR_OK), PR_OK);
        order_panic(0, "pr_test".to_owned());
        assert_eq!(guard("pr_other", 0, || PR_OK), PR_OK, "only the ordered export");
        assert_eq!(guard("pr_test", 7, || PR_OK), PR_OK, "only the ordered handle");
        assert_eq!(guard("pr_test", 0, || PR_OK), PR_FAULTED);
        assert_eq!(last_panic(), "panic in pr_test: ordered by a test");
        assert_eq!(guard("pr_test", 0, || PR_OK), PR_OK, "once");
    }

    #[test]
    fn clip_keeps_characters_whole() {
        assert_eq!(clip("aé".to_owned(), 2), "a");
        assert_eq!(clip("aé".to_owned(), 3), "aé");
    }
}
