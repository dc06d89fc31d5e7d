//! Places a deferred transaction by its first statement. No IO.
//!
//! Under READ COMMITTED each statement has its own snapshot: reads before the first write run on standbys as outside of a
//! transaction, which begins with the first statement that needs it. In a read-only transaction too: a read that only the primary
//! accepts can still go there.

use crate::routing::{RouteClass, RouteSide};
use weir_catalog::OF_TRANSACTIONS;
use weir_catalog::rule::RoutingRule;
use weir_config::OnWrite;
use weir_sql::facts::{AccessMode, BeginOptions, IsolationLevel};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionDefaults {
    pub isolation: IsolationLevel,
    pub read_only: bool,
    pub limits: HeldLimits,
}

/// Limits that no server enforces yet, in milliseconds; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLimits {
    pub idle_ms: u64,
    pub whole_ms: u64,
}

impl TransactionDefaults {
    pub fn of<'v>(value: impl Fn(&str) -> Option<&'v str>) -> TransactionDefaults {
        let [isolation, idle, whole] = OF_TRANSACTIONS.map(&value);
        TransactionDefaults {
            isolation: isolation.map_or(IsolationLevel::Unset, isolation_of),
            read_only: value("default_transaction_read_only").is_some_and(is_on),
            limits: HeldLimits { idle_ms: idle.map_or(0, millis_of), whole_ms: whole.map_or(0, millis_of) },
        }
    }
}

impl TransactionDefaults {
    /// True if such a transaction is, or may be, serializable.
    pub fn is_serializable(self, begin: BeginOptions) -> bool {
        matches!(manner(begin, self).0, IsolationLevel::Serializable | IsolationLevel::Unset)
    }
}

fn manner(begin: BeginOptions, defaults: TransactionDefaults) -> (IsolationLevel, bool) {
    let isolation = if begin.isolation == IsolationLevel::Unset { defaults.isolation } else { begin.isolation };
    let read_only = match begin.access {
        AccessMode::Unset => defaults.read_only,
        AccessMode::ReadOnly => true,
        AccessMode::ReadWrite => false,
    };
    (isolation, read_only)
}

/// True if each statement has its own snapshot.
pub fn takes_snapshots(begin: BeginOptions, defaults: TransactionDefaults) -> bool {
    matches!(manner(begin, defaults).0, IsolationLevel::ReadUncommitted | IsolationLevel::ReadCommitted)
}

/// True if all statements have one snapshot, and nothing is proved about other transactions.
pub fn is_of_one_snapshot(begin: BeginOptions, defaults: TransactionDefaults) -> bool {
    manner(begin, defaults).0 == IsolationLevel::RepeatableRead
}

/// True if the cache may answer. A read-only transaction may begin on a standby with its next statement, and must not go back in
/// time then (`sees_on`).
pub fn may_ask_memory(begin: BeginOptions, defaults: TransactionDefaults, sees_on: bool) -> bool {
    let (_, read_only) = manner(begin, defaults);
    takes_snapshots(begin, defaults) && (sees_on || !read_only)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldTooLong {
    Idle,
    Whole,
}

/// `whole_ms`: since BEGIN. `idle_ms`: since the client's last message or answer.
pub fn held_too_long(limits: HeldLimits, whole_ms: u64, idle_ms: u64) -> Option<HeldTooLong> {
    let is_over = |limit_ms: u64, spent_ms: u64| limit_ms > 0 && spent_ms >= limit_ms;
    match (is_over(limits.whole_ms, whole_ms), is_over(limits.idle_ms, idle_ms)) {
        (true, _) => Some(HeldTooLong::Whole),
        (false, true) => Some(HeldTooLong::Idle),
        (false, false) => None,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FirstStatementFacts {
    pub begin: BeginOptions,
    pub defaults: TransactionDefaults,
    /// Route outside of a transaction.
    pub class: RouteClass,
    /// True if state is left that cannot move, or a lock taken.
    pub stays: bool,
    /// True if transaction properties may change, or only a standby may refuse.
    pub is_of_primary: bool,
    pub stay: Option<RoutingRule>,
    pub tie: TransactionTie,
    /// True if reads never go back in time, on any server.
    pub sees_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionTie {
    None,
    Time,
    /// A portal that may outlive the next Sync.
    Portal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionPlacement {
    /// As outside of the transaction if routed to a standby.
    Outside(RouteClass),
    Begins(RouteClass),
}

pub fn way(ask: &FirstStatementFacts) -> TransactionPlacement {
    use IsolationLevel as I;
    let (isolation, read_only) = manner(ask.begin, ask.defaults);
    let is_read = ask.class.side == RouteSide::Reader;
    let primary = |rule| TransactionPlacement::Begins(RouteClass::primary(rule));
    match (read_only, isolation) {
        (true, _) if !is_read && !is_like_anywhere(ask) => TransactionPlacement::Begins(ask.class),
        // Hot standby has no SERIALIZABLE.
        (true, I::Serializable | I::Unset) => primary(RoutingRule::TransactionSnapshot),
        (true, _) if ask.stay.is_some() => primary(ask.stay.unwrap_or(RoutingRule::TransactionControl)),
        (true, I::ReadUncommitted | I::ReadCommitted) if is_read && ask.sees_on && ask.tie == TransactionTie::None => {
            TransactionPlacement::Outside(ask.class)
        }
        (true, I::ReadUncommitted | I::ReadCommitted | I::RepeatableRead) => {
            TransactionPlacement::Begins(RouteClass { side: RouteSide::Reader, rule: RoutingRule::BeginReadOnly })
        }
        (false, _) if !is_read => TransactionPlacement::Begins(ask.class),
        (false, I::RepeatableRead | I::Serializable | I::Unset) => primary(RoutingRule::TransactionSnapshot),
        (false, I::ReadUncommitted | I::ReadCommitted) => match (ask.stay, ask.tie) {
            (Some(rule), _) => primary(rule),
            (None, TransactionTie::Time) => primary(RoutingRule::TransactionTime),
            (None, TransactionTie::Portal) => primary(RoutingRule::TransactionPortal),
            (None, TransactionTie::None) => TransactionPlacement::Outside(ask.class),
        },
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionWrites {
    pub at_all: bool,
    pub in_transaction: bool,
}

impl SessionWrites {
    /// Returns the rule that keeps a read on the primary.
    #[inline]
    pub fn stay(self, mode: OnWrite) -> Option<RoutingRule> {
        (mode == OnWrite::Always && self.at_all).then_some(RoutingRule::WroteInSession)
    }

    pub fn stay_within(self, mode: OnWrite) -> Option<RoutingRule> {
        let before = mode == OnWrite::TransTransaction && self.in_transaction;
        self.stay(mode).or(before.then_some(RoutingRule::WroteInTransaction))
    }
}

/// True if a statement may write by its functions or views. `calls`: a function that may write rows is called. No catalog lookup
/// for statements that need the primary anyway.
pub fn may_write(class: RouteClass, calls: bool) -> bool {
    match class.rule {
        RoutingRule::WritingView | RoutingRule::Cast | RoutingRule::Operator | RoutingRule::TooLong => true,
        _ => calls && class.side == RouteSide::Primary,
    }
}

/// True if any server refuses the statement, or runs it alike, in a read-only transaction.
fn is_like_anywhere(ask: &FirstStatementFacts) -> bool {
    let may = match ask.class.rule {
        RoutingRule::Write | RoutingRule::NotKnownToRead | RoutingRule::LocksRows => true,
        // Writes of a called function are refused.
        RoutingRule::Function | RoutingRule::WritingView | RoutingRule::Cast | RoutingRule::Operator => true,
        _ => false,
    };
    may && !ask.stays && !ask.is_of_primary
}

/// `None`: no switch. Source: `parse_bool_with_len` in bool.c.
pub fn switch_of(value: &str) -> Option<bool> {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if value == "1" || begins("true", 1) || begins("yes", 1) || begins("on", 2) {
        Some(true)
    } else if value == "0" || begins("false", 1) || begins("no", 1) || begins("off", 2) {
        Some(false)
    } else {
        None
    }
}

pub fn is_on(value: &str) -> bool {
    switch_of(value) == Some(true)
}

/// 0 for an invalid value. Source: `parse_int` and `time_unit_conversion_table` in guc.c.
pub fn millis_of(value: &str) -> u64 {
    const UNITS: [(&str, f64); 7] =
        [("us", 0.001), ("ms", 1.0), ("", 1.0), ("s", 1000.0), ("min", 60_000.0), ("h", 3_600_000.0), ("d", 86_400_000.0)];
    let value = value.trim();
    let digits = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let factor = UNITS.iter().find(|(known, _)| *known == unit.trim()).map(|(_, factor)| *factor);
    match (number.parse::<f64>(), factor) {
        (Ok(number), Some(factor)) => (number * factor).round() as u64,
        _ => 0,
    }
}

pub fn isolation_of(value: &str) -> IsolationLevel {
    let value = value.trim();
    let all = [
        ("read uncommitted", IsolationLevel::ReadUncommitted),
        ("read committed", IsolationLevel::ReadCommitted),
        ("repeatable read", IsolationLevel::RepeatableRead),
        ("serializable", IsolationLevel::Serializable),
    ];
    all.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)).map_or(IsolationLevel::Unset, |(_, isolation)| *isolation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_as_postgresql_reads_it() {
        for (value, on) in
            [("t", true), ("YES", true), (" on ", true), ("1", true), ("f", false), ("of", false), ("n", false), ("0", false)]
        {
            assert_eq!(switch_of(value), Some(on), "{value}");
        }
        for value in ["", "o", "truer", "2"] {
            assert_eq!(switch_of(value), None, "{value}");
        }
    }

    const READ: RouteClass = RouteClass { side: RouteSide::Reader, rule: RoutingRule::Read };
    const LIMITS: HeldLimits = HeldLimits { idle_ms: 0, whole_ms: 0 };
    const PLAIN: TransactionDefaults =
        TransactionDefaults { isolation: IsolationLevel::ReadCommitted, read_only: false, limits: LIMITS };

    fn ask(begin: BeginOptions, class: RouteClass) -> FirstStatementFacts {
        let (stays, is_of_primary, stay) = (false, false, None);
        FirstStatementFacts {
            begin,
            defaults: PLAIN,
            class,
            stays,
            is_of_primary,
            stay,
            tie: TransactionTie::None,
            sees_on: false,
        }
    }

    fn said(ask: &FirstStatementFacts) -> (&'static str, &'static str) {
        match way(ask) {
            TransactionPlacement::Outside(_) => ("outside", ""),
            TransactionPlacement::Begins(RouteClass { side: RouteSide::Reader, rule }) => ("reader", rule.name()),
            TransactionPlacement::Begins(RouteClass { side: RouteSide::Primary, rule }) => ("primary", rule.name()),
        }
    }

    #[test]
    fn the_first_statement_says_where_its_transaction_runs() {
        let plain = BeginOptions::default();
        let read_only = BeginOptions { access: AccessMode::ReadOnly, ..plain };
        let repeatable = BeginOptions { isolation: IsolationLevel::RepeatableRead, ..plain };
        let serializable = BeginOptions { isolation: IsolationLevel::Serializable, ..read_only };
        let write = RouteClass::primary(RoutingRule::Write);
        assert_eq!(said(&ask(plain, READ)), ("outside", ""));
        assert_eq!(said(&ask(plain, write)), ("primary", "write"));
        assert_eq!(said(&ask(repeatable, READ)), ("primary", "transaction_snapshot"));
        assert_eq!(said(&ask(repeatable, write)), ("primary", "write"));
        assert_eq!(said(&ask(read_only, READ)), ("reader", "begin_read_only"));
        assert_eq!(said(&ask(read_only, write)), ("reader", "begin_read_only"), "refused there as well");
        assert_eq!(said(&ask(BeginOptions { access: AccessMode::ReadOnly, ..repeatable }, READ)), ("reader", "begin_read_only"));
        assert_eq!(said(&ask(read_only, RouteClass::primary(RoutingRule::UnloggedTable))), ("primary", "unlogged_table"));
        assert_eq!(said(&ask(serializable, READ)), ("primary", "transaction_snapshot"));
    }

    #[test]
    fn what_the_session_begins_with_counts_if_the_transaction_does_not_say() {
        let said = |begin: BeginOptions, isolation: IsolationLevel, read_only: bool| {
            said(&FirstStatementFacts {
                defaults: TransactionDefaults { isolation, read_only, limits: LIMITS },
                ..ask(begin, READ)
            })
        };
        let plain = BeginOptions::default();
        assert_eq!(said(plain, IsolationLevel::ReadCommitted, true), ("reader", "begin_read_only"));
        assert_eq!(said(plain, IsolationLevel::Serializable, true), ("primary", "transaction_snapshot"));
        assert_eq!(said(plain, IsolationLevel::Unset, true), ("primary", "transaction_snapshot"), "it is not known");
        assert_eq!(said(plain, IsolationLevel::Unset, false), ("primary", "transaction_snapshot"));
        assert_eq!(said(plain, IsolationLevel::RepeatableRead, false), ("primary", "transaction_snapshot"));
        assert_eq!(said(plain, IsolationLevel::ReadUncommitted, false), ("outside", ""));
        assert_eq!(
            said(BeginOptions { access: AccessMode::ReadWrite, ..plain }, IsolationLevel::ReadCommitted, true),
            ("outside", "")
        );
    }

    #[test]
    fn memory_is_asked_where_each_statement_has_a_snapshot_of_its_own() {
        use IsolationLevel as I;
        for (isolation, default, expected) in [
            (I::Unset, I::ReadCommitted, true),
            (I::Unset, I::ReadUncommitted, true),
            (I::Unset, I::RepeatableRead, false),
            (I::Unset, I::Serializable, false),
            (I::Unset, I::Unset, false),
            (I::ReadCommitted, I::Serializable, true),
            (I::ReadUncommitted, I::Unset, true),
            (I::RepeatableRead, I::ReadCommitted, false),
            (I::Serializable, I::ReadCommitted, false),
        ] {
            let begin = BeginOptions { isolation, ..BeginOptions::default() };
            let defaults = TransactionDefaults { isolation: default, ..PLAIN };
            assert_eq!(may_ask_memory(begin, defaults, true), expected, "{isolation:?} {default:?}");
        }
    }

    #[test]
    fn one_that_only_reads_does_not_go_back_in_time_after_an_answer_from_memory() {
        let ask = |access, by_default, sees_on| {
            let begin = BeginOptions { access, ..BeginOptions::default() };
            may_ask_memory(begin, TransactionDefaults { read_only: by_default, ..PLAIN }, sees_on)
        };
        use AccessMode::{ReadOnly, ReadWrite, Unset};
        assert!(ask(ReadOnly, false, true) && !ask(ReadOnly, false, false), "it may begin on a standby that is behind");
        assert!(!ask(Unset, true, false) && ask(ReadWrite, true, false) && ask(Unset, false, false));
    }

    #[test]
    fn reads_that_need_their_transaction_begin_it_on_the_primary() {
        let read = ask(BeginOptions::default(), READ);
        assert_eq!(said(&FirstStatementFacts { tie: TransactionTie::Time, ..read }), ("primary", "transaction_time"));
        assert_eq!(said(&FirstStatementFacts { tie: TransactionTie::Portal, ..read }), ("primary", "transaction_portal"));
        assert_eq!(
            said(&FirstStatementFacts { stay: Some(RoutingRule::WroteInSession), ..read }),
            ("primary", "wrote_in_session")
        );
    }

    #[test]
    fn reads_of_a_transaction_that_only_reads_need_it_only_for_what_they_have_in_common() {
        let read = FirstStatementFacts {
            sees_on: true,
            ..ask(BeginOptions { access: AccessMode::ReadOnly, ..BeginOptions::default() }, READ)
        };
        assert_eq!(said(&read), ("outside", ""));
        assert_eq!(said(&FirstStatementFacts { tie: TransactionTie::Time, ..read }), ("reader", "begin_read_only"));
        assert_eq!(said(&FirstStatementFacts { tie: TransactionTie::Portal, ..read }), ("reader", "begin_read_only"));
        assert_eq!(
            said(&FirstStatementFacts { sees_on: false, ..read }),
            ("reader", "begin_read_only"),
            "else time may go back within it"
        );
        assert_eq!(
            said(&FirstStatementFacts { class: RouteClass::primary(RoutingRule::NotKnownToRead), ..read }),
            ("reader", "begin_read_only"),
            "a cursor"
        );
        let repeatable = BeginOptions { isolation: IsolationLevel::RepeatableRead, ..read.begin };
        assert_eq!(
            said(&FirstStatementFacts { begin: repeatable, ..read }),
            ("reader", "begin_read_only"),
            "it has one snapshot"
        );
    }

    #[test]
    fn what_may_stay_or_fail_on_a_standby_goes_to_the_primary() {
        let class = RouteClass::primary(RoutingRule::NotKnownToRead);
        let ask = ask(BeginOptions { access: AccessMode::ReadOnly, ..BeginOptions::default() }, class);
        assert_eq!(said(&ask), ("reader", "begin_read_only"), "a cursor");
        assert_eq!(way(&FirstStatementFacts { stays: true, ..ask }), TransactionPlacement::Begins(class));
        assert_eq!(way(&FirstStatementFacts { is_of_primary: true, ..ask }), TransactionPlacement::Begins(class));
    }

    #[test]
    fn reads_stay_on_the_primary_as_long_as_the_mode_says() {
        let names = |mode: &str, at_all, in_transaction| {
            let (mode, written) = (OnWrite::of_word(mode), SessionWrites { at_all, in_transaction });
            [written.stay(mode), written.stay_within(mode)].map(|rule| rule.map_or("", RoutingRule::name))
        };
        for mode in ["off", "transaction", "dml_adaptive", "dml_adaptive_global"] {
            assert_eq!(names(mode, true, true), ["", ""], "{mode}");
        }
        assert_eq!(names("trans_transaction", true, false), ["", ""]);
        assert_eq!(names("trans_transaction", true, true), ["", "wrote_in_transaction"]);
        assert_eq!(names("always", false, false), ["", ""]);
        assert_eq!(names("always", true, false), ["wrote_in_session", "wrote_in_session"]);
    }

    #[test]
    fn a_servers_own_limits_count_before_it_knows() {
        let limits = HeldLimits { idle_ms: 100, whole_ms: 1000 };
        assert_eq!(held_too_long(limits, 99, 99), None);
        assert_eq!(held_too_long(limits, 200, 100), Some(HeldTooLong::Idle));
        assert_eq!(held_too_long(limits, 1000, 0), Some(HeldTooLong::Whole));
        assert_eq!(held_too_long(HeldLimits::default(), u64::MAX, u64::MAX), None);
    }

    #[test]
    fn values_are_read_as_postgresql_reads_them() {
        for (value, on) in
            [("on", true), ("o", false), ("T", true), ("yes", true), ("1", true), ("off", false), ("0", false), ("", false)]
        {
            assert_eq!(is_on(value), on, "{value}");
        }
        assert_eq!(isolation_of("Repeatable Read"), IsolationLevel::RepeatableRead);
        assert_eq!(isolation_of("none"), IsolationLevel::Unset);
        for (value, ms) in
            [("0", 0), ("1500", 1500), ("5s", 5000), (" 2 min ", 120_000), ("1.5h", 5_400_000), ("1d", 86_400_000), ("soon", 0)]
        {
            assert_eq!(millis_of(value), ms, "{value}");
        }
    }
}
