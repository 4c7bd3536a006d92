//! The boundary to .NET: a C interface without upcalls.
//!
//! Native code never calls into .NET. Threads of the host block in `pr_wait` and take events in batches; everything
//! the host says back is a call with a token. So no native thread is ever attached to the runtime of the host, no
//! delegate can be collected too early, and no memory of ours is reachable through a pointer once it was given back.
//!
//! | file | question it answers |
//! |---|---|
//! | `abi.rs` | what crosses the boundary? |
//! | `ffi.rs` | which calls are there? |
//! | `guard.rs` | what if we panic? |
//! | `handles.rs` | which object does a 64-bit handle mean? |
//! | `host.rs` | what is behind a handle? |
//! | `port.rs` | how does one client talk to .NET? |
//! | `bridge.rs` | how does an event of the runtime become a call of a .NET handler? |
//! | `queue.rs` | how do events reach .NET? |
//! | `slots.rs` | who owns a running event? |
//! | `failure.rs` | what went wrong, in the form .NET reads? |
//! | `pairs.rs` | how do options arrive? |
//! | `logs.rs` | where do log lines go? |

pub mod abi;
mod bridge;
mod failure;
pub mod ffi;
mod guard;
mod handles;
mod host;
mod logs;
mod pairs;
mod port;
mod queue;
mod slots;
