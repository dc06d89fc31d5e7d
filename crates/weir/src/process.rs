//! The process: start, reload, restart, and its threads.

pub mod acceptor;
pub mod file_check;
pub mod housekeeping;
pub mod notify;
pub mod pcp_programs;
pub mod pid_file;
pub mod renewal;
pub mod supervisor;
pub mod takeover;
pub mod tasks;
pub mod thread;
pub mod turns;
