//! `transaction_replay`: a transaction is lost with its server and runs again. Its client notices nothing, or hears 40001 where the answers are not
//! the same.

use crate::lost::{Stage, seen};
use crate::support::faults::Toward;
use crate::support::ground::{Owned, cluster, wait_for_catalog};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use weir_demo::Mode;

const ON: &str = "transaction_replay = on";
const SCHEMA: &str = "create table u (a int primary key); create sequence s; create table drawn (a int default nextval('s'))";

fn stage() -> Stage {
    let stage = Stage::primary_with(&format!("{ON}\ncommit_outcome = on"));
    stage.ground.direct().run(SCHEMA);
    stage
}

fn client(stage: &Stage) -> Raw {
    let mut client = stage.client();
    // A cut may have hit the one who reads it.
    wait_until("the catalog to be read", || {
        let rows = client.rows("show pool_catalogs");
        rows.iter().any(|row| row[0] == stage.ground.database && row[1] == "current")
    });
    client
}

/// The error that the next statement hears after the connection was cut, by its code; none if it hears none.
fn after_cut(stage: &Stage, client: &mut Raw, next: &str) -> String {
    let lost = || stage.proxy.metric("server_connections_lost_total");
    let before = lost();
    stage.network.cut();
    wait_until("the loss to be noticed", || lost() > before);
    seen(&client.query(next)).into_iter().find(|word| word.starts_with("ERROR") || word.starts_with("FATAL")).unwrap_or_default()
}

#[test]
fn transactions_that_come_out_the_same_go_on() {
    let stage = stage();
    let mut direct = stage.ground.direct();
    direct.run("insert into t select generate_series(1, 5)");
    let stories: &[(&str, &[&str], &str)] = &[
        ("writes and reads", &["insert into u values (1)", "select count(*) from u", "update u set a = a"], "select a from u"),
        ("a cursor", &["declare c cursor for select a from t order by a", "fetch 2 from c"], "fetch 2 from c"),
        ("a savepoint", &["savepoint a", "insert into u values (2)", "rollback to a", "insert into u values (3)"], "release a"),
        ("a number that was drawn and not shown", &["insert into drawn default values"], "select count(*) from drawn"),
        ("a notification", &["notify news, 'x'"], "select 1"),
        (
            "a lock of the transaction",
            &["select pg_advisory_xact_lock(7)"],
            "select count(*) from pg_locks where objid = 7 and granted",
        ),
        ("settings of the transaction", &["set local work_mem = '7MB'", "show work_mem"], "show work_mem"),
    ];
    for (turn, (what, texts, next)) in stories.iter().enumerate() {
        let mut client = client(&stage);
        client.run("begin");
        texts.iter().for_each(|text| client.run(text));
        assert_eq!(after_cut(&stage, &mut client, next), "", "{what}");
        assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"], "{what}");
        assert_eq!(stage.proxy.metric("transactions_replayed_total"), turn as u64 + 1, "{what}");
    }
    assert_eq!(direct.value("select string_agg(a::text, ',' order by a) from u"), "1,3");
    assert_eq!(direct.value("select count(*) from drawn"), "1");
    assert_eq!(stage.proxy.metric("replays_refused_total"), 0);
}

/// The catalog is read while the transaction is open, so that it tells what the writes before that can have left.
#[test]
fn a_write_before_the_catalog_was_read_does_not_end_its_session() {
    for (replay, insert, table, expected) in [
        ("on", "insert into u values (1)", "plain", "ERROR 40001"),
        ("off", "insert into u values (1)", "plain", "ERROR 40001"),
        ("off", "insert into u values (1)", "with a trigger that locks", "FATAL 57P01"),
        ("off", "do 'begin insert into u values (1); end'", "plain", "FATAL 57P01"),
    ] {
        for is_extended in [false, true] {
            let case = format!("transaction_replay = {replay}: {insert} into a table {table}, extended {is_extended}");
            let stage = Stage::primary_with(&format!("transaction_replay = {replay}"));
            let mut direct = stage.ground.direct();
            direct.run("create table u (a int primary key)");
            if table != "plain" {
                let body = "begin perform pg_advisory_lock(7); return new; end";
                direct.run(&format!("create function lock_it() returns trigger language plpgsql as '{body}'"));
                direct.run("create trigger locks before insert on u for each row execute function lock_it()");
            }
            direct.run("begin");
            direct.run("lock table pg_catalog.pg_policy in access exclusive mode");
            let mut client = Raw::tcp(stage.proxy.port()).log_in("postgres", &stage.ground.database, &[]).unwrap();
            client.run("begin");
            if is_extended {
                client.extended(insert, &[]).unwrap();
            } else {
                client.run(insert);
            }
            let state = client.rows("show pool_catalogs").into_iter().find(|row| row[0] == stage.ground.database).unwrap();
            assert_eq!(state[1], "unknown", "{case}");
            direct.run("rollback");
            wait_until("the catalog to be read", || {
                let rows = client.rows("show pool_catalogs");
                rows.iter().any(|row| row[0] == stage.ground.database && row[1] == "current")
            });
            let lost = || stage.proxy.metric("server_connections_lost_total");
            let before = lost();
            stage.network.cut();
            wait_until("the loss to be noticed", || lost() > before);
            // A session that has ended takes nothing; its last words are here.
            let _ = client.try_send(&wire::query("select 2"));
            let mut said = String::new();
            while let (true, Ok(Some(message))) = (said.is_empty(), client.try_read()) {
                match message.tag {
                    b'E' => said = seen(&[message]).concat(),
                    b'Z' => break,
                    _ => {}
                }
            }
            assert_eq!(said, expected, "{case}");
        }
    }
}

#[test]
fn transactions_that_come_out_otherwise_fail() {
    let stage = stage();
    let mut direct = stage.ground.direct();
    let stories: &[(&str, &[&str], &str)] = &[
        ("rows that others changed", &["select count(*) from t"], "insert into t values (1)"),
        ("a number that was drawn and shown", &["select nextval('s')"], "select 1"),
        ("the time", &["select now()"], "select 1"),
        ("a number by chance", &["select random()"], "select 1"),
        ("a row that others have by now", &["insert into u values (5)"], "insert into u values (5)"),
    ];
    for (turn, (what, texts, change)) in stories.iter().enumerate() {
        let mut client = client(&stage);
        client.run("begin");
        texts.iter().for_each(|text| client.run(text));
        stage.network.stall_present(&[Toward::Server, Toward::Client]);
        if what.contains("others have") {
            // The server knows nothing of the loss yet and holds the row.
            direct.run("select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()");
        }
        direct.run(change);
        stage.network.cut();
        stage.network.go_on();
        assert_eq!(seen(&client.query("select 2")), ["ERROR 40001", "ZE"], "{what}");
        assert_eq!(seen(&client.query("commit")), ["ROLLBACK", "ZI"], "{what}");
        assert_eq!(stage.proxy.metric("replays_refused_total"), turn as u64 + 1, "{what}");
    }
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 0);
}

#[test]
fn what_cannot_be_repeated_does_not_run_again() {
    let stage = stage();
    stage.ground.direct().run("create function f() returns int language sql volatile as 'insert into t values (1) returning 1'");
    for (what, texts, expected) in [
        // While the catalog is not known, as after a cut, no session ends for what it does unseen.
        ("code of users", &["select f()"][..], "40001 57P01"),
        ("a statement prepared by SQL", &["prepare p as select 1", "execute p"], "57P01"),
        ("several statements in a string", &["insert into t values (1); insert into t values (2)"], "40001"),
        ("a definition", &["create table made (a int)"], "40001"),
        ("an advisory lock", &["select pg_advisory_lock(1)"], "57P01"),
        ("a temporary table", &["create temp table mine (a int)"], "40001"),
    ] {
        let mut client = client(&stage);
        client.run("begin");
        texts.iter().for_each(|text| client.run(text));
        stage.network.cut();
        // A session that has ended takes nothing; its last words are here.
        let _ = client.try_send(&wire::query("select 2"));
        let mut code = None;
        while let (None, Ok(Some(message))) = (&code, client.try_read()) {
            code = (message.tag == b'E').then(|| message.failure().sqlstate.to_string());
        }
        assert!(code.as_ref().is_some_and(|code| expected.contains(code.as_str())), "{what}: {code:?}");
    }
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 0);
}

/// A trigger that a transaction runs again, and some that act outside of the database.
const TRIGGERS: &str =
    "create extension dblink; create table far (a int); create table stamped (a int, at timestamptz); create table told (a int);
    create function stamp() returns trigger language plpgsql as 'begin new.at = now(); return new; end';
    create function tell() returns trigger language plpgsql as $$ begin
        perform dblink_exec(format('host=127.0.0.1 port=%s dbname=%s user=postgres', current_setting('port'), current_database()),
            'insert into far values (1)');
        return new; end $$;
    create trigger stamp before insert on stamped for each row execute function stamp();
    create trigger tell before insert on told for each row execute function tell()";

#[test]
fn what_acts_outside_of_the_database_is_not_repeated() {
    let stage = Stage::primary_with(ON);
    stage.ground.direct().run(TRIGGERS);
    let write = |table: &str| {
        let mut client = client(&stage);
        client.run("begin");
        client.run(&format!("insert into {table} values (1)"));
        after_cut(&stage, &mut client, "select 1")
    };
    assert_eq!(write("stamped"), "");
    assert_eq!(write("told"), "ERROR 40001");
    let mut direct = stage.ground.direct();
    assert_eq!(direct.value("select count(*) from far"), "1", "it was told once");
    direct.run(
        "create extension postgres_fdw; create server loop foreign data wrapper postgres_fdw; create user mapping for public server loop options (user 'postgres');
         create foreign table remote (a int) server loop options (table_name 'far')",
    );
    direct.run(
        "do $$ begin execute format('alter server loop options (add host ''127.0.0.1'', add port %L, add dbname %L)', \
         current_setting('port'), current_database()); end $$",
    );
    assert_eq!(write("remote"), "ERROR 40001");
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 1);
}

/// A statement whose server ends under it is sent once more, and not again and again.
#[test]
fn a_statement_that_its_servers_do_not_survive_is_sent_twice() {
    let stage = Stage::primary_with(ON);
    let mut direct = stage.ground.direct();
    direct.run(
        "create sequence runs; create table slow (a int); create function wait() returns trigger language plpgsql as \
         'begin perform nextval(''runs''); perform pg_sleep(100); return new; end'; \
         create trigger wait before insert on slow for each row execute function wait()",
    );
    let mut client = client(&stage);
    client.run("begin");
    client.run("insert into t values (1)");
    client.send(&wire::query("insert into slow values (1)"));
    for run in ["1", "2"] {
        wait_until("the statement to run", || {
            direct.value("select count(*) filter (where is_called) * max(last_value) from runs") == run
        });
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
            where datname = current_database() and query like 'insert into slow%' and pid <> pg_backend_pid()";
        direct.run(end);
    }
    assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZE"]);
    assert_eq!(direct.value("select last_value from runs"), "2");
    assert_eq!(stage.proxy.metric("transactions_lost_total"), 1);
}

#[test]
fn a_copy_from_the_client_does_not_run_again() {
    let stage = stage();
    for is_over in [true, false] {
        let mut client = client(&stage);
        client.run("begin");
        client.send(&wire::query("copy t from stdin"));
        assert_eq!(client.read().tag, b'G');
        client.send(&wire::copy_data(b"1\n"));
        if is_over {
            client.send(&wire::copy_done());
            assert_eq!(seen(&client.until_ready()), ["COPY 1", "ZT"]);
            assert_eq!(after_cut(&stage, &mut client, "select 1"), "ERROR 40001");
        } else {
            stage.network.cut();
            assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZE"]);
        }
        client.run("rollback");
    }
    assert_eq!(stage.ground.direct().value("select count(*) from t"), "0");
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 0);
    // The transaction behind a copy does.
    let mut client = client(&stage);
    client.send(&wire::query("copy t from stdin"));
    assert_eq!(client.read().tag, b'G');
    client.send(&[wire::copy_data(b"1\n"), wire::copy_done()].concat());
    assert_eq!(seen(&client.until_ready()), ["COPY 1", "ZI"]);
    client.run("begin");
    client.run("insert into u values (1)");
    assert_eq!(after_cut(&stage, &mut client, "select 1"), "");
    assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 1);
}

/// An acknowledged write would be missing if only what follows ran again.
#[test]
fn replay_begins_and_ends_with_the_word_for_it() {
    let stage = Stage::primary_with("commit_outcome = on");
    let mut first = client(&stage);
    first.run("begin");
    first.run("insert into t values (1)");
    first.run("pgpool set weir.transaction_replay = on");
    assert_eq!(after_cut(&stage, &mut first, "commit"), "ERROR 40001");
    first.run("begin");
    first.run("insert into t values (2)");
    assert_eq!(after_cut(&stage, &mut first, "select 1"), "");
    first.run("commit");
    first.run("set weir.transaction_replay = off");
    first.run("begin");
    first.run("insert into t values (3)");
    assert_eq!(after_cut(&stage, &mut first, "select 1"), "ERROR 40001");
    assert_eq!(stage.ground.direct().value("select string_agg(a::text, ',' order by a) from t"), "2");
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 1);
}

#[test]
fn an_error_that_was_shown_comes_again() {
    let stage = stage();
    stage.ground.direct().run("insert into u values (1)");
    let mut client = client(&stage);
    client.run("begin");
    client.run("savepoint a");
    assert_eq!(client.error("insert into u values (1)").sqlstate, "23505");
    client.run("rollback to a");
    client.run("insert into u values (2)");
    assert_eq!(after_cut(&stage, &mut client, "select count(*) from u"), "");
    assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 1);
}

/// A statement of either protocol is under way in a pipeline, or prepared before.
#[test]
fn pipelines_and_prepared_statements_run_again() {
    let stage = stage();
    let mut client = client(&stage);
    client.send(&[wire::parse("before", "insert into u values ($1)"), wire::sync()].concat());
    client.until_ready();
    client.run("begin");
    client.send(
        &[wire::run("before", &["1"]), wire::parse("within", "insert into u values ($1) returning a"), wire::sync()].concat(),
    );
    client.until_ready();
    client.send(&[wire::run("within", &["2"]), wire::run("within", &["3"]), wire::sync()].concat());
    client.until_ready();
    stage.network.cut();
    client.send(&[wire::run("within", &["4"]), wire::run("before", &["5"]), wire::sync()].concat());
    assert_eq!(seen(&client.until_ready()), ["2", "D", "INSERT 0 1", "2", "INSERT 0 1", "ZT"]);
    // All of it once more, with statements whose answers are lost.
    stage.network.stall_present(&[Toward::Client]);
    client.send(&[wire::run("within", &["6"]), wire::unnamed("select count(*) from u", &[]), wire::sync()].concat());
    let mut direct = stage.ground.direct();
    let text =
        "select count(*) from pg_stat_activity where state = 'idle in transaction' and query like 'select count(*) from u%'";
    wait_until("the pipeline to run", || direct.value(text) == "1");
    stage.network.cut();
    stage.network.go_on();
    assert_eq!(seen(&client.until_ready()), ["2", "D", "INSERT 0 1", "1", "2", "D", "SELECT 1", "ZT"]);
    assert_eq!(seen(&client.query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(direct.value("select string_agg(a::text, ',' order by a) from u"), "1,2,3,4,5,6");
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 2);
}

#[test]
fn a_commit_that_was_proved_to_be_rolled_back_runs_again() {
    let stage = stage();
    let mut client = client(&stage);
    client.run("begin");
    client.run("insert into u values (1)");
    stage.network.stall_present(&[Toward::Server, Toward::Client]);
    client.send(&wire::query("commit"));
    assert!(client.is_silent_for(std::time::Duration::from_millis(100)));
    stage.network.cut();
    stage.network.go_on();
    assert_eq!(seen(&client.until_ready()), ["COMMIT", "ZI"]);
    assert_eq!(stage.ground.direct().value("select count(*) from u"), "1");
    assert_eq!(stage.proxy.metric("outcomes_rolled_back_total"), 1);
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 1);
}

#[test]
fn a_commit_does_not_run_again_if_others_have_changed_what_was_shown() {
    let stage = stage();
    let mut direct = stage.ground.direct();
    let last = |round: usize| match round % 3 {
        0 => wire::query("commit"),
        1 => [wire::unnamed("commit", &[]), wire::sync()].concat(),
        _ => [wire::unnamed("insert into u values (100)", &[]), wire::unnamed("commit", &[]), wire::sync()].concat(),
    };
    // Others make the answer longer, and then shorter.
    for (round, change) in ["insert into t select generate_series(1, 3)", "delete from t"].into_iter().cycle().take(6).enumerate()
    {
        let mut client = client(&stage);
        client.run("begin");
        client.run("select a from t");
        client.run(&format!("insert into u values ({round})"));
        stage.network.stall_present(&[Toward::Server, Toward::Client]);
        client.send(&last(round / 2));
        assert!(client.is_silent_for(std::time::Duration::from_millis(100)));
        direct.run(change);
        stage.network.cut();
        stage.network.go_on();
        let heard = seen(&client.until_ready());
        let [.., error, ready] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!((error.as_str(), ready.as_str()), ("ERROR 40001", "ZI"), "{round}");
        assert_eq!(direct.value("select count(*) from u"), "0", "{round}: nothing of it was committed");
    }
    assert_eq!(stage.proxy.metric("transactions_replayed_total"), 0);
}

/// As drivers do that prepare everything, BEGIN and COMMIT among it.
#[test]
fn a_transaction_of_prepared_statements_only_runs_again_as_one() {
    let stage = stage();
    let mut direct = stage.ground.direct();
    direct.run("insert into t values (1)");
    let texts = [("b", "begin"), ("s", "select count(*) from t"), ("i", "insert into u values ($1)"), ("c", "commit")];
    for (round, change) in ["", "insert into t values (2)"].into_iter().enumerate() {
        let mut client = client(&stage);
        for (name, text) in texts {
            client.send(&[wire::parse(name, text), wire::sync()].concat());
            client.until_ready();
        }
        let mut turn = |messages: Vec<Vec<u8>>, waits: bool| {
            client.send(&[messages.concat(), wire::sync()].concat());
            if waits { seen(&client.until_ready()) } else { Vec::new() }
        };
        for (first, second) in [("10", "11"), ("20", "21")] {
            let is_last = first == "20";
            turn(vec![wire::run("b", &[])], true);
            turn(vec![wire::run("s", &[])], true);
            turn(vec![wire::run("i", &[&format!("{round}{first}")])], true);
            turn(vec![wire::run("i", &[&format!("{round}{second}")])], true);
            if is_last {
                stage.network.stall_present(&[Toward::Server, Toward::Client]);
            }
            turn(vec![wire::run("c", &[])], !is_last);
        }
        assert!(client.is_silent_for(std::time::Duration::from_millis(100)));
        if !change.is_empty() {
            direct.run(change);
        }
        stage.network.cut();
        stage.network.go_on();
        let heard = seen(&client.until_ready());
        let expected: &[&str] = if change.is_empty() { &["2", "COMMIT", "ZI"] } else { &["ERROR 40001", "ZI"] };
        assert_eq!(heard, expected, "{change}");
    }
    assert_eq!(direct.value("select string_agg(a::text, ',' order by a) from u"), "10,11,20,21,110,111");
}

/// A primary and a standby; the test promotes.
fn failover_stage() -> (Owned, Proxy) {
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int primary key)").unwrap();
    cluster.wait_caught_up().unwrap();
    let backends: Vec<Backend> =
        cluster.servers().iter().zip([1, 0]).map(|(server, weight)| Backend::tcp(server.port(), weight)).collect();
    let proxy = Proxy::spawn(&backends, &format!("pool_size = 60\n{ON}"));
    proxy.wait_for_nodes(2);
    (cluster, proxy)
}

/// With a synchronous standby all that a transaction has read is there as well.
#[test]
fn transactions_of_a_load_go_through_a_failover() {
    const CLIENTS: u32 = 8;
    let (cluster, proxy) = failover_stage();
    cluster.primary().query("alter system set synchronous_standby_names = '*'").unwrap();
    cluster.primary().reload().unwrap();
    wait_until("the standby to be synchronous", || {
        cluster.primary().value("select count(*) from pg_stat_replication where sync_state = 'sync'").unwrap() == "1"
    });
    let mut first = proxy.console();
    wait_for_catalog(&mut first, "postgres");
    let (is_over, failed, unknown) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let mut done: Vec<u32> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (mut client, is_over, failed, unknown) = (proxy.console(), &is_over, &failed, &unknown);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for value in number * 1_000_000.. {
                        if is_over.load(Ordering::SeqCst) {
                            return done;
                        }
                        let texts = [
                            "begin".to_owned(),
                            format!("insert into t values ({value})"),
                            format!("select a from t where a = {value}"),
                            "commit".to_owned(),
                        ];
                        let heard: Vec<String> = texts.iter().flat_map(|text| seen(&client.query(text))).collect();
                        match heard.iter().find(|word| word.starts_with("ERROR")).map(String::as_str) {
                            None => done.push(value),
                            Some("ERROR 08007") => drop(unknown.fetch_add(1, Ordering::SeqCst)),
                            Some("ERROR 40001") => drop(failed.fetch_add(1, Ordering::SeqCst)),
                            Some(other) => panic!("{value}: {other}"),
                        }
                        client.run("rollback");
                    }
                    done
                })
            })
            .collect();
        let story = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let written = |server: &weir_demo::Server, at_least: u32| {
                wait_until("writes to be made", || {
                    server.value("select count(*) from t").is_ok_and(|count| count.parse::<u32>().unwrap() > at_least)
                });
            };
            written(cluster.primary(), 200);
            cluster.primary().stop(Mode::Immediate).unwrap();
            cluster.standbys()[0].promote().unwrap();
            let before: u32 = cluster.standbys()[0].value("select count(*) from t").unwrap().parse().unwrap();
            written(&cluster.standbys()[0], before + 200);
        }));
        is_over.store(true, Ordering::SeqCst);
        let done = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        story.unwrap();
        done
    });
    let rows = cluster.standbys()[0].query("select a from t").unwrap();
    let there: Vec<u32> = rows.into_iter().flatten().flatten().map(|a| a.parse().unwrap()).collect();
    done.sort_unstable();
    let missing: Vec<_> = done.iter().filter(|value| !there.contains(value)).collect();
    assert!(missing.is_empty(), "acknowledged and missing: {missing:?}");
    let (replayed, failed, unknown) = (proxy.metric("transactions_replayed_total"), failed.into_inner(), unknown.into_inner());
    eprintln!("failover: {replayed} ran again, {failed} failed, {unknown} unknown");
    assert_eq!(failed, 0);
}

#[test]
fn a_transaction_waits_for_the_next_primary_and_no_longer_than_it_may() {
    let (cluster, proxy) = failover_stage();
    let mut clients: Vec<Raw> = (0..2).map(|_| proxy.console()).collect();
    wait_for_catalog(&mut clients[0], "postgres");
    for (value, client) in clients.iter_mut().enumerate() {
        client.run("begin");
        client.run(&format!("insert into t values ({value})"));
    }
    let (pid, key) = (clients[1].pid, clients[1].key.clone());
    cluster.primary().kill9().unwrap();
    clients[1].send(&wire::query("select 1"));
    assert!(clients[1].is_silent_for(std::time::Duration::from_millis(200)));
    Raw::tcp(proxy.port()).send(&wire::cancel(pid, &key));
    assert_eq!(seen(&clients[1].until_ready()), ["ERROR 40001", "ZE"]);
    cluster.standbys()[0].promote().unwrap();
    clients[0].run("insert into t values (10)");
    assert_eq!(seen(&clients[0].query("commit")), ["COMMIT", "ZI"]);
    assert_eq!(cluster.standbys()[0].value("select string_agg(a::text, ',' order by a) from t").unwrap(), "0,10");
}
