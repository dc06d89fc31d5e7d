//! Commands of the program: the command line, `weir check`, `docs`, `man`, `demo`, `pcp`, `shard`, and password tools.

pub mod agent_status;
mod alert_rules;
pub mod check_servers;
pub mod cli;
mod command_pages;
mod config_files;
pub mod demo;
mod demo_group;
mod demo_pgbench;
mod demo_shards;
pub mod docs;
mod grafana_board;
pub mod http_probe;
pub mod manual_pages;
pub mod own_sql;
pub mod password_tools;
pub mod pcp_client;
pub mod progress_option;
pub mod prompt;
pub mod readiness;
pub mod shard;
pub mod witness;
