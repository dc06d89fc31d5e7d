//! *Gates* of a query: parts of its conditions that are the same for all of its rows, as `$1 = 1` or an EXISTS about other tables.
//!
//! PostgreSQL tests a gate once, apart from the rows. Two equalities for one column make another one: `a = $1 AND a = $2` asks for `$1 = $2`.

use std::collections::BTreeSet;

use pg_raw_parse::ConstValue;
use pg_raw_parse::Node;
use pg_raw_parse::nodes::{A_Const, A_Expr, A_Expr_Kind, BoolExprType, SelectStmt};

use crate::children::push_children;
use crate::key_conditions::{Constants, column_of};
use crate::key_terms::{
    BlockId, ColumnTerm, EQUALITIES_MAX, KeySource, KeyTerm, Occurrence, OccurrenceSource, OutputColumn, QueryBlock,
};
use crate::met_names::{function_names, qualified, strings};

/// Most ANDs, ORs, NOTs and CASEs one in another; a deeper one is taken for a gate.
const DEPTH_MAX: usize = 32;

/// Names that columns of VALUES have by themselves are looked at up to here.
const COLUMNS_OF_VALUES: usize = 64;

/// Parts of the names of functions that return sets.
const SETS: [&str; 11] = [
    "generate_s",
    "unnest",
    "_elements",
    "_each",
    "_object_keys",
    "_recordset",
    "path_query",
    "regexp_matches",
    "_to_table",
    "ts_stat",
    "ts_parse",
];

/// Meaning of a name without a table before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareNames {
    /// A column of the query.
    OfQuery,
    /// Perhaps a column of a query around it.
    Unknown,
}

/// A SELECT that is no set operation.
pub(crate) struct GateQuery<'a> {
    pub(crate) select: &'a SelectStmt,
    pub(crate) block: BlockId,
    pub(crate) bare: BareNames,
    /// It stands in FROM or is a CTE, or is a branch of one.
    pub(crate) is_item: bool,
}

/// True if WHERE, HAVING or an ON of a query may be or hold a gate. The planner puts queries of FROM and CTEs into the query around, so names are
/// followed into them.
pub(crate) fn has_gate(queries: &[GateQuery<'_>], blocks: &[QueryBlock], constants: &Constants<'_>) -> bool {
    let Some(values) = names_of_values(queries, blocks) else { return true };
    let mut classes = EqualClasses { blocks, classes: Vec::new(), pairs: 0 };
    queries.iter().any(|query| {
        let own = OwnNames::of(query, blocks, &values);
        let conditions = conditions(query.select);
        classes.add(query.block, own, &conditions, constants);
        conditions.iter().any(|condition| own.is_gated(*condition, Sense::Asked, 0))
    }) || classes.has_gate()
}

/// Names of columns of queries in FROM that hang on no row: `$1 AS a`. `None` if one has no name that is seen here.
fn names_of_values(queries: &[GateQuery<'_>], blocks: &[QueryBlock]) -> Option<BTreeSet<String>> {
    let mut values = BTreeSet::new();
    // A query's columns may be those of a query within.
    loop {
        let before = values.len();
        for query in queries {
            let functions = functions_of_values(query.select, OwnNames::of(query, blocks, &values));
            values.extend(functions);
            let block = &blocks[query.block];
            let items: Vec<&Occurrence> = items_of(query.block, blocks).collect();
            if items.is_empty() {
                continue;
            }
            let own = OwnNames::of(query, blocks, &values);
            let targets = query.select.target_list().iter().map(|target| target.val()).enumerate();
            let found: Vec<(usize, Node<'_>)> = targets.filter(|(_, target)| !own.has_column(*target)).collect();
            // One row of VALUES is a list of values.
            if query.select.values_lists().len() == 1 {
                values.extend(items.iter().flat_map(|item| new_names(item, block)).cloned());
                values.extend((1..=COLUMNS_OF_VALUES).map(|number| format!("column{number}")));
            }
            for (at, target) in found {
                let (OutputColumn::Column { name, .. } | OutputColumn::Other { name }) = &block.outputs[at] else { continue };
                let has_star = block.outputs[..at].iter().any(|output| matches!(output, OutputColumn::Star { .. }));
                // Behind a star its number is not known.
                if has_star {
                    values.extend(items.iter().flat_map(|item| new_names(item, block)).cloned());
                }
                values.extend(items.iter().filter_map(|item| new_name(at, item, block)).map(str::to_owned));
                values.extend(Some(name.clone()).filter(|name| !name.is_empty()));
                let is_named = !name.is_empty() || items.iter().all(|item| new_name(at, item, block).is_some());
                if !is_named && !matches!(target, Node::A_Const(_) | Node::ParamRef(_)) {
                    return None;
                }
            }
        }
        if values.len() == before {
            return Some(values);
        }
    }
}

/// Names of functions in FROM that the planner may compute. They have one row.
fn functions_of_values(select: &SelectStmt, own: OwnNames<'_>) -> Vec<String> {
    let mut names = Vec::new();
    let mut items: Vec<Node<'_>> = select.from_clause().iter().collect();
    while let Some(item) = items.pop() {
        match item {
            Node::JoinExpr(join) => items.extend([join.larg(), join.rarg()]),
            Node::RangeFunction(of) if of.coldeflist().is_empty() && !of.ordinality && !own.has_column(item) => {
                let (alias, name) = function_names(item);
                if name.is_none_or(|name| !SETS.iter().any(|set| name.contains(set))) {
                    names.extend(alias.and_then(|alias| alias.aliasname()).or(name).map(str::to_owned));
                    names.extend(alias.into_iter().flat_map(|alias| strings(alias.colnames().iter())));
                }
            }
            _ => {}
        }
    }
    names
}

/// Items in FROM that are this query.
fn items_of(block: BlockId, blocks: &[QueryBlock]) -> impl Iterator<Item = &Occurrence> {
    blocks.iter().flat_map(|other| &other.occurrences).filter(move |item| inner(item) == Some(block))
}

pub(crate) fn inner(item: &Occurrence) -> Option<BlockId> {
    match item.source {
        OccurrenceSource::Derived(block) | OccurrenceSource::Cte(block) => Some(block),
        OccurrenceSource::Relation(_) | OccurrenceSource::Unknown => None,
    }
}

pub(crate) fn new_name<'b>(at: usize, item: &'b Occurrence, block: &'b QueryBlock) -> Option<&'b str> {
    item.column_aliases.get(at).or_else(|| block.output_aliases.get(at)).map(String::as_str)
}

fn new_names<'b>(item: &'b Occurrence, block: &'b QueryBlock) -> impl Iterator<Item = &'b String> {
    item.column_aliases.iter().chain(&block.output_aliases)
}

/// A name without a table may mean a column of a query around it. That counts where PostgreSQL may lose a gate: in a join that is cut.
pub(crate) fn bare_names(select: &SelectStmt, items: &[Occurrence], is_inner: bool) -> BareNames {
    let is_cut = !matches!((select.limit_offset(), select.limit_count()), (Node::None, Node::None));
    let is_join = items.len() > 1 || items.iter().any(|item| !matches!(item.source, OccurrenceSource::Relation(_)));
    if is_inner && is_cut && is_join { BareNames::Unknown } else { BareNames::OfQuery }
}

pub(crate) fn conditions<'a>(select: &'a SelectStmt) -> Vec<Node<'a>> {
    let mut conditions = vec![select.where_clause(), select.having_clause()];
    let mut items: Vec<Node<'a>> = select.from_clause().iter().collect();
    while let Some(item) = items.pop() {
        if let Node::JoinExpr(join) = item {
            conditions.push(join.quals());
            items.extend([join.larg(), join.rarg()]);
        }
    }
    conditions.retain(|condition| !matches!(condition, Node::None));
    conditions
}

/// Must the condition be true, or not be true?
#[derive(Clone, Copy)]
enum Sense {
    Asked,
    Negated,
}

impl Sense {
    fn opposite(self) -> Sense {
        match self {
            Sense::Asked => Sense::Negated,
            Sense::Negated => Sense::Asked,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct OwnNames<'n> {
    items: &'n [Occurrence],
    bare: BareNames,
    /// Names of columns that are values.
    values: &'n BTreeSet<String>,
}

impl<'n> OwnNames<'n> {
    pub(crate) fn of(query: &GateQuery<'_>, blocks: &'n [QueryBlock], values: &'n BTreeSet<String>) -> OwnNames<'n> {
        OwnNames { items: &blocks[query.block].occurrences, bare: query.bare, values }
    }

    fn has(self, alias: &str) -> bool {
        self.items.iter().any(|item| item.alias == alias)
    }

    /// A gate stands in one part of AND, or in each part of OR: PostgreSQL takes out the parts that all have.
    fn is_gated(self, condition: Node<'_>, sense: Sense, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            return true;
        }
        let is_gated = |part: Node<'_>, sense| self.is_gated(part, sense, depth + 1);
        match condition {
            Node::BoolExpr(of) => match (of.boolop, sense) {
                (BoolExprType::NOT_EXPR, _) => of.args().iter().any(|part| is_gated(part, sense.opposite())),
                (BoolExprType::AND_EXPR, Sense::Asked) | (BoolExprType::OR_EXPR, Sense::Negated) => {
                    of.args().iter().any(|part| is_gated(part, sense))
                }
                _ => of.args().iter().all(|part| is_gated(part, sense)),
            },
            // The planner may leave one of its results alone.
            Node::CaseExpr(case) => {
                let results = case.args().iter().filter_map(|arm| match arm {
                    Node::CaseWhen(arm) => Some(arm.result()),
                    _ => None,
                });
                !self.has_column(condition) || results.chain([case.defresult()]).any(|result| is_gated(result, sense))
            }
            Node::CoalesceExpr(of) => !self.has_column(condition) || of.args().iter().any(|part| is_gated(part, sense)),
            // `(a AND b) = true` is `a AND b` for the planner.
            Node::A_Expr(of) if is_boolean(of.lexpr()) || is_boolean(of.rexpr()) => [of.lexpr(), of.rexpr()]
                .into_iter()
                .any(|side| !is_boolean(side) && (is_gated(side, sense) || is_gated(side, sense.opposite()))),
            other => !is_folded(other) && !self.has_column(other),
        }
    }

    /// True if the value hangs on a column of the query. Within a subquery only a name with the query's table before it counts.
    pub(crate) fn has_column(self, part: Node<'_>) -> bool {
        let (mut outer, mut queries) = (vec![part], Vec::new());
        while let Some(node) = outer.pop() {
            match node {
                Node::SelectStmt(_) => queries.push(node),
                Node::ColumnRef(column) => match qualifier(column.fields().iter()) {
                    Some(qualifier) if !self.has(qualifier) => {}
                    _ if self.values.contains(qualified(column.fields().iter()).1) => {}
                    None if self.bare == BareNames::Unknown => {}
                    _ => return true,
                },
                // An aggregate over the rows of a group.
                Node::FuncCall(call) if call.agg_star || qualified(call.funcname().iter()).1 == "count" => return true,
                _ => push_children(node, &mut outer),
            }
        }
        queries.into_iter().any(|query| self.is_named_in(query))
    }

    fn is_named_in(self, query: Node<'_>) -> bool {
        let (mut named, mut hidden, mut nodes) = (Vec::new(), Vec::new(), vec![query]);
        while let Some(node) = nodes.pop() {
            match node {
                Node::ColumnRef(column) => {
                    let is_value = self.values.contains(qualified(column.fields().iter()).1);
                    named.extend(qualifier(column.fields().iter()).filter(|_| !is_value));
                }
                Node::RangeVar(relation) => hidden.extend(relation.alias().map_or(relation.relname(), |alias| alias.aliasname())),
                Node::RangeSubselect(derived) => hidden.extend(derived.alias().and_then(|alias| alias.aliasname())),
                Node::RangeFunction(of) => hidden.extend(of.alias().and_then(|alias| alias.aliasname())),
                Node::RangeTableFunc(of) => hidden.extend(of.alias().and_then(|alias| alias.aliasname())),
                Node::JsonTable(of) => hidden.extend(of.alias().and_then(|alias| alias.aliasname())),
                Node::JoinExpr(join) => {
                    hidden.extend(
                        [join.alias(), join.join_using_alias()].into_iter().flatten().filter_map(|alias| alias.aliasname()),
                    );
                }
                _ => {}
            }
            push_children(node, &mut nodes);
        }
        named.iter().any(|name| self.has(name) && !hidden.contains(name))
    }
}

/// A column and the query that names it.
type PlacedColumn = (BlockId, ColumnTerm);

/// Columns that are equal to one another, and the values that they are equal to.
struct EqualClass {
    columns: Vec<PlacedColumn>,
    /// `None`: an expression.
    values: Vec<Option<KeyTerm>>,
}

struct EqualClasses<'b> {
    blocks: &'b [QueryBlock],
    classes: Vec<EqualClass>,
    pairs: usize,
}

impl EqualClasses<'_> {
    fn add(&mut self, block: BlockId, own: OwnNames<'_>, conditions: &[Node<'_>], constants: &Constants<'_>) {
        // A column of a query around it is a value here.
        let own_column = |side| column_of(side).filter(|_| own.has_column(side)).map(|column| (block, column));
        for (left, right) in equalities(conditions) {
            self.pairs += 1;
            if self.pairs > EQUALITIES_MAX {
                return;
            }
            let (columns, values) = match (own_column(left), own_column(right)) {
                (Some(left), Some(right)) => (vec![left, right], Vec::new()),
                (Some(column), None) if !own.has_column(right) => (vec![column], vec![constants.constant(right)]),
                (None, Some(column)) if !own.has_column(left) => (vec![column], vec![constants.constant(left)]),
                _ => continue,
            };
            let columns = self.with_inner(columns);
            if columns.len() > EQUALITIES_MAX {
                self.pairs = EQUALITIES_MAX + 1;
                return;
            }
            self.join(EqualClass { columns, values });
        }
    }

    /// With the columns of queries in FROM that they are.
    fn with_inner(&self, mut columns: Vec<PlacedColumn>) -> Vec<PlacedColumn> {
        let mut at = 0;
        while let Some((block, column)) = columns.get(at).cloned().filter(|_| columns.len() <= EQUALITIES_MAX) {
            let is_of = |item: &&Occurrence| column.of.as_ref().is_none_or(|of| of.name == item.alias);
            for item in self.blocks[block].occurrences.iter().filter(is_of) {
                let Some(inner) = inner(item) else { continue };
                for (at, output) in self.blocks[inner].outputs.iter().enumerate() {
                    let new_name = new_name(at, item, &self.blocks[inner]);
                    match output {
                        OutputColumn::Column { name, of } if new_name.unwrap_or(name) == column.name => {
                            columns.push((inner, of.clone()));
                        }
                        OutputColumn::Star { of } => {
                            columns.push((inner, ColumnTerm { of: of.clone(), name: column.name.clone() }));
                        }
                        OutputColumn::Column { .. } | OutputColumn::Other { .. } => {}
                    }
                }
            }
            at += 1;
        }
        columns
    }

    fn join(&mut self, class: EqualClass) {
        let (same, others): (Vec<_>, Vec<_>) = self.classes.drain(..).partition(|other| other.meets(&class));
        self.classes = others;
        self.classes.push(same.into_iter().fold(class, EqualClass::with));
    }

    /// True if columns that are equal to one another must be equal to two values.
    fn has_gate(&self) -> bool {
        self.pairs > EQUALITIES_MAX || self.classes.iter().any(EqualClass::is_gate)
    }
}

impl EqualClass {
    fn meets(&self, other: &EqualClass) -> bool {
        let is_one = |(block, a): &PlacedColumn, (other, b): &PlacedColumn| {
            block == other && a.name == b.name && a.of.as_ref().zip(b.of.as_ref()).is_none_or(|(a, b)| a.name == b.name)
        };
        self.columns.iter().any(|a| other.columns.iter().any(|b| is_one(a, b)))
    }

    fn with(mut self, other: EqualClass) -> EqualClass {
        self.columns.extend(other.columns);
        self.values.extend(other.values);
        self
    }

    /// The planner compares two literals of one type itself, and sees one value twice.
    fn is_gate(&self) -> bool {
        let Some((first, rest)) = self.values.split_first() else { return false };
        let is_literal = |value: &KeyTerm| !matches!(value.source, KeySource::Parameter(_));
        let is_harmless = |other: &Option<KeyTerm>| {
            first.as_ref().zip(other.as_ref()).is_some_and(|(first, other)| {
                first == other || first.cast == other.cast && is_literal(first) && is_literal(other)
            })
        };
        !rest.iter().all(is_harmless)
    }
}

/// The name before that of the column, or before the star.
pub(crate) fn qualifier<'a>(parts: impl Iterator<Item = Node<'a>>) -> Option<&'a str> {
    let names: Vec<Option<&str>> = parts.map(|part| part.as_str()).collect();
    names.len().checked_sub(2).and_then(|before| names.get(before).copied().flatten())
}

/// A constant, or two numbers in comparison: the planner knows its value, and plans accordingly.
fn is_folded(node: Node<'_>) -> bool {
    let is_integer = |node| matches!(node, Node::A_Const(of) if matches!(of.val(), Some(ConstValue::Integer(_))));
    match node {
        Node::None => true,
        Node::A_Const(constant) => is_truth(constant),
        Node::TypeCast(cast) => matches!(cast.arg(), Node::A_Const(constant) if is_truth(constant)),
        Node::A_Expr(of) => of.kind == A_Expr_Kind::AEXPR_OP && is_integer(of.lexpr()) && is_integer(of.rexpr()),
        _ => false,
    }
}

fn is_boolean(node: Node<'_>) -> bool {
    matches!(node, Node::A_Const(of) if matches!(of.val(), Some(ConstValue::Boolean(_))))
}

/// A constant that a condition may be: a boolean, NULL, or a text that is read as a boolean.
fn is_truth(constant: &A_Const) -> bool {
    matches!(constant.val(), None | Some(ConstValue::Boolean(_) | ConstValue::String(_)))
}

/// Sides of each `=` that must be true.
fn equalities<'a>(conditions: &[Node<'a>]) -> Vec<(Node<'a>, Node<'a>)> {
    let (mut pairs, mut stack) = (Vec::new(), conditions.to_vec());
    while let Some(node) = stack.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == BoolExprType::AND_EXPR => stack.extend(all.args().iter()),
            Node::A_Expr(expression) if qualified(expression.name().iter()).1 == "=" => sides(expression, &mut pairs),
            _ => {}
        }
    }
    pairs
}

fn sides<'a>(expression: &'a A_Expr, pairs: &mut Vec<(Node<'a>, Node<'a>)>) {
    match (expression.kind, expression.lexpr(), expression.rexpr()) {
        (A_Expr_Kind::AEXPR_OP, Node::RowExpr(left), Node::RowExpr(right)) => {
            pairs.extend(left.args().iter().zip(right.args().iter()));
        }
        (A_Expr_Kind::AEXPR_OP, left, right) => pairs.push((left, right)),
        (A_Expr_Kind::AEXPR_IN, left, Node::NodeList(list)) if list.len() == 1 => {
            pairs.extend(list.first().map(|only| (left, only)))
        }
        _ => {}
    }
}
