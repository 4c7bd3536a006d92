//! What do the handle, its acknowledgements and the driver share? Unread events and given acknowledgements.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::outbox::{Notice, Outbox};

/// The meeting place of driver and reader. No lock is held across an await.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    outbox: Mutex<Outbox>,
    /// Tickets acknowledged and not yet seen by the driver: at most one for each open revocation.
    acknowledged: Mutex<Vec<u64>>,
    /// Rings when the outbox has something.
    pub(crate) news: Notify,
    /// Rings when the driver has something to look at.
    pub(crate) driver: Notify,
}

impl Shared {
    /// Leaves a notice for the reader. Returns a ticket that needs no acknowledgement; see [`Outbox::push`].
    pub(crate) fn tell(&self, notice: Notice) -> Option<u64> {
        let needless = lock(&self.outbox).push(notice);
        self.news.notify_one();
        needless
    }

    /// The oldest unread notice.
    pub(crate) fn read(&self) -> Option<Notice> {
        lock(&self.outbox).pop()
    }

    pub(crate) fn acknowledge(&self, ticket: u64) {
        lock(&self.acknowledged).push(ticket);
        self.driver.notify_one();
    }

    pub(crate) fn take_acknowledged(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.acknowledged))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
