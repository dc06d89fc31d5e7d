//! State shared by threads, the worker, and server connections that sessions lease.

pub mod agent_line;
pub mod agents_seen;
pub mod bounds;
pub mod group_seat;
pub mod inherit;
pub mod key_derivation;
pub mod lease;
pub mod listeners;
pub mod mail;
pub mod node_defaults;
pub mod operator_files;
pub mod pause_state;
pub mod places;
pub mod pool;
pub mod prepared_seen;
pub mod probes;
pub mod recoveries;
pub mod server_names;
pub mod shared;
pub mod shell_command;
pub mod stores;
pub mod supervised_tasks;
pub mod tls_choice;
pub mod tls_files;
pub mod user_roles;
pub mod worker;
