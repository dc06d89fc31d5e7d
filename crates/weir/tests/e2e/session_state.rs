//! Settings, temporary objects and locks of a session stay with it, and with nobody else, while server connections are shared.

use crate::support::ground::cluster;
use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const OTHERS: usize = 20;

/// Runs `story` while other clients use the same pool without a pause.
fn among_others(ground: &Ground, proxy: &Proxy, story: impl FnOnce(&mut Raw)) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..OTHERS {
            let over = &over;
            scope.spawn(move || {
                let mut client = ground.client(proxy);
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(client.value(&format!("select {number}")), number.to_string());
                    assert_eq!(client.value("show work_mem"), "4MB");
                    assert_eq!(client.extended("select to_regclass('pg_temp.mine') is null", &[]).unwrap(), "t");
                }
            });
        }
        let _end = Ends(&over);
        story(&mut ground.client(proxy));
    });
}

/// Ends the other clients, also when the story fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// True if the server connections of this database are all free of state now.
fn is_all_free(ground: &Ground, proxy: &Proxy) -> bool {
    let mut console = proxy.console();
    let (databases, states) = (show(&mut console, "pool_pools", "database"), show(&mut console, "pool_pools", "status"));
    let is_kept = |state: &str| state.contains("kept") && !state.contains("listens for clients");
    !databases.iter().zip(&states).any(|(database, state)| *database == ground.database && is_kept(state))
}

#[test]
fn a_setting_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        client.run("set work_mem = '13MB'");
        client.run("set session characteristics as transaction isolation level repeatable read");
        for _ in 0..50 {
            assert_eq!(client.value("show work_mem"), "13MB");
            assert_eq!(client.value("show transaction_isolation"), "repeatable read");
        }
        client.run("reset all");
        assert_eq!(client.value("show work_mem"), "4MB");
    });
}

#[test]
fn a_temporary_table_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        client.run("create temporary table mine (a int)");
        for number in 1..50 {
            client.run(&format!("insert into mine values ({number})"));
            assert_eq!(client.value("select count(*) from mine"), number.to_string());
        }
    });
    wait_until("the temporary table to be gone", || {
        ground.direct().value("select count(*) from pg_class where relname = 'mine'") == "0"
    });
}

#[test]
fn a_temporary_table_made_by_select_into_or_in_pg_temp_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.proxy("pool_size = 4");
    for make in
        ["select 1 as a into temp mine", "create table pg_temp.mine as select 1 as a", "create temp view mine as select 1 as a"]
    {
        let mut client = ground.client(&proxy);
        let mut other = ground.client(&proxy);
        client.run(make);
        for _ in 0..10 {
            assert_eq!(other.error("select a from mine").sqlstate, "42P01", "{make}");
            assert_eq!(client.value("select a from mine"), "1", "{make}");
        }
    }
}

#[test]
fn an_advisory_lock_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        client.run("select pg_advisory_lock(7)");
        let mut direct = ground.direct();
        for _ in 0..20 {
            assert_eq!(direct.value("select pg_try_advisory_lock(7)"), "f", "somebody else got the lock");
            client.run("select 1");
        }
        assert_eq!(client.value("select pg_advisory_unlock(7)"), "t", "the lock is ours to give back");
        assert_eq!(direct.value("select pg_try_advisory_lock(7)"), "t");
    });
}

#[test]
fn an_advisory_lock_ends_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    let mut client = ground.client(&proxy);
    client.extended("select pg_advisory_lock($1)", &["8"]).unwrap();
    let mut direct = ground.direct();
    assert_eq!(direct.value("select pg_try_advisory_lock(8)"), "f");
    drop(client);
    wait_until("the lock to be free", || direct.value("select pg_try_advisory_lock(8)") == "t");
}

#[test]
fn notifications_come_to_the_session_that_listens() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        client.run("listen news");
        let mut other = ground.client(&proxy);
        for number in 0..10 {
            other.run(&format!("notify news, 'number {number}'"));
            // It comes by itself, without a question.
            let message = client.read();
            assert_eq!(message.tag, b'A', "{message:?}");
            assert!(message.body.ends_with(format!("news\0number {number}\0").as_bytes()), "{message:?}");
        }
        client.run("unlisten news");
        other.run("notify news");
        assert_eq!(crate::support::raw::tags(&client.query("select 1")), "TDCZ", "no more news");
    });
}

#[test]
fn statements_prepared_by_sql_stay_with_their_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        let mut other = ground.client(&proxy);
        client.run("prepare mine(int) as select $1 + 1");
        for number in 0..30 {
            assert_eq!(client.value(&format!("execute mine({number})")), (number + 1).to_string());
            assert_eq!(other.error("execute mine(1)").sqlstate, "26000");
        }
        client.run("deallocate mine");
        assert_eq!(client.error("execute mine(1)").sqlstate, "26000");
        assert_eq!(client.value("select 1"), "1");
    });
}

#[test]
fn a_cursor_with_hold_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 4");
    among_others(&ground, &proxy, |client| {
        client.run("begin; declare c cursor with hold for select generate_series(1, 100)");
        client.run("commit");
        for number in 1..50 {
            assert_eq!(client.value("fetch c"), number.to_string());
        }
        client.run("close c");
    });
}

#[test]
fn settings_for_one_transaction_end_with_it_and_keep_no_connection() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    client.run("begin");
    client.run("set local work_mem = '13MB'");
    assert_eq!(client.value("show work_mem"), "13MB");
    client.run("commit");
    assert_eq!(other.value("show work_mem"), "4MB", "with one connection, the other client could not run otherwise");
    assert!(is_all_free(&ground, &proxy));
}

#[test]
fn a_setting_changed_within_a_function_stays_with_its_session() {
    let ground = Ground::new();
    ground.prepare(
        "create function tricky() returns void language plpgsql as $$ begin set work_mem = '13MB'; set application_name = 'tricky'; end $$",
    );
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    client.run("select tricky()");
    assert_eq!(client.value("show work_mem"), "13MB");
    for _ in 0..10 {
        assert_eq!(other.value("show work_mem"), "4MB");
    }
    client.run("select set_config('work_mem', '14MB', false)");
    assert_eq!(client.value("show work_mem"), "14MB");
}

#[test]
fn a_setting_changed_within_a_do_block_stays_with_its_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut client = ground.client(&proxy);
    client.run("do $$ begin set work_mem = '15MB'; create temporary table mine (a int); end $$");
    for _ in 0..10 {
        let mut other = ground.client(&proxy);
        assert_eq!(other.value("show work_mem"), "4MB");
        assert_eq!(other.value("select to_regclass('pg_temp.mine') is null"), "t");
        assert_eq!(client.value("show work_mem"), "15MB");
        assert_eq!(client.value("select count(*) from mine"), "0");
    }
}

#[test]
fn discard_all_gives_the_connection_back() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    for (text, keeps) in [
        ("set work_mem = '13MB'", false),
        ("create temp table mine (a int)", true),
        ("listen news", false),
        ("prepare p as select 1", false),
    ] {
        client.run(text);
        wait_until("the connection to be kept or free", || is_all_free(&ground, &proxy) != keeps);
        client.run("discard all");
        assert_eq!(other.value("show work_mem"), "4MB", "with one connection, the other client can run only after it is free");
        assert_eq!(other.value("select count(*) from pg_prepared_statements"), "0");
        assert!(is_all_free(&ground, &proxy));
    }
}

#[test]
fn what_a_session_left_is_gone_for_the_next_one() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    let leave = "set work_mem = '13MB'; set search_path = nowhere; create temp table mine (a int); listen news; \
                 prepare p as select 1; select pg_advisory_lock(9); set role pg_monitor";
    for polite in [true, false] {
        let mut client = ground.client(&proxy);
        for text in leave.split(';') {
            client.run(text);
        }
        if polite {
            client.send(&wire::terminate());
            client.until_end();
        }
        drop(client);
        let mut next = ground.client(&proxy);
        assert_eq!(next.value("show work_mem"), "4MB");
        assert_eq!(next.value("show search_path"), "\"$user\", public");
        assert_eq!(next.value("select current_user"), "postgres");
        assert_eq!(next.value("select count(*) from pg_prepared_statements"), "0");
        assert_eq!(next.value("select count(*) from pg_listening_channels()"), "0");
        assert_eq!(next.value("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"), "0");
        assert_eq!(next.value("select to_regclass('pg_temp.mine') is null"), "t");
    }
}

#[test]
fn startup_parameters_hold_on_every_server() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let parameters = [
        ("application_name", "my app"),
        ("options", "-c work_mem=17MB --enable-seqscan=off"),
        ("TimeZone", "Asia/Tokyo"),
        ("search_path", "pg_catalog,public"),
        ("DateStyle", "German"),
        ("extra_float_digits", "3"),
    ];
    let mut client = ground.client_with(&proxy, &parameters);
    let mut plain = ground.client(&proxy);
    let expected = [
        ("application_name", "my app"),
        ("work_mem", "17MB"),
        ("enable_seqscan", "off"),
        ("TimeZone", "Asia/Tokyo"),
        ("search_path", "pg_catalog,public"),
        ("DateStyle", "German, DMY"),
        ("extra_float_digits", "3"),
    ];
    for _ in 0..10 {
        for (name, value) in expected {
            let on_standby = client.value(&format!("select current_setting('{name}') from (select inet_server_port()) s"));
            assert_eq!(on_standby, value, "{name} on a standby");
        }
        client.run("begin");
        for (name, value) in expected {
            assert_eq!(client.value(&format!("select current_setting('{name}')")), value, "{name} on the primary");
        }
        client.run("commit");
        assert_eq!(plain.value("select current_setting('work_mem')"), "4MB");
        assert_ne!(plain.value("select current_setting('application_name')"), "my app");
    }
}

#[test]
fn a_client_is_welcomed_with_the_parameters_the_server_reports() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for parameters in [&[][..], &[("TimeZone", "Asia/Tokyo"), ("application_name", "a")][..], &[("DateStyle", "SQL, DMY")][..]] {
        for _ in 0..3 {
            let mut through = ground.client_with(&proxy, parameters).parameters;
            let direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, parameters).unwrap();
            let mut direct = direct.parameters;
            // The only one that is different on a standby.
            through.retain(|(name, _)| name != "in_hot_standby");
            direct.retain(|(name, _)| name != "in_hot_standby");
            through.sort();
            direct.sort();
            assert_eq!(through, direct);
        }
    }
}

#[test]
fn a_setting_no_server_takes_is_refused_at_login_as_the_server_does() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    for parameters in [("work_mem", "much"), ("no_such_parameter", "1"), ("TimeZone", "Nowhere/Land"), ("options", "-c nope=1")] {
        let through = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[parameters]).unwrap_err();
        let direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, &[parameters]).unwrap_err();
        assert_eq!((through.severity.as_str(), &through.sqlstate), ("FATAL", &direct.sqlstate), "{through:?} {direct:?}");
        assert_eq!(through.message, direct.message);
    }
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

#[test]
fn a_changed_parameter_is_reported_to_the_client() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("set application_name = 'other'");
    assert_eq!(client.parameter("application_name"), Some("other"));
    client.run("set TimeZone = 'Asia/Tokyo'");
    assert_eq!(client.parameter("TimeZone"), Some("Asia/Tokyo"));
    client.run("discard all");
    assert_eq!(client.parameter("application_name"), Some(""));
}

#[test]
fn after_reset_or_discard_a_session_has_its_startup_parameters_again() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let parameters = [("work_mem", "17MB"), ("TimeZone", "Asia/Tokyo")];
    let mut client = ground.client_with(&proxy, &parameters);
    let direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, &parameters);
    let mut direct = direct.unwrap();
    for end in ["reset all", "reset work_mem", "set work_mem to default", "discard all"] {
        for client in [&mut client, &mut direct] {
            client.run("set work_mem = '18MB'");
            client.run(end);
        }
        assert_eq!(client.value("show work_mem"), direct.value("show work_mem"), "work_mem after {end}");
        assert_eq!(client.value("show TimeZone"), direct.value("show TimeZone"), "TimeZone after {end}");
    }
}

#[test]
fn a_function_that_leaves_nothing_is_asked_about_once() {
    let ground = Ground::new();
    ground.prepare(
        "create function inner_one(a int) returns int language plpgsql as $$ begin return a + 1; end $$; \
         create function harmless(a int) returns int language sql as 'select inner_one(a) * abs(2)'; \
         create function leaving(a int) returns int language plpgsql as $$ begin set work_mem = '5MB'; return a; end $$",
    );
    let proxy = ground.primary_proxy("worker_threads = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    let asked = || proxy.metric("inventories_total");
    // One question for each level of calls, and the client does not wait for the answer.
    wait_until("what it calls to be known", || {
        let before = asked();
        assert_eq!(client.value("select harmless(1)"), "4");
        asked() == before
    });
    let before = asked();
    for _ in 0..5 {
        assert_eq!(client.value("select harmless(1)"), "4");
    }
    assert_eq!(asked(), before, "it is known to leave nothing");
    for _ in 0..5 {
        assert_eq!(client.value("select leaving(1)"), "1");
    }
    wait_until("each of these to be asked about", || asked() == before + 5);
    client.run(
        "create or replace function inner_one(a int) returns int language plpgsql as \
                $$ begin perform set_config('work_mem', '7MB', false); return a; end $$",
    );
    client.run("select harmless(1)");
    assert_eq!((client.value("show work_mem"), other.value("show work_mem")), ("7MB".into(), "4MB".into()), "it was made anew");
}

#[test]
fn new_clients_begin_with_altered_defaults() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1");
    let mut client = ground.client(&proxy);
    assert_eq!(client.value("show work_mem"), "4MB");
    client.run(&format!("alter database {} set work_mem = '9MB'", ground.database));
    let mut new = ground.client(&proxy);
    let seen = (new.value("show work_mem"), new.value("show work_mem"));
    client.run(&format!("alter database {} reset work_mem", ground.database));
    assert_eq!(seen, ("9MB".into(), "9MB".into()));
    assert_eq!(ground.client(&proxy).value("show work_mem"), "4MB");
}

/// The first session on a connection after a reload kept the new default as a setting of its own.
#[test]
fn a_default_that_a_reload_has_changed_is_no_setting_of_whoever_hears_of_it() {
    let cluster = cluster(0);
    let primary = cluster.primary();
    let proxy = Proxy::start(&cluster, "worker_threads = 1\npool_size = 1");
    let log_in = || Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    let (mut first, mut second, mut own) = (log_in(), log_in(), log_in());
    own.run("set timezone = 'Europe/Paris'");
    for zone in ["Asia/Tokyo", "America/New_York", "Asia/Seoul"] {
        primary.query(&format!("alter system set timezone = '{zone}'")).unwrap();
        primary.reload().unwrap();
        wait_until("the new default to count", || first.value("show timezone") == zone);
        assert_eq!((second.value("show timezone"), own.value("show timezone")), (zone.into(), "Europe/Paris".into()));
    }
    own.run("reset timezone");
    assert_eq!(own.value("show timezone"), "Asia/Seoul");
    let asked = proxy.metric("inventories_total");
    for _ in 0..3 {
        for text in ["begin", "set local timezone = 'Asia/Tokyo'", "select now()", "commit"] {
            first.run(text);
        }
    }
    assert_eq!(first.value("show timezone"), "Asia/Seoul");
    assert_eq!(proxy.metric("inventories_total"), asked, "it is back where it was");
}

/// A session that took its settings back has set nothing: a new default reaches it, as with PostgreSQL, and the others as
/// before.
#[test]
fn what_was_rolled_back_is_no_setting_of_the_session() {
    let cluster = cluster(0);
    let primary = cluster.primary();
    let proxy = Proxy::start(&cluster, "worker_threads = 1\npool_size = 1");
    let direct = || Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]).unwrap();
    let through = || Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    let stories: [&[&str]; 9] = [
        &["begin", "set datestyle = 'German'; set work_mem = '7MB'", "rollback"],
        &["begin; set datestyle = 'German'; set work_mem = '7MB'; rollback"],
        &["begin", "set datestyle = 'German'", "set work_mem = '7MB'", "select 1/0", "commit"],
        &["set datestyle = 'German'; set work_mem = '7MB'; select 1/0"],
        &["begin", "savepoint one", "set datestyle = 'German'", "set work_mem = '7MB'", "rollback to one", "commit"],
        // Settings that stay are the session's own.
        &["begin", "set work_mem = '7MB'", "savepoint one", "set datestyle = 'German'", "rollback to one", "commit"],
        &["begin", "set datestyle = 'German'", "set work_mem = '7MB'", "commit"],
        &["set work_mem = '8MB'", "begin", "set datestyle = 'German'; set work_mem = '7MB'", "rollback"],
        &["set datestyle = 'ISO, YMD'", "begin", "reset datestyle", "set work_mem = '7MB'", "rollback"],
    ];
    let mut pairs: Vec<[Raw; 2]> = stories.iter().map(|_| [direct(), through()]).collect();
    for (pair, story) in pairs.iter_mut().zip(stories) {
        for client in pair {
            for text in story {
                // Some are to fail.
                let _ = client.try_rows(text);
            }
        }
    }
    primary.query("alter system set datestyle = 'SQL, DMY'").unwrap();
    primary.query("alter system set work_mem = '5MB'").unwrap();
    primary.reload().unwrap();
    let asked = "select current_setting('datestyle') || ' ' || current_setting('work_mem')";
    let mut unset = [direct(), through()];
    for client in &mut unset {
        wait_until("the new defaults to count", || client.value(asked) == "SQL, DMY 5MB");
    }
    for ([direct, through], story) in pairs.iter_mut().zip(stories) {
        // The signal to load it reaches one process after the other.
        wait_until("it to be as with PostgreSQL", || through.value(asked) == direct.value(asked));
        assert_eq!(through.value(asked), direct.value(asked), "{story:?}");
    }
    let own: Vec<String> = pairs.iter_mut().map(|[_, through]| through.value(asked)).collect();
    let defaults = ["SQL, DMY 5MB"; 5];
    assert_eq!(own[..5], defaults);
    assert_eq!(own[5..], ["SQL, DMY 7MB", "German, DMY 7MB", "SQL, DMY 8MB", "ISO, YMD 5MB"]);
}

/// Keeps a connection with something that keeps it, and with other values of reported parameters.
fn leave_behind(ground: &Ground, proxy: &Proxy, keeps: &str) {
    let before = proxy.metric("server_connections_reset_total");
    let mut client = ground.client(proxy);
    client.run(keeps);
    client.run("set timezone = 'Japan'");
    client.run("set client_encoding = 'LATIN1'");
    drop(client);
    wait_until("the connection to be reset", || proxy.metric("server_connections_reset_total") > before);
}

#[test]
fn what_a_session_left_behind_is_reported_to_nobody() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1");
    let usual = ground.client(&proxy).value("show timezone");
    for (number, keeps) in ["create temp table t (a int)", "select pg_advisory_lock(1)"].into_iter().enumerate() {
        leave_behind(&ground, &proxy, keeps);
        let mut new = ground.client_with(&proxy, &[("options", &format!("-c work_mem={}kB", 2000 + number))]);
        assert_eq!(new.parameter("TimeZone"), Some(usual.as_str()), "{keeps}");
        assert_eq!(new.parameter("client_encoding"), Some("UTF8"), "{keeps}");
        assert_eq!(new.value("show timezone"), usual, "{keeps}");
    }
}

#[test]
fn a_change_to_what_a_session_before_had_is_reported() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1");
    leave_behind(&ground, &proxy, "create temp table t (a int)");
    let mut client = ground.client(&proxy);
    client.run("reset work_mem; set timezone = 'Japan'");
    assert_eq!(client.value("show timezone"), "Japan");
    assert_eq!(client.parameter("TimeZone"), Some("Japan"));
}

#[test]
fn after_a_reset_or_discard_a_parameter_of_an_extension_has_its_default() {
    let ground = Ground::new();
    ground.prepare("create extension if not exists pg_trgm");
    // With two connections the session comes to one that it has reset nothing on.
    for size in [1, 2] {
        let proxy = ground.primary_proxy(&format!("worker_threads = 1\npool_size = {size}"));
        for over in ["discard all", "reset all", "reset pg_trgm.similarity_threshold"] {
            let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
            client.run("select set_limit(0.9)");
            assert_eq!(client.value("show pg_trgm.similarity_threshold"), "0.9", "{over}");
            client.run(over);
            if size == 2 {
                other.run("begin; select 1");
            }
            let seen = client.value("select show_limit()::text || current_setting('pg_trgm.similarity_threshold')");
            assert_eq!(seen, "0.30.3", "{over}, pool_size = {size}");
        }
        let mut client = ground.client(&proxy);
        client.run("select set_config('plpgsql.variable_conflict', 'use_column', false)");
        client.run("do 'begin end'");
        client.run("discard all");
        client.run("do 'begin end'");
        assert_eq!(client.value("show plpgsql.variable_conflict"), "error");
    }
    ground.prepare("drop extension pg_trgm");
}

#[test]
fn startup_options_are_those_of_a_server() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let shown =
        "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name in ('DateStyle', 'work_mem',
        'enable_seqscan', 'enable_indexonlyscan', 'log_parser_stats', 'log_statement_stats', 'log_min_messages', 'log_statement',
        'debug_print_parse', 'allow_system_table_mods', 'application_name')";
    for options in [
        "-e",
        "-eS 5MB",
        "-S5MB -fs -f o",
        "-t pa -O",
        "-s -d 3",
        "-d0 -E -D nowhere",
        r"-c application_name=a\\ b\ c",
        "--application-name=d",
        "-c work_mem",
        "--work_mem",
        "-Z",
        "word",
        "-f x",
        "-S",
        "-F",
        "-p 5",
        "-B 100",
    ] {
        let seen = [ground.cluster.primary().port(), proxy.port()].map(|port| {
            let client = Raw::tcp(port).log_in("postgres", &ground.database, &[("options", options)]);
            client
                .map(|mut client| client.value(shown))
                .map_err(|failure| (failure.severity, failure.sqlstate, failure.message, failure.hint))
        });
        assert_eq!(seen[0], seen[1], "{options}");
    }
}
