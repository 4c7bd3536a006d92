//! Who asks .NET for tokens? The provider of a client whose options have a callback. A question is an event, and its
//! answer a call with the question's number, so nobody waits on a thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prosody_runtime::{BoxFuture, Token, TokenError, TokenProvider};
use tokio::sync::oneshot;

use crate::crew::Crew;
use crate::port::Event;
use crate::slots::Stale;

type Answer = Result<Token, TokenError>;

/// Questions to .NET that wait for their answers. The client gives each a deadline and drops it then.
#[derive(Debug)]
pub(crate) struct Tokens {
    crew: Arc<Crew>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    asked: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
}

impl Tokens {
    pub(crate) fn new(crew: Arc<Crew>) -> Arc<Tokens> {
        Arc::new(Tokens { crew, open: Mutex::default() })
    }

    /// What .NET says to a question; stale when nobody waits for it any more.
    pub(crate) fn answer(&self, question: u64, answer: Answer) -> Result<(), Stale> {
        let waiting = self.open().waiting.remove(&question).ok_or(Stale)?;
        waiting.send(answer).map_err(|_| Stale)
    }

    fn ask(&self) -> (Question<'_>, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let mut open = self.open();
        open.asked += 1;
        let number = open.asked;
        open.waiting.insert(number, sender);
        drop(open);
        self.crew.push(Event::Token(number));
        (Question { tokens: self, number }, receiver)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenProvider for Tokens {
    fn token(&self) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let (_question, answer) = self.ask();
            answer.await.unwrap_or_else(|_| Err(TokenError::unavailable("the client was closed")))
        })
    }
}

/// A question that is asked. Dropped before its answer, it is taken back.
struct Question<'a> {
    tokens: &'a Tokens,
    number: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let unanswered = self.tokens.open().waiting.remove(&self.number);
        if unanswered.is_some() {
            self.tokens.crew.push(Event::TokenCancel(self.number));
        }
    }
}

/// A token as .NET describes it; a lifetime of 0 milliseconds has no end.
pub(crate) fn token(value: String, lifetime_ms: u64, extensions: Vec<(String, String)>) -> Token {
    let token =
        extensions.into_iter().fold(Token::new(value), |token, (name, value)| token.extension(name, value));
    if lifetime_ms == 0 { token } else { token.lifetime(Duration::from_millis(lifetime_ms)) }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use prosody_base::Doors;

    use super::*;
    use crate::port::Port;

    fn poll(future: &mut BoxFuture<'_, Answer>) -> Poll<Answer> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_question_has_one_answer_and_one_number() {
        let tokens = Tokens::new(Arc::clone(&Port::new(Doors::process().expect("doors")).crew));
        let mut first = tokens.token();
        assert!(poll(&mut first).is_pending());
        assert_eq!(tokens.answer(2, Err(TokenError::unavailable("no"))), Err(Stale), "nobody asked that");
        assert_eq!(tokens.answer(1, Ok(token("a".to_owned(), 0, Vec::new()))), Ok(()));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(Token::new("a"))));
        drop(first);
        assert_eq!(tokens.answer(1, Err(TokenError::unavailable("no"))), Err(Stale), "it was answered");
        let mut second = tokens.token();
        assert!(poll(&mut second).is_pending());
        drop(second);
        assert_eq!(tokens.answer(2, Err(TokenError::unavailable("no"))), Err(Stale), "it was taken back");
    }

    #[test]
    fn a_lifetime_and_extensions_come_with_a_token() {
        let extensions = vec![("a".to_owned(), "b".to_owned())];
        let wanted = Token::new("x").extension("a", "b").lifetime(Duration::from_millis(7));
        assert_eq!(token("x".to_owned(), 7, extensions), wanted);
    }
}
