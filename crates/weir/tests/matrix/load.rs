//! Sixteen clients at work, and the check of each of their answers.
//!
//! Accounts: transfers between them keep the sum. Counters: each has one writer, so that a value says how many writes it shows. A setting:
//! half of the clients have made one of their own.

use crate::dice::Dice;
use crate::stage::Stage;
use crate::support::raw::{Message, first_value, tags};
use crate::support::{Failure, Raw, wait_until, wire};
use crate::table::Causal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

pub const CLIENTS: usize = 16;
const ACCOUNTS: usize = 6;
/// Complaints after which a client gives up.
const COMPLAINTS_MAX: usize = 3;

/// Tables of the clients.
pub fn tables() -> String {
    format!(
        "drop table if exists account, counter, dated; create table dated (d date); insert into dated values ('2024-02-03'); create table account (k int primary key, v int); create table counter (k int primary key, v int);
         insert into account select k, 0 from generate_series(1, {ACCOUNTS}) k;
         insert into counter select k, 0 from generate_series(0, {CLIENTS} - 1) k"
    )
}

/// Knowledge of a counter.
#[derive(Default)]
struct Counter {
    begun: AtomicI64,
    done: AtomicI64,
    /// The greatest value that anybody was told.
    told: AtomicI64,
}

/// Stands for an SQLSTATE where a connection ended without a word.
pub const LOST: &str = "lost";

/// Failures that a client may meet, and how many.
#[derive(Clone, Copy)]
pub struct Forgiven {
    pub sqlstates: &'static [&'static str],
    pub each_max: usize,
}

impl Forgiven {
    pub const NONE: Forgiven = Forgiven { sqlstates: &[], each_max: 0 };
}

/// The clients' common knowledge.
pub struct Load<'s> {
    stage: &'s Stage<'s>,
    causal: Causal,
    forgiven: Forgiven,
    counters: [Counter; CLIENTS],
    steps: [AtomicU64; CLIENTS],
    /// The statement that each client waits for, or had answered last.
    waits_for: [Mutex<String>; CLIENTS],
    is_over: AtomicBool,
    complaints: Mutex<Vec<String>>,
}

impl<'s> Load<'s> {
    pub fn new(stage: &'s Stage<'s>, forgiven: Forgiven) -> Load<'s> {
        Load {
            stage,
            causal: stage.row.causal(),
            forgiven,
            counters: Default::default(),
            steps: Default::default(),
            waits_for: Default::default(),
            is_over: AtomicBool::new(false),
            complaints: Mutex::default(),
        }
    }

    /// Runs the clients while `story` goes on; returns the faults.
    pub fn run(self, story: impl FnOnce(&Self)) -> Vec<String> {
        std::thread::scope(|scope| {
            for me in 0..CLIENTS {
                let load = &self;
                scope.spawn(move || {
                    // A client that gives up must not keep the story waiting until it has told why.
                    let work = std::panic::AssertUnwindSafe(|| Client::new(load, me).work());
                    if std::panic::catch_unwind(work).is_err() {
                        load.complain(me, "panicked; see above");
                    }
                });
            }
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story(&self)));
            if told.is_err() {
                println!("{}\n{}", self.describe(), self.stage.describe());
            }
            self.is_over.store(true, Ordering::SeqCst);
            if told.is_err() {
                self.complaints.lock().unwrap().push("the story ended before its end; see above".to_string());
            }
        });
        self.complaints.into_inner().unwrap()
    }

    /// Waits until every client has done so many steps more; a client that has complained is waited for no longer.
    pub fn wait_for_steps(&self, what: &str, count: u64) {
        let before: Vec<u64> = self.steps.iter().map(|steps| steps.load(Ordering::SeqCst)).collect();
        wait_until(&format!("every client to go on {what}"), || {
            let has_moved = |(steps, before): (&AtomicU64, &u64)| steps.load(Ordering::SeqCst) >= before + count;
            self.steps.iter().zip(&before).all(has_moved) || self.has_failed()
        });
    }

    fn describe(&self) -> String {
        let one = |me: usize| {
            let steps = self.steps[me].load(Ordering::SeqCst);
            format!("client {me}: {steps} steps, at: {}", self.waits_for[me].lock().unwrap())
        };
        (0..CLIENTS).map(one).collect::<Vec<_>>().join("\n")
    }

    fn note_statement(&self, me: usize, text: &str) {
        text.clone_into(&mut self.waits_for[me].lock().unwrap());
    }

    fn has_failed(&self) -> bool {
        !self.complaints.lock().unwrap().is_empty()
    }

    fn complain(&self, me: usize, what: &str) {
        self.complaints.lock().unwrap().push(format!("client {me}: {what}"));
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.complaints.lock().unwrap().len() >= COMPLAINTS_MAX
    }
}

struct Client<'l> {
    load: &'l Load<'l>,
    me: usize,
    dice: Dice,
    raw: Raw,
    /// The greatest value of each counter that this session was told.
    seen: [i64; CLIENTS],
    failures: usize,
}

/// How a step ended that did not fail.
type Outcome = Result<(), Failure>;

impl<'l> Client<'l> {
    fn new(load: &'l Load<'l>, me: usize) -> Client<'l> {
        let raw = open(load, me).expect("nothing has happened yet");
        Client { load, me, dice: Dice::new(me as u64 + 1), raw, seen: [0; CLIENTS], failures: 0 }
    }

    fn work(mut self) {
        while !self.load.is_over() {
            let outcome = match self.dice.below(10) {
                0 => self.transfer(),
                1 => self.count(),
                2..=4 => self.read_counter(self.me),
                5..=6 => {
                    let other = self.dice.below(CLIENTS);
                    self.read_counter(other)
                }
                7..=8 => self.read_sum(),
                _ => self.read_setting(),
            };
            if let Err(failure) = outcome {
                self.note(failure);
            }
            self.load.steps[self.me].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A failure that may be is counted; a session that it ended begins anew.
    fn note(&mut self, failure: Failure) {
        self.failures += 1;
        let Forgiven { sqlstates, each_max } = self.load.forgiven;
        if !sqlstates.contains(&failure.sqlstate.as_str()) || self.failures > each_max {
            self.load.complain(self.me, &format!("failure {}: {failure:?}", self.failures));
        }
        self.load.note_statement(self.me, &format!("rollback after {failure:?}"));
        if self.raw.try_rows("rollback").is_err() && !self.load.is_over() {
            match open(self.load, self.me) {
                // Another session: under `tables` it has seen nothing yet.
                Ok(raw) => (self.raw, self.seen) = (raw, [0; CLIENTS]),
                Err(failure) => self.note(failure),
            }
        }
    }

    /// One value, by the protocol that this client speaks.
    fn ask(&mut self, text: &str, name: &str, values: &[&str]) -> Result<String, Failure> {
        self.load.note_statement(self.me, text);
        if speaks_extended(self.me) {
            let bytes = [wire::run(name, values), wire::sync()].concat();
            return value_of(&mut self.raw, &bytes);
        }
        let mut text = text.to_string();
        for (at, value) in values.iter().enumerate() {
            text = text.replace(&format!("${}", at + 1), value);
        }
        value_of(&mut self.raw, &wire::query(&text))
    }

    fn transfer(&mut self) -> Outcome {
        // In one order, so that no two wait for each other.
        let one = 1 + self.dice.below(ACCOUNTS - 1);
        let other = one + 1 + self.dice.below(ACCOUNTS - one);
        for text in [
            "begin".to_string(),
            format!("update account set v = v - 1 where k = {one}"),
            format!("update account set v = v + 1 where k = {other}"),
            "commit".to_string(),
        ] {
            self.load.note_statement(self.me, &text);
            self.raw.try_rows(&text)?;
        }
        Ok(())
    }

    fn count(&mut self) -> Outcome {
        let counter = &self.load.counters[self.me];
        let before = counter.done.load(Ordering::SeqCst);
        let begun = counter.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let value: i64 = self.ask(COUNT, "count", &[&self.me.to_string()])?.parse().unwrap();
        if !(before + 1..=begun).contains(&value) {
            self.load.complain(self.me, &format!("counted to {value} after {before} of {begun}"));
        }
        counter.done.store(value, Ordering::SeqCst);
        self.seen[self.me] = value;
        Ok(())
    }

    fn read_counter(&mut self, which: usize) -> Outcome {
        let counter = &self.load.counters[which];
        let least = match self.load.causal {
            Causal::Off => 0,
            Causal::Tables => counter.done.load(Ordering::SeqCst).max(self.seen[which]),
            Causal::Global => counter.done.load(Ordering::SeqCst).max(counter.told.load(Ordering::SeqCst)),
        };
        let value: i64 = self.ask(READ, "read", &[&which.to_string()])?.parse().unwrap();
        let most = counter.begun.load(Ordering::SeqCst);
        if !(least..=most).contains(&value) {
            self.load
                .complain(self.me, &format!("read {value} of counter {which}, which is {least} at least and {most} at most"));
        }
        self.seen[which] = self.seen[which].max(value);
        counter.told.fetch_max(value, Ordering::SeqCst);
        Ok(())
    }

    fn read_sum(&mut self) -> Outcome {
        let sum = self.ask(SUM, "sum", &[])?;
        if sum != "0" {
            self.load.complain(self.me, &format!("the accounts' sum is {sum}"));
        }
        Ok(())
    }

    fn read_setting(&mut self) -> Outcome {
        self.load.note_statement(self.me, "show work_mem");
        let (expected, value) = (setting_of(self.me), self.raw.try_value("show work_mem")?);
        if value != expected {
            self.load.complain(self.me, &format!("work_mem is {value}, not {expected}"));
        }
        self.read_date()
    }

    /// A driver reads a date as the server has told it.
    fn read_date(&mut self) -> Outcome {
        let value = self.ask(DATE, "date", &[])?;
        let told = self.raw.parameter("DateStyle").unwrap_or("nothing").to_owned();
        let expected = match told.as_str() {
            "ISO, MDY" => "2024-02-03",
            "SQL, DMY" => "03/02/2024",
            _ => "a date in the style of some server",
        };
        if value != expected {
            self.load.complain(self.me, &format!("a date is {value}, told was {told}"));
        }
        Ok(())
    }
}

const COUNT: &str = "update counter set v = v + 1 where k = $1 returning v";
pub const READ: &str = "select v from counter where k = $1";
const DATE: &str = "select d from dated where d > '2000-01-01'";
const SUM: &str = "select sum(v) from account";

fn speaks_extended(me: usize) -> bool {
    me / 2 % 2 == 1
}

fn sets(me: usize) -> bool {
    me.is_multiple_of(2)
}

fn setting_of(me: usize) -> String {
    if sets(me) { format!("{}MB", 100 + me) } else { "4MB".to_string() }
}

/// A session that has its setting and its statements.
fn open(load: &Load<'_>, me: usize) -> Result<Raw, Failure> {
    let name = format!("client_{me}");
    load.note_statement(me, "a login");
    let mut raw = load.stage.client(&[("application_name", &name)]);
    load.note_statement(me, "its own setting and statements");
    if sets(me) {
        raw.try_rows(&format!("set work_mem = '{}'", setting_of(me)))?;
    }
    if speaks_extended(me) {
        for (name, text) in [("count", COUNT), ("read", READ), ("sum", SUM), ("date", DATE)] {
            let messages = answer_to(&mut raw, &[wire::parse(name, text), wire::sync()].concat())?;
            assert_eq!(tags(&messages), "1");
        }
    }
    Ok(raw)
}

/// The first value of an answer, or its error. An end of the connection is an error, too.
fn value_of(raw: &mut Raw, bytes: &[u8]) -> Result<String, Failure> {
    first_value(&answer_to(raw, bytes)?)
}

/// The messages up to the ReadyForQuery, or the error among them.
fn answer_to(raw: &mut Raw, bytes: &[u8]) -> Result<Vec<Message>, Failure> {
    let ended = |what: String| Failure { sqlstate: LOST.into(), message: what, ..Failure::default() };
    raw.try_send(bytes).map_err(|cause| ended(cause.to_string()))?;
    let mut messages = Vec::new();
    loop {
        match raw.try_read() {
            Ok(Some(message)) if message.tag != b'Z' => messages.push(message),
            // The error that ended the session came before its end.
            _ if messages.iter().any(|message| message.tag == b'E') => {
                return first_value(&messages).map(|_| messages);
            }
            Ok(Some(_)) => return Ok(messages),
            Ok(None) => return Err(ended("the connection ended".to_string())),
            Err(cause) => return Err(ended(cause.to_string())),
        }
    }
}
