//! A session at work: where its statements go, and the bytes between it and the server.

pub mod ahead;
pub mod aim;
pub mod answer;
pub mod batch;
pub mod begun;
pub mod cached;
pub mod causal;
pub mod concern;
pub mod extended;
pub mod judging;
pub mod leaving;
pub mod net;
pub mod overtime;
pub mod relay;
pub mod replication;
pub mod sequences;
pub mod shapes;
pub mod shown;
pub mod signals;
pub mod timing;
pub mod unit;
pub mod vacate;
pub mod wishes;
