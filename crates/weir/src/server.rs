//! Connections to servers: made, kept, lent, given up; and what is known of the servers and their databases.

pub mod answers;
pub mod catalogs;
pub mod census;
pub mod cluster;
pub mod follow;
pub mod follower;
pub mod listener;
pub mod loads;
pub mod places;
pub mod pool;
pub mod positions;
pub mod sampler;
pub mod shelf;
pub mod stores;
pub mod survey;
pub mod suspects;
pub mod warm;
