//! The walk over a parse tree, with its own stack: relations, functions, operators, row locks, nested writes.
//!
//! `WalkFindings` add up over all statements of a text.

use pg_raw_parse::Node;
use pg_raw_parse::nodes::{A_Expr, A_Expr_Kind, FuncCall, IntoClause, OnCommitAction, RangeVar, TypeCast, TypeName, WithClause};

use crate::children::push_children;
use crate::facts::{QueryEffect, StateKind, StateKinds, TextProperties, TextProperty, hash_of_column};
use crate::leaves::{is_of_catalog, left_by_function};
use crate::met_names::{NameCollector, is_temporary_schema, qualified};
use crate::syntax::function_of;

/// Limit of scopes searched for a CTE name: bounds the quadratic cost of a text of 100,000 CTEs. Beyond it a name counts as a
/// relation, which the catalog does not know: the statement goes to the primary.
const SCOPES_MAX: u32 = 200;

/// Spellings of the SQL standard and of the `LIKE` family.
const STANDARD_OPERATORS: [&str; 16] =
    ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "||", "~~", "!~~", "~~*", "!~~*"];

/// Types whose text form means the same at any time and for any user.
pub(crate) const PLAIN_TYPES: [&str; 23] = [
    "bool", "bpchar", "bytea", "char", "float4", "float8", "inet", "int2", "int4", "int8", "interval", "json", "jsonb",
    "macaddr", "money", "name", "numeric", "oid", "point", "text", "uuid", "varbit", "varchar",
];

/// System columns that change while the row does not: by a row lock, a rollback, a move.
const RESTLESS_COLUMNS: [&str; 4] = ["cmax", "cmin", "ctid", "xmax"];

/// True for `time with time zone`: text without a zone takes the offset in force today.
fn hangs_on_today(kind: &str) -> bool {
    matches!(kind, "timetz" | "_timetz")
}

/// A CTE name and its outer scope. Scope 0 is the outermost and has no name.
struct CteScope<'a> {
    around: u32,
    name: &'a str,
}

/// A node still to visit, and its scope.
type Visit<'a> = (Node<'a>, u32);

/// Time at which the calls and names that the walk meets take effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EffectTime {
    /// The statement runs: calls and temporary names count for `keeps`.
    #[default]
    Now,
    /// The statement only stores expressions (`CREATE VIEW`): its own name counts, calls do not.
    Stored,
    /// Nothing takes effect (`PREPARE`, `EXPLAIN`).
    Never,
}

#[derive(Default)]
pub(crate) struct WalkFindings<'a> {
    pub(crate) functions: NameCollector<'a>,
    pub(crate) relations: NameCollector<'a>,
    pub(crate) operators: NameCollector<'a>,
    pub(crate) casts: NameCollector<'a>,
    /// Columns after a dot, with repetitions.
    pub(crate) columns: Vec<u32>,
    pub(crate) written: NameCollector<'a>,
    /// Includes `Prepared` for `EXECUTE` and the view of prepared statements.
    pub(crate) marks: TextProperties,
    pub(crate) keeps: StateKinds,
    /// Calls of functions that leave session state.
    pub(crate) calls: Vec<&'a FuncCall>,
    /// True for `UPDATE pg_settings`: sets parameters whose names the text may not show.
    pub(crate) sets_by_table: bool,
    pub(crate) casts_to_time: bool,
    scopes: Vec<CteScope<'a>>,
    start: i32,
}

impl<'a> WalkFindings<'a> {
    /// Begins a statement at this byte of the text, the position of names without their own.
    pub(crate) fn start(&mut self, location: i32) {
        self.start = location.max(0);
        self.scopes.clear();
        self.scopes.push(CteScope { around: 0, name: "" });
    }

    pub(crate) fn place_of_start(&self) -> i32 {
        self.start
    }

    /// Visits `root` and everything below. Returns the effect of nested statements: `Writes` for DML and `INTO`, `Unsure` for
    /// row locks, else `None`.
    pub(crate) fn visit(&mut self, root: Node<'a>, run: EffectTime) -> QueryEffect {
        let mut effect = QueryEffect::None;
        let mut stack: Vec<Visit<'a>> = vec![(root, 0)];
        let mut below = Vec::new();
        while let Some((node, outer)) = stack.pop() {
            let scope = self.enter(node, outer, &mut stack);
            effect = effect.max(self.note(node, scope, run));
            push_children(node, &mut below);
            stack.extend(below.drain(..).map(|child| (child, scope)));
        }
        effect
    }

    /// Notes a relation outside of queries: the target of a write or the object of a utility statement.
    pub(crate) fn target(&mut self, relation: Option<&'a RangeVar>, run: EffectTime) {
        if let Some(relation) = relation {
            self.relation(relation, 0, run);
        }
    }

    pub(crate) fn named(&mut self, name: (&'a str, &'a str), run: EffectTime) {
        self.owner(name.0, run);
        self.relations.add(name, self.start);
    }

    /// Notes the schema of an object that is made or used.
    pub(crate) fn owner(&mut self, schema: &str, run: EffectTime) {
        if run != EffectTime::Never && is_temporary_schema(schema) {
            self.keep(StateKind::Temporary);
        }
    }

    /// Notes the target of `INTO` or `CREATE TABLE AS`.
    pub(crate) fn into(&mut self, into: Option<&'a IntoClause>, run: EffectTime) {
        if let Some(into) = into {
            self.created(into.rel(), into.on_commit, run);
        }
    }

    /// Notes a created table. A temporary one dropped at commit leaves nothing behind.
    pub(crate) fn created(&mut self, relation: Option<&'a RangeVar>, on_commit: OnCommitAction::Type, run: EffectTime) {
        let goes = on_commit == OnCommitAction::ONCOMMIT_DROP;
        self.marks.add_if(TextProperty::MakesBrief, goes && run != EffectTime::Never);
        self.target(relation, if goes { EffectTime::Never } else { run });
    }

    fn keep(&mut self, keeps: StateKind) {
        self.keeps.add(keeps);
    }

    fn place(&self, location: i32) -> i32 {
        location.max(self.start)
    }

    /// Opens the scopes of a `WITH` clause, schedules its queries, returns the scope of its statement.
    fn enter(&mut self, node: Node<'a>, outer: u32, stack: &mut Vec<Visit<'a>>) -> u32 {
        let clause: Option<&'a WithClause> = match node {
            Node::SelectStmt(s) => s.with_clause(),
            Node::InsertStmt(s) => s.with_clause(),
            Node::UpdateStmt(s) => s.with_clause(),
            Node::DeleteStmt(s) => s.with_clause(),
            Node::MergeStmt(s) => s.with_clause(),
            _ => None,
        };
        let Some(clause) = clause else { return outer };
        // A CTE sees those before it; in WITH RECURSIVE all see all.
        let mut inner = outer;
        let first = stack.len();
        for cte in clause.ctes() {
            stack.push((cte.ctequery(), inner));
            self.scopes.push(CteScope { around: inner, name: cte.ctename().unwrap_or_default() });
            inner = (self.scopes.len() - 1) as u32; // below the text's length
        }
        if clause.recursive {
            stack[first..].iter_mut().for_each(|visit| visit.1 = inner);
        }
        inner
    }

    fn note(&mut self, node: Node<'a>, scope: u32, run: EffectTime) -> QueryEffect {
        if let Some((function, location)) = function_of(node) {
            self.functions.add(("", function), self.place(location));
        }
        match node {
            Node::SelectStmt(select) => {
                self.into(select.into_clause(), run);
                let locks = !select.locking_clause().is_empty();
                self.marks.add_if(TextProperty::LocksRows, locks);
                return match (select.into_clause(), locks) {
                    (Some(_), _) => QueryEffect::Writes,
                    (None, true) => QueryEffect::Unsure,
                    (None, false) => QueryEffect::None,
                };
            }
            Node::InsertStmt(write) => return self.write(write.relation(), run),
            Node::UpdateStmt(write) => return self.write(write.relation(), run),
            Node::DeleteStmt(write) => return self.write(write.relation(), run),
            Node::MergeStmt(write) => return self.write(write.relation(), run),
            Node::CreateStmt(create) => self.created(create.relation(), create.oncommit, run),
            Node::CreateTableAsStmt(create) => self.into(create.into(), run),
            Node::ExecuteStmt(_) => self.marks.add(TextProperty::Prepared),
            Node::RangeVar(relation) => self.relation(relation, scope, run),
            Node::FuncCall(call) => self.call(call, run),
            Node::ColumnRef(column) => self.column(qualified(column.fields().iter())),
            // `(t).xmax`
            Node::A_Indirection(of) => {
                of.indirection().iter().filter_map(|part| part.as_str()).for_each(|name| self.column((".", name)))
            }
            Node::SQLValueFunction(_) | Node::RangeTableFunc(_) | Node::JsonTable(_) | Node::JsonFuncExpr(_) => {
                self.marks.add(TextProperty::Fleeting)
            }
            Node::XmlExpr(_) => self.marks.add(TextProperty::Fleeting),
            Node::XmlSerialize(of) => {
                self.marks.add(TextProperty::Fleeting);
                self.typed(of.type_name());
            }
            Node::RangeTableSample(sample) => self.method(qualified(sample.method().iter()), sample.location),
            Node::A_Expr(expression) => self.expression(expression),
            Node::TypeCast(cast) => self.cast(cast),
            Node::ColumnDef(column) => self.typed(column.type_name()),
            Node::RangeTableFuncCol(column) => self.typed(column.type_name()),
            Node::JsonTableColumn(column) => self.typed(column.type_name()),
            Node::JsonOutput(output) => self.typed(output.type_name()),
            Node::SubLink(link) => self.operator(qualified(link.oper_name().iter()), link.location),
            Node::SortBy(sort) => self.operator(qualified(sort.use_op().iter()), sort.location),
            _ => {}
        }
        QueryEffect::None
    }

    /// Notes the target of a write, which is never a CTE.
    fn write(&mut self, relation: Option<&'a RangeVar>, run: EffectTime) -> QueryEffect {
        self.target(relation, run);
        self.writes(relation, run);
        // The rule of pg_settings calls set_config.
        if run != EffectTime::Never && relation.and_then(|relation| relation.relname()) == Some("pg_settings") {
            self.sets_by_table = true;
            self.marks.add(TextProperty::Moves);
            self.keep(StateKind::Setting);
        }
        QueryEffect::Writes
    }

    pub(crate) fn writes(&mut self, relation: Option<&'a RangeVar>, run: EffectTime) {
        if let (Some(relation), true) = (relation, run != EffectTime::Never) {
            let name = (relation.schemaname().unwrap_or_default(), relation.relname().unwrap_or_default());
            self.written.add(name, self.place(relation.location));
        }
    }

    pub(crate) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    fn relation(&mut self, relation: &'a RangeVar, scope: u32, run: EffectTime) {
        let schema = relation.schemaname().unwrap_or_default();
        let name = relation.relname().unwrap_or_default();
        if schema.is_empty() && self.is_cte(name, scope) {
            return;
        }
        self.marks.add_if(TextProperty::Prepared, name == "pg_prepared_statements");
        self.owner(schema, run);
        if run != EffectTime::Never && relation.relpersistence as u8 == b't' {
            self.keep(StateKind::Temporary);
        }
        self.relations.add((schema, name), self.place(relation.location));
    }

    fn is_cte(&self, name: &str, scope: u32) -> bool {
        let mut scope = scope;
        for _ in 0..SCOPES_MAX {
            if scope == 0 {
                return false;
            }
            let Some(inner) = self.scopes.get(scope as usize) else { return false };
            if inner.name == name {
                return true;
            }
            scope = inner.around;
        }
        false
    }

    fn call(&mut self, call: &'a FuncCall, run: EffectTime) {
        let name = qualified(call.funcname().iter());
        self.functions.add(name, self.place(call.location));
        self.marks.add_if(TextProperty::Prepared, name.1 == "pg_prepared_statement");
        self.owner(name.0, run);
        // The literal names the parameter, but texts that differ in literals only share their facts.
        self.marks.add_if(TextProperty::Moves, run == EffectTime::Now && name.1 == "set_config");
        if run == EffectTime::Now
            && let Some(keeps) = kept_by(name, call)
        {
            self.calls.push(call);
            self.keep(keeps);
        }
    }

    /// Notes a column name and its qualifier.
    fn column(&mut self, (of, name): (&str, &str)) {
        if !of.is_empty() && !name.is_empty() {
            self.columns.push(hash_of_column(name));
        }
        self.marks.add_if(TextProperty::Fleeting, RESTLESS_COLUMNS.contains(&name));
    }

    /// Notes a sampling method. Built-in ones only read; others are functions of extensions.
    fn method(&mut self, name: (&'a str, &'a str), location: i32) {
        self.marks.add(TextProperty::Fleeting);
        if !matches!(name, ("" | "pg_catalog", "bernoulli" | "system")) {
            self.functions.add(name, self.place(location));
        }
    }

    fn expression(&mut self, expression: &'a A_Expr) {
        use A_Expr_Kind as Kind;
        match expression.kind {
            // Keywords, or regular expressions of pg_catalog.
            Kind::AEXPR_BETWEEN | Kind::AEXPR_NOT_BETWEEN | Kind::AEXPR_SIMILAR => {}
            Kind::AEXPR_BETWEEN_SYM | Kind::AEXPR_NOT_BETWEEN_SYM => {}
            _ => self.operator(qualified(expression.name().iter()), expression.location),
        }
    }

    /// Notes a cast. Type names of the SQL standard mean those of `pg_catalog`.
    fn cast(&mut self, cast: &'a TypeCast) {
        let Some(kind) = cast.type_name() else { return };
        let name = qualified(kind.names().iter().map(Node::from));
        let is_given = matches!(cast.arg(), Node::A_Const(_) | Node::ParamRef(_));
        let is_plain = matches!(name.0, "" | "pg_catalog") && PLAIN_TYPES.contains(&name.1);
        // `x::timestamp` may read 'now' from a row; `x::regclass` finds the object that has the name by then.
        self.marks
            .add_if(TextProperty::Fleeting, !is_plain && (!is_given || name.1.starts_with("reg") || hangs_on_today(name.1)));
        self.casts_to_time |= matches!(name.1, "time" | "_time");
        if name.0 != "pg_catalog" && !name.1.is_empty() {
            self.casts.add(name, self.place(cast.location));
        }
    }

    /// Notes the type of a column: of a function's rows (`json_to_record(...) AS x (a date)`) or of a created table.
    fn typed(&mut self, kind: Option<&'a TypeName>) {
        let Some(kind) = kind else { return };
        let name = qualified(kind.names().iter().map(Node::from));
        self.marks.add_if(TextProperty::Fleeting, !(matches!(name.0, "" | "pg_catalog") && PLAIN_TYPES.contains(&name.1)));
        if name.0 != "pg_catalog" && !name.1.is_empty() {
            self.casts.add(name, self.start);
        }
    }

    fn operator(&mut self, name: (&'a str, &'a str), location: i32) {
        let standard = STANDARD_OPERATORS.contains(&name.1) && matches!(name.0, "" | "pg_catalog");
        if !standard && !name.1.is_empty() {
            self.operators.add(name, self.place(location));
        }
    }
}

fn kept_by((schema, name): (&str, &str), call: &FuncCall) -> Option<StateKind> {
    let keeps = left_by_function(name)?;
    if is_of_catalog(name) && !matches!(schema, "" | "pg_catalog") {
        return None;
    }
    (name != "set_config" || !is_local(call)).then_some(keeps)
}

/// True if the third argument of `set_config` is the constant `true`.
fn is_local(call: &FuncCall) -> bool {
    match call.args().get(2) {
        Some(Node::A_Const(value)) => value.val().and_then(|value| value.bool_value()) == Some(true),
        _ => false,
    }
}
