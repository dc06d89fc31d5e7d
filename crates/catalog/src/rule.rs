//! The rules by which statements get their server, by the names in logs, counters and `SHOW pool_rules`.

/// A rule. The order is that in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RoutingRule {
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
const TABLE: &[(RoutingRule, &str)] = &[
    (RoutingRule::TooLong, "too_long"),
    (RoutingRule::LoadBalanceOff, "load_balance_off"),
    (RoutingRule::NotParsed, "not_parsed"),
    (RoutingRule::BeginReadOnly, "begin_read_only"),
    (RoutingRule::TransactionControl, "transaction_control"),
    (RoutingRule::TransactionSnapshot, "transaction_snapshot"),
    (RoutingRule::TransactionTime, "transaction_time"),
    (RoutingRule::TransactionPortal, "transaction_portal"),
    (RoutingRule::WroteInTransaction, "wrote_in_transaction"),
    (RoutingRule::Write, "write"),
    (RoutingRule::NotKnownToRead, "not_known_to_read"),
    (RoutingRule::LocksRows, "locks_rows"),
    (RoutingRule::SessionState, "session_state"),
    (RoutingRule::Hint, "hint"),
    (RoutingRule::PrimaryRoutingPattern, "primary_routing_pattern"),
    (RoutingRule::Catalog, "catalog"),
    (RoutingRule::CatalogUnknown, "catalog_unknown"),
    (RoutingRule::UnknownRelation, "unknown_relation"),
    (RoutingRule::Sequence, "sequence"),
    (RoutingRule::UnloggedTable, "unlogged_table"),
    (RoutingRule::ForeignTable, "foreign_table"),
    (RoutingRule::WritingView, "writing_view"),
    (RoutingRule::LockingView, "locking_view"),
    (RoutingRule::Function, "function"),
    (RoutingRule::Cast, "cast"),
    (RoutingRule::Operator, "operator"),
    (RoutingRule::Comment, "comment"),
    (RoutingRule::WroteInSession, "wrote_in_session"),
    (RoutingRule::StandbyRefused, "standby_refused"),
    (RoutingRule::PipelineOpen, "pipeline_open"),
    (RoutingRule::SessionPooling, "session_pooling"),
    (RoutingRule::SerializableByDefault, "serializable_by_default"),
    (RoutingRule::ReadOtherwise, "texts_read_otherwise"),
    (RoutingRule::Read, "read"),
    (RoutingRule::ReadHinted, "read_hinted"),
    (RoutingRule::ReadBySetting, "read_by_setting"),
    (RoutingRule::ReadFavourite, "read_favourite"),
    (RoutingRule::ReadRedirected, "read_redirected"),
    (RoutingRule::ReadByWeight, "read_by_weight"),
    (RoutingRule::ReadDelayed, "read_delayed"),
    (RoutingRule::ReadNotReplayed, "read_not_replayed"),
    (RoutingRule::ReadNoStandby, "read_no_standby"),
];

impl RoutingRule {
    /// How many there are.
    pub const COUNT: usize = TABLE.len();

    /// All rules in order.
    pub fn all() -> impl Iterator<Item = RoutingRule> {
        TABLE.iter().map(|(rule, _)| *rule)
    }

    /// True if it chooses among the nodes that may answer a read.
    #[inline]
    pub const fn is_of_read(self) -> bool {
        self as u8 >= RoutingRule::Read as u8
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
        for (at, rule) in RoutingRule::all().enumerate() {
            assert_eq!(rule as usize, at, "{}", rule.name());
        }
        assert_eq!(RoutingRule::ReadNoStandby as usize + 1, RoutingRule::COUNT);
    }

    #[test]
    fn rules_of_reads_have_names_that_begin_so() {
        for rule in RoutingRule::all() {
            assert_eq!(rule.is_of_read(), rule.name().starts_with("read"), "{}", rule.name());
        }
    }
}
