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
    LocksRows,
    NotKnownToRead,
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
    /// The rows of sharded tables that the statement concerns lie on one server.
    OneShard,
    /// Rows of several shards, which the engine reads.
    Engine,
    /// Rows of several shards, each of which changes its own.
    AllShards,
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

/// A rule with the words that users see.
struct RuleWords {
    rule: RoutingRule,
    name: &'static str,
    /// Follows "because"; `{}` is the place of the object that decides.
    because: &'static str,
    /// Stands there if no object is known.
    anything: &'static str,
}

const fn row(rule: RoutingRule, name: &'static str, because: &'static str, anything: &'static str) -> RuleWords {
    RuleWords { rule, name, because, anything }
}

const TABLE: &[RuleWords] = &[
    row(RoutingRule::TooLong, "too_long", "it is longer than {}", "statement_analysis_max"),
    row(RoutingRule::LoadBalanceOff, "load_balance_off", "{} is off", "load_balance_mode"),
    row(RoutingRule::NotParsed, "not_parsed", "PostgreSQL's parser refuses {}, and the primary names the error", "it"),
    row(RoutingRule::BeginReadOnly, "begin_read_only", "it begins a transaction that only {}", "reads"),
    row(RoutingRule::TransactionControl, "transaction_control", "it begins, ends or divides {}", "a transaction"),
    row(RoutingRule::TransactionSnapshot, "transaction_snapshot", "its transaction has {} for all statements", "one snapshot"),
    row(RoutingRule::TransactionTime, "transaction_time", "it asks for the time of {}", "its transaction"),
    row(
        RoutingRule::TransactionPortal,
        "transaction_portal",
        "{} that it opens may outlive the next Sync of its transaction",
        "a portal",
    ),
    row(RoutingRule::WroteInTransaction, "wrote_in_transaction", "{} has written before", "its transaction"),
    row(RoutingRule::Write, "write", "it writes to {}", "the server"),
    row(RoutingRule::LocksRows, "locks_rows", "it locks {}", "rows"),
    row(RoutingRule::NotKnownToRead, "not_known_to_read", "{} is not known to only read", "a statement of its kind"),
    row(RoutingRule::SessionState, "session_state", "it leaves {} behind in the session", "state"),
    row(RoutingRule::Hint, "hint", "its comment asks for {}", "the primary"),
    row(
        RoutingRule::PrimaryRoutingPattern,
        "primary_routing_pattern",
        "{} of primary_routing_query_pattern_list fits it",
        "a pattern",
    ),
    row(
        RoutingRule::Catalog,
        "catalog",
        "{} is a system catalog or shows one, and tells of the server that is asked",
        "a relation that it names",
    ),
    row(
        RoutingRule::CatalogUnknown,
        "catalog_unknown",
        "the objects of {} are not known yet, or have just changed",
        "its database",
    ),
    row(
        RoutingRule::UnknownRelation,
        "unknown_relation",
        "{} does not exist, is outside of search_path, or was made just now",
        "a relation that it names",
    ),
    row(RoutingRule::Sequence, "sequence", "{} is a sequence, of which standbys are ahead", "a relation that it names"),
    row(
        RoutingRule::UnloggedTable,
        "unlogged_table",
        "{} is unlogged or has an unlogged table behind it, of which standbys have no rows",
        "a table that it names",
    ),
    row(RoutingRule::ForeignTable, "foreign_table", "{} is a foreign table or has one behind it", "a table that it names"),
    row(RoutingRule::WritingView, "writing_view", "a view or policy of {} calls what may write", "a relation that it names"),
    row(RoutingRule::LockingView, "locking_view", "{} is a view that locks rows", "a relation that it names"),
    row(RoutingRule::Function, "function", "{} is VOLATILE, or not known to only read", "a function that it calls"),
    row(RoutingRule::Cast, "cast", "a cast to or from {} calls what may write", "a type in this database"),
    row(RoutingRule::Operator, "operator", "the function of {} may write", "an operator"),
    row(RoutingRule::Comment, "comment", "a comment stands before it, and {} is off", "allow_sql_comments"),
    row(
        RoutingRule::WroteInSession,
        "wrote_in_session",
        "{} has written before, and disable_load_balance_on_write is always",
        "its session",
    ),
    row(RoutingRule::StandbyRefused, "standby_refused", "{} has refused it", "a standby"),
    row(RoutingRule::PipelineOpen, "pipeline_open", "{} goes on with what may write, or its end is not here yet", "its pipeline"),
    row(
        RoutingRule::SessionPooling,
        "session_pooling",
        "pool_mode is session, so that one server connection runs all of {}",
        "its session",
    ),
    row(
        RoutingRule::SerializableByDefault,
        "serializable_by_default",
        "{} of its session is serializable, which standbys refuse",
        "default_transaction_isolation",
    ),
    row(
        RoutingRule::ReadOtherwise,
        "texts_read_otherwise",
        "servers read {} of its session otherwise than Weir does: by its client_encoding or its backslashes",
        "texts",
    ),
    row(RoutingRule::OneShard, "one_shard", "the rows of {} that it concerns lie on one shard", "the sharded tables"),
    row(RoutingRule::Engine, "engine", "the rows of {} that it reads lie on several shards", "the sharded tables"),
    row(
        RoutingRule::AllShards,
        "all_shards",
        "the rows of {} that it changes lie on several shards, each of which changes its own",
        "the sharded table",
    ),
    row(RoutingRule::Read, "read", "it only {}", "reads"),
    row(RoutingRule::ReadHinted, "read_hinted", "it reads, and its comment asks for {}", "this node"),
    row(RoutingRule::ReadBySetting, "read_by_setting", "it reads, and weir.route of its session asks for {}", "this node"),
    row(RoutingRule::ReadFavourite, "read_favourite", "it reads, and reads of its session stay at {}", "one node"),
    row(RoutingRule::ReadRedirected, "read_redirected", "it reads, and {} prefers this node", "a redirect list of the operator"),
    row(RoutingRule::ReadByWeight, "read_by_weight", "it reads, and {} decide", "the nodes' weights"),
    row(
        RoutingRule::ReadDelayed,
        "read_delayed",
        "it reads, and {} lags by more than delay_threshold allows",
        "the node that was chosen",
    ),
    row(RoutingRule::ReadNotReplayed, "read_not_replayed", "it reads, and {} has replayed what it must show", "no standby"),
    row(RoutingRule::ReadNoStandby, "read_no_standby", "it reads, and {} takes reads now", "no standby"),
];

impl RoutingRule {
    pub const COUNT: usize = TABLE.len();

    pub fn all() -> impl Iterator<Item = RoutingRule> {
        TABLE.iter().map(|words| words.rule)
    }

    /// True if the rule chooses among the nodes that may answer a read.
    #[inline]
    pub const fn is_of_read(self) -> bool {
        self as u8 >= RoutingRule::Read as u8
    }

    pub const fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// The reason, as it follows "because". `object`: the one that decides, in words.
    pub fn because(self, object: Option<&str>) -> String {
        let words = &TABLE[self as usize];
        words.because.replacen("{}", object.unwrap_or(words.anything), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_rule_stands_at_its_own_place() {
        for (at, rule) in RoutingRule::all().enumerate() {
            assert_eq!(rule as usize, at, "{}", rule.name());
        }
        assert_eq!(RoutingRule::ReadNoStandby as usize + 1, RoutingRule::COUNT);
    }

    #[test]
    fn every_rule_has_a_reason_that_names_what_decides() {
        let mut reasons = HashSet::new();
        for rule in RoutingRule::all() {
            let (named, unnamed) = (rule.because(Some("the object")), rule.because(None));
            assert!(named.contains("the object"), "{}: {named}", rule.name());
            assert!(
                !unnamed.contains(['{', '}']) && !unnamed.ends_with('.') && unnamed.contains(' '),
                "{}: {unnamed}",
                rule.name()
            );
            assert!(reasons.insert(unnamed), "{}", rule.name());
        }
        assert_eq!(RoutingRule::Function.because(Some("f()")), "f() is VOLATILE, or not known to only read");
        assert_eq!(RoutingRule::Function.because(Some("{}")), "{} is VOLATILE, or not known to only read", "a name is no place");
    }

    #[test]
    fn rules_of_reads_have_names_that_begin_so() {
        for rule in RoutingRule::all() {
            assert_eq!(rule.is_of_read(), rule.name().starts_with("read"), "{}", rule.name());
        }
    }
}
