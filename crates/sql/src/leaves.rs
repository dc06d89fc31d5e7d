//! Session state that a statement may leave on its server connection.

/// Why a server connection cannot serve another client as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// `SET` (not `SET LOCAL`, not `SET TRANSACTION`), `RESET`, `set_config`, `SET ROLE`, `SET SESSION AUTHORIZATION`.
    Setting,
    /// SQL-level `PREPARE` and `DEALLOCATE`.
    Prepare,
    Listen,
    AdvisoryLock,
    /// `CREATE TEMP ...`, `SELECT INTO TEMP`, any name in `pg_temp`.
    Temporary,
    /// `DECLARE ... WITH HOLD`.
    HoldCursor,
    /// `LOAD`, `setseed`, `dblink_connect`: no query shows what remains.
    Library,
    /// `pg_backup_start` up to `pg_backup_stop`; no query shows it.
    Backup,
    Slot,
    /// Procedural code and users' functions: any kind but `Library` and `Backup`.
    Unknown,
    /// A text that could not be read.
    Unread,
    /// Drawn sequence values, if anything asks for them (`currval`, `lastval`); no text alone shows it.
    Sequence,
    /// A parameter beyond the user's rights, set by a SECURITY DEFINER function.
    ForeignSetting,
    /// Settings that change the reading of texts: encodings whose characters may hold ASCII, backslashes as escapes.
    Reading,
    /// An origin up to `pg_replication_origin_session_reset`; querying it may take other rights.
    Origin,
}

impl StateKind {
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

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StateKinds(u16);

impl StateKinds {
    pub const NONE: StateKinds = StateKinds(0);

    /// State that no query shows.
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

    /// Hot: called for each statement, mostly on empty sets.
    #[inline]
    pub fn first(self) -> Option<StateKind> {
        if self.is_empty() { None } else { self.kinds().next() }
    }

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

/// Functions that leave state, in any schema: extensions may be anywhere.
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

pub fn left_by_function(name: &str) -> Option<StateKind> {
    // Most names differ in the first letters.
    KEEPING.iter().find(|(known, _)| *known == name).map(|(_, keeps)| *keeps)
}

pub fn ended_by_function(name: &str) -> Option<StateKind> {
    match name {
        "pg_backup_stop" | "pg_stop_backup" => Some(StateKind::Backup),
        "pg_replication_origin_session_reset" => Some(StateKind::Origin),
        _ => None,
    }
}

/// True if the name is PostgreSQL's own where unqualified or in `pg_catalog`.
pub fn is_of_catalog(name: &str) -> bool {
    name.starts_with("pg_") || matches!(name, "set_config" | "setseed")
}

/// True if an unread text has a word that may leave what no query shows.
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
