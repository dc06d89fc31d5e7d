//! A session at work: where its statements go, and the bytes between it and the server.

pub mod checkout;
pub mod empty_database;
pub mod host;
pub mod outcome;
pub mod relay;
pub mod replication;
pub mod served;
pub mod teardown;
pub mod timeouts;
