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

/// Server connections that are kept, and for what.
fn kept(proxy: &Proxy) -> Vec<String> {
    let mut all = crate::support::proxy::show(&mut proxy.console(), "pool_pools", "status");
    all.retain(|status| status.contains("kept"));
    all
}

#[test]
fn a_session_in_an_encoding_whose_characters_hold_ascii_keeps_its_connection_to_the_primary() {
    let ground = Ground::new();
    ground.prepare("create table people (name text)");
    let proxy = ground.proxy(&format!("pool_size = 2\npool_wait_timeout = 3\n{ON}"));
    let (mut chinese, mut other) = (ground.client_with(&proxy, &[("client_encoding", "GBK")]), ground.client(&proxy));
    let (pid, before) = (chinese.value("select pg_backend_pid()"), proxy.metric("cache_stored_total"));
    for _ in 0..10 {
        assert_eq!(chinese.value("select pg_backend_pid() from people right join (select 1) x on true"), pid);
        assert_eq!(chinese.extended("select pg_backend_pid()", &[]).unwrap(), pid);
    }
    assert_eq!(proxy.metric("cache_stored_total"), before, "nothing is kept of it");
    assert!(kept(&proxy)[0].contains("kept: encoding or string syntax"), "{:?}", kept(&proxy));
    // A session that changes it for a transaction alone is as before afterwards.
    other.run("begin; set local client_encoding = gbk; select 1; commit");
    other.run("select 1");
    assert_eq!(kept(&proxy).len(), 1);
    drop(chinese);
    wait_until("its connection to be free", || kept(&proxy).is_empty());
}

#[test]
fn sessions_in_another_encoding_share_connections() {
    let ground = Ground::new();
    ground.prepare("create table people (name text); insert into people values ('Müller')");
    let proxy = ground.proxy(&format!("pool_size = 2\npool_wait_timeout = 3\n{ON}"));
    let mut clients: Vec<Raw> =
        ["LATIN1", "UTF8", "LATIN1", "UTF8"].map(|encoding| ground.client_with(&proxy, &[("client_encoding", encoding)])).into();
    let in_latin = |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
    let name = |messages: Vec<crate::support::raw::Message>| {
        let row = messages.into_iter().find(|message| message.tag == b'D').expect("a row");
        row.body[6..].to_vec()
    };
    for round in 0..6 {
        for (at, client) in clients.iter_mut().enumerate() {
            let is_latin = at % 2 == 0;
            let spelled = |text: &str| if is_latin { in_latin(text) } else { text.as_bytes().to_vec() };
            // In a string, as a value, in a name; and a text of ASCII alone, of which the cache keeps the answer.
            let texts =
                ["select name from people where name = 'Müller'", "select name as \"ü\" from people", "select name from people"];
            for text in texts {
                let body = [spelled(text), vec![0]].concat();
                client.send(&wire::message(b'Q', &body));
                assert_eq!(name(client.until_ready()), spelled("Müller"), "{text}, round {round}, client {at}");
                let parse = wire::message(b'P', &[vec![0], body, vec![0, 0]].concat());
                client.send(&[parse, wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
                assert_eq!(name(client.until_ready()), spelled("Müller"), "{text} by Parse, round {round}, client {at}");
            }
            // Its state follows it, whatever stands beside it.
            let text = [spelled("set work_mem = '7MB' /* é */; select 1 as \"é\""), vec![0]].concat();
            client.send(&wire::message(b'Q', &text));
            client.until_ready();
            assert_eq!(client.value("show work_mem"), "7MB");
        }
    }
    wait_until("no connection to be kept", || kept(&proxy).is_empty());
}

#[test]
fn a_database_in_another_encoding_is_pooled() {
    let ground = Ground::new();
    let proxy = ground.proxy(&format!("pool_size = 2\npool_wait_timeout = 3\n{ON}"));
    for encoding in ["sql_ascii", "latin1", "win1252"] {
        let database = format!("{}_{encoding}", ground.database);
        ground
            .cluster
            .primary()
            .query(&format!("create database {database} encoding {encoding} template template0 locale 'C'"))
            .unwrap();
        let log_in = |port: u16, more: &[(&str, &str)]| Raw::tcp(port).log_in("postgres", &database, more).unwrap();
        for more in [&[][..], &[("client_encoding", "UTF8")]] {
            let mut direct = log_in(ground.cluster.primary().port(), more);
            direct.run(r#"drop table if exists t, "É"; create table t (a text); create table "É" as select 'é' as a"#);
            ground.cluster.wait_caught_up().unwrap();
            let mut clients: Vec<Raw> = (0..6).map(|_| log_in(proxy.port(), more)).collect();
            for text in
                ["select 1", r#"select a from "É""#, "select a from É", "insert into t values ('ü')", "select max(a) from t"]
            {
                let bodies = |client: &mut Raw| client.query(text).into_iter().map(|message| message.body).collect::<Vec<_>>();
                let expected = bodies(&mut direct);
                let row = direct.extended(text, &[]).map_err(|failure| failure.sqlstate);
                for client in &mut clients {
                    assert_eq!(bodies(client), expected, "{text} in {encoding} with {more:?}");
                    assert_eq!(client.extended(text, &[]).map_err(|failure| failure.sqlstate), row, "{text} in {encoding}");
                }
            }
            wait_until("no connection to be kept", || kept(&proxy).is_empty());
        }
    }
    drop(proxy);
    for encoding in ["sql_ascii", "latin1", "win1252"] {
        ground.cluster.primary().query(&format!("drop database {}_{encoding} with (force)", ground.database)).unwrap();
    }
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
