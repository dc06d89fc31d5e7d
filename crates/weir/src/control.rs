//! The control plane: it watches nodes, catalogs and logs, answers over HTTP and PCP, and serves no client. One thread, with a runtime of its own.

pub mod agent;
pub mod agent_watch;
pub mod alarm;
pub mod catalog_watch;
pub mod cluster_view;
pub mod conn;
pub mod context;
pub mod failover;
pub mod http;
pub mod look_places;
pub mod mail;
pub mod node_monitor;
pub mod pcp;
pub mod return_node;
pub mod supervised;
pub mod thread;
pub mod upgrade_walk;
pub mod wal_follower;
