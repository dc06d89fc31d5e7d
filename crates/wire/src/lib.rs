//! Codecs of PostgreSQL's frontend/backend protocol 3, result stores and PCP, and seals of Weir's own connections. No IO, no clock.
pub mod back;
pub mod call;
pub mod datagram_seal;
pub mod frame;
pub mod frame_seal;
pub mod gather;
pub mod md5;
pub mod pcp_protocol;
pub mod replication_stream;
pub mod scram;
pub mod startup_packet;
pub mod store_protocol;
pub mod write;
