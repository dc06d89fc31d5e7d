//! A cache of answers that is never wrong: what may be kept, what a write makes untrue, and when.
//!
//! `Text` says of a text whether its answer may be kept at all and what it may change, `catalog` which tables that is about, and
//! `Versions` holds the protocol by which an answer is stored and given out only while it is one that PostgreSQL would give.

mod admission;
mod follow;
mod text;
mod versions;

pub use admission::{Admission, Price};
pub use follow::{Covered, FollowError, Follower, History, Round, Snapshot, Standing};
pub use text::{Reads, Text, hold_a_moment, says_a_moment};
pub use versions::{Deps, FIRST_ROUND, Outcome, Slot, Versions};
