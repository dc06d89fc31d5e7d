//! A client, from its first packet to its session: who it is, what it may, what it has set.

pub mod access;
pub mod directory;
pub mod errand;
pub mod flow;
pub mod forge;
pub mod hub;
pub mod inquiry;
pub mod inventory;
pub mod local;
pub mod pam;
pub mod seats;
pub mod session;
pub mod session_card;
pub mod startup;
pub mod state;
pub mod statements;
pub mod upstream;
pub mod welcomes;
