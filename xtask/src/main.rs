#![forbid(unsafe_code)]
//! The commands people type.
fn main() {}
