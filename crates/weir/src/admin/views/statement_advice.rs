//! Advice on a statement, in words, from its counts. No IO.

use weir_catalog::rule::RoutingRule;

/// Facts about a statement.
#[derive(Clone, Copy, Debug)]
pub struct StatementUse<'a> {
    pub on_primary: u64,
    pub on_standby: u64,
    pub from_cache: u64,
    pub parses: u64,
    pub mean_us: u64,
    pub rule: RoutingRule,
    pub only_reads: bool,
    /// Functions that are not PostgreSQL's.
    pub functions: &'a [String],
    pub has_cache: bool,
    pub has_standbys: bool,
}

/// Fewer calls show nothing.
const CALLS_MIN: u64 = 100;
/// A hit, with the work of storing it, saves nothing below.
const CACHE_GAIN_US_MIN: u64 = 500;
/// Of 100 calls.
const PARSES_PERCENT_MIN: u64 = 90;

/// Rules by which a read goes to the primary, where somebody can change it.
const CHANGEABLE: &[RoutingRule] = &[
    RoutingRule::Function,
    RoutingRule::LocksRows,
    RoutingRule::PrimaryRoutingPattern,
    RoutingRule::Hint,
    RoutingRule::Sequence,
    RoutingRule::UnloggedTable,
    RoutingRule::WroteInTransaction,
    RoutingRule::TransactionSnapshot,
    RoutingRule::ReadNotReplayed,
];

/// Returns sentences with semicolons between them; empty if there is nothing to say.
pub fn advice(of: &StatementUse<'_>) -> String {
    let parts = [why_primary(of), gain_of_cache(of), prepared_again(of)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn calls(of: &StatementUse<'_>) -> u64 {
    of.on_primary + of.on_standby + of.from_cache
}

fn why_primary(of: &StatementUse<'_>) -> Option<String> {
    if !of.has_standbys || !of.only_reads || of.on_primary == 0 {
        return None;
    }
    if !CHANGEABLE.contains(&of.rule) {
        return None;
    }
    let names: Vec<String> = of.functions.iter().map(|name| format!("{name}()")).collect();
    let object = match (of.rule, names.as_slice()) {
        (RoutingRule::Function, [one]) => Some(one.clone()),
        (RoutingRule::Function, [_, ..]) => Some(format!("one of {}", names.join(", "))),
        _ => None,
    };
    Some(format!("goes to the primary because {}", of.rule.because(object.as_deref())))
}

fn gain_of_cache(of: &StatementUse<'_>) -> Option<String> {
    let gains = !of.has_cache && of.only_reads && of.rule.is_of_read() && of.mean_us >= CACHE_GAIN_US_MIN;
    (gains && calls(of) >= CALLS_MIN).then(|| "would gain from the cache, if its values come again (memory_cache_enabled)".into())
}

fn prepared_again(of: &StatementUse<'_>) -> Option<String> {
    let is_so = of.parses.saturating_mul(100) >= calls(of).saturating_mul(PARSES_PERCENT_MIN);
    (is_so && calls(of) >= CALLS_MIN).then(|| "prepared again on each call".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: StatementUse<'static> = StatementUse {
        on_primary: 500,
        on_standby: 500,
        from_cache: 0,
        parses: 1,
        mean_us: 100,
        rule: RoutingRule::Read,
        only_reads: true,
        functions: &[],
        has_cache: false,
        has_standbys: true,
    };

    #[test]
    fn a_statement_without_a_fault_gets_no_advice() {
        assert_eq!(advice(&PLAIN), "");
    }

    #[test]
    fn a_slow_read_that_comes_often_would_gain_from_the_cache() {
        let slow = StatementUse { mean_us: 2_000, ..PLAIN };
        assert!(advice(&slow).starts_with("would gain from the cache"));
        for other in [
            StatementUse { has_cache: true, ..slow },
            StatementUse { only_reads: false, ..slow },
            StatementUse { on_primary: 9, on_standby: 9, parses: 0, ..slow },
            StatementUse { rule: RoutingRule::Function, has_standbys: false, ..slow },
        ] {
            assert_eq!(advice(&other), "", "{other:?}");
        }
    }

    #[test]
    fn a_read_on_the_primary_hears_why() {
        let functions = ["f".to_string(), "g".to_string()];
        let by_function = StatementUse { rule: RoutingRule::Function, functions: &functions[..1], ..PLAIN };
        assert_eq!(advice(&by_function), "goes to the primary because f() is VOLATILE, or not known to only read");
        assert!(advice(&StatementUse { functions: &functions, ..by_function }).contains("one of f(), g() is VOLATILE"));
        assert!(advice(&StatementUse { rule: RoutingRule::LocksRows, ..PLAIN }).ends_with("it locks rows"));
        for silent in [
            StatementUse { has_standbys: false, ..by_function },
            StatementUse { only_reads: false, ..by_function },
            StatementUse { rule: RoutingRule::Write, ..PLAIN },
        ] {
            assert_eq!(advice(&silent), "", "{silent:?}");
        }
    }

    #[test]
    fn parses_are_compared_with_calls() {
        let again = StatementUse { parses: 900, ..PLAIN };
        assert_eq!(advice(&again), "prepared again on each call");
        assert_eq!(advice(&StatementUse { parses: 899, ..PLAIN }), "");
        assert_eq!(advice(&StatementUse { mean_us: 600, ..again }).matches("; ").count(), 1, "both are said");
    }
}
