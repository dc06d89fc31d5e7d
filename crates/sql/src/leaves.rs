//! What a statement may leave on its server connection, as kinds and sets of kinds.

/// Why a server connection cannot be given to another client as it is after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// `SET` (not `SET LOCAL`, not `SET TRANSACTION`), `RESET`, `set_config`, `SET ROLE`, `SET SESSION AUTHORIZATION`.
    Setting,
    /// SQL-level `PREPARE` and `DEALLOCATE`.
    Prepare,
    /// `LISTEN`.
    Listen,
    /// A session-level advisory lock.
    AdvisoryLock,
    /// `CREATE TEMP ...`, `SELECT INTO TEMP`, any name in `pg_temp`.
    Temporary,
    /// `DECLARE ... WITH HOLD`.
    HoldCursor,
    /// `LOAD`, `setseed`, `dblink_connect`: nothing tells afterwards whether it is still there.
    Library,
    /// Procedural code and functions that are not PostgreSQL's own: any of the above but `Library`.
    Unknown,
    /// A text that could not be looked at.
    Unread,
    /// What it drew from sequences, if somebody asks for that (`currval`, `lastval`); no text alone shows it.
    Sequence,
    /// A parameter that its own user may not set: a function with more rights (SECURITY DEFINER) has set it.
    ForeignSetting,
}

impl Keeps {
    /// All kinds, in the order in which they are named.
    pub const ALL: [Keeps; 11] = [
        Keeps::Setting,
        Keeps::Prepare,
        Keeps::Listen,
        Keeps::AdvisoryLock,
        Keeps::Temporary,
        Keeps::HoldCursor,
        Keeps::Library,
        Keeps::Unknown,
        Keeps::Unread,
        Keeps::Sequence,
        Keeps::ForeignSetting,
    ];

    /// In words, for a log or a table.
    pub const fn name(self) -> &'static str {
        match self {
            Keeps::Setting => "setting",
            Keeps::Prepare => "prepared statement",
            Keeps::Listen => "listen",
            Keeps::AdvisoryLock => "advisory lock",
            Keeps::Temporary => "temporary object",
            Keeps::HoldCursor => "cursor with hold",
            Keeps::Library => "library",
            Keeps::Unknown => "unknown",
            Keeps::Unread => "unknown statement",
            Keeps::Sequence => "sequence value",
            Keeps::ForeignSetting => "setting beyond the user's rights",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Leaves(u16);

impl Leaves {
    pub const NONE: Leaves = Leaves(0);

    pub const fn of(kind: Keeps) -> Leaves {
        Leaves(1 << kind as u16)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn has(self, kind: Keeps) -> bool {
        self.0 & Leaves::of(kind).0 != 0
    }

    #[must_use]
    pub const fn and(self, other: Leaves) -> Leaves {
        Leaves(self.0 | other.0)
    }

    #[must_use]
    pub const fn with(self, kind: Keeps) -> Leaves {
        self.and(Leaves::of(kind))
    }

    /// Those that are in both.
    #[must_use]
    pub const fn common(self, other: Leaves) -> Leaves {
        Leaves(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, other: Leaves) -> Leaves {
        Leaves(self.0 & !other.0)
    }

    pub fn add(&mut self, kind: Keeps) {
        *self = self.with(kind);
    }

    /// The kinds in it, in the order of `Keeps::ALL`.
    pub fn kinds(self) -> impl Iterator<Item = Keeps> {
        Keeps::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, kind) in self.kinds().enumerate() {
            write!(out, "{}{kind:?}", if at > 0 { "+" } else { "" })?;
        }
        Ok(())
    }
}

/// Functions that leave something on the session, in whatever schema they are: an extension may be anywhere.
const KEEPING: [(&str, Keeps); 14] = [
    ("dblink_connect", Keeps::Library),
    ("dblink_connect_u", Keeps::Library),
    ("pg_advisory_lock", Keeps::AdvisoryLock),
    ("pg_advisory_lock_shared", Keeps::AdvisoryLock),
    ("pg_advisory_unlock", Keeps::AdvisoryLock),
    ("pg_advisory_unlock_all", Keeps::AdvisoryLock),
    ("pg_advisory_unlock_shared", Keeps::AdvisoryLock),
    ("pg_replication_origin_session_reset", Keeps::Library),
    ("pg_replication_origin_session_setup", Keeps::Library),
    ("pg_try_advisory_lock", Keeps::AdvisoryLock),
    ("pg_try_advisory_lock_shared", Keeps::AdvisoryLock),
    ("set_config", Keeps::Setting),
    ("set_limit", Keeps::Setting), // pg_trgm: sets pg_trgm.similarity_threshold
    ("setseed", Keeps::Library),
];

/// What a function leaves, by its name.
pub fn left_by_function(name: &str) -> Option<Keeps> {
    // The table is short, and most names differ from all of its rows in the first letters.
    KEEPING.iter().find(|(known, _)| *known == name).map(|(_, keeps)| *keeps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set = Leaves::of(Keeps::Setting).with(Keeps::Unread);
        assert_eq!(format!("{set:?}"), "Setting+Unread");
        assert!(set.has(Keeps::Unread) && !set.has(Keeps::Listen) && !set.is_empty() && Leaves::NONE.is_empty());
        assert_eq!(set.without(Leaves::of(Keeps::Unread)), Leaves::of(Keeps::Setting));
        assert_eq!(set.common(Leaves::of(Keeps::Listen)), Leaves::NONE);
    }
}
