//! What an attempt says to whoever holds its context, and when it may be used again.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_loop_that_never_awaits_sees_its_timeout_and_a_waiter_is_told() {
    let clock = Clock::system();
    let attempt = Attempt::renew(Arc::new(Attempt::new(clock.clone())), clock.now() + Duration::from_secs(1));
    let context = Context::new(Arc::clone(&attempt));
    assert!(!context.should_cancel());
    clock.sleep(Duration::from_secs(1)).await;
    assert!(context.should_cancel());
    attempt.cancel();
    context.cancelled().await;
}

#[tokio::test]
async fn an_attempt_is_reused_only_when_nobody_can_see_it() {
    let clock = Clock::system();
    let first = Attempt::renew(Arc::new(Attempt::new(clock.clone())), clock.now());
    let address = Arc::as_ptr(&first);
    let second = Attempt::renew(first, clock.now());
    assert_eq!(Arc::as_ptr(&second), address);
    let kept = Context::new(Arc::clone(&second));
    kept.attempt.cancel();
    let third = Attempt::renew(second, clock.now() + Duration::from_secs(9));
    assert!(kept.should_cancel() && !third.is_cancelled());
}

#[tokio::test]
async fn the_farewell_waits_for_the_last_occupant() {
    let attempt = Arc::new(Attempt::new(Clock::system()));
    let (first, said) = (attempt.enter(), Arc::new(AtomicBool::new(false)));
    let second = first.clone();
    let say = Arc::clone(&said);
    attempt.when_vacant(move || say.store(true, Ordering::Release));
    drop(first);
    assert!(!said.load(Ordering::Acquire));
    drop(second);
    assert!(said.load(Ordering::Acquire));
}
