//! LISTEN without a server connection of one's own: moves a session's channels to the hub, and delivers its notifications.
//! Decisions are `session::session_state::listen::channels`'.

pub mod channels;
pub mod listen_hub;

use crate::causal;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::metrics::WorkerCounter;
use crate::replies::ExpectedReply;
use crate::session::{IDLE, Session};
use crate::session_state::hidden_state::may_act_unseen;
use crate::session_state::listen::channels::{Channels, HubEventTreatment, ListenStep, Mark, MayMark};
use crate::session_state::listen::listen_hub::{
    HubEvent, HubSubscription, NotificationBody, NotificationHub, NotificationInbox, WAITING_BYTES_MAX, push_statement,
};
use crate::session_state::pins::show_pin;
use crate::session_state::send;
use crate::statements::{Statement, StatementTrait};
use weir_sql::facts::{StateKind, StateKinds, TransactionVerb};
use weir_wire::frame::{HEADER_BYTES, MessageHeader};
use weir_wire::write::{self, OutgoingReport};

/// Size of a NotificationResponse up to its process id.
const HEAD_BYTES: usize = HEADER_BYTES + 4;

pub(super) fn on_answer(s: &mut Session, w: &Context, channels: Channels) {
    if s.state.listening.is_none() {
        if channels.is_empty() {
            return;
        }
        let hub = s.host.hub();
        s.state.listening = Some(Box::new(hub.join(s.handle.task.get())));
    }
    let Some(subscription) = &mut s.state.listening else { return };
    subscription.rules.on_answer(channels);
    tell_hub(s, w);
}

fn tell_hub(s: &mut Session, w: &Context) {
    let Some(HubSubscription { hub, inbox, rules, .. }) = s.state.listening.as_deref_mut() else { return };
    if hub.want(inbox, rules.wanted()) {
        s.host.wake((w.id, hub.task.get()));
    }
    if rules.is_empty() {
        s.state.listening = None;
    }
}

const MISSED: OutgoingReport<'static> = OutgoingReport {
    severity: "NOTICE",
    sqlstate: "00000",
    message: "the connection over which notifications come was lost and stands again",
    detail: "Notifications that were sent meanwhile are lost.",
    hint: "Look at what they would have told of.",
    routine: "",
};

const UNLISTEN: &str = "UNLISTEN *";

/// True: a query was sent.
pub(super) fn advance(s: &mut Session, w: &Context) -> bool {
    let Some(HubSubscription { hub, inbox, rules, .. }) = s.state.listening.as_deref_mut() else { return false };
    // Names and payloads come in the connection's encoding.
    let encoding = s.server.as_ref().map(|server| server.conn.reported("client_encoding"));
    let is_alike = encoding.is_some_and(|encoding| encoding == *hub.encoding.borrow());
    match rules.step(|channel| is_alike && hub.has(channel)) {
        ListenStep::Nothing => return false,
        ListenStep::Unlisten => {}
        ListenStep::Mark(mark) => {
            let mut sql = String::new();
            push_statement(&mut sql, "LISTEN ", hub.marks.as_bytes());
            sql.push_str("; ");
            sql.push_str(&notify(hub, inbox, mark));
            w.count(WorkerCounter::ListensMoved);
            send(s, w, &sql, ExpectedReply::PrepareOurs);
        }
    }
    send(s, w, UNLISTEN, ExpectedReply::UnlistenOurs);
    true
}

fn notify(hub: &NotificationHub, inbox: &NotificationInbox, mark: Mark) -> String {
    format!("NOTIFY {}, '{}:{mark}'", hub.marks, inbox.number)
}

pub fn unlistened(s: &mut Session, w: &Context) {
    if let Some(subscription) = &mut s.state.listening {
        subscription.rules.conn_done();
    }
    if let Some(upstream) = s.upstream_mut() {
        upstream.left.found = upstream.left.found.without(StateKinds::of(StateKind::Listen));
    }
    show_pin(s, w);
    tell_hub(s, w);
}

/// Tells the server all channels before a statement that may look at them or end them, and sends a mark before one that may
/// notify.
#[cold]
pub fn prepare(s: &mut Session, w: &Context, statement: &Statement) {
    const LOOKS: StateKinds = StateKinds::of(StateKind::Listen).with(StateKind::Unknown).with(StateKind::Unread);
    let is_before = s.transaction() == IDLE && s.replies().is_only_ours() && !s.up.is_mid_message();
    let is_primary = s.conn().is_some_and(|conn| conn.is_to_primary(&w.view()));
    let is_asking = s.upstream().is_some_and(|upstream| upstream.left.asking.is_some());
    let acts_unseen = is_before && may_act_unseen(s, w, statement);
    if s.state.listening.is_none() {
        return;
    }
    let begins = matches!(statement.transaction, TransactionVerb::Begin(_) | TransactionVerb::Many);
    let looks = begins
        || acts_unseen
        || statement.has(StatementTrait::ShowsChannels)
        || !statement.state.leaves.and(statement.state.frees).common(LOOKS).is_empty();
    if is_primary && is_before && looks && is_asking {
        // The answer to the earlier question would miss the channels brought now.
        s.raise_barrier();
        return;
    }
    let is_behind = s.transaction() == IDLE && s.replies().is_one_query();
    if is_primary && is_behind && statement.has(StatementTrait::ShowsChannels) {
        // Only a single query surely ends without waiting for this statement.
        s.raise_barrier();
        return;
    }
    let Some(HubSubscription { rules, .. }) = s.state.listening.as_deref_mut() else { return };
    if is_primary
        && is_before
        && looks
        && let Some(channels) = rules.bring()
    {
        let mut sql = String::new();
        channels.iter().for_each(|channel| push_statement(&mut sql, "LISTEN ", channel));
        s.upstream_mut().into_iter().for_each(|upstream| upstream.left.due.kinds.add(StateKind::Listen));
        send(s, w, &sql, ExpectedReply::PrepareOurs);
    }
    if !(is_primary && statement.has(StatementTrait::Notifies)) {
        return;
    }
    let Some(HubSubscription { hub, inbox, rules, .. }) = s.state.listening.as_deref_mut() else { return };
    let may_mark = if is_before { MayMark::Yes } else { MayMark::No };
    if let Some(mark) = rules.open_fence(may_mark) {
        let sql = notify(hub, inbox, mark);
        send(s, w, &sql, ExpectedReply::PrepareOurs);
    }
}

/// True: the end of the transaction is told once its notifications have come.
#[cold]
pub fn holds_ready(s: &mut Session, w: &Context) -> bool {
    // Messages behind it would be answered before the mark comes.
    let may_mark = s.replies().is_settled() && !s.up.is_mid_message() && s.has_server();
    let Some(subscription) = &mut s.state.listening else { return false };
    let may_mark = if may_mark && subscription.hub.has(subscription.hub.marks.as_bytes()) { MayMark::Yes } else { MayMark::No };
    let Some(mark) = subscription.rules.close_fence(may_mark) else { return false };
    subscription.pid = s.server.as_ref().map_or(0, |server| server.conn.status.pid);
    let sql = notify(&subscription.hub, &subscription.inbox, mark);
    send(s, w, &sql, ExpectedReply::PrepareOurs);
    true
}

/// True: the notification was rewritten or dropped.
pub fn takes(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    let Some(notification) = s.down.whole(header).and_then(NotificationBody::read) else { return false };
    if let Some(HubSubscription { hub, inbox, rules, .. }) = s.state.listening.as_deref_mut() {
        let is_mark = notification.channel == hub.marks.as_bytes();
        // Own marks begin at 1.
        let mark = notification.mark().filter(|(number, _)| *number == inbox.number).map_or(0, |(_, mark)| mark);
        let is_passed = rules.on_conn(notification.channel, is_mark.then_some(mark));
        if !is_passed {
            s.down.eat(header);
            tell_hub(s, w);
            return true;
        }
    }
    let is_own = s.server.as_ref().is_some_and(|server| server.conn.status.pid == notification.pid);
    if is_own {
        // The client knows the session's number as its process id.
        let pid = s.handle.status.pid;
        s.down.pass_with_head(header, HEAD_BYTES, &w.buffers, |head, out| {
            out.extend_from_slice(&head[..HEADER_BYTES]);
            out.extend(pid.to_be_bytes());
        });
    }
    is_own
}

#[inline]
pub fn is_holding(s: &Session) -> bool {
    s.state.listening.as_ref().is_some_and(|subscription| subscription.rules.is_closing())
}

/// Delivers to an idle client outside of a transaction, as PostgreSQL does. True: something was said.
#[cold]
pub fn deliver(s: &mut Session, w: &Context) -> Result<bool, ErrorReport> {
    // A statement's effect on the channels must be known first.
    let is_known = s.upstream().is_none_or(|upstream| upstream.left.due.is_empty());
    let is_quiet = s.transaction() == IDLE && s.replies().is_settled() && !s.down.is_mid_message() && !s.down.has_pending();
    let may_speak = is_known && is_quiet;
    if may_speak { deliver_now(s, w) } else { check_room(s).map(|()| false) }
}

fn check_room(s: &Session) -> Result<(), ErrorReport> {
    if !s.state.listening.as_ref().is_some_and(|subscription| subscription.inbox.is_over()) {
        return Ok(());
    }
    let text = format!("more than {WAITING_BYTES_MAX} bytes of notifications wait for this session, which does not take them");
    Err(ErrorReport::fatal(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)
        .hint("Read notifications in time: they wait while a transaction is open and while the client does not read."))
}

/// As `deliver`, right before a ReadyForQuery.
#[cold]
pub fn deliver_now(s: &mut Session, w: &Context) -> Result<bool, ErrorReport> {
    check_room(s)?;
    let mut said = false;
    let mut released = false;
    let Some(HubSubscription { inbox, rules, pid: server, .. }) = s.state.listening.as_deref_mut() else { return Ok(false) };
    if inbox.is_empty() {
        return Ok(false);
    }
    loop {
        let mut verdict = HubEventTreatment::Drop;
        let taken = inbox.next_if(|event| {
            verdict = match event {
                HubEvent::Again => HubEventTreatment::Deliver,
                event => rules.on_event(as_seen(event)),
            };
            verdict != HubEventTreatment::Wait
        });
        let Some(event) = taken else { break };
        match (verdict, event) {
            (HubEventTreatment::Deliver | HubEventTreatment::DeliverOwn, HubEvent::Notification { frame }) => {
                let out = s.down.extra(&w.buffers);
                let sender = &frame[HEADER_BYTES..HEAD_BYTES];
                out.extend_from_slice(&frame[..HEADER_BYTES]);
                match verdict == HubEventTreatment::DeliverOwn && sender == server.to_be_bytes() {
                    true => out.extend(s.handle.status.pid.to_be_bytes()),
                    false => out.extend_from_slice(sender),
                }
                out.extend_from_slice(&frame[HEAD_BYTES..]);
                said = true;
            }
            (HubEventTreatment::Release, _) => {
                released = true;
                break;
            }
            (_, HubEvent::Again) => {
                write::notice(s.down.extra(&w.buffers), &MISSED);
                said = true;
            }
            _ => {}
        }
    }
    tell_hub(s, w);
    if said {
        // A notification tells of a commit on the primary, through another connection.
        causal::heard_from_memory(s, w, w.shared.positions.next_round());
    }
    if released {
        s.say_ready(w);
    }
    Ok(said || released)
}

fn as_seen(event: &HubEvent) -> channels::ChannelEvent<'_> {
    match event {
        HubEvent::Notification { frame } => {
            let notification = NotificationBody::read(frame.get(HEADER_BYTES..).unwrap_or_default());
            channels::ChannelEvent::Notification { channel: notification.map_or(&[], |notification| notification.channel) }
        }
        HubEvent::Mark(mark) => channels::ChannelEvent::Mark(*mark),
        HubEvent::Lost | HubEvent::Again => channels::ChannelEvent::Lost,
    }
}

pub fn own_texts() -> Vec<String> {
    let mut listen = String::new();
    push_statement(&mut listen, "LISTEN ", b"a\"b");
    vec![listen, UNLISTEN.to_owned(), "NOTIFY weir_1, '1:2'".to_owned()]
}
