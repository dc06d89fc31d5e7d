//! A cache of answers that is never wrong: what may be kept, what a write makes untrue, and when.
//!
//! `Text` says of a text whether its answer may be kept at all and what it may change, `catalog` which tables that is about, and
//! `Versions` holds the protocol by which an answer is stored and given out only while it is one that PostgreSQL would give. Where several
//! Weirs share a store, `stamp` says what stands there, `Holds` what a member of them owes it, `Orphans` what one that is gone may have
//! left, and `Loops` whether the store contradicts itself. `Follower` takes in what others write, past all Weirs, and `Ledger` carries that to
//! a store.

mod admission;
mod doorkeeper;
mod follow;
mod holds;
mod ledger;
mod loops;
mod orphans;
mod ring;
mod shards;
mod shown;
mod stamp;
mod text;
mod versions;

pub use admission::{Admission, Price};
pub use doorkeeper::{Doorkeeper, Entry};
pub use follow::{Covered, FollowError, Follower, History, Round, Snapshot, Standing};
pub use holds::{Debts, Found, Holds, Order};
pub use ledger::{Book, Entry as LedgerEntry, Ledger};
pub use loops::Loops;
pub use orphans::Orphans;
pub use ring::{Host, Ring, hosts, lock_number};
pub use shards::Shards;
pub use shown::Shown;
pub use stamp::{FOLLOWER, Kept, Member, PAST, Stamp, settled};
pub use text::{Reads, Text, bind_holds_a_moment, says_a_moment};
pub use versions::{Deps, FIRST_ROUND, Outcome, Slot, Versions};
