//! Bytes to messages and back, for PostgreSQL's frontend/backend protocol 3, for stores of answers and for PCP. No IO, no clock.
pub mod back;
pub mod call;
pub mod frame;
pub mod gather;
pub mod md5;
pub mod pcp;
pub mod scram;
pub mod startup;
pub mod store;
pub mod stream;
pub mod write;
