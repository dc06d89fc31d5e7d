//! A checker of pools: one connection writes, and others read, each when the answer to the write has come, while one standby is slow and the other
//! one stops and goes on replaying. Under `causal_reads = tables` no read may lack the write, of whatever kind it is. With `session` the same
//! checker finds reads that do.
//!
//! `WEIR_CHECK_READS` says how many reads each run makes.

use crate::support::ground::{Owned, cluster, wait_for_catalog};
use crate::support::proxy::show;
use crate::support::raw::Message;
use crate::support::time::let_pass;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::Server;

/// Reads of one run, if nothing else is said.
const READS: u64 = 2500;
/// Reads behind each write.
const READS_PER_WRITE: usize = 4;
/// Longest time in which a checker without a guarantee must find a violation.
const FIND_LIMIT: Duration = Duration::from_secs(60);

/// Objects of each writer's database. Every write has a number of its own, which is greater than those before.
const OBJECTS: &str = "
    create table t (a int, b text); create table other (a int); create table quiet as select 1 as a;
    create table uniq (a int primary key, c int); insert into uniq values (1, 0);
    create table parent (a int, b int) partition by list (a);
    create table part partition of parent for values in (1); create table part2 partition of parent for values in (2);
    create table base (a int); create table child () inherits (base);
    create table owner (a int primary key);
    create table owned (a int references owner on delete cascade on update cascade, b int primary key);
    create table owned_more (b int references owned on delete cascade);
    create table watched (a int); create table hooked (a int); create table noted (a int);
    create function note() returns trigger language plpgsql as 'begin insert into noted values (new.a); return new; end';
    create trigger n after insert on watched for each row execute function note();
    create table deferring (a int); create table noted_late (a int);
    create function note_late() returns trigger language plpgsql as 'begin insert into noted_late values (new.a); return new; end';
    create constraint trigger l after insert on deferring deferrable initially deferred for each row execute function note_late();
    create table ruled (a int); create table by_rule (a int);
    create rule r as on insert to ruled do also insert into by_rule values (new.a);
    create view v as select a from t; create view counts as select max(b) as n from part;
    create materialized view m as select max(a) as n from t;
    create table by_function (a int);
    create function f(a int) returns int language sql as 'insert into by_function values (a) returning a';
    create procedure p(a int) language sql as 'insert into by_function values (a)';
    create procedure p_commits(a int) language plpgsql as 'begin insert into by_function values (a); commit; perform 1; end';
    create table defaulted (a int default f(7), b int);
    create schema s; create table s.t (a int);
    create table x (a int); create table y (a int); create view w as select a from x; create table ddl (a int); insert into ddl values (1);
    create function w_to(name text) returns void language plpgsql as
        'begin execute format(''create or replace view w as select a from %I'', name); end';
    create sequence seq; select lo_from_bytea(77, '');
    create function counted() returns bigint language sql stable as 'select max(a) from t';
    create view counting as select counted() as n;
    create table allowed (a int); insert into allowed values (1); create table guarded as select 1 as a; alter table guarded enable row level security;
    create policy g on guarded to pools_joe using ((select max(a) from allowed) % 2 = guarded.a);
    create view seen as select count(*) as n from guarded; grant all on allowed, guarded, seen to pools_joe; alter view seen owner to pools_joe;";

/// How a text comes to Weir; `{n}` stands for the number of the write.
#[derive(Clone, Copy, Debug)]
enum By {
    /// One Query.
    Query(&'static str),
    /// Queries that are all sent before any is answered.
    Ahead(&'static [&'static str]),
    /// By the extended protocol, with one Sync.
    Pipeline(&'static [&'static str]),
    /// All in one go by the extended protocol, each with its Sync.
    Syncs(&'static [&'static str]),
    /// By the extended protocol with a Flush: the answer has come, and the Sync comes when others have read.
    Flushed(&'static [&'static str]),
    /// A Query with a COMMIT, which is answered before all of it is done.
    Slow(&'static str),
    /// COPY with a row.
    Data(&'static str),
    /// A function call of the old kind: of `f`, with the number.
    Call,
    /// By a prepared statement with a name, with the number.
    Named(&'static str),
    /// A Query on another connection.
    Elsewhere(&'static str),
}

use By::{Ahead, Call, Data, Elsewhere, Flushed, Named, Pipeline, Query, Slow, Syncs};

/// A kind of write: a read that it changes, the way to its acknowledgement, and that which follows when others have read.
type Kind = (&'static str, &'static [By], &'static [By]);

const OF_T: &str = "select max(a) from t";
const OF_F: &str = "select max(a) from by_function";
const OF_UNIQ: &str = "select max(c) from uniq";

/// Writes of which it is known which tables they change.
const TO_TABLES: &[Kind] = &[
    (OF_T, &[Query("insert into t values ({n}, 'x')")], &[]),
    (OF_UNIQ, &[Query("update uniq set c = {n} where a = 1")], &[]),
    (OF_UNIQ, &[Query("insert into uniq values (1, {n}) on conflict (a) do update set c = excluded.c")], &[]),
    (OF_T, &[Query("delete from t where a = (select max(a) from t)")], &[]),
    (
        OF_UNIQ,
        &[Query("merge into uniq using (values (1, {n})) s (a, c) on uniq.a = s.a when matched then update set c = s.c")],
        &[],
    ),
    (OF_T, &[Query("with w as (insert into t values ({n}, 'w') returning a) select a from w")], &[]),
    (OF_T, &[Query("insert into v values ({n})")], &[]),
    ("select max(a) from v", &[Query("insert into t values ({n}, 'x')")], &[]),
    (OF_T, &[Query("explain analyze insert into t values ({n}, 'x')")], &[]),
    (OF_T, &[Query("prepare ins as insert into t values ({n}, 'p')"), Query("execute ins")], &[Query("deallocate ins")]),
    ("select max(b) from parent", &[Query("insert into part values (1, {n})")], &[]),
    ("select max(b) from part", &[Query("insert into parent values (1, {n})")], &[]),
    ("select n from counts", &[Query("insert into parent values (1, {n})")], &[]),
    ("select max(b) from part", &[Query("update parent set a = 3 - a where b = (select max(b) from parent)")], &[]),
    ("select max(a) from base", &[Query("insert into child values ({n})")], &[]),
    ("select count(*) from child", &[Query("delete from base where a = (select max(a) from base)")], &[]),
    (
        "select max(b) from owned_more",
        &[Query("insert into owner values ({n}); insert into owned values ({n}, {n}); insert into owned_more values ({n})")],
        &[],
    ),
    ("select min(a) from owned", &[Query("update owner set a = -{n} where a = (select max(a) from owner)")], &[]),
    ("select max(b) from owned_more", &[Query("delete from owner where a = (select max(a) from owner)")], &[]),
    ("select count(*) from owned_more", &[Query("truncate owner cascade")], &[]),
    ("select max(a) from noted", &[Query("insert into watched values ({n})")], &[]),
    ("select max(a) from noted_late", &[Query("insert into deferring values ({n})")], &[]),
    (
        "select max(a) from noted_late",
        &[Query("begin"), Query("insert into deferring values ({n})"), Query("select 1"), Query("commit")],
        &[],
    ),
    ("select max(a) from by_rule", &[Query("insert into ruled values ({n})")], &[]),
    ("select n from m", &[Query("insert into t values ({n}, 'm')"), Query("refresh materialized view m")], &[]),
    (OF_T, &[Query("copy t from program 'echo {n},copied' (format csv)")], &[]),
    (OF_T, &[Data("copy t from stdin (format csv)")], &[]),
    (OF_T, &[Query("begin"), Data("copy t from stdin (format csv)"), Query("commit")], &[]),
    ("select count(*) from t", &[Query("truncate t")], &[]),
    (OF_T, &[Query("begin; insert into t values ({n}, 'x'); commit")], &[]),
    (OF_T, &[Query("begin"), Query("insert into t values ({n}, 'x')"), Query("commit")], &[]),
    (
        OF_T,
        &[
            Query("begin"),
            Query("insert into t values ({n}, 'x')"),
            Query("savepoint s"),
            Query("delete from t"),
            Query("rollback to s"),
            Query("commit"),
        ],
        &[],
    ),
    (
        OF_T,
        &[Query("begin"), Query("insert into t values ({n}, 'x')"), Query("commit and chain")],
        &[Query("insert into other values (1)"), Query("commit")],
    ),
    (
        OF_T,
        &[
            Query("begin"),
            Query("insert into t values (0, 'x')"),
            Query("rollback and chain"),
            Query("insert into t values ({n}, 'x')"),
            Query("end"),
        ],
        &[],
    ),
    (OF_T, &[Query("insert into t values ({n}, 'x'); insert into other values ({n})")], &[]),
    (OF_T, &[Ahead(&["begin", "insert into t values ({n}, 'x')", "commit"])], &[]),
    (OF_T, &[Ahead(&["insert into t values ({n}, 'x')", "insert into other values (1)"])], &[]),
    (OF_T, &[Pipeline(&["insert into t values ({n}, 'x')"])], &[]),
    (OF_T, &[Pipeline(&["select 1", "insert into t values ({n}, 'x')", "select a from quiet"])], &[]),
    (OF_T, &[Syncs(&["insert into t values ({n}, 'x')", "update quiet set a = 1", "select a from quiet"])], &[]),
    (OF_T, &[Flushed(&["begin", "insert into t values ({n}, 'x')", "commit"])], &[]),
    (OF_T, &[Flushed(&["begin", "insert into t values ({n}, 'x')", "commit", "select a from quiet"])], &[]),
    (
        OF_T,
        &[
            Query("set weir.commit_outcome = off"),
            Flushed(&["begin", "insert into t values ({n}, 'x')", "commit", "select a from quiet"]),
        ],
        &[Query("reset weir.commit_outcome")],
    ),
    (
        OF_T,
        &[Slow(
            "begin; insert into t values ({n}, 'x'); commit; select repeat('x', 9000) from generate_series(1, 3); select pg_sleep(0.03)",
        )],
        &[],
    ),
    (OF_T, &[Named("insert into t values ($1, 'x')")], &[]),
    (OF_UNIQ, &[Named("with u as (update uniq set c = $1 returning c) select c from u")], &[]),
    (
        OF_UNIQ,
        &[
            Query("begin"),
            Query("declare c cursor for select * from uniq for update"),
            Query("fetch c"),
            Query("update uniq set c = {n} where current of c"),
            Query("commit"),
        ],
        &[],
    ),
    (
        "select max(a) from s.t",
        &[Query("begin"), Query("set local search_path = s"), Query("insert into t values ({n})"), Query("commit")],
        &[],
    ),
    ("select max(a) from s.t", &[Ahead(&["set search_path = s", "insert into t values ({n})"])], &[Query("reset search_path")]),
    ("select max(a) from s.t", &[Pipeline(&["set local search_path = s", "insert into t values ({n})"])], &[]),
    (
        OF_T,
        &[
            Query("begin"),
            Query("insert into t values ({n}, 'x')"),
            Query("prepare transaction 'p{n}'"),
            Elsewhere("commit prepared 'p{n}'"),
        ],
        &[],
    ),
    (
        OF_T,
        &[Query("create temp table tmp as select {n} as a"), Query("insert into t select a, 'x' from tmp")],
        &[Query("drop table tmp")],
    ),
    ("select n from seen", &[Query("insert into allowed values ({n})")], &[]),
    ("select counted()", &[Query("insert into t values ({n}, 'x')")], &[]),
    ("select n from counting", &[Query("insert into t values ({n}, 'x')")], &[]),
    ("select a * 0 + counted() from quiet", &[Query("insert into t values ({n}, 'x')")], &[]),
    ("select query_to_xml('select max(a) from t', true, true, '')::text", &[Query("insert into t values ({n}, 'x')")], &[]),
    ("select sum(ndoc) from ts_stat('select to_tsvector(b) from t')", &[Query("insert into t values ({n}, 'word')")], &[]),
];

/// Writes that may have changed anything.
const TO_ANYTHING: &[Kind] = &[
    (OF_F, &[Query("select f({n})")], &[]),
    (OF_F, &[Query("call p({n})")], &[]),
    (OF_F, &[Query("call p_commits({n})")], &[]),
    (OF_F, &[Flushed(&["call p_commits({n})"])], &[]),
    (OF_F, &[Query("do 'begin perform f({n}); end'")], &[]),
    (OF_F, &[Query("do 'begin perform f({n}); commit; perform f({n} + 0); end'")], &[]),
    (OF_F, &[Flushed(&["do 'begin perform f({n}); commit; end'"])], &[]),
    ("select count(*) from by_function", &[Query("insert into defaulted (b) values (1)")], &[]),
    (OF_F, &[Call], &[]),
    (OF_F, &[Query("begin"), Query("declare c cursor with hold for select f({n})"), Query("commit")], &[Query("close c")]),
    (OF_F, &[Query("begin"), Query("select f({n})"), Query("commit")], &[]),
    (OF_F, &[Flushed(&["begin", "select f({n})", "commit", "select 1"])], &[]),
    (OF_F, &[Pipeline(&["select f({n})"])], &[]),
    (OF_F, &[Named("select f($1::int)")], &[]),
    (OF_F, &[Query("prepare pf as select f({n})"), Query("execute pf")], &[Query("deallocate pf")]),
    ("select convert_from(lo_get(77), 'utf8')", &[Query("select lo_put(77, 0, '{n}')")], &[]),
    ("select last_value from seq", &[Query("select nextval('seq')")], &[]),
    ("select last_value from seq", &[Query("select setval('seq', {n})")], &[]),
];

/// Writes that define something.
const DEFINING: &[Kind] = &[
    ("select max(a) from x{n}", &[Query("create table x{n} as select {n} as a")], &[Query("drop table x{n}")]),
    ("select max(a) from x{n}", &[Query("select {n} as a into x{n}")], &[Query("drop table x{n}")]),
    (
        "select count(*) from ddl where c{n} = {n}",
        &[Query("alter table ddl add column c{n} int default {n}")],
        &[Query("alter table ddl drop column c{n}")],
    ),
    ("select max(a) from w", &[Query("create or replace view w as select a from x"), Query("insert into x values ({n})")], &[]),
    ("select max(a) from w", &[Query("create or replace view w as select a from y"), Query("insert into y values ({n})")], &[]),
    ("select max(a) from w", &[Query("select w_to('x')"), Query("insert into x values ({n})")], &[]),
    ("select max(a) from w", &[Query("select w_to('y')"), Query("insert into y values ({n})")], &[]),
    ("select max(a) from w", &[Query("create or replace view w as select {n} as a")], &[]),
    (
        "select max(b) from parent",
        &[
            Query("alter table parent detach partition part2"),
            Query("alter table parent attach partition part2 for values in (2)"),
            Query("insert into part2 values (2, {n})"),
        ],
        &[],
    ),
    (
        "select count(*) from parent",
        &[Query("alter table parent detach partition part2")],
        &[Query("alter table parent attach partition part2 for values in (2)")],
    ),
    (
        "select max(a) from noted",
        &[
            Query("create trigger h after insert on hooked for each row execute function note()"),
            Query("insert into hooked values ({n})"),
        ],
        &[Query("drop trigger h on hooked")],
    ),
    (
        "select max(a) from noted",
        &[Query("create trigger h after insert on hooked for each row execute function note(); insert into hooked values ({n})")],
        &[Query("drop trigger h on hooked")],
    ),
    (
        "select max(a) from by_rule",
        &[
            Query("create rule h as on insert to other do also insert into by_rule values (new.a)"),
            Query("insert into other values ({n})"),
        ],
        &[Query("drop rule h on other")],
    ),
    (
        "select seven()",
        &[Query("create or replace function seven() returns bigint language sql stable as 'select {n}::bigint'")],
        &[],
    ),
    (
        "select max(a) from base",
        &[Query("create table child{n} () inherits (base)"), Query("insert into child{n} values ({n})")],
        &[Query("drop table child{n}")],
    ),
    (
        "select max(a) from x",
        &[
            Query("begin; alter table x rename to z; alter table y rename to x; alter table z rename to y; commit"),
            Query("insert into x values ({n})"),
        ],
        &[],
    ),
];

/// How a reader asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Simple,
    Extended,
    /// By a named statement that was prepared before.
    Named,
    /// Two statements up to one Sync, of which the second is meant.
    Pipeline,
    /// Behind another statement of one message.
    Many,
    /// In a transaction with one snapshot that began with something else.
    Snapshot,
    /// In a transaction that only reads.
    ReadOnly,
    /// In one of which no server is told before the read.
    Begun,
    /// By `EXECUTE`.
    BySql,
    Copy,
    Cursor,
}

const WAYS: [Way; 11] = [
    Way::Simple,
    Way::Extended,
    Way::Named,
    Way::Pipeline,
    Way::Many,
    Way::Snapshot,
    Way::ReadOnly,
    Way::Begun,
    Way::BySql,
    Way::Copy,
    Way::Cursor,
];

struct Reader {
    conn: Raw,
    named: HashSet<String>,
}

impl Reader {
    fn read(&mut self, way: Way, text: &str) -> String {
        let conn = &mut self.conn;
        match way {
            Way::Simple => value_of(&conn.rows_or_null(text)),
            Way::Extended => {
                conn.send(&[wire::unnamed(text, &[]), wire::sync()].concat());
                last_row(conn)
            }
            Way::Named => {
                if self.named.insert(text.to_owned()) {
                    conn.send(&[wire::parse(text, text), wire::sync()].concat());
                    conn.until_ready();
                }
                conn.send(&[wire::run(text, &[]), wire::sync()].concat());
                last_row(conn)
            }
            Way::Pipeline => {
                conn.send(&[wire::unnamed("select a from quiet", &[]), wire::unnamed(text, &[]), wire::sync()].concat());
                last_row(conn)
            }
            Way::Many => value_of(&conn.rows_or_null(&format!("select a from quiet; {text}"))),
            Way::Snapshot | Way::ReadOnly => {
                conn.run(match way {
                    Way::Snapshot => "begin isolation level repeatable read read only",
                    _ => "begin read only",
                });
                conn.value("select a from quiet");
                self.within(text)
            }
            Way::Begun => {
                conn.run("begin");
                self.within(text)
            }
            Way::BySql => {
                conn.run(&format!("prepare r as {text}"));
                let value = value_of(&conn.rows_or_null("execute r"));
                conn.run("deallocate r");
                value
            }
            Way::Copy => {
                conn.send(&wire::query(&format!("copy ({text}) to stdout")));
                let said = conn.until_ready();
                let row = said.iter().find(|message| message.tag == b'd').unwrap_or_else(|| panic!("{text}: {said:?}"));
                match String::from_utf8_lossy(&row.body).trim_end() {
                    "\\N" => "null".into(),
                    value => value.replace("\\n", "\n"),
                }
            }
            Way::Cursor => {
                conn.run("begin");
                conn.run(&format!("declare c cursor for {text}"));
                self.within("fetch all c")
            }
        }
    }

    /// Reads at the end of a transaction.
    fn within(&mut self, text: &str) -> String {
        let value = value_of(&self.conn.rows_or_null(text));
        self.conn.run("commit");
        value
    }
}

type Cells = Vec<Vec<Option<String>>>;

/// Rows with nulls.
trait Nulls {
    fn rows_or_null(&mut self, text: &str) -> Cells;
}

impl Nulls for Raw {
    fn rows_or_null(&mut self, text: &str) -> Cells {
        self.try_rows(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
    }
}

/// The value of the last row.
fn value_of(rows: &[Vec<Option<String>>]) -> String {
    rows.last().map_or("nothing".into(), |row| row[0].clone().unwrap_or("null".into()))
}

fn last_row(conn: &mut Raw) -> String {
    let said = conn.until_ready();
    let row = said.iter().rfind(|message| message.tag == b'D').unwrap_or_else(|| panic!("{said:?}"));
    row.row()[0].clone().unwrap_or("null".into())
}

/// State that all threads of a run share.
struct World {
    port: u16,
    primary: u16,
    reads_max: u64,
    reads: AtomicU64,
    is_over: AtomicBool,
    violations: Mutex<Vec<String>>,
}

impl World {
    fn found(&self) -> usize {
        self.violations.lock().unwrap().len()
    }
}

/// A program with a pool of its own: it writes on one connection and reads on others.
struct Pool<'a> {
    world: &'a World,
    database: String,
    writer: Raw,
    second: Raw,
    direct: Raw,
    readers: Vec<Reader>,
    /// The oid of `f`.
    function: u32,
    number: u32,
    dice: u64,
}

impl Pool<'_> {
    fn new(world: &World, at: usize) -> Pool<'_> {
        let database = database(at);
        let client = || Raw::tcp(world.port).log_in("postgres", &database, &[]).unwrap();
        let mut direct = Raw::tcp(world.primary).log_in("postgres", &database, &[]).unwrap();
        let function = direct.value("select 'f'::regproc::oid").parse().unwrap();
        let last: u32 = direct.value("select last from numbers").parse().unwrap();
        let readers = (0..3).map(|_| Reader { conn: client(), named: HashSet::new() }).collect();
        let (writer, second) = (client(), client());
        Pool {
            world,
            writer,
            second,
            direct,
            readers,
            function,
            number: last,
            dice: 0x9e37_79b9_7f4a_7c15 ^ (at as u64 + 1),
            database,
        }
    }

    /// A number below `sides`. Xorshift.
    fn throw(&mut self, sides: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % sides as u64) as usize
    }

    fn run(mut self, kinds: &[Kind]) {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        // All kinds at least once.
        for round in 0.. {
            for at in (1..order.len()).rev() {
                let other = self.throw(at + 1);
                order.swap(at, other);
            }
            for at in &order {
                let is_enough = round > 0 && self.world.reads.load(SeqCst) >= self.world.reads_max;
                if is_enough || self.world.is_over.load(SeqCst) {
                    self.direct.run(&format!("update numbers set last = {}", self.number));
                    return;
                }
                self.check(&kinds[*at]);
            }
        }
    }

    fn check(&mut self, (read, write, after): &Kind) {
        self.number += 1;
        let read = read.replace("{n}", &self.number.to_string());
        let mut owed = Owed::Nothing;
        for by in *write {
            owed = self.say(*by);
        }
        let expected = value_of(&self.direct.rows_or_null(&read));
        for _ in 0..READS_PER_WRITE {
            let way = match WAYS[self.throw(WAYS.len())] {
                // A sequence is read on the primary, since those of standbys are ahead. A transaction that is on a standby cannot leave it.
                Way::Snapshot | Way::ReadOnly if read.ends_with("from seq") => Way::Simple,
                way => way,
            };
            let at = self.throw(self.readers.len() + 1);
            if at == self.readers.len() {
                let conn = Raw::tcp(self.world.port).log_in("postgres", &self.database, &[]).unwrap();
                self.readers[0] = Reader { conn, named: HashSet::new() };
            }
            let count = self.readers.len();
            let got = self.readers[at % count].read(way, &read);
            self.world.reads.fetch_add(1, SeqCst);
            if got != expected {
                let text = format!("{read} by {way:?} after {write:?} gives {got:?}, and not {expected:?}");
                self.world.violations.lock().unwrap().push(text);
            }
        }
        match owed {
            Owed::Nothing => {}
            Owed::Sync => {
                self.writer.send(&wire::sync());
                self.writer.until_ready();
            }
            Owed::Ready => drop(self.writer.until_ready()),
        }
        for by in *after {
            self.say(*by);
        }
    }

    /// Says something, and waits for its acknowledgement.
    fn say(&mut self, by: By) -> Owed {
        let number = self.number.to_string();
        let filled = |text: &str| text.replace("{n}", &number);
        let writer = &mut self.writer;
        let unnamed = |texts: &[&str]| texts.iter().map(|text| wire::unnamed(&filled(text), &[])).collect::<Vec<_>>();
        let check = |said: &[Message]| {
            let error = said.iter().find(|message| message.tag == b'E');
            assert!(error.is_none(), "{by:?}: {error:?}");
        };
        match by {
            Query(text) => writer.run(&filled(text)),
            Elsewhere(text) => self.second.run(&filled(text)),
            Ahead(texts) => {
                writer.send(&texts.iter().flat_map(|text| wire::query(&filled(text))).collect::<Vec<_>>());
                texts.iter().for_each(|_| check(&writer.until_ready()));
            }
            Pipeline(texts) => {
                writer.send(&[unnamed(texts).concat(), wire::sync()].concat());
                check(&writer.until_ready());
            }
            Syncs(texts) => {
                writer.send(&unnamed(texts).join(&wire::sync()[..]));
                writer.send(&wire::sync());
                texts.iter().for_each(|_| check(&writer.until_ready()));
            }
            Flushed(texts) => {
                writer.send(&[unnamed(texts).concat(), wire::flush()].concat());
                let mut complete = 0;
                while complete < texts.len() {
                    let message = writer.read();
                    complete += usize::from(message.tag == b'C');
                    check(&[message]);
                }
                return Owed::Sync;
            }
            Slow(text) => {
                writer.send(&wire::query(&filled(text)));
                loop {
                    let message = writer.read();
                    if message.tag == b'C' && message.text() == "COMMIT" {
                        return Owed::Ready;
                    }
                    check(&[message]);
                }
            }
            Data(text) => {
                writer.send(&wire::query(text));
                while writer.read().tag != b'G' {}
                writer.send(&[wire::copy_data(format!("{number},copied\n").as_bytes()), wire::copy_done()].concat());
                check(&writer.until_ready());
            }
            Call => {
                writer.send(&wire::function_call(self.function, &[&number]));
                check(&writer.until_ready());
            }
            Named(text) => {
                writer.send(&[wire::parse("w", text), wire::run("w", &[&number]), wire::close(b'S', "w"), wire::sync()].concat());
                check(&writer.until_ready());
            }
        }
        Owed::Nothing
    }
}

/// The rest that is still to come of a write that was acknowledged.
enum Owed {
    Nothing,
    /// A Sync, and its answer.
    Sync,
    /// The rest of the answer.
    Ready,
}

/// The kinds of writes of each pool. Nobody else in its database makes all tables count.
const POOLS: [&[Kind]; 4] = [TO_TABLES, TO_TABLES, TO_ANYTHING, DEFINING];

fn database(at: usize) -> String {
    format!("pool_{at}")
}

/// A cluster with a slow standby, and one that stops and goes on.
fn prepared() -> Owned {
    let cluster = cluster(2);
    let primary = cluster.primary();
    primary.query("create role pools_joe").unwrap();
    for at in 0..POOLS.len() {
        let database = database(at);
        primary.query(&format!("create database {database}")).unwrap();
        let mut direct = Raw::tcp(primary.port()).log_in("postgres", &database, &[]).unwrap();
        direct.run(OBJECTS);
        direct.run(&format!("create table numbers as select {} as last", (at + 1) * 10_000_000));
        direct.run("create function seven() returns bigint language sql stable as 'select 0::bigint'");
    }
    cluster.wait_caught_up().unwrap();
    let [slow, _] = cluster.standbys() else { panic!("two standbys") };
    slow.query("alter system set recovery_min_apply_delay = '150ms'").unwrap();
    slow.reload().unwrap();
    cluster
}

/// Pauses and resumes replay in turns until the run is over.
fn disturb(world: &World, standby: &Server) {
    let mut is_paused = false;
    while !world.is_over.load(SeqCst) {
        is_paused = !is_paused;
        let text = if is_paused { "select pg_wal_replay_pause()" } else { "select pg_wal_replay_resume()" };
        standby.query(text).unwrap();
        let_pass(Duration::from_millis(if is_paused { 20 } else { 60 }));
    }
    standby.query("select pg_wal_replay_resume()").unwrap();
}

/// Lets all pools run until they have read enough, or `is_over` says so. Returns the reads that standbys answered.
fn play(cluster: &Owned, proxy: &Proxy, reads_max: u64, is_over: impl Fn(&World) -> bool + Sync) -> (World, u64) {
    let (port, primary) = (proxy.port(), cluster.primary().port());
    let world = World {
        port,
        primary,
        reads_max,
        reads: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        violations: Mutex::default(),
    };
    for at in 0..POOLS.len() {
        wait_for_catalog(&mut Raw::tcp(port).log_in("postgres", &database(at), &[]).unwrap(), &database(at));
    }
    let told = thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(&world, &cluster.standbys()[1]));
        let pools: Vec<_> = POOLS
            .iter()
            .enumerate()
            .map(|(at, kinds)| {
                scope.spawn({
                    let world = &world;
                    move || Pool::new(world, at).run(kinds)
                })
            })
            .collect();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until_long("the pools to have read enough", || is_over(&world) || pools.iter().all(|pool| pool.is_finished()));
        }));
        world.is_over.store(true, SeqCst);
        let ends: Vec<_> = pools.into_iter().map(|pool| pool.join()).collect();
        disturber.join().unwrap();
        ends.into_iter().chain([told]).collect::<Result<Vec<()>, _>>()
    });
    if let Err(panic) = told {
        std::panic::resume_unwind(panic);
    }
    let counts = show(&mut proxy.console(), "pool_nodes", "select_cnt");
    let by_standbys = counts[1..].iter().map(|count| count.parse::<u64>().unwrap()).sum();
    (world, by_standbys)
}

/// The long run takes longer than other waits may.
fn wait_until_long(what: &str, done: impl Fn() -> bool) {
    let rounds = 1 + reads() / READS;
    for round in 1..=rounds {
        let is_last = round == rounds;
        if is_last {
            wait_until(what, &done);
        } else if crate::support::time::happens_within(Duration::from_secs(60), &done) {
            return;
        }
    }
}

fn reads() -> u64 {
    std::env::var("WEIR_CHECK_READS").ok().and_then(|text| text.parse().ok()).unwrap_or(READS)
}

#[test]
fn a_pool_reads_all_that_it_wrote_on_another_connection() {
    let cluster = prepared();
    for more in ["worker_threads = 3", "worker_threads = 1\nmemory_cache_enabled = on"] {
        let proxy = Proxy::start(&cluster, &format!("causal_wait = 4ms\npool_size = 5\n{more}"));
        let started = Instant::now();
        let (world, by_standbys) = play(&cluster, &proxy, reads(), |world| world.found() > 20);
        let reads = world.reads.load(SeqCst);
        println!("{more:?}: {reads} reads in {:?}, {by_standbys} on standbys", started.elapsed());
        let violations = world.violations.lock().unwrap();
        assert!(
            violations.is_empty(),
            "{} of {reads} reads, {more}: {:#?}",
            violations.len(),
            &violations[..violations.len().min(8)]
        );
        assert!(by_standbys > reads / 50, "standbys answer {by_standbys} of {reads} reads: it shows little");
    }
}

#[test]
fn causal_reads_of_sessions_do_not_keep_the_promise_to_pools() {
    let cluster = prepared();
    let proxy = Proxy::start(&cluster, "causal_reads = session");
    let started = Instant::now();
    let (world, _) = play(&cluster, &proxy, u64::MAX, |world| world.found() > 0 || started.elapsed() > FIND_LIMIT);
    assert!(world.found() > 0, "nothing found in {FIND_LIMIT:?}: this checker proves nothing");
    println!("found in {:?}: {}", started.elapsed(), world.violations.lock().unwrap()[0]);
}
