//! A server as far as sessions see one: it keeps to the protocol, knows some verbs, and fails when it is told to.
//!
//! Replies to the extended protocol stay with it until a Flush or Sync, as a server's do. Source: `PostgresMain` in postgres.c.

use std::collections::{BTreeMap, BTreeSet};
use weir_wire::frame::{HEADER_BYTES, back, front, read_header, split_cstr};
use weir_wire::write::{self, OutgoingReport};

/// A parameter, and its value if nobody has set it.
pub const WORK_MEM: (&str, &str) = ("work_mem", "4MB");

/// Errors by which a server ends a session.
const FATAL: &[&str] = &["57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300"];

/// A copy that reads what its client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    No,
    ByQuery(u32),
    ByExecute(u32),
}

/// See the module.
#[derive(Debug)]
pub struct Server {
    /// Received, and not a whole message yet.
    input: Vec<u8>,
    /// Said, and not flushed yet.
    held: Vec<u8>,
    /// On its way to the proxy.
    pub output: Vec<u8>,
    pub status: u8,
    skips: bool,
    copying: Copying,
    /// Messages since the last Sync have begun a transaction of their own.
    is_implicit: bool,
    statements: BTreeMap<Vec<u8>, Vec<u8>>,
    portals: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
    /// Statements prepared by SQL.
    pub by_sql: BTreeMap<String, String>,
    /// State that keeps its connection with a session, by the letter in the question for leftovers.
    pub left: BTreeSet<u8>,
    pub channels: BTreeSet<String>,
    /// Notifications of the open transaction, and those that are sent.
    notifies: Vec<(String, String)>,
    pub notified: Vec<(String, String)>,
    pub settings: BTreeMap<String, String>,
    /// Settings before the open transaction.
    settings_before: BTreeMap<String, String>,
    pub is_standby: bool,
    /// The next statement of a client fails by this.
    pub fails: Option<&'static str>,
    /// So does the next question of the proxy's what a session has left.
    pub fails_question: bool,
    /// It carries out what it does not know, too, and fails any statement.
    pub agrees: bool,
    pub is_gone: bool,
}

impl Server {
    pub fn new(is_standby: bool) -> Server {
        Server {
            input: Vec::new(),
            held: Vec::new(),
            output: Vec::new(),
            status: b'I',
            skips: false,
            copying: Copying::No,
            is_implicit: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            by_sql: BTreeMap::new(),
            left: BTreeSet::new(),
            channels: BTreeSet::new(),
            notifies: Vec::new(),
            notified: Vec::new(),
            settings: BTreeMap::new(),
            settings_before: BTreeMap::new(),
            is_standby,
            fails: None,
            fails_question: false,
            agrees: false,
            is_gone: false,
        }
    }

    /// True if it owes nothing and has nothing half-way: somebody else may have it.
    pub fn is_at_rest(&self) -> bool {
        self.input.is_empty()
            && self.held.is_empty()
            && self.output.is_empty()
            && self.status == b'I'
            && !self.skips
            && !self.is_implicit
            && self.copying == Copying::No
    }

    /// Forgets all of a session.
    pub fn clean(&mut self) {
        *self = Server::new(self.is_standby);
    }

    /// It says that it goes, and goes.
    pub fn go(&mut self) {
        self.held.clear();
        self.go_by("57P01", "terminating connection due to administrator command");
    }

    fn go_by(&mut self, sqlstate: &str, message: &str) {
        write::error(&mut self.held, &OutgoingReport { severity: "FATAL", sqlstate, message, detail: "", hint: "", routine: "" });
        self.flush();
        self.is_gone = true;
    }

    /// Takes in what the proxy sends. Panics at what no client of a server would send.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.is_gone {
            return;
        }
        self.input.extend_from_slice(bytes);
        loop {
            let header = read_header(&self.input).unwrap_or_else(|error| panic!("a server is sent no message: {error}"));
            let Some(header) = header.filter(|header| header.frame_bytes() <= self.input.len()) else { return };
            let frame: Vec<u8> = self.input.drain(..header.frame_bytes()).collect();
            self.take(header.tag, &frame[HEADER_BYTES..]);
        }
    }

    fn take(&mut self, tag: u8, body: &[u8]) {
        if self.copying != Copying::No {
            return self.take_in_copy(tag);
        }
        if self.skips && tag != front::SYNC && tag != front::TERMINATE {
            return;
        }
        match tag {
            front::QUERY => self.query(body),
            front::PARSE => self.parse(body),
            front::BIND => self.bind(body),
            front::DESCRIBE => self.describe(body),
            front::EXECUTE => self.execute(body),
            front::CLOSE => self.close(body),
            front::FLUSH => self.flush(),
            front::SYNC => self.sync(body),
            front::FUNCTION_CALL => {
                if self.status == b'E' {
                    self.error("25P02", "current transaction is aborted");
                } else {
                    write::message(&mut self.held, back::FUNCTION_RESULT, |out| out.extend([0xff; 4]));
                }
                self.ready();
            }
            front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL => {}
            front::TERMINATE => self.is_gone = true,
            other => panic!("a server is sent a message of kind {other}"),
        }
    }

    fn take_in_copy(&mut self, tag: u8) {
        let (number, is_query) = match self.copying {
            Copying::ByQuery(number) => (number, true),
            Copying::ByExecute(number) => (number, false),
            Copying::No => return,
        };
        match tag {
            front::COPY_DATA | front::FLUSH | front::SYNC => return,
            front::COPY_DONE => {
                self.copying = Copying::No;
                write::command_complete(&mut self.held, &format!("COPY {number}"));
            }
            front::COPY_FAIL => {
                self.copying = Copying::No;
                self.error("57014", "COPY from stdin failed");
                self.skips = !is_query;
            }
            // A server gives the session up.
            _ => return self.go(),
        }
        if is_query {
            self.ready();
        } else {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.output.append(&mut self.held);
    }

    fn ready(&mut self) {
        self.is_implicit = false;
        if self.status == b'I' {
            // They end with their transaction.
            self.portals.clear();
            self.notified.append(&mut self.notifies);
        }
        write::ready(&mut self.held, self.status);
        self.flush();
    }

    fn error(&mut self, code: &str, message: &str) {
        let report = OutgoingReport { severity: "ERROR", sqlstate: code, message, detail: "", hint: "", routine: "" };
        write::error(&mut self.held, &report);
        if self.status == b'T' {
            self.status = b'E';
        }
    }

    /// An error of the extended protocol.
    fn fail(&mut self, code: &str, message: &str) {
        self.error(code, message);
        self.flush();
        self.skips = true;
    }

    fn sync(&mut self, body: &[u8]) {
        self.skips = false;
        if !body.is_empty() {
            self.error("08P01", "invalid message format");
        }
        self.ready();
    }

    fn query(&mut self, body: &[u8]) {
        self.statements.remove(&b""[..]);
        let Some((text, [])) = split_cstr(body) else {
            self.error("08P01", "invalid message format");
            return self.ready();
        };
        let text = String::from_utf8_lossy(text).into_owned();
        let mut is_any = false;
        for statement in split(&text) {
            is_any = true;
            match self.run(statement, 0, true) {
                Ran::Done => {}
                Ran::Copies => return,
                Ran::Failed => break,
            }
        }
        if !is_any {
            write::bare(&mut self.held, back::EMPTY_QUERY);
        }
        if !self.is_gone {
            self.ready();
        }
    }

    fn parse(&mut self, body: &[u8]) {
        let Some((name, rest)) = split_cstr(body) else { return self.fail("08P01", "invalid string in message") };
        let Some((text, _)) = split_cstr(rest) else { return self.fail("08P01", "invalid string in message") };
        if name.is_empty() {
            self.statements.remove(name);
        }
        let text_of = String::from_utf8_lossy(text).into_owned();
        if self.status == b'E' && !is_ending(&text_of) {
            return self.fail("25P02", "current transaction is aborted");
        }
        self.is_implicit = true;
        match verb_of(&text_of) {
            _ if split(&text_of).count() > 1 => self.fail("42601", "cannot insert multiple commands into a prepared statement"),
            "" | "select" | "insert" | "update" | "begin" | "start" | "commit" | "rollback" | "set" | "reset" | "copy"
            | "show" | "create" | "discard" | "listen" | "unlisten" | "notify" | "prepare" | "execute" | "deallocate" => {
                let is_taken = !name.is_empty() && self.statements.contains_key(name);
                assert!(!is_taken || !name.starts_with(b"weir_"), "a server is sent a Parse of a name that it has");
                if is_taken {
                    return self.fail("42P05", "prepared statement already exists");
                }
                self.statements.insert(name.to_vec(), text.to_vec());
                write::bare(&mut self.held, back::PARSE_COMPLETE);
            }
            _ if self.agrees => {
                self.statements.insert(name.to_vec(), text.to_vec());
                write::bare(&mut self.held, back::PARSE_COMPLETE);
            }
            _ => self.fail("42601", "syntax error"),
        }
    }

    fn bind(&mut self, body: &[u8]) {
        let read = split_cstr(body).and_then(|(portal, rest)| split_cstr(rest).map(|(name, rest)| (portal, name, rest)));
        let Some((portal, name, rest)) = read else { return self.fail("08P01", "invalid string in message") };
        let Some(text) = self.statements.get(name).cloned() else {
            return self.fail("26000", "prepared statement does not exist");
        };
        if self.status == b'E' && !is_ending(&String::from_utf8_lossy(&text)) {
            return self.fail("25P02", "current transaction is aborted");
        }
        self.is_implicit = true;
        self.portals.insert(portal.to_vec(), (text, number_in(rest)));
        write::bare(&mut self.held, back::BIND_COMPLETE);
    }

    fn describe(&mut self, body: &[u8]) {
        let Some((kind, name)) = body.split_first() else { return self.fail("08P01", "no data left in message") };
        let name = split_cstr(name).map_or(&b""[..], |(name, _)| name);
        let text = match kind {
            b'S' => self.statements.get(name).cloned(),
            _ => self.portals.get(name).map(|(text, _)| text.clone()),
        };
        let Some(text) = text else { return self.fail("26000", "does not exist") };
        self.is_implicit = true;
        if *kind == b'S' {
            let count = text.windows(2).filter(|pair| *pair == b"$1").count().min(1);
            write::message(&mut self.held, back::PARAMETER_DESCRIPTION, |out| {
                out.extend((count as u16).to_be_bytes());
                out.extend([0u8, 0, 0, 23].repeat(count));
            });
        }
        match verb_of(&String::from_utf8_lossy(&text)) {
            "select" | "show" => write::row_description(&mut self.held, ["x"].into_iter(), &[]),
            _ => write::bare(&mut self.held, back::NO_DATA),
        }
    }

    fn execute(&mut self, body: &[u8]) {
        let name = split_cstr(body).map_or(&b""[..], |(name, _)| name);
        let Some((text, number)) = self.portals.get(name).cloned() else { return self.fail("34000", "portal does not exist") };
        let text = String::from_utf8_lossy(&text).into_owned();
        if split(&text).next().is_none() {
            return write::bare(&mut self.held, back::EMPTY_QUERY);
        }
        self.is_implicit = true;
        match self.run(&text, number, false) {
            Ran::Done => {}
            Ran::Copies => self.flush(),
            Ran::Failed if self.is_gone => {}
            Ran::Failed => {
                self.flush();
                self.skips = true;
            }
        }
    }

    fn close(&mut self, body: &[u8]) {
        let Some((kind, name)) = body.split_first() else { return self.fail("08P01", "no data left in message") };
        let name = split_cstr(name).map_or(&b""[..], |(name, _)| name);
        match kind {
            b'S' => drop(self.statements.remove(name)),
            _ => drop(self.portals.remove(name)),
        }
        self.is_implicit = true;
        write::bare(&mut self.held, back::CLOSE_COMPLETE);
    }

    fn run(&mut self, text: &str, bound: u32, is_query: bool) -> Ran {
        let number = if bound > 0 { bound } else { number_of(text) };
        let verb = verb_of(text);
        if self.status == b'E' && !is_ending(text) {
            self.error("25P02", "current transaction is aborted");
            return Ran::Failed;
        }
        let is_ours = text.contains("pg_catalog.");
        if let Some(code) =
            self.fails.take_if(|_| (number > 0 || (self.agrees && !matches!(verb, "begin" | "start"))) && !is_ours)
        {
            if FATAL.contains(&code) {
                self.go_by(code, "it goes");
            } else {
                self.error(code, "it fails");
            }
            return Ran::Failed;
        }
        if is_ours && !text.contains("set_config(") && std::mem::take(&mut self.fails_question) {
            self.error("57014", "canceling statement due to user request");
            return Ran::Failed;
        }
        let tag = match verb {
            "select" | "show" => return self.select(text, number, is_query),
            "copy" => {
                write::message(&mut self.held, back::COPY_IN, |out| out.extend([0, 0, 0]));
                self.copying = if is_query { Copying::ByQuery(number) } else { Copying::ByExecute(number) };
                self.flush();
                return Ran::Copies;
            }
            "insert" | "update" | "create" if self.is_standby => {
                self.error("25006", "cannot execute in a read-only transaction");
                return Ran::Failed;
            }
            "insert" => format!("INSERT 0 {number}"),
            "update" => format!("UPDATE {number}"),
            "begin" | "start" => {
                if self.status == b'I' {
                    self.settings_before = self.settings.clone();
                    self.status = b'T';
                }
                "BEGIN".to_owned()
            }
            "commit" | "rollback" => self.end(verb),
            _ => match self.command(verb, text) {
                Some(tag) => tag,
                None if self.agrees && text != "the transaction has failed" => text.to_ascii_uppercase(),
                None => {
                    self.error("42601", "syntax error");
                    return Ran::Failed;
                }
            },
        };
        write::command_complete(&mut self.held, &tag);
        Ran::Done
    }

    fn end(&mut self, verb: &str) -> String {
        let is_back = verb == "rollback" || self.status == b'E';
        if is_back && self.status != b'I' {
            self.notifies.clear();
            self.settings = self.settings_before.clone();
        }
        self.status = b'I';
        self.portals.clear();
        (if is_back { "ROLLBACK" } else { "COMMIT" }).to_owned()
    }

    /// A command that changes the session.
    fn command(&mut self, verb: &str, text: &str) -> Option<String> {
        let text = text.split("/*").next().unwrap_or_default().trim();
        let words: Vec<&str> = text.split([' ', ';', '=', '\'', '"']).filter(|word| !word.is_empty()).collect();
        let tag = match (verb, words.get(1).copied()) {
            ("set", Some(name)) => {
                self.settings.insert(name.to_owned(), words.last().copied().unwrap_or_default().to_owned());
                "SET"
            }
            ("reset", Some("all" | "ALL")) => {
                // Source: `ResetAllOptions` in guc.c.
                self.settings.retain(|name, _| name == "role");
                "RESET"
            }
            ("reset", Some(name)) => {
                self.settings.remove(name);
                "RESET"
            }
            ("discard", Some("all")) if self.status == b'I' => {
                let (settings, statements) = (BTreeMap::new(), BTreeMap::new());
                (self.settings, self.statements) = (settings, statements);
                self.by_sql.clear();
                self.left.clear();
                self.channels.clear();
                "DISCARD ALL"
            }
            ("discard", Some("SEQUENCES")) => "DISCARD SEQUENCES",
            ("create", _) => {
                if words.get(1) == Some(&"temp") {
                    self.left.insert(b't');
                }
                "CREATE TABLE"
            }
            ("listen", Some(name)) => {
                self.channels.insert(name.to_owned());
                "LISTEN"
            }
            ("unlisten", _) => {
                self.channels.clear();
                "UNLISTEN"
            }
            ("notify", Some(channel)) => {
                let channel = channel.trim_end_matches(',').to_owned();
                self.notifies.push((channel, words.get(2..).unwrap_or_default().join("").trim_matches(',').to_owned()));
                "NOTIFY"
            }
            ("prepare", Some(name)) if !self.by_sql.contains_key(name) => {
                self.by_sql.insert(name.to_owned(), text.to_owned());
                "PREPARE"
            }
            ("deallocate", Some("all" | "ALL")) => {
                self.by_sql.clear();
                self.statements.clear();
                "DEALLOCATE ALL"
            }
            ("deallocate", Some(name)) => {
                self.by_sql.remove(name)?;
                "DEALLOCATE"
            }
            ("execute", Some(name)) => {
                self.by_sql.get(name)?;
                "SELECT 0"
            }
            _ => return None,
        };
        Some(tag.to_owned())
    }

    fn select(&mut self, text: &str, number: u32, is_query: bool) -> Ran {
        if text.contains("1/0") {
            self.error("22012", "division by zero");
            return Ran::Failed;
        }
        let rows = self.rows(text, number);
        if is_query {
            write::row_description(&mut self.held, ["x"].into_iter(), &[]);
        }
        rows.iter().for_each(|row| write::data_row(&mut self.held, row));
        write::command_complete(&mut self.held, &format!("SELECT {number}"));
        Ran::Done
    }

    fn rows(&mut self, text: &str, number: u32) -> Vec<Vec<String>> {
        if let Some(rest) = text.split("set_config('").nth(1) {
            for part in text.split("set_config('").skip(1) {
                let mut words = part.split(['\'', ',', ')']).filter(|word| !word.is_empty());
                match (words.next(), words.next()) {
                    (Some(name), Some("NULL")) => drop(self.settings.remove(name)),
                    (Some("role"), Some("none")) => drop(self.settings.remove("role")),
                    (Some(name), Some(value)) => drop(self.settings.insert(name.to_owned(), value.to_owned())),
                    _ => {}
                }
            }
            return vec![vec![rest.len().to_string()]];
        }
        let row = |kind: &str, name: &str, value: &str| vec![kind.to_owned(), name.to_owned(), value.to_owned()];
        let mut rows = Vec::new();
        if self.agrees && text.contains("pg_control_system") {
            return vec![row("7", "00000003", "all")];
        }
        if self.agrees && text.contains("txid_current") {
            return vec![vec!["100".to_owned(), "1000".to_owned()]];
        }
        if text.contains("pg_temp") || text.contains("pg_lock(") {
            self.left.insert(b'a');
        }
        if text.contains("source OPERATOR") {
            let settings = self.settings.iter().filter(|(name, _)| *name != "role");
            rows.extend(settings.map(|(name, value)| row("s", name, value)));
        }
        for name in text
            .split("unnest(ARRAY[")
            .nth(1)
            .and_then(|rest| rest.split(']').next())
            .into_iter()
            .flat_map(|list| list.split(','))
        {
            let name = name.trim_matches('\'');
            let default = (name == WORK_MEM.0).then_some(WORK_MEM.1);
            rows.extend(self.settings.get(name).map(String::as_str).or(default).map(|value| row("s", name, value)));
        }
        if text.contains("SELECT 'u'") {
            rows.push(row("u", "joe", self.settings.get("role").map_or("none", String::as_str)));
        }
        if text.contains("pg_prepared_statements") {
            rows.extend(self.by_sql.iter().map(|(name, text)| row("p", name, text)));
            let by_protocol = self.statements.keys().filter(|name| !name.is_empty()).count();
            rows.push(row("k", &by_protocol.to_string(), ""));
        }
        if text.contains("pg_listening_channels") {
            rows.extend(self.channels.iter().map(|name| row("l", name, "")));
        }
        if text.contains("pg_my_temp_schema") && self.left.contains(&b't') {
            rows.push(row("t", "x", "r"));
        }
        if text.contains("pg_locks") && self.left.contains(&b'a') {
            rows.push(row("a", "", ""));
        }
        if !text.contains("pg_catalog.") {
            rows.push(vec![number.to_string()]);
        }
        rows
    }
}

enum Ran {
    Done,
    Copies,
    Failed,
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|statement| !statement.is_empty())
}

fn verb_of(text: &str) -> &'static str {
    const VERBS: &[&str] = &[
        "select",
        "insert",
        "update",
        "begin",
        "start",
        "commit",
        "rollback",
        "set",
        "reset",
        "copy",
        "show",
        "create",
        "discard",
        "listen",
        "unlisten",
        "notify",
        "prepare",
        "execute",
        "deallocate",
    ];
    let word = text
        .trim_start_matches([' ', '('])
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    match text.trim().is_empty() {
        true => "",
        false => VERBS.iter().find(|verb| **verb == word).copied().unwrap_or("?"),
    }
}

fn is_ending(text: &str) -> bool {
    matches!(verb_of(text), "commit" | "rollback")
}

/// The number in a text: the digits behind the last `#`.
fn number_of(text: &str) -> u32 {
    let digits = text.rsplit_once('#').map_or("", |(_, rest)| rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The number that the first value of a Bind is.
fn number_in(rest: &[u8]) -> u32 {
    let value = rest.get(4..8).and_then(|length| rest.get(8..8 + u32::from_be_bytes(length.try_into().ok()?) as usize));
    value.and_then(|value| String::from_utf8_lossy(value).parse().ok()).unwrap_or(0)
}
