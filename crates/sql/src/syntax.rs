//! Nodes of the grammar that stand for calls of functions on servers of other versions.
//!
//! The parser is that of PostgreSQL 18. It turns some names into nodes of their own, since they have become keywords that no function can have:
//! those of SQL/JSON in 16 and 17, `merge_action` in 17. Servers before that call a function of the name, in whatever schema the `search_path`
//! finds it. No other word that a function could have on 13 to 18 has become such a keyword; the lists of `pg_get_keywords()` were compared.
//! `system_user` (16) is one, but its call with parentheses is refused by the parser.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::JsonExprOp;

/// The names, sorted. On a server to which one is a keyword, its node only computes.
pub const FUNCTIONS: [&str; 12] = [
    "json",
    "json_array",
    "json_arrayagg",
    "json_exists",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_scalar",
    "json_serialize",
    "json_table",
    "json_value",
    "merge_action",
];

/// The function that a node may call, and its place in the text; -1 if it is not known.
pub(crate) fn function_of(node: Node<'_>) -> Option<(&'static str, i32)> {
    Some(match node {
        Node::JsonParseExpr(of) => ("json", of.location),
        Node::JsonArrayConstructor(of) => ("json_array", of.location),
        Node::JsonArrayQueryConstructor(of) => ("json_array", of.location),
        Node::JsonArrayAgg(of) => ("json_arrayagg", of.constructor().map_or(-1, |inner| inner.location)),
        Node::JsonObjectConstructor(of) => ("json_object", of.location),
        Node::JsonObjectAgg(of) => ("json_objectagg", of.constructor().map_or(-1, |inner| inner.location)),
        Node::JsonFuncExpr(of) => match of.op {
            JsonExprOp::JSON_EXISTS_OP => ("json_exists", of.location),
            JsonExprOp::JSON_QUERY_OP => ("json_query", of.location),
            _ => ("json_value", of.location),
        },
        Node::JsonScalarExpr(of) => ("json_scalar", of.location),
        Node::JsonSerializeExpr(of) => ("json_serialize", of.location),
        Node::JsonTable(of) => ("json_table", of.location),
        Node::MergeSupportFunc(of) => ("merge_action", of.location),
        // With the arguments of a function the parser makes a call of it, but of that in pg_catalog.
        Node::FuncCall(call) if is_json_object(call) => ("json_object", call.location),
        _ => return None,
    })
}

fn is_json_object(call: &pg_raw_parse::nodes::FuncCall) -> bool {
    crate::met_names::qualified(call.funcname().iter()) == ("pg_catalog", "json_object")
}
