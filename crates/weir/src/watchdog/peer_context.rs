//! State that the tasks of all links share: settings, hosts, sockets and the way to the log. One thread owns it.

use crate::log::{Level, ProxyLog};
use crate::watchdog::peer_handshake::PeerLinkFault;
use crate::watchdog::peer_host::{PeerHost, PeerHosts};
use crate::watchdog::peer_names::PeerNames;
use crate::watchdog::peer_settings::PeerSettings;
use crate::watchdog::peer_sockets::FamilySocket;
use crate::watchdog::told_news::ToldNews;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use weir_group::{GroupMessage, HostNumber, MemberId};

/// Connections that have not proved themselves yet; beyond it the oldest is closed.
const STRANGERS_MAX: usize = 32;

#[derive(Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The first of the copies that come over all paths. A copy that comes much later is heard again.
    Heard(Box<GroupMessage>),
    /// The last link from this member was closed by its end: its process ended, or ends its links.
    LinkClosed { member: MemberId },
}

pub struct PeerContext {
    pub log: Arc<ProxyLog>,
    pub events: mpsc::Sender<PeerEvent>,
    pub names: PeerNames,
    pub datagram_senders: RefCell<Vec<FamilySocket>>,
    settings: RefCell<Rc<PeerSettings>>,
    hosts: RefCell<PeerHosts>,
    /// Of links, so that all end at once.
    tasks: RefCell<JoinSet<()>>,
    strangers: RefCell<VecDeque<(u64, AbortHandle)>>,
    next_stranger: Cell<u64>,
    refusals: RefCell<ToldNews>,
    last_refusal: RefCell<Option<String>>,
    /// Messages that were heard and not passed on, since the receiver of events was too slow.
    pub overflow: Cell<u64>,
}

impl PeerContext {
    pub fn new(settings: PeerSettings, log: Arc<ProxyLog>, events: mpsc::Sender<PeerEvent>) -> PeerContext {
        PeerContext {
            names: PeerNames::new(log.clone()),
            log,
            events,
            datagram_senders: RefCell::default(),
            settings: RefCell::new(Rc::new(settings)),
            hosts: RefCell::default(),
            tasks: RefCell::default(),
            strangers: RefCell::default(),
            next_stranger: Cell::new(0),
            refusals: RefCell::default(),
            last_refusal: RefCell::default(),
            overflow: Cell::new(0),
        }
    }

    pub fn settings(&self) -> Rc<PeerSettings> {
        self.settings.borrow().clone()
    }

    pub fn set_settings(&self, settings: PeerSettings) {
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    pub fn host(&self, number: HostNumber) -> Option<Rc<PeerHost>> {
        self.hosts.borrow().get(&number).cloned()
    }

    pub fn hosts(&self) -> std::cell::RefMut<'_, PeerHosts> {
        self.hosts.borrow_mut()
    }

    /// Needs a `LocalSet` around it.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let mut tasks = self.tasks.borrow_mut();
        // Ended tasks are forgotten here, so that the set stays small.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task)
    }

    /// A place among those who have not proved themselves, for the task that `begin` starts.
    pub fn add_stranger(self: &Rc<PeerContext>, begin: impl FnOnce(StrangerPlace) -> AbortHandle) {
        let number = self.next_stranger.get();
        self.next_stranger.set(number + 1);
        let task = begin(StrangerPlace { context: self.clone(), number });
        let mut strangers = self.strangers.borrow_mut();
        if strangers.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = strangers.pop_front()
        {
            oldest.abort();
        }
        strangers.push_back((number, task));
    }

    pub fn end_strangers(&self) {
        for (_, task) in self.strangers.borrow_mut().drain(..) {
            task.abort();
        }
    }

    /// A connection was refused. The reason is told once for each address.
    pub fn refuse(&self, from: IpAddr, fault: &PeerLinkFault) {
        let text = format!("{from}: {fault}");
        if self.refusals.borrow_mut().is_news(&text, Instant::now()) {
            self.log.say(Level::Warning, format_args!("watchdog: a link from {from} is refused: {fault}"));
        }
        *self.last_refusal.borrow_mut() = Some(text);
    }

    /// An address got in: its next refusal is news.
    pub fn forget_refusals(&self, from: IpAddr) {
        self.refusals.borrow_mut().forget(&format!("{from}: "));
    }

    pub fn last_refusal(&self) -> Option<String> {
        self.last_refusal.borrow().clone()
    }

    /// Ends all links and lookups. The set is returned for those who wait for the ends of its tasks.
    pub fn end(&self) -> JoinSet<()> {
        std::mem::take(&mut *self.hosts.borrow_mut()).into_values().for_each(|host| host.end());
        self.names.forget_all();
        self.end_strangers();
        self.datagram_senders.borrow_mut().clear();
        let mut tasks = self.tasks.take();
        tasks.abort_all();
        tasks
    }
}

/// Frees the place on drop.
pub struct StrangerPlace {
    context: Rc<PeerContext>,
    number: u64,
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.context.strangers.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}
