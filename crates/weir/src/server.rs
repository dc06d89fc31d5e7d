//! Connections to servers: made, kept, lent, given up; and what is known of the servers and their databases.

pub mod cached_results;
pub mod catalogs;
pub mod connection_list;
pub mod first_look;
pub mod follow;
pub mod listen_task;
pub mod loads;
pub mod min_pool;
pub mod name_scopes;
pub mod pool;
pub mod positions;
pub mod store_conn;
pub mod stores;
pub mod suspects;
