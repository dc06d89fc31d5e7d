//! Defaults of sessions: what a client is told at its login, or by a report since, holds on every server connection.

use super::cache::warm;
use crate::support::ground::{cluster, wait_until};
use crate::support::{Ground, Proxy, Raw, leave_out};
use std::fs::OpenOptions;
use std::io::Write;
use weir_demo::Server;

/// Parameters that a server reports, and others, each with a value that is no server's default.
const OTHERS: &[(&str, &str)] = &[
    ("DateStyle", "SQL, DMY"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "Asia/Tokyo"),
    ("bytea_output", "escape"),
    ("extra_float_digits", "0"),
    ("search_path", "other"),
    ("statement_timeout", "77s"),
    ("work_mem", "5MB"),
];

/// Names of those that a server of any version reports.
const REPORTED: [&str; 4] = ["DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings"];

fn shown(client: &mut Raw) -> Vec<String> {
    OTHERS.iter().map(|(name, _)| client.value(&format!("show {name}"))).collect()
}

fn others() -> Vec<String> {
    OTHERS.iter().map(|(_, value)| (*value).to_owned()).collect()
}

/// The values that a client was told hold for it.
fn check_told(client: &mut Raw) {
    for name in REPORTED {
        let now = client.value(&format!("show {name}"));
        assert_eq!(client.parameter(name), Some(now.as_str()), "{name}");
    }
}

/// The changes of all parameters, for one role in one database.
fn change(ground: &Ground, how: fn(&str, &str) -> String) -> Vec<String> {
    let change =
        |(name, value): &(&str, &str)| format!("alter role postgres in database {} {}", ground.database, how(name, value));
    OTHERS.iter().map(change).collect()
}

#[test]
fn a_session_keeps_the_defaults_of_its_login_whoever_changes_those_of_its_role() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    for past_us in [false, true] {
        let (mut old, mut other, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
        let before = shown(&mut old);
        assert_eq!(before, shown(&mut direct));
        let mut admin = if past_us { ground.direct() } else { ground.client(&proxy) };
        change(&ground, |name, value| format!("set {name} = '{value}'")).iter().for_each(|text| admin.run(text));
        wait_until("new sessions to begin otherwise", || shown(&mut ground.client(&proxy)) == others());
        let mut new = ground.client(&proxy);
        for _ in 0..2 {
            assert_eq!(shown(&mut old), before, "past Weir: {past_us}");
            assert_eq!(shown(&mut new), others(), "past Weir: {past_us}");
            [&mut old, &mut new].into_iter().for_each(check_told);
            // A reset goes back to the login's values, as on a direct connection.
            for text in ["set datestyle = 'German'", "reset datestyle", "set timezone = 'GMT'", "reset all", "discard all"] {
                [&mut old, &mut new, &mut other].into_iter().for_each(|client| client.run(text));
            }
        }
        change(&ground, |name, _| format!("reset {name}")).iter().for_each(|text| admin.run(text));
        wait_until("new sessions to begin as before", || shown(&mut ground.client(&proxy)) == before);
        assert_eq!(shown(&mut new), others(), "it keeps those, too");
        [&mut old, &mut new, &mut other].into_iter().for_each(check_told);
    }
}

#[test]
fn a_text_that_a_client_quotes_by_what_it_was_told_stays_a_text() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 2");
    let mut old = ground.client(&proxy);
    old.run("select 1");
    ground.prepare(&format!("alter role postgres in database {} set standard_conforming_strings = off", ground.database));
    wait_until("new sessions to begin otherwise", || {
        ground.client(&proxy).parameter("standard_conforming_strings") == Some("off")
    });
    assert_eq!(old.rows(r"select 1 where 'user' = '\'' or true--'"), Vec::<Vec<String>>::new());
    check_told(&mut old);
}

#[test]
fn a_parameter_with_a_dot_and_a_role_by_default_are_those_of_the_login() {
    let ground = Ground::new();
    let role = format!("tenant_{}", ground.database);
    let proxy = ground.primary_proxy("pool_size = 2");
    ground.prepare(&format!("create role {role}; alter role postgres in database {} set app.tenant = 'a'", ground.database));
    let asked = "select current_setting('app.tenant', true), current_user";
    let with = |tenant: &str, user: &str| vec![vec![tenant.to_owned(), user.to_owned()]];
    wait_until("the value", || ground.client(&proxy).rows(asked) == with("a", "postgres"));
    let mut old = ground.client(&proxy);
    let change = format!(
        "alter role postgres in database {0} set app.tenant = 'b'; alter role postgres in database {0} set role = {role}",
        ground.database
    );
    ground.prepare(&change);
    wait_until("the new value", || ground.client(&proxy).rows(asked) == with("b", &role));
    let mut new = ground.client(&proxy);
    for _ in 0..3 {
        assert_eq!(old.rows(asked), with("a", "postgres"));
        assert_eq!(new.rows(asked), with("b", &role));
        old.run("set role pg_monitor");
        old.run("reset role");
    }
    drop((old, new, proxy));
    let back = format!("alter role postgres in database {} reset all; drop role {role}", ground.database);
    ground.cluster.primary().query(&back).unwrap();
}

/// Changes a server's own configuration.
fn configure(server: &Server, lines: &[(&str, &str)]) {
    let mut file = OpenOptions::new().append(true).open(server.data_dir().join("postgresql.auto.conf")).unwrap();
    for (name, value) in lines {
        writeln!(file, "{name} = '{value}'").unwrap();
    }
    drop(file);
    server.reload().unwrap();
    let (name, value) = lines.last().unwrap();
    wait_until("the server to have it", || server.value(&format!("show {name}")).unwrap() == *value);
}

fn client(proxy: &Proxy) -> Raw {
    Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap()
}

#[test]
fn a_reload_of_the_server_reaches_all_sessions_which_hear_of_it() {
    let cluster = cluster(0);
    for size in [1, 4] {
        let proxy = Proxy::start(&cluster, &format!("pool_size = {size}\nsr_check_period = 1"));
        let mut clients = [client(&proxy), client(&proxy), client(&proxy)];
        let mut holds = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[("timezone", "Europe/Zurich")]).unwrap();
        let before = clients.each_mut().map(shown);
        configure(cluster.primary(), OTHERS);
        wait_until("new clients to be told", || client(&proxy).parameter("DateStyle") == Some("SQL, DMY"));
        for one in &mut clients {
            wait_until("the new values", || shown(one) == others());
            check_told(one);
        }
        assert_eq!(holds.value("show timezone"), "Europe/Zurich", "it asked for that");
        check_told(&mut holds);
        configure(
            cluster.primary(),
            &OTHERS.iter().map(|(name, _)| *name).zip(before[0].iter().map(String::as_str)).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn new_connections_on_request_tell_new_clients_what_holds() {
    let cluster = cluster(0);
    let proxy = Proxy::start(&cluster, "pool_size = 2\nsr_check_period = 0\nhealth_check_period = 0");
    let mut old = client(&proxy);
    old.run("select 1");
    configure(cluster.primary(), OTHERS);
    super::console::admin(&proxy).run("RECONNECT");
    wait_until("new clients to be told", || client(&proxy).parameter("DateStyle") == Some("SQL, DMY"));
    check_told(&mut client(&proxy));
    assert_eq!(old.value("select date '2024-02-03'"), "03/02/2024");
    check_told(&mut old);
}

#[test]
fn what_a_client_was_told_holds_on_a_standby_with_other_settings_too() {
    let cluster = cluster(1);
    let standby = &cluster.standbys()[0];
    configure(standby, OTHERS);
    cluster
        .primary()
        .query("create table t as select date '2024-02-03' as d, interval '1 day 2 hours' as i, '\\x00'::bytea as b")
        .unwrap();
    cluster.primary().query("create schema other; create table other.t as select 'another table' as d, 1 as i, 2 as b").unwrap();
    cluster.wait_caught_up().unwrap();
    let read = "select d, i, b from t";
    let expected = |row: &Vec<String>| row[..] == ["2024-02-03", "1 day 02:00:00", "\\x00"].map(str::to_owned);
    for more in ["", "memory_cache_enabled = on"] {
        let proxy = Proxy::start(&cluster, &format!("pool_size = 2\nstatement_level_load_balance = on\n{more}"));
        let mut clients = [client(&proxy), client(&proxy)];
        clients.iter_mut().for_each(|one| crate::support::wait_for_catalog(one, "postgres"));
        if !more.is_empty() {
            warm(&proxy, &mut clients[0], read);
        }
        for round in 0..20 {
            for one in &mut clients {
                let rows = one.rows(read);
                assert!(expected(&rows[0]), "{rows:?}");
                // A statement that no cache answers.
                assert!(expected(&one.rows(&format!("{read} where {round} = {round}"))[0]));
                assert!(expected(&one.rows(&format!("{read} for update"))[0]), "on the primary");
                check_told(one);
            }
        }
        let reads: Vec<u64> = proxy.nodes("select_cnt").iter().map(|count| count.parse().unwrap()).collect();
        assert!(reads[1] > 0, "nothing was read on the standby: {reads:?}");
        let words = "its configuration has other settings for sessions than that of node 0, the primary";
        wait_until("the log to name the standby", || proxy.log().contains(words));
        assert_eq!(proxy.log().matches(words).count(), 1);
        assert!(proxy.log().contains("datestyle = 'SQL, DMY' and not 'ISO, MDY'"), "{}", proxy.log());
    }
}

#[test]
fn what_a_login_event_trigger_sets_is_there_for_every_session_and_after_every_reset() {
    let ground = Ground::new();
    if ground.cluster.primary().programs().major() < 17 {
        return leave_out("login event triggers need PostgreSQL 17");
    }
    ground.prepare(
        "create table log (a int); insert into log values (7);
         create schema of_login; create table of_login.log as select 8 as a;
         create function on_login() returns event_trigger language plpgsql as $$ begin
             perform set_config('work_mem', '5MB', false), set_config('TimeZone', 'Asia/Tokyo', false),
                 set_config('app.who', session_user, false), set_config('search_path', 'of_login, public', false);
         end $$;
         create event trigger welcomes on login execute function on_login();
         alter event trigger welcomes enable always",
    );
    let asked = "select current_setting('work_mem'), current_setting('timezone'), current_setting('app.who'), a from log";
    let expected = vec![["5MB", "Asia/Tokyo", "postgres", "8"].map(str::to_owned).to_vec()];
    for more in ["", "\nmemory_cache_enabled = on", "\npool_mode = session"] {
        let proxy = ground.proxy(&format!("pool_size = 4\nstatement_level_load_balance = on{more}"));
        let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
        for text in [
            "select 1",
            "set work_mem = '1MB'",
            "reset work_mem",
            "set timezone = 'GMT'",
            "reset all",
            "set app.who = 'nobody'",
            "set search_path = public",
            "discard all",
        ] {
            one.run(text);
            assert_eq!(other.rows(asked), expected, "{more}: behind another's {text}");
            assert_eq!(other.parameter("TimeZone"), Some("Asia/Tokyo"));
        }
        let is_reset = more != "\npool_mode = session";
        assert!(!is_reset || one.rows(asked) == expected, "{more}: a reset goes back there");
        check_told(&mut other);
        let mut own = ground.client_with(&proxy, &[("work_mem", "9MB"), ("datestyle", "German")]);
        assert_eq!(own.value("show datestyle"), "German, DMY", "the trigger says nothing of it");
        assert_eq!(own.rows(asked), expected, "the trigger runs behind the startup packet");
    }
    ground.prepare("drop event trigger welcomes");
}
