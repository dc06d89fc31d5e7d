//! The process: command line, start, reload, restart, threads and what they share.

pub mod acceptor;
pub mod agent_line;
pub mod agent_status;
pub mod check_servers;
pub mod cli;
pub mod demo;
pub mod docs;
pub mod files;
pub mod housekeeping;
pub mod inherit;
pub mod keeper;
pub mod notify;
pub mod password_tools;
pub mod pcp_client;
pub mod pcp_programs;
pub mod pid_file;
pub mod places;
pub mod prompt;
pub mod shared;
pub mod supervised_tasks;
pub mod supervisor;
pub mod takeover;
pub mod tasks;
pub mod tls_files;
pub mod trust;
pub mod worker;
