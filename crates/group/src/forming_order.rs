//! Orders of operators to form a group, and why they are refused.

use crate::membership::{GroupMs, HostNumber};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FormingOrder {
    /// Of the hosts that are heard, if they are most of the configured ones.
    Majority,
    /// Of this host alone, by force. Both numbers are random: of the member that it becomes, and above those of its earlier lives as in
    /// `GroupMember::new`.
    Alone { incarnation: u32, first_number: u64 },
}

/// Why no group is formed, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FormingRefusal {
    #[error("this host never leads, as a witness or by wd_priority = 0: ask another one")]
    NeverLeads,
    #[error("this host has no vote: SHOW pool_watchdog tells why")]
    NoVote,
    #[error(
        "etcd keeps the state of this group, and needs a majority of its own: bring it back; if its data is lost for good, stop all hosts, delete \
         the key if there is one, and start them"
    )]
    Outside,
    #[error("the group works: {heard} of its {of} members answer, or did within the last lease")]
    Works { heard: usize, of: usize },
    #[error("this host was started less than {0} ms ago, and may not have heard of others yet: ask again")]
    TooEarly(GroupMs),
    #[error(
        "{heard} of the {of} members of the group answer, too few: start the others with their files and the group goes on by itself; if they are \
         lost for good, and do not run, --force forms a group of this host alone. It forgets what only they know, such as a failover that they \
         decided and nodes that they detached"
    )]
    NeedsForce { heard: usize, of: usize },
    #[error(
        "{heard} of {of} configured hosts are heard without a group, and more than half are needed: start others, or take hosts that will not be \
         back out of the files of all"
    )]
    TooFew { heard: usize, of: usize },
    #[error("host {0} is to found the group, as the lowest one that is heard: ask it")]
    NotLowest(HostNumber),
    #[error(
        "this host knows nothing of a group that it could go on with: take hosts that will not be back out of the files of all, and form a group \
         without --force"
    )]
    NoState,
}
