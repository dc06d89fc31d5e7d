//! A cache of results that never serves a stale one.
//!
//! `Text` decides if the result of a text may be cached, and which kind of change it makes; `catalog` knows the tables.
//! `Versions` is the protocol by which a result is stored and served only while PostgreSQL would give it. `Follower` takes in
//! the writes past all Weirs. A result in a store of the network (`Kept`) carries the reason why it is true: the versions it
//! was made under. Where several Weirs share the store, that is a position of the primary's log (`Proof`).

mod admission;
mod followed_log;
mod lookup_policy;
mod proof;
mod shards;
mod store_hosts;
mod stored_result;
mod text_facts;
mod versions;

pub use crate::followed_log::{Covered, FollowError, Follower, History, Round, Snapshot, Standing};
pub use crate::store_hosts::Ring;
pub use crate::stored_result::{Kept, Why};
pub use crate::text_facts::{End, Reads, Text, bind_holds_a_moment, says_a_moment};
pub use admission::{Admission, Price};
pub use lookup_policy::{LookupPolicy, Seen};
pub use proof::{Proof, Proving};
pub use shards::Shards;
pub use versions::{Deps, Outcome, Slot, Versions};
