//! Session state that statements may have left on a server connection.
//!
//! After a transaction that may have left state the server is asked (`session_state::state_question`). `found` is the state at the last
//! rest, `due` later additions.

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

#[derive(Debug, Default)]
pub struct PendingStateQuestion {
    pub(crate) ask: StateQuestion,
    pub(crate) because: QuestionReason,
    pub(crate) answer: StateAnswer,
    /// Protocol statements that the server should have.
    pub(crate) certain: usize,
    /// True if this or an earlier answer lists the temporary relations.
    pub(crate) knows_temporaries: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnjudgedObjects {
    pub(crate) touches: HiddenUses,
    pub(crate) written: Box<[QualifiedName]>,
    pub(crate) names: Option<StatementNames>,
}

/// Why a server is asked for state that no text shows.
#[derive(Debug, Default)]
pub enum QuestionReason {
    #[default]
    Nothing,
    /// The catalog was unknown; once known, it tells whether these statements can have left state.
    Assumed(Vec<UnjudgedObjects>),
    /// User code ran, or too many statements.
    Code,
}

const TOUCHED_MAX: usize = 16;

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

    /// `leaves`: an assumed statement can have left state.
    fn weigh(&self, kinds: StateKinds, leaves: impl Fn(&UnjudgedObjects) -> bool) -> StateKinds {
        match self {
            QuestionReason::Assumed(list) if !list.iter().any(leaves) => kinds.without(StateKinds::of(StateKind::Unknown)),
            QuestionReason::Assumed(_) | QuestionReason::Nothing | QuestionReason::Code => kinds,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnCleanup {
    #[default]
    AsItIs,
    /// A statement could not be added, or the server refused something.
    Cleaned,
    /// No command removes a library, open `dblink`, replication origin, random seed, backup or temporary slot.
    Closed,
}

/// The pause doubles, as a client's `statement_timeout` may be too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionRetry {
    pub(crate) at: Instant,
    pub(crate) pause: Duration,
}

const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

#[derive(Debug)]
pub struct LongTextPassage {
    text: LongTextScan,
    rest_bytes: usize,
    /// True if such a text already pinned the session.
    was_kept: bool,
}

/// State by an unanswered message behind which the client has sent nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprovenState {
    /// State that no server can report.
    pub(crate) kinds: StateKinds,
    /// True if only this unparsed message causes the full question.
    pub(crate) is_unread: bool,
    pub(crate) statements: StatementCount,
}

/// Statements whose Parse was too long to keep: only this server connection has them.
#[derive(Debug, Default)]
pub struct LongStatements {
    pub(crate) unnamed: UnnamedStatementState,
    named: Vec<Box<[u8]>>,
    /// Custom parameters named in the texts.
    names: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnnamedStatementState {
    #[default]
    Not,
    /// The Bind may follow another Sync.
    Parsed,
    Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerReading {
    AsItLooks,
    /// The server may read strings or characters differently from Weir's parser.
    Otherwise,
}

/// With more names the session keeps its connection.
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

    /// Returns whether the unnamed statement still exists at rest. `has_unnamed`: no message dropped it.
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

#[derive(Debug, Default)]
pub struct LeftoverState {
    pub(crate) due: StateQuestion,
    /// Why `due` has state that no text shows.
    pub(crate) because: QuestionReason,
    pub(crate) asking: Option<Box<PendingStateQuestion>>,
    /// State that cannot move, as of the last answer.
    pub(crate) found: StateKinds,
    /// State that no server can report.
    pub(crate) stuck: StateKinds,
    pub(crate) passage: Option<Box<LongTextPassage>>,
    pub(crate) long: LongStatements,
    /// The part of `stuck` and `due` that the message under way adds if it runs.
    pub(crate) unproven: Option<UnprovenState>,
    /// The part of `stuck` that the message under way ends unless it fails.
    pub(crate) ending: StateKinds,
    /// Custom parameters in texts that may have prepared statements by SQL, until the server's answer.
    pub(crate) young: Option<Box<StateQuestion>>,
    pub(crate) temporaries: TemporaryObjects,
    pub(crate) again: Option<QuestionRetry>,
    pub(crate) parting: ConnCleanup,
    /// True if an unanswered message may change how the server reads texts.
    pub(crate) moves_ahead: bool,
}

impl LeftoverState {
    /// Includes state that a statement may remove before the answer.
    #[inline]
    pub fn may_have(&self) -> StateKinds {
        self.found.and(self.stuck).and(self.due.kinds).and(self.asked())
    }

    #[inline]
    fn asked(&self) -> StateKinds {
        self.asking.as_ref().map_or(StateKinds::NONE, |asking| asking.ask.kinds)
    }

    /// Returns the state lost with the connection that cannot be restored.
    ///
    /// `heard`: the client was answered over the connection; else all due state is of unanswered statements, which may not have run. An
    /// open transaction is rolled back, with the state that a rollback undoes.
    ///
    /// `is_known`: the catalog is known. Before that any write may have run user code, but that does not end the session of a lost
    /// transaction. `leaves`: a statement before that may have left state.
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

    #[inline]
    pub fn pinning(&self) -> StateKinds {
        let kinds = self.found.and(self.stuck);
        if self.long.is_empty() { kinds } else { kinds.with(StateKind::Unread) }
    }

    #[inline]
    pub fn is_unsure(&self) -> bool {
        !self.due.is_empty() || self.asking.is_some()
    }

    /// True if names mean what the catalog says at the known search_path, and no temporary relation hides another.
    #[inline]
    pub fn names_are_certain(&self) -> bool {
        !self.is_unsure() && !self.found.has(StateKind::Unknown) && !self.temporaries.may_be()
    }

    /// True if code may have deallocated protocol statements since the last count.
    #[inline]
    pub fn may_lack_statements(&self) -> bool {
        const DEALLOCATING: StateKinds = StateKinds::of(StateKind::Unknown).with(StateKind::Unread).with(StateKind::Prepare);
        !self.may_have().common(DEALLOCATING).is_empty()
    }

    /// True if an object made without a schema may be temporary, as the effective `search_path` is unknown.
    pub fn may_make_temporary(&self) -> bool {
        self.due.kinds.and(self.asked()).has(StateKind::Temporary)
    }

    /// True if statements may be analysed differently than in other sessions of the same settings.
    pub fn shapes_meaning(&self) -> bool {
        const SHAPING: StateKinds = StateKinds::of(StateKind::Setting)
            .with(StateKind::Temporary)
            .with(StateKind::Unknown)
            .with(StateKind::Unread)
            .with(StateKind::Library);
        !self.stuck.and(self.may_have()).common(SHAPING).is_empty()
    }

    /// Notes what a statement may leave. `text` and `values` may name parameters. Not under `pool_mode = session`.
    ///
    /// State that no text shows counts as left by code, unless noted by `assuming`.
    pub fn note(&mut self, leaves: StateKinds, functions: &[String], text: &[u8], values: &[u8]) {
        let is_unread = leaves.has(StateKind::Unread);
        // The server reports all other state of such a text.
        let by_text = if is_unread && names_library(text) { StateKinds::UNTOLD } else { StateKinds::NONE };
        self.stuck = self.stuck.and(leaves.and(by_text).common(StateKinds::UNTOLD));
        if self.found.has(StateKind::Unknown) && !leaves.is_empty() {
            self.due.kinds.add(StateKind::Unknown);
        }
        if leaves.has(StateKind::Setting) {
            let names = weir_sql::names_set(text);
            self.due.names.extend(names.known);
            self.due.any_setting |= names.others;
        }
        // A question for all settings also reports those that a session may not set.
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

    /// `touched`: only the unknown catalog makes the statement suspect of state that no text shows.
    #[inline]
    pub fn assuming(&mut self, touched: Option<UnjudgedObjects>, note: impl FnOnce(&mut LeftoverState)) {
        let Some(touched) = touched else { return note(self) };
        let before = std::mem::take(&mut self.because);
        note(self);
        self.because = before.and(touched);
    }

    /// Notes a parameter changed by a function or the server. `before`: its last value.
    pub fn note_report(&mut self, name: &str, before: &str) {
        match name {
            "in_hot_standby" | "server_version" | "server_encoding" | "integer_datetimes" => return,
            "is_superuser" | "session_authorization" => self.due.names.extend(["role".into(), "session_authorization".into()]),
            _ => {}
        }
        self.due.add_report(name, before);
    }

    /// Handles a failed message: if it never ran, its state does not exist.
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

    /// Scans a long text from its first part. Until its end it counts as state that no server can report.
    pub fn passes(&mut self, bytes: usize, here: &[u8]) {
        let was_kept = self.stuck.has(StateKind::Unread);
        self.stuck.add(StateKind::Unread);
        self.passage = Some(Box::new(LongTextPassage { text: LongTextScan::default(), rest_bytes: bytes, was_kept }));
        self.pass_on(here);
    }

    /// Notes a Parse that only the server keeps. `text`: the first part of the `bytes` behind the name.
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

    /// Notes the state that a long Parse may leave at its Bind.
    pub fn binds_long(&mut self) {
        if self.long.is_empty() {
            return;
        }
        self.note(StateKinds::of(StateKind::Unread), &[], &[], &[]);
        self.due.names.extend(self.long.names.iter().cloned());
    }

    pub fn is_passing(&self) -> bool {
        self.passage.is_some()
    }

    /// Returns what the text defines.
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

    /// Returns when to ask again after an incomplete answer.
    pub fn unanswered(&mut self, now: Instant) -> Instant {
        let pause = self.again.map_or(PAUSE.0, |again| (again.pause * 2).min(PAUSE.1));
        let at = now + pause;
        self.again = Some(QuestionRetry { at, pause });
        at
    }

    #[inline]
    pub fn ask_again(&mut self, now: Instant) {
        if self.found.has(StateKind::Unknown) && self.again.is_some_and(|again| now >= again.at) {
            self.due.kinds.add(StateKind::Unknown);
        }
    }

    #[inline]
    pub fn done(&mut self) {
        self.unproven = None;
        if !self.ending.is_empty() {
            self.stuck = self.stuck.without(std::mem::take(&mut self.ending));
        }
    }

    pub fn parting(&self) -> ConnCleanup {
        // `DISCARD ALL` ends none of these.
        let is_lasting = !self.pinning().common(StateKinds::UNTOLD.with(StateKind::Slot)).is_empty();
        if is_lasting { ConnCleanup::Closed } else { self.parting }
    }

    /// Requires at least this treatment before reuse.
    pub fn must_part(&mut self, parting: ConnCleanup) {
        self.parting = self.parting.max(parting);
    }

    /// Notes that the server dropped all session state that `DISCARD ALL` ends.
    pub fn discarded(&mut self) {
        self.must_part(self.parting());
        (self.due, self.because) = (StateQuestion::default(), QuestionReason::Nothing);
        (self.found, self.stuck, self.again) = (StateKinds::NONE, StateKinds::NONE, None);
        self.long.drop_named();
        self.temporaries.gone();
    }

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

/// A SET, RESET or DISCARD whose effect is not confirmed.
#[derive(Debug, Default)]
pub struct PendingReset {
    /// A command whose effect is known from its text, alone under way.
    pub(crate) plain: Option<SettingCommand>,
    /// Settings of a RESET that is bound, not executed.
    pub(crate) bound: Option<ResetTarget>,
    /// Settings that a RESET under way returns to the startup values.
    pub(crate) under_way: Option<ResetTarget>,
    /// DISCARD ALL has run; the session's settings are not restored yet.
    pub(crate) was_discarded: bool,
    pub(crate) telling: StartupRestore,
    /// Reports held back, with the values that the client knows.
    pub(crate) untold: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartupRestore {
    #[default]
    No,
    Silent,
    OwesReady,
}

impl PendingReset {
    pub fn is_under_way(&self) -> bool {
        self.plain.is_some() || self.under_way.is_some() || self.was_discarded || self.telling != StartupRestore::No
    }

    /// Handles an error: the SET or RESET does not happen.
    pub fn will_not_happen(&mut self) {
        (self.bound, self.plain) = (None, None);
        // DISCARD ALL commits at once, even in a pipeline.
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
