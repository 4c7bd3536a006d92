//! How is a response put together from parts, most of which lie elsewhere?

use bytes::{Bytes, BytesMut};

/// Bytes of a response: small parts are collected, record batches are referenced.
#[derive(Debug, Default)]
pub struct Segments {
    done: Vec<Bytes>,
    open: BytesMut,
    bytes: usize,
}

impl Segments {
    /// The part that small fields are written to.
    pub fn open(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Adds bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        if !self.open.is_empty() {
            let open = self.open.split().freeze();
            self.bytes += open.len();
            self.done.push(open);
        }
        self.bytes += bytes.len();
        self.done.push(bytes);
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in total.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// The parts in order.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.done.push(self.open.freeze());
        }
        self.done
    }
}
