//! Checks a text, has it parsed, and folds its statements into one `QueryFacts`.

use std::borrow::Cow;
use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::error::Error;
use pg_raw_parse::nodes::RawStmt;

use crate::beyond_ascii::names_beyond_ascii;
use crate::executed::executed;
use crate::facts::{
    ChangeScope, QualifiedName, QueryEffect, QueryFacts, ResetTarget, SessionVerb, StateChange, StateKind, StateKinds, TextNames,
    TextProperties, TextProperty, TransactionVerb,
};
use crate::leaves::ended_by_function;
use crate::skeleton::skeleton;
use crate::statement::{self, StatementFacts};
use crate::statement_changes::changes;
use crate::tree_walk::WalkFindings;
use crate::{TEXT_BYTES_MAX, defined_names, defines, hint, refused_text, verb};

/// Reads the facts of any bytes; about 1.5 us for a short statement.
///
/// Names not in UTF-8, too long, or a syntax error: `Refused` and `Unread`, since a server of another version may
/// accept it.
pub fn facts(text: &[u8]) -> QueryFacts {
    if text.len() > TEXT_BYTES_MAX {
        return refused(text);
    }
    let readable = String::from_utf8_lossy(text);
    if matches!(readable, Cow::Owned(_)) && has_unreadable_names(text) {
        return refused(text);
    }
    let text = &*readable;
    if is_slow_to_scan(text.as_bytes()) {
        return refused(text.as_bytes());
    }
    // The binding panics on an unexpected node; no such text is known.
    let mut facts = catch_unwind(|| look(text)).unwrap_or_else(|_| refused(text.as_bytes()));
    let (is_commented, hint) = hint::of_text(text);
    facts.marks.add_if(TextProperty::Commented, is_commented);
    QueryFacts { hint, ..facts }
}

/// PostgreSQL's words where a text has an error of syntax by its newest grammar. `None`: it has none, or is too long to be read.
pub fn syntax_error(text: &str) -> Option<String> {
    if text.len() > TEXT_BYTES_MAX || is_slow_to_scan(text.as_bytes()) {
        return None;
    }
    match catch_unwind(|| pg_raw_parse::parse(text)).ok()? {
        Err(Error::Parse(error)) => Some(error.to_string()),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the `PREPARE` of this name; the whole text if it holds nothing else, since a server lists that.
pub fn prepare_named<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    if text.len() > TEXT_BYTES_MAX || is_slow_to_scan(text.as_bytes()) {
        return None;
    }
    let (start, length) = catch_unwind(|| place_of_prepare(text, name)).ok()??;
    if length == 0 { text.get(start..) } else { text.get(start..start + length) }
}

/// Offset and length of the `PREPARE`; length 0: up to the end. Of two the second fails, and which one ran is unknown,
/// unless the statement behind the first removes it.
fn place_of_prepare(text: &str, name: &str) -> Option<(usize, usize)> {
    let tree = pg_raw_parse::parse(text).ok()?;
    let is_it = |raw: &RawStmt| matches!(raw.stmt(), Node::PrepareStmt(prepare) if prepare.name() == Some(name));
    let deallocates = |raw: &RawStmt| match raw.stmt() {
        Node::DeallocateStmt(deallocate) => deallocate.name().is_none_or(|gone| gone == name),
        _ => false,
    };
    let mut found = None;
    let mut statements = tree.iter().peekable();
    let mut count = 0;
    while let Some(raw) = statements.next() {
        count += 1;
        if !is_it(raw) {
            continue;
        }
        if found.is_some() {
            return None;
        }
        if !statements.peek().is_some_and(|next| deallocates(next)) {
            found = Some((raw.stmt_location.max(0) as usize, raw.stmt_len.max(0) as usize));
        }
    }
    if count == 1 { found.map(|_| (0, 0)) } else { found }
}

/// Limit on long runs of operator characters; 2 to 5 ns each.
const SCAN_STEPS_MAX: usize = 4_000_000;

/// Free length of a run in bytes: rulers in comments and strings.
const RUN_FREE_BYTES: usize = 128;

/// PostgreSQL's scanner reads the whole run at every operator and `/*`: 24 s for 160 KB of nested comments. Here this
/// would block other clients.
fn scan_steps(text: &[u8]) -> usize {
    let is_operator = |b: &u8| {
        matches!(b, b'*' | b'/' | b'+' | b'-' | b'<'..=b'>' | b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'&' | b'|' | b'`' | b'?')
    };
    let runs = text.split(|b| !is_operator(b)).map(<[u8]>::len);
    runs.filter(|length| *length > RUN_FREE_BYTES).map(|length| length * length).sum()
}

/// True if scanning takes too long. Runs within strings are free. Texts of one skeleton are judged alike.
pub(crate) fn is_slow_to_scan(text: &[u8]) -> bool {
    let mut without_literals = Vec::new();
    scan_steps(text) > SCAN_STEPS_MAX
        && !(skeleton(text, &mut without_literals) && scan_steps(&without_literals) <= SCAN_STEPS_MAX)
}

/// Texts of one skeleton are judged alike.
fn has_unreadable_names(text: &[u8]) -> bool {
    let mut without_literals = Vec::new();
    match skeleton(text, &mut without_literals) {
        true => std::str::from_utf8(&without_literals).is_err(),
        false => names_beyond_ascii(text),
    }
}

fn refused(text: &[u8]) -> QueryFacts {
    let state = StateChange { keeps: StateKinds::of(StateKind::Unread), ..StateChange::default() };
    let (marks, changes) = (TextProperties::of(TextProperty::Moves), refused_text::changes(text));
    QueryFacts { effect: QueryEffect::Refused, state, changes, marks, ..QueryFacts::default() }
}

fn look(text: &str) -> QueryFacts {
    let Ok(tree) = pg_raw_parse::parse(text) else { return refused(text.as_bytes()) };
    let mut walk = WalkFindings::default();
    let mut facts = QueryFacts::default();
    for raw in tree.iter() {
        let verdict = look_at_one(raw, &mut walk);
        if facts.statements == 0 {
            facts.verb = verb::verb(raw.stmt());
            facts.runs = executed(raw.stmt()).map(str::to_owned);
        }
        facts.statements += 1;
        add(&mut facts, verdict);
    }
    if facts.statements > 1 {
        // The pooler follows these only in single statements.
        facts.session = SessionVerb::None;
        facts.savepoint = None;
        facts.show = None;
        facts.parameters.sets = None;
        facts.parameters.sets_local = None;
        facts.runs = None;
    }
    facts.state.keeps = facts.state.keeps.and(walk.keeps);
    facts.marks = facts.marks.and(walk.marks);
    let casts_to_time = walk.casts_to_time;
    facts.named = named(walk);
    let own = facts.named.functions.iter().filter(|function| matches!(function.schema.as_str(), "" | "pg_catalog"));
    let ended = own.filter_map(|function| ended_by_function(&function.name)).fold(StateKinds::NONE, StateKinds::with);
    facts.state.frees = facts.state.frees.and(ended);
    facts.marks.add_if(TextProperty::Fleeting, moves_a_time(&facts.named.functions, casts_to_time));
    facts
}

fn named(walk: WalkFindings<'_>) -> TextNames {
    let mut columns = walk.columns;
    columns.sort_unstable();
    columns.dedup();
    TextNames {
        functions: walk.functions.into_names(),
        relations: walk.relations.into_names(),
        operators: walk.operators.into_names(),
        casts: walk.casts.into_names(),
        columns,
        written: walk.written.into_names(),
    }
}

/// A time of day in another zone depends on today's date.
fn moves_a_time(functions: &[QualifiedName], casts_to_time: bool) -> bool {
    let calls = |wanted: &str| functions.iter().any(|function| function.name == wanted);
    calls("timezone") && (casts_to_time || calls("time") || calls("make_time"))
}

fn look_at_one<'a>(raw: &'a RawStmt, walk: &mut WalkFindings<'a>) -> StatementFacts {
    walk.start(raw.stmt_location);
    let node: Node<'a> = raw.stmt();
    let verdict = statement::judge(node, walk);
    let (own, is_run) = match node {
        Node::ExplainStmt(explain) => (changes(explain.query(), walk), verdict.effect > QueryEffect::Reads),
        node => (changes(node, walk), true),
    };
    let nested = if verdict.effect == QueryEffect::Writes && own == ChangeScope::Nothing && walk.has_written() {
        ChangeScope::Rows
    } else {
        own
    };
    let changes = if is_run { nested } else { ChangeScope::Nothing };
    let defines = defines::defines(node);
    let defines_code = defines && !defined_names::is_storage(node);
    let marks = verdict.marks.with_if(TextProperty::Defines, defines).with_if(TextProperty::DefinesCode, defines_code);
    StatementFacts { marks, changes, ..verdict }
}

fn add(facts: &mut QueryFacts, verdict: StatementFacts) {
    facts.effect = facts.effect.max(verdict.effect);
    facts.marks = facts.marks.and(verdict.marks);
    facts.state.keeps = facts.state.keeps.and(verdict.state.keeps);
    facts.state.frees = facts.state.frees.and(verdict.state.frees);
    facts.state.later = facts.state.later.and(verdict.state.later);
    facts.parameters.sets = verdict.parameters.sets;
    facts.parameters.sets_local = verdict.parameters.sets_local;
    facts.vacates.extend(verdict.vacates);
    facts.unseats.extend(verdict.unseats);
    facts.changes = facts.changes.max(verdict.changes);
    facts.session = verdict.session;
    facts.savepoint = verdict.savepoint;
    facts.show = verdict.show;
    facts.parameters.resets = match (facts.parameters.resets.take(), verdict.parameters.resets) {
        (None, only) if facts.statements == 1 => only,
        (None, None) => None,
        _ => Some(ResetTarget::Many),
    };
    facts.transaction = match (facts.statements, facts.transaction, verdict.transaction) {
        (1, _, only) => only,
        (_, TransactionVerb::None, TransactionVerb::None) => TransactionVerb::None,
        _ => TransactionVerb::Many,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_that_is_taken_to_a_zone_may_become_another() {
        let names = |words: &[&str]| -> Vec<QualifiedName> {
            words.iter().map(|word| QualifiedName { schema: String::new(), name: (*word).to_owned() }).collect()
        };
        for (functions, casts, moves) in [
            (&["timezone"][..], true, true),
            (&["timezone", "time"], false, true),
            (&["make_time", "timezone"], false, true),
            (&["timezone"], false, false),
            (&["time"], true, false),
            (&["make_time"], false, false),
            (&[], true, false),
        ] {
            assert_eq!(moves_a_time(&names(functions), casts), moves, "{functions:?} {casts}");
        }
    }

    #[test]
    fn a_prepare_is_found_among_other_statements() {
        let text = "select 'ä'; prepare a as select 1; prepare \"B\" (int) as select $1 ";
        assert_eq!(prepare_named(text, "a"), Some("prepare a as select 1"));
        assert_eq!(prepare_named(text, "B"), Some("prepare \"B\" (int) as select $1 "));
        assert_eq!(prepare_named(text, "b"), None);
        assert_eq!(
            prepare_named("prepare a as insert into t values (1); prepare a as select 1", "a"),
            None,
            "which one stands is not told"
        );
        assert_eq!(prepare_named("prepare a as select 1; select 2", "a"), Some("prepare a as select 1"));
        let anew = |between: &str| format!("prepare a as select 1; {between}; prepare a as select 2");
        for between in ["deallocate a", "deallocate all", "deallocate a; select 1", "deallocate prepare a"] {
            assert_eq!(prepare_named(&anew(between), "a"), Some("prepare a as select 2"), "{between}");
        }
        for between in ["select 1; deallocate a", "deallocate b"] {
            assert_eq!(prepare_named(&anew(between), "a"), None, "{between}");
        }
        assert_eq!(prepare_named(" prepare a as select 1;", "a"), Some(" prepare a as select 1;"), "as a server lists it");
        assert_eq!(prepare_named("prepare a as selec", "a"), None);
    }
}
