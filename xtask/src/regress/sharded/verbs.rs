//! Facts of a statement that the harness needs: by its words only.

use super::tokens::{self, Kind, Token};

/// As whom the scripts run.
pub const SUPERUSER: &str = "postgres";

/// Effect of a text, as far as the harness reacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Changes no rows.
    Read,
    /// May change rows.
    Write,
    /// Runs code that may change rows, and make tables.
    Code,
    /// Makes tables: if Weir refuses, those that it names are gathered, too.
    Make,
    /// Changes or drops tables: if Weir refuses, the tables are gathered on shard 0 first.
    Redefine,
    /// Objects that an operator makes on every server: roles, schemas, functions, types.
    Everywhere,
    Other,
}

/// Of a text, which may hold several statements.
pub fn verb(text: &str) -> Verb {
    let tokens = tokens::all(text);
    let words: Vec<String> =
        tokens.iter().take(6).take_while(|token| token.kind == Kind::Word).map(|token| token.text.to_ascii_lowercase()).collect();
    let words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !matches!(*word, "or" | "replace" | "if" | "exists")).collect();
    let has = |word: &str| tokens.iter().any(|token| token.is_word(word));
    if tokens.iter().any(|token| token.kind == Kind::Semicolon) {
        return Verb::Make;
    }
    match words.as_slice() {
        ["select", ..] if has("into") => Verb::Make,
        ["select" | "values" | "table" | "explain" | "show" | "fetch" | "declare" | "move" | "close", ..] => Verb::Read,
        ["with", ..] if !["insert", "update", "delete", "merge"].into_iter().any(has) => Verb::Read,
        ["insert" | "update" | "delete" | "merge" | "copy" | "truncate" | "with", ..] => Verb::Write,
        ["do" | "call" | "execute", ..] => Verb::Code,
        ["create" | "drop" | "alter", object, ..] if is_everywhere(object) => Verb::Everywhere,
        // Membership in roles.
        ["grant" | "revoke", ..] if !has("on") => Verb::Everywhere,
        ["create", "table" | "schema" | "unlogged", ..] => Verb::Make,
        ["drop", "table" | "owned" | "schema" | "index", ..] | ["alter", "table", ..] => Verb::Redefine,
        ["commit" | "end" | "rollback" | "abort", ..] => Verb::Make,
        _ => Verb::Other,
    }
}

fn is_everywhere(object: &str) -> bool {
    matches!(
        object,
        "role"
            | "user"
            | "group"
            | "function"
            | "procedure"
            | "type"
            | "domain"
            | "operator"
            | "aggregate"
            | "cast"
            | "collation"
            | "extension"
    )
}

/// True for a COPY that reads data of the client.
pub fn is_copy_from_client(text: &str) -> bool {
    let tokens = tokens::all(text);
    let is_from = |pair: &[Token<'_>]| pair[0].is_word("from") && (pair[1].is_word("stdin") || pair[1].is_word("stdout"));
    tokens.first().is_some_and(|first| first.is_word("copy")) && tokens.windows(2).any(is_from)
}

/// A COPY from a file of the server as one from the client, and the file.
pub fn copy_from_file(text: &str) -> Option<(String, String)> {
    let tokens = tokens::all(text);
    if !tokens.first()?.is_word("copy") {
        return None;
    }
    let is_from = |pair: &[Token<'_>]| pair[0].is_word("from") && pair[1].kind == Kind::Text;
    let at = tokens.windows(2).position(is_from)?;
    let file = tokens[at + 1].text;
    let begin = file.as_ptr() as usize - text.as_ptr() as usize;
    let changed = format!("{}STDIN{}", &text[..begin], &text[begin + file.len()..]);
    Some((changed, file.trim_matches('\'').to_owned()))
}

/// A text whose temporary table or view is an ordinary one: a session that has some stays on shard 0. `None`: it makes none.
pub fn without_temporary(text: &str) -> Option<String> {
    let tokens = tokens::all(text);
    let is_temporary = |token: &Token<'_>| token.is_word("temp") || token.is_word("temporary");
    let [create, word, table, ..] = tokens.as_slice() else { return None };
    let hangs = tokens.windows(2).any(|pair| pair[0].is_word("on") && pair[1].is_word("commit"));
    let is_object = table.is_word("table") || table.is_word("view");
    if !create.is_word("create") || !is_temporary(word) || !is_object || hangs {
        return None;
    }
    let begin = word.text.as_ptr() as usize - text.as_ptr() as usize;
    Some(format!("{}{}", &text[..begin], &text[begin + word.text.len()..]))
}

/// The schema of a `DROP SCHEMA`.
pub fn dropped_schema(text: &str) -> Option<String> {
    let tokens = tokens::all(text);
    let [drop, schema, rest @ ..] = tokens.as_slice() else { return None };
    if !drop.is_word("drop") || !schema.is_word("schema") {
        return None;
    }
    rest.iter().find(|token| !token.is_word("if") && !token.is_word("exists"))?.name()
}

/// The user of a `SET SESSION AUTHORIZATION`, as whom a login then stands for it.
pub fn session_user(text: &str) -> Option<String> {
    let tokens = tokens::all(text);
    let [set, session, authorization, rest @ ..] = tokens.as_slice() else { return None };
    if !session.is_word("session") || !authorization.is_word("authorization") {
        return None;
    }
    let user = match rest {
        [] if set.is_word("reset") => SUPERUSER.to_owned(),
        [default] if set.is_word("set") && default.is_word("default") => SUPERUSER.to_owned(),
        [name] if set.is_word("set") => name.name().unwrap_or_else(|| name.text.trim_matches('\'').to_owned()),
        _ => return None,
    };
    Some(user)
}

/// Why a statement is not played: settings in which the engine answers nothing, or which are about the machine.
pub fn left_out_reason(text: &str) -> Option<&'static str> {
    let tokens = tokens::all(text);
    let words: Vec<String> = tokens.iter().take(3).map(|token| token.text.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["set", "extra_float_digits", ..] => Some("a setting in which the engine answers nothing"),
        ["vacuum" | "checkpoint" | "listen" | "notify" | "load", ..] => Some("about the server, not about rows"),
        ["set" | "reset", "session", "authorization"] => Some("another user for the session, within a transaction"),
        [_, "tablespace" | "publication" | "subscription" | "database" | "system" | "event", ..] => {
            Some("about the server, not about rows")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_known_by_their_words() {
        for (text, expected) in [
            ("select 1", Verb::Read),
            ("SELECT * INTO t FROM u", Verb::Make),
            ("with a as (select 1) select * from a", Verb::Read),
            ("with a as (delete from t returning *) select * from a", Verb::Write),
            ("create or replace function f() returns int", Verb::Everywhere),
            ("alter table t add x int", Verb::Redefine),
            ("begin; insert into t values (1)", Verb::Make),
            ("grant pg_read_all_data to regress_a", Verb::Everywhere),
            ("grant select on t to regress_a", Verb::Other),
        ] {
            assert_eq!(verb(text), expected, "{text}");
        }
    }

    #[test]
    fn another_user_of_the_session_is_known() {
        for (text, expected) in [
            ("SET SESSION AUTHORIZATION regress_a", Some("regress_a")),
            ("set session authorization 'regress_a'", Some("regress_a")),
            ("set session authorization default", Some("postgres")),
            ("RESET SESSION AUTHORIZATION", Some("postgres")),
            ("set session characteristics as transaction read only", None),
            ("set role regress_a", None),
        ] {
            assert_eq!(session_user(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn files_of_the_server_come_from_the_client() {
        let (text, file) = copy_from_file("COPY t (a) FROM '/data/x' (FORMAT csv)").unwrap();
        assert_eq!((text.as_str(), file.as_str()), ("COPY t (a) FROM STDIN (FORMAT csv)", "/data/x"));
        assert!(copy_from_file("copy t from stdin").is_none() && is_copy_from_client("copy t from stdin"));
    }

    #[test]
    fn temporary_tables_become_ordinary_ones() {
        assert_eq!(without_temporary("create temp table t (a int)").unwrap(), "create  table t (a int)");
        assert!(without_temporary("create temp table t (a int) on commit drop").is_none());
        assert!(without_temporary("create temp view t as select 1").is_some());
        assert!(without_temporary("create temp sequence t").is_none());
    }
}
