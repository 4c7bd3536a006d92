//! How does an event get the record of its key before it starts? From memory, or here: without a permit, its key held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prosody_base::Lane;
use prosody_state::KeyImage;

use super::Durable;
use crate::partition::keys::Keyed;
use crate::partition::runtime::Partition;
use crate::partition::window::Admitted;

impl Durable {
    /// Gives every event the record of its key, and takes those out whose record has to be loaded: they come back to the
    /// partition by themselves.
    pub(crate) fn root(self: &Arc<Self>, partition: &Arc<Partition>, admitted: &mut Vec<Admitted>) {
        let mut unknown = false;
        for one in admitted.iter_mut() {
            one.root = self.known(one.event.key());
            unknown |= one.root.is_none();
        }
        if unknown {
            for one in std::mem::take(admitted) {
                admitted.extend(if one.root.is_some() { Some(one) } else { self.begin(partition, one) });
            }
        }
    }

    /// The first step is taken here, so that a store that answers at once costs no task.
    fn begin(self: &Arc<Self>, partition: &Arc<Partition>, mut one: Admitted) -> Option<Admitted> {
        let key = Bytes::copy_from_slice(one.event.key());
        let mut loading: Pin<Box<dyn Future<Output = Arc<KeyImage>> + Send>> =
            Box::pin(load(Arc::clone(self), key));
        let first = {
            let _runtime = self.doors.spawner.enter(Lane::Work);
            loading.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        if let Poll::Ready(image) = first {
            one.root = Some(image);
            return Some(one);
        }
        let partition = Arc::clone(partition);
        let rest = async move {
            one.root = tokio::select! {
                biased;
                image = loading => Some(image),
                () = partition.draining() => None,
            };
            partition.ready(one);
        };
        self.doors.spawner.spawn(Lane::Work, rest).detach();
        None
    }
}

async fn load(durable: Arc<Durable>, key: Bytes) -> Arc<KeyImage> {
    let mut tries = 0;
    loop {
        match durable.answered(durable.store.load(durable.segment, &key)).await {
            Ok(image) => {
                let image = Arc::new(image);
                durable.timers.loaded(&key, &image);
                durable.keep(&key, &image);
                return image;
            }
            Err(why) => durable.wait_out("loading the record of a key", &key, &mut tries, &why).await,
        }
    }
}
