//! `EXECUTE`: its name and values; `PREPARE`: its query.

use pg_raw_parse::Node;

/// Name that an `EXECUTE` runs, if its values are constants.
pub(crate) fn executed(node: Node<'_>) -> Option<&str> {
    let Node::ExecuteStmt(execute) = node else { return None };
    let is_constant = |value: Node<'_>| matches!(value, Node::A_Const(_));
    if execute.params().iter().all(is_constant) { execute.name() } else { None }
}

/// Parameter types whose input runs no user's function.
#[rustfmt::skip] // a list of names reads better in lines
const PLAIN_TYPES: [&str; 32] = [
    "bigint", "bool", "boolean", "bytea", "char", "character", "character varying", "date", "decimal", "double precision",
    "float4", "float8", "int", "int2", "int4", "int8", "integer", "interval", "json", "jsonb", "numeric", "real", "smallint", "text",
    "time", "timestamp", "timestamp with time zone", "timestamp without time zone", "timestamptz", "timetz", "uuid", "varchar",
];

/// Query of a `PREPARE` that is the whole text. `None`: no such text, unusual parameter types, or comments in unusual
/// places.
pub fn prepared_query(text: &str) -> Option<&str> {
    let rest = after_word(text, "prepare")?;
    let rest = after_name(rest.trim_start())?.trim_start();
    let rest = if rest.starts_with('(') { after_types(rest)? } else { rest };
    after_word(rest, "as")
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let (begin, rest) = text.split_at_checked(word.len())?;
    (begin.eq_ignore_ascii_case(word) && !rest.starts_with(is_of_word)).then_some(rest)
}

fn after_name(text: &str) -> Option<&str> {
    let Some(mut inside) = text.strip_prefix('"') else { return Some(text.trim_start_matches(is_of_word)) };
    loop {
        let (_, rest) = inside.split_once('"')?;
        match rest.strip_prefix('"') {
            Some(more) => inside = more,
            None => return Some(rest),
        }
    }
}

/// Text behind a list of plain types in parentheses.
fn after_types(text: &str) -> Option<&str> {
    let (types, rest) = text.strip_prefix('(')?.split_once(')')?;
    let is_plain = |name: &str| PLAIN_TYPES.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    types.split(',').all(is_plain).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_prepare_is_what_stands_behind_its_as() {
        for (text, expected) in [
            ("prepare p as select 1", Some(" select 1")),
            (" PREPARE \"a \"\" as b\"\n( int,\ttext ) AS\nSELECT $1", Some("\nSELECT $1")),
            ("prepare p(double precision)as(select $1)", Some("(select $1)")),
            ("prepare as_ as table t;", Some(" table t;")),
            ("prepare p (money) as select $1", None),
            ("prepare p (s.t) as select $1", None),
            ("prepare p (numeric(3)) as select $1", None),
            ("prepare U&\"p\" as select 1", None),
            ("prepare /* p */ p as select 1", None),
            ("prepare p as_ select 1", None),
            ("prepared p as select 1", None),
            ("prepare", None),
            ("", None),
        ] {
            assert_eq!(prepared_query(text), expected, "{text}");
        }
    }
}
