//! The operators' interfaces: the console, SHOW, metrics, HTTP and PCP.

pub mod acts;
pub mod console;
pub mod exposition;
pub mod group_sight;
pub mod http;
pub mod listing;
pub mod pcp;
pub mod views;
