//! What does a message keep of the record it came from?

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prosody_wire::batch::{Headers, RecordView};

use crate::json::Text;
use crate::message::Message;
use crate::pipeline::filter::Poison;

/// A record that may run, as ranges of the buffer it was fetched in.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) leader_epoch: i32,
    /// When it came, as the tracer counts; 0 without one.
    pub(crate) received: u32,
    /// The batch, or a copy of this record alone.
    data: Bytes,
    key: Range<u32>,
    payload: Option<Range<u32>>,
    headers: Range<u32>,
    header_count: u32,
    /// The payload's `id`.
    pub(crate) id: Option<Text>,
    /// Why it is no message, if it is none.
    pub(crate) poison: Option<Poison>,
    copied: bool,
}

impl Record {
    /// `view` belongs to the batch whose bytes are `data`.
    pub(crate) fn new(
        view: &RecordView<'_>,
        data: &Bytes,
        (leader_epoch, received): (i32, u32),
        judged: Result<Option<Text>, Poison>,
    ) -> Record {
        let range = |part: &[u8]| {
            let start = (part.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
            let end = start.wrapping_add(part.len());
            // Batches are smaller than 4 GiB; a part of another buffer becomes a range that reads as empty.
            u32::try_from(start).unwrap_or(u32::MAX)..u32::try_from(end).unwrap_or(u32::MAX)
        };
        let (headers, header_count) = view.raw_headers();
        let mut record = Record {
            offset: view.offset(),
            timestamp: view.timestamp(),
            leader_epoch,
            received,
            data: data.clone(),
            key: range(view.key().unwrap_or_default()),
            payload: view.value().map(range),
            headers: if header_count == 0 { 0..0 } else { range(headers) },
            header_count,
            poison: judged.as_ref().err().copied(),
            id: judged.unwrap_or_default(),
            copied: false,
        };
        if record.poison == Some(Poison::NoKey) {
            // Records without a key have no order to keep: each waits under a key of its own.
            record.copy_with(&view.offset().to_be_bytes());
        }
        record
    }

    /// The key whose order it keeps.
    pub(crate) fn key(&self) -> &[u8] {
        crate::message::slice(&self.data, &self.key)
    }

    /// The key as it was written; `None` is a null key.
    pub(crate) fn written_key(&self) -> Option<&[u8]> {
        (self.poison != Some(Poison::NoKey)).then(|| self.key())
    }

    pub(crate) fn headers(&self) -> Headers<'_> {
        Headers::read_from(crate::message::slice(&self.data, &self.headers), self.header_count)
    }

    pub(crate) fn shared_key(&self) -> Bytes {
        self.data.slice_ref(self.key())
    }

    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.payload.as_ref().map(|range| crate::message::slice(&self.data, range))
    }

    /// The same in memory of its own, as the loader keeps records.
    pub(crate) fn kept(&self) -> prosody_wire::batch::Record {
        let headers = (crate::message::slice(&self.data, &self.headers), self.header_count);
        prosody_wire::batch::Record::of_parts(
            (self.offset, self.timestamp),
            self.written_key(),
            self.payload(),
            headers,
        )
    }

    /// Lets go of the batch: a record that waits long must not keep a thousand others in memory. Returns the bytes of
    /// the copy, 0 when there was one.
    pub(crate) fn copy_out(&mut self) -> usize {
        if self.copied {
            return 0;
        }
        let batch = self.data.clone();
        self.copy_with(crate::message::slice(&batch, &self.key));
        self.data.len()
    }

    /// Bytes of its copy, 0 while it is in its batch.
    pub(crate) fn copied(&self) -> usize {
        if self.copied { self.data.len() } else { 0 }
    }

    /// Moves into memory of its own, under `key`.
    fn copy_with(&mut self, key: &[u8]) {
        let headers = crate::message::slice(&self.data, &self.headers);
        let data = Bytes::from([key, self.payload().unwrap_or_default(), headers].concat());
        let end = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let (key_end, payload_end) = (end(key.len()), end(data.len() - headers.len()));
        self.headers = payload_end..end(data.len());
        self.payload = self.payload.as_ref().map(|_| key_end..payload_end);
        self.key = 0..key_end;
        self.data = data;
        self.copied = true;
    }

    pub(crate) fn message(&self, topic: &Arc<str>, partition: i32) -> Message {
        Message {
            topic: Arc::clone(topic),
            partition,
            offset: self.offset,
            timestamp: self.timestamp,
            data: self.data.clone(),
            key: self.key.clone(),
            payload: self.payload.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn in_batch(offset: i64, batch: &Bytes) -> Record {
        let mut record = Record::test(offset, "", None);
        (record.data, record.key, record.copied) = (batch.clone(), 0..9, false);
        record
    }

    #[cfg(test)]
    pub(crate) fn test(offset: i64, key: &str, payload: Option<&str>) -> Record {
        let end = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let data = Bytes::from([key.as_bytes(), payload.unwrap_or_default().as_bytes()].concat());
        let (key, whole) = (end(key.len()), end(data.len()));
        let id = payload.and_then(|payload| crate::json::scan(payload.as_bytes(), false).ok()?.id);
        Record {
            offset,
            timestamp: 0,
            leader_epoch: 0,
            received: 0,
            data,
            key: 0..key,
            payload: payload.map(|_| key..whole),
            headers: 0..0,
            header_count: 0,
            id,
            poison: None,
            copied: true,
        }
    }
}
