//! The rules by which statements get their server, by the names in logs, counters and `SHOW pool_rules`.

/// A rule. The order is that in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rule {
    /// The text is too long to be looked at.
    TooLong,
    LoadBalanceOff,
    NotParsed,
    BeginReadOnly,
    TransactionControl,
    /// A transaction with a snapshot of its own for all of its statements, or of which that is not known.
    TransactionSnapshot,
    /// A read within a transaction whose time it asks for.
    TransactionTime,
    /// A read within a transaction through a portal that may outlive the next Sync.
    TransactionPortal,
    /// The session has written within a transaction before (`disable_load_balance_on_write`).
    WroteInTransaction,
    Write,
    NotKnownToRead,
    LocksRows,
    SessionState,
    /// A comment in front of the text asks for the primary.
    Hint,
    PrimaryRoutingPattern,
    /// A name of a system catalog, or a view on one.
    Catalog,
    /// Nothing is known of the database, or something has just been changed.
    CatalogUnknown,
    UnknownRelation,
    Sequence,
    UnloggedTable,
    ForeignTable,
    WritingView,
    LockingView,
    Function,
    Cast,
    Operator,
    /// A comment stands in front of the text.
    Comment,
    /// The session has written before.
    WroteInSession,
    /// A standby has refused this text.
    StandbyRefused,
    /// A read in a pipeline that goes on with something else, or whose Sync is not here yet.
    PipelineOpen,
    /// The session has one server connection for its life (`pool_mode = session`).
    SessionPooling,
    /// Transactions are serializable by the session's default; a hot standby refuses those.
    SerializableByDefault,
    /// Servers read the session's texts otherwise than they are read here: by its encoding, or with backslashes as escapes.
    ReadOtherwise,
    /// The text only reads.
    Read,
    /// A comment in front of the text asks for this node.
    ReadHinted,
    /// The session has set `weir.route`.
    ReadBySetting,
    ReadFavourite,
    /// One of the operator's lists prefers this node.
    ReadRedirected,
    ReadByWeight,
    /// The node that was chosen lags too much: another one answers.
    ReadDelayed,
    /// No standby may answer the read yet.
    ReadNotReplayed,
    ReadNoStandby,
}

/// Every rule and its name, in order.
const TABLE: &[(Rule, &str)] = &[
    (Rule::TooLong, "too_long"),
    (Rule::LoadBalanceOff, "load_balance_off"),
    (Rule::NotParsed, "not_parsed"),
    (Rule::BeginReadOnly, "begin_read_only"),
    (Rule::TransactionControl, "transaction_control"),
    (Rule::TransactionSnapshot, "transaction_snapshot"),
    (Rule::TransactionTime, "transaction_time"),
    (Rule::TransactionPortal, "transaction_portal"),
    (Rule::WroteInTransaction, "wrote_in_transaction"),
    (Rule::Write, "write"),
    (Rule::NotKnownToRead, "not_known_to_read"),
    (Rule::LocksRows, "locks_rows"),
    (Rule::SessionState, "session_state"),
    (Rule::Hint, "hint"),
    (Rule::PrimaryRoutingPattern, "primary_routing_pattern"),
    (Rule::Catalog, "catalog"),
    (Rule::CatalogUnknown, "catalog_unknown"),
    (Rule::UnknownRelation, "unknown_relation"),
    (Rule::Sequence, "sequence"),
    (Rule::UnloggedTable, "unlogged_table"),
    (Rule::ForeignTable, "foreign_table"),
    (Rule::WritingView, "writing_view"),
    (Rule::LockingView, "locking_view"),
    (Rule::Function, "function"),
    (Rule::Cast, "cast"),
    (Rule::Operator, "operator"),
    (Rule::Comment, "comment"),
    (Rule::WroteInSession, "wrote_in_session"),
    (Rule::StandbyRefused, "standby_refused"),
    (Rule::PipelineOpen, "pipeline_open"),
    (Rule::SessionPooling, "session_pooling"),
    (Rule::SerializableByDefault, "serializable_by_default"),
    (Rule::ReadOtherwise, "texts_read_otherwise"),
    (Rule::Read, "read"),
    (Rule::ReadHinted, "read_hinted"),
    (Rule::ReadBySetting, "read_by_setting"),
    (Rule::ReadFavourite, "read_favourite"),
    (Rule::ReadRedirected, "read_redirected"),
    (Rule::ReadByWeight, "read_by_weight"),
    (Rule::ReadDelayed, "read_delayed"),
    (Rule::ReadNotReplayed, "read_not_replayed"),
    (Rule::ReadNoStandby, "read_no_standby"),
];

impl Rule {
    /// How many there are.
    pub const COUNT: usize = TABLE.len();

    /// All rules in order.
    pub fn all() -> impl Iterator<Item = Rule> {
        TABLE.iter().map(|(rule, _)| *rule)
    }

    /// True if it chooses among the nodes that may answer a read.
    #[inline]
    pub const fn is_of_read(self) -> bool {
        self as u8 >= Rule::Read as u8
    }

    pub const fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_stands_at_its_own_place() {
        for (at, rule) in Rule::all().enumerate() {
            assert_eq!(rule as usize, at, "{}", rule.name());
        }
        assert_eq!(Rule::ReadNoStandby as usize + 1, Rule::COUNT);
    }

    #[test]
    fn rules_of_reads_have_names_that_begin_so() {
        for rule in Rule::all() {
            assert_eq!(rule.is_of_read(), rule.name().starts_with("read"), "{}", rule.name());
        }
    }
}
