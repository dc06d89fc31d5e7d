//! The savepoints of a transaction, as far as several shards must know of them.
//!
//! The session has the stack that the client sees, and so has the server connection that it uses. A connection that is parked keeps the stack that
//! it had then; `catch_up` tells what brings it to the client's again.

use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use weir_sql::facts::{SavepointCommand, SavepointVerb};

/// Most savepoints of a transaction that goes on to other shards. Drivers set one before each statement, and some release none.
pub const SAVEPOINTS_MAX: usize = 1000;

/// Longest name, in bytes. A server cuts off longer ones: `NAMEDATALEN` in pg_config_manual.h.
const NAME_BYTES_MAX: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Savepoint {
    /// Of all savepoints of the transaction, in order.
    number: u32,
    name: Rc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavepointStack {
    savepoints: Vec<Savepoint>,
    /// As many savepoints were set when the last statement ran on the connection.
    worked_at: usize,
}

/// The savepoints of the open transaction.
#[derive(Default)]
pub struct Savepoints {
    /// The client's, with the work of the server connection in use.
    pub(crate) stack: SavepointStack,
    /// Commands under way.
    sent: VecDeque<SentCommand>,
    /// The command in the unnamed portal.
    pub(crate) bound: Option<SavepointCommand>,
    last: u32,
}

struct SentCommand {
    command: SavepointCommand,
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

    pub fn note_sent(&mut self, command: SavepointCommand) {
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
        let is_next = |sent: &SentCommand| tag(sent.command.verb).as_bytes() == told;
        if self.sent.front().is_some_and(is_next)
            && let Some(sent) = self.sent.pop_front()
        {
            self.apply(&sent.command);
            if sent.has_work_behind {
                self.note_work();
            }
        }
    }

    /// Commands without a tag were not carried out.
    pub fn all_answered(&mut self) {
        self.sent.clear();
    }

    pub fn is_full(&self) -> bool {
        self.stack.savepoints.len() + self.sent.len() >= SAVEPOINTS_MAX
    }

    /// The session goes on over another connection.
    pub fn arrive(&mut self) {
        self.sent.clear();
        self.bound = None;
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
pub fn carried_command(command: Option<&SavepointCommand>) -> Option<SavepointCommand> {
    command.filter(|command| is_plain(&command.name)).cloned()
}

/// True if the name is the client's and each server's alike.
fn is_plain(name: &str) -> bool {
    name.is_ascii() && name.len() <= NAME_BYTES_MAX
}

impl SavepointStack {
    /// The place of the innermost savepoint of this name.
    fn place(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|savepoint| &*savepoint.name == name)
    }

    /// The number of the innermost savepoint of this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.place(name).map(|at| self.savepoints[at].number)
    }

    /// Carries a command out. `number`: of a new savepoint. False: it names no savepoint.
    pub fn apply(&mut self, command: &SavepointCommand, number: u32) -> bool {
        match (command.verb, self.place(&command.name)) {
            (SavepointVerb::Set, at) => {
                // Drivers that release none set the same name over and over.
                let name = at.map_or_else(|| Rc::from(&*command.name), |at| self.savepoints[at].name.clone());
                self.savepoints.push(Savepoint { number, name });
            }
            (SavepointVerb::Release, Some(at)) => self.release(at),
            (SavepointVerb::RollBackTo, Some(at)) => self.roll_back(at),
            (SavepointVerb::Release | SavepointVerb::RollBackTo, None) => return false,
        }
        true
    }

    fn release(&mut self, at: usize) {
        self.savepoints.truncate(at);
        self.worked_at = self.worked_at.min(at);
    }

    fn roll_back(&mut self, at: usize) {
        self.savepoints.truncate(at + 1);
        self.worked_at = self.worked_at.min(at);
    }

    pub fn note_work(&mut self) {
        self.worked_at = self.savepoints.len();
    }

    /// The stack of a connection on which the transaction has not begun.
    pub fn forget_work(&mut self) {
        self.worked_at = 0;
    }

    /// True if a statement ran on the connection since this savepoint.
    pub fn worked_since(&self, number: u32) -> bool {
        self.savepoints.iter().position(|savepoint| savepoint.number == number).is_some_and(|at| self.worked_at > at)
    }

    /// The text that rolls the connection back to a savepoint. The client may have released inner ones of its name.
    pub fn rollback_text(&self, number: u32) -> Option<String> {
        let at = self.savepoints.iter().position(|savepoint| savepoint.number == number)?;
        let mut text = String::new();
        let target = &self.savepoints[at].name;
        let inner = self.savepoints[at + 1..].iter().filter(|savepoint| savepoint.name == *target);
        inner.for_each(|savepoint| release_in(&mut text, &savepoint.name));
        let _ = write!(text, "ROLLBACK TO SAVEPOINT {}", quoted(target));
        Some(text)
    }

    pub fn rolled_back(&mut self, number: u32) {
        if let Some(at) = self.savepoints.iter().position(|savepoint| savepoint.number == number) {
            self.roll_back(at);
        }
    }

    /// The text that gives a connection without savepoints this stack. `None`: it has it.
    pub fn text(&self) -> Option<String> {
        SavepointStack::default().missing(self, 0)
    }

    /// Takes over the client's stack. Returns the text that does so on the connection. `None`: it has it.
    pub fn catch_up(&mut self, client: &SavepointStack) -> Option<String> {
        let pairs = self.savepoints.iter().zip(&client.savepoints);
        let common = pairs.take_while(|(own, other)| own.number == other.number).count();
        let text = self.missing(client, common);
        *self = SavepointStack { savepoints: client.savepoints.clone(), worked_at: self.worked_at.min(common) };
        text
    }

    fn missing(&self, client: &SavepointStack, common: usize) -> Option<String> {
        let mut text = String::new();
        self.savepoints[common..].iter().rev().for_each(|savepoint| release_in(&mut text, &savepoint.name));
        for savepoint in &client.savepoints[common..] {
            let _ = write!(text, "SAVEPOINT {}; ", quoted(&savepoint.name));
        }
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
    let caught_up = stack(&["own"], 1).catch_up(&stack(&["other"], 2));
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

    /// `+a` sets, `-a` releases, `<a` rolls back to; `!` is a statement.
    fn run(stack: &mut SavepointStack, commands: &str, number: &mut u32) -> String {
        for text in commands.split_whitespace() {
            if text == "!" {
                stack.note_work();
                continue;
            }
            *number += 1;
            if !stack.apply(&command(text), *number) {
                return format!("unknown {}", &text[1..]);
            }
        }
        shown(stack)
    }

    fn shown(stack: &SavepointStack) -> String {
        let names: Vec<&str> = stack.savepoints.iter().map(|savepoint| &*savepoint.name).collect();
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
        ] {
            let (mut client, mut number) = (SavepointStack::default(), 0);
            run(&mut client, before, &mut number);
            let mut own = client.clone();
            own.note_work();
            run(&mut client, behind, &mut number);
            assert_eq!(own.catch_up(&client).unwrap_or_default(), text, "{before}, {behind}");
            assert_eq!(own.savepoints, client.savepoints);
            assert!(own.worked_at <= own.savepoints.len());
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
            savepoints.note_sent(command(text));
        }
        savepoints.note_work();
        savepoints.done(b"UPDATE 1");
        assert_eq!(shown(&savepoints.stack), "0", "of another statement");
        savepoints.done(b"SAVEPOINT");
        savepoints.done(b"SAVEPOINT");
        assert_eq!(shown(&savepoints.stack), "a 0", "the next one is none that sets a savepoint");
        savepoints.all_answered();
        for (text, told) in [("+b", "SAVEPOINT"), ("<a", "ROLLBACK"), ("+b", "SAVEPOINT")] {
            savepoints.note_sent(command(text));
            savepoints.note_work();
            savepoints.done(told.as_bytes());
        }
        assert_eq!(shown(&savepoints.stack), "a b 2");
        assert!(!savepoints.awaits_tag() && !savepoints.is_full());
    }

    #[test]
    fn names_that_a_server_may_change_are_not_carried_along() {
        assert!(is_plain("a b") && is_plain(&"n".repeat(63)));
        assert!(!is_plain("ä") && !is_plain(&"n".repeat(64)));
    }
}
