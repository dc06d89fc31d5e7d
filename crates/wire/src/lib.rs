//! Bytes to messages and back, for PostgreSQL's frontend/backend protocol 3 and for stores of answers. No IO, no clock.
pub mod back;
pub mod call;
pub mod frame;
pub mod md5;
pub mod scram;
pub mod startup;
pub mod store;
pub mod stream;
pub mod write;
