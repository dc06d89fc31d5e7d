//! Prepared statements of a client, and the changes to them by messages under way.

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

/// Statements that one session prepares by the protocol. PostgreSQL has no such limit, and takes some kilobytes for each.
const PREPARED: GatherBound = GatherBound {
    thing: "the list of this session's prepared statements",
    count_max: 65_536,
    bytes_max: 64 << 20,
    parameter: "",
};

/// Bytes of a text that is counted at once.
const LONG_BYTES: usize = 16 << 10;

/// Shorter texts are counted each time so many more are there.
const COUNTED_EACH: usize = 64;

/// The name of a client's statement on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// Its number.
    Number,
    /// None, as the client gave none.
    None,
}

/// A statement the client has prepared.
#[derive(Clone)]
pub struct ClientStatement {
    pub(crate) prepared: Rc<PreparedStatement>,
    pub(crate) server_name: ServerName,
    /// A server's description of it at that time; the client goes by that.
    pub(crate) told: StatementShape,
    /// Its parameters as the server described them, which a server says once more before it refuses to describe the rest.
    pub(crate) parameters: Option<Rc<[u8]>>,
}

impl ClientStatement {
    pub fn new(prepared: Rc<PreparedStatement>) -> ClientStatement {
        ClientStatement { prepared, server_name: ServerName::Number, told: StatementShape::UNKNOWN, parameters: None }
    }

    /// One that has no name on the servers either.
    pub fn without_name(prepared: Rc<PreparedStatement>) -> ClientStatement {
        ClientStatement { server_name: ServerName::None, ..ClientStatement::new(prepared) }
    }

    /// The statement, its name on the servers, and the description that a message with it goes by.
    #[inline]
    pub fn used(&self) -> (Rc<PreparedStatement>, ServerName, StatementShape) {
        (self.prepared.clone(), self.server_name, self.told)
    }
}

/// A fault that a client hears in place of a server's error.
pub struct SubstituteFault {
    /// The body of a ParameterDescription that comes before it.
    pub(crate) parameters: Option<Rc<[u8]>>,
    pub(crate) fault: ErrorReport,
}

/// The change by a Parse or Close of the client's, to be taken back when an error before it made the server skip it.
pub enum PreparedChange {
    /// `made`: the statement a Parse prepared.
    Named {
        name: Box<[u8]>,
        before: Option<ClientStatement>,
        made: Option<StatementId>,
    },
    Unnamed {
        before: Option<ClientStatement>,
        made: Option<StatementId>,
    },
    /// Close of a portal.
    Nothing,
}

impl PreparedChange {
    /// True if it is about this statement; the unnamed one has the empty name.
    fn is_of(&self, statement: &[u8]) -> bool {
        match self {
            PreparedChange::Named { name, .. } => **name == *statement,
            PreparedChange::Unnamed { .. } => statement.is_empty(),
            PreparedChange::Nothing => false,
        }
    }

    /// The statement that had the name before, and has it again if this is undone.
    pub fn before(&mut self) -> Option<&mut ClientStatement> {
        match self {
            PreparedChange::Named { before, .. } | PreparedChange::Unnamed { before, .. } => before.as_mut(),
            PreparedChange::Nothing => None,
        }
    }

    /// The statement that it prepared on the server.
    pub fn made(&self) -> Option<StatementId> {
        match self {
            PreparedChange::Named { made, .. } | PreparedChange::Unnamed { made, .. } => *made,
            PreparedChange::Nothing => None,
        }
    }
}

/// A change and the segment of the client's stream it came in.
pub struct JournalEntry {
    pub(crate) segment: u32,
    pub(crate) change: PreparedChange,
}

/// The last change under way of what a name stands for.
pub fn last_of<'a>(journal: &'a VecDeque<JournalEntry>, statement: &[u8]) -> Option<&'a JournalEntry> {
    journal.iter().rev().find(|entered| entered.change.is_of(statement))
}

/// Statements that a client has prepared by the protocol, and its portal if that is Weir's.
#[derive(Default)]
pub struct OwnStatements {
    /// By the client's names.
    pub(crate) named: NamedStatements,
    unnamed: Option<ClientStatement>,
    long_unnamed: LongUnnamed,
    /// The next Parse without a name is sent, whatever the server connection has.
    pub(crate) is_sent_next: bool,
    /// Counts the client's Syncs: an error makes the server skip the rest of one segment only.
    pub(crate) segment: u32,
    /// The statement bound last: an Execute runs it, for the log.
    pub(crate) bound: Option<Rc<PreparedStatement>>,
    /// A statement of Weir's own that the unnamed portal stands for.
    portal: Option<LocalPortal>,
}

/// Statements by the client's names. Most sessions that rest have none, and no room for them.
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

    /// Puts one there unless the name stands for another.
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

/// An unnamed statement that was too long to be kept here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongUnnamed {
    #[default]
    Not,
    /// It is on the server only.
    OnServer,
    /// A question of ours has dropped it behind its first execution.
    Gone,
}

/// A bound statement that Weir answers itself.
pub struct LocalPortal {
    pub(crate) prepared: Rc<PreparedStatement>,
    pub(crate) formats: Box<[u16]>,
    /// It has been executed to its end.
    pub(crate) done: bool,
}

/// The client's statement that a description is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeTarget {
    Unnamed,
    Name(Box<[u8]>),
    /// It was asked for before a message that names one of those with this text: all of them are looked through.
    AnyName,
}

impl OwnStatements {
    /// The statements that a description may be of.
    pub fn of_mut(&mut self, whose: &DescribeTarget) -> impl Iterator<Item = &mut ClientStatement> {
        let (one, all) = match whose {
            DescribeTarget::Unnamed => (self.unnamed.as_mut(), None),
            DescribeTarget::Name(name) => (self.named.get_mut(name), None),
            DescribeTarget::AnyName => (None, Some(self.named.values_mut())),
        };
        one.into_iter().chain(all.into_iter().flatten())
    }

    /// Looks if a statement of so many bytes may have a name of its own beside the others.
    pub fn check_room(&self, bytes: usize) -> Result<(), BoundExceeded> {
        let count = self.named.count();
        if count < PREPARED.count_max && bytes < LONG_BYTES && !count.is_multiple_of(COUNTED_EACH) {
            return Ok(());
        }
        let mut budget = GatherBudget::new(PREPARED);
        self.named.values().try_for_each(|own| budget.take(own.prepared.tail.len()))?;
        budget.take(bytes)
    }

    /// The statement without a name.
    #[inline]
    pub fn unnamed(&self) -> Option<&ClientStatement> {
        self.unnamed.as_ref()
    }

    /// A Parse without a name was accepted: gives the statement before it.
    pub fn replace_unnamed(&mut self, own: ClientStatement) -> Option<ClientStatement> {
        self.long_unnamed = LongUnnamed::Not;
        self.unnamed.replace(own)
    }

    /// The statement without a name stands for another text by now.
    pub fn keep_unnamed(&mut self, own: ClientStatement) {
        self.unnamed = Some(own);
    }

    /// Takes the statement without a name, which is none of the client's from here on.
    pub fn take_unnamed(&mut self) -> Option<ClientStatement> {
        self.unnamed.take()
    }

    /// The place of a text without a name that was too long to be kept.
    #[inline]
    pub fn long_unnamed(&self) -> LongUnnamed {
        self.long_unnamed
    }

    pub fn note_long_unnamed(&mut self, long: LongUnnamed) {
        self.long_unnamed = long;
    }

    /// All statements, to be changed: each but the last has a name.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut ClientStatement> {
        self.named.values_mut().chain(self.unnamed.iter_mut())
    }

    /// A statement of Weir's own that the unnamed portal stands for.
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

    /// A simple query, or what is answered in its place, drops the unnamed statement and portal.
    #[inline]
    pub fn drop_unnamed(&mut self) {
        (self.unnamed, self.long_unnamed, self.portal) = (None, LongUnnamed::Not, None);
    }

    /// Undoes the change that stood at `at` in the journal. If the name was changed again since, that change is what now began from
    /// the state before. `refused`: the change is a Parse that the server refused.
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
                // The server has dropped the unnamed statement all the same.
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

/// A description of a prepared statement on its way. `traffic::result_shape` works with it.
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

/// A statement that the server was asked about for the message that waits: its answer decides.
pub struct AwaitedDescription {
    pub(crate) id: StatementId,
    /// That message is a Describe: the parameters it was told, which it hears again should the answer be an error.
    pub(crate) parameters: Option<Rc<[u8]>>,
}

/// The server connection is not at rest though nothing is under way for the client: its next statement waits for an answer to something of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementHold {
    #[default]
    No,
    /// The statement's description was asked for.
    Describing,
    /// The connection is being brought to the session's settings.
    Bringing,
    /// The same, after all settings of others were taken back: the server refused to be brought from those.
    Cleaning,
}

/// The messages that Weir sends along with a client's, and Weir's words in place of the answers.
#[derive(Default)]
pub struct AddedMessages {
    /// Statements whose ParseComplete is due, in order, each with its segment.
    pub(crate) parses: VecDeque<(u32, StatementId)>,
    /// Descriptions that are looked at when they come, in order.
    pub(crate) described: VecDeque<PendingDescription>,
    pub(crate) asked: Option<AwaitedDescription>,
    /// The replacements for the errors of Parses made to fail, in order.
    pub(crate) refusals: VecDeque<SubstituteFault>,
    /// Statements prepared by SQL, in order; without a name those that are taken away.
    pub(crate) by_sql: VecDeque<Option<Arc<SqlPreparedStatement>>>,
    /// Those of them that the server has refused, and why.
    pub(crate) refused: Vec<(Arc<SqlPreparedStatement>, ErrorReport)>,
    /// True while a statement waits for what the server is asked or brought.
    pub(crate) claim: StatementHold,
}

impl AddedMessages {
    /// Nothing of it is under way.
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

    /// Why the server does not know a statement prepared by SQL that the session has, by its complaint about that.
    pub fn why_refused(&self, complaint: &[u8]) -> Option<&ErrorReport> {
        self.refused.iter().find(|(entry, _)| quotes(complaint, entry.name.as_bytes())).map(|(_, fault)| fault)
    }
}

/// True if a complaint of a server's is about this name. The words around it may hold the same letters.
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
