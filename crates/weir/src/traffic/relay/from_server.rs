//! What a server says: passed on, looked into where the session must know of it, or eaten where it answers a query of ours.

use super::{drain_down, misplaced, settle};
use crate::client::inventory;
use crate::client::session::{Begun, FAILED, IDLE, Own, Refusal, Session, WITHIN};
use crate::client::session_card::Doing;
use crate::client::state::{Claim, State};
use crate::control::mail::Nudge;
use crate::io::socket::Got;
use crate::monitor::fault::Fault;
use crate::monitor::stats::Stat;
use crate::process::worker::Worker;
use crate::traffic::begun;
use crate::traffic::cached;
use crate::traffic::causal;
use crate::traffic::extended;
use crate::traffic::leaving;
use crate::traffic::net;
use crate::traffic::shapes;
use crate::traffic::timing;
use std::collections::HashMap;
use std::rc::Rc;
use weir_policy::net::is_of_recovery;
use weir_policy::replies::{Dropped, Reply, Whose};
use weir_wire::back::{Report, read_report};
use weir_wire::frame::{HEADER_BYTES, Header, back};

/// Lengths of the command tags that are looked at: `DISCARD ALL`, `DEALLOCATE ALL`, each with its NUL.
const SESSION_TAG_BYTES: [u32; 2] = [12, 15];

/// Error messages up to this size are looked into; longer ones pass unread.
const LOOK_BYTES_MAX: usize = 16 << 10;

/// Moves all the server has sent as far as it can go. Says whether anything moved.
pub(super) fn pump_server(s: &mut Session, w: &Rc<Worker>) -> Result<bool, Fault> {
    if s.down.has_pending() && !drain_down(s, w)? {
        return Ok(false);
    }
    if !read_more(s, w)? {
        return Ok(false);
    }
    if s.link.is_none() {
        drain_down(s, w)?;
        return Ok(true);
    }
    loop {
        let peeked = s.down.peek(&w.buffers);
        let header = match peeked {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(error) => {
                leaving::link_lost(s, w, &error.to_string())?;
                break;
            }
        };
        if net::holds_back(s, w) {
            if s.link.is_none() {
                cached::undone(s);
            }
            break;
        }
        if !on_server(s, w, header)? {
            break;
        }
    }
    s.down.rest_if_empty(&w.buffers);
    drain_down(s, w)?;
    settle(s, w)?;
    Ok(true)
}

/// Reads from the server. False: nothing came. A link that is lost is gone then.
#[inline]
fn read_more(s: &mut Session, w: &Rc<Worker>) -> Result<bool, Fault> {
    let Some(link) = &s.link else { return Ok(false) };
    match s.down.fill(&link.socket, &w.reactor) {
        Ok(Got::Bytes(bytes)) => {
            s.pools.stats.add(Stat::Sent, bytes as u64);
            s.leaves_by = None;
            causal::heard(s, w);
            Ok(true)
        }
        Ok(Got::Nothing) => Ok(false),
        Ok(Got::End) => leaving::link_lost(s, w, "the server closed the connection").map(|()| true),
        Err(cause) => leaving::link_lost(s, w, &cause.to_string()).map(|()| true),
    }
}

/// True if a message of the server is looked into.
#[inline]
fn must_look(s: &Session, header: Header) -> bool {
    match header.tag {
        back::READY => true,
        back::ERROR | back::PARAMETER_STATUS => header.frame_bytes() <= LOOK_BYTES_MAX,
        back::PARAMETER_DESCRIPTION | back::ROW_DESCRIPTION => !s.described.is_empty() && header.frame_bytes() <= LOOK_BYTES_MAX,
        back::COMMAND_COMPLETE => SESSION_TAG_BYTES.contains(&header.body_bytes),
        back::NOTIFICATION => header.frame_bytes() <= LOOK_BYTES_MAX,
        back::DATA_ROW => s.state.asking.is_some() && header.frame_bytes() <= LOOK_BYTES_MAX,
        _ => false,
    }
}

/// Decides on one message of the server. False: more of it must arrive first, or the link is gone.
#[inline]
fn on_server(s: &mut Session, w: &Rc<Worker>, header: Header) -> Result<bool, Fault> {
    let looks = must_look(s, header);
    if (looks && !s.down.has_whole(header.frame_bytes())) || !cached::watch(s, w, header) {
        return Ok(false);
    }
    let first = if looks { s.down.unseen().get(HEADER_BYTES).copied().unwrap_or(0) } else { 0 };
    match s.replies.on_server(header.tag, first) {
        Reply::Pass => on_pass(s, w, header, looks),
        Reply::PassChange => {
            s.journal.pop_front();
            s.down.pass(header, &w.buffers);
        }
        Reply::Eat => {
            if header.tag == back::PARAMETER_STATUS && looks {
                on_parameter(s, header);
            } else if header.tag == back::PARSE_COMPLETE {
                s.bringing.pop_front();
            }
            s.down.eat(header);
        }
        Reply::Description { is_ours } => {
            shapes::on_description(s, header, looks || header.tag == back::NO_DATA);
            if is_ours { s.down.eat(header) } else { s.down.pass(header, &w.buffers) }
        }
        Reply::Row => {
            let body = if looks { s.down.whole(header).map(<[u8]>::to_vec) } else { None };
            inventory::on_row(s, body.as_deref());
            s.down.eat(header);
        }
        Reply::OursRefused => {
            if looks {
                inventory::on_refused(s, header);
            } else {
                s.state.is_link_off = true;
            }
            s.down.eat(header);
        }
        Reply::Ready { status, whose } => on_ready(s, w, header, status, whose)?,
        Reply::Error(dropped) => on_error(s, w, header, dropped, looks),
        Reply::SettingsRefused => {
            return leaving::refused_ahead(s, w, header, looks, "the server refuses this session's settings");
        }
        Reply::BeginRefused => return leaving::refused_ahead(s, w, header, looks, "the server refuses to begin the transaction"),
        Reply::Misplaced { tag } => {
            s.down.pass(header, &w.buffers);
            return Err(misplaced(s, w, tag));
        }
        Reply::Unasked => {
            let what = format!("unexpected message \"{}\" from the server", header.tag.escape_ascii());
            leaving::link_lost(s, w, &what)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// A message that is the client's, but for what only we know of.
#[inline]
fn on_pass(s: &mut Session, w: &Worker, header: Header, looks: bool) {
    if header.tag == back::PARAMETER_STATUS && looks && on_parameter(s, header) {
        return s.down.eat(header);
    } else if header.tag == back::COMMAND_COMPLETE && looks {
        on_session_tag(s, w, header);
    } else if header.tag == back::NOTIFICATION && looks && inventory::takes(s, w, header) {
        return;
    }
    s.down.pass(header, &w.buffers);
    if matches!(header.tag, back::DATA_ROW | back::COPY_DATA) && !cached::is_watching(s) {
        // What holds for one holds for all that follow it: nothing a server owes changes by them.
        s.down.pass_run(header.tag, &w.buffers);
    }
}

/// The server says that it dropped what belonged to the whole session.
fn on_session_tag(s: &mut Session, w: &Worker, header: Header) {
    match s.down.whole(header) {
        Some(b"DISCARD ALL\0") => inventory::discarded(s, w),
        Some(b"DEALLOCATE ALL\0") => s.deallocated(w),
        _ => {}
    }
}

/// Notes a parameter's report. True: the client does not hear of it now.
fn on_parameter(s: &mut Session, header: Header) -> bool {
    let Some(body) = s.down.whole(header).map(<[u8]>::to_vec) else { return false };
    let name = weir_wire::back::read_parameter(&body).map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let waits = inventory::on_report(s, &name.unwrap_or_default());
    if let Some(link) = &mut s.link {
        link.report(&body);
    }
    waits
}

fn on_ready(s: &mut Session, w: &Rc<Worker>, header: Header, status: u8, whose: Whose) -> Result<(), Fault> {
    // What was sent ahead of a BEGIN tells nothing of the transaction, which is the client's already.
    if whose == Whose::Begin || !matches!(s.begun, Begun::Sent(_)) {
        s.transaction = status;
    }
    s.flushed = false;
    match whose {
        Whose::Client => {}
        Whose::ClientChange => drop(s.journal.pop_front()),
        Whose::Sync | Whose::Settings | Whose::Inventory | Whose::Prepare | Whose::Statement | Whose::Begin | Whose::Unlisten => {
            s.down.eat(header);
            on_our_ready(s, w, whose, status);
            return Ok(());
        }
    }
    timing::ready(s, w, s.status());
    net::group_done(s);
    if s.state.redefines && status == IDLE {
        s.tell_change(w);
    }
    inventory::renew_if_due(s, w, status);
    cached::ready(s, w, status);
    if inventory::restores(s, w) {
        s.down.eat(header);
        return Ok(());
    }
    inventory::before_ready(s, w);
    if status == IDLE && s.state.listening.is_some() {
        if inventory::holds_ready(s, w) {
            s.down.eat(header);
            return Ok(());
        }
        inventory::deliver_now(s, w)?;
    }
    if s.begun.is_open() {
        // The transaction goes on, whatever the server knows of it.
        s.down.change(HEADER_BYTES, s.status());
    }
    s.down.pass(header, &w.buffers);
    show_doing(s);
    Ok(())
}

/// A query of ours is over.
fn on_our_ready(s: &mut Session, w: &Rc<Worker>, whose: Whose, status: u8) {
    match whose {
        Whose::Inventory => inventory::on_answer(s, w),
        Whose::Unlisten => inventory::unlistened(s, w),
        Whose::Begin => s.begun = Begun::No,
        Whose::Statement => drop(s.state.preparing.pop_front()),
        Whose::Sync => on_our_sync(s, w, status),
        Whose::Client | Whose::ClientChange | Whose::Settings | Whose::Prepare => {}
    }
    if !s.replies.is_our_turn() {
        s.entry.is_ours.set(false);
        // What the client wanted to cancel runs only now; nothing is there to be cancelled if it sent nothing.
        if s.entry.cancel_waits.take() && !s.replies.is_settled() {
            w.forward_cancel(&s.entry);
        }
    }
    if whose == Whose::Settings && inventory::restored(s, w) {
        s.say_ready(w);
        show_doing(s);
    }
}

/// A Sync of ours has ended what the client sent without one: all of it counts as at a ReadyForQuery of the client's, who hears of none.
fn on_our_sync(s: &mut Session, w: &Rc<Worker>, status: u8) {
    if s.entry.clock.busy_since.get().is_some() {
        timing::ready(s, w, s.status());
        // What it sent next still waits.
        timing::asked(s, w);
    }
    if s.state.redefines && status == IDLE {
        s.tell_change(w);
    }
    inventory::renew_if_due(s, w, status);
    cached::synced(s, w, status);
    if inventory::restores(s, w) {
        s.state.owes_ready = false;
    } else {
        inventory::before_ready(s, w);
    }
}

pub(super) fn show_doing(s: &Session) {
    s.entry.card.set_doing(match s.status() {
        IDLE if s.replies.is_settled() => Doing::Idle,
        IDLE => Doing::Executing,
        _ => Doing::IdleInTransaction,
    });
}

fn note_report(w: &Worker, node: Option<u16>, report: &Report<'_>) {
    w.counters().count_error(report.sqlstate);
    if report.sqlstate == b"25006" {
        // Someone else may be the primary by now.
        w.shared.nudge_prober(Nudge::StatementRefused);
    }
    if let Some(node) = node {
        w.counters().count_severity(node, report.severity);
    }
}

fn on_error(s: &mut Session, w: &Rc<Worker>, header: Header, dropped: Dropped, looks: bool) {
    if !s.replies.has_work_behind_error() {
        s.state.will_not_reset();
    }
    s.state.due.add_rollback();
    let asked_alone = s.asked.is_some() && dropped.discard;
    let parameters = s.asked_to_describe.take().filter(|_| dropped.is_question && s.transaction != FAILED);
    s.undo(dropped);
    let was_discarding = s.discarding;
    s.discarding |= dropped.discard;
    let refused = if dropped.exchange { s.refusals.pop_front() } else { None };
    for _ in u32::from(dropped.exchange)..dropped.refused {
        s.refusals.pop_front();
    }
    if let Some(Refusal { parameters, fault }) = refused {
        s.down.eat(header);
        shapes::tell_parameters(s, w, parameters);
        s.say_error(w, &fault);
        return;
    }
    let node = s.link.as_ref().map(|link| link.card.address.node);
    let report = read_report(if looks { s.down.whole(header).unwrap_or_default() } else { &[] });
    note_report(w, node, &report);
    if matches!(report.sqlstate, b"0A000" | b"26000") {
        // "cached plan must not change result type": a plan others share is out of date, and preparing again must cure it.
        if let Some(link) = &mut s.link {
            link.known.stale_all();
        }
    }
    if asked_alone && s.net.on_refused_ahead(report.severity, report.sqlstate) {
        // The link goes as soon as it has said that it is ready.
        s.state.claim = Claim::No;
        s.discarding = was_discarding;
        s.down.eat(header);
        return;
    }
    // From here on the client hears of it; that the server goes, only if a statement is under way, and then when the link is gone.
    let is_end = is_end(&report);
    if !is_end {
        s.begun.fail();
    }
    if s.net.is_on_reader && s.transaction == WITHIN && is_of_recovery(report.sqlstate, report.routine) {
        let fault = begun::cannot_stay(&mut s.shuns_standbys, &String::from_utf8_lossy(report.message));
        s.down.eat(header);
        s.say_error(w, &fault);
        return;
    }
    if let Some(fault) = in_place_of(&report, &s.state, &s.named).or_else(|| timing::overdue(&s.entry, report.sqlstate)) {
        s.down.eat(header);
        shapes::tell_parameters(s, w, parameters);
        s.say_error(w, &fault);
        return;
    }
    if !is_end {
        shapes::tell_parameters(s, w, parameters);
        return s.down.pass(header, &w.buffers);
    }
    s.farewell = Some(last_word(&report));
    if asked_alone {
        // Only ours was under way: what waits for it takes its way again when the link is gone, as after a bare end of file.
        (s.state.claim, s.discarding) = (Claim::No, was_discarding);
    } else if dropped.skips || dropped.discard {
        // The client hears of it when the link is gone.
        s.replies.unskip();
    }
    s.down.eat(header);
}

/// What the client hears of its statements in place of what a server says.
fn in_place_of(report: &Report<'_>, state: &State, named: &HashMap<Box<[u8]>, Own>) -> Option<Fault> {
    match report.sqlstate {
        // The session has it, but its table is gone, and so this server could not prepare it.
        b"26000" => state.why_refused(report.message).cloned(),
        b"08P01" => extended::in_words_of_client(named, report),
        _ => None,
    }
}

/// True if the server goes with it.
fn is_end(report: &Report<'_>) -> bool {
    matches!(report.severity, b"FATAL" | b"PANIC")
}

fn last_word(report: &Report<'_>) -> Fault {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Fault::error(&text(report.sqlstate), text(report.message))
}
