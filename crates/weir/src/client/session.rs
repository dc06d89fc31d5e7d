//! One client's session: its socket, its two lanes, its link while it has one, and what it has prepared.

pub mod cached;
pub mod causal;
pub mod described;
pub mod net;
pub mod wishes;

use crate::client::session_card::Doing;
use crate::client::state::State;
use crate::client::statements::{Prepared, Statement};
use crate::monitor::fault::Fault;
use crate::process::worker::{Entry, PoolSet, Worker};
use crate::server::catalogs::Visit;
use crate::server::places::Place;
use crate::server::pool::link::Link;
use cached::Cached;
use causal::Causal;
use described::Described;
use net::Net;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_io::lane::Lane;
use weir_io::socket::Socket;
use weir_policy::cluster::NodeIndex;
use weir_policy::prepared::{Shape, StatementId};
use weir_policy::replies::{Dropped, Replies};
use weir_policy::transaction::Written;
use weir_sql::facts::{Keeps, Leaves};
use weir_wire::write;
use wishes::Wishes;

/// Transaction status of a link at rest. Source: PostgreSQL manual, `ReadyForQuery`.
pub const IDLE: u8 = b'I';
/// Status inside a failed transaction.
pub const FAILED: u8 = b'E';
/// Status inside a transaction.
pub const WITHIN: u8 = b'T';

/// One client's session, owned by its task.
pub struct Session {
    pub client: Socket,
    /// From the client to the server.
    pub up: Lane,
    /// From the server to the client.
    pub down: Lane,
    pub link: Option<Box<Link>>,
    pub replies: Replies,
    /// Transaction status of the link, after the last ReadyForQuery.
    pub transaction: u8,
    /// A transaction that no server knows of yet.
    pub begun: Begun,
    /// What it has written so far, if that keeps its reads on the primary.
    pub written: Written,
    pub pools: Rc<PoolSet>,
    /// What it has set and prepared by SQL, and what it has left on its link.
    pub state: State,
    pub entry: Rc<Entry>,
    /// The client's prepared statements, by its names.
    pub named: HashMap<Box<[u8]>, Own>,
    pub unnamed: Option<Own>,
    /// Parses and Closes of the client's whose answer is due, in order, to be undone if they do not happen.
    pub journal: VecDeque<Entered>,
    /// Counts the client's Syncs: an error makes the server skip the rest of one segment only.
    pub segment: u32,
    /// Statements brought along whose ParseComplete is due, in order.
    pub bringing: VecDeque<(u32, StatementId)>,
    /// Descriptions that are looked at when they come, in order.
    pub described: VecDeque<Described>,
    /// A statement that the link was asked about for the message that waits: its answer decides.
    pub asked: Option<StatementId>,
    /// That message is a Describe: the parameters it was told, which it hears again should the answer be an error.
    pub asked_to_describe: Option<Rc<[u8]>>,
    /// What to say in place of the errors of Parses made to fail, in order.
    pub refusals: VecDeque<Refusal>,
    /// The node its reads go to.
    pub favourite: Option<NodeIndex>,
    /// Where its reads shall go, and what it has set for itself.
    pub wishes: Wishes,
    /// What it has seen, which it must go on seeing.
    pub causal: Causal,
    /// Where its names are looked up.
    pub place: Place,
    /// What is under way on a standby, to be sent again should it refuse.
    pub net: Net,
    /// What it is answered from memory, and what its writes make untrue.
    pub cached: Cached,
    /// Counts it among the sessions of its database.
    pub visit: Visit,
    /// A command on the whole session is on its way: what follows it waits until it is over.
    pub barrier: bool,
    /// All that comes up to the next Sync was seen, and only reads.
    pub only_reads: bool,
    /// Such a command was bound and not executed yet.
    pub verb_bound: bool,
    /// The client said goodbye or closed its side: what it sent before is still carried out.
    pub leaving: bool,
    /// When it has left, it ends by then, unless the server says something.
    pub leaves_by: Option<Instant>,
    /// Too many replies were due, and half of them still are.
    pub filling: bool,
    /// The unnamed statement was too long to be kept here: it is on the link only.
    pub unnamed_on_link: bool,
    /// An error was told that the server does not know of: all is dropped until the client's Sync.
    pub discarding: bool,
    /// The message that is next has been logged.
    pub is_message_logged: bool,
    /// A Flush was sent for the replies waited for.
    pub flushed: bool,
    /// The last message is one of a copy, for which no reply is counted.
    pub in_copy_message: bool,
    /// CopyData was sent on before the server said that it reads any.
    pub copied_ahead: bool,
    /// The statement bound last: what an Execute runs, for the log.
    pub bound: Option<Rc<Prepared>>,
    /// A statement of Weir's own that the unnamed portal stands for.
    pub portal: Option<Portal>,
    /// FATAL of the server, until its end of file follows.
    pub farewell: Option<Fault>,
    /// Something was sent over the link that begins or ends a transaction: if the link is lost, only the server knows what became of it.
    pub transacts: bool,
    /// A transaction of its wanted on a standby what only the primary does: those of one snapshot begin on the primary.
    pub shuns_standbys: bool,
}

/// A transaction whose BEGIN was answered by Weir. It is sent in front of the first statement, which says where.
#[derive(Debug, Default)]
pub enum Begun {
    /// There is none.
    #[default]
    No,
    /// No server knows of it.
    Held(Rc<Statement>),
    /// The same, and it has read outside of it.
    Reading(Rc<Statement>),
    /// It has failed, and no server knows of it.
    Failed(Rc<Statement>),
    /// It is on its way, and its answer due.
    Sent(Rc<Statement>),
}

impl Begun {
    /// No server knows of it.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self, Begun::Held(_) | Begun::Reading(_) | Begun::Failed(_))
    }

    /// The BEGIN of one that no server knows of.
    pub fn statement(&self) -> Option<&Rc<Statement>> {
        match self {
            Begun::Held(statement) | Begun::Reading(statement) | Begun::Failed(statement) => Some(statement),
            Begun::No | Begun::Sent(_) => None,
        }
    }

    /// It fails, if no server knows of it; a server knows by itself.
    pub fn fail(&mut self) {
        *self = match std::mem::take(self) {
            Begun::Held(statement) | Begun::Reading(statement) => Begun::Failed(statement),
            other @ (Begun::No | Begun::Failed(_) | Begun::Sent(_)) => other,
        };
    }

    /// A statement of it reads outside of it.
    #[inline]
    pub fn read(&mut self) {
        if matches!(self, Begun::Held(_)) {
            *self = match std::mem::take(self) {
                Begun::Held(statement) => Begun::Reading(statement),
                other => other,
            };
        }
    }
}

/// A statement the client has prepared.
#[derive(Clone)]
pub struct Own {
    pub prepared: Rc<Prepared>,
    /// What a server said of it then; the client goes by that.
    pub told: Shape,
    /// Its parameters as the server described them, which a server says once more before it refuses to describe the rest.
    pub parameters: Option<Rc<[u8]>>,
}

impl Own {
    pub fn new(prepared: Rc<Prepared>) -> Own {
        Own { prepared, told: Shape::UNKNOWN, parameters: None }
    }

    /// What a message that uses the statement goes by.
    #[inline]
    pub fn used(&self) -> (Rc<Prepared>, Shape) {
        (self.prepared.clone(), self.told)
    }
}

/// What a client is told in place of a server's error.
pub struct Refusal {
    /// The body of a ParameterDescription that comes before it.
    pub parameters: Option<Rc<[u8]>>,
    pub fault: Fault,
}

/// What a Parse or Close of the client's changed, to be taken back when an error before it made the server skip it.
pub enum Change {
    /// `made`: the statement a Parse prepared.
    Named {
        name: Box<[u8]>,
        before: Option<Own>,
        made: Option<StatementId>,
    },
    Unnamed {
        before: Option<Own>,
    },
    /// Close of a portal.
    Nothing,
}

impl Change {
    /// True if it is about this statement; the unnamed one has the empty name.
    fn is_of(&self, statement: &[u8]) -> bool {
        match self {
            Change::Named { name, .. } => **name == *statement,
            Change::Unnamed { .. } => statement.is_empty(),
            Change::Nothing => false,
        }
    }

    /// What the name was before, and is again if this is undone.
    pub fn before(&mut self) -> Option<&mut Own> {
        match self {
            Change::Named { before, .. } | Change::Unnamed { before } => before.as_mut(),
            Change::Nothing => None,
        }
    }
}

/// A change and the segment of the client's stream it came in.
pub struct Entered {
    pub segment: u32,
    pub change: Change,
}

/// A bound statement that Weir answers itself.
pub struct Portal {
    pub prepared: Rc<Prepared>,
    pub formats: Vec<u16>,
    /// It has been executed to its end.
    pub done: bool,
}

impl Session {
    pub fn new(client: Socket, pools: Rc<PoolSet>, state: State, entry: Rc<Entry>) -> Session {
        let place = Place::none(state.settings.clone());
        let visit = Visit::begin(&pools.known, &pools.user);
        Session {
            client,
            up: Lane::default(),
            down: Lane::default(),
            link: None,
            replies: Replies::default(),
            transaction: IDLE,
            begun: Begun::No,
            written: Written::default(),
            pools,
            state,
            entry,
            named: HashMap::new(),
            unnamed: None,
            journal: VecDeque::new(),
            segment: 0,
            bringing: VecDeque::new(),
            described: VecDeque::new(),
            asked: None,
            asked_to_describe: None,
            refusals: VecDeque::new(),
            favourite: None,
            wishes: Wishes::default(),
            causal: Causal::default(),
            place,
            net: Net::default(),
            cached: Cached::default(),
            visit,
            barrier: false,
            only_reads: false,
            verb_bound: false,
            leaving: false,
            leaves_by: None,
            filling: false,
            unnamed_on_link: false,
            discarding: false,
            is_message_logged: false,
            flushed: false,
            in_copy_message: false,
            copied_ahead: false,
            bound: None,
            portal: None,
            farewell: None,
            transacts: false,
            shuns_standbys: false,
        }
    }

    /// Takes back what an error kept from happening.
    pub fn undo(&mut self, dropped: Dropped) {
        let count = (dropped.changes as usize).min(self.journal.len());
        for at in (0..count).rev() {
            let Some(entered) = self.journal.remove(at) else { continue };
            // A Parse that the server refused has dropped the unnamed statement all the same.
            let refused = dropped.parse && at == 0;
            self.take_back(at, entered.change, refused);
        }
        for _ in 0..dropped.ours {
            if let Some((_, id)) = self.bringing.pop_front() {
                self.forget_on_link(id);
            }
        }
        self.described.drain(..(dropped.described as usize).min(self.described.len()));
        self.asked = None;
        // Whether the link's unnamed statement came before or after the failed message is not known: it is sent again when used.
        if let Some(link) = &mut self.link {
            link.unnamed = None;
        }
    }

    /// Notes a change that is on its way.
    pub fn enter(&mut self, change: Change) {
        self.journal.push_back(Entered { segment: self.segment, change });
    }

    /// True if it is not known yet what a name stands for: a change of an earlier segment may still turn out not to have happened.
    pub fn is_in_doubt(&self, statement: &[u8]) -> bool {
        let last = self.journal.iter().rev().find(|entered| entered.change.is_of(statement));
        last.is_some_and(|entered| entered.segment != self.segment)
    }

    /// True if the link may turn out not to have a statement after all: its Parse is on its way behind something that may fail.
    pub fn is_parse_in_doubt(&self, id: StatementId) -> bool {
        let made = |entered: &Entered| matches!(&entered.change, Change::Named { made: Some(made), .. } if *made == id);
        self.bringing.iter().any(|(segment, brought)| *brought == id && *segment != self.segment)
            || self.journal.iter().any(|entered| entered.segment != self.segment && made(entered))
    }

    /// Undoes the change that stood at `at` in the journal. If the name was changed again since, that change is what now began from
    /// the state before.
    fn take_back(&mut self, at: usize, change: Change, refused: bool) {
        match change {
            Change::Named { name, before, made } => {
                if let Some(id) = made {
                    self.forget_on_link(id);
                }
                let later = self.journal.iter_mut().skip(at).find(|entered| entered.change.is_of(&name));
                match (later.map(|entered| &mut entered.change), before) {
                    (Some(Change::Named { before: later, .. }), before) => *later = before,
                    (_, Some(before)) => {
                        self.named.insert(name, before);
                    }
                    (_, None) => {
                        self.named.remove(&name);
                    }
                }
            }
            Change::Unnamed { before } => {
                let restored = if refused { None } else { before };
                let later = self.journal.iter_mut().skip(at).find(|entered| entered.change.is_of(b""));
                match later.map(|entered| &mut entered.change) {
                    Some(Change::Unnamed { before: later }) => *later = restored,
                    _ => self.unnamed = restored,
                }
            }
            Change::Nothing => {}
        }
    }

    fn forget_on_link(&mut self, id: StatementId) {
        if let Some(link) = &mut self.link {
            link.known.forget(id);
            if link.unnamed.is_some_and(|(unnamed, _)| unnamed == id) {
                link.unnamed = None;
            }
        }
    }

    /// The link is gone with Parses and Closes under way: none of them happened.
    pub fn undo_all(&mut self) {
        while let Some(entered) = self.journal.pop_back() {
            self.take_back(self.journal.len(), entered.change, false);
        }
        self.bringing.clear();
        self.described.clear();
        self.refusals.clear();
    }

    /// Takes back what messages changed whose answers nobody has looked at: they are to be sent again.
    pub fn undo_for_again(&mut self) {
        while let Some((_, id)) = self.bringing.pop_front() {
            self.forget_on_link(id);
        }
        self.undo_all();
        if let Some(link) = &mut self.link {
            link.unnamed = None;
        }
    }

    /// The server dropped all prepared statements of the link, whoever's they were.
    pub fn deallocated(&mut self, w: &Worker) {
        self.named.clear();
        self.state.by_sql = w.shared.no_statements.clone();
        self.state.found = self.state.found.without(Leaves::of(Keeps::Prepare));
        if let Some(link) = &mut self.link {
            link.known.clear();
            link.by_sql = w.shared.no_statements.clone();
        }
    }

    /// Takes a link into use.
    pub fn take(&mut self, w: &Worker, link: Box<Link>) {
        let card = &link.card;
        card.session.store(self.entry.card.pid, Ordering::Relaxed);
        card.uses.store(card.uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        *self.entry.link.borrow_mut() = Some(card.clone());
        link.socket.set_task(w.reactor.current_task());
        self.entry.card.set_doing(Doing::Executing);
        self.link = Some(link);
    }

    /// Transaction status as the client knows it.
    #[inline]
    pub fn status(&self) -> u8 {
        match self.begun {
            Begun::No | Begun::Sent(_) => self.transaction,
            Begun::Held(_) | Begun::Reading(_) => WITHIN,
            Begun::Failed(_) => FAILED,
        }
    }

    /// True if nothing is under way on the link.
    pub fn is_at_rest(&self) -> bool {
        self.transaction == IDLE
            && self.replies.is_settled()
            && !self.up.has_pending()
            && !self.up.is_mid_message()
            && !self.down.has_unseen()
            && !self.down.is_mid_message()
    }

    /// Nothing is there to be moved from the client or to it.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.client.is_readable() && !self.up.has_unseen() && !self.up.has_pending() && !self.down.has_pending() && !self.leaving
    }

    /// Forgets the link's side of the session.
    pub fn detach(&mut self) {
        *self.entry.link.borrow_mut() = None;
        self.entry.is_ours.set(false);
        self.entry.cancel_waits.set(false);
        self.entry.card.set_doing(if self.begun.is_open() { Doing::IdleInTransaction } else { Doing::Idle });
        self.net.reset();
        // That its server process ends concerns whoever gets it next.
        self.farewell = None;
        self.transacts = false;
        (self.asked, self.asked_to_describe) = (None, None);
        self.state.refused.clear();
        self.flushed = false;
    }

    /// What names stand for may have changed: nobody who hears of it may rely on what was known before.
    #[cold]
    pub fn tell_change(&mut self, w: &Worker) {
        self.state.redefines = false;
        w.shared.note_change(&self.pools.known);
        std::mem::take(&mut self.state.unseats).iter().for_each(|user| w.unseat(user));
    }

    /// Appends an error for the client. Must not be called in the middle of a server's message.
    pub fn say_error(&mut self, w: &Worker, fault: &Fault) {
        self.begun.fail();
        fault.write(self.down.extra(&w.buffers));
    }

    pub fn say_ready(&mut self, w: &Worker) {
        if self.replies.is_empty() {
            self.entry.clock.asked_since.set(None);
        }
        let status = self.status();
        write::ready(self.down.extra(&w.buffers), status);
    }

    /// Appends a message without a body for the client.
    pub fn say_bare(&mut self, w: &Worker, tag: u8) {
        write::bare(self.down.extra(&w.buffers), tag);
    }

    /// True if the server may read another statement than Weir's parser does. What is under way may change how it reads.
    #[inline]
    pub fn is_misread(&self, statement: &Statement) -> bool {
        statement.is_delicate && ((self.state.moves_ahead && !self.replies.is_only_ours()) || self.reads_otherwise())
    }

    /// True if servers read the session's texts otherwise than Weir's parser does: with backslashes as escapes, or in another encoding than
    /// UTF-8. Such a session is on the primary and keeps its link; nothing is kept of what it hears.
    #[inline]
    pub fn reads_otherwise(&self) -> bool {
        self.state.begins_otherwise || self.escapes() || self.is_recoded()
    }

    /// True if a backslash in a string is an escape: only with `standard_conforming_strings` off.
    #[inline]
    fn escapes(&self) -> bool {
        let set = self.state.reading.escapes;
        let Some(link) = &self.link else { return set == Some(true) };
        // What the server said last is so, unless it is told otherwise right now.
        let is_off = link.escapes && !self.replies.is_setting();
        set == Some(true) || is_off || (set.is_none() && link.begins_with_escapes)
    }

    #[inline]
    fn is_recoded(&self) -> bool {
        let set = self.state.reading.recoded;
        let Some(link) = &self.link else { return set == Some(true) };
        let is_other = link.is_recoded && !self.replies.is_setting();
        set == Some(true) || is_other || (set.is_none() && link.begins_recoded)
    }

    /// True if something of our own may be said now: all that was asked before is answered, to its last byte.
    pub fn may_speak(&self) -> bool {
        self.replies.is_empty() && !self.down.is_mid_message()
    }
}
