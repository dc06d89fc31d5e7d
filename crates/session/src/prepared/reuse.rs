//! Unnamed Parses whose text the server connection already has: most drivers and pools send only these.
//!
//! At its second use a text is prepared under its number. From then on its Parse is not sent: the messages after it use that statement,
//! and its ParseComplete precedes the first answer. If that is an error which an outdated statement may cause, all messages up to the
//! Sync run again with a Parse, unseen by the client. Where no error would show it, the text is parsed again after a while and after
//! changed definitions (`ParseAnalysis`).
//!
//! Only outside of transactions, where an error would be the client's, and with all messages up to a Sync at hand.

use crate::context::Context;
use crate::metrics::WorkerCounter;
use crate::prepared::{ParseAnalysis, PlanCacheMode, StatementId, may_be_of_kept};
use crate::replies::{ExpectedReply, ReplyTreatment};
use crate::session::{IDLE, LazyBegin, Session, SessionServer};
use crate::statements::{ParseNaming, PreparedStatement, Statement, StatementTrait};
use crate::upstream::reused::ReuseStage;
use std::rc::Rc;
use weir_config::UnnamedStatements;
use weir_sql::facts::StatementVerb;
use weir_wire::back::{ReceivedReport, read_report};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front, read_header, split_cstr};

const KEPT_BYTES_MAX: usize = 8 << 10;

const LOOK_BYTES_MAX: usize = 16 << 10;

/// The treatment of an unnamed Parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedParse {
    Pass,
    Number,
    /// Not sent: the server connection has the statement.
    Known,
}

/// Chooses the treatment of the next Parse. The session holds its server connection.
#[inline]
pub fn choose(s: &mut Session, w: &Context, prepared: &Rc<PreparedStatement>, header: MessageHeader) -> UnnamedParse {
    let plans = match w.peek_config().pool.unnamed {
        UnnamedStatements::Pass => return UnnamedParse::Pass,
        UnnamedStatements::Reuse => PlanCacheMode::OfValues,
        UnnamedStatements::ReusePlans => PlanCacheMode::OfServer,
    };
    if !prepared.was_sent.get() || s.statements.is_sent_next || !is_planned(&prepared.statement) || !may_reuse(s, prepared) {
        return UnnamedParse::Pass;
    }
    let here = s.up.unseen();
    if here.len() > KEPT_BYTES_MAX || !is_one_exchange(here, header, prepared.statement.has(StatementTrait::Read)) {
        return UnnamedParse::Pass;
    }
    let now = now(s, w);
    let Some(server) = &mut s.server else { return UnnamedParse::Pass };
    let known = &mut server.conn.known;
    match known.analysis(prepared.id).map(|analysis| analysis.stands(now, plans, prepared.takes_values)) {
        Some(true) => {}
        Some(false) => return UnnamedParse::Number,
        // Unnamed texts evict neither named statements nor each other.
        None if known.has_room(w.peek_config().pool.prepared_max as usize) => return UnnamedParse::Number,
        None => return UnnamedParse::Pass,
    }
    let reused = &mut server.upstream.reused;
    reused.kept.clear();
    reused.kept.extend_from_slice(s.up.unseen());
    reused.stage = ReuseStage::Unanswered;
    UnnamedParse::Known
}

/// True if the server plans the statement; else reuse saves too little.
#[inline]
fn is_planned(statement: &Statement) -> bool {
    matches!(statement.verb, StatementVerb::Select | StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete)
}

/// True if the session is at rest outside of transactions, without state on the server connection, and reads the text as others do.
#[inline]
fn may_reuse(s: &Session, prepared: &PreparedStatement) -> bool {
    prepared.meaning.is_some_and(|meaning| meaning == s.state.meaning)
        && matches!(s.lazy_begin, LazyBegin::No)
        && s.transaction() == IDLE
        && s.replies().is_only_ours()
        && s.pin().is_none()
        && !s.is_unsure()
        && !s.is_own()
        && s.intake.replay.is_none()
}

/// True for an unnamed Parse, messages about it answered at once, and a Sync. The first must check the text's meaning: a Bind, or a
/// Describe of a statement with a result.
fn is_one_exchange(here: &[u8], parse: MessageHeader, has_result: bool) -> bool {
    let mut at = parse.frame_bytes();
    let mut is_used = false;
    loop {
        let rest = here.get(at..).unwrap_or_default();
        let Ok(Some(header)) = read_header(rest) else { return false };
        let Some(body) = rest.get(HEADER_BYTES..header.frame_bytes()) else { return false };
        at += header.frame_bytes();
        match header.tag {
            front::BIND => {
                let name = split_cstr(body).and_then(|(_, rest)| split_cstr(rest)).map(|(name, _)| name);
                if name != Some(b"") {
                    return false;
                }
                is_used = true;
            }
            front::DESCRIBE if body == b"S\0" && has_result => is_used = true,
            front::DESCRIBE | front::EXECUTE if is_used => {}
            front::SYNC => return is_used && body.is_empty() && at == here.len(),
            _ => return false,
        }
    }
}

fn now(s: &Session, w: &Context) -> ParseAnalysis {
    ParseAnalysis { at_us: w.now_us(), changes: s.account.known.changes(), binds: 0 }
}

pub fn analysed(s: &mut Session, w: &Context, id: StatementId) {
    let now = now(s, w);
    if let Some(analysis) = s.conn_mut().and_then(|conn| conn.known.analysis(id)) {
        *analysis = now;
    }
}

#[inline]
pub fn bound(s: &mut Session, prepared: &PreparedStatement) {
    if prepared.naming == ParseNaming::Unnamed
        && let Some(analysis) = s.conn_mut().and_then(|conn| conn.known.analysis(prepared.id))
    {
        analysis.binds = analysis.binds.saturating_add(1);
    }
}

/// Makes later messages wait until a second run is ruled out.
#[inline]
pub fn synced(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut().filter(|upstream| upstream.reused.stage != ReuseStage::None) {
        upstream.raise_barrier();
    }
}

/// Treatment of a server's message before the answer to a skipped Parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseReplyFate {
    Goes,
    Eaten,
    Refused,
    More,
}

/// Handles the first answer.
pub fn on_reply(s: &mut Session, w: &Context, header: MessageHeader) -> ReuseReplyFate {
    if matches!(header.tag, back::NOTICE | back::NOTIFICATION | back::PARAMETER_STATUS) {
        return ReuseReplyFate::Goes;
    }
    if header.tag == back::ERROR && is_kept_refused(s, s.down.unseen()) {
        refused(s);
        return ReuseReplyFate::Refused;
    }
    if header.tag == back::PARAMETER_DESCRIPTION {
        // A server sends the parameters before it fails to describe the rest. Source: `exec_describe_statement_message` in postgres.c.
        match error_behind(s, header) {
            Some(true) => {
                s.down.eat(header);
                return ReuseReplyFate::Eaten;
            }
            Some(false) => {}
            None => return ReuseReplyFate::More,
        }
    }
    if let Some(upstream) = s.upstream_mut() {
        upstream.replies.known_parse_answered();
        upstream.journal.pop_front();
        upstream.reused.forget();
    }
    s.say_bare(w, back::PARSE_COMPLETE);
    ReuseReplyFate::Goes
}

/// True if the next message is an error of the kept statement, not of a message that Weir made to fail.
fn is_kept_refused(s: &Session, next: &[u8]) -> bool {
    let body = read_header(next).ok().flatten().and_then(|header| next.get(HEADER_BYTES..header.frame_bytes()));
    matches!(s.replies().behind_known_parse(), Some(ExpectedReply::Bind | ExpectedReply::Describe | ExpectedReply::DescribeTold))
        && body.is_some_and(|body| may_be(&read_report(body)))
}

/// True if an error of the kept statement follows this message. `None`: more must arrive first.
fn error_behind(s: &mut Session, header: MessageHeader) -> Option<bool> {
    let at = header.frame_bytes();
    if at + HEADER_BYTES > LOOK_BYTES_MAX {
        return Some(false);
    }
    if !s.down.has_whole(at + HEADER_BYTES) {
        return None;
    }
    let next = read_header(&s.down.unseen()[at..]).ok().flatten()?;
    let end = at + next.frame_bytes();
    if next.tag != back::ERROR || end > LOOK_BYTES_MAX {
        return Some(false);
    }
    s.down.has_whole(end).then(|| is_kept_refused(s, &s.down.unseen()[at..]))
}

fn may_be(report: &ReceivedReport<'_>) -> bool {
    may_be_of_kept(report.severity, report.sqlstate)
}

/// True if an error is one of a kept statement, hidden from the client.
pub fn is_of_kept(s: &Session, report: &ReceivedReport<'_>) -> bool {
    s.replies().owes_known_parse() && may_be(report)
}

/// The server skips the rest up to the Sync; nothing has run.
#[cold]
fn refused(s: &mut Session) {
    let id = s.statements.unnamed().map(|own| own.prepared.id);
    if let Some(SessionServer { conn, upstream }) = &mut s.server {
        if let Some(analysis) = id.and_then(|id| conn.known.analysis(id)) {
            *analysis = ParseAnalysis::default();
        }
        upstream.reused.stage = ReuseStage::Refused;
        upstream.tally.forget();
        upstream.replies.known_parse_failed();
        if let ReplyTreatment::Error(dropped) = upstream.replies.on_server(back::ERROR, 0) {
            s.undo(dropped);
        }
    }
}

/// Runs the messages again if the server is ready after an error of the kept statement. True if so.
#[inline]
pub fn goes_again(s: &mut Session, w: &Context) -> bool {
    let Some(upstream) = s.upstream_mut().filter(|upstream| upstream.reused.stage == ReuseStage::Refused) else { return false };
    let kept = std::mem::take(&mut upstream.reused.kept);
    upstream.reused.forget();
    s.statements.is_sent_next = true;
    s.up.unread(&kept, &w.buffers);
    w.count(WorkerCounter::ParsesRenewed);
    true
}
