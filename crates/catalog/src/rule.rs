//! Routing rules, by their names in logs, counters and `SHOW pool_rules`.

/// Rules in the order of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RoutingRule {
    TooLong,
    LoadBalanceOff,
    NotParsed,
    BeginReadOnly,
    TransactionControl,
    /// A transaction with one snapshot for all statements, or of unknown isolation.
    TransactionSnapshot,
    /// A read that asks for its transaction's time.
    TransactionTime,
    /// A read by a portal that may outlive the next Sync.
    TransactionPortal,
    /// The session has written within a transaction before (`disable_load_balance_on_write`).
    WroteInTransaction,
    Write,
    NotKnownToRead,
    LocksRows,
    SessionState,
    /// A leading comment asks for the primary.
    Hint,
    PrimaryRoutingPattern,
    /// A system catalog, or a view on one.
    Catalog,
    /// No catalog, or a recent definition.
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
    Comment,
    WroteInSession,
    StandbyRefused,
    /// A pipeline that continues otherwise, or whose Sync has not arrived.
    PipelineOpen,
    SessionPooling,
    /// Hot standbys refuse serializable transactions.
    SerializableByDefault,
    /// The session's encoding or backslash escapes: servers read texts otherwise than Weir.
    ReadOtherwise,
    Read,
    /// A leading comment asks for this node.
    ReadHinted,
    /// The session has set `weir.route`.
    ReadBySetting,
    ReadFavourite,
    /// An operator's list prefers this node.
    ReadRedirected,
    ReadByWeight,
    /// The chosen node lags too much: another node answers.
    ReadDelayed,
    /// No standby has replayed enough.
    ReadNotReplayed,
    ReadNoStandby,
}

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
    pub const COUNT: usize = TABLE.len();

    pub fn all() -> impl Iterator<Item = RoutingRule> {
        TABLE.iter().map(|(rule, _)| *rule)
    }

    /// True if the rule chooses among the nodes that may answer a read.
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
