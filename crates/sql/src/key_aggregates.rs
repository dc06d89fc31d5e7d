//! Queries in FROM whose aggregates nobody asks for.
//!
//! The planner leaves out columns that the query around does not name. A query without GROUP BY has one row even so, but `postgres_fdw` sends a text
//! without an aggregate then, which has the rows of its join.

use std::collections::BTreeSet;

use pg_raw_parse::Node;

use crate::children::push_children;
use crate::key_gates::{GateQuery, OwnNames, conditions, inner, new_name, qualifier};
use crate::key_terms::{Occurrence, OccurrenceSource, OutputColumn, QueryBlock};
use crate::met_names::qualified;

/// True if a query in FROM may have nothing but aggregates, over a join, of which the text's own query does not surely name one.
pub(crate) fn has_unused_aggregate(queries: &[GateQuery<'_>], blocks: &[QueryBlock]) -> bool {
    let top = queries.iter().find(|query| query.block == 0);
    queries.iter().filter(|query| query.is_item && is_aggregate(query, blocks)).any(|query| {
        let mut items = blocks.first().into_iter().flat_map(|block| &block.occurrences);
        !items.any(|item| inner(item) == Some(query.block) && top.is_some_and(|top| names_aggregate(top, item, query, blocks)))
    })
}

/// An aggregate query without GROUP BY has columns within calls only. One of one table is computed elsewhere.
fn is_aggregate(query: &GateQuery<'_>, blocks: &[QueryBlock]) -> bool {
    let items = &blocks[query.block].occurrences;
    let is_join = items.len() > 1 || items.iter().any(|item| !matches!(item.source, OccurrenceSource::Relation(_)));
    if !is_join || !query.select.group_clause().is_empty() {
        return false;
    }
    let (mut has_call, mut nodes) = (false, Vec::new());
    nodes.extend(query.select.target_list().iter().map(|target| target.val()));
    while let Some(node) = nodes.pop() {
        match node {
            Node::ColumnRef(_) => return false,
            Node::FuncCall(call) if call.over().is_none() => has_call = true,
            Node::SelectStmt(_) => {}
            _ => push_children(node, &mut nodes),
        }
    }
    has_call
}

fn names_aggregate(top: &GateQuery<'_>, item: &Occurrence, query: &GateQuery<'_>, blocks: &[QueryBlock]) -> bool {
    let values = BTreeSet::new();
    let (own, block) = (OwnNames::of(query, blocks, &values), &blocks[query.block]);
    let aggregates = query.select.target_list().iter().enumerate().filter(|(_, target)| own.has_column(target.val()));
    let names: Vec<&str> = aggregates
        .filter_map(|(at, target)| match (new_name(at, item, block), &block.outputs[at], target.val()) {
            (Some(name), ..) => Some(name),
            (None, OutputColumn::Other { name }, Node::FuncCall(call)) if name.is_empty() => {
                Some(qualified(call.funcname().iter()).1)
            }
            (None, OutputColumn::Other { name }, _) => Some(name.as_str()).filter(|name| !name.is_empty()),
            (None, OutputColumn::Column { .. } | OutputColumn::Star { .. }, _) => None,
        })
        .collect();
    let mut nodes = conditions(top.select);
    nodes.extend(top.select.target_list().iter().map(|target| target.val()));
    while let Some(node) = nodes.pop() {
        match node {
            Node::ColumnRef(column) => {
                let is_item = qualifier(column.fields().iter()).is_none_or(|of| of == item.alias);
                let is_star = column.fields().iter().any(|part| matches!(part, Node::A_Star(_)));
                let name = qualified(column.fields().iter()).1;
                if is_item && (names.contains(&name) || is_star && !names.is_empty()) {
                    return true;
                }
            }
            Node::SelectStmt(_) => {}
            _ => push_children(node, &mut nodes),
        }
    }
    false
}
