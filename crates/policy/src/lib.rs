//! Every decision Weir takes, as pure functions of facts, time and dice. No IO, no clock, no randomness.
pub mod builtin;
pub mod by_sql;
pub mod cluster;
pub mod config;
pub mod console;
pub mod functions;
pub mod hba;
pub mod inventory;
pub mod params;
pub mod passwd;
pub mod pool;
pub mod prepared;
pub mod replies;
pub mod route;
pub mod settings;
pub mod throttle;
pub mod tls;
