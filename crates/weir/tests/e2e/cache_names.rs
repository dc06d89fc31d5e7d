//! Writes by names and texts that mean something else to the server than they seem to.

use super::cache::{is_hit, warm};
use crate::support::{Ground, Raw, wait_until, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

const GOAL: &str = "create table goal (a int); create table x (a int, b int);
    create function wr(v int) returns int language sql as 'insert into public.goal values (v) returning a';
    create function fine(v int) returns boolean language sql as 'insert into public.goal values (v) returning true';
    create function fires() returns trigger language plpgsql as 'begin insert into public.goal values (1); return new; end';";

/// Statements that make a temporary relation, and writes of `goal` by way of it.
const HIDDEN: &[(&[&str], &[&str])] = &[
    (
        &["create temp view x as select * from goal"],
        &["insert into x values (2)", "update x set a = 3 where a = 2; insert into x values (4)", "delete from x where a = 3"],
    ),
    (&["create temp view x as select wr(1)"], &["select * from x", "table x", "select wr from x"]),
    (
        &["create temp table x (a int)", "create trigger t after insert on pg_temp.x for each row execute function fires()"],
        &["insert into x values (1)", "copy x from program 'echo 5'"],
    ),
    (
        &["create temp table x (a int)", "create rule r as on insert to x do also insert into goal values (1)"],
        &["insert into x values (1)"],
    ),
    (&["create temp table x (a int default wr(8), b int)"], &["insert into x (b) values (1)"]),
    (&["create temp table x (a int check (fine(a)))"], &["insert into x values (1)"]),
    (&["begin", "create temp table x (a int default wr(8), b int) on commit drop"], &["insert into x (b) values (1); commit"]),
    (&["create temp table y (a int default wr(8), b int)", "alter table y rename to x"], &["insert into x (b) values (1)"]),
    (
        &["create table public.model (a int default wr(8), b int)"],
        &["create temp table x (like model including defaults); insert into x (b) values (1)"],
    ),
    (
        &["set search_path = pg_temp, public", "create table x (a int default public.wr(8), b int)"],
        &["insert into x (b) values (1)"],
    ),
    (&["do $$ begin create temp table x (a int default wr(8), b int); end $$"], &["insert into x (b) values (1)"]),
];

#[test]
fn a_temporary_relation_hides_no_write() {
    let ground = Ground::new();
    ground.prepare(GOAL);
    let role = format!("stays_{}", ground.database);
    ground.prepare(&format!("create role {role} superuser login"));
    let proxy = ground.proxy(&format!("{ON}\nlimit_override_list = 'user={role}: pool_mode=session'"));
    let (mut reader, mut direct) = (ground.client(&proxy), ground.direct());
    let read = "select count(*), sum(a) from goal";
    for (user, (makes, writes)) in ["postgres", &role].iter().flat_map(|user| HIDDEN.iter().map(move |case| (user, case))) {
        let mut writer = Raw::tcp(proxy.port()).log_in(user, &ground.database, &[]).unwrap();
        makes.iter().for_each(|make| writer.run(make));
        for write in *writes {
            let before = warm(&proxy, &mut reader, read);
            writer.run(write);
            assert_eq!(reader.rows(read), direct.rows(read), "{write} by {user} after {makes:?}");
            assert_ne!(before, direct.rows(read), "{write} by {user} after {makes:?} writes nothing");
        }
        direct.run("drop table if exists model");
    }
    direct.run(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn beside_a_temporary_table_others_are_read_as_ever() {
    let ground = Ground::new();
    ground.prepare(GOAL);
    let proxy = ground.proxy(ON);
    let (mut reader, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select count(*) from goal";
    other.run("create temp table mine (a int)");
    warm(&proxy, &mut reader, read);
    // The server is asked about the new relation behind the statement that made it.
    other.run("select a from x");
    warm(&proxy, &mut reader, read);
    for text in ["select a from x", "insert into x values (1)", "select count(*) from x, goal"] {
        other.run(text);
        assert!(is_hit(&proxy, &mut reader, read), "{text}");
    }
}

/// Startup parameters, statements before, and statements in front of the write in one go.
type Way = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static [&'static str]);

/// Ways to have a server read backslashes as escapes.
const ESCAPING: &[Way] = &[
    (&[], &["set standard_conforming_strings = off"], &[]),
    (&[], &["begin", "set local standard_conforming_strings = off"], &[]),
    (&[], &["begin", "select set_config('standard_conforming_strings', 'off', true)"], &[]),
    (&[], &["select unset()"], &[]),
    (&[], &["begin", "do $$ begin set local standard_conforming_strings = off; end $$"], &[]),
    (&[], &["begin", "select unset_here()"], &[]),
    (&[], &[], &["set standard_conforming_strings = off"]),
    (&[], &["begin"], &["set local standard_conforming_strings = off"]),
    (&[], &[], &["select unset()"]),
    (&[("standard_conforming_strings", "off")], &[], &[]),
    (&[("options", "-c standard_conforming_strings=off")], &["select 1"], &[]),
];

#[test]
fn a_text_that_the_server_reads_otherwise_writes() {
    let ground = Ground::new();
    ground.prepare(GOAL);
    ground.prepare(
        "create function unset() returns text language sql as $$ select set_config('standard_conforming_strings', 'off', false) $$;
         create function unset_here() returns void language plpgsql as $$ begin set local standard_conforming_strings = off; end $$",
    );
    let role = format!("escapes_{}", ground.database);
    ground.prepare(&format!("create role {role} superuser login; alter role {role} set standard_conforming_strings = off"));
    let proxy = ground.proxy(ON);
    let (mut reader, mut direct) = (ground.client(&proxy), ground.direct());
    let read = "select count(*) from goal";
    let by_role: Way = (&[], &[], &[]);
    let cases = ESCAPING.iter().map(|case| ("postgres", *case)).chain([(role.as_str(), by_role)]);
    for (user, (startup, before, ahead)) in cases {
        for (is_query, write) in [
            (true, r"select 'a\'', wr(1) --'"),
            (true, r"select 'a\''; insert into goal values (5) --'"),
            (false, r"select 'a\'', wr(1) --'"),
        ] {
            let mut writer = Raw::tcp(proxy.port()).log_in(user, &ground.database, startup).unwrap();
            before.iter().for_each(|text| drop(writer.query(text)));
            let had = warm(&proxy, &mut reader, read);
            let send = |text: &str| if is_query { wire::query(text) } else { wire::unnamed(text, &[]) };
            let bytes: Vec<u8> = ahead.iter().chain([&write]).flat_map(|text| send(text)).collect();
            writer.send(&bytes);
            match is_query {
                true => ahead.iter().for_each(|_| drop(writer.until_ready())),
                false => writer.send(&wire::sync()),
            }
            writer.until_ready();
            writer.query("commit");
            assert_eq!(reader.rows(read), direct.rows(read), "{write} by {user} after {before:?}, {ahead:?}");
            // The parts of one pipeline are read before the relation is known.
            assert!(had != direct.rows(read) || !ahead.is_empty(), "{write} by {user} after {before:?} writes nothing");
        }
    }
    direct.run(&format!("drop role {role}"));
}

#[test]
fn backslashes_are_nothing_special_where_they_are_no_escapes() {
    let ground = Ground::new();
    ground.prepare(GOAL);
    let proxy = ground.proxy(ON);
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    other.run("set standard_conforming_strings = off");
    other.run(r"select count(*) from x where 'a\\b' = 'a'");
    drop(other);
    let (read, with_backslash) = ("select count(*) from goal", r"select count(*) from x where 'a\b' ~ '\w'");
    let mut reader = ground.client(&proxy);
    // The other session's statement may have defined something: until that is known, every read counts as a write.
    wait_until("reads to write nothing", || {
        warm(&proxy, &mut reader, read);
        for text in [with_backslash, "begin; select set_config('app.own', 'x', true)", with_backslash, "commit", with_backslash] {
            client.run(text);
        }
        is_hit(&proxy, &mut reader, read)
    });
    // With a connection of its own it would be answered by that for ever.
    warm(&proxy, &mut client, read);
}
