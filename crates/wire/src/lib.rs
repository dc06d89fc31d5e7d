//! Bytes to messages and back, for PostgreSQL's frontend/backend protocol 3. No IO, no clock.
pub mod back;
pub mod call;
pub mod frame;
pub mod md5;
pub mod scram;
pub mod startup;
pub mod write;
