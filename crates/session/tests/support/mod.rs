//! Sessions without sockets: a world of server connections and facts, clients in it, and messages as text.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod catalog;
pub mod client;
pub mod events;
pub mod host;
pub mod log;
pub mod notation;
pub mod oracle;
pub mod record;
pub mod render;
pub mod script;
pub mod server;
pub mod world;
