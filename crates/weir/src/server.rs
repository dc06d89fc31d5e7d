//! Tasks for the connections to servers and result stores.

pub mod connection_list;
pub mod first_look;
pub mod inquiry;
pub mod listen_task;
pub mod min_pool;
pub mod shard_gate;
pub mod store_conn;
pub mod vouch;
pub mod xid_status;
