//! Facts about a text, as plain data: the parser's tree is read once and dropped, facts are kept.
//!
//! Nothing here decides. `policy::route` weighs the facts against configuration and catalog.

pub use crate::leaves::{StateKind, StateKinds};

/// Everything Weir remembers of one query string (which may hold several statements).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Statements in the string; 0 for an empty one.
    pub statements: u32,
    /// The strongest effect of all statements.
    pub effect: Effect,
    /// Its effect on the transaction. `Many` when one of several statements is a transaction verb.
    pub transaction: Transaction,
    /// Session state that outlives the transaction, left on the server connection by some statement.
    pub keeps: StateKinds,
    /// Kinds of such state of which it may take something away: `DROP`, `CLOSE`, `UNLISTEN`, `DISCARD`.
    pub frees: StateKinds,
    /// State that the statements which it prepares by SQL will leave when they are executed.
    pub later: StateKinds,
    /// It runs, makes, removes or shows statements prepared by SQL.
    pub prepared: bool,
    /// The string is one `EXECUTE name` whose values are constants: the name.
    pub runs: Option<String>,
    /// Parameters that it sets back to their values at the session's start.
    pub resets: Option<Reset>,
    /// `ALTER ROLE ... SET` or `ALTER DATABASE ... SET`: defaults of new connections.
    pub alters_defaults: bool,
    /// Databases that it only works on while nobody is connected to them: `DROP DATABASE`, its renaming, a template.
    pub vacates: Vec<String>,
    /// Roles that it renames or drops: their names are others' or nobody's afterwards.
    pub unseats: Vec<String>,
    /// The string is one `SET name = constant` whose effect is known from the text: name, lower case, and value.
    pub sets: Option<(String, String)>,
    /// SQL-level commands that touch prepared statements or the whole session and that the pooler itself must follow.
    pub session: SessionVerb,
    /// A row lock (`FOR UPDATE` and its kin) somewhere in the tree.
    pub locks_rows: bool,
    /// Every function called, lower case as PostgreSQL folds it, each once, in order of appearance.
    pub functions: Vec<Name>,
    /// Every relation named (CTE names excluded), each once, in order of appearance.
    pub relations: Vec<Name>,
    /// Operators that are not spelled in the SQL standard's set (`= <> < > <= >= + - * / % ||` and the `LIKE` family); user-defined ones hide among them.
    pub operators: Vec<Name>,
    /// Types that values are cast to, each once; not those that the SQL standard's words name.
    pub casts: Vec<Name>,
    /// Columns named behind a dot, by `hash_of_column`; sorted, each once. `t.f` may call a function: `f(t)`.
    pub columns: Vec<u32>,
    /// It may change the meaning of a name for others: it makes, changes or removes a relation that is not temporary, a
    /// function, an operator, a cast or the like. Or it changes the defaults of sessions.
    pub defines: bool,
    /// A single `SHOW name`: the name, lower case.
    pub show: Option<String>,
    /// `EXPLAIN` without `ANALYZE` only reads; with it, `effect` is that of the statement.
    pub explain: bool,
    /// Kind of the first statement, for statistics.
    pub verb: Verb,
    /// It begins with a comment.
    pub is_commented: bool,
    /// The request to the proxy in the comments at its beginning.
    pub hint: Hint,
    /// The part of the database that it may change, apart from changes by functions that it calls.
    pub changes: Changes,
    /// Relations whose rows it changes, as far as it names them; each once.
    pub written: Vec<Name>,
    /// It may change the meaning of names without a schema, be it for its transaction only: by `search_path`, or by the user
    /// who runs statements. Or it may change how the server reads texts: their encoding, and backslashes in them. Functions of
    /// users that do so are not seen.
    pub moves: bool,
    /// It makes a temporary table that goes when its transaction ends, and so leaves nothing.
    pub makes_brief: bool,
    /// Its result hangs on more than its names and parameters: on the moment, on the asker, or on chance.
    pub fleeting: bool,
}

impl Facts {
    /// True if event triggers run with it, if there are any: not with statements about rows only.
    pub fn fires_events(&self) -> bool {
        let is_about_rows =
            self.statements == 1 && matches!(self.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Select);
        self.effect == Effect::Writes && (!is_about_rows || self.defines)
    }
}

/// A column's name where four bytes must do, since texts have many: two of one number are taken for one name. It is FNV-1a.
pub fn hash_of_column(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The part of a database that a text may change. Ordered: of several statements, the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changes {
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
pub enum Verb {
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
pub enum Hint {
    #[default]
    None,
    Primary,
    Standby,
    /// The node with this number.
    Node(u16),
    /// Something that is no such wish, most likely a slip.
    Unknown,
}

impl Hint {
    /// `primary`, `standby` or `node=2`, in any case; `Unknown` otherwise.
    pub fn of_word(word: &str) -> Hint {
        let word = word.trim();
        if word.eq_ignore_ascii_case("primary") {
            return Hint::Primary;
        }
        if word.eq_ignore_ascii_case("standby") {
            return Hint::Standby;
        }
        match word.split_once('=') {
            Some((name, number)) if name.trim().eq_ignore_ascii_case("node") => {
                number.trim().parse().map_or(Hint::Unknown, Hint::Node)
            }
            _ => Hint::Unknown,
        }
    }
}

/// A possibly qualified name: `schema` is empty when the text gave none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub schema: String,
    pub name: String,
}

/// Ordered by strength: the effect of several statements is the greatest of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
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
pub enum Transaction {
    #[default]
    None,
    Begin(Begin),
    /// `COMMIT`, `END`, `ROLLBACK`, `ABORT` (without `AND CHAIN`) and `PREPARE TRANSACTION`.
    End(Ending),
    /// The same with `AND CHAIN`: another one begins at once.
    Chain(Ending),
    /// Savepoints, `SET TRANSACTION`: stays inside.
    Within,
    /// `COMMIT PREPARED`, `ROLLBACK PREPARED`: run outside a transaction, write.
    Prepared,
    /// One of several statements in the string is a transaction verb.
    Many,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// It says `START TRANSACTION`, which has a command tag of its own.
    pub starts: bool,
    pub read_only: bool,
    pub read_write: bool,
    pub isolation: Isolation,
    pub deferrable: bool,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Commit,
    Rollback,
    Prepare,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
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
pub enum Reset {
    /// `RESET ALL`, `DISCARD ALL`.
    All,
    /// Some among several statements, others of which may set them again.
    Many,
    /// `RESET name`, `SET name TO DEFAULT`; lower case.
    Name(String),
}
