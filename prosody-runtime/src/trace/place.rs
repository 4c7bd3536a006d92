//! Where does an attempt run in a trace? Said when it begins, and again by a binding that makes a span of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Lineage, TraceContext};
use crate::config::SpanRelation;

/// The place of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Place(Mutex<Option<Located>>);

#[derive(Debug)]
struct Located {
    lineage: Lineage,
    /// Somebody else records its span.
    recorded: bool,
}

impl Place {
    /// For another attempt in the same memory.
    pub(crate) fn forget(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Says where it begins, and returns that.
    pub(crate) fn begin(&self, lineage: Lineage) -> TraceContext {
        let here = lineage.here.clone();
        *self.lock() = Some(Located { lineage, recorded: false });
        here
    }

    /// See [`Context::locate`](crate::Context::locate).
    pub(crate) fn locate(&self, here: TraceContext, recorded: bool) {
        let mut located = self.lock();
        match &mut *located {
            Some(located) => {
                located.lineage.here = located.lineage.here.moved_to(&here);
                located.recorded = recorded;
            }
            None => {
                let lineage = Lineage { here, origin: None, relation: SpanRelation::Child };
                *located = Some(Located { lineage, recorded });
            }
        }
    }

    pub(crate) fn here(&self) -> Option<TraceContext> {
        self.lock().as_ref().map(|located| located.lineage.here.clone())
    }

    pub(crate) fn lineage(&self) -> Option<Lineage> {
        self.lock().as_ref().map(|located| located.lineage.clone())
    }

    /// Whether somebody else records its span.
    pub(crate) fn is_recorded(&self) -> bool {
        self.lock().as_ref().is_some_and(|located| located.recorded)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Located>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
