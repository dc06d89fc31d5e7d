//! A catalog in the making: takes in rows, judges views and policies, and sorts.

use super::path::DbRoleSettings;
use super::tables::{TableDependencies, TablesDraft, in_order};
use super::unseen::UserFunctionNames;
use super::{
    Catalog, CatalogDefaults, CatalogObject, CodedTypes, FIRST_USER_OID, ObjectEffect, PARTS, SilentCalls, SortedObjects,
};
use crate::OF_TRANSACTIONS;
use crate::builtin;
use std::collections::HashSet;
use weir_config::{PatternSet, RoutingConfig};
use weir_sql::facts::hash_of_column;
use weir_wire::gather::{BoundExceeded, GatherBound, GatherBudget};

/// Larger databases are not remembered: statements with names go to the primary.
const OBJECTS_MAX: usize = 2_000_000;

/// Row limit: several for each object, beside those of its columns.
const ROWS_MAX: usize = 16_000_000;

/// Overhead beside the values: a slot in a growing list, and an allocation.
const ROW_BYTES: usize = 64;

pub(super) type Cells<'a> = [Option<&'a [u8]>];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    #[error("a row is not what was asked for")]
    Row,
    #[error("the database has more than {OBJECTS_MAX} relations and functions")]
    TooMany,
    #[error(transparent)]
    TooMuch(#[from] BoundExceeded),
}

/// An object with its OID.
pub(super) struct NumberedObject {
    pub(super) oid: u32,
    pub(super) object: CatalogObject,
}

/// Objects that a stored expression uses.
struct ExpressionUses {
    relation: u32,
    /// As written by the server: `funcid 12,relid 16400`.
    list: Box<str>,
}

/// Implicit casts: if any may write, and if any is not steady.
struct ImplicitCasts {
    hidden: bool,
    unsteady: bool,
}

pub struct CatalogDraft {
    /// Stops a server that sends rows without end.
    pub(super) gathered: GatherBudget,
    text: String,
    schemas: Vec<(u32, Box<str>)>,
    relations: Vec<NumberedObject>,
    functions: Vec<NumberedObject>,
    /// Functions that may be called like a column.
    like_columns: HashSet<u32>,
    operators: Vec<(NumberedObject, u32)>,
    /// Operators over types of PostgreSQL's own.
    of_own_types: Vec<CatalogObject>,
    /// Type, function, and true if the cast is implicit.
    casts: Vec<(CatalogObject, u32, bool)>,
    types: TypesDraft,
    parents: Vec<(u32, ObjectEffect)>,
    expressions: Vec<ExpressionUses>,
    refreshes: Vec<ExpressionUses>,
    defaults: CatalogDefaults,
    tables: TablesDraft,
    pub(super) unseen: super::unseen::UnseenDraft,
}

/// Types that run non-immutable functions.
#[derive(Default)]
struct TypesDraft {
    named: Vec<CatalogObject>,
    numbers: HashSet<u32>,
    /// Functions that use such types.
    functions: Vec<u32>,
    runs_unseen: bool,
}

impl CatalogDraft {
    /// `bytes_max` limits the rows (`catalog_max_size`).
    pub fn new(bytes_max: usize) -> CatalogDraft {
        let bound = GatherBound { thing: "the catalog", count_max: ROWS_MAX, bytes_max, parameter: "catalog_max_size" };
        CatalogDraft {
            gathered: GatherBudget::new(bound),
            text: String::new(),
            schemas: Vec::new(),
            relations: Vec::new(),
            functions: Vec::new(),
            like_columns: HashSet::new(),
            operators: Vec::new(),
            of_own_types: Vec::new(),
            casts: Vec::new(),
            types: TypesDraft::default(),
            parents: Vec::new(),
            expressions: Vec::new(),
            refreshes: Vec::new(),
            defaults: CatalogDefaults::default(),
            tables: TablesDraft::default(),
            unseen: super::unseen::UnseenDraft::default(),
        }
    }

    pub fn gathered_bytes(&self) -> usize {
        self.gathered.bytes()
    }

    pub fn row(&mut self, part: usize, cells: &Cells<'_>) -> Result<(), DraftError> {
        let part = PARTS.get(part).ok_or(DraftError::Row)?;
        self.gathered.take(ROW_BYTES + cells.iter().flatten().map(|cell| cell.len()).sum::<usize>())?;
        (part.take)(self, cells)?;
        let objects = self.relations.len() + self.functions.len();
        if is_too_much(objects, self.text.len()) { Err(DraftError::TooMany) } else { Ok(()) }
    }

    pub(super) fn schema(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.schemas.push((number(cells, 0)?, word(cells, 1)?.into()));
        Ok(())
    }

    pub(super) fn function(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let volatility = word(cells, 3)?;
        let fate = if volatility == "t" { ObjectEffect::Writes } else { ObjectEffect::Reads };
        if let Some(mut numbered) = self.numbered(cells, fate)? {
            numbered.object.steady = volatility == "i";
            if cells.get(4).copied().flatten() == Some(b"t") {
                self.like_columns.insert(numbered.oid);
            }
            if volatility == "c" {
                self.tables.stable_in_c.insert(numbered.oid);
            }
            self.functions.push(numbered);
        }
        Ok(())
    }

    pub(super) fn relation(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let fate = fate_of(word(cells, 3)?, word(cells, 4)?);
        if let Some(numbered) = self.numbered(cells, fate)? {
            if word(cells, 3)? == "m" {
                self.tables.materialised.push(numbered.oid);
            }
            if fate == ObjectEffect::Foreign {
                self.unseen.foreign.push(numbered.oid);
            }
            if fate == ObjectEffect::Unlogged {
                self.tables.unlogged.push(numbered.oid);
            }
            self.relations.push(numbered);
        }
        Ok(())
    }

    pub(super) fn operator(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let function = number(cells, 3)?;
        if let Some(numbered) = self.numbered(cells, ObjectEffect::Reads)? {
            if cells.get(4).copied().flatten() == Some(b"t") {
                self.of_own_types.push(numbered.object);
            }
            self.operators.push((numbered, function));
        }
        Ok(())
    }

    pub(super) fn cast(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (function, is_hidden) = (number(cells, 2)?, word(cells, 3)? == "i");
        // The type's schema is ignored: such casts are rare.
        let object = self.object(word(cells, 1)?, 0, ObjectEffect::Writes)?;
        self.casts.push((object, function, is_hidden));
        Ok(())
    }

    pub(super) fn contents(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let (what, oid) = (word(cells, 0)?, number(cells, 1)?);
        match what {
            "w" => self.tables.wild.push(oid),
            "f" => self.tables.fleeting.push(oid),
            "t" => self.tables.with_time.push(oid),
            "p" => self.types.functions.push(oid),
            "v" => self.types.runs_unseen = true,
            "c" => {
                let object = self.object(word(cells, 2)?, 0, ObjectEffect::Reads)?;
                self.types.named.push(object);
                self.types.numbers.insert(oid);
            }
            _ => return Err(DraftError::Row),
        }
        Ok(())
    }

    pub(super) fn parent(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.parents.push((number(cells, 0)?, fate_of(word(cells, 1)?, word(cells, 2)?)));
        Ok(())
    }

    pub(super) fn expression(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.expressions.push(ExpressionUses { relation: number(cells, 0)?, list: word(cells, 1)?.into() });
        Ok(())
    }

    pub(super) fn refresh(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.refreshes.push(ExpressionUses { relation: number(cells, 0)?, list: word(cells, 1)?.into() });
        Ok(())
    }

    pub(super) fn default_path(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.defaults.path.set.push((word(cells, 0)?.to_owned(), word(cells, 1)? == "t", word(cells, 2)?.to_owned()));
        Ok(())
    }

    pub(super) fn asked(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.defaults.path.asked = Some((word(cells, 0)?.to_owned(), word(cells, 1)?.to_owned()));
        Ok(())
    }

    pub(super) fn child(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.tables.children.push((number(cells, 0)?, number(cells, 1)?));
        Ok(())
    }

    pub(super) fn referring(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.tables.referring.push((number(cells, 0)?, number(cells, 1)?));
        Ok(())
    }

    pub(super) fn isolation(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.tables.may_be_serializable = word(cells, 0)? == "t";
        Ok(())
    }

    pub(super) fn default_of_transactions(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        let value = (word(cells, 0)?.to_owned(), word(cells, 1)? == "t", word(cells, 3)?.to_owned());
        self.of_transaction(word(cells, 2)?)?.set.push(value);
        Ok(())
    }

    pub(super) fn asked_of_transactions(&mut self, cells: &Cells<'_>) -> Result<(), DraftError> {
        self.of_transaction(word(cells, 1)?)?.asked = Some((word(cells, 0)?.to_owned(), word(cells, 2)?.to_owned()));
        Ok(())
    }

    fn of_transaction(&mut self, name: &str) -> Result<&mut DbRoleSettings, DraftError> {
        let at = OF_TRANSACTIONS.iter().position(|known| *known == name).ok_or(DraftError::Row)?;
        Ok(&mut self.defaults.transactions[at])
    }

    /// `None`: an unknown schema (temporary objects of other sessions).
    fn numbered(&mut self, cells: &Cells<'_>, fate: ObjectEffect) -> Result<Option<NumberedObject>, DraftError> {
        let (oid, schema, name) = (number(cells, 0)?, number(cells, 1)?, word(cells, 2)?);
        let Some(schema) = self.schemas.iter().position(|(known, _)| *known == schema) else { return Ok(None) };
        let object = self.object(name, u32::try_from(schema).map_err(|_| DraftError::TooMany)?, fate)?;
        Ok(Some(NumberedObject { oid, object }))
    }

    fn object(&mut self, name: &str, schema: u32, fate: ObjectEffect) -> Result<CatalogObject, DraftError> {
        let at = u32::try_from(self.text.len()).map_err(|_| DraftError::TooMany)?;
        let bytes = u16::try_from(name.len()).map_err(|_| DraftError::Row)?;
        self.text.push_str(name);
        Ok(CatalogObject { at, schema, bytes, fate, steady: false })
    }

    /// Slow for a large database: not for a worker thread.
    pub fn finish(mut self, routing: &RoutingConfig) -> Catalog {
        let pg_catalog = self.schemas.iter().position(|(_, name)| **name == *"pg_catalog").map(|at| at as u32);
        self.note_extract(pg_catalog);
        for function in &mut self.functions {
            function.object.fate = used_fate(function, &self.text, pg_catalog, routing, &self.schemas);
        }
        self.functions.sort_unstable_by_key(|function| function.oid);
        let (casts, calls) = self.judged_unasked();
        self.note_coded();
        self.note_steady(pg_catalog);
        self.relations.sort_unstable_by_key(|relation| relation.oid);
        for at in 0..self.operators.len() {
            let fate = self.fate_of_function(self.operators[at].1);
            self.operators[at].0.object.fate = fate;
        }
        self.operators.sort_unstable_by_key(|(operator, _)| operator.oid);
        for (parent, fate) in std::mem::take(&mut self.parents) {
            self.worsen(parent, fate);
        }
        self.note_views();
        self.follow();
        for uses in std::mem::take(&mut self.refreshes) {
            if self.fate_of_uses(&uses) == ObjectEffect::Writes {
                self.tables.wild.push(uses.relation);
            }
        }
        if !routing.check_unlogged {
            let unlogged = self.relations.iter_mut().filter(|relation| relation.object.fate == ObjectEffect::Unlogged);
            unlogged.for_each(|relation| relation.object.fate = ObjectEffect::Reads);
        }
        for function in &mut self.functions {
            function.object.fate = called_fate(function, &self.text, pg_catalog, routing, &self.schemas);
        }
        let is_hidden =
            |object: &&CatalogObject| object.fate != ObjectEffect::Reads && HIDDEN_OPERATORS.contains(&object.name(&self.text));
        let hidden: Box<[u32]> = self.operators.iter().map(|(o, _)| &o.object).filter(is_hidden).map(|o| o.schema).collect();
        let is_unsteady = |object: &&CatalogObject| !object.steady && HIDDEN_OPERATORS.contains(&object.name(&self.text));
        let unsteady = self.operators.iter().map(|(o, _)| &o.object).filter(is_unsteady).map(|o| o.schema).collect();
        let writing_columns = self.columns_of(|function| function.fate != ObjectEffect::Reads);
        let unsteady_columns = self.columns_of(|function| !function.steady);
        let unseen = std::mem::take(&mut self.unseen);
        let own = self.functions.iter().filter(|function| is_builtin(function, pg_catalog));
        let acting: HashSet<&str> =
            own.map(|function| function.object.name(&self.text)).filter(|name| !builtin::is_repeatable(name)).collect();
        let unseen = unseen.made(|name| acting.contains(name), &self.named(pg_catalog));
        let syntax = self.syntax(pg_catalog, routing);
        let (relations, tables) = TableDependencies::made(self.relations, self.tables, &self.text);
        Catalog {
            writing: SilentCalls { operators: hidden, columns: writing_columns, calls: calls.hidden },
            unsteady: SilentCalls {
                operators: unsteady,
                columns: unsteady_columns,
                calls: calls.unsteady || self.types.runs_unseen,
            },
            types: CodedTypes {
                unsteady: sorted(self.types.named.into_iter(), &self.text),
                checking: in_order(self.types.numbers.into_iter().collect()),
                runs_unseen: self.types.runs_unseen,
            },
            tables,
            unseen,
            pg_catalog,
            relations,
            functions: sorted(self.functions.into_iter().map(|function| function.object).chain(syntax), &self.text),
            operators: sorted(self.operators.into_iter().map(|(operator, _)| operator.object), &self.text),
            of_own_types: sorted(self.of_own_types.into_iter(), &self.text),
            casts: sorted(casts.into_iter(), &self.text),
            schemas: self.schemas.into_iter().map(|(_, name)| name).collect(),
            text: self.text.into_boxed_str(),
            defaults: self.defaults,
        }
    }

    /// Before version 14 `EXTRACT` calls `date_part`. Source: `func_expr_common_subexpr` in gram.y.
    fn note_extract(&mut self, pg_catalog: Option<u32>) {
        let named = |name: &str| {
            let is_one =
                |function: &&NumberedObject| is_builtin(function, pg_catalog) && function.object.name(&self.text) == name;
            self.functions.iter().filter(is_one).map(|function| (function.oid, function.object)).collect::<Vec<_>>()
        };
        if !named(EXTRACT).is_empty() {
            return;
        }
        let older = named("date_part");
        let (Ok(at), Ok(bytes)) = (u32::try_from(self.text.len()), u16::try_from(EXTRACT.len())) else { return };
        self.text.push_str(EXTRACT);
        let renamed =
            older.into_iter().map(|(oid, object)| NumberedObject { oid, object: CatalogObject { at, bytes, ..object } });
        self.functions.extend(renamed);
    }

    /// Returns calls that newer servers treat as syntax. An older server without such a function refuses the call on any node.
    fn syntax(&mut self, pg_catalog: Option<u32>, routing: &RoutingConfig) -> Vec<CatalogObject> {
        let Some(pg_catalog) = pg_catalog else { return Vec::new() };
        let mut made = Vec::new();
        for name in weir_sql::syntax::FUNCTIONS {
            // The names of a full catalog go to the primary.
            let Ok(object) = self.object(name, pg_catalog, ObjectEffect::Reads) else { return made };
            let function = NumberedObject { oid: 0, object: CatalogObject { steady: true, ..object } };
            let fate = used_fate(&function, &self.text, Some(pg_catalog), routing, &self.schemas);
            made.push(CatalogObject { fate, ..function.object });
        }
        made
    }

    /// Returns users' functions that a text may call unnoticed.
    fn named(&self, pg_catalog: Option<u32>) -> UserFunctionNames<'_> {
        let name = |function: &NumberedObject| function.object.name(&self.text);
        let of_users = self.functions.iter().filter(|function| !is_builtin(function, pg_catalog));
        let like_own = of_users.clone().filter(|function| builtin::leaves_nothing(name(function))).map(name).collect();
        let like_columns = of_users.filter(|function| self.like_columns.contains(&function.oid)).map(name).collect();
        UserFunctionNames { like_columns, like_own }
    }

    /// Hashes names of functions callable like a column.
    fn columns_of(&self, is_one: impl Fn(&CatalogObject) -> bool) -> Box<[u32]> {
        let mut found: Vec<u32> = self
            .functions
            .iter()
            .filter(|function| self.like_columns.contains(&function.oid) && is_one(&function.object))
            .map(|function| hash_of_column(function.object.name(&self.text)))
            .collect();
        found.sort_unstable();
        found.dedup();
        found.into()
    }

    /// Judges casts by their functions' own effects.
    fn judged_unasked(&mut self) -> (Vec<CatalogObject>, ImplicitCasts) {
        let casts = std::mem::take(&mut self.casts);
        let unsteady = casts.iter().any(|(_, function, _)| !self.steady_function(*function));
        let may_write = |function: u32| self.fate_of_function(function) != ObjectEffect::Reads;
        let (implicit, explicit): (Vec<_>, Vec<_>) =
            casts.into_iter().filter(|(_, function, _)| may_write(*function)).partition(|(_, _, is_hidden)| *is_hidden);
        let hidden = !implicit.is_empty();
        (explicit.into_iter().map(|(object, _, _)| object).collect(), ImplicitCasts { hidden, unsteady })
    }

    fn note_coded(&mut self) {
        for function in std::mem::take(&mut self.types.functions) {
            let Ok(at) = self.functions.binary_search_by_key(&function, |function| function.oid) else { continue };
            self.functions[at].object.steady = false;
            self.tables.stable_in_c.remove(&function);
        }
    }

    /// Marks functions and operators with constant results.
    fn note_steady(&mut self, pg_catalog: Option<u32>) {
        for function in &mut self.functions {
            let name = function.object.name(&self.text);
            let is_builtin = is_builtin(function, pg_catalog);
            function.object.steady |= is_builtin && builtin::hangs_on_settings(name);
            // A text constant depends on the current date.
            function.object.steady &= !(is_builtin && name.contains("timetz"));
        }
        for at in 0..self.operators.len() {
            let function = self.operators[at].1;
            self.operators[at].0.object.steady = self.steady_function(function);
        }
    }

    /// True if the function is steady; a stable one in C depends on settings only.
    fn steady_function(&self, oid: u32) -> bool {
        let found = self.functions.binary_search_by_key(&oid, |function| function.oid);
        self.tables.stable_in_c.contains(&oid) || found.is_ok_and(|at| self.functions[at].object.steady)
    }

    /// Notes relations behind views, and views that are not steady.
    fn note_views(&mut self) {
        for uses in &self.expressions {
            for entry in uses.list.split(',') {
                let Some((label, rest)) = entry.split_once(' ') else { continue };
                let mut numbers = numbers_in(rest);
                let is_steady = match label {
                    "relid" => {
                        let others = numbers.filter(|number| *number != uses.relation);
                        self.tables.views.extend(others.map(|number| (uses.relation, number)));
                        true
                    }
                    "funcid" if numbers_in(rest).any(|number| ZONES_OF_TODAY.contains(&number)) => false,
                    "funcid" | "aggfnoid" | "winfnoid" => numbers.all(|number| {
                        let found = self.functions.binary_search_by_key(&number, |function| function.oid);
                        found.is_ok_and(|at| self.functions[at].object.steady)
                    }),
                    "opno" | "opnos" | "eqop" | "sortop" => numbers.all(|number| self.steady_operator(number)),
                    "consttype" | "resulttype" | "funcresulttype" => numbers.all(|number| !self.types.numbers.contains(&number)),
                    "tsmhandler" => false,
                    _ => true,
                };
                if !is_steady {
                    self.tables.fleeting.push(uses.relation);
                }
            }
        }
    }

    /// Built-in operators depend on settings at most.
    fn steady_operator(&self, oid: u32) -> bool {
        match self.operators.binary_search_by_key(&oid, |(operator, _)| operator.oid) {
            Ok(at) => self.operators[at].0.object.steady,
            Err(_) => oid < FIRST_USER_OID,
        }
    }

    /// Spreads effects to relations until nothing changes: views read views.
    fn follow(&mut self) {
        let mut open = std::mem::take(&mut self.expressions);
        loop {
            let before = open.len();
            // A relation with a worse effect than reading is done.
            open.retain(|uses| {
                let fate = self.fate_of_uses(uses);
                self.worsen(uses.relation, fate);
                fate == ObjectEffect::Reads
            });
            if open.len() == before {
                return;
            }
        }
    }

    fn worsen(&mut self, relation: u32, fate: ObjectEffect) {
        if let Ok(at) = self.relations.binary_search_by_key(&relation, |relation| relation.oid) {
            let object = &mut self.relations[at].object;
            object.fate = object.fate.max(fate);
        }
    }

    fn fate_of_uses(&self, uses: &ExpressionUses) -> ObjectEffect {
        let fate = |entry: &str| {
            let Some((label, rest)) = entry.split_once(' ') else { return ObjectEffect::Writes };
            match (label, rest.parse()) {
                ("rowMarks", _) => ObjectEffect::Locks,
                ("opnos", _) => numbers_in(rest).map(|operator| self.fate_of_operator(operator)).max().unwrap_or_default(),
                // Before version 16 a view names itself.
                ("relid", Ok(relation)) if relation == uses.relation => ObjectEffect::Reads,
                ("relid", Ok(relation)) => self.fate_of_relation(relation),
                // Built-in sampling methods only read; their handlers are not on the list of functions.
                ("consttype" | "resulttype" | "funcresulttype", _) => ObjectEffect::Reads,
                ("tsmhandler", Ok(handler)) if handler < FIRST_USER_OID => ObjectEffect::Reads,
                ("opno" | "eqop" | "sortop", Ok(operator)) => self.fate_of_operator(operator),
                (_, Ok(function)) => self.fate_of_function(function),
                (_, Err(_)) => ObjectEffect::Writes,
            }
        };
        uses.list.split(',').map(fate).max().unwrap_or_default()
    }

    fn fate_of_relation(&self, oid: u32) -> ObjectEffect {
        match self.relations.binary_search_by_key(&oid, |relation| relation.oid) {
            Ok(at) => self.relations[at].object.fate,
            Err(_) => ObjectEffect::Catalog,
        }
    }

    fn fate_of_function(&self, oid: u32) -> ObjectEffect {
        match self.functions.binary_search_by_key(&oid, |function| function.oid) {
            Ok(at) => self.functions[at].object.fate,
            Err(_) => ObjectEffect::Writes,
        }
    }

    /// Built-in operators only read.
    fn fate_of_operator(&self, oid: u32) -> ObjectEffect {
        match self.operators.binary_search_by_key(&oid, |(operator, _)| operator.oid) {
            Ok(at) => self.operators[at].0.object.fate,
            Err(_) if oid < FIRST_USER_OID => ObjectEffect::Reads,
            Err(_) => ObjectEffect::Writes,
        }
    }
}

/// The parser's name of the function behind `EXTRACT`.
const EXTRACT: &str = "extract";

/// `timezone` of a `time with time zone`: depends on the current date.
const ZONES_OF_TODAY: [u32; 2] = [2037, 2038];

/// Operators not named in a text's facts, or behind words: `BETWEEN`, `IN`, `ORDER BY`, `LIKE`.
pub(super) const HIDDEN_OPERATORS: [&str; 16] =
    ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "||", "~~", "!~~", "~~*", "!~~*"];

fn is_too_much(objects: usize, text_bytes: usize) -> bool {
    objects > OBJECTS_MAX || text_bytes > u32::MAX as usize / 2
}

fn numbers_in(rest: &str) -> impl Iterator<Item = u32> {
    rest.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok())
}

/// True if listed, with or without schema.
fn is_listed(list: &PatternSet, function: &CatalogObject, text: &str, schemas: &[(u32, Box<str>)]) -> bool {
    let name = function.name(text);
    if list.is_match(name) {
        return true;
    }
    let Some((_, schema)) = schemas.get(function.schema as usize).filter(|_| !list.is_empty()) else { return false };
    let qualified = format!("{schema}.{name}");
    list.is_match(&qualified)
}

fn used_fate(
    function: &NumberedObject,
    text: &str,
    pg_catalog: Option<u32>,
    routing: &RoutingConfig,
    schemas: &[(u32, Box<str>)],
) -> ObjectEffect {
    let is_listed = |list: &PatternSet| is_listed(list, &function.object, text, schemas);
    let reads = match is_builtin(function, pg_catalog) {
        true => builtin::may_run_on_standby(function.object.name(text)),
        false => function.object.fate == ObjectEffect::Reads,
    };
    match (is_listed(&routing.write_functions), reads || is_listed(&routing.read_only_functions)) {
        (false, true) => ObjectEffect::Reads,
        (true, _) | (false, false) => ObjectEffect::Writes,
    }
}

/// Returns the effect of a call. With `read_only_functions`, users' other functions count as writing.
fn called_fate(
    function: &NumberedObject,
    text: &str,
    pg_catalog: Option<u32>,
    routing: &RoutingConfig,
    schemas: &[(u32, Box<str>)],
) -> ObjectEffect {
    let list = &routing.read_only_functions;
    let is_left_out = !list.is_empty() && !is_listed(list, &function.object, text, schemas);
    if is_left_out && !is_builtin(function, pg_catalog) { ObjectEffect::Writes } else { function.object.fate }
}

fn is_builtin(function: &NumberedObject, pg_catalog: Option<u32>) -> bool {
    Some(function.object.schema) == pg_catalog && function.oid < FIRST_USER_OID
}

fn fate_of(kind: &str, persistence: &str) -> ObjectEffect {
    match (kind, persistence) {
        ("f", _) => ObjectEffect::Foreign,
        ("S", _) => ObjectEffect::Sequence,
        (_, "u") => ObjectEffect::Unlogged,
        _ => ObjectEffect::Reads,
    }
}

/// Merges duplicates by name and schema: the worst effect, steady only if all are.
pub(super) fn sorted(objects: impl Iterator<Item = CatalogObject>, text: &str) -> SortedObjects {
    let mut objects: Vec<CatalogObject> = objects.collect();
    objects.sort_unstable_by(|one, other| (one.name(text), one.schema).cmp(&(other.name(text), other.schema)));
    objects.dedup_by(|later, first| {
        let is_same = later.schema == first.schema && later.name(text) == first.name(text);
        if is_same {
            first.fate = first.fate.max(later.fate);
            first.steady &= later.steady;
        }
        is_same
    });
    SortedObjects(objects.into())
}

pub(super) fn word<'a>(cells: &Cells<'a>, at: usize) -> Result<&'a str, DraftError> {
    // A name that is not UTF-8 cannot occur in a parsed text.
    cells.get(at).copied().flatten().map(|cell| std::str::from_utf8(cell).unwrap_or_default()).ok_or(DraftError::Row)
}

pub(super) fn number(cells: &Cells<'_>, at: usize) -> Result<u32, DraftError> {
    word(cells, at)?.parse().map_err(|_| DraftError::Row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_too_many_objects_or_names_that_are_too_long() {
        let text = u32::MAX as usize / 2;
        assert!(!is_too_much(OBJECTS_MAX, text));
        assert!(is_too_much(OBJECTS_MAX + 1, 0) && is_too_much(0, text + 1));
    }
}
