//! The agent beside a server: it promotes, follows, rewinds and copies on the orders of a Weir.

pub mod keeper;
