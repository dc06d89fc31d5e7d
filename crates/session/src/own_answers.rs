//! Weir's own answers: SHOW commands, and session commands that must not reach a shared server connection.

use crate::context::Context;
use crate::fault::{ErrorReport, garbled, sqlstate};
use crate::host::AnswerTable;
use crate::local::{LocalStatement, ParameterAssignment};
use crate::metrics::WorkerCounter;
use crate::routing::read_preference;
use crate::session::{FAILED, IDLE, LazyBegin, Session};
use crate::sharding::savepoints;
use crate::statements::Statement;
use crate::upstream::left::LeftoverState;
use crate::{lazy_begin, session_state, shown};
use std::rc::Rc;
use weir_config as config;
use weir_wire::frame::{back, split_cstr};
use weir_wire::write::{self, OutgoingReport};

pub fn simple(s: &mut Session, w: &Context, statement: &Rc<Statement>, local: &LocalStatement) {
    if command(s, w, statement, local) {
        return s.say_ready(w);
    }
    if let Some(told) = on_savepoint(s, w, local) {
        told.unwrap_or_else(|fault| s.say_error(w, &fault));
        return s.say_ready(w);
    }
    w.count(WorkerCounter::StatementsAnswered);
    if let LocalStatement::Set(name, value) = local {
        if let Err(fault) = set(s, w, name, value) {
            s.say_error(w, &fault);
        }
        return s.say_ready(w);
    }
    match shown::table_of(s, w, local) {
        Ok(table) => {
            let out = s.down.extra(&w.buffers);
            write::row_description(out, table.columns.iter().map(|c| c.as_ref()), &[]);
            rows(out, &table);
        }
        Err(fault) => s.say_error(w, &fault),
    }
    s.say_ready(w);
}

/// True if the answer is as new as the question, and the viewer's rights are known where they matter.
pub fn is_fresh(s: &Session, w: &Context, local: &LocalStatement) -> bool {
    match local {
        LocalStatement::View(at) => s.host.is_fresh(*at),
        LocalStatement::Parameter(name) => !config::depends_on_viewer(&w.config(), name) || s.host.knows_viewer(),
        _ => true,
    }
}

/// Runs a command without rows, other than SET, and writes its tag. False for the others.
fn command(s: &mut Session, w: &Context, statement: &Rc<Statement>, local: &LocalStatement) -> bool {
    let tag = match local {
        LocalStatement::Begin(_) => lazy_begin::hold(s, w, statement),
        LocalStatement::End(ending) => lazy_begin::end(s, w, *ending),
        LocalStatement::Deallocate(name) => deallocate(s, w, name),
        LocalStatement::DeallocateAll => deallocate_all(s, w),
        LocalStatement::DeleteCache(query) => delete_cache(s, w, query.as_deref()),
        LocalStatement::View(_)
        | LocalStatement::Parameter(_)
        | LocalStatement::Route(_)
        | LocalStatement::Set(..)
        | LocalStatement::Savepoint(_)
        | LocalStatement::Unknown(_) => return false,
    };
    write::command_complete(s.down.extra(&w.buffers), tag);
    true
}

/// Carries out a command on a savepoint, and writes its tag. `None`: it is none.
fn on_savepoint(s: &mut Session, w: &Context, local: &LocalStatement) -> Option<Result<(), ErrorReport>> {
    let LocalStatement::Savepoint(command) = local else { return None };
    Some(savepoints::answer(s, w, command).map(|tag| write::command_complete(s.down.extra(&w.buffers), tag)))
}

/// Deletes all cached results, as in Pgpool-II, or those of this user, database and statement. Notices are Pgpool-II's.
fn delete_cache(s: &mut Session, w: &Context, query: Option<&str>) -> &'static str {
    let round = w.shared.positions.next_round();
    if w.store.is_some() {
        w.shared.catalogs.all().iter().for_each(|database| database.follow.forget(round));
    }
    match (&w.shared.cached_results, query) {
        (None, None) => {}
        (Some(answers), None) => answers.clear(round),
        (answers, Some(query)) => {
            let (user, database) = (&s.account.user, &s.account.database);
            let is_there = answers.as_ref().is_some_and(|answers| answers.remove(user, database, query.as_bytes(), round));
            let message = match is_there {
                true => format!("query cache deleted. query: \"{query}\""),
                false => format!("query cache does not exist for query: \"{query}\""),
            };
            let report =
                OutgoingReport { severity: "NOTICE", sqlstate: "00000", message: &message, detail: "", hint: "", routine: "" };
            write::notice(s.down.extra(&w.buffers), &report);
        }
    }
    "SET"
}

fn deallocate(s: &mut Session, w: &Context, name: &str) -> &'static str {
    if s.statements.named.remove(name.as_bytes()).is_none() {
        session_state::deallocate(s, w, name);
    }
    drop_unnamed(s);
    "DEALLOCATE"
}

/// Server connections keep what the protocol has prepared there: other sessions use it, too.
fn deallocate_all(s: &mut Session, w: &Context) -> &'static str {
    s.statements.named.clear();
    session_state::deallocate_all(s, w);
    drop_unnamed(s);
    "DEALLOCATE ALL"
}

/// A Query drops the unnamed statement.
fn drop_unnamed(s: &mut Session) {
    if s.statements.portal().is_none() {
        s.statements.take_unnamed();
    }
}

/// Sets a parameter. Custom parameters known to servers are settings of all the session's server connections.
fn set(s: &mut Session, w: &Context, name: &str, change: &ParameterAssignment) -> Result<(), ErrorReport> {
    let value = match change {
        ParameterAssignment::To(value) => Some(value.as_str()),
        ParameterAssignment::Default | ParameterAssignment::Reset => None,
    };
    match (read_preference::SETTINGS.iter().find(|setting| setting.name == name), value) {
        (Some(setting), Some(value)) if !(setting.takes)(value) => {
            let text = format!("invalid value for parameter \"{name}\": \"{value}\" (allowed: {})", setting.allowed);
            return Err(ErrorReport::error(sqlstate::INVALID_VALUE, text));
        }
        (Some(_), _) => session_state::set_own(s, w, name, value),
        (None, Some(value)) => read_preference::set(s, w, name, value)?,
        (None, None) => read_preference::reset(s, w, name)?,
    }
    write::command_complete(s.down.extra(&w.buffers), if *change == ParameterAssignment::Reset { "RESET" } else { "SET" });
    Ok(())
}

fn rows(out: &mut Vec<u8>, table: &AnswerTable) {
    for row in &table.rows {
        write::data_row(out, row);
    }
    write::command_complete(out, &format!("SELECT {}", table.rows.len()));
}

fn has_rows(local: &LocalStatement) -> bool {
    match local {
        LocalStatement::Deallocate(_)
        | LocalStatement::DeallocateAll
        | LocalStatement::DeleteCache(_)
        | LocalStatement::Set(..)
        | LocalStatement::Begin(_)
        | LocalStatement::Savepoint(_)
        | LocalStatement::End(_) => false,
        LocalStatement::View(_) | LocalStatement::Parameter(_) | LocalStatement::Route(_) | LocalStatement::Unknown(_) => true,
    }
}

pub fn describe(s: &mut Session, w: &Context, local: &LocalStatement, formats: &[u16]) {
    if !has_rows(local) {
        return s.say_bare(w, back::NO_DATA);
    }
    match shown::columns_of(s, w, local) {
        Ok(columns) => {
            write::row_description(s.down.extra(&w.buffers), columns.iter().map(|c| c.as_ref()), formats);
        }
        Err(fault) => {
            s.say_error(w, &fault);
            s.intake.skip_to_sync();
        }
    }
}

/// Answers an Execute. `done`: the portal was run to its end. A returned error was already sent.
pub fn execute(s: &mut Session, w: &Context, statement: &Rc<Statement>, done: bool) -> Result<(), ErrorReport> {
    let Some(local) = &statement.local else { return Ok(()) };
    if done && !has_rows(local) {
        let fault = ErrorReport::error(sqlstate::NOT_IN_STATE, "portal \"\" cannot be run");
        s.say_error(w, &fault);
        return Err(fault);
    }
    if command(s, w, statement, local) {
        return Ok(());
    }
    if let Some(told) = on_savepoint(s, w, local) {
        return told.inspect_err(|fault| s.say_error(w, fault));
    }
    w.count(WorkerCounter::StatementsAnswered);
    if let LocalStatement::Set(name, value) = local {
        return set(s, w, name, value).inspect_err(|fault| s.say_error(w, fault));
    }
    let mut table = shown::table_of(s, w, local).inspect_err(|fault| s.say_error(w, fault))?;
    if done {
        table.rows.clear();
    }
    rows(s.down.extra(&w.buffers), &table);
    Ok(())
}

pub fn result_formats(body: &[u8]) -> Result<Vec<u16>, &'static str> {
    let (formats, left) = read_bound(body).and_then(|bound| bound.results).ok_or(garbled::TOO_SHORT)?;
    if left.is_empty() { Ok(formats) } else { Err(garbled::MORE_THAN_MEANT) }
}

/// Returns a server's error for a wrong number of values. Source: `exec_bind_message` in postgres.c.
pub fn refuses_values(body: &[u8], parameters: usize) -> Option<ErrorReport> {
    let BindContents { name, formats, values, .. } = read_bound(body)?;
    let text = if formats > 1 && formats != values {
        format!("bind message has {formats} parameter formats but {values} parameters")
    } else if values != parameters {
        let name = String::from_utf8_lossy(name);
        format!("bind message supplies {values} parameters, but prepared statement \"{name}\" requires {parameters}")
    } else {
        return None;
    };
    Some(ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, text))
}

struct BindContents<'a> {
    name: &'a [u8],
    formats: usize,
    values: usize,
    /// The result formats and the rest; `None`: the Bind ends before.
    results: Option<(Vec<u16>, &'a [u8])>,
}

fn read_bound(body: &[u8]) -> Option<BindContents<'_>> {
    let (_, rest) = split_cstr(body)?;
    let (name, rest) = split_cstr(rest)?;
    let (formats, rest) = split_words(rest)?;
    let (&count, rest) = rest.split_first_chunk::<2>()?;
    let values = usize::from(u16::from_be_bytes(count));
    let results = skip_values(rest, values).and_then(split_words);
    Some(BindContents { name, formats: formats.len(), values, results })
}

fn skip_values(mut rest: &[u8], count: usize) -> Option<&[u8]> {
    for _ in 0..count {
        let (&length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(length).max(0) as usize;
        rest = after.get(length..)?;
    }
    Some(rest)
}

fn split_words(bytes: &[u8]) -> Option<(Vec<u16>, &[u8])> {
    let (&count, rest) = bytes.split_first_chunk::<2>()?;
    let count = usize::from(u16::from_be_bytes(count));
    let words = rest.get(..count * 2)?.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    Some((words, &rest[count * 2..]))
}

/// True if an earlier message may have failed to prepare a statement of a `DEALLOCATE`.
pub fn is_in_doubt(s: &Session, statement: &Statement) -> bool {
    match &statement.local {
        Some(LocalStatement::Deallocate(name)) => s.is_in_doubt(name.as_bytes()),
        Some(LocalStatement::DeallocateAll) => s.has_doubts(),
        _ => false,
    }
}

/// Returns the command that Weir itself answers now: SHOW commands, BEGIN, savepoints and the end of a transaction unknown to servers, and
/// `DEALLOCATE` of statements prepared by the protocol, which have other names on the server and may be shared.
pub fn is_ours<'a>(s: &Session, w: &Context, statement: &'a Statement) -> Option<&'a LocalStatement> {
    let local = statement.local.as_ref()?;
    match local {
        LocalStatement::Begin(_) => lazy_begin::may_hold(s).then_some(local),
        LocalStatement::End(_) => {
            let is_begun = s.participants.is_some() && !matches!(s.lazy_begin, LazyBegin::Failed(_));
            (s.lazy_begin.is_open() && !is_begun).then_some(local)
        }
        LocalStatement::Savepoint(_) => savepoints::answers(s, w).then_some(local),
        LocalStatement::Deallocate(name) => {
            let name = name.as_bytes();
            let is_by_sql = || s.state.by_sql.has(name) && (may_drop_by_sql(s) || is_not_here(s, name));
            (s.status() != FAILED && (s.statements.named.contains_key(name) || is_by_sql())).then_some(local)
        }
        LocalStatement::DeallocateAll => {
            let has_others = |left: &LeftoverState| left.may_lack_statements() || !left.long.is_empty();
            let is_known = !s.is_unsure() && !s.upstream().is_some_and(|upstream| has_others(&upstream.left));
            let is_plain = s.status() != FAILED && !s.state.by_mode && is_known;
            (is_plain && (s.state.by_sql.is_empty() || may_drop_by_sql(s))).then_some(local)
        }
        LocalStatement::View(_)
        | LocalStatement::Parameter(_)
        | LocalStatement::Route(_)
        | LocalStatement::DeleteCache(_)
        | LocalStatement::Set(..)
        | LocalStatement::Unknown(_) => Some(local),
    }
}

/// True if statements prepared by SQL may be forgotten here, and dropped when the server connection is next brought up to date.
fn may_drop_by_sql(s: &Session) -> bool {
    // After DROP TABLE one of them may be missing there.
    s.status() == IDLE && !s.is_unsure() && !s.state.by_mode && !s.state.by_sql.is_bound()
}

/// True if the server connection of another shard lacks the statement, which stands on shard 0.
fn is_not_here(s: &Session, name: &[u8]) -> bool {
    let lacks = s.sharding.here() != 0 && s.conn().is_some_and(|conn| !conn.by_sql.has(name));
    lacks && !s.is_unsure() && !s.state.by_mode && !s.state.by_sql.is_bound()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_formats_are_read_past_the_parameters() {
        let bind = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x02\0\x01\0\0";
        assert_eq!(result_formats(bind), Ok(vec![1, 0]));
        assert_eq!(result_formats(b"\0s\0\0\0\0\0\0\0"), Ok(vec![]));
        assert_eq!(result_formats(b"\0s\0\0\0\0\x01\0\0\0\x09a"), Err(garbled::TOO_SHORT));
        assert_eq!(result_formats(b"\0s\0\0\0\0\0\0\0x"), Err(garbled::MORE_THAN_MEANT));
    }
}
