//! The operators' interfaces: the console, SHOW, metrics, logs.

pub mod console;
pub mod exposition;
pub mod fault;
pub mod histogram;
pub mod log;
pub mod metrics;
pub mod pause_state;
pub mod probes;
pub mod statement_log;
pub mod stats;
pub mod views;
