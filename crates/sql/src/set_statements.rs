//! `SET` and its kin: state left, and parameters set.

use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{FuncCall, VariableSetKind, VariableSetStmt};

use crate::facts::{QueryEffect, ResetTarget, SessionVerb, StateKind, TextProperty, TransactionVerb};
use crate::met_names::qualified;
use crate::statement::StatementFacts;
use crate::tree_walk::{EffectTime, WalkFindings};

pub(crate) fn judge_set(set: &VariableSetStmt) -> StatementFacts {
    let name = set.name().unwrap_or_default().to_ascii_lowercase();
    if set.kind == VariableSetKind::VAR_RESET_ALL {
        let session = StatementFacts::session(SessionVerb::ResetAll).and_keeps(StateKind::Setting);
        return session.and_resets(ResetTarget::All).marked(TextProperty::Moves);
    }
    if is_of_transaction(&name) {
        return StatementFacts::transaction(QueryEffect::Unsure, TransactionVerb::Within);
    }
    if set.is_local {
        let mut verdict = if_moves(StatementFacts::effect(QueryEffect::Unsure), &name);
        if set.kind == VariableSetKind::VAR_SET_VALUE {
            verdict.parameters.sets_local = plain_value(&name, set).map(|value| (name, value));
        }
        return verdict;
    }
    if name == "seed" {
        return StatementFacts::keeping(StateKind::Library);
    }
    let mut verdict = if_moves(StatementFacts::keeping(StateKind::Setting), &name);
    if matches!(set.kind, VariableSetKind::VAR_RESET | VariableSetKind::VAR_SET_DEFAULT) {
        verdict = verdict.and_resets(ResetTarget::Name(name));
    } else if set.kind == VariableSetKind::VAR_SET_VALUE {
        verdict.parameters.sets = plain_value(&name, set).map(|value| (name, value));
    }
    verdict
}

fn if_moves(verdict: StatementFacts, name: &str) -> StatementFacts {
    if moves_names(name) { verdict.marked(TextProperty::Moves) } else { verdict }
}

/// True for parameters that decide the meaning of names or the reading of texts. `SET SCHEMA` is a `search_path`, `SET
/// NAMES` a `client_encoding`.
pub(crate) fn moves_names(name: &str) -> bool {
    matches!(name, "search_path" | "role" | "session_authorization" | "standard_conforming_strings" | "client_encoding")
}

/// Every transaction starts with these again.
fn is_of_transaction(name: &str) -> bool {
    const NAMES: [&str; 5] =
        ["transaction", "transaction snapshot", "transaction_isolation", "transaction_read_only", "transaction_deferrable"];
    NAMES.contains(&name)
}

/// Parameters whose value is not the word in the text: relative, quoted lists, or changed by others.
const NOT_PLAIN: [&str; 7] = [
    "datestyle",
    "local_preload_libraries",
    "role",
    "search_path",
    "session_authorization",
    "session_preload_libraries",
    "temp_tablespaces",
];

/// Source: `flatten_set_variable_args` in guc.c.
fn plain_value(name: &str, set: &VariableSetStmt) -> Option<String> {
    let mut values = set.args().iter();
    let (Some(Node::A_Const(value)), None) = (values.next(), values.next()) else { return None };
    if NOT_PLAIN.contains(&name) {
        return None;
    }
    let value = value.val()?;
    if let Some(text) = value.string_value() {
        return Some(text.to_owned());
    }
    value.numeric_value::<i32>().map(|number| number.to_string())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetParameterNames {
    pub known: Vec<String>,
    /// True if others are possible: computed names, unreadable texts.
    pub others: bool,
}

/// Parameters set within functions are not seen.
pub fn names_set(text: &[u8]) -> SetParameterNames {
    let all = SetParameterNames { known: Vec::new(), others: true };
    let Ok(text) = std::str::from_utf8(text) else { return all };
    if text.len() > crate::TEXT_BYTES_MAX {
        return all;
    }
    // The binding may panic; see `facts`.
    catch_unwind(|| look(text)).unwrap_or(all)
}

fn look(text: &str) -> SetParameterNames {
    let mut names = SetParameterNames::default();
    let Ok(tree) = pg_raw_parse::parse(text) else { return SetParameterNames { others: true, ..names } };
    for raw in tree.iter() {
        let mut walk = WalkFindings::default();
        walk.start(raw.stmt_location);
        match raw.stmt() {
            Node::VariableSetStmt(set) => names.of_set(set),
            node => {
                walk.visit(node, EffectTime::Now);
                walk.calls.iter().for_each(|call| names.of_call(call));
                names.others |= walk.sets_by_table;
            }
        }
    }
    names.known.sort_unstable();
    names.known.dedup();
    names
}

impl SetParameterNames {
    fn of_set(&mut self, set: &VariableSetStmt) {
        let name = set.name().unwrap_or_default().to_ascii_lowercase();
        let more: &[&str] = match (set.kind, name.as_str()) {
            (VariableSetKind::VAR_RESET_ALL, _) => {
                self.others = true;
                return;
            }
            (_, "session characteristics") => {
                &["default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable"]
            }
            (_, "session_authorization") => &["session_authorization", "role"],
            _ => &[],
        };
        if more.is_empty() {
            self.known.push(name);
        }
        self.known.extend(more.iter().map(|name| (*name).to_owned()));
    }

    fn of_call(&mut self, call: &FuncCall) {
        let name = match (qualified(call.funcname().iter()).1, call.args().get(0)) {
            ("set_config", Some(Node::A_Const(value))) => {
                value.val().and_then(|value| value.string_value().map(str::to_ascii_lowercase))
            }
            ("set_limit", _) => Some("pg_trgm.similarity_threshold".to_owned()),
            ("set_config", _) => None,
            _ => return,
        };
        match name {
            Some(name) => self.known.push(name),
            None => self.others = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_names(text: &str, expected: &str, others: bool) {
        let names = names_set(text.as_bytes());
        assert_eq!((names.known.join(" ").as_str(), names.others), (expected, others), "{text}");
    }

    #[test]
    fn a_text_says_which_parameters_it_sets() {
        check_names("set work_mem = '1MB'; reset TimeZone", "timezone work_mem", false);
        check_names("select set_config('App.User', $1, false), f(set_config('b', 'c', true))", "app.user", false);
        check_names("select set_config($1, $2, false)", "", true);
        check_names("reset all", "", true);
        check_names("set session authorization joe", "role session_authorization", false);
        check_names("set names 'utf8'; set time zone 'UTC'; set schema 'x'", "client_encoding search_path timezone", false);
        check_names("selct", "", true);
        check_names("update pg_catalog.pg_settings set setting = '1MB' where name = 'work_mem'", "", true);
        check_names("insert into t select set_config('x.y', a, false) from u", "x.y", false);
    }
}
