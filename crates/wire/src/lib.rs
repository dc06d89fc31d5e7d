//! Codecs of PostgreSQL's frontend/backend protocol 3, result stores and PCP. No IO, no clock.
pub mod back;
pub mod call;
pub mod frame;
pub mod gather;
pub mod md5;
pub mod pcp_protocol;
pub mod replication_stream;
pub mod scram;
pub mod startup_packet;
pub mod store_protocol;
pub mod write;
