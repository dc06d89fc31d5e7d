//! Random transactions over several shards: answers, errors, states and rows are those of one server.

use crate::dice::Dice;
use crate::support::ground::wait_until;
use crate::support::raw::Message;
use crate::support::spread::{Answer, SHARDS, Spread, configs};
use crate::support::{Raw, wire};

const TABLES: &str = "create table accounts (id int primary key, balance int not null check (balance >= 0), note text);
    create table items (account int references accounts deferrable initially deferred, number int, worth int, primary key (account, number));
    create table countries (id int primary key, name text);
    create table plain (id int primary key, note text)";

const TRANSACTIONS: usize = 150;

/// A statement that fails on each server.
const FAILING: &str = "select refused from nothing";

/// Of a constraint that is looked at by the commit.
const DEFERRED: &str = "23503";

/// Of a statement that Weir does not carry out.
const REFUSED: &str = "0A000";

/// Of a LOCK outside of a block. Behind a read of several shards it is alone on its server, where newer versions take it in a pipeline.
const NO_BLOCK: &str = "25P01";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query("insert into countries select i, 'country ' || i from generate_series(1, 10) i").unwrap();
    spread.whole().query("insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, 40) i").unwrap();
    spread.whole().query("insert into items select i % 20 + 1, i, i from generate_series(1, 60) i").unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("accounts", "id", "");
    spread.shard("items", "account", "--with public.accounts");
    spread.fill(&["accounts", "items"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// All rows of each sharded table, in order.
fn rows(spread: &Spread, table: &str) -> [Vec<String>; 2] {
    let text = format!("select coalesce(string_agg({table}::text, ';'), '') from {table}");
    let split = |rows: String| rows.split(';').filter(|row| !row.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let mut sharded: Vec<String> = (0..SHARDS).flat_map(|shard| split(spread.server(shard).value(&text).unwrap())).collect();
    let mut whole = split(spread.whole().value(&text).unwrap());
    [&mut sharded, &mut whole].into_iter().for_each(|rows| rows.sort());
    [sharded, whole]
}

fn is_over(spread: &Spread) -> bool {
    let text = "select (select count(*) from pg_stat_activity where state like 'idle in transaction%')
        + (select count(*) from pg_prepared_xacts)";
    (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
}

#[derive(Clone, Debug)]
struct Step {
    text: String,
    values: Vec<String>,
    /// Of the prepared statement.
    name: &'static str,
}

fn step(text: String) -> Step {
    Step { text, values: Vec::new(), name: "" }
}

/// Statements up to one ReadyForQuery.
#[derive(Clone, Debug)]
enum Turn {
    Query(Step),
    /// Extended messages up to a Sync.
    Pipeline(Vec<Step>),
}

impl Turn {
    fn steps(&self) -> &[Step] {
        match self {
            Turn::Query(step) => std::slice::from_ref(step),
            Turn::Pipeline(steps) => steps,
        }
    }

    fn messages(&self) -> Vec<u8> {
        match self {
            Turn::Query(step) => wire::query(&step.text),
            Turn::Pipeline(steps) => {
                let of_step = |step: &Step| {
                    let values: Vec<&str> = step.values.iter().map(String::as_str).collect();
                    [
                        wire::close(b'S', step.name),
                        wire::parse(step.name, &step.text),
                        wire::bind("", step.name, &values),
                        wire::describe(b'P', ""),
                        wire::execute("", 0),
                    ]
                    .concat()
                };
                steps.iter().flat_map(of_step).chain(wire::sync()).collect()
            }
        }
    }

    /// With a statement that fails in place of the one at `at`.
    fn failing_at(&self, at: usize) -> Turn {
        match self {
            Turn::Query(_) => Turn::Query(step(FAILING.to_owned())),
            Turn::Pipeline(steps) => {
                let mut steps = steps.clone();
                steps[at] = step(FAILING.to_owned());
                Turn::Pipeline(steps)
            }
        }
    }
}

struct Author {
    dice: Dice,
    is_open: bool,
}

impl Author {
    fn id(&mut self) -> usize {
        self.dice.below(44) + 1
    }

    fn savepoint(&mut self) -> String {
        let name = self.dice.of(&["a", "b", "\"C d\""]);
        match self.dice.below(9) {
            0..4 => format!("savepoint {name}"),
            4..7 => format!("rollback to {name}"),
            _ => format!("release savepoint {name}"),
        }
    }

    fn control(&mut self) -> String {
        self.is_open = !self.is_open;
        match (self.is_open, self.dice.below(4)) {
            (true, 0) => self
                .dice
                .of(&[
                    "start transaction isolation level read committed",
                    "begin read only",
                    "begin isolation level repeatable read",
                    "begin; select 1",
                ])
                .to_owned(),
            (true, _) => "begin".to_owned(),
            (false, 0) => self.dice.of(&["rollback", "commit and chain", "rollback and chain", "rollback"]).to_owned(),
            (false, _) => "commit".to_owned(),
        }
    }

    fn rows_to_insert(&mut self) -> String {
        let count = self.dice.below(4) + 1;
        let rows = (0..count).map(|_| format!("({}, {}, 'new')", self.dice.below(200) + 1, self.dice.below(5) * 50));
        rows.collect::<Vec<_>>().join(", ")
    }

    fn statement(&mut self) -> String {
        let (id, other, by) = (self.id(), self.id(), self.dice.below(300) as i64 - 120);
        match self.dice.below(33) {
            30.. => self.read_of_all(),
            0..4 => format!("update accounts set balance = balance + {by} where id = {id}"),
            4 => format!("update accounts set note = note || '.' where id = {id} returning id, note"),
            5 => format!("select * from accounts where id = {id}"),
            6 => format!(
                "select a.id, i.worth, c.name from accounts a join items i on i.account = a.id left join countries c on c.id = i.worth where a.id = {id} and i.account = {id} order by i.number"
            ),
            7 => format!("insert into accounts values ({}, {}, 'one')", self.dice.below(60) + 1, self.dice.below(100)),
            8 => format!("insert into accounts values {}", self.rows_to_insert()),
            9 => format!("delete from accounts where id = {id}"),
            10 => format!("delete from accounts where balance > {}", 150 + self.dice.below(200)),
            11 => format!(
                "update accounts set balance = balance + {} where balance < {}",
                self.dice.below(30),
                self.dice.below(120)
            ),
            12 => format!(
                "update accounts set balance = balance - {} where note like '%{}%'",
                self.dice.below(60),
                self.dice.below(7)
            ),
            13 => format!("update items set worth = worth / ({} - number) where account = {id}", self.dice.below(60)),
            14 => format!(
                "update accounts set note = c.name from countries c where c.id = accounts.id % 10 + 1 and accounts.balance > {}",
                by.abs()
            ),
            15 => "select count(*), sum(balance), min(note) from accounts".to_owned(),
            16 => format!("select id, balance from accounts where id in ({id}, {other}) order by id"),
            17 => format!("insert into items values ({id}, {}, {by})", self.dice.below(90)),
            18 => format!("select 1 / {}", self.dice.below(3)),
            19 => format!("insert into plain values ({id}, 'plain') on conflict (id) do update set note = plain.note || '!'"),
            20 => format!(
                "delete from items using accounts where items.account = {id} and accounts.id = {id} and worth > {}",
                by.abs()
            ),
            21 => self.of_two_tables(),
            22 => self.rows_of_query(),
            _ => self
                .dice
                .of(&[
                    "set local work_mem = '2MB'",
                    "set local work_mem = 3000",
                    "show work_mem",
                    "show work_mem",
                    "set local time zone 'UTC'",
                    "lock table plain",
                    "savepoint a; select 1",
                    "update plain set note = 'two'; rollback to a",
                    "set transaction read only",
                    "set constraints all immediate",
                    "begin",
                    "select sum(worth) from items where account = 3 for update",
                    "select id from accounts where id = 3 for update",
                    "update plain set note = 'x' where id < 9 returning id",
                    "select nothing",
                    "select name from countries where id = 3",
                ])
                .to_owned(),
        }
    }

    /// A SELECT of rows of several shards, and of what the transaction has made of them.
    fn read_of_all(&mut self) -> String {
        let (id, number) = (self.id(), self.dice.below(200));
        match self.dice.below(7) {
            0 => format!("select id, balance, note from accounts where balance > {number} order by id"),
            1 => format!(
                "select a.id, i.number, i.worth from accounts a join items i on i.account = a.id where a.balance < {number} order by 1, 2"
            ),
            2 => format!(
                "select c.name, count(*), sum(a.balance) from accounts a left join countries c on c.id = a.id % 10 + 1 where a.id > {id} group by 1 order by 1"
            ),
            3 => format!(
                "select a.id from accounts a where exists (select from items i where i.account = a.id % 9 + 1 and i.worth > {number}) order by a.id desc limit 6"
            ),
            4 => format!(
                "select x.account, max(y.number) from items x join items y on y.worth = x.worth where x.number < {number} group by 1 order by 1"
            ),
            5 => format!(
                "select account, number, rank() over (order by worth, account, number) from items where account > {id} order by 3 limit 9"
            ),
            _ => "select count(*), sum(worth) from items".to_owned(),
        }
    }

    /// A change that reads the other table's rows of the same key.
    fn of_two_tables(&mut self) -> String {
        let (number, balance) = (self.dice.below(60), self.dice.below(200));
        match self.dice.below(4) {
            0 => format!(
                "update accounts set balance = balance + i.worth from items i where i.account = accounts.id and i.number = {number}"
            ),
            1 => format!("delete from items using accounts a where a.id = items.account and a.balance > {}", balance + 150),
            2 => format!(
                "update items set worth = worth + (select balance from accounts a where a.id = items.account) where number < {number} returning number"
            ),
            _ => format!(
                "delete from items where number > {number} and not exists (select from accounts a where a.id = items.account and a.balance > {balance})"
            ),
        }
    }

    /// An INSERT of rows that lie beside those of which they come.
    fn rows_of_query(&mut self) -> String {
        let (number, balance) = (self.dice.below(90), self.dice.below(200));
        match self.dice.below(4) {
            0 => format!(
                "insert into items (account, number, worth) select id, {number}, balance from accounts where balance > {balance}"
            ),
            1 => format!(
                "insert into items (worth, number, account) select balance, {number}, id from accounts where note like '%{}%' on conflict (account, number) do update set worth = items.worth + excluded.worth returning account",
                self.dice.below(7)
            ),
            2 => format!(
                "insert into items select i.account, i.number + 100, c.id from items i join countries c on c.id = i.worth where i.number > {number}"
            ),
            _ => format!(
                "insert into accounts select account, {balance}, 'of items' from items where number = {number} on conflict (id) do nothing"
            ),
        }
    }

    fn next(&mut self) -> String {
        match self.dice.below(10) {
            0 => self.control(),
            1..4 if self.is_open => self.savepoint(),
            _ => self.statement(),
        }
    }

    /// A statement with a parameter for each number, if it is one that takes them.
    fn step(&mut self) -> Step {
        let (text, name) = (self.next(), self.dice.of(&["", "", "named"]));
        match text.rsplit_once(" id = ") {
            Some((head, id)) if id.parse::<u32>().is_ok() && self.dice.once_in(2) => {
                Step { values: vec![id.to_owned()], name, ..step(format!("{head} id = $1")) }
            }
            // A prepared statement is one.
            _ => Step { name, ..step(text.split(';').next().unwrap_or_default().to_owned()) },
        }
    }

    fn turn(&mut self) -> Turn {
        match self.dice.below(5) {
            0..2 => Turn::Query(step(self.next())),
            2 | 3 => Turn::Pipeline(vec![self.step()]),
            _ => {
                let count = self.dice.below(3) + 1;
                Turn::Pipeline((0..count).map(|_| self.step()).collect())
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Heard {
    rows: Vec<Vec<Option<String>>>,
    said: Vec<String>,
    failure: Option<String>,
    status: char,
}

fn heard(messages: &[Message]) -> Heard {
    let Answer { rows, said, failure, .. } = Answer::of(messages).sorted();
    let status = messages.last().map_or('?', |message| message.body[0] as char);
    Heard { rows, said, failure, status }
}

fn ask(client: &mut Raw, turn: &Turn) -> Heard {
    client.send(&turn.messages());
    heard(&client.until_ready())
}

/// The single server's answer. It fails where Weir has refused.
fn expected(direct: &mut Raw, turn: &Turn, told: &Heard) -> Heard {
    let at = told.said.len().min(turn.steps().len() - 1);
    let is_refused = match told.failure.as_deref() {
        Some(REFUSED) => true,
        Some(NO_BLOCK) => turn.steps()[at].text.starts_with("lock"),
        _ => false,
    };
    if !is_refused {
        let mut expected = ask(direct, turn);
        if expected.failure.as_deref() == Some(DEFERRED) && expected.status == 'I' {
            // A server tells of the statement before the Sync commits it.
            expected.said.clone_from(&told.said);
        }
        return expected;
    }
    let mut expected = ask(direct, &turn.failing_at(at));
    if expected.failure.is_some() {
        expected.failure = told.failure.clone();
    }
    expected
}

fn answers_as_one_server(more: &str, seed: u64) {
    let spread = ground(more);
    let mut author = Author { dice: Dice::new(seed), is_open: false };
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let (mut refused, mut asked) = (0, 0);
    for round in 0..TRANSACTIONS {
        let mut story = Vec::new();
        while story.len() < 4 || author.is_open {
            let turns: Vec<Turn> =
                if author.dice.once_in(6) { (0..3).map(|_| author.turn()).collect() } else { vec![author.turn()] };
            client.send(&turns.iter().flat_map(Turn::messages).collect::<Vec<_>>());
            for turn in turns {
                let told = heard(&client.until_ready());
                let wanted = expected(&mut direct, &turn, &told);
                story.push(format!("{turn:?} -> {told:?}"));
                assert_eq!(told, wanted, "{more} {seed} {round}:\n{}", story.join("\n"));
                asked += 1;
                refused += u32::from(told.failure.as_deref() == Some(REFUSED));
                author.is_open = told.status != 'I';
            }
        }
        wait_until("the transaction to end", || is_over(&spread));
        for table in ["accounts", "items"] {
            let [sharded, whole] = rows(&spread, table);
            assert_eq!(sharded, whole, "{more} {seed} {round}:\n{}", story.join("\n"));
        }
    }
    eprintln!("{asked} turns, {refused} refused");
}

#[test]
fn random_transactions_are_as_on_one_server() {
    let all = [
        "",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\n",
        "cross_shard_reads = latest\ntransaction_replay = on\n",
    ];
    for (more, seed) in configs(&all).iter().zip(1..) {
        answers_as_one_server(more, seed);
    }
}

#[test]
fn tables_that_are_spread_alike_are_read_by_equal_keys() {
    let spread = ground("cross_shard_reads = latest\n");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let state = "select (select sum(id * balance) from accounts), (select sum(account * worth + number) from items)";
    for text in [
        "insert into items (worth, number, account) select balance + id, 101, id from accounts where id % 3 > 0",
        "insert into items select account, number + 1, worth from items where worth % 2 = 0 and number > 100 returning account",
        "update accounts a set balance = balance + l.worth from items l where l.account = a.id and l.number = 102",
        "update items set worth = worth + (select balance from accounts a where a.id = items.account) where number = 101",
        "delete from items using accounts a where a.id = items.account and a.id % 5 = 0",
        "delete from accounts where not exists (select from items where account = accounts.id)",
    ] {
        let (told, expected) = (client.query(text), direct.query(text));
        let said = |messages: &[Message]| Answer::of(messages).said;
        assert_eq!(Answer::of(&told).failure, None, "{text}");
        assert_eq!(said(&told), said(&expected), "{text}");
        assert_eq!(client.rows(state), direct.rows(state), "{text}");
    }
}
