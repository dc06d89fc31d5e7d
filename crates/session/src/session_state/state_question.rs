//! State left on a server connection: the question to the server, and the consequences of its answer.
//!
//! The server's answer accounts for rollbacks, subtransactions and functions. State that can move goes to the session (settings,
//! statements prepared by SQL); other state pins the server connection.
//!
//! Made-up parameters (`app.user`) are not listed by the server, so they are asked for by name.

use crate::session_state::client_settings::{SettingValues, WHO};
use crate::session_state::temporary::TemporaryList;
use std::collections::BTreeSet;
use weir_catalog::NAMES_MAX;
use weir_sql::facts::{StateKind, StateKinds};
use weir_wire::gather::{BoundExceeded, GatherBound, GatherBudget};
use weir_wire::write::literal;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateQuestion {
    pub kinds: StateKinds,
    pub names: BTreeSet<String>,
    /// Any listed parameter may have been set.
    pub any_setting: bool,
    /// Functions that ran, whose sources are searched for parameters.
    pub functions: BTreeSet<String>,
    /// Functions whose source is wanted for the next time.
    pub sources: BTreeSet<String>,
    /// Where else made-up names are searched for.
    pub made_up: MadeUp,
    /// Reported unasked, with the value before.
    pub reported: Vec<(String, String)>,
}

/// Functions searched for made-up names besides those called. Ordered by extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MadeUp {
    /// The names are known.
    #[default]
    Known,
    /// Defined since the catalog was read.
    ByRecent,
    ByAny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCost {
    Plain,
    /// The server may compile the query, which takes up to some seconds.
    Compiled,
}

/// For the query's own transaction.
const UNCOMPILED: &str = "SHOW jit; SET LOCAL jit = off; ";

/// Sources per question; the rest comes next time.
pub const SOURCES_MAX: usize = 64;

impl StateQuestion {
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Asks again by name for what the server cannot list, after an incomplete answer.
    pub fn add_unanswered(&mut self, asked: StateQuestion) {
        let room = NAMES_MAX.saturating_sub(self.names.len());
        self.names.extend(asked.names.into_iter().take(room));
        let room = SOURCES_MAX.saturating_sub(self.functions.len());
        self.functions.extend(asked.functions.into_iter().take(room));
        self.made_up = self.made_up.max(asked.made_up);
    }

    pub fn is_about_all(&self) -> bool {
        self.kinds.has(StateKind::Unknown) || self.kinds.has(StateKind::Unread)
    }

    /// Adds the session's made-up names if any parameter may have changed.
    pub fn add_own(&mut self, settings: &SettingValues) {
        if self.any_setting || self.is_about_all() {
            self.names.extend(
                settings.unlisted().pairs().map(|(name, _)| name.to_owned()).filter(|name| !WHO.contains(&name.as_str())),
            );
        }
    }

    /// Notes a report: by a function, `SET LOCAL` or its end, or a reload.
    pub fn add_report(&mut self, name: &str, before: &str) {
        if !self.reported.iter().any(|(known, _)| known == name) {
            self.reported.push((name.to_owned(), before.to_owned()));
        }
        self.kinds.add(StateKind::Setting);
    }

    /// Notes that settings may be rolled back. Asked for by name, a default would count as the session's value; so all set
    /// parameters are asked for, which costs the server half a millisecond, six times as much.
    pub fn add_rollback(&mut self) {
        self.any_setting |= self.names.iter().any(|name| !name.contains('.') && !WHO.contains(&name.as_str()));
    }

    /// Weighs reports at the transaction's end: a parameter with its old value was changed for the transaction only. Another
    /// value does not tell whether the session has set it, so all set parameters are asked for.
    pub fn weigh_reports<'a>(&mut self, now: impl Fn(&str) -> &'a str) {
        let reported = std::mem::take(&mut self.reported);
        self.any_setting |= reported.iter().any(|(name, before)| now(name) != before);
        if !self.any_setting && self.names.is_empty() {
            self.kinds = self.kinds.without(StateKinds::of(StateKind::Setting));
        }
    }

    /// Adds words with a dot.
    pub fn add_custom_names(&mut self, text: &[u8]) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
        for word in text.split(|byte| !is_word(byte)) {
            let begins = word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
            let has_dot = word[..word.len().saturating_sub(1)].contains(&b'.');
            if begins && has_dot && word.len() <= 128 && self.names.len() < NAMES_MAX {
                self.names.insert(String::from_utf8_lossy(word).to_ascii_lowercase());
            }
        }
    }

    /// One query, rows of three texts. Where it might be compiled, `jit` is turned off for it, and its value told first in a row
    /// of one text.
    pub fn question(&self, cost: AnswerCost) -> String {
        let mut sql = String::new();
        let any = self.is_about_all() || self.any_setting;
        if self.is_about_all() || self.kinds.has(StateKind::Setting) {
            self.ask_settings(&mut sql, any, cost);
        }
        self.ask_kinds(&mut sql);
        match cost {
            AnswerCost::Plain => sql,
            AnswerCost::Compiled => format!("{UNCOMPILED}{sql}"),
        }
    }

    fn ask_kinds(&self, sql: &mut String) {
        let any = self.is_about_all();
        for (kind, part) in PARTS {
            if any || self.kinds.has(*kind) {
                push_part(sql, part);
            }
        }
        if any && !self.sources.is_empty() {
            push_part(sql, FUNCTION_SOURCES);
            push_array(sql, self.sources.iter(), "name");
            sql.push(')');
        }
    }

    fn ask_settings(&self, sql: &mut String, any: bool, cost: AnswerCost) {
        match (any, cost) {
            (false, _) => {}
            (true, AnswerCost::Plain) => push_part(sql, SESSION_SETTINGS),
            (true, AnswerCost::Compiled) => push_part(sql, &SESSION_SETTINGS.replace(VALUE, VALUE_BUT_JIT)),
        }
        if any || WHO.iter().any(|name| self.names.contains(*name)) {
            push_part(sql, SESSION_USERS);
        }
        // Of listed parameters only those set by the session count.
        let is_asked = |name: &&String| if any { name.contains('.') } else { !WHO.contains(&name.as_str()) };
        let names: Vec<&String> = self.names.iter().filter(is_asked).collect();
        if !names.is_empty() {
            push_part(sql, "SELECT 's', n, pg_catalog.current_setting(n, true) FROM pg_catalog.unnest(");
            push_array(sql, names.into_iter(), "text");
            sql.push_str(") n");
        }
        if any && self.made_up != MadeUp::Known {
            push_part(sql, MADE_UP);
            if self.made_up == MadeUp::ByRecent {
                sql.push_str(RECENTLY);
            }
            sql.push_str(LIMITED);
        }
        if any && !self.functions.is_empty() {
            push_part(sql, FUNCTION_SETTINGS);
            push_array(sql, self.functions.iter(), "name");
            sql.push(')');
        }
    }
}

/// End with their transaction, unlike `transaction_timeout`.
const OF_TRANSACTION: [&str; 3] = ["transaction_deferrable", "transaction_isolation", "transaction_read_only"];

/// A parameter that the user may not set (a privileged function did) cannot move: 'd' at its default, 'o' at another value.
const SESSION_SETTINGS: &str = "SELECT CASE WHEN context OPERATOR(pg_catalog.=) 'user' OR EXISTS (SELECT FROM pg_catalog.pg_roles \
     WHERE rolname OPERATOR(pg_catalog.=) SESSION_USER AND rolsuper) THEN 's' \
     WHEN setting OPERATOR(pg_catalog.=) reset_val THEN 'd' ELSE 'o' END, \
     pg_catalog.lower(name), pg_catalog.current_setting(name) FROM pg_catalog.pg_settings \
     WHERE source OPERATOR(pg_catalog.=) 'session'";

/// `jit` is set by the question itself, so its default counts.
const VALUE: &str = "pg_catalog.current_setting(name) FROM";
const VALUE_BUT_JIT: &str =
    "CASE WHEN name OPERATOR(pg_catalog.=) 'jit' THEN reset_val ELSE pg_catalog.current_setting(name) END FROM";

const JIT: &str = "jit";

const SESSION_USERS: &str = "SELECT 'u', SESSION_USER::pg_catalog.text, pg_catalog.current_setting('role')";

const FUNCTION_SETTINGS: &str = "SELECT 's', pg_catalog.lower(m[1]), pg_catalog.current_setting(m[1], true) \
     FROM pg_catalog.pg_proc p, pg_catalog.regexp_matches(p.prosrc, \
     '([a-zA-Z_][a-zA-Z_0-9$]*(?:[.][a-zA-Z_][a-zA-Z_0-9$]*)+)', 'g') m WHERE p.proname OPERATOR(pg_catalog.=) ANY (";

/// No backslashes: some sessions read them otherwise.
const MADE_UP: &str = "(SELECT 's', pg_catalog.lower(m[1]), pg_catalog.current_setting(m[1], true) \
     FROM (SELECT f.prosrc FROM pg_catalog.pg_proc f WHERE f.oid OPERATOR(pg_catalog.>=) 16384";

/// A catalog is read again within as many transactions.
const RECENTLY: &str = " AND pg_catalog.age(f.xmin) OPERATOR(pg_catalog.<) 1000000";

/// `OFFSET` has the age checked before the source is searched.
const LIMITED: &str = " OFFSET 0) p, pg_catalog.regexp_matches(p.prosrc, \
     '(?:(?:set_config|current_setting)[[:space:]]*[(][[:space:]]*''|set[[:space:]]+(?:session[[:space:]]+)?)([a-zA-Z_][a-zA-Z_0-9$]*(?:[.][a-zA-Z_][a-zA-Z_0-9$]*)+)', 'gi') m \
     WHERE pg_catalog.octet_length(p.prosrc) OPERATOR(pg_catalog.<=) 100000 AND p.prosrc OPERATOR(pg_catalog.~*) 'set' LIMIT 256)";

/// Limit: `functions::SOURCE_BYTES_MAX`.
const FUNCTION_SOURCES: &str = "SELECT 'f', p.proname::pg_catalog.text, l.lanname::pg_catalog.text OPERATOR(pg_catalog.||) ' ' \
     OPERATOR(pg_catalog.||) CASE WHEN pg_catalog.octet_length(p.prosrc) OPERATOR(pg_catalog.>) 12000 THEN '' ELSE p.prosrc END \
     FROM pg_catalog.pg_proc p, pg_catalog.pg_language l WHERE l.oid OPERATOR(pg_catalog.=) p.prolang \
     AND p.proname OPERATOR(pg_catalog.=) ANY (";

const PARTS: &[(StateKind, &str)] = &[
    // Statements of the protocol are counted: all sessions share them, and code may deallocate them.
    (
        StateKind::Prepare,
        "SELECT CASE WHEN n IS NULL THEN 'k' ELSE 'p' END, COALESCE(n, pg_catalog.count(*)::pg_catalog.text), COALESCE(t, '') \
         FROM (SELECT CASE WHEN from_sql THEN name END, CASE WHEN from_sql THEN statement END \
         FROM pg_catalog.pg_prepared_statements) p(n, t) GROUP BY n, t",
    ),
    (StateKind::Listen, "SELECT 'l', c, '' FROM pg_catalog.pg_listening_channels() c"),
    // Transaction locks are gone by now.
    (
        StateKind::AdvisoryLock,
        "SELECT 'a', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    ),
    // All objects depend on their schema, with an index for it.
    (
        StateKind::Temporary,
        "(SELECT 't', COALESCE(c.relname::pg_catalog.text, ''), COALESCE(c.relkind::pg_catalog.text, '') FROM pg_catalog.pg_depend d \
         LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) d.objid \
         AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
         WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
         AND d.refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() LIMIT 257)",
    ),
    (StateKind::HoldCursor, "SELECT 'h', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable)"),
    // A temporary slot is active all its life.
    (
        StateKind::Slot,
        "SELECT 'r', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_get_replication_slots() r \
         WHERE r.temporary AND r.active_pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    ),
];

fn push_part(sql: &mut String, part: &str) {
    if !sql.is_empty() {
        sql.push_str(" UNION ALL ");
    }
    sql.push_str(part);
}

fn push_array<'a>(sql: &mut String, items: impl Iterator<Item = &'a String>, of: &str) {
    sql.push_str("ARRAY[");
    for (at, item) in items.enumerate() {
        if at > 0 {
            sql.push(',');
        }
        literal(sql, item);
    }
    sql.push_str("]::pg_catalog.");
    sql.push_str(of);
    sql.push_str("[]");
}

const ANSWER: GatherBound =
    GatherBound { thing: "the answer to a question for a session's state", count_max: 8192, bytes_max: 2 << 20, parameter: "" };

/// Limit of a row that is read: it may hold a parameter's value or a statement's text.
pub const ROW_LOOK_BYTES_MAX: usize = 1 << 20;

const ROW_BYTES: usize = 112;

/// A server that says so many times the limit does not end its answer.
const FLOOD_TIMES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateAnswer {
    gathered: GatherBudget,
    pub settings: Vec<(String, String)>,
    pub foreign: Vec<(String, String)>,
    /// Such parameters at their default again.
    pub default_again: BTreeSet<String>,
    /// `jit` before the question.
    pub jit: Option<String>,
    /// Session user and role.
    pub users: Option<(String, String)>,
    pub found: StateKinds,
    pub temporary: TemporaryList,
    pub channels: BTreeSet<Vec<u8>>,
    /// Name and text.
    pub prepared: Vec<(String, String)>,
    pub by_protocol: usize,
    /// Name, language and source.
    pub sources: Vec<(String, String, String)>,
    /// True if the answer is incomplete.
    pub is_torn: bool,
}

impl Default for StateAnswer {
    fn default() -> StateAnswer {
        StateAnswer {
            gathered: GatherBudget::new(ANSWER),
            settings: Vec::new(),
            foreign: Vec::new(),
            default_again: BTreeSet::new(),
            jit: None,
            users: None,
            found: StateKinds::default(),
            temporary: TemporaryList::default(),
            channels: BTreeSet::new(),
            prepared: Vec::new(),
            by_protocol: 0,
            sources: Vec::new(),
            is_torn: false,
        }
    }
}

impl StateAnswer {
    /// A too long answer is dropped and torn. Error: the server does not end it.
    pub fn row(&mut self, cells: &[Option<&[u8]>]) -> Result<(), BoundExceeded> {
        let bytes = cells.iter().flatten().map(|cell| cell.len()).sum();
        if self.has_room(bytes)? {
            self.take(cells);
        }
        Ok(())
    }

    pub fn unread(&mut self, bytes: usize) -> Result<(), BoundExceeded> {
        self.is_torn = true;
        self.has_room(bytes).map(drop)
    }

    fn has_room(&mut self, bytes: usize) -> Result<bool, BoundExceeded> {
        let Err(exceeded) = self.gathered.take(ROW_BYTES + bytes) else { return Ok(true) };
        if self.gathered.is_over_by(FLOOD_TIMES) {
            return Err(exceeded);
        }
        *self = StateAnswer { gathered: self.gathered.clone(), is_torn: true, ..StateAnswer::default() };
        Ok(false)
    }

    fn take(&mut self, cells: &[Option<&[u8]>]) {
        if let &[Some(jit)] = cells {
            return self.jit = Some(String::from_utf8_lossy(jit).into_owned());
        }
        let &[Some(kind), name, value] = cells else { return self.is_torn = true };
        let (Some(name), Some(value)) = (name, value) else {
            // Unknown to the server.
            self.is_torn |= kind != b"s";
            return;
        };
        if kind == b"f" {
            let value = String::from_utf8_lossy(value);
            let (language, source) = value.split_once(' ').unwrap_or_default();
            return self.sources.push((String::from_utf8_lossy(name).into_owned(), language.to_owned(), source.to_owned()));
        }
        let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
            return self.is_torn = true;
        };
        let (name, value) = (name.to_owned(), value.to_owned());
        match kind {
            b"s" if OF_TRANSACTION.contains(&name.as_str()) => {}
            b"s" => self.settings.push((name, value)),
            b"o" => self.foreign.push((name, value)),
            b"d" => drop(self.default_again.insert(name)),
            b"u" => self.users = Some((name, value)),
            b"p" => self.prepared.push((name, value)),
            b"k" => match name.parse() {
                Ok(number) => self.by_protocol = number,
                Err(_) => self.is_torn = true,
            },
            b"l" => {
                self.found.add(StateKind::Listen);
                self.channels.insert(name.into_bytes());
            }
            b"a" => self.found.add(StateKind::AdvisoryLock),
            b"t" => {
                self.found.add(StateKind::Temporary);
                self.temporary.add(name, &value);
            }
            b"h" => self.found.add(StateKind::HoldCursor),
            b"r" => self.found.add(StateKind::Slot),
            _ => self.is_torn = true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementCount {
    One,
    Several,
}

#[derive(Clone, Copy, Debug)]
pub struct ServerErrorFields<'a> {
    pub sqlstate: &'a [u8],
    pub context: &'a [u8],
    pub routine: &'a [u8],
}

/// Routines that read a text, before any statement runs. Source: gram.y, scan.l.
const READERS: [&[u8]; 3] = [b"scanner_yyerror", b"base_yyparse", b"core_yylex"];

/// Routines that fail before leaving anything. Source: `setseed_float8` in float.c, dfmgr.c.
const FAILING: [&[u8]; 4] = [b"setseed", b"setseed_float8", b"internal_load_library", b"expand_dynamic_library_name"];

impl ServerErrorFields<'_> {
    /// True if the failed statement left nothing: it could not be read, was not allowed, or its function refused. In a text of
    /// several statements, earlier ones have run unless the text could not be read. An error within code does not count.
    pub fn never_ran(&self, statements: StatementCount) -> bool {
        if !self.context.is_empty() {
            return false;
        }
        let is_unread = READERS.contains(&self.routine);
        // Source: errcodes.txt. 42: syntax and rights; 25P02: a failed transaction; 25006: a read-only one.
        let is_refused = self.sqlstate.starts_with(b"42") || matches!(self.sqlstate, b"25P02" | b"25006" | b"58P01");
        is_unread || (statements == StatementCount::One && (is_refused || FAILING.contains(&self.routine)))
    }
}

/// Returns the kinds that the answer is complete about.
pub fn told_by(ask: &StateQuestion) -> StateKinds {
    if ask.is_about_all() {
        return StateKind::ALL.into_iter().fold(StateKinds::NONE, StateKinds::with).without(StateKinds::UNTOLD);
    }
    if ask.kinds.has(StateKind::Setting) && ask.any_setting { ask.kinds.with(StateKind::ForeignSetting) } else { ask.kinds }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsOutcome {
    pub of_conn: SettingValues,
    pub of_session: SettingValues,
    /// Foreign: the user may not set it, and the session lacked it.
    pub has_new_foreign: bool,
}

/// `had`: settings the server connection was brought to; `user`: the login's.
pub fn settings_after(
    ask: &StateQuestion,
    answer: &StateAnswer,
    had: &SettingValues,
    startup: &SettingValues,
    user: &str,
) -> SettingsOutcome {
    let any = ask.any_setting || ask.is_about_all();
    let mut of_conn = if any { had.unlisted() } else { had.clone() };
    for (name, value) in &answer.settings {
        match &answer.jit {
            // Listed, `jit` shows the question's own setting; asked for by name, the session's.
            Some(jit) if name == JIT && any && jit == value && had.get(JIT).is_none() => {}
            Some(jit) if name == JIT => of_conn = of_conn.with(JIT, jit),
            Some(_) | None => of_conn = of_conn.with(name, value),
        }
    }
    // The user may set parameters of his own statements.
    let has_new_foreign = answer.foreign.iter().any(|(name, value)| had.get(name) != Some(value));
    for (name, value) in &answer.foreign {
        of_conn = of_conn.with(name, value);
    }
    for name in &answer.default_again {
        of_conn = of_conn.without(name);
    }
    if let Some((session_user, role)) = &answer.users {
        of_conn = of_conn.without_who();
        if session_user != user {
            of_conn = of_conn.with(WHO[0], session_user);
        }
        if role != "none" {
            of_conn = of_conn.with(WHO[1], role);
        }
    }
    // A function reset startup values, which the server does not know.
    let mut of_session = of_conn.clone();
    for (name, value) in startup.without_who().pairs() {
        if of_session.get(name).is_none() {
            of_session = of_session.with(name, value);
        }
    }
    SettingsOutcome { of_conn, of_session, has_new_foreign }
}

pub fn own_texts() -> Vec<String> {
    let names = |text: &str| BTreeSet::from([text.to_owned()]);
    let all = StateQuestion { kinds: StateKinds::of(StateKind::Unknown), ..StateQuestion::default() };
    let by_name =
        StateQuestion { kinds: StateKinds::of(StateKind::Setting), names: names("app.tenant"), ..StateQuestion::default() };
    let by_source =
        StateQuestion { made_up: MadeUp::ByRecent, functions: names("f"), sources: names("f"), any_setting: true, ..all.clone() };
    let kinds = PARTS.iter().map(|(kind, _)| StateQuestion { kinds: StateKinds::of(*kind), ..StateQuestion::default() });
    let texts = [all.clone(), by_name, by_source].into_iter().chain(kinds).map(|ask| ask.question(AnswerCost::Plain));
    texts.chain([all.question(AnswerCost::Compiled)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> SettingValues {
        pairs.iter().fold(SettingValues::default(), |settings, (name, value)| settings.with(name, value))
    }

    fn ask(kinds: &[StateKind], names: &[&str]) -> StateQuestion {
        let kinds = kinds.iter().fold(StateKinds::NONE, |set, kind| set.with(*kind));
        StateQuestion { kinds, names: names.iter().map(|name| name.to_string()).collect(), ..StateQuestion::default() }
    }

    #[test]
    fn where_any_setting_may_be_another_those_that_the_session_made_up_are_asked_for_by_name() {
        let own = settings(&[("app.tenant", "x"), ("work_mem", "1MB")]);
        for (mut ask, is_asked) in [
            (StateQuestion { any_setting: true, ..StateQuestion::default() }, true),
            (ask(&[StateKind::Unknown], &[]), true),
            (ask(&[StateKind::Unread], &[]), true),
            (ask(&[StateKind::Setting], &[]), false),
            (StateQuestion::default(), false),
        ] {
            ask.add_own(&own);
            assert_eq!(ask.names.contains("app.tenant"), is_asked, "{ask:?}");
            assert!(!ask.names.contains("work_mem"), "a server lists it");
        }
    }

    #[test]
    fn one_question_of_each_kind_is_in_the_list_of_own_texts() {
        let texts = own_texts();
        assert_eq!(texts.len(), PARTS.len() + 4);
        for part in ["pg_locks", "pg_prepared_statements", "pg_my_temp_schema", "pg_listening_channels", "app.tenant"] {
            assert!(texts.iter().any(|text| text.contains(part)), "{part}");
        }
    }

    #[test]
    fn only_what_may_have_changed_is_asked() {
        assert_eq!(
            ask(&[StateKind::Setting], &["a.b", "work_mem"]).question(AnswerCost::Plain),
            "SELECT 's', n, pg_catalog.current_setting(n, true) FROM \
             pg_catalog.unnest(ARRAY['a.b','work_mem']::pg_catalog.text[]) n"
        );
        assert_eq!(ask(&[StateKind::Setting], &["role"]).question(AnswerCost::Plain), SESSION_USERS);
        assert_eq!(ask(&[StateKind::Listen], &[]).question(AnswerCost::Plain), PARTS[1].1);
        let all = ask(&[StateKind::Unknown], &[]).question(AnswerCost::Plain);
        assert!(PARTS.iter().all(|(_, part)| all.contains(part)) && all.contains(SESSION_SETTINGS));
    }

    #[test]
    fn a_question_that_might_be_compiled_is_not_and_tells_what_the_session_wants() {
        let all = ask(&[StateKind::Unknown], &["a.b"]).question(AnswerCost::Compiled);
        assert!(all.starts_with(UNCOMPILED) && all.contains(VALUE_BUT_JIT) && all.contains(PARTS[0].1), "{all}");
        let listen = ask(&[StateKind::Listen], &[]);
        assert_eq!(listen.question(AnswerCost::Compiled), format!("{UNCOMPILED}{}", PARTS[1].1));
        let check = |now: &'static str, listed: Option<&'static str>, had: &[(&str, &str)], any: bool, expected: Option<&str>| {
            let mut answer = StateAnswer::default();
            answer.row(&[Some(now.as_bytes())]).unwrap();
            if let Some(value) = listed {
                answer.row(&[Some(b"s"), Some(b"jit"), Some(value.as_bytes())]).unwrap();
            }
            let ask = ask(&[if any { StateKind::Unknown } else { StateKind::Setting }], &["jit"]);
            let outcome = settings_after(&ask, &answer, &settings(had), &SettingValues::default(), "joe");
            assert_eq!((outcome.of_session.get("jit"), answer.is_torn), (expected, false), "{now} {listed:?} {had:?} {any}");
        };
        let had = |value: &'static str| [("jit", value)];
        check("on", Some("on"), &[], true, None);
        check("on", Some("off"), &[], true, Some("on"));
        check("off", Some("on"), &[], true, Some("off"));
        check("off", Some("on"), &had("on"), true, Some("off"));
        check("on", Some("on"), &had("off"), true, Some("on"));
        check("on", Some("off"), &[], false, Some("on"));
        check("on", None, &had("off"), false, Some("off"));
    }

    #[test]
    fn behind_a_rollback_only_what_the_session_has_set_counts() {
        for (names, expected) in
            [(&["datestyle"][..], true), (&["role"], false), (&["my.name"], false), (&["role", "work_mem"], true)]
        {
            let mut ask = ask(&[StateKind::Setting], names);
            ask.add_rollback();
            assert_eq!(ask.question(AnswerCost::Plain).contains(SESSION_SETTINGS), expected, "{names:?}");
        }
        let mut ask = ask(&[StateKind::Setting], &["datestyle"]);
        ask.add_rollback();
        let outcome =
            settings_after(&ask, &StateAnswer::default(), &settings(&[("my.name", "1")]), &SettingValues::default(), "joe");
        assert_eq!(outcome.of_session, settings(&[("my.name", "1")]), "it has set nothing else");
    }

    #[test]
    fn made_up_names_are_looked_for_where_nothing_is_known() {
        let mut ask = ask(&[StateKind::Unknown], &[]);
        assert!(!ask.question(AnswerCost::Plain).contains(MADE_UP));
        ask.made_up = MadeUp::ByAny;
        assert!(ask.question(AnswerCost::Plain).contains(&format!("{MADE_UP}{LIMITED} UNION ALL ")));
        ask.made_up = MadeUp::ByRecent;
        assert!(ask.question(AnswerCost::Plain).contains(&format!("{MADE_UP}{RECENTLY}{LIMITED}")));
    }

    #[test]
    fn a_parameter_told_of_unasked_is_asked_for_unless_it_is_back_where_it_was() {
        let told = |names: &[&str], reports: &[(&str, &str)], now: &'static str| {
            let mut ask = ask(&[], names);
            reports.iter().for_each(|(name, before)| ask.add_report(name, before));
            assert!(ask.kinds.has(StateKind::Setting));
            ask.weigh_reports(|_| now);
            (ask.is_empty(), ask.any_setting)
        };
        assert_eq!(told(&[], &[("TimeZone", "UTC"), ("TimeZone", "GMT")], "UTC"), (true, false));
        assert_eq!(told(&[], &[("TimeZone", "UTC")], "GMT"), (false, true));
        assert_eq!(told(&["work_mem"], &[("TimeZone", "UTC")], "UTC"), (false, false));
    }

    #[test]
    fn what_a_transaction_has_set_for_itself_is_not_the_sessions() {
        let mut answer = StateAnswer::default();
        for name in ["transaction_isolation", "transaction_timeout", "transaction_read_only", "transaction_deferrable"] {
            answer.row(&[Some(b"s"), Some(name.as_bytes()), Some(b"1")]).unwrap();
        }
        assert_eq!(answer.settings, [("transaction_timeout".into(), "1".into())]);
    }

    #[test]
    fn what_was_not_answered_is_asked_for_by_name_again() {
        let mut asked = ask(&[StateKind::Setting], &["app.tenant"]);
        (asked.functions, asked.made_up) = (BTreeSet::from(["f".to_owned()]), MadeUp::ByRecent);
        let mut again = ask(&[StateKind::Unknown], &["app.user"]);
        again.add_unanswered(asked);
        let names: Vec<&str> = again.names.iter().map(String::as_str).collect();
        assert_eq!((names.as_slice(), again.made_up), (&["app.tenant", "app.user"][..], MadeUp::ByRecent));
        assert!(again.functions.contains("f") && again.is_about_all());
        let many = |first: usize| (first..first + NAMES_MAX).map(|number| format!("a.b{number}")).collect();
        again.names = many(0);
        again.add_unanswered(StateQuestion { names: many(NAMES_MAX), ..StateQuestion::default() });
        assert_eq!(again.names.len(), NAMES_MAX, "a session whose questions fail for hours");
    }

    #[test]
    fn only_a_statement_that_never_ran_leaves_nothing_for_sure() {
        let check = |sqlstate: &str, routine: &str, context: &str, one: bool, several: bool| {
            let failure =
                ServerErrorFields { sqlstate: sqlstate.as_bytes(), context: context.as_bytes(), routine: routine.as_bytes() };
            let found = [StatementCount::One, StatementCount::Several].map(|statements| failure.never_ran(statements));
            assert_eq!(found, [one, several], "{failure:?}");
        };
        check("42601", "scanner_yyerror", "", true, true);
        check("42601", "scanner_yyerror", "PL/pgSQL function f() line 1 at EXECUTE", false, false);
        check("42883", "ParseFuncOrColumn", "", true, false);
        check("25P02", "exec_simple_query", "", true, false);
        check("22023", "setseed", "", true, false);
        check("58P01", "internal_load_library", "", true, false);
        check("22012", "int4div", "", false, false);
        check("57014", "ProcessInterrupts", "", false, false);
    }

    #[test]
    fn names_of_applications_are_found_in_any_text() {
        let mut ask = StateQuestion::default();
        ask.add_custom_names(b"select set_config('App.user', 'x', false), 1.5, t.*, a.b.c from x. where '.y'");
        assert_eq!(ask.names.iter().map(String::as_str).collect::<Vec<_>>(), ["a.b.c", "app.user"]);
    }

    #[test]
    fn an_answer_by_names_changes_those_only() {
        let had = settings(&[("timezone", "UTC"), ("work_mem", "1MB")]);
        let mut answer = StateAnswer::default();
        answer.row(&[Some(b"s"), Some(b"work_mem"), Some(b"2MB")]).unwrap();
        answer.row(&[Some(b"s"), Some(b"no.such"), None]).unwrap();
        let outcome = settings_after(&ask(&[StateKind::Setting], &["work_mem"]), &answer, &had, &had, "joe");
        assert_eq!(outcome.of_session, settings(&[("timezone", "UTC"), ("work_mem", "2MB")]));
        assert_eq!(outcome.of_session, outcome.of_conn);
        assert!(!answer.is_torn);
    }

    #[test]
    fn an_answer_about_all_is_the_truth_and_the_start_comes_again() {
        let startup = settings(&[("timezone", "UTC"), ("work_mem", "1MB")]);
        let had = startup.with("app.user", "7").with("enable_sort", "off").with("role", "sue");
        let mut answer = StateAnswer::default();
        answer.row(&[Some(b"s"), Some(b"timezone"), Some(b"UTC")]).unwrap();
        answer.row(&[Some(b"u"), Some(b"joe"), Some(b"none")]).unwrap();
        let outcome = settings_after(&ask(&[StateKind::Unknown], &[]), &answer, &had, &startup, "joe");
        assert_eq!(outcome.of_conn, settings(&[("app.user", "7"), ("timezone", "UTC")]));
        assert_eq!(outcome.of_session, settings(&[("app.user", "7"), ("timezone", "UTC"), ("work_mem", "1MB")]));
    }

    #[test]
    fn what_the_user_may_not_set_is_told_apart_unless_he_has_set_it() {
        let had = settings(&[("track_counts", "off")]);
        let row = |kind: &'static [u8], name: &'static str, value: &'static str| {
            let mut answer = StateAnswer::default();
            answer.row(&[Some(kind), Some(name.as_bytes()), Some(value.as_bytes())]).unwrap();
            let outcome = settings_after(&ask(&[StateKind::Unknown], &[]), &answer, &had, &SettingValues::default(), "joe");
            (outcome.has_new_foreign, outcome.of_session)
        };
        assert_eq!(row(b"o", "log_duration", "on"), (true, settings(&[("log_duration", "on")])));
        assert_eq!(row(b"o", "track_counts", "off"), (false, had.clone()));
        assert_eq!(row(b"d", "log_duration", "off"), (false, SettingValues::default()));
        assert!(told_by(&ask(&[StateKind::Unknown], &[])).has(StateKind::ForeignSetting));
        assert!(!told_by(&ask(&[StateKind::Setting], &["work_mem"])).has(StateKind::ForeignSetting));
    }

    #[test]
    fn each_kind_of_row_tells_what_the_session_holds() {
        for (kind, expected) in [
            ("l", StateKind::Listen),
            ("a", StateKind::AdvisoryLock),
            ("t", StateKind::Temporary),
            ("h", StateKind::HoldCursor),
            ("r", StateKind::Slot),
        ] {
            let mut answer = StateAnswer::default();
            answer.row(&[Some(kind.as_bytes()), Some(b"name"), Some(b"r")]).unwrap();
            assert_eq!((answer.found, answer.is_torn), (StateKinds::of(expected), false), "{kind}");
        }
    }

    #[test]
    fn sources_of_functions_come_with_the_answer() {
        let mut ask = ask(&[StateKind::Unknown], &[]);
        ask.sources.insert("f".into());
        assert!(ask.question(AnswerCost::Plain).ends_with("ANY (ARRAY['f']::pg_catalog.name[])"));
        let mut answer = StateAnswer::default();
        answer.row(&[Some(b"f"), Some(b"f"), Some(b"sql select 1")]).unwrap();
        assert_eq!(answer.sources, [("f".into(), "sql".into(), "select 1".into())]);
        assert!(!answer.is_torn);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_no_answer() {
        for row in [vec![], vec![Some(&b"?"[..]), Some(b"a"), Some(b"b")], vec![Some(&b"p"[..]), Some(b"\xff"), Some(b"b")]] {
            let mut answer = StateAnswer::default();
            answer.row(&row).unwrap();
            assert!(answer.is_torn, "{row:?}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_whole_and_one_without_end_is_an_error() {
        let mut answer = StateAnswer::default();
        let name = "n".repeat(1000);
        let mut row = |number: usize| answer.row(&[Some(b"s"), Some(format!("{name}{number}").as_bytes()), Some(b"v")]);
        assert_eq!((0..1_000).find_map(|number| row(number).err()), None);
        assert_eq!((1_000..3_000).find_map(|number| row(number).err()), None);
        let error = (3_000..100_000).find_map(|number| row(number).err()).expect("a limit");
        assert_eq!(error.to_string(), "the answer to a question for a session's state takes more than 2097152 bytes");
        assert!(answer.is_torn && answer.settings.is_empty());
        let mut answer = StateAnswer::default();
        assert!((0..ANSWER.count_max * FLOOD_TIMES + 1).any(|_| answer.unread(0).is_err()) && answer.is_torn);
    }
}
