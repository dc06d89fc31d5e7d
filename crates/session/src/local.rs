//! Statements that Weir answers itself, recognised by their texts.

use crate::sharding::savepoint_stack::carried_savepoint;
use weir_sql::facts::{QueryEffect, QueryFacts, SavepointCommand, SessionVerb, TransactionEnd, TransactionVerb};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterAssignment {
    To(String),
    /// `SET x TO DEFAULT`.
    Default,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalStatement {
    /// Index of the view.
    View(usize),
    Parameter(String),
    /// `DEALLOCATE name`; `own_answers::is_ours` decides whether Weir answers it.
    Deallocate(String),
    /// `DEALLOCATE ALL`; Weir answers it unless the server may know of a statement prepared by SQL.
    DeallocateAll,
    /// `SHOW route FOR '...'`, with the statement in quotes.
    Route(String),
    Set(String, ParameterAssignment),
    DeleteCache(Option<String>),
    Unknown(String),
    /// The text of a BEGIN, which may wait for the first statement.
    Begin(String),
    /// COMMIT or ROLLBACK; Weir answers it if no server knows of the transaction.
    End(TransactionEnd),
    /// Weir answers it if no server knows of the transaction, and there are shards.
    Savepoint(SavepointCommand),
}

pub type ViewOf = fn(&str) -> Option<usize>;

/// Returns Weir's own command in a text. The parser refuses `PGPOOL ...`.
pub fn local_of(facts: &QueryFacts, text: &str, view_of: ViewOf) -> Option<LocalStatement> {
    if let Some(name) = &facts.show {
        return view_of(name).map(LocalStatement::View);
    }
    match &facts.session {
        SessionVerb::Deallocate(name) => return Some(LocalStatement::Deallocate(name.clone())),
        SessionVerb::DeallocateAll => return Some(LocalStatement::DeallocateAll),
        SessionVerb::None | SessionVerb::DiscardAll | SessionVerb::ResetAll => {}
    }
    match facts.transaction {
        TransactionVerb::Begin(_) => return Some(LocalStatement::Begin(text.to_string())),
        TransactionVerb::End(ending @ (TransactionEnd::Commit | TransactionEnd::Rollback)) => {
            return Some(LocalStatement::End(ending));
        }
        _ => {}
    }
    if facts.effect != QueryEffect::Refused {
        return carried_savepoint(facts.savepoint.as_ref()).map(LocalStatement::Savepoint);
    }
    if let Some(asked) = asked_route(text) {
        return Some(LocalStatement::Route(asked));
    }
    let text = text.trim();
    let rest = after_word(text.trim_end_matches(';').trim_end(), "pgpool")?;
    let known = |verb| after_word(rest, verb).map(str::trim);
    let is_name = |name: &&str| !name.is_empty() && !name.contains(|c: char| c.is_ascii_whitespace());
    let name = |name: &str| name.to_ascii_lowercase();
    let command = if let Some(shown) = known("show").filter(is_name) {
        Some(LocalStatement::Parameter(name(shown)))
    } else if let Some(reset) = known("reset").filter(is_name) {
        Some(LocalStatement::Set(name(reset), ParameterAssignment::Reset))
    } else {
        known("set").and_then(|rest| deletes_cache(rest).or_else(|| read_set(rest)))
    };
    Some(command.unwrap_or_else(|| LocalStatement::Unknown(text.to_string())))
}

/// `CACHE DELETE`, or `CACHE DELETE 'statement'`.
fn deletes_cache(text: &str) -> Option<LocalStatement> {
    let rest = after_word(text, "cache")?;
    if rest.eq_ignore_ascii_case("delete") {
        return Some(LocalStatement::DeleteCache(None));
    }
    let (verb, quoted) = rest.split_at_checked("delete".len())?;
    let query = unquoted(quoted.trim_start())?;
    verb.eq_ignore_ascii_case("delete").then_some(LocalStatement::DeleteCache(Some(query)))
}

/// Returns the text between quotes if nothing else is there.
fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let plain = inner.replace("''", "'");
    (plain.matches('\'').count() * 2 == inner.matches('\'').count()).then_some(plain)
}

fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let (first, after) = text.split_at_checked(word.len())?;
    (first.eq_ignore_ascii_case(word) && after.starts_with(|c: char| c.is_ascii_whitespace())).then(|| after.trim_start())
}

fn read_set(text: &str) -> Option<LocalStatement> {
    let end = text.find(|c: char| c.is_ascii_whitespace() || c == '=')?;
    let (name, rest) = (text[..end].to_ascii_lowercase(), text[end..].trim_start());
    let value = rest.strip_prefix('=').map(str::trim).or_else(|| after_word(rest, "to"))?;
    if value.eq_ignore_ascii_case("default") {
        return Some(LocalStatement::Set(name, ParameterAssignment::Default));
    }
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_ascii_whitespace() || c == '\'');
    match inner {
        Some(inner) => Some(LocalStatement::Set(name, ParameterAssignment::To(inner.replace("''", "'")))),
        None => is_plain.then(|| LocalStatement::Set(name, ParameterAssignment::To(value.to_string()))),
    }
}

/// Returns the statement in `SHOW route FOR '...'`, which is no SQL.
fn asked_route(text: &str) -> Option<String> {
    let mut rest = text.trim().trim_end_matches(';').trim_end();
    for word in ["show", "route", "for"] {
        let (first, after) = rest.split_at_checked(word.len())?;
        if !first.eq_ignore_ascii_case(word) || !after.starts_with(|c: char| c.is_ascii_whitespace() || c == '\'') {
            return None;
        }
        rest = after.trim_start();
    }
    unquoted(rest)
}
