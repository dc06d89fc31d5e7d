//! A checker of histories: writers and readers at the same time, over any connections, and the values that readers saw and no
//! server would have shown them.
//!
//! One writer each counts a register up, so that a value tells how many writes it shows. All writers append to one list. A read
//! must show every write that was over when it began, and none that had not begun by its end. It must show no less than any
//! read that was over when it began. Within a transaction of one snapshot all reads show the same moment, and a writer reads
//! its own writes.

use crate::support::{Raw, wait_until};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Registers that writers count up.
pub(super) const REGISTERS: usize = 3;
/// Writes of each writer. `WEIR_HISTORY_WRITES` says otherwise, for long runs.
const WRITES_EACH: i64 = 25;
/// Reads between two writes of one writer, so that some of them are answered from memory.
const READS_BETWEEN: u64 = 8;

/// How somebody connects.
pub(super) type Door<'d> = Box<dyn Fn() -> Raw + Sync + 'd>;

/// Clients and servers of a history.
pub(super) struct Story<'d> {
    /// One for each register.
    pub writers: [Door<'d>; REGISTERS],
    /// By turns for each reader.
    pub readers: Vec<Door<'d>>,
    /// Called once tables and triggers are there.
    pub settle: Box<dyn Fn() + Sync + 'd>,
    /// Called by the first writer before each of its writes.
    pub disturb: Box<dyn Fn(i64) + Sync + 'd>,
}

/// Statement that makes a register; the list, the readers' own register and their writers come with `EXTRAS`.
pub(super) fn register(at: usize) -> String {
    format!("create table r{at} as select 0 as v")
}

/// To be run again for each history: it takes all back to the begin.
fn extras() -> Vec<String> {
    let mut texts: Vec<String> =
        ["create table if not exists l (v text)", "create table if not exists o (v int)"].map(str::to_string).into();
    texts.extend(["truncate l, o", "insert into l values ('')", "insert into o values (0)"].map(str::to_string));
    for at in 0..REGISTERS {
        texts.push(format!("create table if not exists p{at} (v int)"));
        texts.push(format!(
            "create or replace function f{at}(n int) returns int language sql volatile as 'update r{at} set v = n returning v'"
        ));
        texts.push(format!(
            "create or replace function g{at}() returns trigger language plpgsql as 'begin update r{at} set v = new.v; return new; end'"
        ));
        texts.push(format!("drop trigger if exists g on p{at}"));
        texts.push(format!("create trigger g after insert on p{at} for each row execute function g{at}()"));
        texts.push(format!("update r{at} set v = 0"));
    }
    texts
}

/// Knowledge of a register beside its value.
struct Register {
    name: String,
    begun: AtomicI64,
    done: AtomicI64,
    /// The greatest value anybody was told.
    told: AtomicI64,
}

/// Values that a read may show.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    done: i64,
    told: i64,
    begun: i64,
}

impl Register {
    fn new(name: String) -> Register {
        Register { name, begun: AtomicI64::new(0), done: AtomicI64::new(0), told: AtomicI64::new(0) }
    }

    fn text(&self) -> String {
        format!("select v from {}", self.name)
    }

    /// Value that a read which begins now must show at least; `most` adds the upper bound.
    fn least(&self) -> Bounds {
        Bounds { done: self.done.load(Ordering::SeqCst), told: self.told.load(Ordering::SeqCst), begun: 0 }
    }

    /// A read is over.
    fn most(&self, least: Bounds) -> Bounds {
        Bounds { begun: self.begun.load(Ordering::SeqCst), ..least }
    }

    fn judge(&self, value: i64, bounds: Bounds) -> Option<String> {
        let Bounds { done, told, begun } = bounds;
        let is_fine = (done.max(told)..=begun).contains(&value);
        (!is_fine).then(|| format!("{}: {value}, done {done}, begun {begun}, told {told}", self.name))
    }

    /// A read in a snapshot of its own.
    fn read(&self, ask: impl FnOnce(&str) -> String) -> Option<String> {
        let least = self.least();
        let value = number(&ask(&self.text()));
        let wrong = self.judge(value, self.most(least));
        self.told.fetch_max(value, Ordering::SeqCst);
        wrong
    }
}

fn number(value: &str) -> i64 {
    value.parse().unwrap()
}

/// Knowledge of the list.
#[derive(Default)]
struct List {
    begun: Mutex<HashSet<String>>,
    done: Mutex<Vec<String>>,
    /// The longest that anybody was told.
    told: Mutex<String>,
}

impl List {
    fn append(&self, name: &str, write: impl FnOnce(&str)) {
        self.begun.lock().unwrap().insert(name.to_string());
        write(&format!("update l set v = v || ',{name}'"));
        self.done.lock().unwrap().push(name.to_string());
    }

    fn read(&self, ask: impl FnOnce(&str) -> String) -> Option<String> {
        let (done, before) = (self.done.lock().unwrap().clone(), self.told.lock().unwrap().clone());
        let list = ask("select v from l");
        let begun = self.begun.lock().unwrap().clone();
        let names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
        let known: HashSet<&str> = names.iter().copied().collect();
        let lacks = done.iter().find(|name| !known.contains(name.as_str()));
        let invented = names.iter().find(|name| !begun.contains(**name));
        let mut told = self.told.lock().unwrap();
        let (short, long) = if told.len() < list.len() { (&*told, &list) } else { (&list, &*told) };
        let forks = !long.starts_with(short.as_str()) || !list.starts_with(&before) || known.len() != names.len();
        let wrong = lacks.is_some() || invented.is_some() || forks;
        let said = format!("the list: {list}, lacks {lacks:?}, invented {invented:?}, told before: {before}");
        if told.len() < list.len() {
            *told = list;
        }
        wrong.then_some(said)
    }
}

/// State that all threads of a history share.
struct Stage {
    registers: Vec<Register>,
    list: List,
    running: AtomicU64,
    reads: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Stage {
    fn new() -> Stage {
        let names = (0..REGISTERS).map(|at| format!("r{at}")).chain(["o".into()]);
        Stage {
            registers: names.map(Register::new).collect(),
            list: List::default(),
            running: AtomicU64::new(REGISTERS as u64),
            reads: AtomicU64::new(0),
            wrong: Mutex::default(),
        }
    }

    /// A reader asks for each a few times in a row; the last is the readers' own.
    fn at(&self, turn: usize) -> &Register {
        &self.registers[turn / 4 % self.registers.len()]
    }

    fn own(&self) -> &Register {
        &self.registers[REGISTERS]
    }

    fn note(&self, wrong: Option<String>, who: &str) {
        self.wrong.lock().unwrap().extend(wrong.map(|wrong| format!("{who} saw {wrong}")));
        self.reads.fetch_add(1, Ordering::SeqCst);
    }
}

/// Plays a history. Returns the values that readers saw and no server could have shown.
pub(super) fn history(story: &Story<'_>) -> Vec<String> {
    let mut client = (story.writers[0])();
    extras().iter().for_each(|text| client.run(text));
    drop(client);
    (story.settle)();
    let stage = Stage::new();
    let writes = std::env::var("WEIR_HISTORY_WRITES").map_or(WRITES_EACH, |writes| number(&writes));
    std::thread::scope(|scope| {
        for at in 0..REGISTERS {
            let (stage, story) = (&stage, &story);
            scope.spawn(move || {
                let mut client = (story.writers[at])();
                for value in 1..=writes {
                    if at == 0 {
                        (story.disturb)(value);
                    }
                    let enough = stage.reads.load(Ordering::SeqCst) + READS_BETWEEN;
                    wait_until("reads between writes", || stage.reads.load(Ordering::SeqCst) >= enough);
                    write(&mut client, stage, at, value);
                }
                stage.running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let manners: [fn(&mut Raw, &Stage, usize); 4] = [plainly, by_values, within, of_one_moment];
        for (reader, read) in manners.into_iter().enumerate() {
            let (stage, door) = (&stage, &story.readers[reader % story.readers.len()]);
            scope.spawn(move || {
                let mut client = door();
                if reader == 1 {
                    client.run("set datestyle = 'German'");
                }
                let mut turn = reader;
                while stage.running.load(Ordering::SeqCst) > 0 {
                    turn += 1;
                    read(&mut client, stage, turn);
                }
            });
        }
    });
    stage.wrong.into_inner().unwrap()
}

/// One write of a register, in all manners, and now and then one of the list.
fn write(client: &mut Raw, stage: &Stage, at: usize, value: i64) {
    let register = &stage.registers[at];
    let update = |value: i64| format!("update r{at} set v = {value}");
    let mut run = |texts: &[&str]| texts.iter().for_each(|text| client.run(text));
    register.begun.store(value, Ordering::SeqCst);
    match value % 8 {
        0 => run(&[&format!("begin; {}; commit", update(value))]),
        1 => run(&["begin", &update(value), "commit"]),
        2 => drop(client.extended(&format!("update r{at} set v = $1"), &[&value.to_string()]).unwrap_or_default()),
        3 => run(&["begin", &update(-1), "rollback", &update(value)]),
        4 => run(&[&format!("select f{at}({value})")]),
        5 => run(&[&format!("insert into p{at} values ({value})")]),
        6 => run(&["begin", "savepoint s", &update(-1), "rollback to s", &update(value), "commit"]),
        _ => run(&[&update(value)]),
    }
    register.done.store(value, Ordering::SeqCst);
    if value % 2 == 0 {
        stage.list.append(&format!("{at}.{value}"), |text| client.run(text));
    }
}

fn plainly(client: &mut Raw, stage: &Stage, turn: usize) {
    let wrong = if turn.is_multiple_of(5) {
        stage.list.read(|text| client.value(text))
    } else {
        stage.at(turn).read(|text| client.value(text))
    };
    stage.note(wrong, "a simple query");
}

fn by_values(client: &mut Raw, stage: &Stage, turn: usize) {
    let mut ask = |text: &str| client.extended(text, &[]).unwrap();
    let wrong = if turn.is_multiple_of(5) { stage.list.read(&mut ask) } else { stage.at(turn).read(&mut ask) };
    stage.note(wrong, "the extended protocol");
}

/// In transactions where each read has a snapshot of its own; some of them write a register of the readers.
fn within(client: &mut Raw, stage: &Stage, turn: usize) {
    client.run(["begin", "begin read only", "start transaction isolation level read committed"][turn % 3]);
    for more in 0..3 {
        stage.note(stage.at(turn * 4 + more * 4).read(|text| client.value(text)), "a transaction");
        stage.note(stage.list.read(|text| client.value(text)), "a transaction");
    }
    if turn % 3 != 1 && turn.is_multiple_of(2) {
        let own = stage.own();
        let (before, commits) = (own.done.load(Ordering::SeqCst), turn.is_multiple_of(4));
        let value = if commits { before + 1 } else { -1 };
        own.begun.fetch_max(value, Ordering::SeqCst);
        client.run(&format!("update o set v = {value}"));
        let seen = number(&client.value(&own.text()));
        stage.note((seen != value).then(|| format!("o: {seen}, wrote {value}")), "who wrote in a transaction");
        stage.note(stage.at(turn).read_beside(own, |text| client.value(text)), "who wrote in a transaction");
        client.run(if commits { "commit" } else { "rollback" });
        if commits {
            own.done.store(value, Ordering::SeqCst);
        }
        stage.note(own.read(|text| client.value(text)), "who wrote in a transaction that is over");
    } else {
        client.run("commit");
    }
}

impl Register {
    /// Like `read`, by a writer of `own`, which sees its own value.
    fn read_beside(&self, own: &Register, ask: impl FnOnce(&str) -> String) -> Option<String> {
        if std::ptr::eq(self, own) { None } else { self.read(ask) }
    }
}

/// In transactions of one snapshot.
fn of_one_moment(client: &mut Raw, stage: &Stage, turn: usize) {
    client.run(["begin isolation level repeatable read", "begin isolation level serializable read only"][turn % 2]);
    let (first, other) = (stage.at(turn * 4), stage.at(turn * 4 + 4));
    // On the primary, where a commit may be visible a moment later than on a standby that somebody has read: told values do not
    // bind it.
    let least = (Bounds { told: 0, ..first.least() }, Bounds { told: 0, ..other.least() });
    let value = number(&client.value(&first.text()));
    let bounds = (first.most(least.0), other.most(least.1));
    stage.note(first.judge(value, bounds.0), "a snapshot");
    first.told.fetch_max(value, Ordering::SeqCst);
    stage.note(other.judge(number(&client.value(&other.text())), bounds.1), "a snapshot, later");
    let again = number(&client.value(&first.text()));
    stage.note((again != value).then(|| format!("{}: {again} after {value}", first.name)), "a snapshot, again");
    client.run("commit");
}
