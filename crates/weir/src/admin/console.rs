//! The administration console: a database that exists in Weir only, with PgBouncer's language for PgBouncer's programs.
//!
//! One task serves one administrator, beside the hot path, in the simple and the extended protocol.

mod act;
pub mod language;
mod show_views;
mod table;

pub use crate::admin::console::show_views::VIEWS as CONSOLE_VIEWS;

use crate::admin::console::language::ConsoleCommand;
use crate::runtime::shared::ProxyShutdown;
use crate::runtime::worker::{SessionEntry, Worker};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use table::ResultTable;
use weir_config::visibility::Viewer;
use weir_io::reactor::parked;
use weir_io::socket::{ReadOutcome, Socket};
use weir_session::fault::{ErrorReport, sqlstate};
use weir_wire::frame::{HEADER_BYTES, back, front, read_header, split_cstr};
use weir_wire::write::{self, OutgoingReport};

const MESSAGE_BYTES_MAX: usize = 64 << 10;
const NAMES_MAX: usize = 256;
const WRITE_LIMIT: Duration = Duration::from_secs(30);
const STOP_PERIOD: Duration = Duration::from_millis(50);

/// Parameters reported at login; PgBouncer's, which some drivers read.
const REPORTED: [(&str, &str); 7] = [
    ("server_version", concat!("1.25.0/weir-", env!("CARGO_PKG_VERSION"))),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleRight {
    Look,
    Change,
}

impl ConsoleRight {
    fn viewer(self) -> Viewer {
        match self {
            ConsoleRight::Look => Viewer::monitor(),
            ConsoleRight::Change => Viewer::operator(),
        }
    }
}

pub fn is_console(w: &Worker, database: &str) -> bool {
    let config = w.peek_config();
    !config.admin.database.is_empty() && config.admin.database == database
}

/// The system user that runs the proxy may do all under the console's own name.
fn right_of(w: &Worker, socket: &Socket, user: &str) -> Option<ConsoleRight> {
    let admin = &w.peek_config().admin;
    let is_in = |list: &[String]| list.iter().any(|name| name == user);
    if is_in(&admin.users) || (user == admin.database && is_proven(socket)) {
        Some(ConsoleRight::Change)
    } else {
        is_in(&admin.stats_users).then_some(ConsoleRight::Look)
    }
}

pub fn is_proven(socket: &Socket) -> bool {
    socket.peer_uid().is_some_and(|uid| uid == rustix::process::geteuid().as_raw())
}

/// Decides before the password is asked; no server would refuse the user later.
pub fn admit(w: &Worker, socket: &Socket, user: &str) -> Result<ConsoleRight, ErrorReport> {
    let refused = || {
        let text = format!("user \"{user}\" may not use the administration console");
        ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text).hint("admin_users and stats_users name those who may.")
    };
    right_of(w, socket, user).ok_or_else(refused)
}

pub fn unproven(user: &str) -> ErrorReport {
    let text = format!("user \"{user}\" has no password in pool_passwd, which the administration console needs");
    ErrorReport::fatal(sqlstate::INVALID_PASSWORD, text)
        .hint("Or connect by the unix socket as the system user that runs the proxy.")
}

/// `before`: bytes that have already arrived.
pub async fn serve(
    w: &Rc<Worker>,
    socket: &Socket,
    before: Vec<u8>,
    right: ConsoleRight,
    entry: Rc<SessionEntry>,
) -> Result<(), ErrorReport> {
    let _listed = ListedConsole::new(w, &entry);
    let mut console = AdminConsole {
        w,
        socket,
        right,
        entry: &entry,
        input: before,
        out: Vec::new(),
        prepared: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
    };
    console.welcome();
    while let ConsoleFlow::On = console.turn().await? {}
    Ok(())
}

/// Keeps a console in the tables of clients until drop.
struct ListedConsole<'a> {
    w: &'a Worker,
    entry: &'a SessionEntry,
}

impl<'a> ListedConsole<'a> {
    fn new(w: &'a Worker, entry: &'a SessionEntry) -> ListedConsole<'a> {
        entry.task.set(w.reactor.current_task());
        w.shared.session_statuses.add(entry.status.clone());
        w.shared.clients.consoles.fetch_add(1, Ordering::Relaxed);
        ListedConsole { w, entry }
    }
}

impl Drop for ListedConsole<'_> {
    fn drop(&mut self) {
        self.w.shared.clients.consoles.fetch_sub(1, Ordering::Relaxed);
        self.w.leave(self.entry);
        self.w.shared.session_statuses.remove(self.entry.status.pid);
    }
}

#[derive(PartialEq, Eq)]
enum ConsoleFlow {
    On,
    Left,
}

struct ConsolePortal {
    command: Option<ConsoleCommand>,
    formats: Vec<u16>,
    table: Option<ResultTable>,
    taken: usize,
}

enum ConsoleOutcome {
    Table(ResultTable),
    /// A tag only, after a notice.
    Done {
        tag: String,
        notice: Option<ErrorReport>,
    },
}

struct AdminConsole<'a> {
    w: &'a Rc<Worker>,
    socket: &'a Socket,
    right: ConsoleRight,
    entry: &'a Rc<SessionEntry>,
    input: Vec<u8>,
    out: Vec<u8>,
    prepared: HashMap<Vec<u8>, Option<ConsoleCommand>>,
    portals: HashMap<Vec<u8>, ConsolePortal>,
    /// True after an error in the extended protocol: all is dropped up to the next Sync.
    skipping: bool,
}

impl AdminConsole<'_> {
    fn welcome(&mut self) {
        write::authentication(&mut self.out, 0, &[]);
        for (name, value) in REPORTED {
            write::parameter_status(&mut self.out, name, value);
        }
        write::backend_key_data(&mut self.out, self.entry.status.pid, &self.entry.key);
        write::ready(&mut self.out, weir_session::session::IDLE);
    }

    async fn turn(&mut self) -> Result<ConsoleFlow, ErrorReport> {
        let mut flow = ConsoleFlow::On;
        while flow == ConsoleFlow::On {
            let header = read_header(&self.input).map_err(|e| violation(e.to_string()))?;
            let Some(header) = header else { break };
            if header.frame_bytes() > MESSAGE_BYTES_MAX {
                return Err(violation(format!("message of {} bytes in the console", header.frame_bytes())));
            }
            if self.input.len() < header.frame_bytes() {
                break;
            }
            let body = self.input[HEADER_BYTES..header.frame_bytes()].to_vec();
            self.input.drain(..header.frame_bytes());
            flow = self.on_message(header.tag, &body).await?;
            if self.out.len() > MESSAGE_BYTES_MAX {
                self.send().await?;
            }
        }
        self.send().await?;
        if flow == ConsoleFlow::Left { Ok(flow) } else { self.read_more().await }
    }

    async fn send(&mut self) -> Result<(), ErrorReport> {
        let sent = self.socket.write_all(&self.w.reactor, &self.out, Some(Instant::now() + WRITE_LIMIT)).await;
        self.out.clear();
        sent.map_err(|cause| ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, format!("the administrator went away: {cause}")))
    }

    async fn read_more(&mut self) -> Result<ConsoleFlow, ErrorReport> {
        let mut piece = [0u8; 2048];
        loop {
            let got = self.socket.try_read(&self.w.reactor, &mut piece);
            match got.map_err(|cause| ErrorReport::fatal(sqlstate::CONNECTION_FAILURE, cause.to_string()))? {
                ReadOutcome::Bytes(bytes) => {
                    self.input.extend_from_slice(&piece[..bytes]);
                    self.entry.active_at.set(self.w.now_us());
                    return Ok(ConsoleFlow::On);
                }
                ReadOutcome::End => return Ok(ConsoleFlow::Left),
                ReadOutcome::Nothing => {}
            }
            self.check_end()?;
            parked().await;
        }
    }

    /// Ends on demand, or if only consoles keep the proxy from stopping.
    fn check_end(&self) -> Result<(), ErrorReport> {
        if let Some(final_error) = self.entry.final_error.borrow_mut().take() {
            return Err(*final_error);
        }
        let shared = &self.w.shared;
        if shared.stop_mode() == ProxyShutdown::No {
            return Ok(());
        }
        if shared.clients.connected.load(Ordering::Relaxed) <= shared.clients.consoles.load(Ordering::Relaxed) {
            return Err(ErrorReport::fatal(sqlstate::ADMIN_SHUTDOWN, "the proxy is shutting down"));
        }
        self.w.reactor.wake_at(Instant::now() + STOP_PERIOD);
        Ok(())
    }

    async fn on_message(&mut self, tag: u8, body: &[u8]) -> Result<ConsoleFlow, ErrorReport> {
        if self.skipping && !matches!(tag, front::SYNC | front::TERMINATE) {
            return Ok(ConsoleFlow::On);
        }
        let answered = match tag {
            front::TERMINATE => return Ok(ConsoleFlow::Left),
            front::QUERY => {
                self.on_query(body).await?;
                write::ready(&mut self.out, weir_session::session::IDLE);
                return Ok(ConsoleFlow::On);
            }
            front::SYNC => {
                self.skipping = false;
                self.portals.clear();
                write::ready(&mut self.out, weir_session::session::IDLE);
                return Ok(ConsoleFlow::On);
            }
            front::FLUSH => Ok(()),
            front::PARSE => self.on_parse(body),
            front::BIND => self.on_bind(body),
            front::DESCRIBE => self.on_describe(body),
            front::EXECUTE => self.on_execute(body).await,
            front::CLOSE => self.on_close(body),
            other => return Err(violation(format!("message type \"{}\" has no meaning in the console", other.escape_ascii()))),
        };
        match answered {
            Err(fault) if fault.severity == weir_session::fault::ErrorSeverity::Error => {
                fault.write(&mut self.out);
                self.skipping = true;
                Ok(ConsoleFlow::On)
            }
            Err(fault) => Err(fault),
            Ok(()) => Ok(ConsoleFlow::On),
        }
    }

    async fn on_query(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let (text, _) = split_cstr(body).ok_or_else(|| violation("invalid string in message"))?;
        let text = String::from_utf8_lossy(text);
        // PostgreSQL's answer to an empty text, by which drivers test a connection.
        if text.trim().is_empty() {
            write::bare(&mut self.out, back::EMPTY_QUERY);
            return Ok(());
        }
        let done = match ConsoleCommand::parse(&text).map_err(syntax) {
            Ok(command) => self.perform(&command).await,
            Err(fault) => Err(fault),
        };
        match done {
            Ok(ConsoleOutcome::Table(table)) => {
                table.describe(&mut self.out, &[]);
                table.write(&mut self.out, &[], 0, table.rows.len());
                write::command_complete(&mut self.out, "SHOW");
            }
            Ok(ConsoleOutcome::Done { tag, notice }) => self.finish(&tag, notice.as_ref()),
            Err(fault) if fault.severity == weir_session::fault::ErrorSeverity::Error => fault.write(&mut self.out),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn finish(&mut self, tag: &str, notice: Option<&ErrorReport>) {
        if let Some(notice) = notice {
            let ErrorReport { sqlstate, message, detail, hint, .. } = notice;
            write::notice(&mut self.out, &OutgoingReport { severity: "NOTICE", sqlstate, message, detail, hint, routine: "" });
        }
        write::command_complete(&mut self.out, tag);
    }

    fn on_parse(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let (name, rest) = split_cstr(body).ok_or_else(malformed)?;
        let (text, _) = split_cstr(rest).ok_or_else(malformed)?;
        let text = String::from_utf8_lossy(text);
        let command = if text.trim().is_empty() { None } else { Some(ConsoleCommand::parse(&text).map_err(syntax)?) };
        if !name.is_empty() && self.prepared.contains_key(name) {
            let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
            return Err(ErrorReport::error(sqlstate::DUPLICATE_STATEMENT, text));
        }
        if self.prepared.len() >= NAMES_MAX && !self.prepared.contains_key(name) {
            let text = format!("more than {NAMES_MAX} prepared statements in the console");
            return Err(ErrorReport::error(sqlstate::TOO_MANY_CONNECTIONS, text));
        }
        self.prepared.insert(name.to_vec(), command);
        write::bare(&mut self.out, back::PARSE_COMPLETE);
        Ok(())
    }

    fn on_bind(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let (portal, rest) = split_cstr(body).ok_or_else(malformed)?;
        let (name, _) = split_cstr(rest).ok_or_else(malformed)?;
        let formats = weir_session::own_answers::result_formats(body).map_err(|_| malformed())?;
        let command = self.find(name)?.clone();
        if self.portals.len() >= NAMES_MAX && !self.portals.contains_key(portal) {
            return Err(ErrorReport::error(
                sqlstate::TOO_MANY_CONNECTIONS,
                format!("more than {NAMES_MAX} portals in the console"),
            ));
        }
        self.portals.insert(portal.to_vec(), ConsolePortal { command, formats, table: None, taken: 0 });
        write::bare(&mut self.out, back::BIND_COMPLETE);
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Result<&Option<ConsoleCommand>, ErrorReport> {
        self.prepared.get(name).ok_or_else(|| {
            let text = format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name));
            ErrorReport::error(sqlstate::UNDEFINED_STATEMENT, text)
        })
    }

    fn find_portal(&mut self, name: &[u8]) -> Result<&mut ConsolePortal, ErrorReport> {
        self.portals.get_mut(name).ok_or_else(|| {
            let text = format!("portal \"{}\" does not exist", String::from_utf8_lossy(name));
            ErrorReport::error(sqlstate::UNDEFINED_CURSOR, text)
        })
    }

    fn on_describe(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let (command, formats) = match body.split_first().map(|(kind, rest)| (*kind, split_cstr(rest))) {
            Some((b'S', Some((name, _)))) => {
                let command = self.find(name)?.clone();
                write::no_parameters(&mut self.out);
                (command, Vec::new())
            }
            Some((b'P', Some((name, _)))) => {
                let portal = self.find_portal(name)?;
                (portal.command.clone(), portal.formats.clone())
            }
            _ => return Err(malformed()),
        };
        match command.as_ref().and_then(show_views::columns_of) {
            Some(columns) => table::describe(&mut self.out, &columns, &formats),
            None => write::bare(&mut self.out, back::NO_DATA),
        }
        Ok(())
    }

    async fn on_execute(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let (name, rest) = split_cstr(body).ok_or_else(malformed)?;
        let rows_max = rest.first_chunk::<4>().map_or(0, |count| u32::from_be_bytes(*count)) as usize;
        let (command, is_fresh) = {
            let portal = self.find_portal(name)?;
            (portal.command.clone(), portal.table.is_none())
        };
        let Some(command) = command else {
            write::bare(&mut self.out, back::EMPTY_QUERY);
            return Ok(());
        };
        if is_fresh {
            match self.perform(&command).await? {
                ConsoleOutcome::Table(table) => self.find_portal(name)?.table = Some(table),
                ConsoleOutcome::Done { tag, notice } => {
                    self.finish(&tag, notice.as_ref());
                    return Ok(());
                }
            }
        }
        let mut out = std::mem::take(&mut self.out);
        let portal = self.find_portal(name)?;
        if let Some(table) = &portal.table {
            let left = table.rows.len() - portal.taken;
            let count = if rows_max == 0 { left } else { left.min(rows_max) };
            table.write(&mut out, &portal.formats, portal.taken, count);
            portal.taken += count;
            if count < left {
                write::bare(&mut out, back::PORTAL_SUSPENDED);
            } else {
                write::command_complete(&mut out, "SHOW");
            }
        }
        self.out = out;
        Ok(())
    }

    fn on_close(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        match body.split_first().map(|(kind, rest)| (*kind, split_cstr(rest))) {
            Some((b'S', Some((name, _)))) => drop(self.prepared.remove(name)),
            Some((b'P', Some((name, _)))) => drop(self.portals.remove(name)),
            _ => return Err(malformed()),
        }
        write::bare(&mut self.out, back::CLOSE_COMPLETE);
        Ok(())
    }
}

fn syntax(error: crate::admin::console::language::CommandError) -> ErrorReport {
    ErrorReport::error(sqlstate::SYNTAX_ERROR, error.to_string())
}

fn violation(text: impl Into<String>) -> ErrorReport {
    ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text)
}

fn malformed() -> ErrorReport {
    violation("malformed message in the console")
}
