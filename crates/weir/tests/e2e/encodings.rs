//! Sessions and databases that are not in UTF-8, and names that PostgreSQL cuts.

use super::cache::warm;
use crate::support::{Ground, Proxy, Raw, wait_for_catalog, wait_until, wire};

const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

/// In LATIN1 the bytes of `é` in UTF-8 are `Ã©`.
const OBJECTS: &str = r#"create table "Ã©" (a int); create table "é" (a int);
    create function wr(v int) returns int language sql as 'insert into public."Ã©" values (v) returning a';
    create function recode() returns text language sql as $$ select set_config('client_encoding', 'LATIN1', false) $$"#;

/// Startup parameters, statements before, and statements in front of the write in one go.
type Way = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static [&'static str]);

const RECODING: &[Way] = &[
    (&[("client_encoding", "latin-1")], &[], &[]),
    (&[("options", "-c client_encoding=WIN1252")], &["select 1"], &[]),
    (&[], &["set client_encoding = LATIN1"], &[]),
    (&[], &["set names 'latin1'"], &[]),
    (&[], &["select recode()"], &[]),
    (&[], &["begin", "set local client_encoding = latin1"], &[]),
    (&[], &[], &["set client_encoding = latin1"]),
    (&[], &["begin"], &["set local client_encoding = latin1"]),
    (&[], &[], &["select recode()"]),
];

fn check_writes(ground: &Ground, proxy: &Proxy, cases: &[(&str, Way, &str)]) {
    let (mut reader, mut direct) = (ground.client(proxy), ground.direct());
    let read = r#"select count(*) from "Ã©""#;
    for (user, (startup, before, ahead), write) in cases {
        for send in [|text: &str| wire::query(text), |text: &str| [wire::unnamed(text, &[]), wire::sync()].concat()] {
            let mut writer = Raw::tcp(proxy.port()).log_in(user, &ground.database, startup).unwrap();
            before.iter().for_each(|text| drop(writer.query(text)));
            let had = warm(proxy, &mut reader, read);
            writer.send(&ahead.iter().chain([write]).flat_map(|text| send(text)).collect::<Vec<u8>>());
            ahead.iter().chain([write]).for_each(|_| drop(writer.until_ready()));
            writer.query("commit");
            let now = direct.rows(read);
            assert_eq!(reader.rows(read), now, "{write} by {user} after {startup:?}, {before:?}, {ahead:?}");
            assert_ne!(had, now, "{write} by {user} after {startup:?}, {before:?}, {ahead:?} writes nothing");
        }
    }
}

#[test]
fn a_name_in_another_encoding_is_not_what_it_looks_like() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let role = format!("latin_{}", ground.database);
    ground.prepare(&format!("create role {role} superuser login; alter role {role} set client_encoding = latin1"));
    let write = r#"insert into "é" values (1)"#;
    let none: Way = (&[], &[], &[]);
    let cases = RECODING.iter().map(|way| ("postgres", *way, write)).chain([(role.as_str(), none, write)]);
    check_writes(&ground, &ground.proxy(ON), &cases.collect::<Vec<_>>());
    ground.prepare(&format!("drop role {role}"));
}

#[test]
fn a_search_path_in_another_encoding_is_followed() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    ground.prepare(r#"create schema "Ã©"; create table "Ã©".t (a int); create table t (a int)"#);
    let (proxy, mut direct) = (ground.proxy(ON), ground.direct());
    let (mut reader, mut latin) = (ground.client(&proxy), ground.client_with(&proxy, &[("client_encoding", "LATIN1")]));
    let read = r#"select count(*) from "Ã©".t"#;
    latin.run(r#"set search_path = "é", public"#);
    for write in ["insert into t values (1)", "begin; insert into t values (1); commit", "delete from t"] {
        warm(&proxy, &mut reader, read);
        latin.run(write);
        assert_eq!(reader.rows(read), direct.rows(read), "{write}");
    }
    assert_eq!(latin.value("show search_path"), r#""é", public"#, "as its bytes read in UTF-8");
}

#[test]
fn a_backslash_that_is_half_a_character_ends_no_string() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let in_gbk: Way = (&[("client_encoding", "GBK")], &[], &[]);
    // Where a standby does not refuse it. The last byte of the first character and the backslash are one character.
    check_writes(&ground, &ground.primary_proxy(ON), &[("postgres", in_gbk, r"select E'你\', wr(1) --'")]);
}

#[test]
fn names_are_cut_where_the_database_cuts_them() {
    let ground = Ground::new();
    let long = "é".repeat(40);
    let (cut, ascii) = ("é".repeat(31), "a".repeat(70));
    let latin = format!("{}_latin", ground.database);
    ground.cluster.primary().query(&format!("create database {latin} encoding latin1 template template0 locale 'C'")).unwrap();
    let proxy = ground.proxy(ON);
    for (database, name, other, read) in
        [(&ground.database, &ascii, &ascii[..63], &ascii[..63]), (&latin, &long, &cut, long.as_str())]
    {
        let log_in = |port: u16| Raw::tcp(port).log_in("postgres", database, &[("client_encoding", "UTF8")]).unwrap();
        let mut direct = log_in(ground.cluster.primary().port());
        direct.run(&format!(
            "create table {name} (a int) partition by range (a); create table part partition of {name} default;
             create table if not exists {other} (a int)"
        ));
        let (mut reader, mut writer) = (log_in(proxy.port()), log_in(proxy.port()));
        wait_for_catalog(&mut reader, database);
        let read = format!("select count(*) from {read}");
        for write in ["insert into part values (1)", &format!("insert into {name} values (1)")] {
            // A read whose name another encoding changes is not cached.
            let before = if database == &latin { reader.rows(&read) } else { warm(&proxy, &mut reader, &read) };
            (0..20).for_each(|_| reader.run(&read));
            writer.run(write);
            assert_eq!(reader.rows(&read), direct.rows(&read), "{write}");
            assert_ne!(reader.rows(&read), before, "{write} writes nothing");
        }
    }
    drop(proxy);
    ground.cluster.primary().query(&format!("drop database {latin} with (force)")).unwrap();
}

#[test]
fn a_session_in_another_encoding_keeps_its_connection_to_the_primary() {
    let ground = Ground::new();
    ground.prepare("create table people (name text)");
    let proxy = ground.proxy(&format!("pool_size = 2\npool_wait_timeout = 3\n{ON}"));
    let (mut latin, mut other) = (ground.client_with(&proxy, &[("client_encoding", "LATIN1")]), ground.client(&proxy));
    let in_latin = |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
    latin.send(&wire::message(b'Q', &[in_latin("insert into people values ('Müller')"), vec![0]].concat()));
    latin.until_ready();
    assert_eq!(other.value("select name from people"), "Müller");
    latin.send(&wire::message(b'Q', &[in_latin("select name /* ü */ from people where name = 'Müller'"), vec![0]].concat()));
    let row = latin.until_ready().into_iter().find(|message| message.tag == b'D').expect("a row");
    assert!(row.body.ends_with(b"M\xfcller"), "{row:?}");
    let kept = || crate::support::proxy::show(&mut proxy.console(), "pool_pools", "status");
    let (pid, before) = (latin.value("select pg_backend_pid()"), proxy.metric("cache_stored_total"));
    for _ in 0..10 {
        assert_eq!(latin.value("select pg_backend_pid() from people"), pid, "on the primary, and always the same");
        assert_eq!(latin.extended("select pg_backend_pid() from people", &[]).unwrap(), pid);
    }
    assert_eq!(proxy.metric("cache_stored_total"), before, "nothing is kept of it");
    assert!(kept().iter().any(|status| status.contains("kept: unknown statement")), "{:?}", kept());
    // A session that changes it for a transaction alone is as before afterwards.
    other.run("begin; set local client_encoding = latin1; select 1; commit");
    other.run("select 1");
    assert_eq!(kept().iter().filter(|status| status.contains("kept")).count(), 1);
    drop(latin);
    wait_until("its connection to be free", || !kept().iter().any(|status| status.contains("kept")));
}

#[test]
fn a_setting_is_brought_in_its_own_encoding() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2\npool_wait_timeout = 3\nsr_check_period = 0");
    let (mut client, mut latin) = (ground.client(&proxy), ground.client_with(&proxy, &[("client_encoding", "LATIN1")]));
    client.run("set app.name = 'Müller €'");
    for _ in 0..2 {
        latin.run("select 1");
        assert_eq!(client.value("select current_setting('app.name')"), "Müller €");
        assert_eq!(client.value("select current_setting('client_encoding')"), "UTF8");
    }
}

#[test]
fn values_of_a_startup_packet_are_bytes_to_a_database_in_another_encoding() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4\npool_wait_timeout = 3");
    for encoding in ["sql_ascii", "latin1"] {
        let database = format!("{}_{encoding}", ground.database);
        let made = format!("create database {database} encoding {encoding} template template0 locale 'C'");
        ground.cluster.primary().query(&made).unwrap();
        let log_in = |port: u16, more: &[(&str, &str)]| Raw::tcp(port).log_in("postgres", &database, more).unwrap();
        // Each byte is a letter of its own in LATIN1.
        let utf8 = [("client_encoding", "UTF8")];
        log_in(ground.cluster.primary().port(), &utf8).run(
            r#"create schema "é"; create schema "Ã©"; create table "é".t as select 'é' as name; create table "Ã©".t as select 'Ã©' as name"#,
        );
        for more in [
            vec![("search_path", "é"), ("application_name", "Müller"), ("app.y", "Ä")],
            vec![("client_encoding", "UTF8"), ("search_path", "é")],
            vec![("options", "-c app.y=Ä"), ("search_path", "é")],
        ] {
            let (mut direct, mut client) = (log_in(ground.cluster.primary().port(), &more), log_in(proxy.port(), &more));
            let mut others = [log_in(proxy.port(), &utf8), log_in(proxy.port(), &[])];
            for text in
                ["select name from t", "select set_config('app.x', 'é', false) is null", "select current_setting('app.x')"]
            {
                // On another connection than before.
                others.iter_mut().take(1).for_each(|other| other.run("begin; select 1"));
                let said = [&mut direct, &mut client].map(|one| one.query(text).into_iter().map(|m| m.body).collect::<Vec<_>>());
                others.iter_mut().take(1).for_each(|other| other.run("commit"));
                others.reverse();
                assert_eq!(said[0], said[1], "{text} in {encoding} with {more:?}");
            }
        }
    }
    drop(proxy);
    for encoding in ["sql_ascii", "latin1"] {
        ground.cluster.primary().query(&format!("drop database {}_{encoding} with (force)", ground.database)).unwrap();
    }
}
