//! Log lines about each statement, its node and slow ones; and the last statement of each server connection.

use crate::context::Context;
use crate::handle::SessionClock;
use crate::host::{Level, LogField, LogOrigin};
use crate::routing::read_preference::{StatementLogLine, StatementLogLines};
use crate::session::Session;
use crate::statements::PreparedStatement;
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use std::borrow::Cow;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front, split_cstr};
use weir_wire::write::{self, OutgoingReport};

/// Part of a statement kept in case it is slow.
const KEPT_BYTES_MAX: usize = 4 << 10;
/// Part shown of a server connection's last statement, as in Pgpool-II.
const SHOWN_BYTES_MAX: usize = 1023;

pub struct StatementLog;

impl SessionConcern for StatementLog {
    #[inline]
    fn sent(s: &mut Session, w: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        match unit {
            StatementMessage::Query(_) => {
                tell(s, w, LogTextSource::Query);
                keep(s, w, LogTextSource::Query);
            }
            StatementMessage::Parse(prepared) => tell(s, w, LogTextSource::Message("Parse: ", prepared)),
            StatementMessage::Bind { prepared, .. } => tell(s, w, LogTextSource::Message("Bind: ", prepared)),
            StatementMessage::Execute if is_wanted(s, w) => tell_execution(s, w),
            StatementMessage::Execute => {}
            StatementMessage::Garbled => answered(s, w),
            StatementMessage::BindUnknown(_) | StatementMessage::Call(_) => {}
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: ReadyStatus) {}

    fn lost(_: &mut Session, _: &Context) {}
}

#[derive(Clone, Copy)]
enum LogTextSource<'a> {
    Query,
    Message(&'static str, &'a PreparedStatement),
}

/// True if somebody may want the text: it is logged, or an operator has looked lately.
#[inline]
fn is_wanted(s: &Session, w: &Context) -> bool {
    !s.reads.preferences.own.logged(&w.peek_config()).is_none() || w.shared.last_look.is_recent(|| w.now_ms())
}

#[cold]
fn tell_execution(s: &mut Session, w: &Context) {
    if let Some(bound) = s.statements.bound.take() {
        tell(s, w, LogTextSource::Message("Execute: ", &bound));
        keep(s, w, LogTextSource::Message("Execute: ", &bound));
        s.statements.bound = Some(bound);
    }
}

/// Keeps the last statement's text, if an operator has looked lately.
#[inline]
fn keep(s: &Session, w: &Context, source: LogTextSource<'_>) {
    if w.shared.last_look.is_recent(|| w.now_ms()) {
        keep_text(s, source);
    }
}

#[cold]
fn keep_text(s: &Session, source: LogTextSource<'_>) {
    let Some(conn) = s.conn() else { return };
    let text = match source {
        LogTextSource::Query => query_text(s),
        LogTextSource::Message(_, prepared) => prepared_text(prepared),
    };
    let mut kept = conn.status.last.text.lock();
    kept.clear();
    kept.push_str(cut(&text, SHOWN_BYTES_MAX));
}

/// Logs a statement answered from the cache; `prepared`: by its Execute.
#[inline]
pub fn answered_by_cache(s: &Session, w: &Context, prepared: Option<&PreparedStatement>) {
    let logged = s.reads.preferences.own.logged(&w.peek_config());
    if !logged.is_none() {
        say_cached(s, w, prepared, logged);
    }
}

/// Texts of Pgpool-II.
#[cold]
fn say_cached(s: &Session, w: &Context, prepared: Option<&PreparedStatement>, logged: StatementLogLines) {
    let (label, text) = match prepared {
        None => ("", query_text(s)),
        Some(prepared) => ("Execute: ", prepared_text(prepared)),
    };
    let client = s.handle.status.client_host();
    let who = who(s, &client);
    if logged.has(StatementLogLine::Statement) {
        w.log(Level::Log, &who, format_args!("statement: {text}"));
    }
    if logged.has(StatementLogLine::PerNode) {
        let detail = format_args!("query result fetched from cache. statement: {label}{text}");
        w.log(Level::Log, &who, format_args!("fetch from memory cache DETAIL:  {detail}"));
    }
}

#[inline]
fn tell(s: &mut Session, w: &Context, source: LogTextSource<'_>) {
    let logged = s.reads.preferences.own.logged(&w.peek_config());
    if !logged.is_none() {
        say(s, w, source, logged);
    }
}

#[cold]
fn say(s: &mut Session, w: &Context, source: LogTextSource<'_>, logged: StatementLogLines) {
    let (label, text) = match source {
        LogTextSource::Query => ("", query_text(s)),
        LogTextSource::Message(label, prepared) => (label, prepared_text(prepared)),
    };
    let text = text.into_owned();
    let client = s.handle.status.client_host();
    let who = who(s, &client);
    // A Bind is logged by its Execute.
    let is_run = matches!(label, "" | "Execute: ");
    if logged.has(StatementLogLine::Statement) && is_run {
        w.log(Level::Log, &who, format_args!("statement: {text}"));
    }
    let Some(status) = s.conn().map(|conn| conn.status.clone()) else { return };
    let (id, pid) = (status.address.node, status.pid);
    if logged.has(StatementLogLine::PerNode) {
        let fields = [("node", LogField::Number(id.into())), ("backend_pid", LogField::Number(pid.into()))];
        let line = format_args!("DB node id: {id} backend pid: {pid} statement: {label}{text}");
        w.program.log(Level::Log, &who, line, &fields);
    }
    // A notice must not break a server's message.
    if logged.has(StatementLogLine::Notice) && is_run && !s.down.is_mid_message() {
        let message = format!("DB node id: {id} statement: {label}{text}");
        let report =
            OutgoingReport { severity: "NOTICE", sqlstate: "00000", message: &message, detail: "", hint: "", routine: "" };
        write::notice(s.down.extra(&w.buffers), &report);
    }
    if logged.has(StatementLogLine::Slow) && is_run {
        let mut kept = s.handle.clock.text.borrow_mut();
        kept.clear();
        kept.push_str(cut(&text, KEPT_BYTES_MAX));
    }
}

pub fn answered(s: &mut Session, w: &Context) {
    if s.reads.preferences.own.logged(&w.peek_config()).has(StatementLogLine::Statement) {
        let text = query_text(s).into_owned();
        let client = s.handle.status.client_host();
        w.log(Level::Log, &who(s, &client), format_args!("statement: {text}"));
    }
}

#[inline]
pub fn logs_messages(s: &Session, w: &Context) -> bool {
    s.reads.preferences.own.logs_messages(&w.peek_config())
}

/// Logs a client's message before it is handled. Texts of Pgpool-II.
#[inline]
pub fn came(s: &mut Session, w: &Context, header: MessageHeader) {
    if logs_messages(s, w) && !s.intake.is_message_logged {
        say_message(s, w, header);
    }
}

/// Logs a message of a run answered from memory, or skipped after an error.
#[inline]
pub fn passed(s: &Session, w: &Context, header: MessageHeader) {
    if logs_messages(s, w) {
        write_message(s, w, header);
    }
}

#[cold]
fn say_message(s: &mut Session, w: &Context, header: MessageHeader) {
    let is_short = header.body_bytes as usize <= w.peek_config().routing.statement_analysis_bytes_max;
    if is_short && s.up.unseen().len() < header.frame_bytes() && !is_copy(header.tag) {
        // Logged once its rest has come.
        return;
    }
    s.intake.is_message_logged = true;
    write_message(s, w, header);
}

#[cold]
fn write_message(s: &Session, w: &Context, header: MessageHeader) {
    let body = s.up.unseen().get(HEADER_BYTES..).unwrap_or_default();
    let body = &body[..body.len().min(header.body_bytes as usize).min(LOGGED_BYTES_MAX)];
    let mut texts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut text = || texts.next().unwrap_or_default().into_owned();
    // `S` or `P` of a Describe or Close, then the name.
    let named = |text: String| {
        let kind = if text.starts_with('S') { "statement" } else { "portal" };
        format!("{kind}: \"{}\"", text.get(1..).unwrap_or_default())
    };
    let copied = &s.intake.copied;
    if header.tag == front::COPY_DATA {
        // Counted, and logged in one line at the end.
        return copied.set(copied.get().saturating_add(1));
    }
    let client = s.handle.status.client_host();
    let say = |name: &str, detail: &str| {
        let mark = if detail.is_empty() { "" } else { " DETAIL:  " };
        w.log(Level::Log, &who(s, &client), format_args!("{name} message from frontend.{mark}{detail}"));
    };
    let rows = copied.replace(0);
    if rows > 0 && matches!(header.tag, front::COPY_DONE | front::COPY_FAIL) {
        say("CopyData", &format!("count: {rows}"));
    }
    let (name, detail) = match header.tag {
        front::QUERY => ("Query", format!("query: \"{}\"", text())),
        front::PARSE => ("Parse", format!("statement: \"{}\", query: \"{}\"", text(), text())),
        front::BIND => ("Bind", format!("portal: \"{}\", statement: \"{}\"", text(), text())),
        front::DESCRIBE => ("Describe", named(text())),
        front::EXECUTE => ("Execute", format!("portal: \"{}\"", text())),
        front::CLOSE => ("Close", named(text())),
        front::SYNC => ("Sync", String::new()),
        front::FLUSH => ("Flush", String::new()),
        front::FUNCTION_CALL => {
            let oid = body.first_chunk().map_or(0, |oid| u32::from_be_bytes(*oid));
            ("FunctionCall", format!("oid: \"{oid}\""))
        }
        front::TERMINATE => ("Terminate", String::new()),
        front::COPY_DONE => ("CopyDone", String::new()),
        front::COPY_FAIL => ("CopyFail", String::new()),
        _ => return,
    };
    say(name, &detail);
}

fn is_copy(tag: u8) -> bool {
    matches!(tag, front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL)
}

/// Logs a slow statement; `waited_us`: before it got a server connection.
#[inline]
pub fn ended(s: &Session, w: &Context, us: u64) {
    let Some(limit_ms) = w.peek_config().log.slow_ms else { return };
    let waited_us = s.handle.clock.waited_us.replace(0);
    if us.saturating_add(waited_us) >= limit_ms.saturating_mul(1000) {
        say_slow(s, w, us, waited_us);
    }
}

/// Total, at the server, before.
fn times_ms(us: u64, waited_us: u64) -> [f64; 3] {
    [us.saturating_add(waited_us), us, waited_us].map(|us| us as f64 / 1000.0)
}

#[cold]
fn say_slow(s: &Session, w: &Context, us: u64, waited_us: u64) {
    let clock: &SessionClock = &s.handle.clock;
    let text = clock.text.borrow();
    let [total, server, waited] = times_ms(us, waited_us);
    let (node, pid) = s.conn().map_or((0, 0), |conn| (conn.status.address.node, conn.status.pid));
    let rule = clock.rule.get().name();
    let fields = [
        ("duration_ms", LogField::Number(total)),
        ("server_ms", LogField::Number(server)),
        ("waited_ms", LogField::Number(waited)),
        ("node", LogField::Number(node.into())),
        ("backend_pid", LogField::Number(pid.into())),
        ("rule", LogField::Text(rule)),
        ("statement", LogField::Text(&text)),
    ];
    let line = format_args!(
        "duration: {total:.3} ms (server {server:.3} ms, waited {waited:.3} ms)  node: {node}  backend pid: {pid}  rule: {rule}  \
         statement: {text}"
    );
    let client = s.handle.status.client_host();
    w.program.log(Level::Log, &who(s, &client), line, &fields);
}

fn who<'a>(s: &'a Session, client: &'a str) -> LogOrigin<'a> {
    let status = &s.handle.status;
    LogOrigin {
        user: &s.account.user,
        database: &s.account.database,
        application: &status.application,
        client,
        session: status.pid,
    }
}

/// Of a long query, the part at hand.
fn query_text(s: &Session) -> Cow<'_, str> {
    let body = s.up.unseen().get(HEADER_BYTES..).unwrap_or_default();
    let text = split_cstr(body).map_or(body, |(text, _)| text);
    String::from_utf8_lossy(&text[..text.len().min(LOGGED_BYTES_MAX)])
}

const LOGGED_BYTES_MAX: usize = 256 << 10;

fn prepared_text(prepared: &PreparedStatement) -> Cow<'_, str> {
    let text = prepared.text();
    String::from_utf8_lossy(text)
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_part_of_a_statements_time() {
        assert_eq!(times_ms(1_500, 250), [1.75, 1.5, 0.25]);
    }
}
