//! How do many follow one value? As `tokio::sync::watch` does it, but those who wait are woken in the order they came.
//!
//! Tokio spreads its waiters over eight lists at random, so that threads meet less often. That randomness has no door: two
//! runs of one seed would wake the drivers of a client in different orders.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;

/// The sender is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody sets this value any more")
    }
}

impl std::error::Error for Gone {}

#[derive(Debug)]
struct Shared<T> {
    state: RwLock<State<T>>,
    news: Notify,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    version: u64,
    gone: bool,
}

/// Sets the value.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Follows the value; knows which one it has seen.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: Option<u64>,
}

/// The value, borrowed. Nobody can set it meanwhile.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> std::ops::Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// A value and one who follows it, who has seen the first one.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// A value nobody follows yet.
    pub fn new(value: T) -> Sender<T> {
        let state = RwLock::new(State { value, version: 0, gone: false });
        Sender(Arc::new(Shared { state, news: Notify::new() }))
    }

    /// Another one who follows, and has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = Some(self.0.read().version);
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Sets the value and returns the one before.
    pub fn send_replace(&self, value: T) -> T {
        let mut old = value;
        self.send_modify(|known| std::mem::swap(known, &mut old));
        old
    }

    /// Changes the value in place.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value in place; those who follow are told when `change` says that it did.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = {
            let mut state = self.0.write();
            let changed = change(&mut state.value);
            state.version = state.version.wrapping_add(u64::from(changed));
            changed
        };
        if changed {
            self.0.news.notify_waiters();
        }
        changed
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.write().gone = true;
        self.0.news.notify_waiters();
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Receiver<T> {
    /// The present value; it does not count as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The present value, which counts as seen from here on.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.read();
        self.seen = Some(state.version);
        Ref(state)
    }

    /// Whether there is a value that was not seen.
    ///
    /// # Errors
    /// [`Gone`] when the sender is, seen or not.
    pub fn has_changed(&self) -> Result<bool, Gone> {
        let state = self.shared.read();
        if state.gone { Err(Gone) } else { Ok(self.seen != Some(state.version)) }
    }

    /// The present value counts as not seen.
    pub fn mark_changed(&mut self) {
        self.seen = None;
    }

    /// Waits for a value that was not seen; it counts as seen then. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// [`Gone`] when the sender is, and the last value was seen.
    pub async fn changed(&mut self) -> Result<(), Gone> {
        self.look_until(|_, is_new| is_new).await.map(drop)
    }

    /// Waits until the value is one of these; looks at the present one first. What it looked at counts as seen.
    ///
    /// # Errors
    /// [`Gone`] when the sender is, and the last value is none of them.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Gone> {
        self.look_until(|value, _| wanted(value)).await
    }

    /// Looks at the value, and again whenever it changed; `wanted` is also told whether it was not seen before.
    async fn look_until(&mut self, mut wanted: impl FnMut(&T, bool) -> bool) -> Result<Ref<'_, T>, Gone> {
        loop {
            // Before the look, so that nothing that comes after it is missed.
            let news = self.shared.news.notified();
            {
                let state = self.shared.read();
                let is_new = self.seen.replace(state.version) != Some(state.version);
                if wanted(&state.value, is_new) {
                    return Ok(Ref(state));
                }
                if state.gone {
                    return Err(Gone);
                }
            }
            news.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    /// Two runs of seed 136 had different traces: the drivers that follow the metadata were woken in random order.
    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_they_came() {
        for _ in 0..20 {
            let (sender, first) = super::channel(0);
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for who in 0..6 {
                let (mut follows, order) = (first.clone(), Arc::clone(&order));
                #[allow(clippy::disallowed_methods, reason = "a test")]
                tasks.push(tokio::spawn(async move {
                    follows.changed().await.unwrap();
                    order.lock().unwrap().push(who);
                }));
            }
            tokio::task::yield_now().await;
            sender.send_replace(1);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
        }
    }

    #[tokio::test]
    async fn a_last_value_is_seen_before_the_end() {
        let (sender, mut follows) = super::channel(1);
        assert_eq!(follows.has_changed(), Ok(false));
        sender.send_modify(|value| *value = 2);
        assert_eq!(follows.has_changed(), Ok(true));
        drop(sender);
        assert_eq!(follows.has_changed(), Err(super::Gone));
        assert_eq!(follows.changed().await, Ok(()));
        assert_eq!(*follows.borrow(), 2);
        assert_eq!(follows.changed().await, Err(super::Gone));
        assert!(follows.wait_for(|value| *value == 1).await.is_err());
        assert_eq!(follows.wait_for(|value| *value == 2).await.map(|value| *value), Ok(2));
    }

    #[tokio::test]
    async fn what_changes_nothing_wakes_nobody_and_marked_values_are_new() {
        let (sender, mut follows) = super::channel(1);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(follows.has_changed(), Ok(false));
        follows.mark_changed();
        assert_eq!(follows.changed().await, Ok(()));
        assert_eq!(*follows.borrow_and_update(), 1);
    }
}
