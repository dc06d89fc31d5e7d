//! The control thread, with its own runtime: watches nodes, catalogs and logs, and drives failover by `weir_failover`.

pub mod agent_client;
pub mod agent_watch;
pub mod catalog_watch;
pub mod cluster_view;
pub mod control_conn;
pub mod control_context;
pub mod engine_follow;
pub mod engine_state;
pub mod failover;
pub mod fine_timer;
pub mod group_acts;
pub mod look_waits;
pub mod node_monitor;
pub mod prepared_parts;
pub mod return_node;
pub mod shard_catalog;
pub mod shard_deadlocks;
pub mod shard_lines;
pub mod shard_setup;
pub mod sharding_look;
pub mod supervised;
pub mod upgrade_walk;
pub mod wal_follower;
