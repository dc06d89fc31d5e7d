//! Identity and rights of clients: login rules, passwords, directories, limits on guesses. Knows no worker.

pub mod access;
pub mod blocking_jobs;
pub mod challenges;
pub mod client_limits;
pub mod directory;
pub mod greetings;
pub mod guesses;
pub mod own_login;
pub mod pam;
pub mod privileges;
pub mod throttle;
pub mod trust;
