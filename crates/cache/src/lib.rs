//! A cache of results that never serves a stale one.
//!
//! `CacheTextFacts` decides if the result of a text may be cached, and which kind of change it makes; `catalog` knows the tables.
//! `TableVersions` is the protocol by which a result is stored and served only while PostgreSQL would give it. `LogFollower` takes in
//! the writes past all Weirs. A result in a store of the network (`StoredResult`) carries the reason why it is true: the versions it
//! was made under. Where several Weirs share the store, that is a position of the primary's log (`ResultProof`).

mod admission;
mod followed_log;
mod lookup_policy;
mod proof;
mod shards;
mod store_hosts;
mod stored_result;
mod text_facts;
mod versions;

pub use crate::followed_log::{
    CoveredRound, FollowError, LogFollower, LogFollowerState, PositionRound, TxidSnapshot, WalHistory,
};
pub use crate::store_hosts::HashRing;
pub use crate::stored_result::{ResultValidity, StoredResult};
pub use crate::text_facts::{CachePermission, CacheTextFacts, PossibleTransactionEnd, bind_holds_a_moment, says_a_moment};
pub use admission::{CacheAdmission, ResultCost};
pub use lookup_policy::{LookupPolicy, SeenQueries};
pub use proof::{ResultProof, ResultProofState};
pub use shards::ShardMap;
pub use versions::{ResultDependencies, Slot, TableVersions, WriterOutcome};
