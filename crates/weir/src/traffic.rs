//! Sessions at work: waits for server connections, relay, time limits.

pub mod ask_outcome;
pub mod checkout_wait;
pub mod empty_database;
pub mod gather_plan;
pub mod relay;
pub mod replication;
pub mod served;
pub mod session_end;
pub mod session_ports;
pub mod shard_commit;
pub mod shard_gather;
pub mod shard_snapshots;
pub mod timeouts;
