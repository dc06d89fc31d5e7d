//! Terms of one statement by which the place of its rows may be known: its relations, how they are joined, and the equalities that hold for every row
//! that counts. Plain data, without a catalog: names are as in the text, and nothing here decides.
//!
//! A join puts its relations in *groups*. Relations of one group are joined by inner joins; the side of an outer join that may be filled with NULL is a
//! group of its own, below the group in which the join stands. An equality names the groups whose rows must be present for it to hold: `ON` of a `LEFT
//! JOIN` holds wherever a row of its right side is present, `WHERE` wherever a row of the query is.

use std::ops::Range;

use crate::facts::QualifiedName;
use crate::literal::{LiteralClass, LiteralText};

/// Most queries in a text, subqueries and branches of `UNION` included.
pub const BLOCKS_MAX: usize = 64;

/// Most relations in all FROM clauses.
pub const OCCURRENCES_MAX: usize = 64;

/// Most equalities.
pub const EQUALITIES_MAX: usize = 256;

/// Most values in all rows that a text inserts.
pub const INSERTED_VALUES_MAX: usize = 20_000;

/// Why a text has no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTerms {
    /// The parser does not take it, or it is too long for the parser.
    Unparsed,
    /// It has none or several statements.
    NotOneStatement,
    /// It has more queries, relations, equalities or values than are looked at.
    TooLarge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTerms {
    pub kind: StatementKind,
    pub properties: TermProperties,
    /// All relations of the text, those of definitions too; no CTE.
    pub relations: Vec<QualifiedName>,
    /// The queries; empty unless `kind` is one of queries and DML.
    pub blocks: Vec<QueryBlock>,
    pub scopes: Vec<NameScope>,
    pub groups: Vec<JoinGroup>,
    pub equalities: Vec<Equality>,
    pub memberships: Vec<Membership>,
    pub writes: Vec<WriteTerms>,
    /// How often the text has each parameter, by number.
    pub parameter_uses: Vec<(u32, u32)>,
    /// All operators, also those that the grammar puts in: `=` of `IN` and `USING`. Sorted.
    pub operators: Vec<QualifiedName>,
    /// Names behind `COLLATE`; sorted.
    pub collations: Vec<QualifiedName>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementKind {
    Select,
    Insert,
    Update,
    Delete,
    Merge,
    Copy,
    Truncate,
    /// Makes, changes or drops something, also by `SELECT INTO`.
    Definition,
    Prepare,
    #[default]
    Utility,
}

impl StatementKind {
    /// True if the text's queries are known.
    pub fn has_blocks(self) -> bool {
        matches!(self, StatementKind::Select | StatementKind::Insert | StatementKind::Update | StatementKind::Delete)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermProperty {
    /// `EXPLAIN` stands before it.
    Explained,
    /// `DECLARE ... CURSOR FOR` stands before it.
    Cursor,
    /// `DECLARE ... CURSOR WITH HOLD FOR` stands before it.
    HoldCursor,
    /// `COPY table TO STDOUT`: the terms are those of `SELECT columns FROM table`.
    CopiesTable,
    /// `FOR UPDATE` and its kin.
    LocksRows,
    /// `TABLESAMPLE`.
    Samples,
    /// Reads `ctid`, `xmin`, `tableoid` ..., which differ from server to server.
    SystemColumns,
    /// Casts to `regclass` and its kin: numbers that differ from server to server.
    ObjectNumbers,
    /// `WHERE CURRENT OF`.
    AtCursor,
    /// Calls a function in FROM.
    FunctionInFrom,
    Returning,
    /// `FROM ONLY t`: rows of partitions and children do not count.
    OnlyParent,
    /// Tells or names the database or the schema that is looked into: `current_catalog`, `current_schema`, `db.schema.table`.
    OfDatabase,
    /// May depend on the time at which the transaction began: `now()`, or a text that is read as a date and may be `now`. Literals and parameters may
    /// say it, too, and are not looked at here.
    TransactionTime,
    /// A part of a condition may be the same for all rows of its query, as `$1 = 1` and `a = $1 AND a = $2`. Plain constants, as `true`, do not count.
    Gate,
    /// `FETCH ... WITH TIES` of a query that calls `min`, `max` or their kin without `GROUP BY`.
    TiesOfExtreme,
    /// A query may sort or group its rows by a function that returns a set.
    SortedSets,
    /// A query in FROM may have nothing but aggregates over a join, and the query around may name none of them.
    UnusedAggregate,
    /// `UNION` and its kin.
    SetOperation,
    /// `LIMIT` or `OFFSET` of a `UNION` and its kin.
    CutSetOperation,
    /// `ON CONFLICT`.
    OnConflict,
    /// `DEFAULT` in place of a value.
    SetsDefault,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermProperties(u32);

impl TermProperties {
    pub const fn has(self, property: TermProperty) -> bool {
        self.0 & (1 << property as u16) != 0
    }

    pub fn add(&mut self, property: TermProperty) {
        self.0 |= 1 << property as u16;
    }

    pub fn add_if(&mut self, property: TermProperty, is_so: bool) {
        if is_so {
            self.add(property);
        }
    }
}

/// Number of a `QueryBlock`, `NameScope` or `JoinGroup` in its list.
pub type BlockId = usize;
pub type ScopeId = usize;
pub type GroupId = usize;

/// One SELECT, or one branch of a UNION; UPDATE and DELETE with their FROM or USING; INSERT, which has no relations here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryBlock {
    /// Relations of its FROM in order; the target of UPDATE and DELETE is the last one.
    pub occurrences: Vec<Occurrence>,
    /// Joins that make one column of two.
    pub merges: Vec<ColumnMerge>,
    /// Columns that a query around it sees, in order.
    pub outputs: Vec<OutputColumn>,
    /// New names for the first of them: `WITH name (a, b)`.
    pub output_aliases: Vec<String>,
    pub shape: BlockShape,
    /// All of its names.
    pub scope: ScopeId,
    /// Its relations that no outer join can leave out.
    pub root: GroupId,
}

/// How a block's rows come from those of its relations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockShape {
    /// Each row that its joins and WHERE leave is one row of the result: a condition on the result may as well stand in its WHERE.
    Flat,
    /// Each row that its joins and WHERE leave is one row of the result, and operators compute its columns.
    Computed,
    /// It may group, sort out, limit or number rows.
    Other,
    /// Its columns are not those of `outputs`: `UNION`, `VALUES`, `RETURNING`.
    #[default]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub source: OccurrenceSource,
    /// Name by which columns are qualified; empty if there is none.
    pub alias: String,
    /// True if `alias` is given, so that the name of the relation is hidden.
    pub is_renamed: bool,
    /// New names for the first columns.
    pub column_aliases: Vec<String>,
    pub group: GroupId,
    /// Within a join with an alias: only names within these occurrences see it.
    pub seen_within: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OccurrenceSource {
    Relation(QualifiedName),
    /// A subquery in FROM.
    Derived(BlockId),
    Cte(BlockId),
    /// A function, a joined table with an alias, a recursive CTE: columns of any name.
    Unknown,
}

/// `USING` and `NATURAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMerge {
    pub left: Range<usize>,
    pub right: Range<usize>,
    /// `None`: `NATURAL`, all names that both sides have.
    pub names: Option<Vec<String>>,
    pub side: MergeSide,
    /// Groups that must be present for the columns to be equal.
    pub needs: Vec<GroupId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeSide {
    /// Both columns are the merged one.
    Inner,
    /// Only one of them is, or neither.
    Outer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputColumn {
    /// A column as it is, under a name.
    Column { name: String, of: ColumnTerm },
    /// An expression; an empty name is one that is not known.
    Other { name: String },
    /// `*`, or `t.*`.
    Star { of: Option<ColumnQualifier> },
}

/// Names that a clause sees: some occurrences of a block, and what a scope around it sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameScope {
    pub block: BlockId,
    pub occurrences: Range<usize>,
    pub around: ScopeParent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeParent {
    Scope(ScopeId),
    Nothing,
    /// Names further out mean values that the equalities do not speak of: `RETURNING`.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    /// The group whose rows are present wherever a row of this one matters; also over the border of a query.
    pub above: Option<GroupId>,
}

/// Both sides are equal in every row for which all groups of `needs` are present. It is never true if one of them is NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equality {
    pub needs: Vec<GroupId>,
    pub scope: ScopeId,
    pub left: EqualTerm,
    pub right: EqualTerm,
}

/// `(a, b) IN (SELECT x, y ...)`, where rows matter only if it is true: of the query's rows only those count whose columns equal these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Of the names of `columns`.
    pub scope: ScopeId,
    /// `None`: no column by its name.
    pub columns: Vec<Option<ColumnTerm>>,
    pub block: BlockId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EqualTerm {
    Column(ColumnTerm),
    Constant(KeyTerm),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTerm {
    pub of: Option<ColumnQualifier>,
    pub name: String,
}

/// Empty `schema`: the text gives none.
pub type ColumnQualifier = QualifiedName;

/// A constant, and the type to which it is cast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyTerm {
    pub source: KeySource,
    pub cast: Option<QualifiedName>,
}

/// Where the value of a constant stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// In the text: `literal_at` gives it for each text of the skeleton.
    Literal { ordinal: usize, class: LiteralClass, sign: Sign },
    /// The text's skeleton keeps it, so it is a constant of all its texts.
    Constant { value: LiteralText, sign: Sign },
    /// `$n`.
    Parameter(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    Plus,
    Minus,
}

/// A statement that writes, at the top or in a CTE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTerms {
    pub relation: QualifiedName,
    pub action: WriteAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    Insert {
        /// Empty: all columns in order. An empty name is a part of a column.
        columns: Vec<String>,
        rows: InsertedRows,
        /// Columns that `ON CONFLICT DO UPDATE` sets.
        conflict_sets: Vec<String>,
    },
    Update {
        sets: Vec<String>,
    },
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertedRows {
    Values(Vec<Vec<InsertedValue>>),
    /// `INSERT ... SELECT`: the rows of this block.
    Query(BlockId),
    /// `DEFAULT VALUES`.
    Defaults,
    /// `OVERRIDING USER VALUE`: some of the values do not count.
    Overridden,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertedValue {
    Constant(KeyTerm),
    Default,
    Other,
}
