//! Grammar nodes that stand for function calls on servers of other versions.
//!
//! The parser is that of PostgreSQL 18, where these names are keywords: SQL/JSON since 16 and 17, `merge_action` since 17. Older
//! servers call a function of the name, in whatever schema the `search_path` finds it. Compared with `pg_get_keywords()` of 13
//! to 18: complete. `system_user` (16) is left out: the parser refuses its call with parentheses.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::JsonExprOp;

/// Function names, sorted. A server to which a name is a keyword calls no function.
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

/// Returns the function that a node may call, and its byte position (-1 if unknown).
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
        // With function arguments the parser makes a call of it, but of the one in pg_catalog.
        Node::FuncCall(call) if is_json_object(call) => ("json_object", call.location),
        _ => return None,
    })
}

fn is_json_object(call: &pg_raw_parse::nodes::FuncCall) -> bool {
    crate::met_names::qualified(call.funcname().iter()) == ("pg_catalog", "json_object")
}
