//! Where does the memory of a decompressed or growing batch come from, and how is it counted and used again?

use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that return here when the last view of them is dropped. Cheap to clone; clones share the buffers.
///
/// A freshly allocated megabyte costs more in page faults than decompressing into it, so buffers are kept. Memory is
/// counted by capacity: [`BufferPool::in_use`] is what views keep alive right now, and the hook given to
/// [`BufferPool::with_release`] tells a budget when some of it came back.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    idle: Mutex<Idle>,
    keep_bytes: usize,
    in_use: AtomicUsize,
    released: Option<Box<dyn Fn(usize) + Send + Sync>>,
}

#[derive(Default)]
struct Idle {
    /// Every buffer is initialised up to its length, which is its capacity to us.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// The most buffers a pool keeps idle, whatever their size: the search for a fitting one stays short.
const MAX_IDLE: usize = 64;
const SMALLEST: usize = 1024;

impl BufferPool {
    /// A pool that keeps at most `keep_bytes` of idle buffers.
    #[must_use]
    pub fn new(keep_bytes: usize) -> BufferPool {
        BufferPool::build(keep_bytes, None)
    }

    /// The same, and `released` is called with a buffer's bytes after it came back. It runs wherever the last view was
    /// dropped, so it must be short and must not block.
    #[must_use]
    pub fn with_release(keep_bytes: usize, released: impl Fn(usize) + Send + Sync + 'static) -> BufferPool {
        BufferPool::build(keep_bytes, Some(Box::new(released)))
    }

    fn build(keep_bytes: usize, released: Option<Box<dyn Fn(usize) + Send + Sync>>) -> BufferPool {
        let idle = Mutex::new(Idle::default());
        BufferPool { shared: Arc::new(Shared { idle, keep_bytes, in_use: AtomicUsize::new(0), released }) }
    }

    /// Bytes of all buffers handed out and not yet back.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.in_use.load(Ordering::Relaxed)
    }

    /// Bytes of idle buffers kept for the next use.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// An empty buffer with room for `room` bytes before it has to grow.
    #[must_use]
    pub fn take(&self, room: usize) -> Buffer {
        let bytes = self.shared.fitting(room).unwrap_or_else(|| vec![0; rounded(room)]);
        self.shared.in_use.fetch_add(bytes.len(), Ordering::Relaxed);
        Buffer { bytes, used: 0, shared: self.shared.clone() }
    }
}

impl BufferPool {
    /// A buffer without memory, which takes no lock.
    #[must_use]
    pub fn empty(&self) -> Buffer {
        Buffer { bytes: Vec::new(), used: 0, shared: self.shared.clone() }
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool").field("in_use", &self.in_use()).field("idle", &self.idle()).finish()
    }
}

impl Shared {
    /// The smallest idle buffer that fits without wasting more than three quarters of itself.
    fn fitting(&self, room: usize) -> Option<Vec<u8>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let most = room.saturating_mul(4).max(64 * 1024);
        let candidates = idle.buffers.iter().enumerate();
        let best =
            candidates.filter(|(_, b)| b.len() >= room && b.len() <= most).min_by_key(|(_, b)| b.len());
        if let Some((index, _)) = best {
            let found = idle.buffers.swap_remove(index);
            idle.bytes -= found.len();
            return Some(found);
        }
        // Nothing fits: let one go, so that a pool full of sizes nobody asks for renews itself.
        if let Some(useless) = idle.buffers.pop() {
            idle.bytes -= useless.len();
        }
        None
    }

    fn put_back(&self, bytes: Vec<u8>) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        self.in_use.fetch_sub(len, Ordering::Relaxed);
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.buffers.len() < MAX_IDLE && idle.bytes + len <= self.keep_bytes {
                idle.bytes += len;
                idle.buffers.push(bytes);
            }
        }
        if let Some(released) = &self.released {
            released(len);
        }
    }
}

/// Sizes in steps of a quarter of their power of two, so that similar needs share buffers and at most a fifth is unused.
fn rounded(room: usize) -> usize {
    let room = room.max(SMALLEST);
    let step = (room.next_power_of_two() / 8).max(1);
    room.div_ceil(step) * step
}

/// A growing byte buffer out of a [`BufferPool`].
pub struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    shared: Arc<Shared>,
}

impl Buffer {
    /// Bytes written so far.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Bytes it can hold before it grows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// What was written.
    #[must_use]
    #[inline]
    pub fn written(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// What was written, to be patched.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.used).unwrap_or_default()
    }

    /// The room after what was written; [`Buffer::advance`] says how much of it is now in use.
    pub fn spare(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.used..).unwrap_or_default()
    }

    /// What was written, and the room after it.
    pub fn parts(&mut self) -> (&[u8], &mut [u8]) {
        let at = self.used.min(self.bytes.len());
        let (written, spare) = self.bytes.split_at_mut(at);
        (written, spare)
    }

    /// Counts `len` bytes of the spare room as written.
    pub fn advance(&mut self, len: usize) {
        self.used = self.used.saturating_add(len).min(self.bytes.len());
    }

    /// Forgets what was written and keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Makes room for `more` bytes after what was written.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        let need = self.used.saturating_add(more);
        if need > self.bytes.len() {
            self.grow(need.max(self.bytes.len().saturating_mul(2)));
        }
    }

    /// Makes room for exactly `more` bytes after what was written, without doubling.
    pub fn reserve_exact(&mut self, more: usize) {
        let need = self.used.saturating_add(more);
        if need > self.bytes.len() {
            self.grow(need);
        }
    }

    #[cold]
    fn grow(&mut self, to: usize) {
        let mut bigger = vec![0; rounded(to)];
        if let Some(start) = bigger.get_mut(..self.used) {
            start.copy_from_slice(self.bytes.get(..self.used).unwrap_or_default());
        }
        self.shared.in_use.fetch_add(bigger.len() - self.bytes.len(), Ordering::Relaxed);
        self.bytes = bigger;
    }

    /// The next `len` bytes, counted as written, to be filled in; what they hold before is unspecified.
    #[inline]
    pub fn extend_with(&mut self, len: usize) -> &mut [u8] {
        self.reserve(len);
        let start = self.used;
        self.used += len;
        self.bytes.get_mut(start..self.used).unwrap_or_default()
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        self.extend_with(bytes.len()).copy_from_slice(bytes);
    }

    /// The written bytes as a shared view. The memory returns to the pool when the last clone or slice is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        if self.used == 0 {
            return Bytes::new();
        }
        Bytes::from_owner(self)
    }

    /// Gives back what is far too large, when a guess was.
    pub(crate) fn trim(&mut self) {
        let wanted = rounded(self.used);
        if self.bytes.len() > wanted.saturating_mul(2) && self.bytes.len() > 64 * 1024 {
            let surplus = self.bytes.len() - wanted;
            self.bytes.truncate(wanted);
            self.bytes.shrink_to_fit();
            self.shared.in_use.fetch_sub(surplus, Ordering::Relaxed);
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.written()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.put_back(std::mem::take(&mut self.bytes));
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.used, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_its_last_view_is_dropped_and_is_used_again() {
        let released = Arc::new(AtomicUsize::new(0));
        let seen = released.clone();
        let pool = BufferPool::with_release(1 << 20, move |bytes| {
            seen.fetch_add(bytes, Ordering::Relaxed);
        });
        let mut buffer = pool.take(5000);
        buffer.extend(b"hello");
        let at = buffer.written().as_ptr();
        let counted = buffer.capacity();
        let view = buffer.freeze();
        let slice = view.slice(1..3);
        drop(view);
        assert_eq!((pool.in_use(), pool.idle()), (counted, 0));
        assert_eq!(slice.as_ref(), b"el");
        drop(slice);
        assert_eq!((pool.in_use(), pool.idle()), (0, counted));
        assert_eq!(released.load(Ordering::Relaxed), counted);
        assert_eq!(pool.take(4000).bytes.as_ptr(), at);
    }

    #[test]
    fn growth_and_trimming_keep_the_count_right() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(10);
        for _ in 0..1000 {
            buffer.extend(&[7; 1000]);
            assert_eq!(pool.in_use(), buffer.capacity());
        }
        assert_eq!(buffer.written(), vec![7; 1_000_000]);
        buffer.clear();
        buffer.extend(b"x");
        buffer.trim();
        assert_eq!(pool.in_use(), buffer.capacity());
        assert!(buffer.capacity() <= SMALLEST);
        drop(buffer);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn no_more_than_the_limit_is_kept() {
        let pool = BufferPool::new(100_000);
        let taken: Vec<Buffer> = (0..50).map(|_| pool.take(30_000)).collect();
        drop(taken);
        assert!(pool.idle() <= 100_000 && pool.idle() > 50_000, "{}", pool.idle());
        assert_eq!(pool.in_use(), 0);
    }
}
