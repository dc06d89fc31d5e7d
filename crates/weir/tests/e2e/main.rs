//! The proxy end to end: the built program before real PostgreSQL servers. One module per feature.
//!
//! Tests run in parallel on one shared cluster (`support::ground`), each with a database and a proxy of its own; those that stop,
//! promote or freeze a server make their own servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod auth;
mod auth_query;
mod begun;
mod builtin;
mod cache;
mod cache_catalog;
mod cache_classes;
mod cache_hostile;
mod cache_names;
mod cache_pgpool;
mod cache_types;
mod cache_wal;
mod cache_within;
mod cache_writes;
mod cancel;
mod catalog;
mod causal;
mod changed;
mod choice;
mod commands;
mod console;
mod control;
mod copy;
mod databases;
mod drivers;
mod encodings;
mod failover;
mod failover_clients;
mod hanging;
mod hba;
mod hidden;
mod history;
mod hostile;
mod hung;
mod import;
mod ldap;
mod limits;
mod listen;
mod logins;
mod logs;
mod lost;
mod malformed;
mod messages;
mod monitoring;
mod network;
mod outcome;
mod pam;
mod pass_through;
mod pcp;
mod pipelines;
mod pooling;
mod prepared;
mod protocol;
mod read_only;
mod readiness;
mod refused;
mod renamed;
mod replay;
mod replication;
mod restart;
mod reused;
mod rights;
mod roles;
mod room;
mod routing;
mod sequences;
mod session_state;
mod sessions;
mod show;
mod signals;
mod store_cluster;
mod store_faults;
mod store_tls;
mod stores;
mod stores_wal;
mod switchover;
mod tls;
mod transactions;
mod transparent;
mod triggers;
mod unseen_calls;
