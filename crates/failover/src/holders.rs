//! Sessions of a server that hold a mark of Weir's, and which of them are Weirs.
//!
//! Any user may take an advisory lock or an `application_name`; only the session's login role is proof.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderRank {
    /// Logged in as this Weir's role, or as one that may promote the server without any Weir.
    Weir,
    Stranger,
    /// Just ended: the server does not show the session.
    Unseen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkHolder {
    /// `None`: held by a prepared transaction, which has no session. Weirs prepare none.
    pub pid: Option<i32>,
    pub user: Option<String>,
    /// `None`: a unix socket, or hidden from this Weir's role.
    pub address: Option<String>,
    pub rank: HolderRank,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkHolders {
    pub grip: MarkOwnership,
    pub strangers: Vec<MarkHolder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOwnership {
    Free,
    Weirs,
}

impl MarkHolders {
    pub fn of(holders: Vec<MarkHolder>) -> MarkHolders {
        let is_weir = |holder: &MarkHolder| match holder.rank {
            HolderRank::Weir => true,
            // Unknown until the next look: counted as a Weir.
            HolderRank::Unseen => holder.pid.is_some(),
            HolderRank::Stranger => false,
        };
        let (weirs, strangers): (Vec<_>, Vec<_>) = holders.into_iter().partition(is_weir);
        MarkHolders { grip: if weirs.is_empty() { MarkOwnership::Free } else { MarkOwnership::Weirs }, strangers }
    }
}

impl fmt::Display for MarkHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return f.write_str("a prepared transaction") };
        write!(f, "user \"{}\", pid {pid}", self.user.as_deref().unwrap_or_default())?;
        match &self.address {
            Some(address) => write!(f, ", address {address}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: Option<i32>, rank: HolderRank) -> MarkHolder {
        MarkHolder { pid, user: Some("mallory".into()), address: None, rank }
    }

    #[test]
    fn only_a_role_that_may_promote_holds_a_mark() {
        let weir = || holder(Some(1), HolderRank::Weir);
        let (stranger, prepared) = (holder(Some(2), HolderRank::Stranger), holder(None, HolderRank::Unseen));
        for (holders, grip, strangers) in [
            (vec![], MarkOwnership::Free, vec![]),
            (vec![weir()], MarkOwnership::Weirs, vec![]),
            (vec![stranger.clone()], MarkOwnership::Free, vec![stranger.clone()]),
            (vec![stranger.clone(), weir()], MarkOwnership::Weirs, vec![stranger]),
            (vec![prepared.clone()], MarkOwnership::Free, vec![prepared]),
            (vec![holder(Some(3), HolderRank::Unseen)], MarkOwnership::Weirs, vec![]),
        ] {
            assert_eq!(MarkHolders::of(holders.clone()), MarkHolders { grip, strangers }, "{holders:?}");
        }
    }

    #[test]
    fn a_stranger_is_named() {
        let mut stranger = holder(Some(7), HolderRank::Stranger);
        assert_eq!(stranger.to_string(), "user \"mallory\", pid 7");
        stranger.address = Some("10.0.0.1".into());
        assert_eq!(stranger.to_string(), "user \"mallory\", pid 7, address 10.0.0.1");
        assert_eq!(holder(None, HolderRank::Unseen).to_string(), "a prepared transaction");
    }
}
