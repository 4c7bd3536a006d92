//! Who sends the records of a run, and what were they told of each?
//!
//! Half of the keys go through the shipped client. The others go through its producer with batches of a few records and
//! in bursts, so that several batches of one partition are on the wire when a fault strikes; many of their sends have
//! so little time that they end while nobody knows what became of their batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prosody_base::{Doors, Lane, Rng, Task};
use prosody_testkit::check::Told;
use prosody_testkit::sim::{KEYS, SENDS, STORM};
use prosody_wire::produce::{OutgoingRecord, Producer, ProducerConfig, SendOutcome};
use prosody_wire::{Client, ClientConfig, PipeConnector};

use crate::member::{Role, client};
use crate::scene::{Scene, TOPIC};

/// Bytes of a batch of the rapid sender: some records.
const BATCH: usize = 200;
/// Share of moments at which a burst is sent, in percent.
const BURSTS: u64 = 15;
/// Records of a burst, at most.
const BURST: u64 = 12;
/// Longest a send of the shipped client lasts, and one of the rapid sender that is in no hurry.
const PATIENT: Duration = Duration::from_secs(60);
/// Longest a hurried send lasts.
const HURRIED: Duration = Duration::from_secs(3);

/// Share of callers that go away before they are told, in percent.
const DROPPED: u64 = 5;
/// Longest such a caller waits.
const IMPATIENT: Duration = Duration::from_millis(20);

/// Sends every record at its random moment of the storm, in one order, and notes what it was told of each.
pub(crate) async fn send_all(scene: Arc<Scene>, doors: Doors, rng: Rng) {
    let senders = Senders::new(&scene, doors.clone(), &rng);
    let mut waiting: Vec<Task<()>> = Vec::new();
    let sends = usize::try_from(SENDS).unwrap();
    let step = STORM / u32::try_from(SENDS).unwrap();
    while waiting.len() < sends {
        let key = rng.below(KEYS);
        let count = if rng.below(100) < BURSTS { 1 + rng.below(BURST) } else { 1 };
        for _ in 0..count {
            let value = format!("v-{}", waiting.len());
            // Ids of some: those pass the client's memory of what it has done.
            let name = if rng.below(2) == 0 { "id" } else { "number" };
            let told = senders.send(key, &format!("{{\"{name}\":\"{value}\"}}"), &rng);
            let (scene, clock) = (Arc::clone(&scene), doors.clock.clone());
            let leaves = (rng.below(100) < DROPPED).then(|| IMPATIENT.mul_f64(rng.unit()));
            waiting.push(doors.spawner.spawn(Lane::Work, async move {
                let told = match leaves {
                    None => told.await,
                    Some(after) => clock.until(clock.now() + after, told).await.unwrap_or_else(|_| {
                        scene.strikes("drop-caller");
                        Told::Unknown
                    }),
                };
                scene.history.sent(&value, &key_of(key), told);
            }));
        }
        let pause = step.mul_f64(2.0 * rng.unit()) * u32::try_from(count).unwrap();
        doors.clock.sleep(pause).await;
    }
    for sent in waiting {
        let _ = sent.await;
    }
    let _ = senders.shipped.close().await;
    let _ = senders.rapid.close(doors.clock.now() + HURRIED).await;
}

fn key_of(key: u64) -> String {
    format!("k{key}")
}

struct Senders {
    shipped: prosody_runtime::Client,
    rapid: Producer,
    doors: Doors,
}

impl Senders {
    fn new(scene: &Scene, doors: Doors, rng: &Rng) -> Senders {
        let patience = HURRIED + PATIENT.saturating_sub(HURRIED).mul_f64(rng.unit());
        let role = Role::Sends(patience);
        let shipped = client("sender", role, &scene.cluster, &doors, None);
        let bootstrap = scene.cluster.bootstrap();
        let config =
            ClientConfig { client_id: "rapid".to_owned(), ..ClientConfig::new(bootstrap.split(',')) };
        let own = Doors { rng: doors.rng.fork(), ..doors.clone() };
        let wire = Client::new(config, Arc::new(PipeConnector(scene.cluster.network())), own)
            .expect("the configuration is right");
        let rapid = Producer::new(&wire, ProducerConfig { batch_size: BATCH, ..ProducerConfig::default() });
        Senders { shipped, rapid, doors }
    }

    /// Takes the record's place in the order now; the future says what its sender was told.
    fn send(&self, key: u64, payload: &str, rng: &Rng) -> Pin<Box<dyn Future<Output = Told> + Send>> {
        let key_text = key_of(key);
        if key.is_multiple_of(2) {
            let sent = self.shipped.send(TOPIC, &key_text, payload.as_bytes());
            return Box::pin(async move {
                match sent.await {
                    Ok(delivery) => Told::Written(delivery.offset),
                    Err(error) if error.may_have_been_written() => Told::Unknown,
                    Err(_) => Told::NotWritten,
                }
            });
        }
        let longest = if rng.below(2) == 0 { HURRIED } else { PATIENT };
        let record = OutgoingRecord {
            topic: TOPIC,
            partition: None,
            key: Some(key_text.as_bytes()),
            value: Some(payload.as_bytes()),
            headers: &[],
            timestamp: None,
        };
        let sent = self.rapid.send(record, Some(self.doors.clock.now() + longest.mul_f64(rng.unit())));
        Box::pin(async move {
            match sent.await {
                Ok(delivery) => Told::Written(delivery.offset),
                Err(error) if error.outcome == SendOutcome::Unknown => Told::Unknown,
                Err(_) => Told::NotWritten,
            }
        })
    }
}
