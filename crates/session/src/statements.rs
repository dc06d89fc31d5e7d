//! The texts a worker has seen: facts and class are kept, trees are not.

use crate::prepared::StatementId;
use crate::routing::{self, RouteClass, RouteSide};
use crate::signals::process_ids::SignalCall;
use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::CacheTextFacts;
use weir_catalog::rule::RoutingRule;
use weir_catalog::{HiddenUses, StatementNames};
use weir_config::Config;
use weir_config::redirect::ReadTarget;
use weir_sql::beyond_ascii::names_beyond_ascii;
use weir_sql::facts::{
    ChangeScope, QualifiedName, QueryEffect, QueryFacts, ResetTarget, RoutingHint, SavepointCommand, SessionVerb, StateKind,
    StateKinds, StatementVerb, TextProperty, TransactionVerb,
};

use crate::local::{LocalStatement, ViewOf, local_of};
use crate::query_cache::cached_results::TextCacheFacts;
use crate::session_state::held_state::SettingCommand;
use crate::sharding::kept_plan::KeptTextPlan;
use crate::sharding::savepoint_stack::{CarriedCommand, carried_savepoint, carried_setting};
use crate::statement_statistics::row_ticket::StatementPlace;

const TEXTS_MAX: usize = 4096;
const PARSES_MAX: usize = 4096;
/// 4 kB per text on average; a Parse message is stored twice.
const TEXTS_BYTES_MAX: u64 = 16 << 20;
const PARSES_BYTES_MAX: u64 = 32 << 20;
/// Longer texts are analysed each time.
const TEXT_KEPT_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub struct Statement {
    traits: StatementTraits,
    pub(crate) class: RouteClass,
    pub objects: StatementObjects,
    pub(crate) transaction: TransactionVerb,
    pub(crate) state: StateEffect,
    /// Name of the statement that it only executes, with constants for parameters.
    pub(crate) runs: Option<Box<str>>,
    /// Databases that must be free of connections while it runs.
    pub(crate) vacates: Box<[String]>,
    /// Roles renamed or dropped.
    pub(crate) unseats: Box<[String]>,
    pub(crate) settings: SettingsEffect,
    /// Answered by Weir itself.
    pub(crate) local: Option<LocalStatement>,
    /// Use of `currval` or `lastval`.
    pub(crate) recalls: DrawRecall,
    pub(crate) verb: StatementVerb,
    /// `read_target`: the hint's, if the text only reads.
    pub(crate) hint: RoutingHint,
    pub(crate) read_target: Option<ReadTarget>,
    /// Tables read and written, for the query cache and causal reads. `None` although there is a cache or a standby: the text may
    /// do anything.
    pub(crate) caching: Option<Box<TextCacheFacts>>,
    pub(crate) place: StatementPlace,
    /// The command of which other shards of its transaction are told.
    pub(crate) carried: Option<CarriedCommand>,
    /// Its place among shards (`parallel_mode`).
    pub(crate) sharding: KeptTextPlan,
}

#[derive(Debug)]
pub struct StatementObjects {
    /// Names for the catalog; none if the text alone is for the primary.
    pub names: Option<StatementNames>,
    /// Names, if the text alone is for the primary.
    beside: Option<StatementNames>,
    pub(crate) written: Box<[QualifiedName]>,
    /// Ways by which functions may run unseen.
    pub(crate) touches: HiddenUses,
    pub(crate) judged: ScopeClasses,
}

impl StatementObjects {
    fn of(facts: &QueryFacts, side: RouteSide) -> StatementObjects {
        let names = StatementNames::of(facts);
        let (names, beside) = if side == RouteSide::Reader { (names, None) } else { (None, names) };
        let written = facts.named.written.as_slice().into();
        StatementObjects { names, beside, written, touches: touches(facts), judged: ScopeClasses::default() }
    }

    pub fn all_names(&self) -> Option<&StatementNames> {
        self.names.as_ref().or(self.beside.as_ref())
    }
}

#[derive(Debug)]
pub struct StateEffect {
    /// As far as the text shows.
    pub(crate) leaves: StateKinds,
    /// `leaves`, with what users' functions may leave and the text may take away.
    pub(crate) may_change: StateKinds,
    pub(crate) frees: StateKinds,
    /// Left by the execution of a statement that it prepares.
    pub(crate) later: StateKinds,
    /// Functions other than PostgreSQL's.
    pub(crate) functions: Box<[String]>,
}

#[derive(Debug)]
pub struct SettingsEffect {
    pub(crate) plain: Option<SettingCommand>,
    /// Parameters reset to their start values.
    pub(crate) resets: Option<ResetTarget>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StatementTrait {
    /// May run a statement prepared by SQL.
    Executes,
    /// New connections will begin with other settings.
    AltersDefaults,
    Defines,
    /// May change what names mean: the catalog is out of date after the transaction.
    Redefines,
    /// `Redefines`, and may do so for functions, views and other code, or call functions of users.
    RedefinesCode,
    /// Later messages wait: prepared statements or settings may be dropped.
    Barrier,
    /// Takes a lock that only counts on the primary.
    Locks,
    /// Makes a temporary table that ends with its transaction.
    MakesBrief,
    /// Makes an object, perhaps without naming a schema.
    Makes,
    /// May draw from a sequence, also by defaults or functions.
    Draws,
    Read,
    /// Begins with a comment that is no hint.
    Commented,
    Notifies,
    /// May show the session's channels.
    ShowsChannels,
    /// Writes, or may do anything.
    Writes,
    /// May write by a function.
    Calls,
    /// Asks for the transaction's time.
    AsksTime,
    /// May change its transaction's properties, or be refused by a standby only.
    OfPrimary,
    /// May change what names without a schema mean, also within its own text.
    Moves,
    /// May end or cancel a session: see `signals`.
    Signals,
    /// Concerns its session alone; a server in recovery takes it.
    OfSession,
    /// `FETCH` or `MOVE`.
    Fetches,
    /// `SHOW` of one parameter.
    Shows,
    /// Leaves nothing, unless it makes or frees something of its session's; vacates no database, unseats no role.
    LeavesNothing,
    Many,
    /// Where a backslash is an escape, or half a character, it may be another statement. Such a literal has no skeleton.
    Delicate,
    /// In another encoding its names or a set value may differ. Texts of one skeleton have the same names.
    BeyondAscii,
    /// The parser did not read it: where its literals are is not known.
    Unread,
    /// `COPY ... FROM STDIN`.
    CopiesIn,
    /// `COPY ... TO STDOUT`.
    CopiesOut,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementTraits(u32);

impl StatementTraits {
    pub const NONE: StatementTraits = StatementTraits(0);

    pub const fn with(self, one: StatementTrait) -> StatementTraits {
        StatementTraits(self.0 | (1 << one as u8))
    }

    pub fn with_if(self, one: StatementTrait, is_so: bool) -> StatementTraits {
        if is_so { self.with(one) } else { self }
    }

    #[inline]
    pub const fn has(self, one: StatementTrait) -> bool {
        self.0 & (1 << one as u8) != 0
    }

    #[inline]
    pub const fn meets(self, others: StatementTraits) -> bool {
        self.0 & others.0 != 0
    }
}

impl std::fmt::Debug for StatementTraits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traits({:#b})", self.0)
    }
}

/// Questions for earlier draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawRecall {
    /// Not by the text, but perhaps by functions.
    Not,
    /// By code or texts that are not analysed.
    Unread,
    /// By its text.
    Shown,
}

impl DrawRecall {
    fn of(facts: &QueryFacts) -> DrawRecall {
        let any = |is_one: fn(&QualifiedName) -> bool| facts.named.functions.iter().any(is_one);
        if any(|f| matches!(f.name.as_str(), "currval" | "lastval")) {
            DrawRecall::Shown
        } else if facts.state.keeps.has(StateKind::Unknown) || any(runs_text) {
            DrawRecall::Unread
        } else {
            DrawRecall::Not
        }
    }
}

#[derive(Debug, Default)]
pub struct ScopeClasses(RefCell<[Option<(u64, RouteClass)>; JUDGED_MAX]>);

const JUDGED_MAX: usize = 4;

impl ScopeClasses {
    #[inline]
    pub fn at(&self, place: u64) -> Option<RouteClass> {
        let known = self.0.borrow();
        known.iter().flatten().find(|(known, _)| *known == place).map(|(_, class)| *class)
    }

    /// Beyond `JUDGED_MAX` the oldest is forgotten.
    pub fn note(&self, place: u64, class: RouteClass) {
        let mut known = self.0.borrow_mut();
        let at = known.iter().position(|entry| entry.is_none_or(|(known, _)| known == place)).unwrap_or(JUDGED_MAX - 1);
        known[..=at].rotate_right(1);
        known[0] = Some((place, class));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseNaming {
    Named,
    /// Replaced by the next unnamed Parse. Servers plan it otherwise than a named one.
    Unnamed,
}

impl ParseNaming {
    pub fn of(name: &[u8]) -> ParseNaming {
        if name.is_empty() { ParseNaming::Unnamed } else { ParseNaming::Named }
    }
}

/// A Parse message's text and parameter types, under a number that is its name on servers.
#[derive(Debug)]
pub struct PreparedStatement {
    pub(crate) id: StatementId,
    pub(crate) naming: ParseNaming,
    /// Was sent unnamed before.
    pub(crate) was_sent: Cell<bool>,
    /// The text may have parameters.
    pub(crate) takes_values: bool,
    /// The message's body after the name.
    pub(crate) tail: Box<[u8]>,
    /// Of `tail`, without the zero byte.
    text_bytes: usize,
    pub(crate) statement: Rc<Statement>,
    /// Users' types among the declared types of parameters.
    pub(crate) user_types: Box<[u32]>,
    /// Number of the settings for its analysis; none: one session's own.
    pub(crate) meaning: Option<u64>,
    pub(crate) parameters: LastTold,
}

impl PreparedStatement {
    #[inline]
    pub(crate) fn text(&self) -> &[u8] {
        self.tail.get(..self.text_bytes).unwrap_or_default()
    }

    /// The message's body after the text: the types of parameters.
    #[inline]
    pub(crate) fn types(&self) -> &[u8] {
        self.tail.get(self.text_bytes + 1..).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub struct LastTold(RefCell<Option<Rc<[u8]>>>);

impl LastTold {
    pub fn share(&self, body: &[u8]) -> Rc<[u8]> {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some(known) if **known == *body => known.clone(),
            Some(_) | None => last.insert(body.into()).clone(),
        }
    }
}

/// By bytes; a short text counts as an average one, which limits their number.
#[derive(Clone)]
struct ByBytes {
    least: u64,
}

impl Weighter<Box<[u8]>, Rc<Statement>> for ByBytes {
    fn weight(&self, text: &Box<[u8]>, _: &Rc<Statement>) -> u64 {
        (text.len() as u64).max(self.least)
    }
}

impl Weighter<Box<[u8]>, Rc<PreparedStatement>> for ByBytes {
    fn weight(&self, key: &Box<[u8]>, prepared: &Rc<PreparedStatement>) -> u64 {
        (key.len() as u64 + prepared.tail.len() as u64).max(self.least)
    }
}

type Texts = Cache<Box<[u8]>, Rc<Statement>, ByBytes, RandomState>;
type Parses = Cache<Box<[u8]>, Rc<PreparedStatement>, ByBytes, RandomState>;

fn seen<V>(count_max: usize, bytes_max: u64) -> Cache<Box<[u8]>, Rc<V>, ByBytes, RandomState>
where
    ByBytes: Weighter<Box<[u8]>, Rc<V>>,
{
    let weighter = ByBytes { least: bytes_max / count_max as u64 };
    Cache::with(count_max, bytes_max, weighter, RandomState::default(), Default::default())
}

pub struct StatementCache {
    texts: Texts,
    parses: Parses,
    scratch: Vec<u8>,
    key: Vec<u8>,
    next_id: StatementId,
    config: Arc<Config>,
    view_of: ViewOf,
    /// Texts that differ in literals share an entry, unless patterns look at literals.
    by_skeleton: bool,
    pub parsed: u64,
}

impl StatementCache {
    /// `first_id` keeps workers' names apart.
    pub fn new(config: Arc<Config>, first_id: StatementId, view_of: ViewOf) -> StatementCache {
        StatementCache {
            texts: seen(TEXTS_MAX, TEXTS_BYTES_MAX),
            parses: seen(PARSES_MAX, PARSES_BYTES_MAX),
            scratch: Vec::with_capacity(TEXT_KEPT_BYTES_MAX),
            key: Vec::new(),
            next_id: first_id,
            by_skeleton: config.routing.primary_patterns.is_empty(),
            config,
            view_of,
            parsed: 0,
        }
    }

    /// Forgets decisions under the old configuration.
    pub fn reconfigure(&mut self, config: Arc<Config>) {
        let next_id = self.next_id;
        *self = StatementCache { parsed: self.parsed, ..StatementCache::new(config, next_id, self.view_of) };
    }

    pub fn of_text(&mut self, text: &[u8]) -> Rc<Statement> {
        self.scratch.clear();
        if !(self.by_skeleton && weir_sql::skeleton::skeleton(text, &mut self.scratch)) {
            self.scratch.clear();
            self.scratch.extend_from_slice(text);
        }
        if let Some(found) = self.texts.get(self.scratch.as_slice()) {
            return found.clone();
        }
        self.parsed += 1;
        let statement = Rc::new(judge(text, &self.config, self.view_of));
        if self.scratch.len() <= TEXT_KEPT_BYTES_MAX {
            self.texts.insert(self.scratch.as_slice().into(), statement.clone());
        }
        statement
    }

    /// Returns the statement of a text in another encoding than UTF-8. Its kind holds; it goes to the primary, counts as any
    /// write, and the server is asked what it left.
    pub fn of_other_names(&self, text: &[u8]) -> Statement {
        // Any letters do in place of its own.
        let letters: String = text.iter().map(|byte| char::from(*byte)).collect();
        let Statement { traits, transaction, state, verb, settings, vacates, unseats, .. } =
            judge(letters.as_bytes(), &self.config, self.view_of);
        const KEPT: [StatementTrait; 12] = [
            StatementTrait::Executes,
            StatementTrait::AltersDefaults,
            StatementTrait::Defines,
            StatementTrait::Redefines,
            StatementTrait::RedefinesCode,
            StatementTrait::Barrier,
            StatementTrait::Locks,
            StatementTrait::MakesBrief,
            StatementTrait::Makes,
            StatementTrait::Commented,
            StatementTrait::Many,
            StatementTrait::Moves,
        ];
        const ANY: [StatementTrait; 8] = [
            StatementTrait::Unread,
            StatementTrait::Draws,
            StatementTrait::Notifies,
            StatementTrait::ShowsChannels,
            StatementTrait::Writes,
            StatementTrait::Calls,
            StatementTrait::AsksTime,
            StatementTrait::OfPrimary,
        ];
        let leaves = state.leaves.with(StateKind::Unknown);
        let kept = KEPT.into_iter().fold(StatementTraits::NONE, |kept, one| kept.with_if(one, traits.has(one)));
        Statement {
            traits: ANY.into_iter().fold(kept, StatementTraits::with),
            transaction,
            state: StateEffect { leaves, may_change: leaves.and(state.may_change), functions: Box::default(), ..state },
            verb,
            settings: SettingsEffect { plain: None, resets: settings.resets },
            vacates,
            unseats,
            ..unknown()
        }
    }

    /// As `of_other_names`, for a Parse, which is not shared with other sessions.
    pub fn parse_of_other_names(&mut self, tail: &[u8]) -> Option<Rc<PreparedStatement>> {
        let (text, _) = weir_wire::frame::split_cstr(tail)?;
        let statement = Rc::new(self.of_other_names(text));
        self.make_parse_of(tail, None, ParseNaming::Named, statement)
    }

    /// Returns the shared statement of a Parse; `tail` is the body after the name; `None`: malformed.
    ///
    /// `settings` keeps sessions apart: a server's analysis folds constants by TimeZone, DateStyle or search_path.
    pub fn of_parse(&mut self, tail: &[u8], settings: u64, naming: ParseNaming) -> Option<Rc<PreparedStatement>> {
        /// Keeps unnamed ones apart: a server's plan depends on how often it was used.
        const UNNAMED: u64 = 1 << 63;
        let key = match naming {
            ParseNaming::Named => settings,
            ParseNaming::Unnamed => settings | UNNAMED,
        };
        self.shared_parse(tail, key, Some(settings), naming)
    }

    /// For a statement of ours that means the same under all settings.
    pub fn of_parse_for_all(&mut self, tail: &[u8]) -> Option<Rc<PreparedStatement>> {
        const ALL: u64 = u64::MAX;
        self.shared_parse(tail, ALL, None, ParseNaming::Named)
    }

    fn shared_parse(
        &mut self,
        tail: &[u8],
        key: u64,
        meaning: Option<u64>,
        naming: ParseNaming,
    ) -> Option<Rc<PreparedStatement>> {
        self.key.clear();
        self.key.extend_from_slice(&key.to_le_bytes());
        self.key.extend_from_slice(tail);
        if let Some(found) = self.parses.get(self.key.as_slice()) {
            return Some(found.clone());
        }
        let prepared = self.make_parse(tail, meaning, naming)?;
        if tail.len() <= TEXT_KEPT_BYTES_MAX {
            self.parses.insert(self.key.as_slice().into(), prepared.clone());
        }
        Some(prepared)
    }

    /// Under a number of its own, for a session whose settings are its own.
    pub fn fresh_parse(&mut self, tail: &[u8]) -> Option<Rc<PreparedStatement>> {
        self.make_parse(tail, None, ParseNaming::Named)
    }

    fn make_parse(&mut self, tail: &[u8], meaning: Option<u64>, naming: ParseNaming) -> Option<Rc<PreparedStatement>> {
        let (text, _) = weir_wire::frame::split_cstr(tail)?;
        let statement = self.of_text(text);
        self.make_parse_of(tail, meaning, naming, statement)
    }

    fn make_parse_of(
        &mut self,
        tail: &[u8],
        meaning: Option<u64>,
        naming: ParseNaming,
        statement: Rc<Statement>,
    ) -> Option<Rc<PreparedStatement>> {
        let (text, types) = weir_wire::frame::split_cstr(tail)?;
        let prepared = Rc::new(PreparedStatement {
            id: self.next_id,
            naming,
            was_sent: Cell::new(false),
            takes_values: text.contains(&b'$'),
            tail: tail.into(),
            text_bytes: text.len(),
            statement,
            user_types: user_types(types),
            meaning,
            parameters: LastTold::default(),
        });
        self.next_id += 1;
        Some(prepared)
    }
}

fn user_types(types: &[u8]) -> Box<[u32]> {
    let numbers =
        types.get(2..).unwrap_or_default().chunks_exact(4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]));
    numbers.filter(|number| *number >= weir_catalog::FIRST_USER_OID).collect()
}

/// True if a text leaves nothing for its session, and concerns no others.
fn leaves_nothing_at_all(facts: &QueryFacts, readable: &str, may_change: StateKinds) -> bool {
    may_change.is_empty()
        && !facts.has(TextProperty::MakesBrief)
        && !facts.has(TextProperty::Prepared)
        && facts.parameters.resets.is_none()
        && !defines(facts, readable)
        && !facts.has(TextProperty::Defines)
        && !facts.has(TextProperty::AltersDefaults)
        && facts.vacates.is_empty()
        && facts.unseats.is_empty()
}

fn redefines_code(facts: &QueryFacts) -> bool {
    facts.has(TextProperty::DefinesCode)
        || (facts.has(TextProperty::Defines) && !facts.named.functions.iter().all(leaves_nothing))
}

/// A text too long to be parsed may do anything.
pub fn unknown() -> Statement {
    let leaves = StateKinds::of(StateKind::Unread);
    Statement {
        traits: StatementTraits::NONE
            .with(StatementTrait::Executes)
            .with(StatementTrait::Defines)
            .with(StatementTrait::Redefines)
            .with(StatementTrait::RedefinesCode)
            .with(StatementTrait::Barrier)
            .with(StatementTrait::MakesBrief)
            .with(StatementTrait::Makes)
            .with(StatementTrait::Draws)
            .with(StatementTrait::Notifies)
            .with(StatementTrait::ShowsChannels)
            .with(StatementTrait::Writes)
            .with(StatementTrait::Calls)
            .with(StatementTrait::AsksTime)
            .with(StatementTrait::OfPrimary)
            .with(StatementTrait::Moves)
            .with(StatementTrait::Many)
            .with(StatementTrait::Unread),
        class: RouteClass::primary(RoutingRule::TooLong),
        objects: StatementObjects {
            names: None,
            beside: None,
            written: Box::default(),
            touches: HiddenUses::ALL,
            judged: ScopeClasses::default(),
        },
        transaction: TransactionVerb::None,
        state: StateEffect {
            leaves,
            may_change: leaves,
            frees: StateKinds::NONE,
            later: StateKinds::NONE,
            functions: Box::default(),
        },
        runs: None,
        vacates: Box::default(),
        unseats: Box::default(),
        settings: SettingsEffect { plain: None, resets: None },
        local: None,
        recalls: DrawRecall::Unread,
        verb: StatementVerb::Other,
        hint: RoutingHint::None,
        read_target: None,
        caching: None,
        place: StatementPlace::default(),
        carried: None,
        sharding: KeptTextPlan::default(),
    }
}

/// In `NOTIFY` and `pg_notify`.
const NOTIFY: &[u8] = b"notify";

fn judge(text: &[u8], config: &Config, view_of: ViewOf) -> Statement {
    let facts = weir_sql::facts(text);
    let readable = String::from_utf8_lossy(text);
    let class = routing::class_of(&facts, &readable, config);
    let functions: Box<[String]> = facts.named.functions.iter().filter(|f| !leaves_nothing(f)).map(|f| f.name.clone()).collect();
    let unknown = if functions.is_empty() { StateKinds::NONE } else { StateKinds::of(StateKind::Unknown) };
    // A PREPARE's functions run later.
    let is_prepare = facts.statements == 1 && facts.state.keeps == StateKinds::of(StateKind::Prepare);
    let now = if is_prepare { StateKinds::NONE } else { unknown };
    let may_call = facts.has(TextProperty::Prepared) || facts.state.keeps.has(StateKind::Unknown) || !functions.is_empty();
    let calls = may_call || facts.named.functions.iter().any(writes_rows);
    let draws = facts.effect == QueryEffect::Writes || calls;
    let is_plain = facts.statements == 1 && !facts.has(TextProperty::Moves);
    let caching = (config.cache.enabled || config.nodes.len() > 1)
        .then(|| Box::new(TextCacheFacts::new(CacheTextFacts::of(&facts, &readable, &config.cache), is_plain)));
    let recalls = DrawRecall::of(&facts);
    let asks_later = if recalls == DrawRecall::Shown { StateKinds::of(StateKind::Sequence) } else { StateKinds::NONE };
    let may_change = facts.state.keeps.and(now).and(left_by_path(&facts, &readable));
    let traits = StatementTraits::NONE
        .with_if(StatementTrait::Executes, facts.has(TextProperty::Prepared))
        .with_if(StatementTrait::AltersDefaults, facts.has(TextProperty::AltersDefaults))
        .with_if(StatementTrait::Defines, defines(&facts, &readable))
        .with_if(StatementTrait::Redefines, facts.has(TextProperty::Defines))
        .with_if(StatementTrait::RedefinesCode, redefines_code(&facts))
        .with_if(StatementTrait::Barrier, is_barrier(&facts, &readable))
        .with_if(
            StatementTrait::Locks,
            facts.named.functions.iter().any(|f| f.name.starts_with("pg_advisory") || f.name.starts_with("pg_try_advisory")),
        )
        .with_if(StatementTrait::MakesBrief, facts.has(TextProperty::MakesBrief))
        .with_if(StatementTrait::Makes, makes(&facts, &readable))
        .with_if(StatementTrait::Draws, draws)
        .with_if(StatementTrait::Read, facts.effect == QueryEffect::Reads)
        .with_if(StatementTrait::OfSession, is_of_session(&facts))
        .with_if(StatementTrait::Fetches, facts.statements == 1 && facts.has(TextProperty::Fetches))
        .with_if(StatementTrait::Shows, facts.show.is_some())
        .with_if(StatementTrait::Commented, routing::is_held_by_comment(&facts))
        .with_if(
            StatementTrait::Notifies,
            readable.as_bytes().windows(NOTIFY.len()).any(|word| word.eq_ignore_ascii_case(NOTIFY)),
        )
        .with_if(StatementTrait::ShowsChannels, readable.contains("pg_listening_channels"))
        .with_if(StatementTrait::Writes, facts.effect == QueryEffect::Writes || facts.state.keeps.has(StateKind::Unknown))
        .with_if(StatementTrait::Calls, calls)
        .with_if(StatementTrait::AsksTime, asks_time(&facts, &readable))
        .with_if(StatementTrait::OfPrimary, is_of_primary(&facts, &readable))
        .with_if(StatementTrait::Moves, facts.has(TextProperty::Moves))
        .with_if(StatementTrait::Signals, SignalCall::of(&readable).is_some())
        .with_if(StatementTrait::Many, facts.statements != 1)
        .with_if(StatementTrait::CopiesIn, facts.has(TextProperty::CopiesIn))
        .with_if(StatementTrait::CopiesOut, facts.has(TextProperty::CopiesOut))
        .with_if(StatementTrait::Unread, facts.effect == QueryEffect::Refused)
        .with_if(StatementTrait::Delicate, text.contains(&b'\\'))
        .with_if(StatementTrait::BeyondAscii, hangs_on_encoding(text, &facts))
        .with_if(StatementTrait::LeavesNothing, leaves_nothing_at_all(&facts, &readable, may_change));
    Statement {
        traits,
        local: local_of(&facts, &readable, view_of),
        carried: carried(&facts),
        class,
        objects: StatementObjects::of(&facts, class.side),
        transaction: facts.transaction,
        state: StateEffect {
            leaves: facts.state.keeps,
            may_change,
            frees: facts.state.frees,
            later: if is_prepare { facts.state.later.and(unknown).and(asks_later) } else { facts.state.later },
            functions,
        },
        recalls: if is_prepare { DrawRecall::Not } else { recalls },
        runs: facts.runs.as_deref().map(Box::from),
        settings: SettingsEffect { plain: plain(&facts), resets: facts.parameters.resets },
        verb: facts.verb,
        hint: facts.hint,
        read_target: ReadTarget::of_hint(facts.hint).filter(|_| class.side == RouteSide::Reader),
        caching,
        place: StatementPlace::default(),
        sharding: KeptTextPlan::default(),
        vacates: facts.vacates.into(),
        unseats: facts.unseats.into(),
    }
}

fn carried(facts: &QueryFacts) -> Option<CarriedCommand> {
    let savepoint = carried_savepoint(facts.savepoint.as_ref()).map(CarriedCommand::Savepoint);
    savepoint.or_else(|| carried_setting(facts.parameters.sets_local.as_ref()).filter(|_| !facts.has(TextProperty::Moves)))
}

/// True if a text may differ in another encoding. Strings matter only as the value of a `SET`.
fn hangs_on_encoding(text: &[u8], facts: &QueryFacts) -> bool {
    names_beyond_ascii(text) || (facts.parameters.sets.is_some() && !text.is_ascii())
}

/// Ways by which functions may run unseen.
fn touches(facts: &QueryFacts) -> HiddenUses {
    let mut touches = HiddenUses::NONE;
    if !facts.named.written.is_empty() {
        touches = touches.and(HiddenUses::WRITES);
        if facts.changes > ChangeScope::Rows {
            touches = touches.and(HiddenUses::CASCADES);
        }
    }
    if !facts.named.relations.is_empty() {
        touches = touches.and(HiddenUses::READS);
    }
    if facts.fires_events() {
        touches = touches.and(HiddenUses::DEFINES);
    }
    let named = &facts.named;
    if !(named.functions.is_empty() && named.operators.is_empty() && named.casts.is_empty() && named.columns.is_empty()) {
        touches = touches.and(HiddenUses::NAMES);
    }
    if facts.effect > QueryEffect::None && facts.transaction == TransactionVerb::None {
        touches = touches.and(HiddenUses::ANYTHING);
    }
    touches
}

impl Statement {
    /// The command, if it is one on a savepoint that other shards can be told of.
    #[inline]
    pub fn savepoint(&self) -> Option<&SavepointCommand> {
        match &self.local {
            Some(LocalStatement::Savepoint(command)) => Some(command),
            _ => None,
        }
    }

    #[inline]
    pub fn has(&self, one: StatementTrait) -> bool {
        self.traits.has(one)
    }
}

fn leaves_nothing(function: &QualifiedName) -> bool {
    match function.schema.as_str() {
        "" | "pg_catalog" => weir_catalog::builtin::leaves_nothing(&function.name),
        schema => schema == "information_schema",
    }
}

/// True if a function of PostgreSQL's writes sequences, large objects or WAL, or runs a text.
fn writes_rows(function: &QualifiedName) -> bool {
    const NAMES: [&str; 3] = ["nextval", "setval", "pg_logical_emit_message"];
    let name = function.name.as_str();
    NAMES.contains(&name) || name.starts_with("lo") || runs_text(function)
}

fn runs_text(function: &QualifiedName) -> bool {
    weir_catalog::builtin::runs_text(&function.name)
}

/// True if a text may ask for its transaction's time. One too many goes to the primary.
fn asks_time(facts: &QueryFacts, text: &str) -> bool {
    const FUNCTIONS: [&str; 3] = ["now", "transaction_timestamp", "age"];
    // Constants and parameters of these types may be `'now'`.
    const TYPES: [&str; 5] = ["timestamptz", "timestamp", "date", "timetz", "time"];
    #[rustfmt::skip]
    const WORDS: [&str; 9] = ["current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "now", "today", "tomorrow", "yesterday"];
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = text.split(|c: char| !is_part(c));
    facts.named.functions.iter().any(|f| FUNCTIONS.contains(&f.name.as_str()))
        || facts.named.casts.iter().any(|kind| TYPES.contains(&kind.name.as_str()))
        || words.any(|word| WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

/// True if a primary may accept in a read-only transaction what a standby refuses: PostgreSQL's own functions may need xids, WAL
/// or notifications. Users' functions are refused on both.
fn is_of_primary(facts: &QueryFacts, text: &str) -> bool {
    const HARMLESS: [&str; 3] = ["pg_backend_pid", "pg_is_", "pg_last_"];
    let asks = |f: &QualifiedName| {
        let name = f.name.as_str();
        (name.starts_with("pg_") || name.starts_with("txid_")) && !HARMLESS.iter().any(|harmless| name.starts_with(harmless))
    };
    // Source: `ClassifyUtilityCommandAsReadOnly` in utility.c: COMMAND_OK_IN_READ_ONLY_TXN, not OK in recovery.
    const WORDS: [&str; 5] = ["transaction", "notify", "lock", "reindex", "cluster"];
    let has_word = || {
        let text = text.to_ascii_lowercase();
        WORDS.iter().any(|word| text.contains(word))
    };
    facts.named.functions.iter().any(asks) || (facts.effect != QueryEffect::Reads && has_word())
}

/// A relation made after a change of `search_path`, even a local one, may be temporary. The value of `set_config` does not show.
fn left_by_path(facts: &QueryFacts, text: &str) -> StateKinds {
    let names_it = || {
        let text = text.to_ascii_lowercase();
        text.contains("search_path") && text.contains("pg_temp")
    };
    let by_function = facts.named.functions.iter().any(|f| f.name == "set_config");
    if by_function || (facts.effect != QueryEffect::Reads && names_it()) {
        StateKinds::of(StateKind::Temporary)
    } else {
        StateKinds::NONE
    }
}

/// True if a text may make a relation. One too many costs a question to the server.
fn makes(facts: &QueryFacts, text: &str) -> bool {
    facts.effect == QueryEffect::Writes && {
        let text = text.to_ascii_lowercase();
        text.contains("create") || (text.contains("into") && !text.contains("insert"))
    }
}

/// True if a text may define functions. One too many costs reading sources again.
fn defines(facts: &QueryFacts, text: &str) -> bool {
    const VERBS: [&str; 3] = ["create", "alter", "drop"];
    const OBJECTS: [&str; 6] = ["aggregate", "extension", "function", "procedure", "routine", "schema"];
    facts.effect == QueryEffect::Writes && {
        let text = text.to_ascii_lowercase();
        VERBS.iter().any(|verb| text.contains(verb)) && OBJECTS.iter().any(|object| text.contains(object))
    }
}

/// Effect of a text's only statement on the settings.
fn plain(facts: &QueryFacts) -> Option<SettingCommand> {
    if let Some((name, value)) = &facts.parameters.sets {
        // The server's own word tells later whether code or the session set a value.
        if !crate::session_state::client_settings::is_anybodys(name) {
            return None;
        }
        return Some(SettingCommand::Set { name: name.clone(), value: value.clone() });
    }
    match (&facts.parameters.resets, &facts.session) {
        (Some(ResetTarget::Name(name)), _) if crate::session_state::client_settings::WHO.contains(&name.as_str()) => None,
        (Some(reset @ ResetTarget::All), SessionVerb::ResetAll) => Some(SettingCommand::Reset(reset.clone())),
        (Some(reset @ ResetTarget::Name(_)), _) => Some(SettingCommand::Reset(reset.clone())),
        _ => None,
    }
}

/// Parameters of a transaction are not its session's.
fn is_of_session(facts: &QueryFacts) -> bool {
    facts.statements == 1 && facts.has(TextProperty::OfSession) && facts.transaction == TransactionVerb::None
}

fn is_barrier(facts: &QueryFacts, text: &str) -> bool {
    match facts.session {
        SessionVerb::DiscardAll | SessionVerb::DeallocateAll | SessionVerb::ResetAll => true,
        // Among several statements only the word shows.
        SessionVerb::None | SessionVerb::Deallocate(_) => {
            let has_word = || {
                let lower = text.to_ascii_lowercase();
                lower.contains("deallocate") || lower.contains("discard")
            };
            facts.parameters.resets.is_some() || (facts.statements > 1 && has_word())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_take_no_more_memory_than_there_is_for_all_and_short_ones_are_all_remembered() {
        let mut statements = StatementCache::new(Arc::new(Config::default()), 1, |_| None);
        for number in 0..1_300 {
            let text = format!("select a{number} from t{number} -- {}\0\0\0", "x".repeat(15_000));
            statements.of_parse(text.as_bytes(), 1, ParseNaming::Named).unwrap();
        }
        assert!(statements.texts.weight() <= TEXTS_BYTES_MAX && statements.parses.weight() <= PARSES_BYTES_MAX);
        assert!(statements.parses.len() < 1_200 && statements.parses.len() > 800, "{}", statements.parses.len());
        let mut statements = StatementCache::new(Arc::new(Config::default()), 1, |_| None);
        for number in 0..500 {
            statements.of_parse(format!("select a{number} from t{number}\0\0\0").as_bytes(), 1, ParseNaming::Named).unwrap();
        }
        assert_eq!((statements.texts.len(), statements.parses.len()), (500, 500));
    }

    #[test]
    fn a_text_that_comes_again_is_not_parsed_again() {
        let mut statements = StatementCache::new(Arc::new(Config::default()), 1, |_| None);
        for text in ["select a from t", "select b from t", "select a from t", "select b from t"] {
            statements.of_text(text.as_bytes());
        }
        assert_eq!(statements.parsed, 2);
    }

    #[test]
    fn only_what_leaves_nothing_and_tells_nobody_anything_counts_as_such() {
        let leaves_nothing = |text: &str| judge(text.as_bytes(), &Config::default(), |_| None).has(StatementTrait::LeavesNothing);
        for text in ["select 1", "insert into t values (1)", "begin", "show work_mem", "set local work_mem = '1MB'"] {
            assert!(leaves_nothing(text), "{text}");
        }
        for text in [
            "create temp table x (a int) on commit drop",
            "create temp table x (a int)",
            "execute p",
            "select * from pg_prepared_statements",
            "reset work_mem",
            "set work_mem = '1MB'",
            "create table x (a int)",
            "alter role joe set work_mem = '1MB'",
            "drop database x",
            "drop role joe",
            "alter role joe rename to ann",
            "select setseed(.1)",
            "selec 1",
        ] {
            assert!(!leaves_nothing(text), "{text}");
        }
    }
}
