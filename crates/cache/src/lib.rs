//! A cache of answers that is never wrong: what may be kept, what a write makes untrue, and when.
//!
//! `Text` says of a text whether its answer may be kept at all and what it may change, `catalog` which tables that is about, and
//! `Versions` holds the protocol by which an answer is stored and given out only while it is one that PostgreSQL would give. `Follower` takes
//! in what others write, past all Weirs. An answer in a store of the network (`Kept`) carries why it is true: the versions it was made under,
//! or, where several Weirs share the store, a position of the primary's log (`Proof`).

mod admission;
mod lookup_policy;
mod follow;
mod kept;
mod proof;
mod ring;
mod shards;
mod text;
mod versions;

pub use admission::{Admission, Price};
pub use lookup_policy::{LookupPolicy, Seen};
pub use follow::{Covered, FollowError, Follower, History, Round, Snapshot, Standing};
pub use kept::{Kept, Why};
pub use proof::{Proof, Proving};
pub use ring::Ring;
pub use shards::Shards;
pub use text::{Reads, Text, bind_holds_a_moment, says_a_moment};
pub use versions::{Deps, Outcome, Slot, Versions};
