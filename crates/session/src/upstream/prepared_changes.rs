//! A client's prepared statements, and the changes to them by messages under way.

use crate::fault::ErrorReport;
use crate::prepared::{StatementId, StatementShape};
use crate::session_state::by_sql::SqlPreparedStatement;
use crate::statements::PreparedStatement;
use foldhash::HashMap;
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;
use weir_wire::gather::{BoundExceeded, GatherBound, GatherBudget};

/// PostgreSQL has no limit, and takes some kilobytes for each.
const PREPARED: GatherBound = GatherBound {
    thing: "the list of this session's prepared statements",
    count_max: 65_536,
    bytes_max: 64 << 20,
    parameter: "",
};

/// Shorter texts are counted after each `COUNTED_EACH` statements only.
const LONG_BYTES: usize = 16 << 10;

const COUNTED_EACH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerName {
    Number,
    None,
}

#[derive(Clone)]
pub struct ClientStatement {
    pub(crate) prepared: Rc<PreparedStatement>,
    pub(crate) server_name: ServerName,
    pub(crate) told: StatementShape,
    /// Kept as a server sends them before it refuses to describe the result.
    pub(crate) parameters: Option<Rc<[u8]>>,
}

impl ClientStatement {
    pub fn new(prepared: Rc<PreparedStatement>) -> ClientStatement {
        ClientStatement { prepared, server_name: ServerName::Number, told: StatementShape::UNKNOWN, parameters: None }
    }

    pub fn without_name(prepared: Rc<PreparedStatement>) -> ClientStatement {
        ClientStatement { server_name: ServerName::None, ..ClientStatement::new(prepared) }
    }

    /// Includes the description that a message relies on.
    #[inline]
    pub fn used(&self) -> (Rc<PreparedStatement>, ServerName, StatementShape) {
        (self.prepared.clone(), self.server_name, self.told)
    }
}

pub struct SubstituteFault {
    pub(crate) parameters: Option<Rc<[u8]>>,
    pub(crate) fault: ErrorReport,
}

/// The change by a Parse or Close, undone when an earlier error makes the server skip it.
pub enum PreparedChange {
    /// `made`: the statement that a Parse prepared.
    Named {
        name: Box<[u8]>,
        before: Option<ClientStatement>,
        made: Option<StatementId>,
    },
    Unnamed {
        before: Option<ClientStatement>,
        made: Option<StatementId>,
    },
    Nothing,
}

impl PreparedChange {
    fn is_of(&self, statement: &[u8]) -> bool {
        match self {
            PreparedChange::Named { name, .. } => **name == *statement,
            PreparedChange::Unnamed { .. } => statement.is_empty(),
            PreparedChange::Nothing => false,
        }
    }

    /// The statement that gets the name again after an undo.
    pub fn before(&mut self) -> Option<&mut ClientStatement> {
        match self {
            PreparedChange::Named { before, .. } | PreparedChange::Unnamed { before, .. } => before.as_mut(),
            PreparedChange::Nothing => None,
        }
    }

    pub fn made(&self) -> Option<StatementId> {
        match self {
            PreparedChange::Named { made, .. } | PreparedChange::Unnamed { made, .. } => *made,
            PreparedChange::Nothing => None,
        }
    }
}

pub struct JournalEntry {
    pub(crate) segment: u32,
    pub(crate) change: PreparedChange,
}

pub fn last_of<'a>(journal: &'a VecDeque<JournalEntry>, statement: &[u8]) -> Option<&'a JournalEntry> {
    journal.iter().rev().find(|entered| entered.change.is_of(statement))
}

/// Statements that a client has prepared by the protocol, and its portal if Weir answers it.
#[derive(Default)]
pub struct OwnStatements {
    pub(crate) named: NamedStatements,
    unnamed: Option<ClientStatement>,
    long_unnamed: LongUnnamed,
    /// Forces the next unnamed Parse to be sent.
    pub(crate) is_sent_next: bool,
    /// Number of Syncs: an error makes the server skip the rest of one segment only.
    pub(crate) segment: u32,
    /// For the log: an Execute runs this statement.
    pub(crate) bound: Option<Rc<PreparedStatement>>,
    portal: Option<LocalPortal>,
}

/// Most sessions at rest have none and use no memory.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "an empty table takes 40 bytes more of each session than a pointer")]
pub struct NamedStatements(Option<Box<HashMap<Box<[u8]>, ClientStatement>>>);

impl NamedStatements {
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &ClientStatement)> {
        self.0.iter().flat_map(|named| named.iter().map(|(name, own)| (&**name, own)))
    }

    pub fn values(&self) -> impl Iterator<Item = &ClientStatement> {
        self.0.iter().flat_map(|named| named.values())
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut ClientStatement> {
        self.0.iter_mut().flat_map(|named| named.values_mut())
    }

    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, name: &Q) -> Option<&ClientStatement>
    where
        Box<[u8]>: Borrow<Q>,
    {
        self.0.as_ref()?.get(name)
    }

    #[inline]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, name: &Q) -> Option<&mut ClientStatement>
    where
        Box<[u8]>: Borrow<Q>,
    {
        self.0.as_mut()?.get_mut(name)
    }

    #[inline]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, name: &Q) -> bool
    where
        Box<[u8]>: Borrow<Q>,
    {
        self.get(name).is_some()
    }

    pub fn insert(&mut self, name: Box<[u8]>, own: ClientStatement) -> Option<ClientStatement> {
        self.0.get_or_insert_default().insert(name, own)
    }

    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, name: &Q) -> Option<ClientStatement>
    where
        Box<[u8]>: Borrow<Q>,
    {
        self.0.as_mut()?.remove(name)
    }

    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&mut self, name: &Q) -> Option<(Box<[u8]>, ClientStatement)>
    where
        Box<[u8]>: Borrow<Q>,
    {
        self.0.as_mut()?.remove_entry(name)
    }

    pub fn keep(&mut self, name: Box<[u8]>, own: ClientStatement) {
        self.0.get_or_insert_default().entry(name).or_insert(own);
    }

    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |named| named.len())
    }

    pub fn clear(&mut self) {
        self.0 = None;
    }
}

/// An unnamed statement too long to be kept by Weir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongUnnamed {
    #[default]
    Not,
    OnServer,
    /// Dropped by Weir's question after the first execution.
    Gone,
}

pub struct LocalPortal {
    pub(crate) prepared: Rc<PreparedStatement>,
    pub(crate) formats: Box<[u16]>,
    pub(crate) done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeTarget {
    Unnamed,
    Name(Box<[u8]>),
    AnyName,
}

impl OwnStatements {
    pub fn of_mut(&mut self, whose: &DescribeTarget) -> impl Iterator<Item = &mut ClientStatement> {
        let (one, all) = match whose {
            DescribeTarget::Unnamed => (self.unnamed.as_mut(), None),
            DescribeTarget::Name(name) => (self.named.get_mut(name), None),
            DescribeTarget::AnyName => (None, Some(self.named.values_mut())),
        };
        one.into_iter().chain(all.into_iter().flatten())
    }

    /// Checks the limit for a further statement of `bytes`.
    pub fn check_room(&self, bytes: usize) -> Result<(), BoundExceeded> {
        let count = self.named.count();
        if count < PREPARED.count_max && bytes < LONG_BYTES && !count.is_multiple_of(COUNTED_EACH) {
            return Ok(());
        }
        let mut budget = GatherBudget::new(PREPARED);
        self.named.values().try_for_each(|own| budget.take(own.prepared.tail.len()))?;
        budget.take(bytes)
    }

    #[inline]
    pub fn unnamed(&self) -> Option<&ClientStatement> {
        self.unnamed.as_ref()
    }

    pub fn replace_unnamed(&mut self, own: ClientStatement) -> Option<ClientStatement> {
        self.long_unnamed = LongUnnamed::Not;
        self.unnamed.replace(own)
    }

    pub fn keep_unnamed(&mut self, own: ClientStatement) {
        self.unnamed = Some(own);
    }

    pub fn take_unnamed(&mut self) -> Option<ClientStatement> {
        self.unnamed.take()
    }

    #[inline]
    pub fn long_unnamed(&self) -> LongUnnamed {
        self.long_unnamed
    }

    pub fn note_long_unnamed(&mut self, long: LongUnnamed) {
        self.long_unnamed = long;
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut ClientStatement> {
        self.named.values_mut().chain(self.unnamed.iter_mut())
    }

    #[inline]
    pub fn portal(&self) -> Option<&LocalPortal> {
        self.portal.as_ref()
    }

    pub fn open_portal(&mut self, portal: LocalPortal) {
        self.portal = Some(portal);
    }

    pub fn take_portal(&mut self) -> Option<LocalPortal> {
        self.portal.take()
    }

    #[inline]
    pub fn close_portal(&mut self) {
        self.portal = None;
    }

    /// As a simple query does.
    #[inline]
    pub fn drop_unnamed(&mut self) {
        (self.unnamed, self.long_unnamed, self.portal) = (None, LongUnnamed::Not, None);
    }

    /// Undoes the change at `at`. A later change of the same name then starts from the state before. `refused`: the server refused the
    /// Parse.
    pub fn take_back(&mut self, journal: &mut VecDeque<JournalEntry>, at: usize, change: PreparedChange, refused: bool) {
        match change {
            PreparedChange::Named { name, before, made: _ } => {
                let later = journal.iter_mut().skip(at).find(|entered| entered.change.is_of(&name));
                match (later.map(|entered| &mut entered.change), before) {
                    (Some(PreparedChange::Named { before: later, .. }), before) => *later = before,
                    (_, Some(before)) => {
                        self.named.insert(name, before);
                    }
                    (_, None) => {
                        self.named.remove(&name);
                    }
                }
            }
            PreparedChange::Unnamed { before, made: _ } => {
                // The server has dropped the unnamed statement even so.
                let restored = if refused { None } else { before };
                let later = journal.iter_mut().skip(at).find(|entered| entered.change.is_of(b""));
                match later.map(|entered| &mut entered.change) {
                    Some(PreparedChange::Unnamed { before: later, .. }) => *later = restored,
                    _ => self.unnamed = restored,
                }
            }
            PreparedChange::Nothing => {}
        }
    }
}

/// A description under way, for `prepared::result_shape`.
pub struct PendingDescription {
    pub(crate) prepared: Rc<PreparedStatement>,
    pub(crate) whose: DescribeTarget,
    pub(crate) shape: StatementShape,
    pub(crate) parameters: Option<Rc<[u8]>>,
}

impl PendingDescription {
    pub fn new(prepared: Rc<PreparedStatement>, whose: DescribeTarget) -> PendingDescription {
        PendingDescription { prepared, whose, shape: StatementShape::UNKNOWN, parameters: None }
    }
}

/// A statement whose description decides on the waiting message.
pub struct AwaitedDescription {
    pub(crate) id: StatementId,
    /// For a waiting Describe: the parameters to repeat if the answer is an error.
    pub(crate) parameters: Option<Rc<[u8]>>,
}

/// Why the client's next statement waits for Weir's own question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementHold {
    #[default]
    No,
    Describing,
    /// The connection gets the session's settings.
    Bringing,
    /// Like `Bringing`, after a reset: the server refused the change from other sessions' settings.
    Cleaning,
}

/// Messages that Weir adds, and replacements for their answers.
#[derive(Default)]
pub struct AddedMessages {
    pub(crate) parses: VecDeque<(u32, StatementId)>,
    pub(crate) described: VecDeque<PendingDescription>,
    pub(crate) asked: Option<AwaitedDescription>,
    pub(crate) refusals: VecDeque<SubstituteFault>,
    /// In order; `None`: a deallocation.
    pub(crate) by_sql: VecDeque<Option<Arc<SqlPreparedStatement>>>,
    pub(crate) refused: Vec<(Arc<SqlPreparedStatement>, ErrorReport)>,
    pub(crate) claim: StatementHold,
}

impl AddedMessages {
    pub fn is_answered(&self) -> bool {
        self.parses.is_empty() && self.described.is_empty() && self.refusals.is_empty() && self.by_sql.is_empty()
    }

    pub fn come_to_rest(&mut self) {
        self.asked = None;
        self.claim = StatementHold::No;
        if !self.refused.is_empty() {
            self.refused.clear();
        }
    }

    /// Returns why the server lacks a statement prepared by SQL, from its complaint.
    pub fn why_refused(&self, complaint: &[u8]) -> Option<&ErrorReport> {
        self.refused.iter().find(|(entry, _)| quotes(complaint, entry.name.as_bytes())).map(|(_, fault)| fault)
    }
}

/// Quotes are required: the other words may contain the same letters.
fn quotes(complaint: &[u8], name: &[u8]) -> bool {
    let quoted = [b"\"", name, b"\""].concat();
    complaint.windows(quoted.len()).any(|part| part == quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::ParseNaming;

    #[test]
    fn a_complaint_is_about_the_name_in_quotes() {
        let complaint = b"prepared statement \"zzz\" does not exist";
        assert!(quotes(complaint, b"zzz"));
        assert!(!quotes(complaint, b"a") && !quotes(complaint, b"zz") && !quotes(complaint, b""));
    }

    fn own(text: &str) -> ClientStatement {
        let mut statements = crate::statements::StatementCache::new(Default::default(), 0, |_| None);
        ClientStatement::new(statements.of_parse(&[text.as_bytes(), b"\0\0\0"].concat(), 0, ParseNaming::Named).expect("a text"))
    }

    fn named(journal: &mut VecDeque<JournalEntry>, statements: &mut OwnStatements, name: &[u8], text: &str) {
        let now = own(text);
        let before = statements.named.insert(name.into(), now.clone());
        journal.push_back(JournalEntry {
            segment: 0,
            change: PreparedChange::Named { name: name.into(), before, made: Some(now.prepared.id) },
        });
    }

    #[test]
    fn a_description_of_one_statement_looks_at_no_other() {
        let mut statements = OwnStatements { unnamed: Some(own("select 1")), ..OwnStatements::default() };
        let one = own("select 2");
        for number in 0..1000 {
            statements.named.insert(format!("s{number}").into_bytes().into(), one.clone());
        }
        for (whose, count) in [
            (DescribeTarget::Unnamed, 1),
            (DescribeTarget::Name(b"s7"[..].into()), 1),
            (DescribeTarget::Name(b"x"[..].into()), 0),
            (DescribeTarget::AnyName, 1000),
        ] {
            assert_eq!(statements.of_mut(&whose).count(), count, "{whose:?}");
        }
    }

    fn is(statements: &OwnStatements, name: &[u8], own: Option<&ClientStatement>) -> bool {
        match (statements.named.get(name), own) {
            (None, None) => true,
            (Some(one), Some(other)) => Rc::ptr_eq(&one.prepared, &other.prepared),
            _ => false,
        }
    }

    #[test]
    fn a_change_that_did_not_happen_is_taken_back() {
        let (mut statements, mut journal) = (OwnStatements::default(), VecDeque::new());
        named(&mut journal, &mut statements, b"a", "select 1");
        let entered = journal.pop_front().expect("entered");
        assert!(last_of(&journal, b"a").is_none());
        statements.take_back(&mut journal, 0, entered.change, true);
        assert!(is(&statements, b"a", None));
    }

    #[test]
    fn a_later_change_of_the_name_begins_from_the_state_before() {
        let (mut statements, mut journal) = (OwnStatements::default(), VecDeque::new());
        let first = own("select 1");
        statements.named.insert(b"a"[..].into(), first.clone());
        named(&mut journal, &mut statements, b"a", "select 2");
        named(&mut journal, &mut statements, b"a", "select 3");
        let now = statements.named.get(&b"a"[..]).cloned().expect("prepared");
        let entered = journal.pop_front().expect("entered");
        statements.take_back(&mut journal, 0, entered.change, true);
        assert!(is(&statements, b"a", Some(&now)), "the second Parse has still to be answered");
        let entered = journal.pop_front().expect("entered");
        statements.take_back(&mut journal, 0, entered.change, false);
        assert!(is(&statements, b"a", Some(&first)));
    }

    #[test]
    fn a_refused_parse_has_dropped_the_unnamed_statement() {
        for (refused, stays) in [(true, false), (false, true)] {
            let (mut statements, mut journal) =
                (OwnStatements { unnamed: Some(own("select 2")), ..OwnStatements::default() }, VecDeque::new());
            statements.take_back(&mut journal, 0, PreparedChange::Unnamed { before: Some(own("select 1")), made: None }, refused);
            assert_eq!(statements.unnamed.is_some(), stays);
        }
    }
}
