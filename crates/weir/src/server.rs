//! Connections to servers: made, kept, lent, given up; and what is known of the servers and their databases.

pub mod bounds;
pub mod connection_list;
pub mod first_look;
pub mod lease;
pub mod listen_task;
pub mod min_pool;
pub mod names;
pub mod pool;
pub mod store_conn;
pub mod stores;
pub mod vouch;
