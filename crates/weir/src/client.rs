//! A client, from its first packet to its session: who it is, what it may, what it has set.

pub mod access;
pub mod blocking_jobs;
pub mod challenges;
pub mod client_limits;
pub mod directory;
pub mod greetings;
pub mod guesses;
pub mod inquiry;
pub mod key_derivation;
pub mod pam;
pub mod privileges;
pub mod startup;
