//! What happens to a partition that is given up while something runs.

use std::time::Duration;

use prosody_base::Clock;

use super::*;
use crate::context::Attempt;
use crate::partition::offset_map::OffsetMap;
use crate::partition::offsets::Offsets;
use crate::schedule::fair::Policy;

/// A handler that ended at the very end of its partition's drain was noted twice and released once: its key never ran again
/// in this process.
#[tokio::test(start_paused = true)]
async fn a_handler_holds_its_key_once_however_often_its_partition_is_closed() {
    let clock = Clock::simulated();
    let policy = Policy { failure_weight: 0.3, max_wait: Duration::from_secs(120), wait_weight: 200.0 };
    let seats = Arc::new(Mutex::new(Vec::new()));
    let launch = {
        let seats = Arc::clone(&seats);
        Box::new(move |_: &Arc<Gate>, seat| seats.lock().unwrap().push(seat))
    };
    let gate = Gate::new((1, policy), 1, Arc::default(), clock.clone(), launch);
    let shared =
        Shared { gate: Arc::clone(&gate), retries: Arc::default(), held: Arc::default(), key_seed: 1 };
    let window = Window::new(Offsets::new(OffsetMap::empty(None, 0), 0), 8, 7);
    let partition = Partition::new(7, TopicPartition::new("t", 0), window, shared, None);
    partition.push(&mut vec![Record::test(3, "key", Some("1"))], 4, 0);
    let one = gate.take(7).pop().expect("an event");
    let (slot, ticket) = (one.slot, one.event.ticket());
    let (position, since, attempt) = (one.event.position(), clock.now(), Arc::new(Attempt::new(clock)));
    let seat: Arc<crate::schedule::gate::Seat> = seats.lock().unwrap().pop().expect("a worker");
    seat.sit(Running { partition: 7, slot, position, since, attempt });

    partition.drain();
    assert_eq!(partition.close(), [("key".to_owned(), position)]);
    assert_eq!(partition.close(), []);
    assert_eq!(partition.abandoned().len(), 1);
    partition.finish(slot, ticket, Ending::Unfinished, &mut Vec::new(), &mut None);
    assert_eq!(partition.abandoned(), []);
}
