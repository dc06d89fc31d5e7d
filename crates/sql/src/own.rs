//! Weir's own SQL beside the clients' texts.
//!
//! Servers look names up along a `search_path` that clients or owners may have chosen, so a better fitting operator of
//! theirs would run with the asking user's rights (CVE-2018-1058). So these texts qualify every name (`check`). Long
//! catalog queries go over Weir's own connections with a fixed `search_path` (`weir::auth::own_login`).

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{A_Expr, A_Expr_Kind, WithClause};
use std::collections::BTreeSet;

use crate::children::push_children;
use crate::met_names::qualified;

/// Refuses a text of Weir's own with unqualified names.
///
/// # Panics
/// In debug builds only, so that any test that sends the text finds it.
#[inline]
pub fn check(text: &str) {
    debug_assert_eq!(unqualified(text), BTreeSet::new(), "names without a schema in \"{text}\"");
}

/// Returns what a server looks up along the `search_path`: unqualified functions, operators, types, relations, and
/// words that hide an operator (`IN`, `BETWEEN`, `LIKE`, `CASE x WHEN`, `NULLIF`, `IS DISTINCT FROM`, `NATURAL`,
/// `USING`). Sorting and grouping use the type's operators. Source: PostgreSQL manual, "Schemas and Privileges";
/// `transformExpr` in parse_expr.c.
pub fn unqualified(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if REPLICATION_COMMANDS.iter().any(|command| text.starts_with(command)) {
        return found;
    }
    let Ok(tree) = pg_raw_parse::parse(text) else {
        found.insert("a text that cannot be parsed".to_owned());
        return found;
    };
    let mut visited = UnqualifiedNames::default();
    for raw in tree.iter() {
        visited.visit(raw.stmt());
    }
    let of_ctes: Vec<String> = visited.ctes.iter().map(|name| format!("relation {name}")).collect();
    found.extend(visited.found);
    found.retain(|name| !of_ctes.contains(name));
    found
}

/// Source: PostgreSQL manual, "Streaming Replication Protocol".
const REPLICATION_COMMANDS: [&str; 4] =
    ["IDENTIFY_SYSTEM", "TIMELINE_HISTORY ", "CREATE_REPLICATION_SLOT ", "START_REPLICATION "];

const SCHEMA: &str = "pg_catalog";

#[derive(Default)]
struct UnqualifiedNames<'a> {
    found: Vec<String>,
    ctes: Vec<&'a str>,
}

impl<'a> UnqualifiedNames<'a> {
    fn visit(&mut self, root: Node<'a>) {
        let mut stack = vec![root];
        while let Some(node) = stack.pop() {
            self.with(node, &mut stack);
            self.look(node);
            push_children(node, &mut stack);
        }
    }

    fn with(&mut self, node: Node<'a>, stack: &mut Vec<Node<'a>>) {
        let clause: Option<&'a WithClause> = match node {
            Node::SelectStmt(s) => s.with_clause(),
            Node::InsertStmt(s) => s.with_clause(),
            Node::UpdateStmt(s) => s.with_clause(),
            Node::DeleteStmt(s) => s.with_clause(),
            _ => None,
        };
        for cte in clause.into_iter().flat_map(|clause| clause.ctes()) {
            stack.push(cte.ctequery());
            self.ctes.push(cte.ctename().unwrap_or_default());
        }
    }

    fn look(&mut self, node: Node<'a>) {
        match node {
            Node::FuncCall(call) => self.name("function", qualified(call.funcname().iter())),
            Node::RangeVar(relation) => {
                self.name("relation", (relation.schemaname().unwrap_or_default(), relation.relname().unwrap_or_default()))
            }
            Node::TypeCast(cast) => {
                let names = cast.type_name().map(|kind| qualified(kind.names().iter().map(Node::from)));
                self.name("type", names.unwrap_or_default());
            }
            Node::ColumnDef(column) => {
                let names = column.type_name().map(|kind| qualified(kind.names().iter().map(Node::from)));
                self.name("type", names.unwrap_or_default());
            }
            Node::A_Expr(expression) => self.expression(expression),
            Node::SubLink(link) if !matches!(link.testexpr(), Node::None) => match qualified(link.oper_name().iter()) {
                ("", "") => self.found.push("IN with a query".into()),
                name => self.name("operator", name),
            },
            Node::SortBy(sort) if !sort.use_op().is_empty() => self.name("operator", qualified(sort.use_op().iter())),
            Node::CaseExpr(case) if !matches!(case.arg(), Node::None) => self.found.push("CASE with a value".into()),
            Node::JoinExpr(join) if join.is_natural || !join.using_clause().is_empty() => {
                self.found.push("a join by names of columns".into())
            }
            _ => {}
        }
    }

    fn expression(&mut self, expression: &'a A_Expr) {
        use A_Expr_Kind as Kind;
        match expression.kind {
            Kind::AEXPR_OP | Kind::AEXPR_OP_ANY | Kind::AEXPR_OP_ALL => {
                self.name("operator", qualified(expression.name().iter()))
            }
            _ => self.found.push(format!("a word that hides the operator {}", qualified(expression.name().iter()).1)),
        }
    }

    fn name(&mut self, what: &str, (schema, name): (&str, &str)) {
        if schema != SCHEMA {
            let dot = if schema.is_empty() { "" } else { "." };
            self.found.push(format!("{what} {schema}{dot}{name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_path_decides_is_found() {
        let cases: &[(&str, &[&str])] = &[
            ("SELECT now()", &["function now"]),
            ("SELECT pg_catalog.now(), CURRENT_USER, EXTRACT(epoch FROM pg_catalog.now())", &[]),
            ("SELECT 1 + 1", &["operator +"]),
            ("SELECT 1 OPERATOR(pg_catalog.+) 1", &[]),
            ("SELECT 1 OPERATOR(public.+) 1", &["operator public.+"]),
            ("SELECT '1'::int4, '1'::pg_catalog.int4, '1'::integer, '{}'::pg_catalog.text[]", &["type int4"]),
            ("SELECT x FROM pg_class", &["relation pg_class"]),
            ("WITH a AS (SELECT 1 FROM b) SELECT FROM a", &["relation b"]),
            ("SELECT CASE x WHEN 1 THEN 2 END", &["CASE with a value"]),
            ("SELECT CASE WHEN x THEN 2 END, COALESCE(x, y), GREATEST(x, y)", &[]),
            ("SELECT x IN (1), x NOT IN (1)", &["a word that hides the operator <>", "a word that hides the operator ="]),
            ("SELECT x IN (SELECT 1)", &["IN with a query"]),
            ("SELECT x OPERATOR(pg_catalog.=) ANY (SELECT 1)", &[]),
            ("SELECT x = ANY (y)", &["operator ="]),
            ("SELECT x LIKE y", &["a word that hides the operator ~~"]),
            ("SELECT x BETWEEN 1 AND 2", &["a word that hides the operator BETWEEN"]),
            ("SELECT x IS DISTINCT FROM y, NULLIF(x, y)", &["a word that hides the operator ="]),
            ("SELECT FROM pg_catalog.a NATURAL JOIN pg_catalog.b", &["a join by names of columns"]),
            ("SELECT FROM pg_catalog.a JOIN pg_catalog.b USING (c)", &["a join by names of columns"]),
            ("SELECT x FROM pg_catalog.a ORDER BY x, y USING <", &["operator <"]),
            ("SELECT x FROM pg_catalog.a ORDER BY y USING OPERATOR(pg_catalog.<)", &[]),
            ("SELECT x -> y, x || y", &["operator ->", "operator ||"]),
            ("PREPARE a AS SELECT f()", &["function f"]),
            ("SET a = b; LISTEN c; DISCARD ALL; ALTER SYSTEM SET x TO 'y'; CHECKPOINT", &[]),
            ("IDENTIFY_SYSTEM", &[]),
            ("SELEC", &["a text that cannot be parsed"]),
        ];
        for (text, expected) in cases {
            let found: Vec<String> = unqualified(text).into_iter().collect();
            assert_eq!(found, *expected, "{text}");
        }
    }

    #[test]
    #[should_panic(expected = "names without a schema")]
    fn a_text_that_a_path_could_bend_is_refused() {
        check("SELECT set_config('a', 'b', false)");
    }
}
