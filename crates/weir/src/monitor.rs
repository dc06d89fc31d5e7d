//! The operators' interfaces: the console, SHOW, metrics, logs.

pub mod agents_seen;
pub mod console;
pub mod exposition;
pub mod log;
pub mod pause_state;
pub mod probes;
pub mod views;
