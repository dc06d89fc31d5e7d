//! A session at work: where its statements go, and the bytes between it and the server.

pub mod answer;
pub mod causal;
pub mod checkout;
pub mod classify;
pub mod concern;
pub mod empty_database;
pub mod extended;
pub mod lazy_begin;
pub mod pipeline;
pub mod plan;
pub mod query_cache;
pub mod read_preference;
pub mod read_retry;
pub mod relay;
pub mod replication;
pub mod result_shape;
pub mod sequences;
pub mod shown;
pub mod signals;
pub mod teardown;
pub mod timeouts;
pub mod timing;
pub mod unit;
