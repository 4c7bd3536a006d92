//! Where do log lines go? Into a bounded ring that one thread of the host drains, so that a slow sink never holds up a
//! connection. The oldest line goes first when the ring is full, and is counted.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError, RwLock};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::filter::Targets;

use crate::guard::clip;

/// Lines that wait for the host; also the lines kept from before it listens.
const RING_LINES: usize = 4_096;
/// Longest message or field value of one line.
const TEXT_BYTES: usize = 4 * 1024;
/// Most fields of one line.
const FIELDS: usize = 16;

/// One log line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    level: i32,
    line: u32,
    target: String,
    file: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
}

#[derive(Debug)]
struct Ring {
    lines: VecDeque<Line>,
    dropped: u64,
    woken: bool,
}

static RING: Mutex<Ring> = Mutex::new(Ring { lines: VecDeque::new(), dropped: 0, woken: false });
static READY: Condvar = Condvar::new();
static FILTER: RwLock<Option<Targets>> = RwLock::new(None);
/// What [`configure`] was last called with.
static ASKED: Mutex<(String, i32)> = Mutex::new((String::new(), -1));
/// The filter where none is given, or one that is none.
const DEFAULT: &str = "info";

/// Takes over the library's log lines; further calls do nothing.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only when this library already has a subscriber, which then keeps the lines.
        let _ = tracing::subscriber::set_global_default(Ringing);
    });
}

/// Sets what is logged: `tracing` directives (`info`, `prosody_wire=debug,info`), and a highest level from 0 (nothing)
/// to 5 (trace) that the host's sinks take. Directives that do not parse count as `info`, and one line says so: the host
/// calls this again and again, to follow its sinks.
pub(crate) fn configure(directives: &str, highest: i32) {
    let is_new = {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.0 == directives && asked.1 == highest {
            return;
        }
        let is_new = asked.0 != directives;
        *asked = (directives.to_owned(), highest);
        is_new
    };
    let most = match highest {
        i32::MIN..=0 => LevelFilter::OFF,
        1 => LevelFilter::ERROR,
        2 => LevelFilter::WARN,
        3 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted = if directives.trim().is_empty() { DEFAULT } else { directives };
    let parsed = wanted.parse::<Targets>();
    let filter = match &parsed {
        Ok(parsed) => parsed.clone(),
        Err(_) => Targets::new().with_default(LevelFilter::INFO),
    };
    let capped = Targets::new()
        .with_targets(filter.iter().map(|(target, level)| (target.to_owned(), level.min(most))))
        .with_default(filter.default_level().unwrap_or(LevelFilter::OFF).min(most));
    *FILTER.write().unwrap_or_else(PoisonError::into_inner) = Some(capped);
    tracing::callsite::rebuild_interest_cache();
    if let (Err(error), true) = (parsed, is_new) {
        tracing::warn!(
            "PROSODY_LOG: {wanted:?} is no list of `target=level`, so it counts as `{DEFAULT}`: {error}"
        );
    }
}

/// Waits for lines and writes as many whole ones as fit to `out`; the first is cut to fit. Returns the number of bytes.
///
/// A line is its byte length (u32), level, source line (i32 each), number of fields (u32), then texts (u32 length and
/// bytes): target, file, message, and name and value of each field.
pub(crate) fn take(out: &mut Vec<u8>, capacity: usize, timeout: Duration) -> u64 {
    let mut ring = lock();
    if ring.lines.is_empty() && ring.dropped == 0 && !ring.woken {
        ring = READY
            .wait_timeout_while(ring, timeout, |ring| ring.lines.is_empty() && !ring.woken)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    ring.woken = false;
    while let Some(line) = ring.lines.front() {
        let start = out.len();
        write(line, out);
        if out.len() > capacity {
            out.truncate(start);
            if start > 0 {
                break;
            }
            let mut short = line.clone();
            short.message = clip(short.message, capacity / 4);
            short.fields.clear();
            write(&short, out);
            if out.len() > capacity {
                out.clear();
                ring.dropped += 1;
            }
        }
        ring.lines.pop_front();
    }
    std::mem::take(&mut ring.dropped)
}

/// Ends a wait of [`take`] at once.
pub(crate) fn wake() {
    lock().woken = true;
    READY.notify_all();
}

fn lock() -> MutexGuard<'static, Ring> {
    RING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(line: &Line, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&line.level.to_le_bytes());
    out.extend_from_slice(&line.line.to_le_bytes());
    out.extend_from_slice(&(line.fields.len() as u32).to_le_bytes());
    let texts = [line.target.as_str(), line.file, line.message.as_str()];
    let fields = line.fields.iter().flat_map(|(name, value)| [*name, value.as_str()]);
    for text in texts.into_iter().chain(fields) {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    let len = ((out.len() - start) as u32).to_le_bytes();
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&len);
    }
}

/// Takes events; spans are not for logs.
struct Ringing;

impl Subscriber for Ringing {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // The filter changes rarely and then rebuilds this cache.
        if self.enabled(metadata) {
            tracing::subscriber::Interest::always()
        } else {
            tracing::subscriber::Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if !metadata.is_event() {
            return false;
        }
        match &*FILTER.read().unwrap_or_else(PoisonError::into_inner) {
            Some(filter) => filter.would_enable(metadata.target(), metadata.level()),
            None => *metadata.level() <= Level::INFO,
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line {
            level: match *metadata.level() {
                Level::ERROR => 1,
                Level::WARN => 2,
                Level::INFO => 3,
                Level::DEBUG => 4,
                Level::TRACE => 5,
            },
            line: metadata.line().unwrap_or(0),
            target: metadata.target().to_owned(),
            file: metadata.file().unwrap_or(""),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        let mut ring = lock();
        if ring.lines.len() >= RING_LINES {
            ring.lines.pop_front();
            ring.dropped += 1;
        }
        ring.lines.push_back(line);
        drop(ring);
        READY.notify_one();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.keep(field, text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.to_owned());
    }
}

impl Line {
    fn keep(&mut self, field: &Field, text: String) {
        let text = clip(text, TEXT_BYTES);
        if field.name() == "message" {
            self.message = text;
        } else if self.fields.len() < FIELDS {
            self.fields.push((field.name(), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain() -> (usize, String, u64) {
        let mut all = Vec::new();
        let (mut lines, mut dropped) = (0, 0);
        loop {
            let mut out = Vec::new();
            dropped += take(&mut out, 64 * 1024, Duration::ZERO);
            if out.is_empty() {
                return (lines, String::from_utf8_lossy(&all).into_owned(), dropped);
            }
            let mut rest = out.as_slice();
            while let Some((len, _)) = rest.split_first_chunk::<4>() {
                lines += 1;
                rest = &rest[u32::from_le_bytes(*len) as usize..];
            }
            all.extend_from_slice(&out);
        }
    }

    /// One test, because the ring and the filter belong to the process.
    #[test]
    fn lines_are_kept_filtered_cut_and_counted() {
        install();
        configure("info,quiet=error", 5);
        drain();
        tracing::info!(topic = "t", partition = 3, "fetched");
        tracing::debug!("too fine");
        tracing::warn!(target: "quiet", "filtered by its target");
        let (lines, text, dropped) = drain();
        assert_eq!((lines, dropped), (1, 0));
        for part in ["fetched", "topic", "partition", "logs.rs"] {
            assert!(text.contains(part), "{part} in {text:?}");
        }
        configure("info", 1);
        tracing::warn!("above what the host takes");
        assert_eq!(drain().0, 0);
        // The line about a wrong filter woke the host's thread, which asked for the filter again: lines without end.
        configure("not=a=filter", 5);
        tracing::info!("counts as info");
        tracing::debug!("too fine");
        configure("not=a=filter", 5);
        configure("not=a=filter", 1);
        tracing::info!("above what the host takes");
        configure("not=a=filter", 5);
        assert_eq!(drain().0, 2, "the line about the filter, and one of info");
        configure("info", 5);
        for n in 0..RING_LINES + 10 {
            tracing::info!(n, "flood");
        }
        let (lines, _, dropped) = drain();
        assert_eq!((lines, dropped), (RING_LINES, 10));
        let long = "x".repeat(100 * 1024);
        tracing::info!("{long}");
        let mut out = Vec::new();
        take(&mut out, 1_024, Duration::ZERO);
        assert!(!out.is_empty() && out.len() <= 1_024, "cut to fit, not lost");
        wake();
        take(&mut Vec::new(), 1_024, Duration::from_secs(3_600));
    }
}
