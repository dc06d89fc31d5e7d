//! A client, from its first packet to its session: who it is, what it may, what it has set.

pub mod access;
pub mod directory;
pub mod blocking_jobs;
pub mod flow;
pub mod key_derivation;
pub mod listen_hub;
pub mod inquiry;
pub mod session_state;
pub mod local;
pub mod pam;
pub mod client_limits;
pub mod session;
pub mod session_status;
pub mod startup;
pub mod state;
pub mod statements;
pub mod upstream;
pub mod greetings;
