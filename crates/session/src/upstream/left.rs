//! Session state that statements may have left on a server connection.
//!
//! After a transaction that may have left something the server is asked (`inventory`), so that `found` says what is true at the last rest,
//! and `due` what may be more.

use crate::session_state::held_state::SettingCommand;
use crate::session_state::state_question::{ServerErrorFields, StateAnswer, StateQuestion, StatementCount};
use crate::session_state::temporary::TemporaryObjects;
use crate::upstream::ClientKnowledge;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_catalog::{HiddenUses, StatementNames};
use weir_sql::facts::{QualifiedName, ResetTarget, StateKind, StateKinds};
use weir_sql::leaves::names_library;
use weir_sql::passing::{DefinitionCertainty, LongTextFacts, LongTextScan};

/// A question under way.
#[derive(Debug, Default)]
pub struct PendingStateQuestion {
    pub(crate) ask: StateQuestion,
    pub(crate) because: QuestionReason,
    pub(crate) answer: StateAnswer,
    /// Statements of the protocol that the server is to have.
    pub(crate) certain: usize,
    /// The temporary relations of its moment are listed by its answer, or by one before it.
    pub(crate) knows_temporaries: bool,
}

/// The objects that a statement touched while the catalog was not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnjudgedObjects {
    pub(crate) touches: HiddenUses,
    pub(crate) written: Box<[QualifiedName]>,
    pub(crate) names: Option<StatementNames>,
}

/// Why a server is asked for all that no text shows.
#[derive(Debug, Default)]
pub enum QuestionReason {
    #[default]
    Nothing,
    /// Only since the catalog was not known: once it is, it tells whether these statements can have left anything.
    Assumed(Vec<UnjudgedObjects>),
    /// Code of users ran, or there were too many statements.
    Code,
}

/// Different statements that are remembered until the catalog is known.
const TOUCHED_MAX: usize = 16;

/// Names in one of them.
const NAMES_MAX: usize = 64;

impl QuestionReason {
    fn and(self, touched: UnjudgedObjects) -> QuestionReason {
        let mut list = match self {
            QuestionReason::Nothing => Vec::new(),
            QuestionReason::Assumed(list) => list,
            QuestionReason::Code => return QuestionReason::Code,
        };
        if list.contains(&touched) {
            return QuestionReason::Assumed(list);
        }
        let names = touched.written.len() + touched.names.as_ref().map_or(0, StatementNames::count);
        if list.len() >= TOUCHED_MAX || names > NAMES_MAX {
            return QuestionReason::Code;
        }
        list.push(touched);
        QuestionReason::Assumed(list)
    }

    /// The kinds asked for that may be there, as far as `leaves` tells of statements that were assumed to leave something.
    fn weigh(&self, kinds: StateKinds, leaves: impl Fn(&UnjudgedObjects) -> bool) -> StateKinds {
        match self {
            QuestionReason::Assumed(list) if !list.iter().any(leaves) => kinds.without(StateKinds::of(StateKind::Unknown)),
            QuestionReason::Assumed(_) | QuestionReason::Nothing | QuestionReason::Code => kinds,
        }
    }
}

/// The fate of a server connection that its session leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnCleanup {
    #[default]
    AsItIs,
    /// Not all of the session's statements could be brought, or something was refused: it is cleaned before another's use.
    Cleaned,
    /// It has what no command takes away: a library, an open `dblink`, a replication origin, a seed, a backup, a temporary slot.
    Closed,
}

/// A question that was not answered is asked again, each time after twice as long: a client's `statement_timeout` may be too short for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionRetry {
    pub(crate) at: Instant,
    pub(crate) pause: Duration,
}

/// Shortest and longest pause before a question is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A text that is too long to be parsed, and is looked at as it passes.
#[derive(Debug)]
pub struct LongTextPassage {
    text: LongTextScan,
    rest_bytes: usize,
    /// The session was kept for such a text before.
    was_kept: bool,
}

/// State by a message that is not answered yet, and behind which the client has sent nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprovenState {
    /// State of which no server tells.
    pub(crate) kinds: StateKinds,
    /// It alone has the server asked about all, since nobody could read it.
    pub(crate) is_unread: bool,
    pub(crate) statements: StatementCount,
}

/// Statements by a Parse that was too long to be kept: they are on this server connection alone.
#[derive(Debug, Default)]
pub struct LongStatements {
    pub(crate) unnamed: UnnamedStatementState,
    named: Vec<Box<[u8]>>,
    /// Parameters that applications made up, in their texts.
    names: BTreeSet<String>,
}

/// The statement without a name. A client that has bound it once parses it again for the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnnamedStatementState {
    #[default]
    Not,
    /// Its Bind may come behind another Sync.
    Parsed,
    Bound,
}

/// The way in which the server reads a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerReading {
    AsItLooks,
    /// With other strings or characters than Weir's parser, perhaps.
    Otherwise,
}

/// Of so many of a session the names are known; with more it keeps its connection.
const LONG_NAMED_MAX: usize = 256;

impl LongStatements {
    fn add_names(&mut self, names: impl Iterator<Item = String>) {
        let room = weir_catalog::NAMES_MAX.saturating_sub(self.names.len());
        self.names.extend(names.take(room));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.unnamed == UnnamedStatementState::Not && self.named.is_empty()
    }

    #[inline]
    pub fn has(&self, name: &[u8]) -> bool {
        self.named.iter().any(|known| **known == *name)
    }

    pub fn close(&mut self, name: &[u8]) {
        self.named.retain(|known| **known != *name);
    }

    pub fn drop_named(&mut self) {
        self.named.clear();
    }

    /// The session is at rest. `has_unnamed`: none of its messages has dropped the unnamed statement. False: it has none now.
    #[inline]
    pub fn rests(&mut self, has_unnamed: bool) -> bool {
        if !has_unnamed || self.unnamed == UnnamedStatementState::Bound {
            self.unnamed = UnnamedStatementState::Not;
        }
        if self.is_empty() && !self.names.is_empty() {
            self.names.clear();
        }
        self.unnamed != UnnamedStatementState::Not
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct LeftoverState {
    /// State that may have been left since the server was last asked.
    pub(crate) due: StateQuestion,
    /// Why `due` has what no text shows.
    pub(crate) because: QuestionReason,
    pub(crate) asking: Option<Box<PendingStateQuestion>>,
    /// State that cannot move and was there when the server was last asked.
    pub(crate) found: StateKinds,
    /// State of which no server can tell whether it is still there.
    pub(crate) stuck: StateKinds,
    /// A text that is too long to be parsed passes.
    pub(crate) passage: Option<Box<LongTextPassage>>,
    pub(crate) long: LongStatements,
    /// The part of `stuck` and `due` that the message under way adds, if it runs.
    pub(crate) unproven: Option<UnprovenState>,
    /// The part of `stuck` that the message under way ends, unless it fails.
    pub(crate) ending: StateKinds,
    /// Texts that may have prepared statements by SQL were sent, and the server has not said yet what is there: the names of made-up parameters
    /// in them.
    pub(crate) young: Option<Box<StateQuestion>>,
    /// Temporary relations that there may be.
    pub(crate) temporaries: TemporaryObjects,
    /// The last question was not answered as a whole: when all is asked again.
    pub(crate) again: Option<QuestionRetry>,
    /// The fate of the connection when the session parts with it.
    pub(crate) parting: ConnCleanup,
    /// A message that is not answered yet may change how the server reads texts.
    pub(crate) moves_ahead: bool,
}

impl LeftoverState {
    /// State that was found, or is still asked for: a statement may take it away before the answer to that.
    #[inline]
    pub fn may_have(&self) -> StateKinds {
        self.found.and(self.stuck).and(self.due.kinds).and(self.asked())
    }

    /// Kinds of state that the question under way is about.
    #[inline]
    fn asked(&self) -> StateKinds {
        self.asking.as_ref().map_or(StateKinds::NONE, |asking| asking.ask.kinds)
    }

    /// State that is lost with the connection, and that nobody can make again.
    ///
    /// `heard`: the client was told something over the connection; until then all that is due is of statements without an answer, of which
    /// nobody knows that they ran. An open transaction is rolled back, and with it the state that a rollback undoes.
    ///
    /// `is_known`: the catalog is. Until then any write may have run code of users; a transaction that is lost does not end its session for that.
    /// `leaves`: what a statement touched that ran before the catalog was known may have left something, as far as is known now.
    pub fn lost(
        &self,
        is_within: bool,
        heard: ClientKnowledge,
        is_known: bool,
        leaves: impl Fn(&UnjudgedObjects) -> bool,
    ) -> StateKinds {
        const UNDONE: StateKinds = StateKinds::of(StateKind::Setting)
            .with(StateKind::Listen)
            .with(StateKind::Temporary)
            .with(StateKind::HoldCursor)
            .with(StateKind::ForeignSetting);
        let kinds = self.because.weigh(self.due.kinds, &leaves);
        let asked = self.asking.as_ref().map_or(StateKinds::NONE, |asking| asking.because.weigh(asking.ask.kinds, &leaves));
        let due = match (heard, is_within) {
            (ClientKnowledge::Nothing, _) => StateKinds::NONE,
            (ClientKnowledge::Something, true) if is_known => kinds.without(UNDONE),
            (ClientKnowledge::Something, true) => kinds.without(UNDONE.with(StateKind::Unknown)),
            (ClientKnowledge::Something, false) => kinds,
        };
        self.pinning().and(asked).and(due)
    }

    /// State that pins the session to the connection.
    #[inline]
    pub fn pinning(&self) -> StateKinds {
        let kinds = self.found.and(self.stuck);
        if self.long.is_empty() { kinds } else { kinds.with(StateKind::Unread) }
    }

    /// The server may have more than is known.
    #[inline]
    pub fn is_unsure(&self) -> bool {
        !self.due.is_empty() || self.asking.is_some()
    }

    /// A name means what the catalog says, at the search_path that is known: nothing is to be asked, and no temporary relation hides another one.
    #[inline]
    pub fn names_are_certain(&self) -> bool {
        !self.is_unsure() && !self.found.has(StateKind::Unknown) && !self.temporaries.may_be()
    }

    /// Code may have deallocated statements of the protocol since the server last counted them.
    #[inline]
    pub fn may_lack_statements(&self) -> bool {
        const DEALLOCATING: StateKinds = StateKinds::of(StateKind::Unknown).with(StateKind::Unread).with(StateKind::Prepare);
        !self.may_have().common(DEALLOCATING).is_empty()
    }

    /// Where the `search_path` leads to is perhaps still asked, so that what is made without naming a schema may be temporary.
    pub fn may_make_temporary(&self) -> bool {
        self.due.kinds.and(self.asked()).has(StateKind::Temporary)
    }

    /// Statements analysed now may mean something else than for other sessions of the same settings.
    pub fn shapes_meaning(&self) -> bool {
        const SHAPING: StateKinds = StateKinds::of(StateKind::Setting)
            .with(StateKind::Temporary)
            .with(StateKind::Unknown)
            .with(StateKind::Unread)
            .with(StateKind::Library);
        !self.stuck.and(self.may_have()).common(SHAPING).is_empty()
    }

    /// Notes what a statement may leave. `text` and `values` are looked through for names of parameters. Not for a session that is pinned by
    /// `pool_mode = session`: nobody asks then.
    ///
    /// State that no text shows counts as left by code, unless it is noted while `assuming`.
    pub fn note(&mut self, leaves: StateKinds, functions: &[String], text: &[u8], values: &[u8]) {
        let is_unread = leaves.has(StateKind::Unread);
        // A server tells of all else that such a text can leave.
        let by_text = if is_unread && names_library(text) { StateKinds::UNTOLD } else { StateKinds::NONE };
        self.stuck = self.stuck.and(leaves.and(by_text).common(StateKinds::UNTOLD));
        if self.found.has(StateKind::Unknown) && !leaves.is_empty() {
            // The last question was not answered.
            self.due.kinds.add(StateKind::Unknown);
        }
        if leaves.has(StateKind::Setting) {
            let names = weir_sql::names_set(text);
            self.due.names.extend(names.known);
            self.due.any_setting |= names.others;
        }
        // A question for all settings tells those that a session may not make itself.
        self.due.any_setting |= leaves.has(StateKind::Setting) && self.found.has(StateKind::ForeignSetting);
        if leaves.has(StateKind::Prepare) {
            self.young.get_or_insert_default().add_custom_names(text);
        }
        if leaves.has(StateKind::Unknown) || is_unread || self.due.any_setting {
            self.due.add_custom_names(text);
            self.due.add_custom_names(values);
            self.due.functions.extend(functions.iter().cloned());
        }
        if leaves.has(StateKind::Unknown) {
            self.because = QuestionReason::Code;
        }
        self.due.kinds = self.due.kinds.and(leaves.without(StateKinds::UNTOLD));
    }

    /// Notes a statement, which may leave what no text shows only since the catalog is not known: then `touched` is there.
    #[inline]
    pub fn assuming(&mut self, touched: Option<UnjudgedObjects>, note: impl FnOnce(&mut LeftoverState)) {
        let Some(touched) = touched else { return note(self) };
        let before = std::mem::take(&mut self.because);
        note(self);
        self.because = before.and(touched);
    }

    /// A parameter changed unasked: some function or the server itself did it. `before`: its value until now.
    pub fn note_report(&mut self, name: &str, before: &str) {
        match name {
            "in_hot_standby" | "server_version" | "server_encoding" | "integer_datetimes" => return,
            "is_superuser" | "session_authorization" => self.due.names.extend(["role".into(), "session_authorization".into()]),
            _ => {}
        }
        self.due.add_report(name, before);
    }

    /// The message under way failed. If it never ran, what it adds is not there.
    pub fn failed(&mut self, failure: &ServerErrorFields<'_>) {
        self.ending = StateKinds::NONE;
        if self.long.unnamed == UnnamedStatementState::Parsed {
            self.long.unnamed = UnnamedStatementState::Bound;
        }
        if let Some(unproven) = self.unproven.take()
            && failure.never_ran(unproven.statements)
        {
            self.stuck = self.stuck.without(unproven.kinds);
            if unproven.is_unread && self.due.reported.is_empty() {
                self.due = StateQuestion::default();
            }
        }
    }

    /// A text of so many bytes passes, of which these are here. Until all of it was looked at, no server tells what it leaves.
    pub fn passes(&mut self, bytes: usize, here: &[u8]) {
        let was_kept = self.stuck.has(StateKind::Unread);
        self.stuck.add(StateKind::Unread);
        self.passage = Some(Box::new(LongTextPassage { text: LongTextScan::default(), rest_bytes: bytes, was_kept }));
        self.pass_on(here);
    }

    /// A Parse is sent whose statement only the server keeps. `text`: what is here of so many bytes behind its name.
    pub fn parses_long(&mut self, name: &[u8], bytes: usize, text: &[u8], reads: ServerReading) {
        if name.is_empty() {
            self.long.unnamed = UnnamedStatementState::Parsed;
        } else if self.long.named.len() < LONG_NAMED_MAX {
            self.long.named.push(name.into());
        } else {
            self.stuck.add(StateKind::Unread);
        }
        match reads {
            ServerReading::AsItLooks => self.passes(bytes, text),
            ServerReading::Otherwise if text.len() < bytes || names_library(text) => self.stuck.add(StateKind::Unread),
            ServerReading::Otherwise => {
                let mut ask = StateQuestion::default();
                ask.add_custom_names(text);
                self.long.add_names(ask.names.into_iter());
            }
        }
    }

    /// Notes what such a statement may leave; its Bind is sent.
    pub fn binds_long(&mut self) {
        if self.long.is_empty() {
            return;
        }
        self.note(StateKinds::of(StateKind::Unread), &[], &[], &[]);
        self.due.names.extend(self.long.names.iter().cloned());
    }

    /// True if a part of such a text is still to come.
    pub fn is_passing(&self) -> bool {
        self.passage.is_some()
    }

    /// The next bytes of it. Says what it defines.
    pub fn pass_on(&mut self, here: &[u8]) -> DefinitionCertainty {
        let Some(passage) = &mut self.passage else { return DefinitionCertainty::Perhaps };
        passage.text.feed(here);
        passage.rest_bytes = passage.rest_bytes.saturating_sub(here.len());
        if passage.rest_bytes > 0 {
            return DefinitionCertainty::Perhaps;
        }
        let Some(passage) = self.passage.take() else { return DefinitionCertainty::Perhaps };
        if let LongTextFacts::Told { names, defines } = passage.text.end() {
            if !self.long.is_empty() {
                self.long.add_names(names.iter().cloned());
            }
            self.due.names.extend(names);
            if !passage.was_kept {
                self.stuck = self.stuck.without(StateKinds::of(StateKind::Unread));
            }
            return defines;
        }
        DefinitionCertainty::Perhaps
    }

    /// The question was not answered as a whole. Says when it is asked again.
    pub fn unanswered(&mut self, now: Instant) -> Instant {
        let pause = self.again.map_or(PAUSE.0, |again| (again.pause * 2).min(PAUSE.1));
        let at = now + pause;
        self.again = Some(QuestionRetry { at, pause });
        at
    }

    /// Asks all again, if it is time for that.
    #[inline]
    pub fn ask_again(&mut self, now: Instant) {
        if self.found.has(StateKind::Unknown) && self.again.is_some_and(|again| now >= again.at) {
            self.due.kinds.add(StateKind::Unknown);
        }
    }

    /// A server has carried out what was under way.
    #[inline]
    pub fn done(&mut self) {
        self.unproven = None;
        if !self.ending.is_empty() {
            self.stuck = self.stuck.without(std::mem::take(&mut self.ending));
        }
    }

    /// The fate of the connection if the session parts with it now.
    pub fn parting(&self) -> ConnCleanup {
        // `DISCARD ALL` ends none of these.
        let is_lasting = !self.pinning().common(StateKinds::UNTOLD.with(StateKind::Slot)).is_empty();
        if is_lasting { ConnCleanup::Closed } else { self.parting }
    }

    /// The connection is not another's as it is.
    pub fn must_part(&mut self, parting: ConnCleanup) {
        self.parting = self.parting.max(parting);
    }

    /// The server dropped everything of the session's, but for what `DISCARD ALL` does not end.
    pub fn discarded(&mut self) {
        self.must_part(self.parting());
        (self.due, self.because) = (StateQuestion::default(), QuestionReason::Nothing);
        (self.found, self.stuck, self.again) = (StateKinds::NONE, StateKinds::NONE, None);
        self.long.drop_named();
        self.temporaries.gone();
    }

    /// The session parts with the connection, on which nothing pins it.
    #[inline]
    pub fn come_to_rest(&mut self) {
        (self.again, self.passage) = (None, None);
        debug_assert!(!self.is_unsure() && self.pinning().is_empty(), "something is left");
        self.temporaries.gone();
        if self.young.is_some() {
            self.young = None;
        }
        (self.parting, self.unproven, self.ending, self.moves_ahead) = (ConnCleanup::AsItIs, None, StateKinds::NONE, false);
    }
}

/// A SET, RESET or DISCARD whose effect is not known to have happened yet.
#[derive(Debug, Default)]
pub struct PendingReset {
    /// A statement whose effect on the settings is known from its text, if it succeeds: it is the only one under way.
    pub(crate) plain: Option<SettingCommand>,
    /// The settings that a RESET takes back once it is executed: it is only bound so far.
    pub(crate) bound: Option<ResetTarget>,
    /// The settings that a RESET under way takes back to their values at the session's start.
    pub(crate) under_way: Option<ResetTarget>,
    /// DISCARD ALL has run, and the session's settings are not on the connection yet.
    pub(crate) was_discarded: bool,
    pub(crate) telling: StartupRestore,
    /// Parameters whose reports were held back meanwhile, each with the value the client knows.
    pub(crate) untold: Vec<(String, String)>,
}

/// The startup's values are being set again after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartupRestore {
    #[default]
    No,
    /// Nobody waits for it.
    Silent,
    /// The ReadyForQuery of the reset waits for that.
    OwesReady,
}

impl PendingReset {
    pub fn is_under_way(&self) -> bool {
        self.plain.is_some() || self.under_way.is_some() || self.was_discarded || self.telling != StartupRestore::No
    }

    /// Takes in an error: the changes of a SET or RESET under way do not happen.
    pub fn will_not_happen(&mut self) {
        (self.bound, self.plain) = (None, None);
        // DISCARD ALL commits at once, also in a pipeline.
        if !self.was_discarded {
            self.under_way = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: StateKinds = StateKinds::of(StateKind::Unknown);

    fn insert_into(table: &str) -> UnjudgedObjects {
        let written = [QualifiedName { schema: String::new(), name: table.into() }].into();
        UnjudgedObjects { touches: HiddenUses::WRITES, written, names: None }
    }

    /// The state that is lost when `t` is known by then to leave something or not, of a client that was told something.
    fn lost(left: &LeftoverState, t_leaves: bool) -> [bool; 2] {
        let leaves = |touched: &UnjudgedObjects| t_leaves && *touched == insert_into("t");
        [false, true].map(|is_within| left.lost(is_within, ClientKnowledge::Something, true, leaves).has(StateKind::Unknown))
    }

    fn assume(left: &mut LeftoverState, table: &str) {
        left.assuming(Some(insert_into(table)), |left| left.note(UNKNOWN, &[], b"", &[]));
    }

    #[test]
    fn a_write_before_the_catalog_was_read_costs_its_session_nothing_if_the_catalog_says_so() {
        let mut left = LeftoverState::default();
        assume(&mut left, "t");
        assume(&mut left, "u");
        assert_eq!((lost(&left, false), lost(&left, true)), ([false; 2], [true; 2]));
        left.asking = Some(Box::new(PendingStateQuestion {
            ask: std::mem::take(&mut left.due),
            because: std::mem::take(&mut left.because),
            ..PendingStateQuestion::default()
        }));
        assert_eq!((lost(&left, false), lost(&left, true)), ([false; 2], [true; 2]), "while the server is asked");
    }

    #[test]
    fn code_among_such_writes_counts() {
        let code = |left: &mut LeftoverState| left.assuming(None, |left| left.note(UNKNOWN, &[], b"do 'begin end'", &[]));
        for is_first in [true, false] {
            let mut left = LeftoverState::default();
            if is_first {
                code(&mut left);
            }
            assume(&mut left, "t");
            if !is_first {
                code(&mut left);
            }
            assert_eq!(lost(&left, false), [true; 2], "{is_first}");
        }
    }

    #[test]
    fn a_long_statement_stays_until_it_was_bound_or_closed() {
        let mut left = LeftoverState::default();
        let parse = |left: &mut LeftoverState, name: &str, text: &str| {
            left.parses_long(name.as_bytes(), text.len(), text.as_bytes(), ServerReading::AsItLooks)
        };
        let is_pinned = |left: &LeftoverState| !left.pinning().is_empty();
        parse(&mut left, "", "select set_config('a.b', '', false)\0\0\0");
        assert!(left.long.rests(true) && is_pinned(&left), "its Bind may come behind a Sync");
        left.binds_long();
        assert!(left.due.names.contains("a.b") && left.due.is_about_all());
        left.long.unnamed = UnnamedStatementState::Bound;
        assert!(!left.long.rests(true) && !is_pinned(&left));
        parse(&mut left, "", "select 1\0\0\0");
        assert!(!left.long.rests(false) && !is_pinned(&left), "a query has dropped it");
        parse(&mut left, "", "select 1\0\0\0");
        left.failed(&ServerErrorFields { sqlstate: b"42601", context: b"", routine: b"" });
        assert!(!left.long.rests(true) && !is_pinned(&left), "it was refused");
        parse(&mut left, "s", "select 1\0\0\0");
        assert!(!left.long.rests(false) && is_pinned(&left) && left.long.has(b"s") && !left.long.has(b""));
        left.long.close(b"s");
        assert!(!is_pinned(&left));
        parse(&mut left, "s", "load 'x'\0\0\0");
        left.long.close(b"s");
        assert!(is_pinned(&left), "no server tells of a library");
    }

    #[test]
    fn long_statements_of_a_session_are_bounded() {
        let mut left = LeftoverState::default();
        for number in 0..=LONG_NAMED_MAX {
            left.parses_long(number.to_string().as_bytes(), 1, b"\0", ServerReading::AsItLooks);
        }
        assert_eq!(left.long.named.len(), LONG_NAMED_MAX);
        left.long.drop_named();
        assert!(left.pinning().has(StateKind::Unread), "one of them is not known");
    }

    #[test]
    fn few_statements_and_names_are_remembered() {
        let many = |count: usize, table: &dyn Fn(usize) -> String| {
            let mut left = LeftoverState::default();
            (0..count).for_each(|at| assume(&mut left, &table(at)));
            lost(&left, false)
        };
        assert_eq!(many(1000, &|_| "same".into()), [false; 2], "a loop");
        assert_eq!(many(TOUCHED_MAX, &|at| at.to_string()), [false; 2]);
        assert_eq!(many(TOUCHED_MAX + 1, &|at| at.to_string()), [true; 2]);
        let wide =
            UnjudgedObjects { written: vec![insert_into("t").written[0].clone(); NAMES_MAX + 1].into(), ..insert_into("t") };
        let mut left = LeftoverState::default();
        left.assuming(Some(wide), |left| left.note(UNKNOWN, &[], b"", &[]));
        assert_eq!(lost(&left, false), [true; 2]);
    }
}
