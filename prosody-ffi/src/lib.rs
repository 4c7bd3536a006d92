//! The boundary to .NET: a C interface on which only threads of .NET run managed code.
//!
//! Threads of the host work for us in `pr_wait`: they poll the workers of the runtime, and the one function they pass
//! is called with each event, on their own stack. Everything else the host says is a call with a token. So no native
//! thread is ever attached to the runtime of the host, there is no delegate that could be collected too early, and no
//! memory of ours is reachable through a pointer once it was given back.
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
//! | `crew.rs` | who works for a client? |
//! | `pump.rs` | what does one thread of .NET do for us? |
//! | `task.rs` | when is a worker polled? |
//! | `slots.rs` | who owns a running event? |
//! | `failure.rs` | what went wrong, in the form .NET reads? |
//! | `pairs.rs` | how do options arrive? |
//! | `tokens.rs` | who asks .NET for tokens? |
//! | `metrics.rs` | how do the metrics reach .NET? |
//! | `logs.rs` | where do log lines go? |

pub mod abi;
mod bridge;
mod crew;
mod failure;
pub mod ffi;
mod guard;
mod handles;
mod host;
mod logs;
mod metrics;
mod pairs;
mod port;
mod pump;
mod scope;
mod slots;
mod task;
mod tokens;
