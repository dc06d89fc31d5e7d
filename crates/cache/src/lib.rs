//! A cache of results that never serves a stale one.
//!
//! `Text` decides if the result of a text may be cached, and which kind of change it makes; `catalog` knows the tables.
//! `Versions` is the protocol by which a result is stored and served only while PostgreSQL would give it. `Follower` takes in
//! the writes past all Weirs. A result in a store of the network (`Kept`) carries the reason why it is true: the versions it
//! was made under. Where several Weirs share the store, that is a position of the primary's log (`Proof`).

mod admission;
mod follow;
mod kept;
mod lookup_policy;
mod proof;
mod ring;
mod shards;
mod text;
mod versions;

pub use admission::{Admission, Price};
pub use follow::{Covered, FollowError, Follower, History, Round, Snapshot, Standing};
pub use kept::{Kept, Why};
pub use lookup_policy::{LookupPolicy, Seen};
pub use proof::{Proof, Proving};
pub use ring::Ring;
pub use shards::Shards;
pub use text::{End, Reads, Text, bind_holds_a_moment, says_a_moment};
pub use versions::{Deps, Outcome, Slot, Versions};
