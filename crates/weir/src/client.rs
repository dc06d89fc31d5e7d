//! A client, from its first packet to its session.

pub mod peer_cancels;
pub mod startup;
