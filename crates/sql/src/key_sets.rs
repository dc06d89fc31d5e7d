//! Functions that return sets in the columns of a query that also sorts or groups by them.
//!
//! `postgres_fdw` has the shard sort its rows by such a function, which then gives several rows for each row there, and the engine again several for each
//! of those. Source: `get_useful_pathkeys_for_relation` in contrib/postgres_fdw/postgres_fdw.c.

use pg_raw_parse::nodes::{ResTarget, SelectStmt, SetOperation};
use pg_raw_parse::{ConstValue, Node};

use crate::children::push_children;
use crate::met_names::qualified;

/// Of PostgreSQL itself; functions of users do not run in the engine. Sorted by bytes.
const FUNCTIONS: [&str; 27] = [
    "aclexplode",
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "json_populate_recordset",
    "json_to_recordset",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "jsonb_path_query",
    "jsonb_path_query_tz",
    "jsonb_populate_recordset",
    "jsonb_to_recordset",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "ts_debug",
    "ts_parse",
    "ts_stat",
    "ts_token_type",
    "unnest",
];

/// True if a query may sort or group its rows by a function that returns a set. `select`: not looked into are queries in its FROM and expressions.
pub(crate) fn sorts_sets(select: &SelectStmt) -> bool {
    if select.op != SetOperation::SETOP_NONE {
        let is_sorted = !select.all || !select.sort_clause().is_empty();
        return is_sorted && leaves_have_sets(select);
    }
    let named: Vec<Option<SetNames<'_>>> = select.target_list().iter().map(SetNames::of).collect();
    let has_sets = named.iter().any(Option::is_some);
    let mut keys: Vec<Node<'_>> = select.group_clause().iter().collect();
    keys.extend(select.sort_clause().iter().map(Node::from));
    (has_sets && !select.distinct_clause().is_empty()) || keys.into_iter().any(|key| is_set(key, &named))
}

/// True if a column of a branch of a set operation has such a function.
fn leaves_have_sets(select: &SelectStmt) -> bool {
    let mut branches = vec![select];
    while let Some(select) = branches.pop() {
        if select.target_list().iter().any(|target| SetNames::of(target).is_some()) {
            return true;
        }
        branches.extend([select.larg(), select.rarg()].into_iter().flatten());
    }
    false
}

/// Names by which a sort key may mean a column with such a function.
struct SetNames<'q>(Vec<&'q str>);

impl<'q> SetNames<'q> {
    fn of(target: &'q ResTarget) -> Option<SetNames<'q>> {
        let functions = functions_in(target.val());
        if functions.is_empty() {
            return None;
        }
        // Without a name of its own the column has that of its function.
        Some(SetNames(target.name().map_or(functions, |name| vec![name])))
    }
}

/// Functions that return sets, in an expression.
fn functions_in(node: Node<'_>) -> Vec<&str> {
    let (mut nodes, mut found) = (vec![node], Vec::new());
    while let Some(node) = nodes.pop() {
        match node {
            // A query of its own.
            Node::SelectStmt(_) => continue,
            Node::FuncCall(call) => {
                let name = qualified(call.funcname().iter()).1;
                found.extend(FUNCTIONS.binary_search(&name).is_ok().then_some(name));
            }
            _ => {}
        }
        push_children(node, &mut nodes);
    }
    found
}

/// True in doubt: a sort or group key may mean a column with such a function, or has one.
fn is_set(key: Node<'_>, named: &[Option<SetNames<'_>>]) -> bool {
    let mut nodes = vec![key];
    while let Some(node) = nodes.pop() {
        match node {
            Node::A_Const(constant) => {
                let Some(ConstValue::Integer(number)) = constant.val() else { continue };
                // Behind a star stand more columns than the text has.
                let behind = usize::try_from(number).map_or(named.len(), |number| number.min(named.len()));
                if named[..behind].iter().any(Option::is_some) {
                    return true;
                }
            }
            Node::ColumnRef(column) => {
                let name = qualified(column.fields().iter()).1;
                if named.iter().flatten().any(|names| names.0.contains(&name)) {
                    return true;
                }
            }
            Node::SelectStmt(_) => continue,
            Node::FuncCall(call) if FUNCTIONS.binary_search(&qualified(call.funcname().iter()).1).is_ok() => return true,
            _ => {}
        }
        push_children(node, &mut nodes);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_terms;
    use crate::key_terms::TermProperty;

    #[test]
    fn the_functions_are_sorted() {
        assert!(FUNCTIONS.is_sorted());
    }

    #[test]
    fn queries_that_sort_by_a_set_are_known() {
        for (text, expected) in [
            ("select generate_series(1, v) from t order by 1", true),
            ("select unnest(tags) from t order by unnest", true),
            ("select id, unnest(tags) x from t order by x, id", true),
            ("select id, unnest(tags) x from t order by 2 desc limit 3", true),
            ("select id, unnest(tags) || 'a' from t order by unnest(tags) || 'a'", true),
            ("select id from t order by unnest(tags)", true),
            ("select unnest(tags) x, count(*) from t group by x", true),
            ("select unnest(tags) x, count(*) from t group by grouping sets ((x), ())", true),
            ("select count(*) from t group by unnest(tags)", true),
            ("select distinct unnest(tags) from t", true),
            ("select distinct on (id) id, unnest(tags) from t", true),
            ("select count(*) from (select unnest(tags) x from t order by 1) y", true),
            ("select unnest(tags) from t union select name from t", true),
            ("select unnest(tags) from t union all select name from t order by 1", true),
            ("select pg_catalog.jsonb_array_elements(a) e from t order by e", true),
            ("select id, unnest(tags) from t order by id", false),
            ("select *, unnest(tags) from t order by 9", true),
            ("select id, unnest(tags) from t order by 1", false),
            ("select unnest(tags), id from t order by 2", true),
            ("select unnest(tags) from t", false),
            ("select unnest(tags) from t union all select name from t", false),
            ("select id, x from t, unnest(tags) x order by x", false),
            ("select x from (select unnest(tags) x from t) y order by x", false),
            ("select array(select unnest(tags)) x from t order by x", false),
            ("select id from t order by 1", false),
            ("select lower(name) from t group by 1", false),
        ] {
            assert_eq!(key_terms(text).unwrap().properties.has(TermProperty::SortedSets), expected, "{text}");
        }
    }
}
