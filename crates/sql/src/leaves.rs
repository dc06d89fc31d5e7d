//! Session state that a statement may leave on its server connection, as kinds and sets of kinds.

/// Why a server connection cannot be given to another client as it is after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
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
    /// `LOAD`, `setseed`, `dblink_connect`: nothing tells afterwards if their effect is still there.
    Library,
    /// `pg_backup_start`, up to `pg_backup_stop`: no function tells of it.
    Backup,
    /// A temporary replication slot.
    Slot,
    /// Procedural code and functions that are not PostgreSQL's own: any of the above but `Library` and `Backup`.
    Unknown,
    /// A text that could not be looked at.
    Unread,
    /// Values that it drew from sequences, if somebody asks for them (`currval`, `lastval`); no text alone shows it.
    Sequence,
    /// A parameter that its own user may not set: a function with more rights (SECURITY DEFINER) has set it.
    ForeignSetting,
    /// Settings under which servers read texts otherwise than Weir's parser: an encoding whose characters may hold ASCII, or backslashes as escapes.
    Reading,
    /// `pg_replication_origin_session_setup`, up to `pg_replication_origin_session_reset`: whoever may call these may not ask for it, perhaps.
    Origin,
}

impl StateKind {
    /// All kinds, in the order in which they are named.
    pub const ALL: [StateKind; 15] = [
        StateKind::Setting,
        StateKind::Prepare,
        StateKind::Listen,
        StateKind::AdvisoryLock,
        StateKind::Temporary,
        StateKind::HoldCursor,
        StateKind::Library,
        StateKind::Backup,
        StateKind::Slot,
        StateKind::Unknown,
        StateKind::Unread,
        StateKind::Sequence,
        StateKind::ForeignSetting,
        StateKind::Reading,
        StateKind::Origin,
    ];

    /// In words, for a log or a table.
    pub const fn name(self) -> &'static str {
        match self {
            StateKind::Setting => "setting",
            StateKind::Prepare => "prepared statement",
            StateKind::Listen => "listen",
            StateKind::AdvisoryLock => "advisory lock",
            StateKind::Temporary => "temporary object",
            StateKind::HoldCursor => "cursor with hold",
            StateKind::Library => "library",
            StateKind::Backup => "backup",
            StateKind::Slot => "temporary replication slot",
            StateKind::Unknown => "unknown",
            StateKind::Unread => "unknown statement",
            StateKind::Sequence => "sequence value",
            StateKind::ForeignSetting => "setting beyond the user's rights",
            StateKind::Reading => "encoding or string syntax",
            StateKind::Origin => "replication origin",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StateKinds(u16);

impl StateKinds {
    pub const NONE: StateKinds = StateKinds(0);

    /// State of which no server tells if it is still there.
    pub const UNTOLD: StateKinds = StateKinds::of(StateKind::Library).with(StateKind::Backup).with(StateKind::Origin);

    pub const fn of(kind: StateKind) -> StateKinds {
        StateKinds(1 << kind as u16)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn has(self, kind: StateKind) -> bool {
        self.0 & StateKinds::of(kind).0 != 0
    }

    #[must_use]
    pub const fn and(self, other: StateKinds) -> StateKinds {
        StateKinds(self.0 | other.0)
    }

    #[must_use]
    pub const fn with(self, kind: StateKind) -> StateKinds {
        self.and(StateKinds::of(kind))
    }

    /// Kinds that are in both.
    #[must_use]
    pub const fn common(self, other: StateKinds) -> StateKinds {
        StateKinds(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, other: StateKinds) -> StateKinds {
        StateKinds(self.0 & !other.0)
    }

    pub fn add(&mut self, kind: StateKind) {
        *self = self.with(kind);
    }

    /// The first kind in it, in the order of `StateKind::ALL`. Asked for each statement, of sets that are empty.
    #[inline]
    pub fn first(self) -> Option<StateKind> {
        if self.is_empty() { None } else { self.kinds().next() }
    }

    /// The kinds in it, in the order of `StateKind::ALL`.
    pub fn kinds(self) -> impl Iterator<Item = StateKind> {
        StateKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl std::fmt::Debug for StateKinds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, kind) in self.kinds().enumerate() {
            write!(out, "{}{kind:?}", if at > 0 { "+" } else { "" })?;
        }
        Ok(())
    }
}

/// Functions that leave something on the session, in whatever schema they are: an extension may be anywhere.
const KEEPING: [(&str, StateKind); 22] = [
    ("dblink_connect", StateKind::Library),
    ("dblink_connect_u", StateKind::Library),
    ("isn_weak", StateKind::Library), // isn: how it reads numbers
    ("pg_advisory_lock", StateKind::AdvisoryLock),
    ("pg_advisory_lock_shared", StateKind::AdvisoryLock),
    ("pg_advisory_unlock", StateKind::AdvisoryLock),
    ("pg_advisory_unlock_all", StateKind::AdvisoryLock),
    ("pg_advisory_unlock_shared", StateKind::AdvisoryLock),
    ("pg_backup_start", StateKind::Backup),
    ("pg_copy_logical_replication_slot", StateKind::Slot),
    ("pg_copy_physical_replication_slot", StateKind::Slot),
    ("pg_create_logical_replication_slot", StateKind::Slot),
    ("pg_create_physical_replication_slot", StateKind::Slot),
    ("pg_drop_replication_slot", StateKind::Slot),
    ("pg_replication_origin_session_setup", StateKind::Origin),
    ("pg_start_backup", StateKind::Backup), // up to version 14
    ("pg_try_advisory_lock", StateKind::AdvisoryLock),
    ("pg_try_advisory_lock_shared", StateKind::AdvisoryLock),
    ("sepgsql_setcon", StateKind::Library),
    ("set_config", StateKind::Setting),
    ("set_limit", StateKind::Setting), // pg_trgm: sets pg_trgm.similarity_threshold
    ("setseed", StateKind::Library),
];

/// The state that a function leaves, by its name.
pub fn left_by_function(name: &str) -> Option<StateKind> {
    // The table is short, and most names differ from all of its rows in the first letters.
    KEEPING.iter().find(|(known, _)| *known == name).map(|(_, keeps)| *keeps)
}

/// State that a function ends, of which a session has one at most.
pub fn ended_by_function(name: &str) -> Option<StateKind> {
    match name {
        "pg_backup_stop" | "pg_stop_backup" => Some(StateKind::Backup),
        "pg_replication_origin_session_reset" => Some(StateKind::Origin),
        _ => None,
    }
}

/// True if a function by this name can only be PostgreSQL's own where the name stands alone or behind `pg_catalog`: behind another schema it is a
/// user's.
pub fn is_of_catalog(name: &str) -> bool {
    name.starts_with("pg_") || matches!(name, "set_config" | "setseed")
}

/// True if a text that could not be read has a word by which it may leave what no server tells of, wherever it stands.
pub fn names_library(text: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_one = |word: &[u8]| {
        let is_function =
            |(name, kind): &(&str, StateKind)| StateKinds::UNTOLD.has(*kind) && word.eq_ignore_ascii_case(name.as_bytes());
        word.eq_ignore_ascii_case(b"load") || KEEPING.iter().any(is_function)
    };
    text.split(|byte| !is_word(byte)).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_any_text() {
        for (text, expected) in [
            ("Load 'x'", true),
            ("select \"setseed\"(.1) from", true),
            ("perform public.DBLINK_CONNECT('a')", true),
            ("select payload, load_at from upload", false),
            ("set x y z; select pg_advisory_lock(1)", false),
            ("", false),
        ] {
            assert_eq!(names_library(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set = StateKinds::of(StateKind::Setting).with(StateKind::Unread);
        assert_eq!(format!("{set:?}"), "Setting+Unread");
        assert!(set.has(StateKind::Unread) && !set.has(StateKind::Listen) && !set.is_empty() && StateKinds::NONE.is_empty());
        assert_eq!(set.without(StateKinds::of(StateKind::Unread)), StateKinds::of(StateKind::Setting));
        assert_eq!(set.common(StateKinds::of(StateKind::Listen)), StateKinds::NONE);
    }
}
