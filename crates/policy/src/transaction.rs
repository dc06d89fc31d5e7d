//! Where a transaction runs that its client has begun and that no server knows of yet: its first statement says so.
//!
//! In: the options of the BEGIN, where the statement would go outside of a transaction, what of it stays. Out: the class of the whole
//! transaction. No IO: `weir::begun` sends the BEGIN in front of the statement.

use crate::route::{Class, Side};
use crate::rule::Rule;
use weir_sql::facts::{Begin, Isolation};

/// What a session begins its transactions with, if they do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub isolation: Isolation,
    pub read_only: bool,
}

/// What is known when the first statement comes.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub begin: Begin,
    pub defaults: Defaults,
    /// Where the statement would go outside of a transaction.
    pub class: Class,
    /// It leaves something that cannot move, or takes a lock.
    pub stays: bool,
    /// It may change the transaction's own properties, or a standby may refuse it where the primary does not.
    pub is_of_primary: bool,
}

/// Where the transaction runs.
pub fn class_of(ask: &Ask) -> Class {
    let isolation = if ask.begin.isolation == Isolation::Unset { ask.defaults.isolation } else { ask.begin.isolation };
    let read_only = ask.begin.read_only || (ask.defaults.read_only && !ask.begin.read_write);
    if ask.class.side == Side::Primary && !is_like_anywhere(ask) {
        return ask.class;
    }
    match (read_only, isolation) {
        // Hot standby knows no SERIALIZABLE, and it is not known what it is.
        (true, Isolation::Serializable | Isolation::Unset) => Class::primary(Rule::TransactionSnapshot),
        (true, Isolation::ReadUncommitted | Isolation::ReadCommitted | Isolation::RepeatableRead) => {
            Class { side: Side::Reader, rule: Rule::BeginReadOnly }
        }
        (false, _) if ask.class.side == Side::Reader => Class::primary(Rule::TransactionControl),
        (false, _) => ask.class,
    }
}

/// Whether a statement for the primary is refused, or does the same, on any server within a transaction that only reads.
fn is_like_anywhere(ask: &Ask) -> bool {
    let may = match ask.class.rule {
        Rule::Write | Rule::NotKnownToRead | Rule::LocksRows => true,
        // What it calls may write, and is refused then.
        Rule::Function | Rule::WritingView | Rule::Cast | Rule::Operator => true,
        _ => false,
    };
    may && !ask.stays && !ask.is_of_primary
}

/// Whether a value of a boolean parameter is on. Source: `parse_bool_with_len` in bool.c.
pub fn is_on(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    value == "1" || begins("true", 1) || begins("yes", 1) || begins("on", 2)
}

/// The isolation level that a value of `default_transaction_isolation` names.
pub fn isolation_of(value: &str) -> Isolation {
    let value = value.trim();
    let all = [
        ("read uncommitted", Isolation::ReadUncommitted),
        ("read committed", Isolation::ReadCommitted),
        ("repeatable read", Isolation::RepeatableRead),
        ("serializable", Isolation::Serializable),
    ];
    all.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)).map_or(Isolation::Unset, |(_, isolation)| *isolation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Class = Class { side: Side::Reader, rule: Rule::Read };

    fn goes(begin: Begin, class: Class) -> (Side, &'static str) {
        let defaults = Defaults { isolation: Isolation::ReadCommitted, read_only: false };
        let class = class_of(&Ask { begin, defaults, class, stays: false, is_of_primary: false });
        (class.side, class.rule.name())
    }

    #[test]
    fn the_first_statement_says_where_its_transaction_runs() {
        let plain = Begin::default();
        let read_only = Begin { read_only: true, ..plain };
        let serializable = Begin { isolation: Isolation::Serializable, ..read_only };
        let write = Class::primary(Rule::Write);
        assert_eq!(goes(plain, READ), (Side::Primary, "transaction_control"));
        assert_eq!(goes(plain, write), (Side::Primary, "write"));
        assert_eq!(goes(read_only, READ), (Side::Reader, "begin_read_only"));
        assert_eq!(goes(read_only, write), (Side::Reader, "begin_read_only"), "refused there as well");
        assert_eq!(goes(read_only, Class::primary(Rule::UnloggedTable)), (Side::Primary, "unlogged_table"));
        assert_eq!(goes(serializable, READ), (Side::Primary, "transaction_snapshot"));
    }

    #[test]
    fn what_the_session_begins_with_counts_if_the_transaction_does_not_say() {
        let class = |begin: Begin, isolation: Isolation, read_only: bool| {
            let defaults = Defaults { isolation, read_only };
            class_of(&Ask { begin, defaults, class: READ, stays: false, is_of_primary: false }).rule.name()
        };
        let plain = Begin::default();
        assert_eq!(class(plain, Isolation::ReadCommitted, true), "begin_read_only");
        assert_eq!(class(plain, Isolation::Serializable, true), "transaction_snapshot");
        assert_eq!(class(plain, Isolation::Unset, true), "transaction_snapshot", "it is not known");
        assert_eq!(class(Begin { read_write: true, ..plain }, Isolation::ReadCommitted, true), "transaction_control");
    }

    #[test]
    fn what_may_stay_or_change_the_transaction_goes_to_the_primary() {
        let defaults = Defaults { isolation: Isolation::ReadCommitted, read_only: false };
        let begin = Begin { read_only: true, ..Begin::default() };
        let class = Class::primary(Rule::NotKnownToRead);
        let ask = Ask { begin, defaults, class, stays: false, is_of_primary: false };
        assert_eq!(class_of(&ask).side, Side::Reader, "a cursor");
        assert_eq!(class_of(&Ask { stays: true, ..ask }), class);
        assert_eq!(class_of(&Ask { is_of_primary: true, ..ask }), class);
    }

    #[test]
    fn values_are_read_as_postgresql_reads_them() {
        for (value, on) in
            [("on", true), ("o", false), ("T", true), ("yes", true), ("1", true), ("off", false), ("0", false), ("", false)]
        {
            assert_eq!(is_on(value), on, "{value}");
        }
        assert_eq!(isolation_of("Repeatable Read"), Isolation::RepeatableRead);
        assert_eq!(isolation_of("none"), Isolation::Unset);
    }
}
