//! Listening sessions of one worker, user and database. `listen_task` feeds the hub from one server connection.

use crate::session_state::listen::channels::{Channels, ListenedChannels, Mark};
use crate::task::{NO_TASK, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use weir_wire::frame::{HEADER_BYTES, split_cstr};
use weir_wire::write::identifier;

/// Limit of waiting notifications; beyond it the session ends. PostgreSQL keeps 8 GB for all.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// Above this, and above the channels that stay, one `UNLISTEN *` drops all.
const UNLISTENED_APART_MAX: usize = 16;

/// Memory of an event beside its bytes.
const EVENT_BYTES: usize = 64;

pub enum HubEvent {
    Notification {
        frame: Rc<[u8]>,
    },
    Mark(Mark),
    /// The connection broke; notifications are lost until it is back.
    Lost,
    /// The connection is back.
    Again,
}

pub struct NotificationInbox {
    /// Its number in marks. Never given twice, unlike process ids: a mark may arrive after its session left.
    pub(crate) number: u64,
    task: TaskId,
    events: RefCell<VecDeque<HubEvent>>,
    bytes: Cell<usize>,
    is_over: Cell<bool>,
    wanted: RefCell<Channels>,
}

impl NotificationInbox {
    pub fn lose(&self) {
        self.push(HubEvent::Lost);
    }

    fn push(&self, event: HubEvent) {
        let bytes = EVENT_BYTES + if let HubEvent::Notification { frame } = &event { frame.len() } else { 0 };
        if self.bytes.get() + bytes > WAITING_BYTES_MAX {
            self.is_over.set(true);
            return;
        }
        self.bytes.set(self.bytes.get() + bytes);
        self.events.borrow_mut().push_back(event);
    }

    pub fn next_if(&self, take: impl FnOnce(&HubEvent) -> bool) -> Option<HubEvent> {
        let mut events = self.events.borrow_mut();
        if !take(events.front()?) {
            return None;
        }
        let event = events.pop_front()?;
        let bytes = EVENT_BYTES + if let HubEvent::Notification { frame } = &event { frame.len() } else { 0 };
        self.bytes.set(self.bytes.get() - bytes);
        Some(event)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.events.borrow().is_empty() && !self.is_over.get()
    }

    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }
}

/// A session's part, until dropped.
pub struct HubSubscription {
    pub(crate) hub: Rc<NotificationHub>,
    pub(crate) inbox: Rc<NotificationInbox>,
    pub(crate) rules: ListenedChannels,
    /// Server process of the last transaction that may have notified.
    pub(crate) pid: u32,
}

impl Drop for HubSubscription {
    fn drop(&mut self) {
        self.hub.leave(&self.inbox);
    }
}

pub struct NotificationHub {
    /// The servers' user, the clients' name of the database, the servers'.
    pub key: (Arc<str>, Arc<str>, Arc<str>),
    /// Channel of the marks, with a secret name.
    pub(crate) marks: String,
    pub task: Cell<TaskId>,
    /// Encoding of channels and payloads; empty while unknown.
    pub encoding: RefCell<String>,
    inboxes: RefCell<HashMap<u64, Rc<NotificationInbox>>>,
    joined: Cell<u64>,
    by_channel: RefCell<HashMap<Vec<u8>, Vec<Rc<NotificationInbox>>>>,
    /// Confirmed by the server.
    listened: RefCell<HashSet<Vec<u8>>>,
}

impl NotificationHub {
    pub fn new(key: (Arc<str>, Arc<str>, Arc<str>), secret: [u8; 8]) -> NotificationHub {
        NotificationHub {
            key,
            marks: format!("weir_marks_{:016x}", u64::from_le_bytes(secret)),
            task: Cell::new(NO_TASK),
            encoding: RefCell::default(),
            inboxes: RefCell::default(),
            joined: Cell::new(0),
            by_channel: RefCell::default(),
            listened: RefCell::default(),
        }
    }

    pub fn join(self: &Rc<NotificationHub>, task: TaskId) -> HubSubscription {
        let number = self.joined.get() + 1;
        self.joined.set(number);
        let inbox = Rc::new(NotificationInbox {
            number,
            task,
            events: RefCell::default(),
            bytes: Cell::new(0),
            is_over: Cell::new(false),
            wanted: RefCell::default(),
        });
        self.inboxes.borrow_mut().insert(number, inbox.clone());
        HubSubscription { hub: self.clone(), inbox, rules: ListenedChannels::default(), pid: 0 }
    }

    fn leave(&self, inbox: &Rc<NotificationInbox>) {
        self.want(inbox, Channels::default());
        self.inboxes.borrow_mut().remove(&inbox.number);
    }

    /// Sets a session's channels. True: they have changed, which the task must hear.
    pub fn want(&self, inbox: &Rc<NotificationInbox>, wanted: Channels) -> bool {
        let mut before = inbox.wanted.borrow_mut();
        if *before == wanted {
            return false;
        }
        let mut by_channel = self.by_channel.borrow_mut();
        for gone in before.difference(&wanted) {
            if let Some(inboxes) = by_channel.get_mut(gone) {
                inboxes.retain(|other| !Rc::ptr_eq(other, inbox));
                if inboxes.is_empty() {
                    by_channel.remove(gone);
                }
            }
        }
        for new in wanted.difference(&before) {
            by_channel.entry(new.clone()).or_default().push(inbox.clone());
        }
        *before = wanted;
        true
    }

    pub fn is_unused(&self) -> bool {
        self.inboxes.borrow().is_empty()
    }

    /// True if the server has confirmed the channel.
    pub fn has(&self, channel: &[u8]) -> bool {
        self.listened.borrow().contains(channel)
    }

    /// `None`: no change. Returns the statements, and the channels listened to after them.
    pub fn change(&self) -> Option<(String, HashSet<Vec<u8>>)> {
        let by_channel = self.by_channel.borrow();
        let mut listened = self.listened.borrow_mut();
        let marks = self.marks.as_bytes();
        let mut sql = String::new();
        let wanted = || by_channel.keys().map(Vec::as_slice).chain([marks]);
        let stays = |channel: &Vec<u8>| channel == marks || by_channel.contains_key(channel);
        let left = listened.iter().filter(|channel| stays(channel)).count();
        if listened.len() - left > left.max(UNLISTENED_APART_MAX) {
            // A server searches its list per statement. All this is one transaction: no notification is lost.
            sql.push_str("UNLISTEN *");
            listened.clear();
        }
        for new in wanted().filter(|channel| !listened.contains(*channel)) {
            push_statement(&mut sql, "LISTEN ", new);
        }
        // No session may count on these from now on, even before the server's answer.
        listened.retain(|channel| {
            let stays = stays(channel);
            if !stays {
                push_statement(&mut sql, "UNLISTEN ", channel);
            }
            stays
        });
        (!sql.is_empty()).then(|| (sql, wanted().map(<[u8]>::to_vec).collect()))
    }

    pub fn confirm(&self, listened: HashSet<Vec<u8>>) {
        *self.listened.borrow_mut() = listened;
    }

    pub fn again(&self) {
        self.inboxes
            .borrow()
            .values()
            .filter(|inbox| !inbox.wanted.borrow().is_empty())
            .for_each(|inbox| inbox.push(HubEvent::Again));
    }

    pub fn tasks(&self) -> Vec<TaskId> {
        self.inboxes.borrow().values().map(|inbox| inbox.task).collect()
    }

    pub fn lose(&self) {
        self.listened.borrow_mut().clear();
        self.inboxes.borrow().values().for_each(|inbox| inbox.lose());
    }

    /// Hands a NotificationResponse to its sessions. `None`: malformed.
    pub fn hand(&self, frame: &[u8], wake: impl Fn(TaskId)) -> Option<()> {
        let notification = NotificationBody::read(frame.get(HEADER_BYTES..)?)?;
        if notification.channel == self.marks.as_bytes() {
            let (number, mark) = notification.mark()?;
            if let Some(inbox) = self.inboxes.borrow().get(&number) {
                inbox.push(HubEvent::Mark(mark));
                wake(inbox.task);
            }
            return Some(());
        }
        if let Some(inboxes) = self.by_channel.borrow().get(notification.channel) {
            let frame: Rc<[u8]> = frame.into();
            for inbox in inboxes {
                inbox.push(HubEvent::Notification { frame: frame.clone() });
                wake(inbox.task);
            }
        }
        Some(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationBody<'a> {
    pub(crate) pid: u32,
    pub(crate) channel: &'a [u8],
    payload: &'a [u8],
}

impl<'a> NotificationBody<'a> {
    pub fn read(body: &'a [u8]) -> Option<NotificationBody<'a>> {
        let (pid, rest) = body.split_first_chunk::<4>()?;
        let (channel, rest) = split_cstr(rest)?;
        let (payload, rest) = split_cstr(rest)?;
        rest.is_empty().then_some(NotificationBody { pid: u32::from_be_bytes(*pid), channel, payload })
    }

    /// Returns the inbox's number and the mark.
    pub fn mark(&self) -> Option<(u64, Mark)> {
        let (number, mark) = std::str::from_utf8(self.payload).ok()?.split_once(':')?;
        Some((number.parse().ok()?, mark.parse().ok()?))
    }
}

/// Appends a statement about a channel, after a semicolon if needed.
pub fn push_statement(sql: &mut String, verb: &str, channel: &[u8]) {
    if !sql.is_empty() {
        sql.push_str("; ");
    }
    sql.push_str(verb);
    identifier(sql, &String::from_utf8_lossy(channel));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channel: &str, payload: &str) -> Vec<u8> {
        let body = [&7u32.to_be_bytes(), channel.as_bytes(), b"\0", payload.as_bytes(), b"\0"].concat();
        [&b"A"[..], &(body.len() as u32 + 4).to_be_bytes(), &body].concat()
    }

    fn channels(names: &[&str]) -> Channels {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn count(subscription: &HubSubscription) -> usize {
        std::iter::from_fn(|| subscription.inbox.next_if(|_| true)).count()
    }

    #[test]
    fn each_session_gets_what_it_wants() {
        let hub = Rc::new(NotificationHub::new(("joe".into(), "db".into(), "db".into()), [1; 8]));
        let (one, two) = (hub.join(11), hub.join(22));
        assert!(hub.want(&one.inbox, channels(&["a", "b\""])) && !hub.want(&one.inbox, channels(&["a", "b\""])));
        hub.want(&two.inbox, channels(&["a"]));
        let (sql, after) = hub.change().unwrap();
        assert!(sql.contains("LISTEN \"b\"\"\"") && sql.contains("LISTEN \"a\"") && sql.contains(&hub.marks), "{sql}");
        hub.confirm(after);
        assert!(hub.has(b"a") && hub.change().is_none());
        hub.hand(&frame("a", "x"), |_| {}).unwrap();
        hub.hand(&frame("b\"", "x"), |_| {}).unwrap();
        hub.hand(&frame("c", "x"), |_| {}).unwrap();
        hub.hand(&frame(&hub.marks.clone(), "2:5"), |task| assert_eq!(task, 22)).unwrap();
        assert_eq!((count(&one), count(&two)), (2, 2));
        drop(one);
        assert_eq!(hub.change().unwrap().0, "UNLISTEN \"b\"\"\"");
        assert!(!hub.has(b"b\""), "it may be gone already");
        drop(two);
        assert!(hub.is_unused());
        assert!(hub.hand(b"A\0\0\0\x08\0\0\0\0", |_| {}).is_none());
    }

    #[test]
    fn many_channels_are_left_at_once() {
        let hub = Rc::new(NotificationHub::new(("joe".into(), "db".into(), "db".into()), [1; 8]));
        let (one, two) = (hub.join(11), hub.join(22));
        let many: Vec<String> = (0..10_000).map(|number| format!("c{number}")).collect();
        hub.want(&one.inbox, many.iter().map(|name| name.as_bytes().to_vec()).collect());
        hub.want(&two.inbox, channels(&["c7"]));
        hub.confirm(hub.change().unwrap().1);
        drop(one);
        let (sql, after) = hub.change().unwrap();
        assert_eq!(sql.matches("; ").count(), 2, "{sql}");
        assert!(sql.starts_with("UNLISTEN *; LISTEN ") && sql.contains("\"c7\"") && sql.contains(&hub.marks), "{sql}");
        assert!(!hub.has(b"c7"), "not before the server has answered");
        hub.confirm(after);
        assert!(hub.has(b"c7") && !hub.has(b"c8") && hub.change().is_none());
    }

    #[test]
    fn what_waits_for_one_session_is_bounded() {
        let hub = Rc::new(NotificationHub::new(("joe".into(), "db".into(), "db".into()), [1; 8]));
        let slow = hub.join(11);
        hub.want(&slow.inbox, channels(&["a"]));
        let long = frame("a", &"x".repeat(8000));
        for _ in 0..WAITING_BYTES_MAX / 8000 + 1 {
            hub.hand(&long, |_| {}).unwrap();
        }
        assert!(slow.inbox.is_over() && !slow.inbox.is_empty());
    }
}
