//! The statements scripts are made of. Each gives the same answer on two databases of the same content.

/// A statement and how many parameters it has.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub sql: &'static str,
    pub parameters: usize,
}

const fn text(sql: &'static str) -> Text {
    Text { sql, parameters: 0 }
}

const fn with(parameters: usize, sql: &'static str) -> Text {
    Text { sql, parameters }
}

/// Statements that read what no script writes, or that fail.
pub const READS: &[Text] = &[
    text("select 1"),
    text("select 2 as x"),
    text("select 1 union all select 2 order by 1"),
    with(1, "select $1::int4 + 1"),
    with(2, "select $1::text, $2::int4"),
    with(1, "select $1::text || '-common'"),
    text("select a, b from t order by a"),
    with(1, "select b from t where a = $1"),
    with(1, "select a from t where a > $1 order by a"),
    text("select generate_series(1, 5) as g"),
    with(1, "select generate_series(1, $1::int4)"),
    text("select 1/0"),
    with(1, "select 10 / $1::int4"),
    text("selec 1"),
    text("select * from nosuch"),
    text("select nosuch from t"),
    text(""),
    text("  "),
    text("-- nothing"),
    text("select repeat('x', 50000)"),
    with(1, "select repeat('y', $1::int4 * 1000) from generate_series(1, 20)"),
    text("values (1, 'a'), (2, 'b')"),
    text("select t1.*, t2.*, t3.*, t4.* from wide.wide t1, wide.wide t2, wide.wide t3, wide.wide t4"),
    text("copy t to stdout"),
    text("copy (select a from t where a < 3 order by a) to stdout"),
    text("table t order by a limit 2"),
    text("with x as (select max(a) m from t) select m from x"),
    text("show transaction_isolation"),
    text("explain (costs off) select 1"),
];

/// Statements that write to a table which only they read.
pub const WRITES: &[Text] = &[
    with(1, "insert into w values ($1, 'x') returning a"),
    text("insert into w values (1, 'one')"),
    with(2, "insert into w values ($1, $2)"),
    text("update w set b = b || '!' where a = 1 returning b"),
    text("delete from w where a = 2 returning *"),
    text("insert into late values (99)"),
    text("with gone as (delete from w where a = 1 returning a) select count(*) from gone"),
    text("create table made (a int)"),
    text("drop table if exists made"),
    text("truncate w"),
    text("select a from w order by a for update"),
    text("lock table w in share mode"),
    text("do $$ begin raise notice 'said'; end $$"),
];

/// Statements that change or read tables others read, so not for reads that may be answered by a standby.
pub const DEFINITIONS: &[Text] = &[
    text("select * from w order by a"),
    text("alter table w add column c int"),
    text("alter table w drop column if exists c"),
    text("insert into t values (10, 'ten')"),
    text("delete from t where a = 10"),
    text("alter table t alter column b type varchar(40)"),
    text("create function f() returns int language sql as 'select 1'"),
    text("select f()"),
    text("drop table t cascade"),
];

pub const TRANSACTIONS: &[Text] = &[
    text("begin"),
    text("begin"),
    text("begin isolation level repeatable read"),
    text("begin read only"),
    text("start transaction"),
    text("begin isolation level serializable"),
    text("begin read write"),
    text("set transaction isolation level repeatable read"),
    text("commit"),
    text("commit"),
    text("rollback"),
    text("rollback"),
    text("end"),
    text("abort"),
    text("savepoint s"),
    text("rollback to s"),
    text("release s"),
    text("commit and chain"),
    text("set transaction read only"),
];

/// Statements that leave something on the session, or look at it.
pub const SESSION: &[Text] = &[
    text("set work_mem = '1MB'"),
    text("set local work_mem = '2MB'"),
    text("show work_mem"),
    text("reset work_mem"),
    text("set datestyle = 'German'"),
    text("select to_date('2024-02-03', 'YYYY-MM-DD')"),
    text("reset datestyle"),
    text("set search_path = other, public"),
    text("show search_path"),
    text("reset search_path"),
    text("reset all"),
    text("select set_config('work_mem', '5MB', false)"),
    text("prepare sql1 as select $1::int4 * 2"),
    text("execute sql1(4)"),
    text("deallocate sql1"),
    text("deallocate all"),
    text("discard all"),
    text("discard plans"),
    text("create temp table kept (a int)"),
    text("insert into kept values (1)"),
    text("select * from kept"),
    text("drop table kept"),
    text("create temp table brief (a int) on commit drop"),
    text("declare c1 cursor for select generate_series(1, 5)"),
    text("fetch 2 from c1"),
    text("close c1"),
    text("declare c2 cursor with hold for select generate_series(1, 5)"),
    text("fetch 2 from c2"),
    text("close c2"),
    text("close all"),
    text("listen ch"),
    text("notify ch, 'hello'"),
    text("unlisten *"),
    text("select pg_advisory_lock(7)"),
    text("select pg_advisory_unlock(7)"),
    text("set work_mem to 2048"),
    text("set work_mem = default"),
    text("set work_mem = 'much'"),
    text("set app.user = 'joe'"),
    text("select current_setting('app.user', true) = 'joe'"),
    text("reset app.user"),
    text("select set_config('app.user', 'sue', false)"),
    with(1, "select set_config('work_mem', $1::int4 || 'MB', false)"),
    text("select set_config('timezone', 'Asia/Tokyo', true)"),
    text("set timezone = 'Asia/Tokyo'"),
    text("show timezone"),
    text("reset timezone"),
    text("set extra_float_digits = 0"),
    text("reset extra_float_digits"),
    text("set local timezone = 'UTC'"),
    text("set role pg_monitor"),
    text("select current_user"),
    text("reset role"),
    text("prepare sql2 as select current_setting('work_mem')"),
    text("execute sql2"),
    text("deallocate sql2"),
    text("do $$ begin set work_mem = '6MB'; end $$"),
    text("savepoint s"),
    text("set work_mem = '8MB'"),
    text("rollback to s"),
    text("begin"),
    text("rollback"),
    text("set work_mem = '9MB'; select 1"),
    text("set application_name = 'renamed'"),
    text("show application_name"),
    text("set bytea_output = 'escape'"),
    text("select '\\x01'::bytea"),
];

/// What no list above holds: names of the extended protocol used by statements.
pub const DEALLOCATES: &[Text] = &[text("deallocate a"), text("deallocate b"), text("deallocate nosuch")];
