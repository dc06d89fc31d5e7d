//! Answers from memory are answers PostgreSQL would give.

pub(super) use super::history::REGISTERS;
use super::history::{Door, Story, register};
use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::raw::tags;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

pub(super) fn hits(proxy: &Proxy) -> u64 {
    proxy.metric("cache_hits_total")
}

/// Asks until the answer comes from memory.
pub(super) fn warm(proxy: &Proxy, client: &mut Raw, text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    wait_until(&format!("{text} to be answered from memory"), || {
        let before = hits(proxy);
        rows = client.rows(text);
        hits(proxy) > before
    });
    rows
}

/// True if the answer comes from memory now.
pub(super) fn is_hit(proxy: &Proxy, client: &mut Raw, text: &str) -> bool {
    let before = hits(proxy);
    client.rows(text);
    hits(proxy) > before
}

pub(super) const OBJECTS: &str = "
    create table t (a int primary key, b text);
    insert into t values (1, 'one'), (2, 'two');
    create table other (a int);
    create table parent (a int) partition by list (a);
    create table part partition of parent for values in (1, 2, 3);
    create table base (a int); create table child () inherits (base);
    create table owner (a int primary key);
    create table owned (a int references owner on delete cascade, b int primary key);
    create table owned_more (b int references owned on delete cascade);
    insert into owner values (1), (2); insert into owned values (1, 10), (2, 20); insert into owned_more values (10), (20);
    create table watched (a int); create table noted (a int);
    create function note() returns trigger language plpgsql as 'begin insert into noted values (new.a); return new; end';
    create trigger n after insert on watched for each row execute function note();
    create table ruled (a int); create table by_rule (a int);
    create rule r as on insert to ruled do also insert into by_rule values (new.a);
    create view v as select a from t; create view counts as select count(*) from part;
    create materialized view m as select count(*) from t;
    create table by_function (a int);
    create function f(a int) returns int language sql as 'insert into by_function values (a) returning a';
    create procedure p(a int) language sql as 'insert into by_function values (a)';
    create table defaulted (a int default f(7), b int);";

/// Reads from memory, each with a write that changes its result.
pub(super) const WRITES: &[(&str, &str)] = &[
    ("select count(*) from t", "insert into t values (3, 'three')"),
    ("select b from t where a = 1", "update t set b = 'uno' where a = 1"),
    ("select count(*) from t", "delete from t where a = 3"),
    (
        "select count(*) from t",
        "merge into t using (values (9)) s (a) on t.a = s.a when not matched then insert values (s.a, 'nine')",
    ),
    ("select count(*) from t", "with w as (delete from t where a = 9 returning a) select a from w"),
    ("select count(*) from t", "begin; insert into t values (4, 'four'); commit"),
    ("select count(*) from t", "explain analyze insert into t values (5, 'five')"),
    ("select count(*) from v", "insert into t values (6, 'six')"),
    ("select count(*) from t", "insert into v values (7)"),
    ("select count(*) from t", "prepare ins as insert into t values (8, 'eight'); execute ins; deallocate ins"),
    ("select count(*) from parent", "insert into part values (1)"),
    ("select count(*) from part", "insert into parent values (2)"),
    ("select * from counts", "insert into parent values (3)"),
    ("select count(*) from base", "insert into child values (1)"),
    ("select count(*) from child", "delete from base"),
    ("select count(*) from owned_more", "delete from owner where a = 1"),
    ("select count(*) from noted", "insert into watched values (1)"),
    ("select count(*) from by_rule", "insert into ruled values (1)"),
    ("select * from m", "refresh materialized view m"),
    ("select count(*) from by_function", "select f(1)"),
    ("select count(*) from by_function", "call p(1)"),
    ("select count(*) from by_function", "do 'begin perform f(2); end'"),
    ("select count(*) from by_function", "insert into defaulted (b) values (1)"),
    ("select count(*) from owned_more", "truncate owner cascade"),
    ("select * from t", "alter table t add column c int default 5"),
    ("select count(*) from t", "truncate t"),
    ("select count(*) from parent", "alter table parent detach partition part"),
    ("select count(*) from other", "insert into other select 1 from generate_series(1, 3)"),
];

#[test]
fn no_write_leaves_an_answer_behind_that_is_not_true() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    for (read, write) in WRITES {
        let before = warm(&proxy, &mut reader, read);
        assert_eq!(before, direct.rows(read), "{read}");
        writer.run(write);
        let (after, expected) = (reader.rows(read), direct.rows(read));
        assert_eq!(after, expected, "{read} after {write}");
        assert_ne!(before, expected, "{write} does not change {read}");
    }
    // Writes by the extended protocol, and by COPY.
    let text = "select count(*) from other";
    warm(&proxy, &mut reader, text);
    writer.extended("insert into other values ($1)", &["8"]).unwrap();
    assert_eq!(reader.rows(text), direct.rows(text));
}

#[test]
fn an_answer_is_for_those_who_would_get_the_same() {
    let ground = Ground::new();
    ground.prepare(
        "create table t as select date '2020-02-01' as d, '\\x41'::bytea as b, 1.1::float8 / 3 as f, 'ä' as u, timestamptz '2020-01-01 00:00+00' as z;
         create schema s2; create table s2.t as select 'other' as d, 1 as b, 2 as f, 3 as u, 4 as z;",
    );
    let proxy = ground.proxy(ON);
    let mut plain = ground.client(&proxy);
    let read = "select * from t";
    let expected = warm(&proxy, &mut plain, read);
    for change in [
        "set datestyle = 'German'",
        "set bytea_output = 'escape'",
        "set extra_float_digits = 0",
        "set timezone = 'Asia/Tokyo'",
        "set search_path = s2",
        "set client_encoding = 'LATIN1'",
    ] {
        let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
        client.run(change);
        direct.run(change);
        for _ in 0..3 {
            let (got, meant) = (client.query(read), direct.query(read));
            assert_eq!(got, meant, "{change}");
        }
        assert_ne!(client.rows(read), expected, "{change} changes nothing");
        client.run("discard all");
        assert_eq!(client.rows(read), expected);
    }
    assert!(is_hit(&proxy, &mut plain, read));
    plain.run("set weir.query_cache = off");
    assert!(!is_hit(&proxy, &mut plain, read));
}

#[test]
fn what_hangs_on_the_moment_or_the_server_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table t as select 1 as a, 'now' as w, now() as z;
         create view v_now as select a, now() as n from t;
         create view v_user as select a, current_user as n from t;
         create table guarded as select 1 as a; alter table guarded enable row level security;
         create unlogged table u as select 1 as a;
         create function stable_f() returns int language sql stable as 'select count(*)::int from t'",
    );
    let proxy = ground.proxy(ON);
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select a from t");
    for text in [
        "select 1",
        "select now(), a from t",
        "select current_date, a from t",
        "select random(), a from t",
        "select w::timestamp from t",
        "select a from t where z < 'tomorrow'",
        "select * from v_now",
        "select * from v_user",
        "select a from guarded",
        "select a from u",
        "select stable_f(), a from t",
        "select a from t tablesample system (100)",
        "select a from t for update",
        "select relname from pg_class where relname = 't'",
        "/*NO QUERY CACHE*/ select a from t",
        "select 1 from t; select 2 from t",
    ] {
        client.run(text);
        assert!(!is_hit(&proxy, &mut client, text), "{text}");
    }
    warm(&proxy, &mut client, "/*FORCE QUERY CACHE*/ select now(), a from t");
    warm(&proxy, &mut client, "select to_char(z, 'YYYY'), a + 1, w || 'x' from t where a in (1, 2) order by w");
    client.run("create temp table t as select 2 as a");
    assert_eq!(client.value("select a from t"), "2", "the session's own");
}

#[test]
fn rights_that_are_taken_away_count_at_once() {
    let ground = Ground::new();
    let (role, user) = (format!("cache_role_{}", ground.database), format!("cache_user_{}", ground.database));
    ground.prepare(&format!(
        "grant usage on schema public to public; create table t as select 1 as a; create role {role}; create role {user} login; grant {role} to {user};
         grant select on t to {role}"
    ));
    let proxy = ground.proxy(ON);
    let mut admin = ground.client(&proxy);
    let mut client = Raw::tcp(proxy.port()).log_in(&user, &ground.database, &[]).unwrap();
    warm(&proxy, &mut client, "select a from t");
    admin.run(&format!("revoke {role} from {user}"));
    assert_eq!(client.try_rows("select a from t").unwrap_err().sqlstate, "42501");
    admin.run(&format!("grant {role} to {user}"));
    warm(&proxy, &mut client, "select a from t");
    admin.run(&format!("revoke select on t from {role}"));
    assert_eq!(client.try_rows("select a from t").unwrap_err().sqlstate, "42501");
    let mut acting = ground.client(&proxy);
    warm(&proxy, &mut acting, "select a from t");
    acting.run(&format!("set role {user}"));
    assert_eq!(acting.try_rows("select a from t").unwrap_err().sqlstate, "42501", "not what the user without the role was told");
    drop((client, acting));
    admin.run(&format!("drop owned by {role}; drop role {user}; drop role {role}"));
}

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_them_after_the_commit() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.proxy(ON);
    let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select count(*) from t";
    warm(&proxy, &mut other, read);
    one.run("begin");
    one.run("insert into t values (2)");
    assert_eq!(one.value(read), "2");
    assert!(is_hit(&proxy, &mut other, read), "nobody sees it yet");
    one.run("rollback");
    assert!(is_hit(&proxy, &mut other, read), "a rollback costs nothing");
    one.run("begin");
    one.run("savepoint s");
    one.run("insert into t values (2)");
    one.run("release s");
    one.run("commit");
    assert_eq!((other.value(read), one.value(read)), ("2".into(), "2".into()));
    // A snapshot does not change.
    other.run("begin isolation level repeatable read");
    assert_eq!(other.value(read), "2");
    one.run("insert into t values (3)");
    warm(&proxy, &mut one, read);
    assert_eq!(other.value(read), "2");
    other.run("commit");
    assert_eq!(other.value(read), "3");
    // The commit and the writes before it in one write of the client's.
    one.run("begin; insert into t values (4); savepoint x; insert into t values (5); rollback to x; commit");
    assert_eq!(other.value(read), "4");
}

#[test]
fn a_standby_that_lags_gives_no_answer_that_stays() {
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    // Reads may go back in time, so that only the cache's own rule keeps the old answer out.
    let proxy = Proxy::start(&cluster, "memory_cache_enabled = on\ncausal_reads = off");
    let (mut reader, mut writer) = (proxy.console(), proxy.console());
    wait_for_catalog(&mut reader, "postgres");
    let read = "select count(*) from t";
    for count in 1..=5 {
        cluster.standbys()[0].pause_replay().unwrap();
        writer.run("insert into t values (1)");
        for _ in 0..5 {
            assert_eq!(reader.value(read), (count - 1).to_string(), "from the standby");
            assert!(!is_hit(&proxy, &mut reader, read));
        }
        cluster.standbys()[0].resume_replay().unwrap();
        wait_until("the standby to go on", || reader.value(read) == count.to_string());
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], count.to_string());
    }
}

#[test]
fn who_was_answered_from_memory_does_not_see_less_from_a_standby_afterwards() {
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int); insert into t values (1)").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "memory_cache_enabled = on\ncausal_reads = session\nbackend_weight0 = 0");
    let mut writer = proxy.console();
    wait_for_catalog(&mut writer, "postgres");
    cluster.standbys()[0].pause_replay().unwrap();
    writer.run("update t set a = 2");
    // The writer sees his own, so that its answer is kept.
    assert_eq!(warm(&proxy, &mut writer, "select a from t")[0][0], "2");
    assert_eq!(proxy.console().value("select a + length(clock_timestamp()::text) * 0 from t"), "1", "the standby is behind");
    let mut other = proxy.console();
    assert!(is_hit(&proxy, &mut other, "select a from t"));
    let seen = other.value("select a + length(clock_timestamp()::text) * 0 from t");
    cluster.standbys()[0].resume_replay().unwrap();
    assert_eq!(seen, "2", "it was told of the write already");
}

#[test]
fn an_answer_that_was_asked_for_before_a_commit_is_not_stored_after_it() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy(ON);
    let (mut slow, mut writer) = (ground.client(&proxy), ground.client(&proxy));
    let slow_read = "select count(t.a) from generate_series(1, 2000000) g left join t on true";
    warm(&proxy, &mut slow, "select count(*) from t");
    slow.send(&wire::query(slow_read));
    let running = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and state = 'active' and query like 'select count(t.a)%'",
        ground.database
    );
    let is_running = || ground.cluster.servers().iter().any(|server| server.value(&running).unwrap() != "0");
    wait_until("the slow read to run", is_running);
    writer.run("insert into t values (1)");
    slow.until_ready();
    assert_eq!(slow.value(slow_read), "2000000");
}

#[test]
fn many_who_ask_the_same_cause_one_question() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(ON);
    let mut clients: Vec<Raw> = (0..6).map(|_| ground.client(&proxy)).collect();
    warm(&proxy, &mut clients[0], "select a from t");
    let read = "select count(*) from generate_series(1, 200000) g, t";
    clients.iter_mut().for_each(|client| client.send(&wire::query(read)));
    let answers: Vec<_> = clients.iter_mut().map(Raw::until_ready).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(proxy.metric("cache_waits_total") > 0);
}

#[test]
fn a_write_whose_end_nobody_heard_of_is_waited_for() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select count(*) from t";
    warm(&proxy, &mut reader, read);
    writer.send(&wire::query("insert into t select 2 from pg_sleep(60)"));
    let pid = format!(
        "select pid from pg_stat_activity where datname = '{}' and query like 'insert into t select 2%'",
        ground.database
    );
    let mut found = String::new();
    wait_until("the write to run", || {
        let rows = ground.cluster.primary().query(&pid).unwrap();
        found = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        !found.is_empty()
    });
    assert!(!is_hit(&proxy, &mut reader, read), "it may commit any time");
    ground.cluster.primary().query(&format!("select pg_terminate_backend({found})")).unwrap();
    assert_eq!(warm(&proxy, &mut reader, read)[0][0], "1");
}

/// `[Parse] Bind [Describe] Execute Sync`, results in this format.
fn run(parse: Option<&str>, name: &str, values: &[&str], format: u8, describe: bool) -> Vec<u8> {
    let mut bind = [b"\0", name.as_bytes(), b"\0\0\0"].concat();
    bind.extend((values.len() as u16).to_be_bytes());
    for value in values {
        bind.extend((value.len() as u32).to_be_bytes());
        bind.extend_from_slice(value.as_bytes());
    }
    bind.extend([0, 1, 0, format]);
    let parse = parse.map_or(Vec::new(), |text| wire::parse(name, text));
    let describe = if describe { wire::message(b'D', b"P\0") } else { Vec::new() };
    [parse, wire::message(b'B', &bind), describe, wire::message(b'E', b"\0\0\0\0\0"), wire::sync()].concat()
}

#[test]
fn answers_of_the_extended_protocol_come_from_memory_byte_for_byte() {
    let ground = Ground::new();
    ground.prepare(
        "create type mood as enum ('sad', 'happy'); create domain positive as int check (value > 0);
         create table t as select 1::int2 as a, 2::int4 as b, 3::int8 as c, 1.5::float4 as d, 2.5::float8 as e, 3.25::numeric as f, true as g,
         'x'::text as h, 'y'::varchar(5) as i, 'z'::char(3) as j, 'n'::name as k, '\\xdeadbeef'::bytea as l, date '2020-02-29' as m,
         time '12:34:56.789' as n, time '12:34:56' as o, timestamp '2020-01-01 01:02:03' as p, timestamptz '2020-01-01 01:02:03+00' as q,
         interval '1 year 2 days 3 s' as r, '{\"a\": [1, null]}'::json as s, '{\"b\": 2}'::jsonb as t, '12:34:56:78:90:ab'::macaddr as u,
         '10.0.0.0/8'::cidr as v, '10.1.2.3'::inet as w, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as x, b'101'::bit(3) as y, b'1'::varbit as z,
         '(1,2)'::point as aa, '[1,5)'::int4range as ab, '{[1,2),[4,5)}'::int4multirange as ac, array[[1,2],[3,null]] as ad, 'happy'::mood as ae,
         7::positive as af, '<a/>'::xml as ag, 'a & b'::tsquery as ah, to_tsvector('simple', 'a b') as ai, 12.34::money as aj, '1/2'::pg_lsn as ak,
         null::text as am, '$.a'::jsonpath as an, '((0,0),1)'::circle as ao, 5::oid as ap, '\"c\"'::\"char\" as aq
         from generate_series(1, 3)",
    );
    let proxy = ground.proxy(ON);
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    let read = "select * from t where b = $1";
    for (name, parse, format, describe) in [
        ("", Some(read), 0, true),
        ("", Some(read), 1, true),
        ("", Some(read), 0, false),
        ("s", None, 1, false),
        ("s", None, 0, true),
    ] {
        if name == "s" && parse.is_none() && format == 1 {
            for raw in [&mut client, &mut direct] {
                raw.send(&[wire::parse("s", read), wire::message(b'D', b"Ss\0"), wire::sync()].concat());
                raw.until_ready();
            }
        }
        let answers = |raw: &mut Raw| {
            raw.send(&run(parse, name, &["2"], format, describe));
            raw.until_ready()
        };
        let expected = answers(&mut direct);
        let before = hits(&proxy);
        wait_until("an answer from memory", || {
            assert_eq!(answers(&mut client), expected, "{name} {format} {describe}");
            hits(&proxy) > before
        });
    }
    // A statement of which no server has heard yet, and one with other values.
    client.send(&run(Some(read), "fresh", &["2"], 0, true));
    client.until_ready();
    client.send(&run(None, "fresh", &["3"], 0, true));
    assert!(client.until_ready().iter().all(|message| message.tag != b'D' && message.tag != b'E'));
    client.run("update t set b = 3");
    client.send(&run(None, "fresh", &["3"], 0, true));
    assert_eq!(client.until_ready().iter().filter(|message| message.tag == b'D').count(), 3);
}

/// The history of writers and readers through these proxies, while a standby is behind now and then.
pub(super) fn history(proxies: &[&Proxy], standby: &weir_demo::Server, settle: &(dyn Fn() + Sync)) -> Vec<String> {
    let door = |at: usize| -> Door<'_> { Box::new(move || proxies[at % proxies.len()].console()) };
    let disturb = |value: i64| match value % 10 {
        1 => standby.pause_replay().unwrap(),
        6 => standby.resume_replay().unwrap(),
        _ => {}
    };
    let readers = (0..proxies.len()).map(door).collect();
    let settle = || {
        proxies.iter().for_each(|proxy| wait_for_catalog(&mut proxy.console(), "postgres"));
        settle();
    };
    let (writers, settle, disturb) = (std::array::from_fn(door), Box::new(settle), Box::new(disturb));
    let wrong = super::history::history(&Story { writers, readers, settle, disturb });
    standby.resume_replay().unwrap();
    wrong
}

#[test]
fn no_history_shows_a_value_that_no_server_would_have_shown() {
    let cluster = cluster(1);
    for at in 0..REGISTERS {
        cluster.primary().query(&register(at)).unwrap();
    }
    let check = |more: &str| {
        cluster.wait_caught_up().unwrap();
        let proxy = Proxy::start(&cluster, &format!("{ON}\n{more}"));
        wait_for_catalog(&mut proxy.console(), "postgres");
        let wrong = history(&[&proxy], &cluster.standbys()[0], &|| {});
        (wrong, hits(&proxy))
    };
    let (wrong, hits) = check("");
    assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
    assert!(hits > 0);
    let (wrong, _) = check("memqcache_auto_cache_invalidation = off");
    assert!(!wrong.is_empty(), "without invalidation nothing is found wrong: this test finds nothing");
}

#[test]
fn a_user_forgets_all_answers_and_an_operator_vouches_for_tables() {
    let ground = Ground::new();
    ground.prepare("create unlogged table u (a int); create view w as select a from u; insert into u values (1)");
    let proxy = ground.proxy(&format!("{ON}\ncache_safe_memqcache_table_list = 'u,w'"));
    let mut client = ground.client(&proxy);
    for text in ["select a from u", "select a from w"] {
        warm(&proxy, &mut client, text);
        client.run("pgpool set cache delete");
        assert!(!is_hit(&proxy, &mut client, text), "{text} was to be forgotten");
        warm(&proxy, &mut client, text);
    }
    client.run("update u set a = 2");
    assert_eq!(client.rows("select a from w"), [["2"]]);
    let strict = ground.proxy(ON);
    let mut client = ground.client(&strict);
    (0..3).for_each(|_| assert!(!is_hit(&strict, &mut client, "select a from u"), "nobody vouches for it"));
}

/// Memory that the allocator and the tables of the cache may take beside the parameter's.
const ROOM_KB: u64 = 6 << 10;

#[test]
fn memory_is_bounded_by_what_was_promised() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1)");
    let promised_kb = 16 << 10;
    let proxy = ground.proxy(&format!("{ON}\nmemqcache_total_size = {promised_kb}kB"));
    let mut client = ground.client(&proxy);
    let text = |n: u32| format!("select repeat('x', {}) from t where a < {n}", 200 + n % 3000);
    warm(&proxy, &mut client, &text(9_999_999));
    let before_kb = proxy.rss_kb();
    // More than twice as much as there is room for.
    let mut clients: Vec<Raw> = (0..16).map(|_| ground.client(&proxy)).collect();
    for first in (1..20_000).step_by(clients.len()) {
        (first..).zip(&mut clients).for_each(|(n, client)| client.send(&wire::query(&text(n))));
        clients.iter_mut().for_each(|client| drop(client.until_ready()));
    }
    let grown_kb = proxy.rss_kb() - before_kb;
    assert!(grown_kb < promised_kb + ROOM_KB, "{grown_kb} kB for answers of {promised_kb} kB");
    assert!(grown_kb > promised_kb / 2, "there was nothing to bound: {grown_kb} kB");
}

#[test]
fn one_statement_is_deleted_by_its_text_for_the_user_who_asked_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("memory_cache_enabled = on");
    let mut client = ground.client(&proxy);
    client.run("create table t as select 1 as a");
    for text in ["select a from t", "select a from t where a = 1"] {
        warm(&proxy, &mut client, text);
    }
    let delete = "PGPOOL SET CACHE DELETE 'select a from t'";
    let answer = client.query(delete);
    assert_eq!((answer[0].failure().severity.as_str(), tags(&answer).as_str()), ("NOTICE", "CZ"));
    assert_eq!(answer[0].failure().message, "query cache deleted. query: \"select a from t\"");
    assert!(is_hit(&proxy, &mut client, "select a from t where a = 1"), "another text stays");
    assert_eq!(client.query(delete)[0].failure().message, "query cache does not exist for query: \"select a from t\"");
    assert!(!is_hit(&proxy, &mut client, "select a from t"));
}
