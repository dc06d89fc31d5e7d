//! The control thread: it watches nodes, catalogs and logs, decides failover by `weir_policy`, and serves no client. One thread, with a runtime of its own.

pub mod agent;
pub mod agent_watch;
pub mod alarm;
pub mod catalog_watch;
pub mod cluster_view;
pub mod conn;
pub mod context;
pub mod failover;
pub mod look_places;
pub mod node_monitor;
pub mod return_node;
pub mod supervised;
pub mod upgrade_walk;
pub mod wal_follower;
