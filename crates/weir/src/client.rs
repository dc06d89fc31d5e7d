//! A client, from its first packet to its session.

pub mod peers;
pub mod startup;
