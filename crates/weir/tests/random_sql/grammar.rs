//! Random statements about the objects of `schema.sql`.
//!
//! Every source and every query has the columns `id` and `n`: everything fits into everything. Values are small, so that joins
//! meet. Rows come in no order unless there is a LIMIT.

use crate::dice::Dice;

/// How deep expressions and queries go into each other.
const DEPTH_MAX: usize = 3;

/// A statement, and the facts that the script needs of it.
pub struct Statement {
    pub text: String,
    /// It may go through the extended protocol: one statement, no COPY.
    pub is_one: bool,
    /// How things stand after it.
    pub leaves: Standing,
    /// It changes the catalog.
    pub defines: bool,
}

/// State of a session's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Alone,
    InTransaction,
    /// It may be one on a standby. Objects that a standby lacks cannot be had from elsewhere then, and Weir says so in its own
    /// words.
    InReadOnlyTransaction,
}

pub struct Grammar<'a> {
    dice: &'a mut Dice,
    session: usize,
    /// Sessions whose tables may be read; 0: only one's own.
    others: usize,
    standing: Standing,
    aliases: usize,
}

/// Sources of reads; the later half writes, or is nothing for a standby.
const SOURCES: &[&str] = &[
    "t0",
    "t0",
    "t0",
    "t1",
    "t1",
    "p0",
    "v_plain",
    "v_plain",
    "v_deep",
    "v_deeper",
    "v_function",
    "m0",
    "guarded",
    "rows_of(4)",
    "ruled",
    "generate_series(1, 4) g (id), lateral (select g.id % 3 as n) h",
    "u0",
    "parent",
    "v_writes",
    "v_on_writes",
    "v_liar",
    "v_unlogged",
    "v_on_unlogged",
    "v_draws",
    "v_operator",
    "v_catalog",
    "v_partitions",
    "v_ruled",
    "watched",
    "rows_written(2)",
    "drawn",
];
/// Sources that only read, for every reader.
const CALM_SOURCES: usize = 16;
/// Sources that every standby has, after any definition.
const EVERYWHERE: &[&str] = &["t0", "t0", "v_plain", "v_deep", "v_deeper", "v_function", "m0", "rows_of(4)"];
/// Calls of a number; the later ones write.
const CALLS: &[&str] = &[
    "pure",
    "pure",
    "reads",
    "reads",
    "reads_more",
    "twice",
    "abs",
    "both_read(1, ",
    "liar",
    "liar_locking",
    "writes",
    "hidden",
    "definer",
    "locks",
    "tries",
];
/// Calls that take no number.
const WITHOUT_NUMBER: &[&str] = &[
    "nextval('sq')::int",
    "draws()",
    "liar_drawing()",
    "liar_unlogged()",
    "twice('text')",
    "setval('sq', 5)::int",
    "(row(3)::pair)::int",
    "defaulted(1)",
    "makes_temporary()",
    "pg_try_advisory_lock(1)::int",
    "pg_try_advisory_xact_lock(2)::int",
    "pg_advisory_unlock(1)::int",
    "(select n from t0 where id = 1 for update)",
];
const CALM_CALLS: usize = 8;
const AGGREGATES: &[&str] = &["sum", "count", "min", "max", "total", "total", "collected"];
const CALM_AGGREGATES: usize = 6;
const TABLES: &[&str] =
    &["t0", "t0", "t1", "t1", "u0", "p0", "parent", "ruled", "v_ruled", "v_plain", "guarded", "drawn", "kept", "made"];

impl<'a> Grammar<'a> {
    pub fn new(dice: &'a mut Dice, session: usize, others: usize, standing: Standing) -> Grammar<'a> {
        Grammar { dice, session, others, standing, aliases: 0 }
    }

    /// The next thing a session does.
    pub fn statement(&mut self) -> Statement {
        let leaves = self.standing;
        let plain = |text: String| Statement { text, is_one: true, leaves, defines: false };
        if leaves == Standing::InReadOnlyTransaction {
            return match self.dice.below(10) {
                0..=6 => plain(self.query(DEPTH_MAX)),
                7 => plain(format!("set local search_path = {}", self.schema())),
                _ => self.transaction(),
            };
        }
        // Transactions are short, so that most statements of a session may go to a standby.
        if leaves == Standing::InTransaction && self.dice.once_in(4) {
            return self.transaction();
        }
        match self.dice.below(100) {
            0..=49 => plain(self.query(DEPTH_MAX)),
            50..=61 => plain(self.write()),
            62..=65 => plain(self.writing_with()),
            66..=68 => plain(self.locking()),
            69..=72 => Statement { is_one: false, ..plain(self.copy()) },
            73..=76 => plain(self.session_state()),
            77..=79 => plain(self.prepared()),
            80..=82 => plain(self.block()),
            83..=84 => plain(self.explain()),
            85..=87 => Statement { is_one: false, ..plain(self.several()) },
            88..=91 => Statement { defines: true, ..plain(self.definition()) },
            92..=93 => plain(self.cursor()),
            _ => self.transaction(),
        }
    }

    fn number(&mut self, depth: usize, columns: &[String]) -> String {
        let depth = depth.saturating_sub(1);
        match self.dice.below(if depth == 0 { 4 } else { 16 }) {
            0 => self.dice.below(8).to_string(),
            1..=3 if !columns.is_empty() => self.column(columns),
            1..=3 => (self.dice.below(6) + 1).to_string(),
            4..=6 => {
                let operator = if self.is_rare() { "<+>" } else { self.dice.of(&["+", "-", "*", "%", "<*>", "+"]) };
                format!("({} {operator} {})", self.number(depth, columns), self.number(depth, columns))
            }
            7..=10 => self.call(depth, columns),
            11 => format!("coalesce({}, {})", self.number(depth, columns), self.number(depth, columns)),
            12 => {
                let condition = self.condition(depth, columns);
                format!("case when {condition} then {} else {} end", self.number(depth, columns), self.number(depth, columns))
            }
            13 => format!("(select max(n) from ({}) m)", self.select(depth)),
            14 => format!("length({})", self.text(columns)),
            _ => format!("(-{})", self.number(depth, columns)),
        }
    }

    fn call(&mut self, depth: usize, columns: &[String]) -> String {
        if self.is_rare() {
            if self.dice.once_in(2) {
                return self.dice.of(WITHOUT_NUMBER).into();
            }
            let call = self.dice.of(CALLS);
            return if call.contains('(') {
                format!("{call}{})", self.number(depth, columns))
            } else {
                format!("{call}({})", self.number(depth, columns))
            };
        }
        let call = self.dice.of(&CALLS[..CALM_CALLS]);
        let open = if call.contains('(') { "" } else { "(" };
        format!("{call}{open}{})", self.number(depth, columns))
    }

    fn text(&mut self, columns: &[String]) -> String {
        match self.dice.below(4) {
            0 => "'abc'".into(),
            1 => "lower('ABC')".into(),
            2 if !columns.is_empty() => format!("{}::text", self.column(columns)),
            _ => "current_schema()".into(),
        }
    }

    fn column(&mut self, columns: &[String]) -> String {
        let alias = columns[self.dice.below(columns.len())].clone();
        format!("{alias}.{}", self.dice.of(&["id", "n"]))
    }

    fn condition(&mut self, depth: usize, columns: &[String]) -> String {
        let depth = depth.saturating_sub(1);
        match self.dice.below(if depth == 0 { 3 } else { 10 }) {
            0..=2 => {
                let compare = self.dice.of(&["<", ">", "=", "<>", "<=", "is distinct from"]);
                format!("{} {compare} {}", self.number(depth, columns), self.number(depth, columns))
            }
            3 => format!("{} between 1 and {}", self.number(depth, columns), self.number(depth, columns)),
            4 => format!("exists ({})", self.select(depth)),
            5 => format!("{} in (select id from ({}) i)", self.number(depth, columns), self.select(depth)),
            6 => format!("not ({})", self.condition(depth, columns)),
            7 => format!("{} like 'a%'", self.text(columns)),
            8 => format!("{} = any (array(select n from ({}) i))", self.number(depth, columns), self.select(depth)),
            _ => format!("({} and {})", self.condition(depth, columns), self.condition(depth, columns)),
        }
    }

    /// Once in a while something that writes, draws or is not there on a standby.
    fn is_rare(&mut self) -> bool {
        self.standing != Standing::InReadOnlyTransaction && self.dice.once_in(12)
    }

    fn source(&mut self, depth: usize) -> String {
        if depth > 1 && self.dice.once_in(4) {
            return format!("({})", self.select(depth - 1));
        }
        if self.standing == Standing::InReadOnlyTransaction {
            return self.dice.of(EVERYWHERE).into();
        }
        let source = if self.is_rare() { self.dice.of(SOURCES) } else { self.dice.of(&SOURCES[..CALM_SOURCES]) };
        let is_plain = !source.contains([' ', '(']);
        match self.dice.below(12) {
            0 if is_plain => format!("{}.{source}", self.schema()),
            1 if is_plain && self.others > 0 => format!("s{}.{source}", self.dice.below(self.others)),
            2 => "kept".into(),
            3 => "(select id, n from t0 tablesample bernoulli (100))".into(),
            _ if source.contains(' ') => format!("(select g.id, h.n from {source})"),
            _ => source.into(),
        }
    }

    fn schema(&self) -> String {
        format!("s{}", self.session)
    }

    /// A query that returns `id` and `n`.
    fn select(&mut self, depth: usize) -> String {
        if depth > 1 && self.dice.once_in(8) {
            let set = self.dice.of(&["union", "union all", "except", "intersect"]);
            return format!("({}) {set} ({})", self.select(depth - 1), self.select(depth - 1));
        }
        self.aliases += 1;
        let (one, other) = (format!("a{}", self.aliases), format!("b{}", self.aliases));
        let mut columns = vec![one.clone()];
        let mut from = format!("{} {one}", self.source(depth));
        if self.dice.once_in(12) {
            from += &format!(", lateral {}({one}.id) {other}", if self.is_rare() { "rows_written" } else { "rows_of" });
            columns.push(other);
        } else if self.dice.once_in(3) {
            let join = self.dice.of(&["join", "left join", "full join"]);
            from += &format!(" {join} {} {other} on {one}.id = {other}.id", self.source(depth));
            columns.push(other);
        }
        let filter = if self.dice.once_in(2) { format!(" where {}", self.condition(depth, &columns)) } else { String::new() };
        if self.dice.once_in(5) {
            let aggregates = if self.is_rare() { AGGREGATES } else { &AGGREGATES[..CALM_AGGREGATES] };
            let aggregate = self.dice.of(aggregates);
            let group = if self.dice.once_in(2) { format!(" group by {one}.id") } else { String::new() };
            let id = if group.is_empty() { format!("max({one}.id)") } else { format!("{one}.id") };
            let most = self.number(depth.saturating_sub(1), &[]);
            let having = if self.dice.once_in(4) { format!(" having count(*) < {most}") } else { String::new() };
            return format!(
                "select {id} as id, {aggregate}({})::int as n from {from}{filter}{group}{having}",
                self.column(&columns)
            );
        }
        if self.dice.once_in(12) {
            let aggregate = self.dice.of(AGGREGATES);
            let column = self.column(&columns);
            return format!(
                "select {one}.id, ({aggregate}({column}) over (partition by {one}.id))::int as n from {from}{filter}"
            );
        }
        let limit = match self.dice.below(12) {
            0 => " order by 1, 2 limit 3".into(),
            1 => format!(" order by 1, 2 limit greatest(1, {})", self.number(depth.saturating_sub(1), &[])),
            _ => String::new(),
        };
        let distinct = if self.dice.once_in(9) { "distinct " } else { "" };
        format!("select {distinct}{one}.id, {} as n from {from}{filter}{limit}", self.number(depth, &columns))
    }

    fn query(&mut self, depth: usize) -> String {
        match self.dice.below(13) {
            5 => {
                let (first, next) = (self.number(2, &[]), self.number(2, &["c".to_owned()]));
                format!(
                    "with recursive c (id, n) as (select 1, {first} union all select id + 1, {next} from c where id < 4) \
                     select id, n from c"
                )
            }
            0 => format!("with c as ({}) select c.id, c.n from c join t0 on t0.id = c.id", self.select(depth)),
            1 => format!("with c as materialized ({}) select id, (select count(*) from c)::int as n from c", self.select(depth)),
            2 => format!("select {}, {}", self.number(depth, &[]), self.number(depth, &[])),
            3 if self.standing == Standing::InReadOnlyTransaction => format!("table {}", self.dice.of(&["t0", "v_deeper"])),
            3 => format!("table {}", self.dice.of(&["t0", "t1", "v_deeper", "u0", "v_writes", "kept"])),
            4 => format!("values ({}, {})", self.number(depth, &[]), self.number(depth, &[])),
            _ => self.select(depth),
        }
    }

    fn table(&mut self) -> &'static str {
        self.dice.of(TABLES)
    }

    fn write(&mut self) -> String {
        let table = self.table();
        let mine = [table.to_owned()];
        let back = if self.dice.once_in(2) { " returning id, n" } else { "" };
        match self.dice.below(9) {
            0..=1 => format!("insert into {table} (id, n) values ({}, {}){back}", self.dice.below(30), self.number(2, &[])),
            2 => {
                format!("insert into {table} (id, n) select id + 20, n from ({}) i on conflict do nothing{back}", self.select(2))
            }
            3 => format!(
                "insert into t0 (id, n) values ({}, 1) on conflict (id) do update set n = t0.n + excluded.n{back}",
                self.dice.below(12)
            ),
            4..=5 => format!("update {table} set n = {} where {}{back}", self.number(2, &mine), self.condition(2, &mine)),
            6 => format!("delete from {table} where id = {}{back}", self.number(2, &mine)),
            7 => format!(
                "merge into t0 using ({}) m on t0.id = m.id when matched then update set n = 1 when not matched then do nothing",
                self.select(2)
            ),
            _ => self
                .dice
                .of(&["truncate p0", "refresh materialized view m0", "insert into drawn default values returning *"])
                .into(),
        }
    }

    fn writing_with(&mut self) -> String {
        let write = match self.dice.below(3) {
            0 => format!("insert into t0 (id, n) values ({}, 3) on conflict do nothing returning id, n", self.dice.below(40)),
            1 => format!("update t1 set n = n + 1 where id = {} returning id, n", self.dice.below(7)),
            _ => format!("delete from p0 where id = {} returning id, n", self.dice.below(7)),
        };
        match self.dice.below(3) {
            0 => format!("with w as ({write}) select id, n from w"),
            1 => format!("with w as ({write}), r as ({}) select id, n from r union all select id, n from w", self.select(2)),
            _ => format!("with w as ({write}) insert into u0 (id, n) select id + 50, n from w on conflict do nothing"),
        }
    }

    fn locking(&mut self) -> String {
        let strength = self.dice.of(&["update", "no key update", "share", "key share", "update skip locked", "share nowait"]);
        match self.dice.below(5) {
            0..=1 => format!(
                "select id, n from {} where id < {} for {strength}",
                self.dice.of(&["t0", "t1", "v_plain", "p0"]),
                self.dice.below(9)
            ),
            2 => format!("select id, n from (select id, n from t0 for {strength}) l"),
            3 => format!("with l as (select id, n from t1 for {strength}) select id, n from l"),
            _ => format!(
                "lock table {} in {} mode",
                self.dice.of(&["t0", "t1", "v_plain"]),
                self.dice.of(&["share", "access share", "exclusive"])
            ),
        }
    }

    fn copy(&mut self) -> String {
        match self.dice.below(6) {
            0 => format!("copy {} to stdout", self.dice.of(&["t0", "t1", "u0", "p0_a", "log", "kept"])),
            1..=2 => format!("copy ({}) to stdout", self.select(2)),
            3 => "copy (insert into log (what, n) values ('copied', 1) returning n) to stdout".into(),
            4 => "copy ruled from stdin".into(),
            _ => format!("copy {} (id, n) from stdin", self.dice.of(&["p0", "u0", "parent", "kept"])),
        }
    }

    /// Settings of a session, and statements whose meaning they change.
    fn session_state(&mut self) -> String {
        let mine = self.schema();
        match self.dice.below(16) {
            0 => format!("set search_path = {mine}_odd, {mine}"),
            1 => format!("set search_path = {mine}_odd, {mine}, pg_catalog"),
            14 => format!("select {mine}.sets_path('{mine}_odd, {mine}')"),
            15 => format!("select {mine}.sets_path('{mine}')"),
            2..=4 => format!("set search_path = {mine}"),
            5 => format!("set local search_path = {mine}_odd, {mine}"),
            6 => format!("select set_config('search_path', '{mine}, {mine}_odd', {})", self.dice.of(&["true", "false"])),
            7 => "create temp table if not exists kept (id int, n int)".into(),
            8 => "create temp table t1 (id int, n int, k int, s text)".into(),
            9 => "drop table if exists pg_temp.kept, pg_temp.t1".into(),
            10 => "set role weir_random".into(),
            11..=12 => "reset role".into(),
            _ => "discard temp".into(),
        }
    }

    fn prepared(&mut self) -> String {
        let name = self.dice.of(&["q1", "q2"]);
        match self.dice.below(5) {
            0..=1 => format!("prepare {name} as {}", if self.dice.once_in(3) { self.write() } else { self.select(2) }),
            2..=3 => format!("execute {name}"),
            _ => format!("deallocate {name}"),
        }
    }

    fn block(&mut self) -> String {
        match self.dice.below(6) {
            0 => format!("call writes_and_commits({})", self.dice.below(9)),
            1 => "call only_reads(1)".into(),
            2 => format!("do $$ begin perform writes({}); end $$", self.dice.below(9)),
            3 => "do $$ begin insert into t0 (id) values (77) on conflict do nothing; perform 1 / 0; end $$".into(),
            4 => "do $$ declare c int; begin select count(*) into c from t0; perform c; end $$".into(),
            _ => format!("do $$ begin create table if not exists made as {}; end $$", self.select(2)),
        }
    }

    /// Its output depends on the planner's knowledge; its effect must not.
    fn explain(&mut self) -> String {
        let analyze = self.dice.of(&["", "analyze, timing off, summary off, "]);
        let statement = if self.dice.once_in(2) { self.write() } else { self.select(2) };
        format!("explain ({analyze}costs off) {statement}")
    }

    fn several(&mut self) -> String {
        let count = 2 + self.dice.below(2);
        let statements: Vec<String> =
            (0..count).map(|_| if self.dice.once_in(4) { self.write() } else { self.select(2) }).collect();
        statements.join("; ")
    }

    fn definition(&mut self) -> String {
        let mine = self.schema();
        let reads = self.dice.once_in(2);
        match self.dice.below(14) {
            0..=1 if reads => format!("create or replace function pure(int) returns int language sql stable as 'select $1 + {}'", self.dice.below(5)),
            0..=1 => format!("create or replace function pure(int) returns int language sql as 'select {mine}.writes($1)'"),
            2 => format!("alter function twice(int) {}", if reads { "stable" } else { "volatile" }),
            3 => format!("alter function reads(int) {}", if reads { "stable" } else { "volatile" }),
            4 if reads => "create or replace view v_plain as select id, n from t0".into(),
            4 => "create or replace view v_plain as select id, writes(n) as n from t0".into(),
            5 => format!("alter table p0_b set {}", if reads { "logged" } else { "unlogged" }),
            6 => format!("alter table {} set {}", self.dice.of(&["u0", "ruled"]), if reads { "logged" } else { "unlogged" }),
            7 if reads => "create or replace function abs(int) returns int language sql as 'insert into log (what, n) values (''abs'', $1) returning n'".into(),
            7 => "drop function if exists abs(int)".into(),
            8 => format!("create table if not exists made as {}", self.select(2)),
            9 => "drop table if exists made".into(),
            10 => format!("select * into made from ({}) m", self.select(2)),
            11 => format!("alter table t0 add column if not exists c{} int default writes(1)", self.dice.below(3)),
            12 => format!("create or replace function {mine}_odd.pure(int) returns int language sql {} as 'select $1'", if reads { "stable" } else { "volatile" }),
            _ => format!("create or replace procedure only_reads(inout a int) language sql as 'select {mine}.writes(a)'"),
        }
    }

    fn cursor(&mut self) -> String {
        match self.dice.below(5) {
            0..=1 => {
                let hold = if self.standing == Standing::Alone { "with hold " } else { "" };
                format!("declare c cursor {hold}for {}", self.select(2))
            }
            2..=3 => "fetch 2 from c".into(),
            _ => "close c".into(),
        }
    }

    fn transaction(&mut self) -> Statement {
        let is_one = true;
        let done = |text: &str, leaves| Statement { text: text.into(), is_one, leaves, defines: false };
        if self.standing == Standing::Alone {
            let begin = self.dice.of(&[
                "begin",
                "begin",
                "begin",
                "begin read only",
                "begin isolation level repeatable read",
                "begin isolation level serializable",
                "begin isolation level repeatable read, read only",
                "begin isolation level serializable, read only",
                "start transaction read write",
            ]);
            let is_read_only = begin.ends_with("read only");
            return done(begin, if is_read_only { Standing::InReadOnlyTransaction } else { Standing::InTransaction });
        }
        match self.dice.below(16) {
            12 => done("begin", self.standing),
            13 => done("commit and chain", self.standing),
            14 => done("rollback and chain", self.standing),
            15 => done("set transaction isolation level repeatable read", self.standing),
            0..=5 => done("commit", Standing::Alone),
            6..=7 => done("rollback", Standing::Alone),
            8 => done("savepoint s", self.standing),
            9 => done("rollback to s", self.standing),
            10 => done("release s", self.standing),
            _ => done("select 1 / 0", self.standing),
        }
    }
}
