//! A cache of results that never serves a stale one.
//!
//! `CacheTextFacts` decides if a result may be cached and what a text changes. `TableVersions` is the protocol of
//! storing and serving, `LogFollower` takes in writes past all Weirs, `ResultProof` proves results in a store that
//! Weirs share.

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
