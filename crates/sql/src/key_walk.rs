//! The walk from one statement's tree to its `KeyTerms`, with a stack of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::catch_unwind;

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{
    A_Expr, A_Expr_Kind, Alias, DeleteStmt, InsertStmt, JoinExpr, JoinType, LimitOption, OnConflictClause, OverridingKind,
    RangeVar, ResTarget, SQLValueFunctionOp, SelectStmt, SetOperation, TypeName, UpdateStmt, WithClause,
};

use crate::TEXT_BYTES_MAX;
use crate::children::push_children;
use crate::copy_to::gives_rows;
use crate::facts::QualifiedName;
use crate::key_aggregates::has_unused_aggregate;
use crate::key_conditions::{Constants, column_of, equal_pairs, member_queries};
use crate::key_gates::{GateQuery, bare_names, has_gate};
use crate::key_sets::sorts_sets;
use crate::key_terms::{
    BLOCKS_MAX, BlockId, BlockShape, ColumnMerge, ColumnTerm, EQUALITIES_MAX, Equality, GroupId, INSERTED_VALUES_MAX,
    InsertedRows, InsertedValue, JoinGroup, KeyTerms, Membership, MergeSide, NameScope, NoTerms, OCCURRENCES_MAX, Occurrence,
    OccurrenceSource, OutputColumn, QueryBlock, ScopeId, ScopeParent, StatementKind, TermProperty, WriteAction, WriteTerms,
};
use crate::met_names::{function_names, qualified, strings};
use crate::parse::is_slow_to_scan;
use crate::statement::{self, CURSOR_HOLD, writes};
use crate::tree_walk::{PLAIN_TYPES, WalkFindings};

/// Columns that every table has, and that differ from server to server.
const SYSTEM_COLUMNS: [&str; 6] = ["cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"];

/// Functions of the time at which the transaction began, and one that is so with one argument.
const FUNCTIONS_OF_TIME: [&str; 3] = ["age", "now", "transaction_timestamp"];

/// Aggregates with an operator that sorts (pg_aggregate.aggsortop).
const EXTREMES: [&str; 5] = ["bool_and", "bool_or", "every", "max", "min"];

/// Most parts of a column's name without a database.
const COLUMN_PARTS: usize = 3;

/// Operators of comparisons that the text writes as words.
const EQUALITY: &str = "=";
const BETWEEN: [&str; 2] = ["<=", ">="];

/// Reads the terms of a text of one statement.
pub fn key_terms(text: &str) -> Result<KeyTerms, NoTerms> {
    if text.len() > TEXT_BYTES_MAX || is_slow_to_scan(text.as_bytes()) {
        return Err(NoTerms::Unparsed);
    }
    // The binding panics on an unexpected node; no such text is known.
    catch_unwind(|| read(text)).unwrap_or(Err(NoTerms::Unparsed))
}

fn read(text: &str) -> Result<KeyTerms, NoTerms> {
    let tree = pg_raw_parse::parse(text).map_err(|_| NoTerms::Unparsed)?;
    let mut statements = tree.iter();
    let (Some(raw), None) = (statements.next(), statements.next()) else { return Err(NoTerms::NotOneStatement) };
    let mut names = WalkFindings::default();
    names.start(raw.stmt_location);
    statement::judge(raw.stmt(), &mut names);
    let mut walk = KeyWalk::new(text);
    walk.statement(raw.stmt());
    walk.terms(names.relations.into_names())
}

/// The outside of a query or an expression, as far as it sees it.
#[derive(Clone, Copy)]
struct Place {
    scope: ScopeParent,
    group: Option<GroupId>,
    ctes: CteScopeId,
    /// A query there is an item of FROM or a CTE.
    is_item: bool,
}

/// 0: no CTE; n: the scope at n - 1.
type CteScopeId = usize;

struct CteScope<'a> {
    around: CteScopeId,
    name: &'a str,
    source: OccurrenceSource,
}

enum Visit<'a> {
    Query { node: Node<'a>, block: BlockId, place: Place },
    Expression { node: Node<'a>, place: Place },
}

/// A step through a FROM clause, in the order of the text.
enum FromStep<'a> {
    Item(Node<'a>, GroupId),
    /// Its left side is done.
    Middle(usize),
    /// Both sides are done.
    JoinEnd(&'a JoinExpr, usize),
}

/// A join whose sides are not done.
struct OpenJoin {
    first: usize,
    middle: usize,
    needs: Vec<GroupId>,
    /// Group of expressions in its `ON`.
    group: GroupId,
}

struct MemberQuery<'a> {
    select: &'a SelectStmt,
    scope: ScopeId,
    columns: Vec<Option<ColumnTerm>>,
}

struct KeyWalk<'a> {
    constants: Constants<'a>,
    terms: KeyTerms,
    ctes: Vec<CteScope<'a>>,
    visits: Vec<Visit<'a>>,
    queries: Vec<GateQuery<'a>>,
    /// Queries of memberships that have no number yet.
    members: Vec<MemberQuery<'a>>,
    parameter_uses: BTreeMap<u32, u32>,
    operators: BTreeSet<(&'a str, &'a str)>,
    collations: BTreeSet<(&'a str, &'a str)>,
    occurrences: usize,
    inserted_values: usize,
    is_too_large: bool,
}

impl<'a> KeyWalk<'a> {
    fn new(text: &'a str) -> KeyWalk<'a> {
        KeyWalk {
            constants: Constants::of(text),
            terms: KeyTerms::default(),
            ctes: Vec::new(),
            visits: Vec::new(),
            queries: Vec::new(),
            members: Vec::new(),
            parameter_uses: BTreeMap::new(),
            operators: BTreeSet::new(),
            collations: BTreeSet::new(),
            occurrences: 0,
            inserted_values: 0,
            is_too_large: false,
        }
    }

    fn terms(mut self, relations: Vec<QualifiedName>) -> Result<KeyTerms, NoTerms> {
        if self.is_too_large {
            return Err(NoTerms::TooLarge);
        }
        let is_gated = has_gate(&self.queries, &self.terms.blocks, &self.constants);
        self.terms.properties.add_if(TermProperty::Gate, is_gated);
        let has_unused = has_unused_aggregate(&self.queries, &self.terms.blocks);
        self.terms.properties.add_if(TermProperty::UnusedAggregate, has_unused);
        let names = |names: BTreeSet<(&str, &str)>| names.into_iter().map(whole_name).collect();
        Ok(KeyTerms {
            relations,
            parameter_uses: self.parameter_uses.into_iter().collect(),
            operators: names(self.operators),
            collations: names(self.collations),
            ..self.terms
        })
    }

    fn statement(&mut self, node: Node<'a>) {
        let query = match node {
            Node::ExplainStmt(explain) => {
                self.terms.properties.add(TermProperty::Explained);
                explain.query()
            }
            _ => node,
        };
        let query = match query {
            Node::DeclareCursorStmt(cursor) => {
                self.terms.properties.add(TermProperty::Cursor);
                if cursor.options & CURSOR_HOLD != 0 {
                    self.terms.properties.add(TermProperty::HoldCursor);
                }
                cursor.query()
            }
            _ => query,
        };
        // Rows of a SELECT go to the client, in another form.
        let query = match query {
            Node::CopyStmt(copy) if gives_rows(copy) => match (copy.query(), copy.relation()) {
                (select @ Node::SelectStmt(_), _) => select,
                (Node::None, Some(relation)) => return self.copied_table(relation, copy.attlist().iter()),
                _ => query,
            },
            _ => query,
        };
        self.terms.kind = kind_of(query);
        if !self.terms.kind.has_blocks() {
            return;
        }
        let place = Place { scope: ScopeParent::Nothing, group: None, ctes: 0, is_item: false };
        self.query_at(query, place);
        while let Some(visit) = self.visits.pop() {
            if self.is_too_large {
                return;
            }
            match visit {
                Visit::Query { node, block, place } => self.query(node, block, place),
                Visit::Expression { node, place } => self.expression(node, place),
            }
        }
    }

    fn copied_table(&mut self, relation: &'a RangeVar, columns: impl Iterator<Item = Node<'a>>) {
        self.terms.kind = StatementKind::Select;
        self.terms.properties.add(TermProperty::CopiesTable);
        let root = self.group(None);
        self.terms.blocks.push(QueryBlock { root, shape: BlockShape::Flat, ..QueryBlock::default() });
        let place = Place { scope: ScopeParent::Nothing, group: None, ctes: 0, is_item: false };
        self.from(std::iter::once(Node::RangeVar(relation)), 0, place);
        self.terms.blocks[0].outputs = vec![OutputColumn::Star { of: None }];
        for column in columns {
            if let Node::String(name) = column {
                self.column(name.sval().unwrap_or_default());
            }
        }
    }

    /// Gives the query a number; it is read later.
    fn query_at(&mut self, node: Node<'a>, place: Place) -> BlockId {
        let block = self.terms.blocks.len();
        if block >= BLOCKS_MAX {
            self.is_too_large = true;
            return 0;
        }
        self.terms.blocks.push(QueryBlock::default());
        self.visits.push(Visit::Query { node, block, place });
        self.note_member(node, block);
        block
    }

    fn note_member(&mut self, node: Node<'a>, block: BlockId) {
        let Node::SelectStmt(select) = node else { return };
        if let Some(at) = self.members.iter().position(|member| std::ptr::eq(member.select, select)) {
            let MemberQuery { scope, columns, .. } = self.members.swap_remove(at);
            self.terms.memberships.push(Membership { scope, columns, block });
        }
    }

    fn query(&mut self, node: Node<'a>, block: BlockId, place: Place) {
        let root = self.group(place.group);
        self.terms.blocks[block].root = root;
        let clause = match node {
            Node::SelectStmt(of) => of.with_clause(),
            Node::InsertStmt(of) => of.with_clause(),
            Node::UpdateStmt(of) => of.with_clause(),
            Node::DeleteStmt(of) => of.with_clause(),
            _ => None,
        };
        let place = Place { ctes: self.with(clause, place), ..place };
        match node {
            Node::SelectStmt(select) => self.select(select, block, place),
            Node::InsertStmt(insert) => self.insert(insert, block, place),
            Node::UpdateStmt(update) => self.update(update, block, place),
            Node::DeleteStmt(delete) => self.delete(delete, block, place),
            // MERGE in a CTE.
            _ => self.terms.kind = StatementKind::Merge,
        }
    }

    fn group(&mut self, above: Option<GroupId>) -> GroupId {
        self.terms.groups.push(JoinGroup { above });
        self.terms.groups.len() - 1
    }

    fn scope(&mut self, block: BlockId, occurrences: Range<usize>, around: ScopeParent) -> ScopeParent {
        self.terms.scopes.push(NameScope { block, occurrences, around });
        ScopeParent::Scope(self.terms.scopes.len() - 1)
    }

    /// A CTE sees those before it; in WITH RECURSIVE all see all.
    fn with(&mut self, clause: Option<&'a WithClause>, place: Place) -> CteScopeId {
        let Some(clause) = clause else { return place.ctes };
        let mut inner = place.ctes;
        let first = self.visits.len();
        for cte in clause.ctes() {
            let block = self.query_at(cte.ctequery(), Place { ctes: inner, is_item: true, ..place });
            let adds_columns = cte.search_clause().is_some() || cte.cycle_clause().is_some();
            let source = if adds_columns { OccurrenceSource::Unknown } else { OccurrenceSource::Cte(block) };
            self.terms.blocks[block].output_aliases = strings(cte.aliascolnames().iter());
            self.ctes.push(CteScope { around: inner, name: cte.ctename().unwrap_or_default(), source });
            inner = self.ctes.len();
        }
        if clause.recursive {
            for visit in &mut self.visits[first..] {
                if let Visit::Query { place, .. } = visit {
                    place.ctes = inner;
                }
            }
        }
        inner
    }

    fn cte(&self, relation: &RangeVar, ctes: CteScopeId) -> Option<OccurrenceSource> {
        if relation.schemaname().is_some() {
            return None;
        }
        let mut at = ctes;
        while let Some(scope) = at.checked_sub(1).and_then(|at| self.ctes.get(at)) {
            if Some(scope.name) == relation.relname() {
                return Some(scope.source.clone());
            }
            at = scope.around;
        }
        None
    }

    fn select(&mut self, select: &'a SelectStmt, block: BlockId, place: Place) {
        if select.into_clause().is_some() {
            self.terms.kind = StatementKind::Definition;
        }
        self.terms.properties.add_if(TermProperty::LocksRows, !select.locking_clause().is_empty());
        self.terms.properties.add_if(TermProperty::SortedSets, sorts_sets(select));
        if select.op != SetOperation::SETOP_NONE {
            let is_cut = !matches!((select.limit_offset(), select.limit_count()), (Node::None, Node::None));
            self.terms.properties.add(TermProperty::SetOperation);
            self.terms.properties.add_if(TermProperty::CutSetOperation, is_cut);
            for branch in [select.larg(), select.rarg()].into_iter().flatten() {
                self.query_at(Node::SelectStmt(branch), place);
            }
            self.expressions(unseen(place), |below| {
                below.extend(select.sort_clause().iter().map(Node::from));
                below.extend([select.limit_offset(), select.limit_count()]);
            });
            return;
        }
        if !select.values_lists().is_empty() {
            self.gates(select, block, place);
            self.expressions(place, |below| {
                below.extend(select.values_lists().iter());
                below.extend(select.sort_clause().iter().map(Node::from));
                below.extend([select.limit_offset(), select.limit_count()]);
            });
            return;
        }
        self.from(select.from_clause().iter(), block, place);
        let inside = self.names_of(block, place);
        self.conditions(select.where_clause(), block, inside);
        self.gates(select, block, place);
        self.terms.properties.add_if(TermProperty::TiesOfExtreme, has_ties_of_extreme(select));
        self.terms.blocks[block].outputs = select.target_list().iter().map(output).collect();
        self.terms.blocks[block].shape = shape_of(select);
        self.expressions(inside, |below| {
            below.extend(select.distinct_clause().iter());
            below.extend(select.target_list().iter().map(Node::from));
            below.push(select.where_clause());
            below.extend(select.group_clause().iter());
            below.push(select.having_clause());
            below.extend(select.window_clause().iter());
            below.extend(select.sort_clause().iter().map(Node::from));
            below.extend([select.limit_offset(), select.limit_count()]);
        });
    }

    fn gates(&mut self, select: &'a SelectStmt, block: BlockId, place: Place) {
        let bare = bare_names(select, &self.terms.blocks[block].occurrences, place.scope != ScopeParent::Nothing);
        self.queries.push(GateQuery { select, block, bare, is_item: place.is_item });
    }

    fn insert(&mut self, insert: &'a InsertStmt, block: BlockId, place: Place) {
        self.names_of(block, place);
        let rows = match insert.select_stmt() {
            _ if insert.override_ == OverridingKind::OVERRIDING_USER_VALUE => {
                self.query_at_if(insert.select_stmt(), place);
                InsertedRows::Overridden
            }
            Node::None => InsertedRows::Defaults,
            Node::SelectStmt(select) if is_plain_values(select) => {
                self.expressions(place, |below| below.extend(select.values_lists().iter()));
                InsertedRows::Values(select.values_lists().iter().map(|row| self.inserted_row(row)).collect())
            }
            query => InsertedRows::Query(self.query_at(query, place)),
        };
        let columns = insert.cols().iter().map(|column| match column {
            Node::ResTarget(column) => assigned(column),
            _ => String::new(),
        });
        let columns = columns.collect();
        let conflict_sets = insert.on_conflict_clause().map_or_else(Vec::new, conflict_sets);
        self.terms.properties.add_if(TermProperty::OnConflict, insert.on_conflict_clause().is_some());
        self.write(insert.relation(), WriteAction::Insert { columns, rows, conflict_sets });
        self.returning(insert.returning_clause().is_some());
        self.expressions(unseen(place), |below| {
            below.extend(insert.cols().iter());
            below.extend(insert.on_conflict_clause().map(Node::from));
            below.extend(insert.returning_clause().map(Node::from));
        });
    }

    fn query_at_if(&mut self, node: Node<'a>, place: Place) {
        if !matches!(node, Node::None) {
            self.query_at(node, place);
        }
    }

    fn inserted_row(&mut self, row: Node<'a>) -> Vec<InsertedValue> {
        let Node::NodeList(values) = row else { return Vec::new() };
        self.inserted_values += values.len();
        if self.inserted_values > INSERTED_VALUES_MAX {
            self.is_too_large = true;
            return Vec::new();
        }
        let value = |value: Node<'a>| match value {
            Node::SetToDefault(_) => InsertedValue::Default,
            value => self.constants.constant(value).map_or(InsertedValue::Other, InsertedValue::Constant),
        };
        values.iter().map(value).collect()
    }

    fn update(&mut self, update: &'a UpdateStmt, block: BlockId, place: Place) {
        self.from(update.from_clause().iter(), block, place);
        self.target(update.relation(), block);
        let sets = update.target_list().iter().map(assigned).collect();
        self.write(update.relation(), WriteAction::Update { sets });
        let inside = self.names_of(block, place);
        self.conditions(update.where_clause(), block, inside);
        self.expressions(inside, |below| {
            below.extend(update.target_list().iter().map(Node::from));
            below.push(update.where_clause());
        });
        self.returning(update.returning_clause().is_some());
        // A new row's columns are not those that WHERE looked at.
        self.expressions(unseen(place), |below| below.extend(update.returning_clause().map(Node::from)));
    }

    fn delete(&mut self, delete: &'a DeleteStmt, block: BlockId, place: Place) {
        self.from(delete.using_clause().iter(), block, place);
        self.target(delete.relation(), block);
        self.write(delete.relation(), WriteAction::Delete);
        let inside = self.names_of(block, place);
        self.conditions(delete.where_clause(), block, inside);
        self.expressions(inside, |below| below.push(delete.where_clause()));
        self.returning(delete.returning_clause().is_some());
        self.expressions(unseen(place), |below| below.extend(delete.returning_clause().map(Node::from)));
    }

    fn returning(&mut self, has_clause: bool) {
        self.terms.properties.add_if(TermProperty::Returning, has_clause);
    }

    fn write(&mut self, relation: Option<&RangeVar>, action: WriteAction) {
        self.terms.writes.push(WriteTerms { relation: name_of(relation), action });
    }

    /// The target of UPDATE and DELETE, which is never a CTE.
    fn target(&mut self, relation: Option<&'a RangeVar>, block: BlockId) {
        let Some(relation) = relation else { return };
        let group = self.terms.blocks[block].root;
        let source = OccurrenceSource::Relation(name_of(Some(relation)));
        self.occurrence(block, source, relation.alias(), relation.relname(), group);
    }

    /// The scope of all names of a block whose FROM is done.
    fn names_of(&mut self, block: BlockId, place: Place) -> Place {
        let all = 0..self.terms.blocks[block].occurrences.len();
        let scope = self.scope(block, all, place.scope);
        let of = &mut self.terms.blocks[block];
        if let ScopeParent::Scope(id) = scope {
            of.scope = id;
        }
        Place { scope, group: Some(of.root), ..place }
    }

    fn from(&mut self, items: impl DoubleEndedIterator<Item = Node<'a>>, block: BlockId, place: Place) {
        let root = self.terms.blocks[block].root;
        let mut steps: Vec<FromStep<'a>> = items.rev().map(|item| FromStep::Item(item, root)).collect();
        let mut joins: Vec<OpenJoin> = Vec::new();
        while let Some(step) = steps.pop() {
            if self.is_too_large {
                return;
            }
            let at = self.terms.blocks[block].occurrences.len();
            match step {
                FromStep::Item(Node::JoinExpr(join), group) => {
                    let (left, right, needs) = self.sides(join, group);
                    let inside = if join.jointype == JoinType::JOIN_FULL { group } else { left.max(right) };
                    joins.push(OpenJoin { first: at, middle: at, needs, group: inside });
                    let number = joins.len() - 1;
                    steps.push(FromStep::JoinEnd(join, number));
                    steps.push(FromStep::Item(join.rarg(), right));
                    steps.push(FromStep::Middle(number));
                    steps.push(FromStep::Item(join.larg(), left));
                }
                FromStep::Item(item, group) => self.item(item, block, group, place),
                FromStep::Middle(number) => joins[number].middle = at,
                FromStep::JoinEnd(join, number) => self.join(join, &joins[number], block, place),
            }
        }
    }

    /// Groups of both sides, and those in whose presence the join's condition holds. A side that may be filled with NULL is a group of its own.
    fn sides(&mut self, join: &JoinExpr, group: GroupId) -> (GroupId, GroupId, Vec<GroupId>) {
        match join.jointype {
            JoinType::JOIN_INNER => (group, group, vec![group]),
            JoinType::JOIN_LEFT => {
                let right = self.group(Some(group));
                (group, right, vec![right])
            }
            JoinType::JOIN_RIGHT => {
                let left = self.group(Some(group));
                (left, group, vec![left])
            }
            _ => {
                let (left, right) = (self.group(Some(group)), self.group(Some(group)));
                (left, right, vec![left, right])
            }
        }
    }

    /// The condition of a join whose sides are done, and its names.
    fn join(&mut self, join: &'a JoinExpr, open: &OpenJoin, block: BlockId, place: Place) {
        let end = self.terms.blocks[block].occurrences.len();
        let scope = self.scope(block, open.first..end, place.scope);
        let inside = Place { scope, group: Some(open.group), ..place };
        self.equalities(join.quals(), &open.needs, scope);
        self.expressions(inside, |below| below.push(join.quals()));
        let names = strings(join.using_clause().iter().map(Node::from));
        if join.is_natural || !names.is_empty() {
            self.operators.insert(("", EQUALITY));
            self.terms.blocks[block].merges.push(ColumnMerge {
                left: open.first..open.middle,
                right: open.middle..end,
                names: (!join.is_natural).then_some(names),
                side: if join.jointype == JoinType::JOIN_INNER { MergeSide::Inner } else { MergeSide::Outer },
                needs: open.needs.clone(),
            });
        }
        for alias in [join.join_using_alias(), join.alias()].into_iter().flatten() {
            self.occurrence(block, OccurrenceSource::Unknown, Some(alias), None, open.group);
        }
        if join.alias().is_some() {
            for hidden in &mut self.terms.blocks[block].occurrences[open.first..end] {
                hidden.seen_within.get_or_insert(open.first..end);
            }
        }
    }

    fn item(&mut self, item: Node<'a>, block: BlockId, group: GroupId, place: Place) {
        let before = 0..self.terms.blocks[block].occurrences.len();
        match item {
            Node::RangeVar(relation) => self.relation(relation, block, group, place),
            Node::RangeTableSample(sample) => {
                self.terms.properties.add(TermProperty::Samples);
                if let Node::RangeVar(relation) = sample.relation() {
                    self.relation(relation, block, group, place);
                }
                let scope = self.scope(block, before, place.scope);
                self.expressions(Place { scope, group: Some(group), ..place }, |below| {
                    below.extend(sample.args().iter());
                    below.push(sample.repeatable());
                });
            }
            Node::RangeSubselect(derived) => {
                let scope = if derived.lateral { self.scope(block, before, place.scope) } else { place.scope };
                let inner = self.query_at(derived.subquery(), Place { scope, group: Some(group), is_item: true, ..place });
                self.occurrence(block, OccurrenceSource::Derived(inner), derived.alias(), None, group);
            }
            other => {
                let (alias, name) = function_names(other);
                self.terms.properties.add_if(TermProperty::FunctionInFrom, matches!(other, Node::RangeFunction(_)));
                let scope = self.scope(block, before, place.scope);
                self.expressions(Place { scope, group: Some(group), ..place }, |below| push_children(other, below));
                self.occurrence(block, OccurrenceSource::Unknown, alias, name, group);
            }
        }
    }

    fn relation(&mut self, relation: &'a RangeVar, block: BlockId, group: GroupId, place: Place) {
        self.terms.properties.add_if(TermProperty::OnlyParent, !relation.inh);
        self.terms.properties.add_if(TermProperty::OfDatabase, relation.catalogname().is_some());
        let source = self.cte(relation, place.ctes).unwrap_or_else(|| OccurrenceSource::Relation(name_of(Some(relation))));
        self.occurrence(block, source, relation.alias(), relation.relname(), group);
    }

    fn occurrence(
        &mut self,
        block: BlockId,
        source: OccurrenceSource,
        alias: Option<&Alias>,
        name: Option<&str>,
        group: GroupId,
    ) {
        self.occurrences += 1;
        if self.occurrences > OCCURRENCES_MAX {
            self.is_too_large = true;
            return;
        }
        let given = alias.and_then(Alias::aliasname);
        self.terms.blocks[block].occurrences.push(Occurrence {
            source,
            alias: given.or(name).unwrap_or_default().to_owned(),
            is_renamed: given.is_some(),
            column_aliases: alias.map_or_else(Vec::new, |alias| strings(alias.colnames().iter())),
            group,
            seen_within: None,
        });
    }

    /// A WHERE clause.
    fn conditions(&mut self, condition: Node<'a>, block: BlockId, inside: Place) {
        let root = self.terms.blocks[block].root;
        self.equalities(condition, &[root], inside.scope);
    }

    fn equalities(&mut self, condition: Node<'a>, needs: &[GroupId], scope: ScopeParent) {
        let ScopeParent::Scope(scope) = scope else { return };
        let left = EQUALITIES_MAX.saturating_sub(self.terms.equalities.len());
        let pairs = equal_pairs(condition, &self.constants, left + 1);
        self.is_too_large |= pairs.len() > left;
        let equality = |(left, right)| Equality { needs: needs.to_vec(), scope, left, right };
        self.terms.equalities.extend(pairs.into_iter().take(left).map(equality));
        let member = |(select, columns)| MemberQuery { select, scope, columns };
        self.members.extend(member_queries(condition).into_iter().map(member));
    }

    fn expressions(&mut self, place: Place, fill: impl FnOnce(&mut Vec<Node<'a>>)) {
        let mut below = Vec::new();
        fill(&mut below);
        below.retain(|node| !matches!(node, Node::None));
        self.visits.extend(below.into_iter().map(|node| Visit::Expression { node, place }));
    }

    fn expression(&mut self, node: Node<'a>, place: Place) {
        match node {
            Node::SelectStmt(_) => {
                self.query_at(node, Place { is_item: false, ..place });
                return;
            }
            Node::ParamRef(parameter) => {
                let number = u32::try_from(parameter.number).unwrap_or(0);
                *self.parameter_uses.entry(number).or_default() += 1;
            }
            Node::ColumnRef(column) => {
                self.terms.properties.add_if(TermProperty::OfDatabase, column.fields().len() > COLUMN_PARTS);
                self.column(qualified(column.fields().iter()).1);
            }
            Node::A_Indirection(of) => {
                of.indirection().iter().filter_map(Node::as_str).for_each(|name| self.column(name));
            }
            Node::TypeCast(cast) => {
                let is_given = matches!(cast.arg(), Node::A_Const(_) | Node::ParamRef(_));
                self.typed(cast.type_name(), is_given);
            }
            Node::ColumnDef(column) => self.typed(column.type_name(), false),
            Node::RangeTableFuncCol(column) => self.typed(column.type_name(), false),
            Node::JsonTableColumn(column) => self.typed(column.type_name(), false),
            Node::JsonOutput(output) => self.typed(output.type_name(), false),
            Node::XmlSerialize(of) => self.typed(of.type_name(), false),
            Node::FuncCall(call) => {
                let name = qualified(call.funcname().iter()).1;
                let reads_texts = name.contains("populate_record") || name.ends_with("_tz");
                self.terms.properties.add_if(TermProperty::TransactionTime, reads_texts || FUNCTIONS_OF_TIME.contains(&name));
            }
            Node::SQLValueFunction(value) => self.value_function(value.op),
            Node::A_Expr(expression) => self.operator(expression),
            Node::SubLink(link) => drop(self.operators.insert(named_or_equality(qualified(link.oper_name().iter())))),
            Node::SortBy(sort) if !sort.use_op().is_empty() => drop(self.operators.insert(qualified(sort.use_op().iter()))),
            Node::CaseExpr(case) if !matches!(case.arg(), Node::None) => drop(self.operators.insert(("", EQUALITY))),
            Node::CollateClause(collate) => drop(self.collations.insert(qualified(collate.collname().iter()))),
            Node::CurrentOfExpr(_) => self.terms.properties.add(TermProperty::AtCursor),
            Node::SetToDefault(_) => self.terms.properties.add(TermProperty::SetsDefault),
            _ => {}
        }
        self.expressions(place, |below| push_children(node, below));
    }

    fn operator(&mut self, expression: &'a A_Expr) {
        use A_Expr_Kind as Kind;
        match expression.kind {
            Kind::AEXPR_BETWEEN | Kind::AEXPR_NOT_BETWEEN | Kind::AEXPR_BETWEEN_SYM | Kind::AEXPR_NOT_BETWEEN_SYM => {
                self.operators.extend(BETWEEN.map(|name| ("", name)));
                // Their negation is made of the opposite ones.
                self.operators.extend(["<", ">"].map(|name| ("", name)));
            }
            _ => drop(self.operators.insert(named_or_equality(qualified(expression.name().iter())))),
        }
    }

    fn value_function(&mut self, of: SQLValueFunctionOp::Type) {
        use SQLValueFunctionOp as Op;
        match of {
            Op::SVFOP_CURRENT_CATALOG | Op::SVFOP_CURRENT_SCHEMA => self.terms.properties.add(TermProperty::OfDatabase),
            Op::SVFOP_CURRENT_ROLE | Op::SVFOP_CURRENT_USER | Op::SVFOP_USER | Op::SVFOP_SESSION_USER => {}
            _ => self.terms.properties.add(TermProperty::TransactionTime),
        }
    }

    /// Notes a type that a text may be read as. `is_given`: only a literal or a parameter is.
    fn typed(&mut self, kind: Option<&TypeName>, is_given: bool) {
        let Some(kind) = kind else { return };
        let (schema, name) = qualified(kind.names().iter().map(Node::from));
        let is_number = name.trim_start_matches('_').starts_with("reg");
        let is_plain = matches!(schema, "" | "pg_catalog") && PLAIN_TYPES.contains(&name);
        self.terms.properties.add_if(TermProperty::ObjectNumbers, is_number);
        self.terms.properties.add_if(TermProperty::TransactionTime, !is_given && !is_plain);
    }

    fn column(&mut self, name: &str) {
        self.terms.properties.add_if(TermProperty::SystemColumns, SYSTEM_COLUMNS.contains(&name));
    }
}

/// `IN (SELECT ...)` has no name in the tree.
fn named_or_equality<'a>((schema, name): (&'a str, &'a str)) -> (&'a str, &'a str) {
    if name.is_empty() { ("", EQUALITY) } else { (schema, name) }
}

fn whole_name((schema, name): (&str, &str)) -> QualifiedName {
    QualifiedName { schema: schema.to_owned(), name: name.to_owned() }
}

/// The place of expressions whose names of the outside mean other values than the equalities speak of.
fn unseen(place: Place) -> Place {
    Place { scope: ScopeParent::Unknown, group: None, ..place }
}

fn kind_of(node: Node<'_>) -> StatementKind {
    match node {
        Node::SelectStmt(_) => StatementKind::Select,
        Node::InsertStmt(_) => StatementKind::Insert,
        Node::UpdateStmt(_) => StatementKind::Update,
        Node::DeleteStmt(_) => StatementKind::Delete,
        Node::MergeStmt(_) => StatementKind::Merge,
        Node::CopyStmt(_) => StatementKind::Copy,
        Node::TruncateStmt(_) => StatementKind::Truncate,
        Node::PrepareStmt(_) => StatementKind::Prepare,
        other if writes(other) => StatementKind::Definition,
        _ => StatementKind::Utility,
    }
}

/// A condition on the result may stand in WHERE: nothing between them groups, sorts out, limits, numbers or computes. A call may be an aggregate.
fn shape_of(select: &SelectStmt) -> BlockShape {
    let is_plain = |node: Node<'_>| {
        let node = if let Node::TypeCast(cast) = node { cast.arg() } else { node };
        matches!(node, Node::ColumnRef(_) | Node::A_Const(_) | Node::ParamRef(_))
    };
    let is_row_by_row = select.distinct_clause().is_empty()
        && select.group_clause().is_empty()
        && select.window_clause().is_empty()
        && select.locking_clause().is_empty()
        && matches!((select.having_clause(), select.limit_offset(), select.limit_count()), (Node::None, Node::None, Node::None));
    let targets = || select.target_list().iter().map(ResTarget::val);
    match is_row_by_row {
        true if targets().all(is_plain) => BlockShape::Flat,
        true if targets().all(is_of_operators) => BlockShape::Computed,
        _ => BlockShape::Other,
    }
}

/// True if operators alone compute it. A call may be one of an aggregate, or give several rows.
fn is_of_operators(target: Node<'_>) -> bool {
    let mut nodes = vec![target];
    while let Some(node) = nodes.pop() {
        match node {
            Node::ColumnRef(_) | Node::A_Const(_) | Node::ParamRef(_) | Node::None => {}
            Node::TypeCast(cast) => nodes.push(cast.arg()),
            Node::A_Expr(_)
            | Node::BoolExpr(_)
            | Node::NullTest(_)
            | Node::CaseExpr(_)
            | Node::CaseWhen(_)
            | Node::CoalesceExpr(_)
            | Node::MinMaxExpr(_)
            | Node::NodeList(_) => push_children(node, &mut nodes),
            _ => return false,
        }
    }
    true
}

/// True if the planner may look for the first row of an order in place of an aggregate, and WITH TIES cuts the query.
fn has_ties_of_extreme(select: &SelectStmt) -> bool {
    if select.limit_option != LimitOption::LIMIT_OPTION_WITH_TIES || !select.group_clause().is_empty() {
        return false;
    }
    let mut nodes: Vec<Node<'_>> = select.target_list().iter().map(Node::from).collect();
    nodes.extend(select.sort_clause().iter().map(Node::from));
    nodes.push(select.having_clause());
    while let Some(node) = nodes.pop() {
        if matches!(node, Node::FuncCall(call) if EXTREMES.contains(&qualified(call.funcname().iter()).1)) {
            return true;
        }
        push_children(node, &mut nodes);
    }
    false
}

fn is_plain_values(select: &SelectStmt) -> bool {
    !select.values_lists().is_empty()
        && select.op == SetOperation::SETOP_NONE
        && select.with_clause().is_none()
        && select.sort_clause().is_empty()
        && select.locking_clause().is_empty()
        && matches!((select.limit_offset(), select.limit_count()), (Node::None, Node::None))
}

fn output(target: &ResTarget) -> OutputColumn {
    let name = target.name().map(str::to_owned);
    match target.val() {
        Node::ColumnRef(column) if column.fields().iter().any(|part| matches!(part, Node::A_Star(_))) => {
            let names: Vec<&str> = column.fields().iter().filter_map(Node::as_str).collect();
            let of = match names[..] {
                [] => None,
                [name] => Some(QualifiedName { schema: String::new(), name: name.to_owned() }),
                [.., schema, name] => Some(QualifiedName { schema: schema.to_owned(), name: name.to_owned() }),
            };
            OutputColumn::Star { of }
        }
        value => match (column_of(value), name) {
            (Some(of), Some(name)) => OutputColumn::Column { name, of },
            (Some(of), None) => OutputColumn::Column { name: of.name.clone(), of },
            (None, name) => OutputColumn::Other { name: name.unwrap_or_default() },
        },
    }
}

/// A column that a target sets; empty if it sets a part of it.
fn assigned(target: &ResTarget) -> String {
    target.name().filter(|_| target.indirection().is_empty()).unwrap_or_default().to_owned()
}

fn conflict_sets(clause: &OnConflictClause) -> Vec<String> {
    clause.target_list().iter().map(assigned).collect()
}

fn name_of(relation: Option<&RangeVar>) -> QualifiedName {
    let schema = relation.and_then(RangeVar::schemaname).unwrap_or_default().to_owned();
    QualifiedName { schema, name: relation.and_then(RangeVar::relname).unwrap_or_default().to_owned() }
}
