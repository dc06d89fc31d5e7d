//! Facts about a text, as plain data: the parser's tree is read once and dropped, facts are kept.
//!
//! Nothing here decides. `session::routing` weighs the facts against configuration and catalog.

pub use crate::leaves::{StateKind, StateKinds};

/// Everything Weir remembers of one query string (which may hold several statements).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryFacts {
    /// Statements in the string; 0 for an empty one.
    pub statements: u32,
    /// Kind of the first statement, for statistics.
    pub verb: StatementVerb,
    /// The strongest effect of all statements.
    pub effect: QueryEffect,
    /// Its effect on the transaction. `Many` when one of several statements is a transaction verb.
    pub transaction: TransactionVerb,
    pub marks: TextProperties,
    pub state: StateChange,
    pub parameters: ParameterChange,
    pub named: TextNames,
    /// The part of the database that it may change, apart from changes by functions that it calls.
    pub changes: ChangeScope,
    /// The string is one `EXECUTE name` whose values are constants: the name.
    pub runs: Option<String>,
    /// SQL-level commands that touch prepared statements or the whole session and that the pooler itself must follow.
    pub session: SessionVerb,
    /// A single `SHOW name`: the name, lower case.
    pub show: Option<String>,
    /// Databases that it only works on while nobody is connected to them: `DROP DATABASE`, its renaming, a template.
    pub vacates: Vec<String>,
    /// Roles that it renames or drops: their names are others' or nobody's afterwards.
    pub unseats: Vec<String>,
    /// The request to the proxy in the comments at its beginning.
    pub hint: RoutingHint,
}

/// Its doings to session state that outlives the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// Left on the server connection by some statement.
    pub keeps: StateKinds,
    /// Kinds of which it may take something away: `DROP`, `CLOSE`, `UNLISTEN`, `DISCARD`.
    pub frees: StateKinds,
    /// Left by the statements which it prepares by SQL, when they are executed.
    pub later: StateKinds,
}

/// The session's parameters that it sets, as far as they are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterChange {
    /// The string is one `SET name = constant` whose effect is known from the text: name, lower case, and value.
    pub sets: Option<(String, String)>,
    /// Parameters that it sets back to their values at the session's start.
    pub resets: Option<ResetTarget>,
}

/// The names in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextNames {
    /// Every function called, lower case as PostgreSQL folds it, each once, in order of appearance.
    pub functions: Vec<QualifiedName>,
    /// Every relation named (CTE names excluded), each once, in order of appearance.
    pub relations: Vec<QualifiedName>,
    /// Operators that are not spelled in the SQL standard's set (`= <> < > <= >= + - * / % ||` and the `LIKE` family); user-defined ones hide among them.
    pub operators: Vec<QualifiedName>,
    /// Types that values are cast to, each once; not those that the SQL standard's words name.
    pub casts: Vec<QualifiedName>,
    /// Columns named behind a dot, by `hash_of_column`; sorted, each once. `t.f` may call a function: `f(t)`.
    pub columns: Vec<u32>,
    /// Relations whose rows it changes, as far as it names them; each once.
    pub written: Vec<QualifiedName>,
}

/// A property that a text has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextProperty {
    /// It runs, makes, removes or shows statements prepared by SQL.
    Prepared,
    /// `ALTER ROLE ... SET` or `ALTER DATABASE ... SET`: defaults of new connections.
    AltersDefaults,
    /// A row lock (`FOR UPDATE` and its kin) somewhere in the tree.
    LocksRows,
    /// It may change the meaning of a name for others: it makes, changes or removes a relation that is not temporary, a
    /// function, an operator, a cast or the like. Or it changes the defaults of sessions.
    Defines,
    /// `EXPLAIN` without `ANALYZE` only reads; with it, `effect` is that of the statement.
    Explains,
    /// It begins with a comment.
    Commented,
    /// It may change the meaning of names without a schema, be it for its transaction only: by `search_path`, or by the user
    /// who runs statements. Or it may change how the server reads texts: their encoding, and backslashes in them. Functions of
    /// users that do so are not seen.
    Moves,
    /// It makes a temporary table that goes when its transaction ends, and so leaves nothing.
    MakesBrief,
    /// Its result hangs on more than its names and parameters: on the moment, on the asker, or on chance.
    Fleeting,
    /// SET, RESET, SHOW, DISCARD, DEALLOCATE, UNLISTEN or CLOSE: it concerns its session alone, and a server in recovery takes it. Source:
    /// `ClassifyUtilityCommandAsReadOnly` in utility.c.
    OfSession,
}

/// A set of such properties.
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

    /// The set with one more, if it is so.
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
    /// True if event triggers run with it, if there are any: not with statements about rows only.
    pub fn fires_events(&self) -> bool {
        let is_about_rows = self.statements == 1
            && matches!(self.verb, StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete | StatementVerb::Select);
        self.effect == QueryEffect::Writes && (!is_about_rows || self.has(TextProperty::Defines))
    }

    /// True if the text has the property.
    pub const fn has(&self, mark: TextProperty) -> bool {
        self.marks.has(mark)
    }
}

/// A column's name where four bytes must do, since texts have many: two of one number are taken for one name. It is FNV-1a.
pub fn hash_of_column(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The part of a database that a text may change. Ordered: of several statements, the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeScope {
    #[default]
    Nothing,
    /// Rows of the relations in `written`, and rows that change with them.
    Rows,
    /// Anything in its database.
    Database,
    /// Objects that all databases share: roles and databases.
    Cluster,
}

/// Kind of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementVerb {
    /// `SELECT`, `VALUES`, `TABLE`.
    Select,
    Insert,
    Update,
    Delete,
    /// It makes, changes or removes an object, or grants rights.
    Definition,
    #[default]
    Other,
}

/// Where a text asks to be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutingHint {
    #[default]
    None,
    Primary,
    Standby,
    /// The node with this number.
    Node(u16),
    /// Something that is no such wish, most likely a slip.
    Unknown,
}

impl RoutingHint {
    /// `primary`, `standby` or `node=2`, in any case; `Unknown` otherwise.
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

/// A possibly qualified name: `schema` is empty when the text gave none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedName {
    pub schema: String,
    pub name: String,
}

/// Ordered by strength: the effect of several statements is the greatest of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryEffect {
    /// Nothing to run: an empty string.
    #[default]
    None,
    /// Reads, as far as the text shows (its functions and relations are still to be judged).
    Reads,
    /// Not known to only read: utility statements, `SHOW`, cursors, anything without a case of its own.
    Unsure,
    /// Changes data, schema or server state.
    Writes,
    /// PostgreSQL's parser refuses the text, or it is too long or too deep to be looked at.
    Refused,
}

/// Transaction control, `Read`/`Deferrable` as far as the verb itself says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionVerb {
    #[default]
    None,
    Begin(BeginOptions),
    /// `COMMIT`, `END`, `ROLLBACK`, `ABORT` (without `AND CHAIN`) and `PREPARE TRANSACTION`.
    End(TransactionEnd),
    /// The same with `AND CHAIN`: another one begins at once.
    Chain(TransactionEnd),
    /// Savepoints, `SET TRANSACTION`: stays inside.
    Within,
    /// `COMMIT PREPARED`, `ROLLBACK PREPARED`: run outside a transaction, write.
    Prepared,
    /// One of several statements in the string is a transaction verb.
    Many,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeginOptions {
    /// It says `START TRANSACTION`, which has a command tag of its own.
    pub starts: bool,
    pub access: AccessMode,
    pub isolation: IsolationLevel,
    pub deferrable: bool,
}

/// The access that the verb itself asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// The session's default.
    #[default]
    Unset,
    ReadOnly,
    ReadWrite,
}

/// How a transaction ends.
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

/// Commands on the session as a whole. Set only when the string is that one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionVerb {
    #[default]
    None,
    DiscardAll,
    /// `DEALLOCATE ALL`, `DISCARD PLANS` is not one.
    DeallocateAll,
    /// `DEALLOCATE [PREPARE] name`
    Deallocate(String),
    ResetAll,
}

/// The settings that a `RESET` takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTarget {
    /// `RESET ALL`, `DISCARD ALL`.
    All,
    /// Some among several statements, others of which may set them again.
    Many,
    /// `RESET name`, `SET name TO DEFAULT`; lower case.
    Name(String),
}
