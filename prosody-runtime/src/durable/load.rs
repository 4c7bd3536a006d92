//! How does an event get the record of its key before it starts? From memory, or here: without a permit, its key held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prosody_base::Lane;
use prosody_state::{EventId, KeyImage};

use super::Durable;
use super::deferred::brings_back;
use super::head::Head;
use super::images::Kept;
use crate::partition::event::Subject;
use crate::partition::keys::Keyed;
use crate::partition::runtime::Partition;
use crate::partition::window::{Admitted, Ending};
use crate::pipeline::event_id;

impl Durable {
    /// Gives every event the record of its key, and takes those out whose record has to be loaded: they come back to the
    /// partition by themselves.
    pub(crate) fn root(self: &Arc<Self>, partition: &Arc<Partition>, admitted: &mut Vec<Admitted>) {
        let mut unknown = false;
        for one in admitted.iter_mut() {
            one.root = self.known(one.event.key());
            unknown |= self.waits(one) || self.recall(one).is_some();
        }
        if unknown {
            for mut one in std::mem::take(admitted) {
                let waits = self.waits(&one) || self.recall(&mut one).is_some();
                admitted.extend(if waits { self.begin(partition, one) } else { Some(one) });
            }
        }
    }

    /// Whether something has to be read before an event starts: the record of its key, or what a timer brings back.
    fn waits(&self, one: &Admitted) -> bool {
        one.root.as_ref().is_none_or(|image| brings_back(&one.event, image))
    }

    /// The event to ask the store for: a message with an id that memory does not know. What memory knows is noted here,
    /// because it may have forgotten it when the event starts.
    fn recall(&self, one: &mut Admitted) -> Option<EventId> {
        let Subject::Message(record) = one.event.subject() else { return None };
        if one.seen.is_some() || record.poison.is_some() {
            return None;
        }
        let event = event_id(&self.pipeline, &self.tp, record)?;
        if self.pipeline.dedup.seen(event, self.doors.clock.now()) {
            one.seen = Some(true);
            return None;
        }
        Some(event)
    }

    /// Whether the store remembers an event that has to be asked for.
    async fn ask(&self, key: &Bytes, event: Option<EventId>) -> Option<bool> {
        let (event, mut tries) = (event?, 0);
        loop {
            match self.answered(self.store.seen(&[event])).await {
                Ok(seen) => return Some(seen.first() == Some(&true)),
                Err(why) => self.wait_out("asking for an event", key, &mut tries, &why).await,
            }
        }
    }

    /// The first step is taken here, so that a store that answers at once costs no task.
    fn begin(self: &Arc<Self>, partition: &Arc<Partition>, one: Admitted) -> Option<Admitted> {
        let (slot, ticket) = (one.slot, one.event.ticket());
        let mut loading: Pin<Box<dyn Future<Output = Admitted> + Send>> =
            Box::pin(complete(Arc::clone(self), one));
        let first = {
            let _runtime = self.doors.spawner.enter(Lane::Work);
            loading.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        if let Poll::Ready(one) = first {
            return Some(one);
        }
        let partition = Arc::clone(partition);
        let rest = async move {
            tokio::select! {
                biased;
                one = loading => partition.ready(one),
                () = partition.draining() => {
                    partition.finish(slot, ticket, Ending::Unfinished, &mut Vec::new(), &mut None);
                }
            }
        };
        self.doors.spawner.spawn(Lane::Work, rest).detach();
        None
    }
}

async fn complete(durable: Arc<Durable>, mut one: Admitted) -> Admitted {
    let key = Bytes::copy_from_slice(one.event.key());
    let (known, event) = (one.root.take(), durable.recall(&mut one));
    let loading = async {
        match known {
            Some(image) => image,
            None => load(&durable, &key).await,
        }
    };
    let (image, seen) = tokio::join!(loading, durable.ask(&key, event));
    one.seen = one.seen.or(seen);
    if brings_back(&one.event, &image) {
        durable.bring_back(&key, &image, &mut one.event).await;
        let event = durable.recall(&mut one);
        one.seen = one.seen.or(durable.ask(&key, event).await);
    }
    one.root = Some(image);
    one
}

async fn load(durable: &Durable, key: &Bytes) -> Arc<KeyImage> {
    let mut tries = 0;
    loop {
        match durable.answered(durable.store.load(durable.segment, key)).await {
            Ok(image) => {
                let image = Arc::new(image);
                durable.timers.loaded(key, &image);
                durable.keep(key, Kept { image: Arc::clone(&image), head: Head::default() }, None);
                return image;
            }
            Err(why) => durable.wait_out("loading the record of a key", key, &mut tries, &why).await,
        }
    }
}
