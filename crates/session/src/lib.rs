//! One client's session: the protocol and all its decisions.
//!
//! No socket, clock, thread or event loop is in here: messages lie in two lanes, all other input comes by [`context::Context`]. Effects
//! go through [`pump::ClientServerSockets`] and [`host::WorkerServices`] of the session, and [`host::ProgramServices`] of all.
//! `crates/weir` implements these, tests script them.

pub mod account;
pub mod catalogs;
pub mod causal;
pub mod checkout;
pub mod concern;
pub mod conn;
pub mod context;
pub mod doubt;
pub mod extended;
pub mod failing_parse;
pub mod fault;
pub mod flow;
pub mod from_client;
pub mod from_server;
pub mod handle;
pub mod histogram;
pub mod host;
mod last_look;
pub mod lazy_begin;
pub mod local;
pub mod loss;
pub mod metrics;
pub mod moves;
pub mod own_answers;
pub mod participants;
pub mod pipeline;
pub mod plan;
pub mod prepared;
pub mod pump;
pub mod query_cache;
pub mod read_retry;
pub mod replies;
pub mod reports;
pub mod rerun;
pub mod routing;
pub mod sequences;
pub mod session;
pub mod session_state;
pub mod sharding;
pub mod shown;
pub mod signals;
pub mod statement_log;
pub mod statement_statistics;
pub mod statements;
pub mod stats;
pub mod status;
pub mod table_changes;
pub mod task;
pub mod teardown;
pub mod time_limits;
pub mod timing;
pub mod unit;
pub mod upstream;
pub mod write_lease;
