//! The loader against the in-process broker.

use prosody_testkit::broker::{Action, ApiKey, Match};
use prosody_testkit::{Cluster, ClusterConfig};
use prosody_wire::{ClientConfig, ErrorCode, PipeConnector};

use super::*;

struct World {
    cluster: Cluster,
    loader: Loader,
    counters: Arc<Counters>,
    place: Place,
    doors: Doors,
}

fn world(records: usize, config: LoaderConfig) -> World {
    let doors = Doors::simulated(1);
    let cluster = Cluster::start(ClusterConfig { brokers: 2, ..ClusterConfig::default() }, doors.clone());
    cluster.create_topic("t", 2).unwrap();
    for n in 0..records {
        let key = format!("k{n}");
        cluster.append("t", 0, &[(Some(key.as_bytes()), Some(n.to_string().as_bytes()))]).unwrap();
    }
    let config_of = ClientConfig::new(cluster.bootstrap().split(','));
    let client = Client::new(config_of, Arc::new(PipeConnector(cluster.network())), doors.clone()).unwrap();
    let counters = Arc::<Counters>::default();
    let loader = Loader::new(&client, doors.clone(), config, Arc::clone(&counters));
    let place = Place { partition: TopicPartition::new("t", 0), topic_id: None };
    World { cluster, loader, counters, place, doors }
}

fn config() -> LoaderConfig {
    let isolation = IsolationLevel::ReadCommitted;
    LoaderConfig { cache_bytes: 1 << 20, seek_timeout: Duration::from_secs(30), isolation }
}

impl World {
    async fn load(&self, offset: i64) -> Result<Loaded, LoadError> {
        self.loader.load(&self.place, offset, -1).await
    }

    async fn value(&self, offset: i64) -> String {
        match self.load(offset).await.unwrap() {
            Loaded::Found(found) => String::from_utf8(found.record.value().unwrap().to_vec()).unwrap(),
            Loaded::Gone(gone) => format!("{gone:?}"),
        }
    }

    fn fetches(&self) -> usize {
        self.cluster.requests(ApiKey::FETCH).len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_is_one_fetch_and_what_was_read_is_kept() {
    let world = world(600, config());
    let (place, loader) = (&world.place, &world.loader);
    let scan = (0..500).chain(100..200).map(|offset| {
        let (place, loader) = (place.clone(), loader.clone());
        tokio::spawn(async move { (offset, loader.load(&place, offset, 0).await) })
    });
    for load in scan.collect::<Vec<_>>() {
        let (offset, loaded) = load.await.unwrap();
        let Loaded::Found(found) = loaded.unwrap() else { panic!("{offset} is there") };
        assert_eq!(found.record.offset(), offset);
        assert_eq!(found.record.value(), Some(offset.to_string().as_bytes()));
        assert!(found.record.data().len() < 10, "a copy");
    }
    assert_eq!(world.fetches(), 1);
    assert_eq!(world.value(250).await, "250");
    assert_eq!((world.fetches(), world.counters.read().reload_hits), (1, 1));
    world.loader.let_go(&world.place, 250);
    assert_eq!(world.value(250).await, "250");
    assert_eq!(world.fetches(), 2);
    world.loader.keep(
        &world.place,
        Found {
            record: Arc::new(Record::of_parts((550, 0), None, Some(b"kept"), (&[], 0))),
            leader_epoch: 0,
        },
    );
    assert_eq!(world.value(550).await, "kept");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_gone_and_its_neighbours_are_not() {
    let world = world(20, config());
    world.cluster.append("t", 0, &[(Some(b"k3"), Some(b"newer")), (Some(b"k4"), Some(b"newer"))]).unwrap();
    world.cluster.compact("t", 0);
    assert_eq!(world.value(3).await, "NoRecord");
    assert_eq!(world.value(5).await, "5");
    world.cluster.delete_records("t", 0, 6);
    world.loader.let_go(&world.place, 5);
    assert_eq!(world.value(5).await, "BelowLogStart(6)");
    assert_eq!(world.value(6).await, "6");
}

/// An offset in a transaction that stays open is not decided; others of its partition are.
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_decided_ends_with_its_place_and_holds_up_nobody() {
    let world = world(50, config());
    let silent = Action::Error(ErrorCode::OFFSET_NOT_AVAILABLE.0);
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH).times(2), silent);
    let before = world.doors.clock.now();
    let (stuck, other) = tokio::join!(world.load(70), async {
        let value = world.value(10).await;
        (value, world.doors.clock.now())
    });
    assert_eq!(other.0, "10");
    assert!(other.1 < before + Duration::from_secs(5), "{:?}", other.1 - before);
    assert_eq!(world.doors.clock.now(), before + Duration::from_secs(30));
    let error = stuck.expect_err("there is no such record yet").to_string();
    for part in ["topic t", "partition 0", "offset 70", "LoaderSeekTimeout", "the log ends at offset 50"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(world.cluster.control().hits(rule), 2);
    assert_eq!(world.counters.read().reloads_failed, 1);
    let denied = Action::Error(ErrorCode::TOPIC_AUTHORIZATION_FAILED.0);
    let rule = world.cluster.control().on(Match::api(ApiKey::FETCH), denied);
    let error = world.load(11).await.expect_err("denied").to_string();
    assert!(error.contains("TOPIC_AUTHORIZATION_FAILED") && error.contains("offset 11"), "{error}");
    world.cluster.control().remove(rule);
    assert_eq!(world.value(11).await, "11");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let fetches = world.fetches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fetches(), fetches, "nobody waits, nothing is read");
}

#[tokio::test(start_paused = true)]
async fn random_faults_neither_lose_a_record_nor_repeat_a_question_for_ever() {
    for seed in 0..20u64 {
        let world = world(100, LoaderConfig { cache_bytes: 2_000, ..config() });
        let faults = [
            Action::Error(ErrorCode::NOT_LEADER_OR_FOLLOWER.0),
            Action::CutBefore,
            Action::CutAfter,
            Action::Delay(Duration::from_millis(700)),
        ];
        for fault in faults {
            world.cluster.control().on(Match::any().probability(0.04), fault);
        }
        let lagging = Action::Error(ErrorCode::OFFSET_OUT_OF_RANGE.0);
        world.cluster.control().on(Match::api(ApiKey::FETCH).probability(0.2), lagging);
        world.cluster.delete_records("t", 0, 10);
        let loads = (0..100i64).map(|n| {
            let (loader, place, clock) =
                (world.loader.clone(), world.place.clone(), world.doors.clock.clone());
            tokio::spawn(async move {
                let offset = (n * 37 + seed as i64) % 100;
                clock.sleep(Duration::from_millis((n as u64 * 131) % 9_000)).await;
                (offset, loader.load(&place, offset, 0).await)
            })
        });
        for load in loads.collect::<Vec<_>>() {
            let (offset, loaded) = load.await.unwrap();
            match loaded.unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
                Loaded::Found(found) => {
                    assert_eq!(found.leader_epoch, 0);
                    assert!(offset >= 10, "seed {seed}: offset {offset} was deleted");
                    assert_eq!(found.record.value(), Some(offset.to_string().as_bytes()));
                }
                Loaded::Gone(gone) => assert!(offset < 10, "seed {seed}: offset {offset} is {gone:?}"),
            }
        }
    }
}
