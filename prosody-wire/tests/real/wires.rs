//! What goes wrong between a client and a real broker: connections that are cut, and some that swallow everything.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prosody_wire::{BoxFuture, Connector, Stream, TcpConnector};
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::sync::watch;

/// Bytes under way in each direction.
const PIPE: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cut,
    Swallow,
}

/// TCP with somebody in between. A fault strikes the connections that are open when it comes, and no later ones, unless it
/// stays.
#[derive(Clone, Debug)]
pub(crate) struct Wires {
    fault: Arc<watch::Sender<Fault>>,
    stays: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Wires {
    pub(crate) fn new() -> Wires {
        Wires { fault: Arc::new(watch::channel(Fault::Cut).0), stays: Arc::default(), open: Arc::default() }
    }

    /// Ends every connection at once, whatever is under way.
    pub(crate) fn cut(&self) {
        self.fault.send_replace(Fault::Cut);
    }

    /// From now on nothing that is sent on the open connections arrives, either way, and nobody is told.
    pub(crate) fn swallow(&self) {
        self.fault.send_replace(Fault::Swallow);
    }

    /// The same for every connection to come.
    pub(crate) fn swallow_for_good(&self) {
        self.stays.store(true, Ordering::SeqCst);
        self.swallow();
    }

    /// Connections that neither side has ended.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Connector for Wires {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let mut real = TcpConnector.connect(host, port).await?;
            let (near, mut far) = tokio::io::duplex(PIPE);
            let (mut fault, open) = (self.fault.subscribe(), Arc::clone(&self.open));
            if self.stays.load(Ordering::SeqCst) {
                fault.mark_changed();
            }
            open.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    _ = fault.changed() => {
                        let struck = *fault.borrow();
                        if struck == Fault::Swallow {
                            // Until either side gives up; what arrives goes nowhere.
                            let (mut drain, mut hole) = (sink(), sink());
                            tokio::select! {
                                _ = copy(&mut real, &mut drain) => {}
                                _ = copy(&mut far, &mut hole) => {}
                            }
                        }
                    }
                    _ = copy_bidirectional(&mut real, &mut far) => {}
                }
                open.fetch_sub(1, Ordering::SeqCst);
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}
