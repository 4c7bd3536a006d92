//! How does an event get the record of its key before it starts? From memory, or here: without a permit, its key held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prosody_base::Lane;
use prosody_state::KeyImage;

use super::Durable;
use super::deferred::brings_back;
use crate::partition::keys::Keyed;
use crate::partition::runtime::Partition;
use crate::partition::window::{Admitted, Ending};

impl Durable {
    /// Gives every event the record of its key, and takes those out whose record has to be loaded: they come back to the
    /// partition by themselves.
    pub(crate) fn root(self: &Arc<Self>, partition: &Arc<Partition>, admitted: &mut Vec<Admitted>) {
        let mut unknown = false;
        for one in admitted.iter_mut() {
            one.root = self.known(one.event.key());
            unknown |= self.waits(one);
        }
        if unknown {
            for one in std::mem::take(admitted) {
                admitted.extend(if self.waits(&one) { self.begin(partition, one) } else { Some(one) });
            }
        }
    }

    /// Whether something has to be read before an event starts: the record of its key, or what a timer brings back.
    fn waits(&self, one: &Admitted) -> bool {
        one.root.as_ref().is_none_or(|image| brings_back(&one.event, image))
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
    let image = match one.root.take() {
        Some(image) => image,
        None => load(&durable, &key).await,
    };
    durable.bring_back(&key, &image, &mut one.event).await;
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
                durable.keep(key, &image);
                return image;
            }
            Err(why) => durable.wait_out("loading the record of a key", key, &mut tries, &why).await,
        }
    }
}
