//! Sessions of a server that hold a mark of Weir's there: which of them are Weirs.
//!
//! In: the sessions, each with the role it logged in as. Out: whether a Weir is among them, and who is none. No IO: `weir::control::failover`
//! asks the server. Everybody may take any advisory lock and any `application_name`; only the role that a session logged in as is proved.

use std::fmt;

/// The right by which a session counts as a Weir's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// It logged in as this Weir's own role, or as one that may promote the server without any Weir.
    Weir,
    /// It may promote nothing.
    Stranger,
    /// The server does not show the session: it has just ended.
    Unseen,
}

/// One session that holds a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `None`: a prepared transaction holds it, which belongs to no session. Weirs prepare none.
    pub pid: Option<i32>,
    pub user: Option<String>,
    /// `None`: by a unix socket, or hidden from this Weir's role.
    pub address: Option<String>,
    pub rank: Rank,
}

/// The meaning of all holders of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    pub grip: Grip,
    /// Holders that are no Weirs.
    pub strangers: Vec<Holder>,
}

/// The state of the mark: another Weir holds it, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grip {
    Free,
    Weirs,
}

impl Holders {
    pub fn of(holders: Vec<Holder>) -> Holders {
        let is_weir = |holder: &Holder| match holder.rank {
            Rank::Weir => true,
            // Nobody knows whose session it was. It is gone at the next look.
            Rank::Unseen => holder.pid.is_some(),
            Rank::Stranger => false,
        };
        let (weirs, strangers): (Vec<_>, Vec<_>) = holders.into_iter().partition(is_weir);
        Holders { grip: if weirs.is_empty() { Grip::Free } else { Grip::Weirs }, strangers }
    }
}

impl fmt::Display for Holder {
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

    fn holder(pid: Option<i32>, rank: Rank) -> Holder {
        Holder { pid, user: Some("mallory".into()), address: None, rank }
    }

    #[test]
    fn only_a_role_that_may_promote_holds_a_mark() {
        let weir = || holder(Some(1), Rank::Weir);
        let (stranger, prepared) = (holder(Some(2), Rank::Stranger), holder(None, Rank::Unseen));
        for (holders, grip, strangers) in [
            (vec![], Grip::Free, vec![]),
            (vec![weir()], Grip::Weirs, vec![]),
            (vec![stranger.clone()], Grip::Free, vec![stranger.clone()]),
            (vec![stranger.clone(), weir()], Grip::Weirs, vec![stranger]),
            (vec![prepared.clone()], Grip::Free, vec![prepared]),
            (vec![holder(Some(3), Rank::Unseen)], Grip::Weirs, vec![]),
        ] {
            assert_eq!(Holders::of(holders.clone()), Holders { grip, strangers }, "{holders:?}");
        }
    }

    #[test]
    fn a_stranger_is_named() {
        let mut stranger = holder(Some(7), Rank::Stranger);
        assert_eq!(stranger.to_string(), "user \"mallory\", pid 7");
        stranger.address = Some("10.0.0.1".into());
        assert_eq!(stranger.to_string(), "user \"mallory\", pid 7, address 10.0.0.1");
        assert_eq!(holder(None, Rank::Unseen).to_string(), "a prepared transaction");
    }
}
