//! How do bytes become requests? Listeners over pipes and TCP, frames, and answers in order.

mod connection;
mod frames;
mod listen;

pub(crate) use listen::{listen_pipe, listen_tcp};
