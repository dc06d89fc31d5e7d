//! Where statements go.

use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::collections::BTreeMap;

/// The port of the server that answers: a read like any other.
const WHERE: &str = "select inet_server_port()";

fn check_goes_to_primary(ground: &Ground, client: &mut Raw, texts: &[&str]) {
    for text in texts {
        // Several times: a read would reach a standby in one of them.
        for _ in 0..3 {
            let rows = client.try_rows(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
            let port = rows.into_iter().flatten().flatten().next();
            assert_eq!(port, Some(ground.primary_port()), "{text}");
        }
    }
}

fn check_goes_to_standby(ground: &Ground, client: &mut Raw, texts: &[&str]) {
    let standbys = ground.standby_ports();
    for text in texts {
        for _ in 0..3 {
            let port = client.value(text);
            assert!(standbys.contains(&port), "{text} went to port {port}, standbys are {standbys:?}");
        }
    }
}

#[test]
fn a_write_goes_to_the_primary() {
    let ground = Ground::new();
    ground.prepare("create table t (a int, port int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let texts = [
        "insert into t values (1, inet_server_port()) returning port",
        "update t set port = inet_server_port() where a = 1 returning port",
        "with w as (insert into t values (2, inet_server_port()) returning port) select port from w",
        "with w as (delete from t where a = 7) select inet_server_port()",
        "delete from t where a = 1 and false returning port",
    ];
    check_goes_to_primary(&ground, &mut client, &texts[..4]);
    client.run(texts[4]);
    client.run("create table u (a int); insert into u values (1); drop table u");
    client.run("truncate t");
    assert_eq!(client.value("begin; insert into t values (1); select inet_server_port()"), ground.primary_port());
    client.run("commit");
}

/// A busy machine moves shares by intention, away from the server that answers late; wrong weights are never right in a round.
const ROUNDS_MAX: usize = 8;

#[test]
fn reads_go_to_standbys_by_weight() {
    let ground = Ground::new();
    // Each read anew: a session whose reads never go back changes its standby more rarely.
    let more = "causal_reads = off\nbackend_weight0 = 0\nbackend_weight1 = 1\nbackend_weight2 = 3";
    let proxy = ground.proxy(more);
    let mut client = ground.client(&proxy);
    let ports = ground.standby_ports();
    let mut is_shared = || {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..400 {
            *counts.entry(client.value(WHERE)).or_default() += 1;
        }
        println!("{counts:?}");
        // 300 are expected, with a deviation of 8.7: six of them are never seen by chance.
        counts.len() == 2
            && counts.contains_key(&ports[0])
            && counts.get(&ports[1]).is_some_and(|heavy| (248..=352).contains(heavy))
    };
    assert!((0..ROUNDS_MAX).any(|_| is_shared()), "3/4 of the weight is the second standby's: see the rounds above");
}

#[test]
fn the_primary_takes_its_share_of_reads_if_it_has_weight() {
    let ground = Ground::new();
    let proxy = ground.proxy("causal_reads = off\nbackend_weight0 = 1\nbackend_weight1 = 0\nbackend_weight2 = 1");
    let mut client = ground.client(&proxy);
    wait_for_catalog(&mut client, &ground.database);
    let mut is_shared = || {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..200 {
            *counts.entry(client.value(WHERE)).or_default() += 1;
        }
        println!("{counts:?}");
        assert!(!counts.contains_key(&ground.standby_ports()[0]), "weight 0 takes none: {counts:?}");
        counts.len() == 2 && counts.values().all(|count| (50..=150).contains(count))
    };
    assert!((0..ROUNDS_MAX).any(|_| is_shared()), "see the rounds above");
}

#[test]
fn a_session_stays_with_one_standby_unless_every_statement_is_balanced() {
    let ground = Ground::new();
    let proxy = ground.proxy("statement_level_load_balance = off");
    let mut ports = Vec::new();
    for _ in 0..20 {
        let mut client = ground.client(&proxy);
        let port = client.value(WHERE);
        for _ in 0..5 {
            assert_eq!(client.value(WHERE), port);
        }
        ports.push(port);
    }
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 2, "20 sessions are spread over both standbys");
}

#[test]
fn locking_reads_go_to_the_primary() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let texts = [
        "select inet_server_port() from t for update",
        "select inet_server_port() from t for share",
        "select inet_server_port() from t for no key update",
        "select inet_server_port() from t for key share skip locked",
        "select * from (select inet_server_port() from t for update) s",
        "with c as (select a from t for update) select inet_server_port() from c",
    ];
    check_goes_to_primary(&ground, &mut client, &texts);
}

#[test]
fn functions_that_may_write_and_unknown_ones_go_to_the_primary() {
    let ground = Ground::new();
    ground.prepare(
        "create sequence s;
         create function mine() returns int language sql as 'select inet_server_port()';
         create function now_mine(int) returns int language sql as 'select $1';",
    );
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let texts = [
        "select inet_server_port(), nextval('s')",
        "select inet_server_port(), setval('s', 5)",
        "select mine()",
        "select inet_server_port() where now_mine(1) = 1",
        "select inet_server_port(), pg_notify('a', 'b')",
        "select inet_server_port(), lo_creat(-1)",
        "select inet_server_port(), txid_current()",
        "select inet_server_port(), set_config('work_mem', '8MB', true)",
        "select inet_server_port(), count(*) from pg_class",
    ];
    check_goes_to_primary(&ground, &mut client, &texts);
}

#[test]
fn plain_reads_go_to_a_standby() {
    let ground = Ground::new();
    ground.prepare("create table t as select i as a, 'text ' || i as b from generate_series(1, 100) i");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let texts = [
        WHERE,
        "select inet_server_port(), count(*), max(b) from t where a between 3 and 50",
        "select inet_server_port(), upper(b) || 'x', now(), a + 1 from t order by a desc limit 3",
        "with c as (select a from t) select inet_server_port(), sum(a) over () from c",
        "select inet_server_port() from t union select inet_server_port() from t",
        "select /* a comment */ inet_server_port() -- and another",
        "  \n\tSELECT inet_server_port();",
        "values (inet_server_port())",
        "select inet_server_port() where exists (select 1 from t where b like 'text%')",
    ];
    check_goes_to_standby(&ground, &mut client, &texts);
    for text in texts {
        let port = client.extended(text, &[]).unwrap();
        assert!(ground.standby_ports().contains(&port), "{text} through the extended protocol went to {port}");
    }
}

#[test]
fn functions_an_operator_lists_as_reading_go_to_a_standby() {
    let ground = Ground::new();
    ground.prepare("create function mine() returns int language sql stable as 'select inet_server_port()'");
    let proxy = ground.proxy("read_only_function_list = 'mine'");
    check_goes_to_standby(&ground, &mut ground.client(&proxy), &["select mine()"]);
}

#[test]
fn functions_an_operator_lists_with_their_schema_go_where_the_list_says() {
    let ground = Ground::new();
    ground.prepare(
        "create function f1() returns int language sql stable as 'select inet_server_port()';
         create function f3() returns int language sql stable as 'select inet_server_port()'",
    );
    let proxy = ground.proxy("write_function_list = 'public.f3'");
    let mut client = ground.client(&proxy);
    check_goes_to_primary(&ground, &mut client, &["select f3()", "select public.f3()"]);
    check_goes_to_standby(&ground, &mut client, &["select f1()", "select public.f1()"]);
}

#[test]
fn statements_an_operator_wants_on_the_primary_go_there() {
    let ground = Ground::new();
    ground.prepare("create table orders as select 1 as a");
    let proxy = ground.proxy("primary_routing_query_pattern_list = '.*orders.*;select 7.*'");
    let mut client = ground.client(&proxy);
    check_goes_to_primary(
        &ground,
        &mut client,
        &["select inet_server_port() from orders", "SELECT inet_server_port() FROM Orders"],
    );
    check_goes_to_standby(&ground, &mut client, &["select inet_server_port(), 8"]);
}

#[test]
fn nothing_is_balanced_when_balancing_is_off() {
    let ground = Ground::new();
    let proxy = ground.proxy("load_balance_mode = off");
    check_goes_to_primary(&ground, &mut ground.client(&proxy), &[WHERE]);
}

#[test]
fn a_transaction_runs_on_one_server_from_begin_to_end() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("begin");
    for _ in 0..3 {
        assert!(ground.standby_ports().contains(&client.value(WHERE)), "a read before the first write");
    }
    client.run("insert into t values (1)");
    for _ in 0..3 {
        assert_eq!(client.value(WHERE), ground.primary_port(), "a read after it");
    }
    assert_eq!(client.value("select count(*) from t"), "1", "a transaction sees what it wrote");
    let pid = client.value("select pg_backend_pid()");
    client.run("savepoint s");
    client.error("select 1/0");
    client.run("rollback to s");
    assert_eq!(client.value("select pg_backend_pid()"), pid);
    assert_eq!(client.query("commit")[0].text(), "COMMIT");
    assert!(ground.standby_ports().contains(&client.value(WHERE)), "after it, reads are spread again");
}

#[test]
fn a_transaction_that_only_reads_runs_on_a_standby() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for begin in ["begin read only", "start transaction read only", "begin isolation level repeatable read, read only"] {
        client.run(begin);
        let port = client.value(WHERE);
        assert!(ground.standby_ports().contains(&port), "{begin}: {port}");
        if begin.contains("repeatable") {
            assert_eq!(client.value("select inet_server_port() from pg_class limit 1"), port, "all of it on one server");
        }
        let failure = client.error("insert into t values (1)");
        assert_eq!(failure.sqlstate, "25006", "{failure:?}");
        assert_eq!(client.query("commit")[0].text(), "ROLLBACK");
    }
    client.run("begin isolation level serializable, read only");
    assert_eq!(client.value(WHERE), ground.primary_port(), "a standby knows no SERIALIZABLE");
    client.run("rollback");
    let port = client.extended("begin read only", &[]).and_then(|_| client.extended(WHERE, &[])).unwrap();
    assert!(ground.standby_ports().contains(&port), "through the extended protocol: {port}");
}

#[test]
fn a_failed_transaction_stays_failed_until_it_ends() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("begin");
    assert_eq!(client.error("select 1/0").sqlstate, "22012");
    let messages = client.query(WHERE);
    assert_eq!(messages.last().unwrap().body, b"E", "ReadyForQuery says failed");
    assert_eq!(messages[0].failure().sqlstate, "25P02");
    assert_eq!(client.query("show pool_version").last().unwrap().body, b"E", "also after an answer of Weir's own");
    assert_eq!(client.query("commit")[0].text(), "ROLLBACK");
    client.run(WHERE);
}

#[test]
fn what_the_parser_refuses_goes_to_the_primary_which_says_why() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let texts = [
        "selec 1",
        "select from where",
        "select 'open",
        "select 1 1 1; select 2",
        "select \"\"",
        "create table (",
        "pgpol show all",
        "select * from no_such_table",
        "select no_such_column",
        "select $1",
    ];
    for text in texts {
        let through = client.error(text);
        assert_eq!(through, direct.error(text), "{text}");
        assert!(!through.message.is_empty());
        assert_eq!(client.extended(text, &[]).unwrap_err(), direct.extended(text, &[]).unwrap_err(), "{text}");
    }
    assert_eq!(client.value("select 1"), "1", "the session goes on");
}

#[test]
fn several_statements_in_one_string_run_on_one_server() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("select 1; insert into t values (1); select inet_server_port(); select a from t"));
    let messages = client.until_ready();
    let rows: Vec<_> = messages.iter().filter(|m| m.tag == b'D').map(|m| m.row()[0].clone().unwrap()).collect();
    assert_eq!(rows, ["1", &ground.primary_port(), "1"]);
    client.send(&wire::query("insert into t values (2); select 1/0"));
    assert_eq!(client.tags(), "CEZ");
    assert_eq!(client.value("select count(*) from t where a = 2 and pg_backend_pid() > 0"), "0", "all of it is undone");
    client.send(&wire::query(""));
    assert_eq!(client.tags(), "IZ", "an empty string");
    client.send(&wire::query("; ;"));
    assert_eq!(client.tags(), "IZ");
}

#[test]
fn reads_after_a_write_in_the_same_string_and_after_commit_and_chain_stay_on_the_primary() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("begin");
    client.run("insert into t values (1)");
    client.run("commit and chain");
    assert_eq!(client.value(WHERE), ground.primary_port());
    client.run("rollback");
    // Once a standby has replayed the first transaction.
    wait_until("a standby to be read", || ground.standby_ports().contains(&client.value(WHERE)));
}

/// Defect 6 of Pgpool-II: the first read of such a transaction has a standby's snapshot, the later ones the primary's.
#[test]
fn a_transaction_of_one_snapshot_has_one_snapshot() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let (mut client, mut other) = (ground.client(&proxy), ground.direct());
    for level in ["repeatable read", "serializable", "repeatable read, read only"] {
        client.run(&format!("begin isolation level {level}"));
        let before = client.value("select count(*) from t");
        other.run("insert into t values (1)");
        ground.cluster.wait_caught_up().unwrap();
        let port = client.value(WHERE);
        assert_eq!(client.value("select count(*) from t"), before, "{level}");
        if !level.ends_with("only") {
            client.run("insert into t values (2)");
            assert_eq!(client.value("select count(*) from t"), (before.parse::<u32>().unwrap() + 1).to_string(), "{level}");
        }
        assert_eq!(client.value(WHERE), port, "{level}");
        client.run("commit");
    }
}

/// Defect 7 of Pgpool-II: with `check_temp_table = trace` the end of one temporary table makes it forget all others.
#[test]
fn a_temporary_table_is_found_after_another_one_was_dropped() {
    let ground = Ground::new();
    for how in ["catalog", "trace", "none"] {
        let proxy = ground.proxy(&format!("check_temp_table = {how}"));
        let mut client = ground.client(&proxy);
        client.run("create temp table a2 (a int)");
        client.run("create temp table b2 as select 7 as a");
        client.run("drop table a2");
        for _ in 0..5 {
            assert_eq!(client.value("select a from b2"), "7", "{how}");
            assert_eq!(client.extended("select a from b2 where a > 1", &[]).unwrap(), "7", "{how}");
        }
        client.run("drop table b2");
        assert_eq!(client.error("select a from b2").sqlstate, "42P01", "{how}");
    }
}

/// Texts with `set_config` that differ in literals are one statement, and the literal may be a parameter.
#[test]
fn a_temporary_table_made_behind_a_local_search_path_keeps_its_connection() {
    let ground = Ground::new();
    let proxy = ground.proxy("worker_threads = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select set_config('work_mem', '5MB', true)");
    let by_literal = "select set_config('search_path', 'pg_temp', true)";
    for (turn, how) in ["literal", "parameter"].into_iter().enumerate() {
        client.run("begin");
        match how {
            "literal" => client.run(by_literal),
            _ => drop(client.extended("select set_config($1, $2, true)", &["search_path", "pg_temp"]).unwrap()),
        }
        client.run(&format!("create table hidden_{turn} (a int)"));
        client.run("commit");
        for _ in 0..4 {
            assert_eq!(client.value(&format!("select count(*) from hidden_{turn}")), "0", "{how}");
            assert_eq!(other.error(&format!("select count(*) from hidden_{turn}")).sqlstate, "42P01", "{how}");
        }
        client.run("discard all");
    }
}

/// Waits until Weir knows the statements prepared by SQL: that answer comes behind the client's own.
fn wait_for_standby(ground: &Ground, client: &mut Raw, text: &str) {
    let standbys = ground.standby_ports();
    wait_until("what was prepared to be known", || standbys.contains(&client.value(text)));
}

#[test]
fn an_execute_goes_where_the_text_may_go_that_it_was_prepared_with() {
    let ground = Ground::new();
    ground.prepare("create table t (a int, port int); insert into t values (1, 0)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("prepare reads (int, text) as select inet_server_port(), $1, $2");
    client.run("prepare \"Named\" as select inet_server_port() from t");
    client.run("prepare hinted as /*primary*/ select inet_server_port()");
    client.run("prepare writes as insert into t values (2, inet_server_port()) returning port");
    client.run("prepare locks as select inet_server_port() from t where a = 1 for update");
    client.run("prepare own (name) as select inet_server_port(), $1");
    wait_for_standby(&ground, &mut client, "execute \"Named\"");
    let reads = ["execute \"Named\"", "execute reads (1, 'x')", "EXECUTE reads (-1, null)"];
    check_goes_to_standby(&ground, &mut client, &reads);
    check_goes_to_primary(&ground, &mut client, &["execute writes", "execute locks", "execute hinted", "execute own ('x')"]);
    check_goes_to_primary(&ground, &mut client, &["/*primary*/ execute reads (1, 'x')", "execute reads (1 + 1, 'x')"]);
    assert_eq!(client.rows("show route for 'execute \"Named\"'")[0][0], "reader");
    assert_eq!(client.rows("show route for 'execute writes'")[0][0], "primary");
    let mut other = ground.client(&proxy);
    assert_eq!(other.error("execute \"Named\"").sqlstate, "26000", "it is another session's");
    client.run("deallocate \"Named\"");
    assert_eq!(client.error("execute \"Named\"").sqlstate, "26000");
    client.run("begin");
    client.run("insert into t values (3, 0)");
    assert_eq!(client.value("execute reads (1, 'x')"), ground.primary_port());
    client.run("rollback");
}

/// The name of the parameter stands in neither the EXECUTE nor the function.
#[test]
fn what_an_execute_sets_through_a_function_is_no_other_clients() {
    let ground = Ground::new();
    ground.prepare(
        "create function set_tenant(name text, value text) returns void language plpgsql as
         $$ begin perform set_config(name, value, false); end $$",
    );
    let proxy = ground.primary_proxy("pool_size = 1\nworker_threads = 1");
    let (mut owner, mut other) = (ground.client(&proxy), ground.client(&proxy));
    wait_for_catalog(&mut owner, &ground.database);
    owner.run("prepare p (text) as select set_tenant('app.tenant', $1)");
    owner.run("execute p ('5')");
    let tenant = "select coalesce(current_setting('app.tenant', true), '')";
    assert_eq!(other.value(tenant), "", "another client's");
    assert_eq!(owner.value(tenant), "5");
}

#[test]
fn an_execute_on_a_standby_shows_what_its_session_wrote() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("prepare counted (int) as select inet_server_port(), count(*) from t where a >= $1");
    wait_for_standby(&ground, &mut client, "execute counted (0)");
    let standbys = ground.standby_ports();
    let mut on_standby = 0;
    for count in 1..=20 {
        client.run("insert into t values (1)");
        let row = client.rows("execute counted (1)").remove(0);
        assert_eq!(row[1], count.to_string());
        on_standby += usize::from(standbys.contains(&row[0]));
    }
    assert!(on_standby > 0);
}

#[test]
fn an_execute_that_a_standby_behind_cannot_prepare_runs_on_the_primary() {
    let cluster = cluster(1);
    let proxy = Proxy::start(&cluster, "causal_reads = off");
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    cluster.standbys()[0].query("select pg_wal_replay_pause()").unwrap();
    client.run("create table young (a int)");
    wait_for_catalog(&mut client, "postgres");
    client.run("prepare counted as select count(*) from young");
    wait_until("a read to run again on the primary", || {
        assert_eq!(client.value("execute counted"), "0");
        proxy.metric("reads_repeated_total") > 0
    });
    for _ in 0..5 {
        assert_eq!(client.value("execute counted"), "0");
    }
    cluster.standbys()[0].query("select pg_wal_replay_resume()").unwrap();
}
