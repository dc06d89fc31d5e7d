//! Facts about a text as plain data; `session::routing` decides by them.

pub use crate::leaves::{StateKind, StateKinds};
use std::fmt;

/// Facts of one query string, which may hold several statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryFacts {
    pub statements: u32,
    pub verb: StatementVerb,
    pub effect: QueryEffect,
    /// `Many` if one of several statements is a transaction verb.
    pub transaction: TransactionVerb,
    pub marks: TextProperties,
    pub state: StateChange,
    pub parameters: ParameterChange,
    pub named: TextNames,
    /// Changes, apart from those by functions that it calls.
    pub changes: ChangeScope,
    /// Name in a single `EXECUTE name` with constants.
    pub runs: Option<String>,
    pub session: SessionVerb,
    /// Set only for a single statement.
    pub savepoint: Option<SavepointCommand>,
    /// Name in `SHOW name`, lower case.
    pub show: Option<String>,
    /// Databases that must be without connections.
    pub vacates: Vec<String>,
    /// Roles renamed or dropped.
    pub unseats: Vec<String>,
    pub hint: RoutingHint,
}

/// Effect on session state that outlives the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// State left on the server connection.
    pub keeps: StateKinds,
    pub frees: StateKinds,
    /// State that its SQL-prepared statements leave when executed.
    pub later: StateKinds,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterChange {
    /// Name (lower case) and value of a single `SET name = constant`.
    pub sets: Option<(String, String)>,
    /// Those of a single `SET LOCAL name = constant`.
    pub sets_local: Option<(String, String)>,
    /// Parameters set back to their values at the session's start.
    pub resets: Option<ResetTarget>,
}

/// Names in a text, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextNames {
    /// Functions called, in lower case, in order of appearance.
    pub functions: Vec<QualifiedName>,
    /// Relations in order of appearance; no CTE names.
    pub relations: Vec<QualifiedName>,
    /// Operators that may be users': outside of `= <> < > <= >= + - * / % ||` and `LIKE`.
    pub operators: Vec<QualifiedName>,
    /// Types of casts, without the standard's words.
    pub casts: Vec<QualifiedName>,
    /// Columns behind a dot, by `hash_of_column`; sorted. `t.f` may call `f(t)`.
    pub columns: Vec<u32>,
    pub written: Vec<QualifiedName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextProperty {
    /// Concerns SQL-prepared statements.
    Prepared,
    /// `ALTER ROLE ... SET` or `ALTER DATABASE ... SET`.
    AltersDefaults,
    LocksRows,
    /// May change the meaning of a name for others, or the defaults of sessions.
    Defines,
    /// `Defines`, and may do so for functions, views and other code.
    DefinesCode,
    /// `EXPLAIN`; with `ANALYZE`, `effect` is that of the statement.
    Explains,
    Commented,
    /// May change, if only for its transaction, the meaning of names (`search_path`, user) or the reading of texts
    /// (encoding, backslashes). Users' functions are not looked at.
    Moves,
    /// Makes a temporary table that goes with its transaction.
    MakesBrief,
    /// The result depends on the moment, the user or chance.
    Fleeting,
    /// Runs in recovery too: SET, RESET, SHOW, DISCARD, DEALLOCATE, UNLISTEN, CLOSE. Source:
    /// `ClassifyUtilityCommandAsReadOnly` in utility.c.
    OfSession,
    /// FETCH or MOVE.
    Fetches,
    /// `COPY ... FROM STDIN`.
    CopiesIn,
    /// `COPY ... TO STDOUT`.
    CopiesOut,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextProperties(u16);

impl TextProperties {
    pub const NONE: TextProperties = TextProperties(0);

    pub const fn of(mark: TextProperty) -> TextProperties {
        TextProperties(1 << mark as u16)
    }

    pub const fn has(self, mark: TextProperty) -> bool {
        self.0 & TextProperties::of(mark).0 != 0
    }

    #[must_use]
    pub const fn and(self, other: TextProperties) -> TextProperties {
        TextProperties(self.0 | other.0)
    }

    #[must_use]
    pub const fn with_if(self, mark: TextProperty, is_so: bool) -> TextProperties {
        if is_so { self.and(TextProperties::of(mark)) } else { self }
    }

    pub fn add(&mut self, mark: TextProperty) {
        *self = self.and(TextProperties::of(mark));
    }

    pub fn add_if(&mut self, mark: TextProperty, is_so: bool) {
        *self = self.with_if(mark, is_so);
    }
}

impl QueryFacts {
    /// Event triggers do not run with statements about rows only.
    pub fn fires_events(&self) -> bool {
        let is_about_rows = self.statements == 1
            && matches!(self.verb, StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete | StatementVerb::Select);
        self.effect == QueryEffect::Writes && (!is_about_rows || self.has(TextProperty::Defines))
    }

    pub const fn has(&self, mark: TextProperty) -> bool {
        self.marks.has(mark)
    }
}

/// FNV-1a of a column's name, to save memory. A collision counts as the same name.
pub fn hash_of_column(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Ordered: of several statements the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeScope {
    #[default]
    Nothing,
    /// Rows of `written`, and rows that change with them.
    Rows,
    Database,
    /// Roles and databases.
    Cluster,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementVerb {
    /// `SELECT`, `VALUES`, `TABLE`.
    Select,
    Insert,
    Update,
    Delete,
    Definition,
    #[default]
    Other,
}

/// Node that a text asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutingHint {
    #[default]
    None,
    Primary,
    Standby,
    Node(u16),
    Unknown,
}

impl RoutingHint {
    /// Parses `primary`, `standby` or `node=2`, in any case.
    pub fn of_word(word: &str) -> RoutingHint {
        let word = word.trim();
        if word.eq_ignore_ascii_case("primary") {
            return RoutingHint::Primary;
        }
        if word.eq_ignore_ascii_case("standby") {
            return RoutingHint::Standby;
        }
        match word.split_once('=') {
            Some((name, number)) if name.trim().eq_ignore_ascii_case("node") => {
                number.trim().parse().map_or(RoutingHint::Unknown, RoutingHint::Node)
            }
            _ => RoutingHint::Unknown,
        }
    }
}

/// Empty `schema`: the text gives none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName {
    pub schema: String,
    pub name: String,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.schema.is_empty() { out.write_str(&self.name) } else { write!(out, "{}.{}", self.schema, self.name) }
    }
}

/// Ordered by strength: of several statements the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryEffect {
    #[default]
    None,
    /// As far as the text shows; functions and relations are judged later.
    Reads,
    /// Utility statements, `SHOW`, cursors, the unforeseen.
    Unsure,
    Writes,
    /// Refused by the parser, or too long or too deep.
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionVerb {
    #[default]
    None,
    Begin(BeginOptions),
    /// `COMMIT`, `END`, `ROLLBACK`, `ABORT` (without `AND CHAIN`), `PREPARE TRANSACTION`.
    End(TransactionEnd),
    /// `AND CHAIN`: another transaction begins at once.
    Chain(TransactionEnd),
    Within,
    /// `COMMIT PREPARED`, `ROLLBACK PREPARED`: writes outside of a transaction.
    Prepared,
    Many,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeginOptions {
    /// `START TRANSACTION`, which has its own command tag.
    pub starts: bool,
    pub access: AccessMode,
    pub isolation: IsolationLevel,
    pub deferrable: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// The session's default.
    #[default]
    Unset,
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    Commit,
    Rollback,
    Prepare,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// The session's default.
    #[default]
    Unset,
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// Commands on the session as a whole; set only for a single statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionVerb {
    #[default]
    None,
    DiscardAll,
    DeallocateAll,
    Deallocate(String),
    ResetAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavepointVerb {
    /// `SAVEPOINT name`.
    Set,
    /// `RELEASE name`.
    Release,
    /// `ROLLBACK TO name`.
    RollBackTo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavepointCommand {
    pub verb: SavepointVerb,
    /// As the server compares it.
    pub name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTarget {
    /// `RESET ALL`, `DISCARD ALL`.
    All,
    /// Among other statements, which may set the parameter again.
    Many,
    /// `RESET name`, `SET name TO DEFAULT`; lower case.
    Name(String),
}
