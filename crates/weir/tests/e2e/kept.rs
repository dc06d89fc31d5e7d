//! Server connections that a session keeps: for a reason, for as long as that is there, and not for longer.

use crate::support::left_out::leave_out;
use crate::support::proxy::show;
use crate::support::time::let_pass;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::time::Duration;

/// The reasons for which server connections of this test's database are kept now.
fn reasons(ground: &Ground, proxy: &Proxy) -> Vec<String> {
    let mut console = proxy.console();
    let (databases, states) = (show(&mut console, "pool_pools", "database"), show(&mut console, "pool_pools", "status"));
    let reason = |(database, state): (&String, &String)| {
        let (_, rest) = state.split_once("(kept: ").filter(|_| *database == ground.database)?;
        rest.split_once(')').map(|(reason, _)| reason.to_owned())
    };
    databases.iter().zip(&states).filter_map(reason).filter(|reason| reason != "listens for clients").collect()
}

fn wait_until_free(ground: &Ground, proxy: &Proxy, story: &str) {
    wait_until(&format!("nothing to be kept behind {story}"), || reasons(ground, proxy).is_empty());
}

/// Another client gets the only server connection.
fn check_free(other: &mut Raw, story: &str) {
    assert_eq!(other.value("select 7 for update"), "7", "{story}");
}

#[test]
fn a_text_that_nobody_can_read_keeps_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let many = "=".repeat(2010);
    let texts = [
        "SET @@x=1",
        "CREATE DATABASE IF NOT EXISTS x",
        "update t set a = 'b';create x",
        "do what i mean",
        "call me",
        "prepare",
        "declare x",
        "listen to me",
        "lock table table",
        "load it",
        "reset x y z",
        "discard everything",
        "execute",
        &format!("set x y /* {many} */"),
    ];
    for text in texts {
        assert_eq!(client.error(text).sqlstate, "42601", "{text}");
        check_free(&mut other, text);
        client.send(&[wire::parse("", text), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        let messages = client.until_ready();
        assert!(messages.iter().any(|message| message.tag == b'E'), "{text}: {messages:?}");
        check_free(&mut other, text);
        client.run("begin");
        client.run("select 1 for update");
        assert_eq!(client.error(text).sqlstate, "42601", "{text}");
        client.run("rollback");
        check_free(&mut other, text);
    }
    // A comment with more operators than are scanned.
    client.run(&format!("select 1 /* {} */", many.repeat(2)));
    check_free(&mut other, "rulers");
    client.send(&wire::message(b'Q', b"select \"\xff\"\0"));
    assert!(client.until_ready().iter().any(|message| message.tag == b'E' && message.failure().sqlstate == "22021"));
    check_free(&mut other, "a name that is not UTF-8");
    wait_until_free(&ground, &proxy, "errors");
}

#[test]
fn what_a_text_that_was_not_read_left_is_asked_for() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let ruler = "=".repeat(4000);
    client.run(&format!("set work_mem = '3MB' /* {ruler} */"));
    check_free(&mut other, "a setting");
    assert_eq!((client.value("show work_mem"), other.value("show work_mem")), ("3MB".into(), "4MB".into()));
    client.run(&format!("set app.tenant = 'joe' /* {ruler} */"));
    check_free(&mut other, "a parameter of an application");
    let tenant = "select coalesce(current_setting('app.tenant', true), '')";
    assert_eq!((client.value(tenant), other.value(tenant)), ("joe".into(), "".into()));
    client.run(&format!("create temp table mine (a int) /* {ruler} */"));
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["temporary object"]);
    client.run("drop table mine");
    check_free(&mut other, "a temporary table that is gone");
}

#[test]
fn a_library_that_was_not_loaded_and_a_seed_that_was_refused_keep_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for (text, sqlstate) in
        [("load 'nope'", "58P01"), ("select setseed(9)", "22023"), ("select setseed(.1), nothing", "42703"), ("load x", "42601")]
    {
        assert_eq!(client.error(text).sqlstate, sqlstate, "{text}");
        check_free(&mut other, text);
        assert_eq!(client.extended(text, &[]).unwrap_err().sqlstate, sqlstate, "{text}");
        check_free(&mut other, text);
    }
    client.run("begin");
    client.error("select 1/0");
    assert_eq!(client.error("select setseed(.1)").sqlstate, "25P02");
    client.run("rollback");
    check_free(&mut other, "a transaction that has failed");
    // A seed that is set before an error stays.
    client.error("select setseed(.1), 1/0");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["library"]);
    client.run("discard all");
    check_free(&mut other, "DISCARD ALL");
}

#[test]
fn a_seed_goes_to_nobody_else() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let mut direct = ground.direct();
    direct.run("select setseed(.25)");
    let drawn = direct.value("select random()");
    for ends in ["discard all", "terminate"] {
        let mut client = ground.client(&proxy);
        client.run("select setseed(.25)");
        wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["library"]);
        if ends == "terminate" {
            client.send(&wire::terminate());
        } else {
            client.run(ends);
        }
        let mut other = ground.client(&proxy);
        assert_ne!(other.value("select random()"), drawn, "{ends}");
    }
}

#[test]
fn an_alias_of_utf8_keeps_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let mut other = ground.client(&proxy);
    let mut client = ground.client_with(&proxy, &[("client_encoding", "UNICODE")]);
    assert_eq!(client.value("select 'ä'"), "ä");
    check_free(&mut other, "a startup packet");
    other.run("set client_encoding = 'UNICODE'");
    other.run("select 1 for update");
    check_free(&mut client, "SET");
    assert_eq!(reasons(&ground, &proxy), Vec::<String>::new());
}

#[test]
fn every_reason_is_counted_and_shown_when_it_begins() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 8");
    let counted = || proxy.metric("sessions_pinned_total");
    let long = format!("select 1 /*{}*/; load 'plpgsql'", "x".repeat(300_000));
    for (text, reason) in
        [("load 'plpgsql'", "library"), (long.as_str(), "unknown statement"), ("select pg_advisory_lock(1)", "advisory lock")]
    {
        let before = counted();
        let mut client = ground.client(&proxy);
        client.run(text);
        wait_until("the reason to be shown", || reasons(&ground, &proxy) == [reason]);
        assert_eq!(counted(), before + 1, "{reason}");
        wait_until("a warning", || proxy.log().contains(&format!("as long as this exists: {reason}")));
        client.run("discard all");
        wait_until_free(&ground, &proxy, reason);
    }
}

/// Sends a text by either protocol.
fn run_by(client: &mut Raw, text: &str, is_simple: bool) {
    if is_simple {
        client.run(text);
    } else {
        client.extended(text, &[]).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
    }
}

#[test]
fn texts_that_are_read_otherwise_keep_a_connection_until_they_are_not() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let mut other = ground.client(&proxy);
    for (set, back) in [
        ("set client_encoding = SJIS", "set client_encoding = UTF8"),
        ("set client_encoding = GBK", "reset client_encoding"),
        ("set standard_conforming_strings = off", "set standard_conforming_strings = on"),
        ("select set_config('standard_conforming_strings', 'off', false)", "reset all"),
    ] {
        for is_simple in [true, false] {
            let mut client = ground.client(&proxy);
            run_by(&mut client, set, is_simple);
            run_by(&mut client, "select 'a\\\\b', 1 for update", is_simple);
            wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["encoding or string syntax"]);
            run_by(&mut client, back, is_simple);
            check_free(&mut other, back);
        }
    }
    let mut client = ground.client_with(&proxy, &[("client_encoding", "SJIS")]);
    client.run("select 1 for update");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["encoding or string syntax"]);
    client.run("set client_encoding = UTF8");
    check_free(&mut other, "a session that began so");
    client.run("reset client_encoding");
    client.run("select 1 for update");
    wait_until("the reason to be shown again", || reasons(&ground, &proxy) == ["encoding or string syntax"]);
}

#[test]
fn a_role_whose_default_is_another_encoding_keeps_nothing_once_it_sets_utf8() {
    let ground = Ground::new();
    let role = format!("sjis_{}", ground.database);
    ground.prepare(&format!("create role {role} superuser login; alter role {role} set client_encoding = SJIS"));
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let log_in = || Raw::tcp(proxy.port()).log_in(&role, &ground.database, &[]).unwrap();
    let (mut client, mut other) = (log_in(), log_in());
    client.run("select 1 for update");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["encoding or string syntax"]);
    client.run("set client_encoding = UTF8");
    wait_until_free(&ground, &proxy, "UTF8");
    other.run("set client_encoding = UTF8");
    drop((client, other, proxy));
    ground.prepare(&format!("drop role {role}"));
}

#[test]
fn functions_of_users_with_names_of_others_leave_what_their_sources_say() {
    let ground = Ground::new();
    ground.prepare(
        "create function public.setseed(a text) returns int language sql as 'select 1';
         create function public.pg_advisory_lock(a text) returns int language sql as 'select 2'",
    );
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for text in ["select public.setseed('a'::text)", "select public.pg_advisory_lock('a'::text)"] {
        for is_simple in [true, false] {
            run_by(&mut client, text, is_simple);
            check_free(&mut other, text);
        }
    }
    client.run("select pg_catalog.setseed(.1)");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["library"]);
}

#[test]
fn a_replication_origin_is_kept_until_it_is_reset() {
    let ground = Ground::new();
    let name = format!("kept_{}", ground.database);
    ground.direct().run(&format!("select pg_replication_origin_create('{name}')"));
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let setup = format!("select pg_replication_origin_session_setup('{name}')");
    for is_simple in [true, false] {
        run_by(&mut client, &setup, is_simple);
        wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["replication origin"]);
        assert_eq!(client.error("select pg_replication_origin_session_reset(), 1/0").sqlstate, "22012");
        client.run("select 1");
        run_by(&mut client, "select pg_replication_origin_session_reset()", is_simple);
        check_free(&mut other, "its reset");
        assert_eq!(other.value("select pg_replication_origin_session_is_setup()"), "f");
    }
    client.run(&setup);
    client.send(&wire::terminate());
    assert_eq!(other.value("select pg_replication_origin_session_is_setup()"), "f", "behind a client that leaves");
    // The server's process of the client that left has it until it is gone.
    let drop = format!("select pg_replication_origin_drop('{name}')");
    wait_until("the origin to be free", || ground.direct().try_value(&drop).is_ok());
}

#[test]
fn long_values_follow_their_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let long = "x".repeat(100_000);
    let is_there = "select length(current_setting('app.long', true))";
    for text in [
        format!("select set_config('app.long', '{long}', false)"),
        format!("begin; set app.long = '{long}'; commit"),
        format!("do $$ begin set app.long = '{long}'; end $$"),
    ] {
        for is_simple in [true, false] {
            if is_simple || !text.starts_with("begin") {
                run_by(&mut client, &text, is_simple);
                check_free(&mut other, "a long value");
                assert_ne!(other.try_value(is_there).unwrap_or_default(), "100000");
                assert_eq!(client.value(is_there), "100000");
                client.run("set app.long = 'short'");
            }
        }
    }
    client.run(&format!("prepare p as select length('{long}')"));
    check_free(&mut other, "a long statement");
    assert_eq!(other.error("execute p").sqlstate, "26000");
    assert_eq!(client.value("execute p"), "100000");
}

#[test]
fn a_parameter_that_no_server_lists_is_asked_for_until_a_question_is_answered() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let mut client = ground.client(&proxy);
    // An answer with a row that is too long is not whole.
    client.run(&format!(
        "do $$ begin perform set_config('app.name', 'joe', false); perform set_config('app.long', repeat('x', {}), false); end $$",
        2 << 20
    ));
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["unknown"]);
    client.run("do $$ begin perform set_config('app.long', '', false); end $$");
    let mut other = ground.client(&proxy);
    check_free(&mut other, "a value that was taken back");
    let name = "select coalesce(current_setting('app.name', true), '')";
    assert_eq!((other.value(name), client.value(name)), (String::new(), "joe".to_owned()));
}

#[test]
fn a_statement_that_sql_prepared_stays_only_where_it_must() {
    let ground = Ground::new();
    let role = format!("reader_{}", ground.database);
    ground.prepare(&format!("create role {role}"));
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("prepare p as select 1; deallocate p; prepare p as select 2");
    check_free(&mut other, "one that was prepared twice in a text");
    assert_eq!(client.value("execute p"), "2");
    client.run("deallocate p");

    client.run(&format!("set role {role}"));
    client.run("prepare p as select current_user");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["prepared statement"]);
    assert_eq!(client.value("execute p"), role);
    client.run("reset role");
    check_free(&mut other, "a role that was reset");
    assert_eq!(client.value("execute p"), "postgres");
    client.run("deallocate p");

    client.run("create temp table mine (a int)");
    client.run("prepare p as select 3");
    client.run("drop table mine");
    check_free(&mut other, "one beside a temporary table");
    assert_eq!(client.value("execute p"), "3");
    client.run("deallocate p");

    // It may be wanted again when there is such a table again.
    client.run("create temp table mine (a int)");
    client.run("prepare p as select count(*) from mine");
    client.run("drop table mine");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["prepared statement"]);
    client.run("begin; create temp table mine (a int)");
    assert_eq!(client.value("execute p"), "0");
    client.run("rollback; deallocate p");
    check_free(&mut other, "DEALLOCATE");
    ground.prepare(&format!("drop role {role}"));
}

#[test]
fn a_setting_in_other_words_than_the_servers_is_the_sessions_own() {
    let ground = Ground::new();
    let role = format!("sets_{}", ground.database);
    ground.prepare(&format!("create role {role}"));
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for is_simple in [true, false] {
        run_by(&mut client, "set log_duration = 1", is_simple);
        client.run(&format!("set session authorization {role}"));
        client.run("do 'begin end'");
        check_free(&mut other, "a superuser's setting");
        assert_eq!(client.value("show log_duration"), "on");
        client.run("reset session authorization");
        client.run("reset log_duration");
    }
    if version(&ground) >= 150_000 {
        ground.prepare(&format!("grant set on parameter log_min_duration_statement to {role}"));
        client.run(&format!("set session authorization {role}"));
        client.run("set log_min_duration_statement = 250");
        client.run("do 'begin end'");
        check_free(&mut other, "a setting by a grant");
        assert_eq!(client.value("show log_min_duration_statement"), "250ms");
        client.run("reset session authorization");
        ground.prepare(&format!("revoke set on parameter log_min_duration_statement from {role}"));
    }
    ground.prepare(&format!("drop role {role}"));
}

#[test]
fn a_question_that_is_not_compiled_tells_the_same() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let costs = "set jit_above_cost = 0; set jit_inline_above_cost = 0; set jit_optimize_above_cost = 0";
    for jit in ["on", "off"] {
        client.run(costs);
        client.run(&format!("do $$ begin set jit = {jit}; set app.name = 'joe'; perform pg_advisory_lock(5); end $$"));
        wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["advisory lock"]);
        client.run("select pg_advisory_unlock(5)");
        check_free(&mut other, "a lock");
        let state = "select current_setting('jit') || current_setting('jit_above_cost') || current_setting('app.name')";
        assert_eq!(client.value(state), format!("{jit}0joe"));
        client.run("begin; set local work_mem = '1MB'; rollback");
        assert_eq!(client.value("show jit"), jit, "asked for by its name");
        client.run("reset all");
    }
    assert_eq!(other.value("show jit_above_cost"), "100000");
}

/// A statement of 300 kB, which is more than Weir looks at.
fn long_text(of: &str) -> String {
    format!("{of} /*{}*/", "x".repeat(300_000))
}

#[test]
fn a_long_parse_keeps_a_connection_no_longer_than_a_long_query() {
    let ground = Ground::new();
    ground.prepare("create table long (a int)");
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let run = |client: &mut Raw, text: &str| {
        client.send(&[wire::parse("", text), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        wire_tags(&client.until_ready())
    };
    assert_eq!(run(&mut client, &long_text("insert into long values (1)")), "12CZ");
    check_free(&mut other, "an insert");
    assert_eq!(run(&mut client, &long_text("selec 1")), "EZ");
    check_free(&mut other, "a typing error");
    assert_eq!(run(&mut client, &long_text("insert into long values (1/0)")), "1EZ");
    check_free(&mut other, "one that failed");
    client.run("begin");
    assert_eq!(run(&mut client, &long_text("insert into long values (2)")), "12CZ");
    client.run("commit");
    check_free(&mut other, "one in a transaction");

    // Its state is asked for.
    run(&mut client, &long_text("select set_config('app.tenant', 'joe', false), set_config('work_mem', '7MB', false)"));
    check_free(&mut other, "settings");
    let tenant = "select current_setting('work_mem') || coalesce(current_setting('app.tenant', true), '')";
    assert_eq!((client.value(tenant), other.value(tenant)), ("7MBjoe".into(), "4MB".into()));
    run(&mut client, &long_text("create temp table mine as select 5 as a"));
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["temporary object"]);
    assert_eq!(client.value("select a from mine"), "5");
    client.run("drop table mine");
    run(&mut client, &long_text("load 'plpgsql'"));
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["unknown statement"]);
    client.run("discard all");
    check_free(&mut other, "DISCARD ALL");

    // A statement that waits for its Bind, and one with a name, are on this connection alone.
    client.send(&[wire::parse("", &long_text("select 6")), wire::describe(b'S', ""), wire::sync()].concat());
    client.until_ready();
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["unknown statement"]);
    client.send(&[wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
    assert_eq!(wire_tags(&client.until_ready()), "2DCZ");
    check_free(&mut other, "its Bind");
    client.send(&[wire::bind("", "", &[]), wire::sync()].concat());
    let gone = client.until_ready()[0].failure();
    assert_eq!(gone.sqlstate, "26000");
    assert!(gone.hint.contains("statement_analysis_max = 262144 bytes"), "{gone:?}");
    for end in ["close", "deallocate all"] {
        client.send(&[wire::parse("mine", &long_text("select 8")), wire::sync()].concat());
        client.until_ready();
        for _ in 0..2 {
            client.send(&[wire::bind("", "mine", &[]), wire::execute("", 0), wire::sync()].concat());
            assert_eq!(wire_tags(&client.until_ready()), "2DCZ");
            wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["unknown statement"]);
        }
        client.send(&[wire::parse("mine", "select 9"), wire::sync()].concat());
        assert_eq!(client.until_ready()[0].failure().sqlstate, "42P05", "the name is taken");
        if end == "close" {
            client.send(&[wire::close(b'S', "mine"), wire::sync()].concat());
            client.until_ready();
        } else {
            client.run(end);
        }
        check_free(&mut other, end);
    }
    assert_eq!(other.value("select count(*) from long"), "2");
}

fn wire_tags(messages: &[crate::support::raw::Message]) -> String {
    messages.iter().map(|message| char::from(message.tag)).collect()
}

fn version(ground: &Ground) -> u32 {
    ground.direct().value("show server_version_num").parse().unwrap()
}

#[test]
fn a_temporary_slot_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2\npool_wait_timeout = 20s");
    let name = format!("kept_{}", ground.database);
    let count = format!("select count(*) from pg_replication_slots where slot_name like '{name}%'");
    let slots = || ground.direct().value(&count);
    let make = format!("select pg_create_physical_replication_slot('{name}', true, true)");
    for (text, ends) in [
        (make.clone(), format!("select pg_drop_replication_slot('{name}')")),
        (format!("do $$ begin perform {} end $$", make.replace("select ", "") + ";"), "discard all".to_owned()),
        (make.clone(), "leaves".to_owned()),
    ] {
        let mut client = ground.client(&proxy);
        client.run(&text);
        wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["temporary replication slot"]);
        if ends == "leaves" {
            client.send(&wire::terminate());
        } else {
            client.run(&ends);
        }
        wait_until("the slot to be gone", || slots() == "0");
        wait_until_free(&ground, &proxy, &ends);
    }
    // A copy of a slot is temporary as the slot is.
    let mut client = ground.client(&proxy);
    client.run(&make);
    client.run(&format!("select pg_copy_physical_replication_slot('{name}', '{name}_2', true)"));
    client.run(&format!("select pg_drop_replication_slot('{name}')"));
    assert_eq!((slots(), reasons(&ground, &proxy).concat()), ("1".to_owned(), "temporary replication slot".to_owned()));
    client.run(&format!("select pg_drop_replication_slot('{name}_2')"));
    wait_until_free(&ground, &proxy, "both drops");
    // A slot that is not temporary is nobody's.
    client.run(&format!("select pg_create_physical_replication_slot('{name}')"));
    wait_until_free(&ground, &proxy, "a slot for good");
    client.run(&format!("select pg_drop_replication_slot('{name}')"));
}

#[test]
fn a_backup_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let is_new = version(&ground) >= 150_000;
    let (start, stop) = if is_new {
        ("select pg_backup_start('kept', true)", "select lsn from pg_backup_stop(false)")
    } else {
        ("select pg_start_backup('kept', true, false)", "select lsn from pg_stop_backup(false, false)")
    };
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run(start);
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["backup"]);
    assert_ne!(client.value(stop), "");
    check_free(&mut other, "a backup that is over");
    client.error(stop);
    check_free(&mut other, "a stop without a start");
    client.run(start);
    client.send(&wire::terminate());
    let mut third = ground.client(&proxy);
    assert_eq!(third.error(stop).sqlstate, "55000", "it is nobody else's");
    assert_eq!(other.error("select pg_backup_start(1, 2, 3, 4)").sqlstate, "42883");
    check_free(&mut third, "a function that is not there");
}

#[test]
fn a_client_that_leaves_has_the_server_write_no_warning() {
    let server = Ground::new();
    let proxy = server.primary_proxy("pool_size = 2");
    let resets = || proxy.metric("server_connections_reset_total");
    // Other tests use the server, too.
    let its_own = format!("@{}/", server.database);
    let is_warning = |line: &&str| line.contains(&its_own) && line.contains("there is no transaction in progress");
    let warnings = || server.cluster.primary().log().lines().filter(is_warning).count();
    let before = warnings();
    for (number, text) in ["create temp table x (a int)", "select pg_advisory_lock(7)", "declare c cursor with hold for select 1"]
        .into_iter()
        .enumerate()
    {
        let mut client = server.client(&proxy);
        client.run(text);
        client.send(&wire::terminate());
        wait_until("the connection to be cleaned", || resets() == number as u64 + 1);
        wait_until_free(&server, &proxy, text);
    }
    assert_eq!(server.direct().value("select count(*) from pg_locks where locktype = 'advisory' and objid = 7"), "0");
    assert_eq!(warnings(), before);
}

#[test]
fn a_limit_on_the_time_of_transactions_stays_with_its_session() {
    let ground = Ground::new();
    if version(&ground) < 170_000 {
        return leave_out("transaction_timeout came with PostgreSQL 17");
    }
    let proxy = ground.primary_proxy("pool_size = 1");
    for way in [
        "select set_config('transaction_timeout', '15s', false)",
        "do $$ begin set transaction_timeout = '15s'; end $$",
        "select 1; set transaction_timeout = '15s'",
    ] {
        let mut client = ground.client(&proxy);
        let mut other = ground.client(&proxy);
        client.run(way);
        assert_eq!(
            (other.value("show transaction_timeout"), client.value("show transaction_timeout")),
            ("0".into(), "15s".into()),
            "{way}"
        );
        client.run("set transaction_timeout = 0");
    }
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap();
    client.extended("set transaction_timeout = '15s'", &[]).unwrap();
    let mut other = ground.client(&proxy);
    assert_eq!((other.value("show transaction_timeout"), client.value("show transaction_timeout")), ("0".into(), "15s".into()));
}

#[test]
fn no_statement_runs_in_a_transaction_that_has_waited_for_too_long() {
    let ground = Ground::new();
    ground.prepare("create table late (a int)");
    let proxy = ground.primary_proxy("");
    let is_new = version(&ground) >= 170_000;
    let limits = if is_new {
        &["idle_in_transaction_session_timeout", "transaction_timeout"][..]
    } else {
        &["idle_in_transaction_session_timeout"]
    };
    for limit in limits {
        let mut clients: Vec<Raw> = (0..8).map(|_| ground.client(&proxy)).collect();
        for client in &mut clients {
            client.run(&format!("set {limit} = '100ms'"));
            client.run("begin");
            let_pass(Duration::from_millis(200));
            let failure = client.try_rows("insert into late values (1)").expect_err("its transaction is over");
            let expected = if *limit == "transaction_timeout" { "25P04" } else { "25P03" };
            assert_eq!(failure.sqlstate, expected, "{limit}");
        }
    }
    assert_eq!(ground.direct().value("select count(*) from late"), "0");
}

#[test]
fn a_long_text_keeps_nothing_that_the_server_can_be_asked_for() {
    let ground = Ground::new();
    ground.prepare("create table long (a int, b text)");
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let rows: Vec<String> = (0..5000).map(|number| format!("({number}, '{}; load it''s')", "x".repeat(300))).collect();
    let insert = format!("insert into long values {}", rows.join(","));
    client.run(&insert);
    check_free(&mut other, "an insert of many rows");
    client.error(&format!("{insert}, (1/0, '')"));
    check_free(&mut other, "one that failed");
    client.run("begin");
    client.run(&insert);
    client.run("commit");
    check_free(&mut other, "one in a transaction");
    client.run(&format!("set work_mem = '7MB'; {insert}; set app.tenant = 'joe'"));
    check_free(&mut other, "settings");
    let tenant = "select current_setting('work_mem') || coalesce(current_setting('app.tenant', true), '')";
    assert_eq!((client.value(tenant), other.value(tenant)), ("7MBjoe".into(), "4MB".into()));
    assert_eq!(other.value("select count(*) from long"), "15000");
}

#[test]
fn a_wait_in_vain_says_what_keeps_the_connections() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2\npool_wait_timeout = 1s");
    let (mut one, mut two, mut three) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    one.run("create temp table x (a int)");
    two.run("select pg_advisory_lock(9)");
    let failure = three.error("select 1 for update");
    assert_eq!(failure.sqlstate, "53300");
    let expected = "2 of them are kept by clients for state that cannot move (advisory lock: 1, temporary object: 1).";
    assert_eq!(&*failure.detail, expected);
}

/// PostgreSQL forgets names with a library's prefix when it loads the library, and refuses them from then on.
#[test]
fn names_that_a_library_took_away_end_no_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut client = ground.client(&proxy);
    client.run("set plpgsql.made_up = true");
    client.run("load 'plpgsql'");
    client.run("discard all");
    assert_eq!(client.value("select 2"), "2");
}

/// Messages that a client leaves unfinished.
struct Unfinished {
    story: &'static str,
    begin: Vec<u8>,
    /// The reason that is shown.
    reason: &'static str,
    end: Vec<u8>,
    /// Of all answers.
    tags: &'static str,
}

fn unfinished() -> [Unfinished; 6] {
    let start = || [wire::parse("", "select 1 for update"), wire::bind("", "", &[])].concat();
    let run = || [start(), wire::execute("", 0)].concat();
    let halves = |mut whole: Vec<u8>| {
        let rest = whole.split_off(whole.len() - 100_000);
        (whole, rest)
    };
    let (query, rest_of_query) = halves(wire::query(&long_text("select 1 for update")));
    let (parse, rest_of_parse) = halves(wire::parse("", &long_text("select 1 for update")));
    let rest_of_parse = [rest_of_parse, wire::sync()].concat();
    [
        ("half a query", query, "half a message", rest_of_query, "TDCZ"),
        ("half a Parse", parse, "half a message", rest_of_parse, "1Z"),
        ("a Parse", wire::parse("", "select 1 for update"), "no Sync", wire::sync(), "1Z"),
        ("an Execute", run(), "no Sync", wire::sync(), "12DCZ"),
        ("an Execute with Flush", [run(), wire::flush()].concat(), "no Sync", wire::sync(), "12DCZ"),
        ("an error", [wire::parse("", "selec 1"), start()].concat(), "no Sync", wire::sync(), "EZ"),
    ]
    .map(|(story, begin, reason, end, tags)| Unfinished { story, begin, reason, end, tags })
}

#[test]
fn a_message_or_series_without_its_end_is_a_reason_that_is_shown() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 1s");
    let mut other = ground.client(&proxy);
    for Unfinished { story, begin, reason, end, tags } in unfinished() {
        let counted = proxy.metric("sessions_pinned_total");
        let mut client = ground.client(&proxy);
        client.send(&begin);
        wait_until(&format!("the reason of {story} to be shown"), || reasons(&ground, &proxy) == [reason]);
        assert_eq!(proxy.metric("sessions_pinned_total"), counted + 1, "{story}");
        let failure = other.error("select 1 for update");
        assert_eq!(failure.sqlstate, "53300", "{story}");
        assert!(failure.detail.contains(&format!("({reason}: 1)")), "{story}: {failure:?}");
        client.send(&end);
        assert_eq!(wire_tags(&client.until_ready()), tags, "{story}");
        if story == "half a Parse" {
            // Its Bind may come.
            client.run("select 1");
        }
        wait_until_free(&ground, &proxy, story);
        check_free(&mut other, story);
    }
}

#[test]
fn a_client_that_never_sends_the_end_is_ended_by_the_limit_on_idleness() {
    let ground = Ground::new();
    let limits =
        [("idle_transaction_timeout = 1s", "25P03"), ("client_idle_limit = 1s", "57P05"), ("transaction_timeout = 1s", "25P04")];
    for (limit, sqlstate) in limits {
        let proxy = ground.primary_proxy(&format!("pool_size = 1\npool_wait_timeout = 20s\n{limit}"));
        for Unfinished { story, begin, .. } in unfinished() {
            let mut client = ground.client(&proxy);
            client.send(&begin);
            let messages = client.until_end();
            let last = messages.last().unwrap_or_else(|| panic!("{story}: no word"));
            assert_eq!(last.failure().sqlstate, sqlstate, "{story} with {limit}");
            check_free(&mut ground.client(&proxy), story);
        }
        if sqlstate == "25P04" {
            continue;
        }
        // A statement that runs is none of that, nor is a client that waits for its answer.
        let mut client = ground.client(&proxy);
        let sleep =
            [wire::parse("", "select pg_sleep(2.5)"), wire::bind("", "", &[]), wire::execute("", 0), wire::flush()].concat();
        client.send(&sleep);
        assert_eq!([(); 4].map(|()| client.read().tag), *b"12DC", "{limit}");
        client.send(&wire::sync());
        client.until_ready();
        assert_eq!(client.value("select 3 for update"), "3", "{limit}");
    }
}

#[test]
fn a_long_text_that_weir_may_analyse_is_bound_as_often_as_its_client_likes() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s\nstatement_analysis_max = 1MB");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.send(&[wire::parse("", &long_text("select 6")), wire::sync()].concat());
    client.until_ready();
    for _ in 0..2 {
        check_free(&mut other, "between two of its uses");
        client.send(&[wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        assert_eq!(wire_tags(&client.until_ready()), "2DCZ");
    }
}

#[test]
fn a_server_connection_with_very_many_names_of_parameters_is_closed() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20s");
    let mut other = ground.client(&proxy);
    let pid = |client: &mut Raw| client.value("select pg_backend_pid() for update");
    let first = pid(&mut other);
    for round in 0..4 {
        assert_eq!(pid(&mut other) == first, round < 3, "after {} names", round * 400);
        let mut client = ground.client(&proxy);
        (0..400).for_each(|number| client.run(&format!("set app.name_{round}_{number} = 'x'")));
    }
    assert_eq!(proxy.metric("server_connections_worn_total"), 1);
}

#[test]
fn where_a_node_has_room_for_one_connection_a_listening_session_keeps_it() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("max_server_connections_per_node = 1\npool_wait_timeout = 1s");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("listen news");
    wait_until("the reason to be shown", || reasons(&ground, &proxy) == ["listen"]);
    let failure = other.error("select 1 for update");
    assert_eq!(failure.sqlstate, "53300");
    assert!(failure.detail.contains("(listen: 1)"), "{failure:?}");
    ground.direct().run("notify news, 'all is well'");
    assert_eq!(client.read().tag, b'A');
    client.run("unlisten *");
    check_free(&mut other, "UNLISTEN");
}
