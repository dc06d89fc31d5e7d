//! Connections to servers: made, kept, lent, given up; and what is known of the servers and their databases.

pub mod answers;
pub mod catalogs;
pub mod census;
pub mod first_look;
pub mod follow;
pub mod listener;
pub mod loads;
pub mod places;
pub mod pool;
pub mod positions;
pub mod shelf;
pub mod stores;
pub mod suspects;
pub mod warm;
