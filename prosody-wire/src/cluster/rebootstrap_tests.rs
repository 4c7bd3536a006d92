//! Is a broker obeyed that sends its clients back to the bootstrap addresses?

use super::*;

/// A cluster moved away, and its old brokers still answered: their clients stayed with them (KIP-1102).
#[tokio::test(start_paused = true)]
async fn a_broker_that_sends_us_back_to_the_bootstrap_addresses_is_obeyed() {
    let network = Network::default();
    // How often the old broker has said so; 0 while it does not.
    let said = Arc::new(AtomicUsize::new(0));
    let at = |address: &'static str, said: Arc<AtomicUsize>| {
        move |asked: &Asked| match asked.api {
            ApiKey::Metadata if said.load(Ordering::SeqCst) > 0 => {
                said.fetch_add(1, Ordering::SeqCst);
                let code = ErrorCode::REBOOTSTRAP_REQUIRED.0;
                Reaction::Answer(asked.message(&metadata(&[], vec![]).with_error_code(code)))
            }
            ApiKey::Metadata => {
                Reaction::Answer(asked.message(&metadata(&[(1, address, 1)], vec![topic("t", 7, &[(1, 0)])])))
            }
            _ => Reaction::Silence,
        }
    };
    let (_, _old) = serve(&network, "old:1", at("old", Arc::clone(&said)));
    let (_, _new) = serve(&network, "new:1", at("new", Arc::default()));
    let (connector, client) = behind_a_name(&network);
    let cluster = client.cluster();
    let clock = &cluster.doors().clock;
    cluster.topic("t", clock.now() + LONG).await.expect("there");
    *connector.now_at.lock().expect("whole") = "new";
    cluster.refresh(clock.now() + LONG).await.expect("the old one answers");
    assert_eq!(&*cluster.metadata().brokers[&BrokerId(1)].host, "old");
    said.store(1, Ordering::SeqCst);
    cluster.refresh(clock.now() + LONG).await.expect("found again");
    assert_eq!(&*cluster.metadata().brokers[&BrokerId(1)].host, "new");
    assert_eq!(said.load(Ordering::SeqCst), 2, "it is asked once");
}
