//! The savepoints of a transaction, and the settings for its time, as far as several shards must know of them.
//!
//! The session has the stack that the client sees, and so has the server connection that it uses. A connection that is parked keeps the stack that
//! it had then; `catch_up` tells what brings it to the client's again.

use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use weir_sql::facts::{SavepointCommand, SavepointVerb};

/// Most savepoints and settings of a transaction that goes on to other shards. Drivers set a savepoint before each statement, and some release none.
pub const ENTRIES_MAX: usize = 1000;

/// Longest name, in bytes. A server cuts off longer ones: `NAMEDATALEN` in pg_config_manual.h.
const NAME_BYTES_MAX: usize = 63;

/// Longest value of a setting, in bytes. Each shard gets all settings of the transaction in one message.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// Settings that servers tell of, and by which the client or Weir reads texts and values. Source: `GUC_REPORT` in guc_tables.c.
const TOLD: [&str; 10] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "default_transaction_read_only",
    "intervalstyle",
    "scram_iterations",
    "search_path",
    "session_authorization",
    "standard_conforming_strings",
    "timezone",
];

/// A command of which other shards are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedCommand {
    Savepoint(SavepointCommand),
    /// `SET LOCAL`, as each shard gets it.
    Setting(Rc<str>),
}

impl CarriedCommand {
    /// The tag with which a server tells that it was carried out.
    pub fn tag(&self) -> &'static str {
        match self {
            CarriedCommand::Savepoint(command) => tag(command.verb),
            CarriedCommand::Setting(_) => "SET",
        }
    }
}

pub const fn tag(verb: SavepointVerb) -> &'static str {
    match verb {
        SavepointVerb::Set => "SAVEPOINT",
        SavepointVerb::Release => "RELEASE",
        SavepointVerb::RollBackTo => "ROLLBACK",
    }
}

/// The command of a text, if other shards can be told of it.
pub fn carried_savepoint(command: Option<&SavepointCommand>) -> Option<SavepointCommand> {
    command.filter(|command| is_plain(&command.name)).cloned()
}

/// `SET LOCAL` of a parameter, if other shards can be told of it.
pub fn carried_setting(set: Option<&(String, String)>) -> Option<CarriedCommand> {
    let (name, value) = set?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    let is_value = value.len() <= VALUE_BYTES_MAX && value.is_ascii() && !value.contains('\\');
    if TOLD.contains(&name.as_str()) || name.starts_with("weir.") || !is_name(name) || !is_value {
        return None;
    }
    let parts: Vec<String> = name.split('.').map(quoted).collect();
    Some(CarriedCommand::Setting(format!("SET LOCAL {} = '{}'", parts.join("."), value.replace('\'', "''")).into()))
}

/// True if the name is the client's and each server's alike.
fn is_plain(name: &str) -> bool {
    name.is_ascii() && name.len() <= NAME_BYTES_MAX
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StackEntry {
    /// Of all entries of the transaction, in order.
    number: u32,
    kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EntryKind {
    Savepoint(Rc<str>),
    /// The text that makes it. `RELEASE` keeps it.
    Setting(Rc<str>),
}

impl StackEntry {
    fn savepoint(&self) -> Option<&Rc<str>> {
        match &self.kind {
            EntryKind::Savepoint(name) => Some(name),
            EntryKind::Setting(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavepointStack {
    /// By their numbers.
    entries: Vec<StackEntry>,
    /// As many entries were there when the last statement ran on the connection.
    worked_at: usize,
}

/// The savepoints and settings of the open transaction.
#[derive(Default)]
pub struct Savepoints {
    /// The client's, with the work of the server connection in use.
    pub(crate) stack: SavepointStack,
    /// Commands under way.
    sent: VecDeque<SentCommand>,
    /// The command in the unnamed portal.
    pub(crate) bound: Option<CarriedCommand>,
    last: u32,
}

struct SentCommand {
    command: CarriedCommand,
    /// True if statements follow it that are under way, too.
    has_work_behind: bool,
}

impl Savepoints {
    /// Carries a command out. False: it names no savepoint.
    pub fn apply(&mut self, command: &SavepointCommand) -> bool {
        self.last += 1;
        self.stack.apply(command, self.last)
    }

    pub fn note_work(&mut self) {
        match self.sent.back_mut() {
            Some(last) => last.has_work_behind = true,
            None => self.stack.note_work(),
        }
    }

    pub fn note_sent(&mut self, command: CarriedCommand) {
        self.sent.push_back(SentCommand { command, has_work_behind: false });
    }

    /// The unnamed portal is executed.
    pub fn note_executed(&mut self) {
        self.bound.clone().into_iter().for_each(|command| self.note_sent(command));
    }

    pub fn awaits_tag(&self) -> bool {
        !self.sent.is_empty()
    }

    /// A server tells that a command was carried out, if the tag is of one.
    pub fn done(&mut self, told: &[u8]) {
        let is_next = |sent: &SentCommand| sent.command.tag().as_bytes() == told;
        if !self.sent.front().is_some_and(is_next) {
            return;
        }
        let Some(sent) = self.sent.pop_front() else { return };
        match &sent.command {
            CarriedCommand::Savepoint(command) => {
                self.apply(command);
            }
            CarriedCommand::Setting(text) => {
                self.last += 1;
                self.stack.note_setting(text.clone(), self.last);
            }
        }
        if sent.has_work_behind {
            self.note_work();
        }
    }

    /// Commands without a tag were not carried out.
    pub fn all_answered(&mut self) {
        self.sent.clear();
    }

    pub fn is_full(&self) -> bool {
        self.stack.entries.len() + self.sent.len() >= ENTRIES_MAX
    }

    /// The session goes on over another connection.
    pub fn arrive(&mut self) {
        self.sent.clear();
        self.bound = None;
    }
}

impl SavepointStack {
    /// The place of the innermost savepoint of this name.
    fn place(&self, name: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.savepoint().is_some_and(|own| &**own == name))
    }

    fn place_of(&self, number: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    /// The number of the innermost savepoint of this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.place(name).map(|at| self.entries[at].number)
    }

    /// Carries a command out. `number`: of a new savepoint. False: it names no savepoint.
    pub fn apply(&mut self, command: &SavepointCommand, number: u32) -> bool {
        match (command.verb, self.place(&command.name)) {
            (SavepointVerb::Set, at) => {
                // Drivers that release none set the same name over and over.
                let same = at.and_then(|at| self.entries[at].savepoint().cloned());
                let kind = EntryKind::Savepoint(same.unwrap_or_else(|| Rc::from(&*command.name)));
                self.entries.push(StackEntry { number, kind });
            }
            (SavepointVerb::Release, Some(at)) => self.release(at),
            (SavepointVerb::RollBackTo, Some(at)) => self.roll_back(at),
            (SavepointVerb::Release | SavepointVerb::RollBackTo, None) => return false,
        }
        true
    }

    /// A setting counts as work: a rollback undoes it.
    pub fn note_setting(&mut self, text: Rc<str>, number: u32) {
        self.entries.push(StackEntry { number, kind: EntryKind::Setting(text) });
        self.note_work();
    }

    fn release(&mut self, at: usize) {
        let kept = self.entries.split_off(at).into_iter().filter(|entry| entry.savepoint().is_none());
        self.entries.extend(kept);
        self.worked_at = self.worked_at.min(at);
    }

    fn roll_back(&mut self, at: usize) {
        self.entries.truncate(at + 1);
        self.worked_at = self.worked_at.min(at);
    }

    pub fn note_work(&mut self) {
        self.worked_at = self.entries.len();
    }

    /// True if a statement ran on the connection since this savepoint.
    pub fn worked_since(&self, number: u32) -> bool {
        self.place_of(number).is_some_and(|at| self.worked_at > at)
    }

    /// The text that rolls the connection back to a savepoint. The client may have released inner ones of its name.
    pub fn rollback_text(&self, number: u32) -> Option<String> {
        let at = self.place_of(number)?;
        let target = self.entries[at].savepoint()?;
        let mut text = String::new();
        let inner = self.entries[at + 1..].iter().filter(|entry| entry.savepoint() == Some(target));
        inner.for_each(|_| release_in(&mut text, target));
        let _ = write!(text, "ROLLBACK TO SAVEPOINT {}", quoted(target));
        Some(text)
    }

    pub fn rolled_back(&mut self, number: u32) {
        if let Some(at) = self.place_of(number) {
            self.roll_back(at);
        }
    }

    /// Takes over the client's stack on a connection that has this one. Returns the text that does so there. `None`: it has it.
    ///
    /// Settings that the client lacks are none: `ROLLBACK TO` was sent to all connections that had them.
    pub fn catch_up(&mut self, client: &SavepointStack) -> Option<String> {
        let mut text = String::new();
        let is_over = |entry: &&StackEntry| client.place_of(entry.number).is_none();
        for name in self.entries.iter().rev().filter(is_over).filter_map(|entry| entry.savepoint()) {
            release_in(&mut text, name);
        }
        if let Some(at) = self.entries.iter().position(|entry| is_over(&entry)) {
            self.worked_at = self.worked_at.min(at);
        }
        for (at, entry) in client.entries.iter().enumerate() {
            if self.place_of(entry.number).is_some() {
                continue;
            }
            text.push_str(&match &entry.kind {
                EntryKind::Savepoint(name) => format!("SAVEPOINT {}; ", quoted(name)),
                EntryKind::Setting(setting) => {
                    self.worked_at = at + 1;
                    format!("{setting}; ")
                }
            });
        }
        self.entries.clone_from(&client.entries);
        (!text.is_empty()).then(|| text.trim_end_matches("; ").to_owned())
    }
}

fn release_in(text: &mut String, name: &str) {
    let _ = write!(text, "RELEASE SAVEPOINT {}; ", quoted(name));
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn own_texts() -> Vec<String> {
    let stack = |names: &[&str], first: u32| {
        let mut stack = SavepointStack::default();
        for (name, number) in names.iter().zip(first..) {
            stack.apply(&SavepointCommand { verb: SavepointVerb::Set, name: (*name).into() }, number);
        }
        stack
    };
    let mut client = stack(&["other"], 2);
    let set = ("work_mem".to_owned(), "1MB".to_owned());
    if let Some(CarriedCommand::Setting(text)) = carried_setting(Some(&set)) {
        client.note_setting(text, 3);
    }
    let caught_up = stack(&["own"], 1).catch_up(&client);
    [stack(&["own"], 1).rollback_text(1), caught_up].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> SavepointCommand {
        let (verb, name) = match text.split_at(1) {
            ("+", name) => (SavepointVerb::Set, name),
            ("-", name) => (SavepointVerb::Release, name),
            (_, name) => (SavepointVerb::RollBackTo, name),
        };
        SavepointCommand { verb, name: name.into() }
    }

    /// `+a` sets, `-a` releases, `<a` rolls back to; `=a` is a setting, `!` another statement.
    fn run(stack: &mut SavepointStack, commands: &str, number: &mut u32) -> String {
        for text in commands.split_whitespace() {
            if text == "!" {
                stack.note_work();
                continue;
            }
            *number += 1;
            if let Some(setting) = text.strip_prefix('=') {
                stack.note_setting(setting.into(), *number);
                continue;
            }
            if !stack.apply(&command(text), *number) {
                return format!("unknown {}", &text[1..]);
            }
        }
        shown(stack)
    }

    fn shown(stack: &SavepointStack) -> String {
        let shown_one = |entry: &StackEntry| match &entry.kind {
            EntryKind::Savepoint(name) => name.to_string(),
            EntryKind::Setting(text) => format!("={text}"),
        };
        let names: Vec<String> = stack.entries.iter().map(shown_one).collect();
        format!("{} {}", names.join(" "), stack.worked_at).trim().to_owned()
    }

    #[test]
    fn savepoints_nest_as_on_a_server() {
        for (commands, expected) in [
            ("+a +b", "a b 0"),
            ("+a +b ! <a", "a 0"),
            ("+a +b ! -a", "0"),
            ("! +a +b -b", "a 0"),
            ("+a ! +b <b", "a b 1"),
            ("+a +a ! <a", "a a 1"),
            ("+a +a -a -a", "0"),
            ("+a -a -a", "unknown a"),
            ("+a +b <a <b", "unknown b"),
            ("<a", "unknown a"),
            ("=x +a =y +b =z", "=x a =y b =z 5"),
            ("=x +a =y +b =z -a", "=x =y =z 1"),
            ("=x +a =y +b =z <a", "=x a 1"),
        ] {
            assert_eq!(run(&mut SavepointStack::default(), commands, &mut 0), expected, "{commands}");
        }
    }

    #[test]
    fn a_connection_gets_what_it_has_missed() {
        for (before, behind, text) in [
            ("", "+a +b", "SAVEPOINT \"a\"; SAVEPOINT \"b\""),
            ("+a", "", ""),
            ("+a", "+b", "SAVEPOINT \"b\""),
            ("+a", "-a", "RELEASE SAVEPOINT \"a\""),
            ("+a", "-a +a", "RELEASE SAVEPOINT \"a\"; SAVEPOINT \"a\""),
            ("+a +b", "-a +c\"", "RELEASE SAVEPOINT \"b\"; RELEASE SAVEPOINT \"a\"; SAVEPOINT \"c\"\"\""),
            ("+a", "+b <a", ""),
            ("", "=x +a =y", "x; SAVEPOINT \"a\"; y"),
            ("=x +a =y", "-a", "RELEASE SAVEPOINT \"a\""),
            ("=x +a =y +b", "=z -a =u", "RELEASE SAVEPOINT \"b\"; RELEASE SAVEPOINT \"a\"; z; u"),
        ] {
            let (mut client, mut number) = (SavepointStack::default(), 0);
            run(&mut client, before, &mut number);
            let mut own = client.clone();
            own.note_work();
            run(&mut client, behind, &mut number);
            assert_eq!(own.catch_up(&client).unwrap_or_default(), text, "{before}, {behind}");
            assert_eq!(own.entries, client.entries);
            assert!(own.worked_at <= own.entries.len());
        }
    }

    #[test]
    fn a_connection_is_rolled_back_if_something_ran_there_since() {
        for (before, behind, name, text) in [
            ("+a !", "", "a", "ROLLBACK TO SAVEPOINT \"a\""),
            ("! +a", "", "a", ""),
            ("", "+a", "a", ""),
            ("+a ! +b !", "-b", "a", "ROLLBACK TO SAVEPOINT \"a\""),
            ("+a +a !", "-a", "a", "RELEASE SAVEPOINT \"a\"; ROLLBACK TO SAVEPOINT \"a\""),
            ("+a ! +b", "", "b", ""),
            ("+a =x", "", "a", "ROLLBACK TO SAVEPOINT \"a\""),
            ("=x +a", "", "a", ""),
        ] {
            let (mut client, mut number) = (SavepointStack::default(), 0);
            run(&mut client, before, &mut number);
            let mut own = client.clone();
            run(&mut client, behind, &mut number);
            let target = client.number(name).unwrap();
            let told = own.rollback_text(target).filter(|_| own.worked_since(target)).unwrap_or_default();
            assert_eq!(told, text, "{before}, {behind}");
            own.rolled_back(target);
            assert!(!own.worked_since(target));
        }
    }

    #[test]
    fn commands_count_once_they_are_answered() {
        let mut savepoints = Savepoints::default();
        for text in ["+a", "<b", "-a", "+c"] {
            savepoints.note_sent(CarriedCommand::Savepoint(command(text)));
        }
        savepoints.note_work();
        savepoints.done(b"UPDATE 1");
        assert_eq!(shown(&savepoints.stack), "0", "of another statement");
        savepoints.done(b"SAVEPOINT");
        savepoints.done(b"SAVEPOINT");
        assert_eq!(shown(&savepoints.stack), "a 0", "the next one is none that sets a savepoint");
        savepoints.all_answered();
        for (text, told) in [("+b", "SAVEPOINT"), ("<a", "ROLLBACK"), ("+b", "SAVEPOINT")] {
            savepoints.note_sent(CarriedCommand::Savepoint(command(text)));
            savepoints.note_work();
            savepoints.done(told.as_bytes());
        }
        assert_eq!(shown(&savepoints.stack), "a b 2");
        savepoints.note_sent(CarriedCommand::Setting("x".into()));
        savepoints.done(b"SET");
        assert_eq!(shown(&savepoints.stack), "a b =x 3");
        assert!(!savepoints.awaits_tag() && !savepoints.is_full());
    }

    #[test]
    fn names_that_a_server_may_change_are_not_carried_along() {
        assert!(is_plain("a b") && is_plain(&"n".repeat(63)));
        assert!(!is_plain("ä") && !is_plain(&"n".repeat(64)));
    }

    #[test]
    fn a_shard_that_joins_late_has_work_behind_its_settings() {
        let (mut client, mut number) = (SavepointStack::default(), 0);
        run(&mut client, "+a =x +b", &mut number);
        let mut own = SavepointStack::default();
        own.catch_up(&client);
        let numbers = ["a", "b"].map(|name| client.number(name).unwrap());
        assert_eq!(numbers.map(|number| own.worked_since(number)), [true, false]);
    }

    #[test]
    fn settings_that_nobody_is_told_of_are_carried_along() {
        let carried = |name: &str, value: &str| match carried_setting(Some(&(name.to_owned(), value.to_owned()))) {
            Some(CarriedCommand::Setting(text)) => text.to_string(),
            _ => String::new(),
        };
        assert_eq!(carried("work_mem", "1MB"), "SET LOCAL \"work_mem\" = '1MB'");
        assert_eq!(carried("app.tenant", "it's 7"), "SET LOCAL \"app\".\"tenant\" = 'it''s 7'");
        for (name, value) in [
            ("timezone", "UTC"),
            ("weir.plan", "engine"),
            ("app.ä", "1"),
            ("app.x", "\\"),
            ("app.x", "ä"),
            ("app.x", &"1".repeat(1025)),
        ] {
            assert_eq!(carried(name, value), "", "{name}");
        }
    }
}
