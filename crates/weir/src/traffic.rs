//! A session at work: where its statements go, and the bytes between it and the server.

pub mod pipeline;
pub mod checkout;
pub mod answer;
pub mod lazy_begin;
pub mod query_cache;
pub mod causal;
pub mod concern;
pub mod extended;
pub mod classify;
pub mod teardown;
pub mod read_retry;
pub mod timeouts;
pub mod relay;
pub mod replication;
pub mod sequences;
pub mod result_shape;
pub mod shown;
pub mod signals;
pub mod timing;
pub mod unit;
pub mod empty_database;
pub mod read_preference;
