//! How do bytes become requests? Listeners over pipes and TCP, perhaps with TLS, frames, and answers in order.

mod connection;
mod frames;
mod listen;
mod tls;

pub(crate) use listen::{listen_pipe, listen_tcp};
pub use tls::ServerTls;
