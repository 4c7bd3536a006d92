//! Which token counts now, and who asks for the next one in time? One task for each client, started by its first dial.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prosody_base::{Doors, Instant, Lane, Task, sabotaged, watch};
use tokio::sync::Notify;

use super::bearer::{Token, TokenError, TokenProvider};
use crate::error::{Error, ErrorKind};
use crate::limits::Limits;

/// Longest wait for a provider.
const ANSWER: Duration = Duration::from_secs(10);
/// Share of a token's life after which the next one is asked for, so that a provider may be away for the rest.
const REFRESH_AT: f64 = 0.8;
/// Shortest time between two questions, whatever lifetime a provider claims and however often brokers refuse.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest life of a token that is believed.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Wait after a provider said no for good: somebody may have changed its mind, but it is not asked over and over.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum State {
    Asking,
    Known(Arc<Token>, Option<Instant>),
    Failed(TokenError),
}

#[derive(Debug)]
pub(crate) struct Tokens {
    provider: Arc<dyn TokenProvider>,
    limits: Limits,
    doors: Doors,
    /// Rung when a broker refused the token: ask for another one.
    refused: Arc<Notify>,
    task: OnceLock<(watch::Receiver<State>, Task<()>)>,
}

impl Tokens {
    pub(super) fn new(provider: Arc<dyn TokenProvider>, limits: Limits, doors: Doors) -> Tokens {
        Tokens { provider, limits, doors, refused: Arc::default(), task: OnceLock::new() }
    }

    /// The token that counts now.
    pub(crate) async fn current(&self, deadline: Instant) -> Result<Arc<Token>, Error> {
        let failed = |kind| Error::new("asking for a token", kind);
        let (state, _) = self.task.get_or_init(|| self.start());
        let mut state = state.clone();
        let clock = &self.doors.clock;
        let known = async {
            let settled = |state: &State| match state {
                State::Asking => false,
                State::Known(_, until) => until.is_none_or(|until| clock.now() < until),
                State::Failed(_) => true,
            };
            state.wait_for(settled).await.map(|state| state.clone())
        };
        match clock.until(deadline, known).await {
            Ok(Ok(State::Known(token, _))) => Ok(token),
            Ok(Ok(State::Failed(why))) => Err(failed(ErrorKind::Token(why))),
            Ok(Ok(State::Asking)) | Err(_) => Err(failed(ErrorKind::Timeout)),
            Ok(Err(watch::Gone)) => {
                Err(failed(ErrorKind::Token(TokenError::refused("its provider panicked"))))
            }
        }
    }

    /// A broker did not accept this token: another one is asked for, unless that happened already.
    pub(crate) fn refused(&self, token: &Arc<Token>) {
        let Some((state, _)) = self.task.get() else { return };
        if matches!(&*state.borrow(), State::Known(known, _) if Arc::ptr_eq(known, token)) {
            self.refused.notify_one();
        }
    }

    fn start(&self) -> (watch::Receiver<State>, Task<()>) {
        let (sender, receiver) = watch::channel(State::Asking);
        let keeper = Keeper {
            provider: Arc::clone(&self.provider),
            limits: self.limits.clone(),
            doors: self.doors.clone(),
            refused: Arc::clone(&self.refused),
        };
        (receiver, self.doors.spawner.spawn(Lane::Io, async move { keeper.run(&sender).await }))
    }
}

struct Keeper {
    provider: Arc<dyn TokenProvider>,
    limits: Limits,
    doors: Doors,
    refused: Arc<Notify>,
}

impl Keeper {
    async fn run(&self, state: &watch::Sender<State>) {
        let clock = &self.doors.clock;
        let mut failures = 0;
        loop {
            let asked = clock.now();
            let wait = match self.ask().await {
                Ok(token) => {
                    failures = 0;
                    let lives = token.lives().map(|lives| lives.min(LONGEST));
                    state.send_replace(State::Known(Arc::new(token), lives.map(|lives| asked + lives)));
                    let share = if sabotaged("token-early") { 1.0 } else { REFRESH_AT };
                    lives.map(|lives| lives.mul_f64(share).max(SHORTEST))
                }
                Err(why) => {
                    tracing::warn!(error = %why, "a new token cannot be had; trying again");
                    let Limits { backoff, backoff_max, .. } = self.limits;
                    let pause = self.doors.rng.backoff(backoff, backoff_max, failures);
                    failures += 1;
                    let pause = if why.is_retriable() { pause } else { AFTER_REFUSAL };
                    Some(self.keep(state, why, clock.now() + pause))
                }
            };
            self.pause(asked, wait).await;
        }
    }

    /// One question, bounded, and its answer if a broker could read it.
    async fn ask(&self) -> Result<Token, TokenError> {
        let clock = &self.doors.clock;
        let answer = clock.until(clock.now() + ANSWER, self.provider.token()).await;
        let token = answer.unwrap_or_else(|_| {
            Err(TokenError::unavailable(format!("its provider did not answer within {ANSWER:?}")))
        })?;
        token.problem().map_or(Ok(token), |why| Err(TokenError::refused(format!("its provider gave {why}"))))
    }

    /// A token that still counts stays; else the failure is what dials are told. Returns how long to wait: not beyond
    /// the end of the old token, when the failure becomes theirs.
    fn keep(&self, state: &watch::Sender<State>, why: TokenError, next: Instant) -> Duration {
        let now = self.doors.clock.now();
        let old = match &*state.borrow() {
            State::Known(_, until) => until.filter(|until| now < *until),
            _ => None,
        };
        match old {
            Some(until) => next.min(until).saturating_duration_since(now),
            None => {
                state.send_replace(State::Failed(why));
                next.saturating_duration_since(now)
            }
        }
    }

    /// Waits until the next question: as long as said, for ever, or until a broker refused the token.
    async fn pause(&self, asked: Instant, wait: Option<Duration>) {
        let clock = &self.doors.clock;
        let refused = async {
            self.refused.notified().await;
            clock.sleep_until(asked + SHORTEST).await;
        };
        match wait {
            None => refused.await,
            Some(wait) => {
                let _ = clock.until(clock.now() + wait, refused).await;
            }
        }
    }
}
