//! Scripts: a client's messages and its waits for answers. Made from a seed, and made smaller when they fail.

use crate::dice::Dice;
use crate::message::Message;
use crate::texts::{DEALLOCATES, DEFINITIONS, READS, SESSION, TRANSACTIONS, Text, WRITES};

/// When a client goes on after a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At once.
    No,
    /// After the next ReadyForQuery. Only when all before has been waited for and the unit gives exactly one.
    Ready,
    /// After the reply to the only Execute of the unit, unless an error was told since the last ReadyForQuery.
    Execute,
    /// After a row with this value, and the ReadyForQuery behind it.
    Row(String),
}

/// Messages a client has to send before it waits again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub messages: Vec<Message>,
    pub wait: Wait,
}

/// Limits of the generated scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads may be answered by a standby, so they must not see the script's writes.
    pub with_standby: bool,
}

/// Names of statements; the last two belong to COPY alone, so that no other Execute begins one.
const STATEMENTS: [&str; 4] = ["", "a", "b", "c"];
const PORTALS: [&str; 3] = ["", "p", "q"];
const COPY: &str = "copy";

/// Knowledge of the replies at the end of a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// All came.
    All,
    /// All came that can come before a Sync.
    Unsynced,
    /// Some may still come.
    Some,
}

/// Makes one script of up to 14 units.
pub fn make(dice: &mut Dice, limits: Limits) -> Vec<Unit> {
    let mut maker = Maker { dice, limits, parameters: [0; STATEMENTS.len()] };
    let mut known = Known::All;
    let mut units = Vec::new();
    for number in 0..1 + maker.dice.below(14) {
        let (unit, after) = maker.unit(known, number);
        units.push(unit);
        known = after;
    }
    units.push(last());
    units
}

/// Ends all that is open and asks one more thing: a session that answers it is in step.
fn last() -> Unit {
    let mut messages = vec![Message::CopyFail];
    messages.extend(mark("end"));
    Unit { messages, wait: Wait::Row("end".into()) }
}

fn mark(value: &str) -> [Message; 3] {
    [Message::Sync, Message::Query("rollback".into()), Message::Query(format!("select '{value}'"))]
}

struct Maker<'a> {
    dice: &'a mut Dice,
    limits: Limits,
    /// Parameters of the statement that each name was last given.
    parameters: [usize; STATEMENTS.len()],
}

impl Maker<'_> {
    fn unit(&mut self, known: Known, number: usize) -> (Unit, Known) {
        let exact = known != Known::Some;
        match self.dice.below(12) {
            0..=2 if known == Known::All => (Unit { messages: vec![self.query()], wait: Wait::Ready }, Known::All),
            3 if exact => {
                let mut messages = vec![self.parse()];
                if self.dice.once_in(2) {
                    messages.push(Message::DescribeStatement(self.statement().0));
                }
                messages.push(Message::Sync);
                (Unit { messages, wait: Wait::Ready }, Known::All)
            }
            4 | 5 if exact => {
                let mut messages = self.run();
                messages.push(Message::Sync);
                (Unit { messages, wait: Wait::Ready }, Known::All)
            }
            6 if exact => {
                let mut messages = if self.dice.once_in(2) { vec![self.parse()] } else { Vec::new() };
                messages.extend(self.run());
                messages.push(Message::Flush);
                (Unit { messages, wait: Wait::Execute }, Known::Unsynced)
            }
            7 if known == Known::All => {
                let messages = self.simple_copy();
                (Unit { messages, wait: Wait::Ready }, Known::All)
            }
            _ => self.pipeline(number),
        }
    }

    /// Any messages in any order.
    fn pipeline(&mut self, number: usize) -> (Unit, Known) {
        let mut messages = Vec::new();
        for _ in 0..1 + self.dice.below(12) {
            match self.dice.below(20) {
                0 | 1 => messages.push(self.query()),
                2..=5 => messages.push(self.parse()),
                6..=9 => messages.extend(self.run()),
                10 => messages.push(self.bind()),
                11 => messages.push(self.execute()),
                12 => messages.push(Message::DescribeStatement(self.statement().0)),
                13 => messages.push(Message::DescribePortal(self.dice.of(&PORTALS))),
                14 => messages.push(self.close()),
                15 => messages.push(Message::Flush),
                16..=17 => messages.push(Message::Sync),
                18 => messages.extend(self.copy_in()),
                _ => messages.push(self.call()),
            }
        }
        if self.dice.once_in(3) {
            return (Unit { messages, wait: Wait::No }, Known::Some);
        }
        let value = format!("mark {number}");
        messages.extend(mark(&value));
        (Unit { messages, wait: Wait::Row(value) }, Known::All)
    }

    fn text(&mut self) -> Text {
        let more = if self.limits.with_standby { WRITES } else { DEFINITIONS };
        let list = match self.dice.below(12) {
            0..=4 => READS,
            5 | 6 => WRITES,
            7 => more,
            8 | 9 => TRANSACTIONS,
            _ => SESSION,
        };
        self.dice.of(list)
    }

    fn query(&mut self) -> Message {
        if self.dice.once_in(15) {
            return Message::Query(self.dice.of(DEALLOCATES).sql.into());
        }
        let count = if self.dice.once_in(4) { 2 + self.dice.below(2) } else { 1 };
        let texts: Vec<&str> = (0..count).map(|_| self.text().sql).collect();
        Message::Query(texts.join("; "))
    }

    /// One of the names, and the number of its statement's parameters.
    fn statement(&mut self) -> (&'static str, usize) {
        let at = self.dice.below(STATEMENTS.len());
        (STATEMENTS[at], self.parameters[at])
    }

    fn parse(&mut self) -> Message {
        let at = self.dice.below(STATEMENTS.len());
        let text = self.text();
        self.parameters[at] = text.parameters;
        let types = match self.dice.below(6) {
            0 => vec![23],
            1 => vec![25],
            _ => Vec::new(),
        };
        Message::Parse { name: STATEMENTS[at], text: text.sql.into(), types }
    }

    fn bind(&mut self) -> Message {
        let (name, count) = self.statement();
        let portal = self.dice.of(&PORTALS);
        self.bind_to(portal, name, count)
    }

    fn bind_to(&mut self, portal: &'static str, name: &'static str, count: usize) -> Message {
        let count = if self.dice.once_in(25) { count + 1 } else { count };
        let values = [Some("1"), Some("2"), Some("3"), Some("0"), Some("x"), None];
        let parameters = (0..count).map(|_| self.dice.of(&values).map(String::from)).collect();
        let formats = match self.dice.below(12) {
            0 => vec![1],
            1 => vec![0],
            2 => vec![0, 1],
            _ => Vec::new(),
        };
        Message::Bind { portal, name, parameters, formats }
    }

    fn execute(&mut self) -> Message {
        let rows_max = if self.dice.once_in(3) { 1 + self.dice.below(3) as u32 } else { 0 };
        Message::Execute { portal: self.dice.of(&PORTALS), rows_max }
    }

    /// Bind, perhaps Describe, one Execute.
    fn run(&mut self) -> Vec<Message> {
        let (name, count) = self.statement();
        let portal = if self.dice.once_in(3) { self.dice.of(&PORTALS) } else { "" };
        let mut messages = vec![self.bind_to(portal, name, count)];
        if self.dice.once_in(2) {
            messages.push(Message::DescribePortal(portal));
        }
        let rows_max = if self.dice.once_in(3) { 1 + self.dice.below(3) as u32 } else { 0 };
        messages.push(Message::Execute { portal, rows_max });
        messages
    }

    fn close(&mut self) -> Message {
        if self.dice.once_in(3) {
            return Message::ClosePortal(self.dice.of(&PORTALS));
        }
        Message::CloseStatement(self.statement().0)
    }

    fn call(&mut self) -> Message {
        // int4pl, int4div, nothing.
        let function = self.dice.of(&[177, 154, 1]);
        Message::Call { function, arguments: vec![self.dice.of(&["4", "x"]), self.dice.of(&["2", "0"])] }
    }

    fn copy_data(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        for _ in 0..self.dice.below(4) {
            let row = match self.dice.below(8) {
                0 => "not a number\tx\n".to_string(),
                1 => format!("{}\t{}\n", 50 + self.dice.below(50), "long".repeat(5000)),
                _ => format!("{}\tcopied\n", self.dice.below(30)),
            };
            messages.push(Message::CopyData(row));
        }
        messages.push(if self.dice.once_in(5) { Message::CopyFail } else { Message::CopyDone });
        messages
    }

    fn simple_copy(&mut self) -> Vec<Message> {
        let mut messages = vec![Message::Query("copy w from stdin".into())];
        messages.extend(self.copy_data());
        messages
    }

    /// A whole COPY in a pipeline; a Sync before its data is ignored by the server.
    fn copy_in(&mut self) -> Vec<Message> {
        let mut messages = vec![
            Message::CloseStatement(COPY),
            Message::Parse { name: COPY, text: "copy w from stdin".into(), types: Vec::new() },
            Message::Bind { portal: COPY, name: COPY, parameters: Vec::new(), formats: Vec::new() },
            Message::Execute { portal: COPY, rows_max: 0 },
        ];
        if self.dice.once_in(2) {
            messages.push(Message::Sync);
        }
        messages.extend(self.copy_data());
        messages
    }
}

/// One line for each unit.
pub fn print(units: &[Unit]) -> String {
    let line = |unit: &Unit| format!("  send {:?}, wait {:?}\n", unit.messages, unit.wait);
    units.iter().map(line).collect()
}

/// All scripts that lack one unit or one message of this one, larger cuts first.
pub fn smaller(units: &[Unit]) -> Vec<Vec<Unit>> {
    let end = units.len() - 1;
    let mut all = Vec::new();
    for at in 0..end {
        let mut less = units.to_vec();
        less.remove(at);
        all.push(less);
    }
    for at in 0..end {
        // The messages of the wait stay: the last one, or the three of a mark.
        let kept = match units[at].wait {
            Wait::No => 0,
            Wait::Ready | Wait::Execute => 1,
            Wait::Row(_) => 3,
        };
        for message in 0..units[at].messages.len().saturating_sub(kept) {
            // Without its end a COPY would wait for ever.
            if !matches!(units[at].messages[message], Message::CopyDone | Message::CopyFail) {
                let mut less = units.to_vec();
                less[at].messages.remove(message);
                all.push(less);
            }
        }
    }
    all
}
