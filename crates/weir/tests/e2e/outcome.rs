//! `commit_outcome`: the answer to a COMMIT is lost, before or after the COMMIT ran, and its client hears the truth.

use crate::lost::{Stage, seen};
use crate::support::faults::{Network, Toward};
use crate::support::ground::{Owned, cluster_with, wait_for_catalog};
use crate::support::proxy::Backend;
use crate::support::raw::Message;
use crate::support::time::let_pass;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use weir_demo::Options;
use weir_failover::commit_outcome::RESTART_MS;

const ON: &str = "commit_outcome = on";

/// A COMMIT by either protocol.
fn commit(by_protocol: bool) -> Vec<u8> {
    if by_protocol { [wire::unnamed("commit", &[]), wire::sync()].concat() } else { wire::query("commit") }
}

/// The answer that a client heard, in a word.
fn heard(messages: &[Message]) -> String {
    let seen = seen(messages);
    seen.iter().find(|word| word.starts_with("ERROR") || *word == "COMMIT").cloned().unwrap_or_default()
}

/// Servers tell the time of a checkpoint to the second: within it nobody knows if it was one after a crash.
fn wait_run_on(direct: &mut Raw) {
    let has_run = "select date_trunc('second', clock_timestamp()) > checkpoint_time from pg_control_checkpoint()";
    wait_until("the last checkpoint to be of an earlier second", || direct.value(has_run) == "t");
}

#[test]
fn a_commit_whose_answer_is_lost_after_it_ran_is_answered_as_ever() {
    let stage = Stage::primary_with(ON);
    let mut direct = stage.ground.direct();
    wait_run_on(&mut direct);
    for (round, by_protocol) in [false, true].into_iter().enumerate() {
        let mut client = stage.client();
        client.run("begin");
        client.run(&format!("insert into t values ({round})"));
        stage.network.stall_present(&[Toward::Client]);
        client.send(&commit(by_protocol));
        wait_until("the commit", || direct.value(&format!("select count(*) from t where a = {round}")) == "1");
        stage.network.cut();
        stage.network.go_on();
        let expected: &[&str] = if by_protocol { &["1", "2", "COMMIT", "ZI"] } else { &["COMMIT", "ZI"] };
        assert_eq!(seen(&client.until_ready()), expected);
        assert_eq!(client.value(&format!("select count(*) from t where a = {round}")), "1");
    }
    assert_eq!(stage.proxy.metric("outcomes_committed_total"), 2);
    assert_eq!(stage.proxy.metric("outcomes_unknown_total"), 0);
}

#[test]
fn a_commit_that_never_ran_is_rolled_back() {
    let stage = Stage::primary_with(ON);
    for by_protocol in [false, true] {
        let mut client = stage.client();
        client.run("begin");
        client.run("insert into t values (1)");
        stage.network.stall_present(&[Toward::Server, Toward::Client]);
        client.send(&commit(by_protocol));
        assert!(client.is_silent_for(Duration::from_millis(100)));
        stage.network.cut();
        stage.network.go_on();
        assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZI"]);
        assert_eq!(client.value("select count(*) from t"), "0");
    }
    assert_eq!(stage.proxy.metric("outcomes_rolled_back_total"), 2);
}

/// A savepoint has a number of its own, which says nothing of the transaction's.
#[test]
fn the_outcome_of_a_transaction_with_savepoints_is_its_own() {
    let stage = Stage::primary_with(ON);
    let mut direct = stage.ground.direct();
    wait_run_on(&mut direct);
    for (stalled, expected, there) in
        [(&[Toward::Client][..], "COMMIT", "2,4"), (&[Toward::Server, Toward::Client], "ERROR 40001", "2,4")]
    {
        let mut client = stage.client();
        client.run("begin");
        client.run("savepoint a");
        client.run("insert into t values (1)");
        client.run("rollback to a");
        client.run("insert into t values (2)");
        client.run("savepoint b");
        client.run("insert into t values (4)");
        client.run("release b");
        stage.network.stall_present(stalled);
        client.send(&commit(false));
        if expected == "COMMIT" {
            wait_until("the commit", || direct.value("select count(*) from t") == "2");
        } else {
            assert!(client.is_silent_for(Duration::from_millis(100)));
        }
        stage.network.cut();
        stage.network.go_on();
        assert_eq!(seen(&client.until_ready()), [expected, "ZI"]);
        assert_eq!(client.value("select string_agg(a::text, ',' order by a) from t"), there);
    }
    assert_eq!(stage.proxy.metric("outcomes_unknown_total"), 0);
}

/// It does not matter if such a COMMIT ran.
#[test]
fn the_commit_of_a_transaction_that_has_only_read_is_answered() {
    let stage = Stage::primary_with(ON);
    let mut client = stage.client();
    wait_for_catalog(&mut client, &stage.ground.database);
    for (begin, text, expected) in [
        ("begin", "select count(*) from t", "COMMIT"),
        ("begin isolation level repeatable read read only", "select count(*) from t", "COMMIT"),
        ("begin isolation level serializable", "select count(*) from t", "ERROR 08007"),
        ("begin", "select pg_notify('news', 'x')", "ERROR 08007"),
        ("begin", "notify news", "ERROR 08007"),
        ("begin", "lock table t", "ERROR 08007"),
    ] {
        client.run(begin);
        client.run(text);
        stage.network.stall_present(&[Toward::Server, Toward::Client]);
        client.send(&commit(false));
        assert!(client.is_silent_for(Duration::from_millis(100)));
        stage.network.cut();
        stage.network.go_on();
        assert_eq!(seen(&client.until_ready()), [expected, "ZI"], "{begin}; {text}");
    }
    assert_eq!(stage.proxy.metric("outcomes_committed_total"), 2);
}

/// The connection breaks at any moment around the COMMIT.
#[test]
fn outcomes_are_exact_whenever_the_connection_breaks() {
    const ROUNDS: usize = 60;
    let stage = Stage::primary_with(ON);
    let mut direct = stage.ground.direct();
    let (mut doubts, mut unknown) = (0, 0);
    for round in 0..ROUNDS {
        let mut client = stage.client();
        let begins = |client: &mut Raw| {
            client.run("rollback");
            client.run("begin");
            client.try_rows(&format!("insert into t values ({round})")).is_ok()
        };
        // The network may still be busy with the cut before.
        wait_until("the write", || begins(&mut client));
        client.send(&commit(round % 2 == 0));
        let_pass(Duration::from_micros(150 * (round as u64 % 30)));
        stage.network.cut();
        let heard = heard(&client.until_ready());
        let is_there = direct.value(&format!("select count(*) from t where a = {round}")) == "1";
        match heard.as_str() {
            "COMMIT" => assert!(is_there, "{round}: said to be committed"),
            "ERROR 40001" => assert!(!is_there, "{round}: said to be rolled back"),
            "ERROR 08007" => unknown += 1,
            other => panic!("{round}: {other}"),
        }
        doubts += 1;
    }
    let (committed, rolled_back) =
        (stage.proxy.metric("outcomes_committed_total"), stage.proxy.metric("outcomes_rolled_back_total"));
    eprintln!("{doubts} breaks: {committed} proved committed, {rolled_back} proved rolled back, {unknown} unknown");
    assert!(unknown * 20 <= ROUNDS, "{unknown} of {ROUNDS} are unknown");
    assert!(committed + rolled_back > 0);
}

/// The servers of a failover that Weir makes. A COMMIT waits for the standby.
fn servers() -> Owned {
    let extra_conf = vec![("synchronous_standby_names".to_owned(), "ANY 1 (standby1, standby2)".to_owned())];
    let cluster = cluster_with(Options { standbys: 2, extra_conf, ..Options::default() });
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

fn builtin(cluster: &Owned) -> Proxy {
    let conf = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
        health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nfailover_lag_max = -1\n\
        backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\nbackend_application_name2 = 'standby2'\n\
        pool_size = 40\ncommit_outcome = on";
    let proxy = Proxy::start(cluster, conf);
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    proxy
}

/// A client's writes by what it was told.
#[derive(Default)]
struct Ledger {
    done: Vec<u32>,
    failed: Vec<u32>,
    unknown: Vec<u32>,
}

fn write_on(mut client: Raw, first: u32, is_over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::default();
    for value in first.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let mut answers = client.query("begin");
        answers.extend(client.query(&format!("insert into t values ({value})")));
        client.send(&commit(value % 2 == 0));
        answers.extend(client.until_ready());
        match heard(&answers.into_iter().filter(|message| message.tag == b'E' || message.tag == b'C').collect::<Vec<_>>())
            .as_str()
        {
            "COMMIT" => ledger.done.push(value),
            "ERROR 08007" => ledger.unknown.push(value),
            "ERROR 40001" | "ERROR 57P03" => ledger.failed.push(value),
            other => panic!("{value}: {other}"),
        }
        client.run("rollback");
    }
    ledger
}

/// Others take numbers of lost transactions again as soon as the new primary takes writes. Of two proxies one promotes it, and both know its numbers.
#[test]
fn a_failover_under_load_leaves_no_outcome_unknown_and_gives_nobody_another_ones() {
    const CLIENTS: u32 = 16;
    for proxies in [1, 2] {
        let cluster = servers();
        let proxies: Vec<Proxy> = (0..proxies).map(|_| builtin(&cluster)).collect();
        let is_over = AtomicBool::new(false);
        let ledgers: Vec<Ledger> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .zip(proxies.iter().cycle())
                .map(|(number, proxy)| {
                    let (client, is_over) = (proxy.console(), &is_over);
                    scope.spawn(move || write_on(client, number * 1_000_000, is_over))
                })
                .collect();
            let story = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let written = |server: &weir_demo::Server, at_least: u32| {
                    wait_until("writes to be made", || {
                        server.value("select count(*) from t").is_ok_and(|count| count.parse::<u32>().unwrap() > at_least)
                    });
                };
                written(cluster.primary(), 500);
                cluster.primary().kill9().unwrap();
                for proxy in &proxies {
                    wait_until("a new primary", || proxy.log().contains("failover done"));
                }
                let new = new_primary(&cluster);
                let before: u32 = new.value("select count(*) from t").unwrap().parse().unwrap();
                written(new, before + 200);
            }));
            is_over.store(true, Ordering::SeqCst);
            let ledgers = clients.into_iter().map(|client| client.join().unwrap()).collect();
            story.unwrap();
            ledgers
        });
        check(&cluster, &proxies, &ledgers);
    }
}

/// No client was told anything but the truth.
fn check(cluster: &Owned, proxies: &[Proxy], ledgers: &[Ledger]) {
    let rows = new_primary(cluster).query("select a from t").unwrap();
    let there: Vec<u32> = rows.into_iter().flatten().flatten().map(|a| a.parse().unwrap()).collect();
    let unique: HashSet<u32> = there.iter().copied().collect();
    assert_eq!(unique.len(), there.len(), "nothing was written twice");
    let unknown: usize = ledgers.iter().map(|ledger| ledger.unknown.len()).sum();
    for proxy in proxies {
        let (committed, rolled_back) = (proxy.metric("outcomes_committed_total"), proxy.metric("outcomes_rolled_back_total"));
        eprintln!("failover: {committed} proved committed, {rolled_back} proved rolled back, {unknown} of all unknown");
    }
    for ledger in ledgers {
        let missing: Vec<_> = ledger.done.iter().filter(|value| !unique.contains(value)).collect();
        assert!(missing.is_empty(), "acknowledged and missing: {missing:?}");
        let wrong: Vec<_> = ledger.failed.iter().filter(|value| unique.contains(value)).collect();
        assert!(wrong.is_empty(), "said to be rolled back, and there: {wrong:?}");
    }
    let doubtful: usize = proxies.iter().map(|proxy| doubtful(&proxy.log())).sum();
    assert_eq!(unknown, doubtful, "unknown to clients, and excused:\n{}", causes(proxies, ledgers));
}

/// Writes that are unknown, and all that the proxies say of such.
fn causes(proxies: &[Proxy], ledgers: &[Ledger]) -> String {
    let mut text: String = ledgers.iter().flat_map(|ledger| &ledger.unknown).map(|value| format!("row {value}\n")).collect();
    for proxy in proxies {
        let _ = writeln!(text, "proxy {}: {} unknown", proxy.port(), proxy.metric("outcomes_unknown_total"));
        let log = proxy.log();
        let tells = |line: &&str| ["is unknown", "has no effect", "lost: "].iter().any(|words| line.contains(words));
        log.lines().filter(tells).for_each(|line| text.extend([line, "\n"]));
    }
    text
}

/// Lines on outcomes that stay unknown because others committed on the old primary for so long after its last answer that it might have been started anew.
fn doubtful(log: &str) -> usize {
    let after = |line: &str, word: &str| -> Option<u64> { line.split_once(word)?.1.split(',').next()?.trim().parse().ok() };
    let is_doubtful = |line: &&str| {
        let times = after(line, ", alive").zip(after(line, ", last"));
        line.contains("is unknown: Committed on node") && times.is_some_and(|(alive, last)| last > alive + RESTART_MS)
    };
    log.lines().filter(is_doubtful).count()
}

fn new_primary(cluster: &Owned) -> &weir_demo::Server {
    let is_primary = |server: &&weir_demo::Server| server.is_running() && server.in_recovery().is_ok_and(|recovers| !recovers);
    cluster.standbys().iter().find(is_primary).expect("a standby was promoted")
}

/// A table whose rows hold the COMMIT of their transaction up on the server.
const SLOW: &str = "create table slow (a int); create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(100); return null; end'; \
    create constraint trigger wait after insert on slow deferrable initially deferred for each row execute function wait()";

/// One of them promotes the standby, and the other learns the numbers from it.
#[test]
fn of_two_proxies_both_know_what_was_not_committed() {
    let cluster = servers();
    cluster.primary().query(SLOW).unwrap();
    cluster.wait_caught_up().unwrap();
    let proxies = [builtin(&cluster), builtin(&cluster)];
    let mut clients: Vec<Raw> = proxies.iter().map(Proxy::console).collect();
    for client in &mut clients {
        client.run("begin");
        client.run("insert into slow values (1)");
        client.send(&commit(false));
    }
    let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the commits to run", || cluster.primary().value(asleep).unwrap() == "2");
    cluster.primary().kill9().unwrap();
    for (client, proxy) in clients.iter_mut().zip(&proxies) {
        assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZI"]);
        assert_eq!((proxy.metric("outcomes_rolled_back_total"), proxy.metric("outcomes_unknown_total")), (1, 0));
    }
    assert_eq!(new_primary(&cluster).value("select count(*) from slow").unwrap(), "0");
}

/// The standby never hears of the lost transaction, and gives its number to another who commits at once.
#[test]
fn a_number_that_was_given_out_again_is_not_taken_for_the_clients() {
    let cluster = cluster_with(Options { standbys: 2, ..Options::default() });
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.primary().query(SLOW).unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = builtin(&cluster);
    for standby in cluster.standbys() {
        standby.query("alter system set primary_conninfo = ''").unwrap();
        standby.reload().unwrap();
        wait_until("the standby to hear nothing", || standby.value("select count(*) from pg_stat_wal_receiver").unwrap() == "0");
    }
    let mut client = proxy.console();
    client.run("begin");
    client.run("insert into slow values (1)");
    let number = client.value("select txid_current()");
    client.send(&commit(false));
    let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the commit to run", || cluster.primary().value(asleep).unwrap() == "1");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for standby in cluster.standbys() {
            let (mut writer, is_over) = (Raw::tcp(standby.port()).log_in("postgres", "postgres", &[]).unwrap(), &is_over);
            // It takes numbers as soon as its server gives any out.
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    drop(writer.query("insert into t values (1)"));
                }
            });
        }
        cluster.primary().kill9().unwrap();
        let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| seen(&client.until_ready())));
        is_over.store(true, Ordering::SeqCst);
        // Unknown, if the others were faster than Weir's look at the numbers that the new primary begins with.
        let heard = heard.unwrap();
        assert!(heard == ["ERROR 40001", "ZI"] || heard == ["ERROR 08007", "ZI"], "{heard:?}");
    });
    assert_eq!(new_primary(&cluster).value(&format!("select txid_status({number})")).unwrap(), "committed", "by another");
    assert_eq!(new_primary(&cluster).value("select count(*) from slow").unwrap(), "0");
}

/// Weir did not see the promotion: it does not know which numbers were given out again.
#[test]
fn a_promotion_by_others_leaves_the_outcome_unknown() {
    let cluster = cluster_with(Options { standbys: 1, ..Options::default() });
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.primary().query(SLOW).unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut client = proxy.console();
    client.run("begin");
    client.run("insert into slow values (1)");
    client.send(&commit(false));
    let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the commit to run", || cluster.primary().value(asleep).unwrap() == "1");
    cluster.primary().kill9().unwrap();
    cluster.standbys()[0].promote().unwrap();
    assert_eq!(seen(&client.until_ready()), ["ERROR 08007", "ZI"]);
    assert_eq!(client.value("select count(*) from slow"), "0");
}

/// Processes begin anew, and numbers may have been given out again. That a transaction was not committed is certain all the same.
#[test]
fn a_server_that_has_crashed_tells_of_what_it_has_not_committed() {
    let cluster = cluster_with(Options { standbys: 0, ..Options::default() });
    let server = cluster.primary();
    server.query("create table t (a int)").unwrap();
    let network = Network::to(server.port());
    let proxy = Proxy::spawn(&[Backend::tcp(network.port(), 1)], ON);
    proxy.wait_for_nodes(1);
    let mut client = proxy.console();
    client.run("begin");
    client.run("insert into t values (1)");
    network.stall_present(&[Toward::Server, Toward::Client]);
    client.send(&commit(false));
    assert!(client.is_silent_for(Duration::from_millis(100)));
    // One process that dies takes all along; the postmaster stays.
    let pid: i32 = server.value("select pid from pg_stat_activity where query like 'insert%' limit 1").unwrap().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    wait_until("the server to be back", || server.value("select count(*) from t").is_ok());
    network.cut();
    network.go_on();
    assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZI"]);
    assert_eq!(client.value("select count(*) from t"), "0");
}

#[test]
fn a_user_has_it_by_the_list_and_a_session_by_its_own_choice() {
    let stage = Stage::primary_with("limit_override_list = 'user=postgres: commit_outcome=on'");
    for (set, expected) in
        [("select 1", "COMMIT"), ("set weir.commit_outcome = off", "ERROR 08007"), ("set weir.commit_outcome = on", "COMMIT")]
    {
        let mut client = stage.client();
        client.run(set);
        client.run("begin");
        client.run("insert into t values (1)");
        stage.network.stall_present(&[Toward::Client]);
        client.send(&commit(false));
        let mut direct = stage.ground.direct();
        wait_until("the commit", || direct.value("select count(*) from t") == "1");
        stage.network.cut();
        stage.network.go_on();
        assert_eq!(heard(&client.until_ready()), expected, "{set}");
        direct.run("truncate t");
    }
}

/// The question for a transaction's number needs a statement of Weir's on the connection: code may have taken it away.
#[test]
fn a_transaction_goes_on_where_code_has_deallocated_all() {
    let stage = Stage::primary_with("commit_outcome = on\npool_size = 1");
    let mut direct = stage.ground.direct();
    direct.run(
        "create function forgets() returns int language plpgsql as 'begin deallocate all; return 1; end'; \
         create function forgets_by_trigger() returns trigger language plpgsql as 'begin deallocate all; return new; end'; \
         create table watched (a int); \
         create trigger forgets before insert on watched for each row execute function forgets_by_trigger()",
    );
    let mut count = 0;
    for deallocates in [
        "do $$ begin execute 'deallocate all'; end $$",
        "select forgets()",
        "insert into watched values (1)",
        "deallocate all",
        "do $$ declare n text; begin for n in select name from pg_prepared_statements loop execute format('deallocate %I', n); \
         end loop; end $$",
    ] {
        let mut one = stage.client();
        let mut within = |before: &[&str], text: &str, after: &[&str]| {
            before.iter().for_each(|text| one.run(text));
            one.try_rows(text).unwrap_or_else(|failure| panic!("{deallocates}: {before:?} {text}: {failure:?}"));
            after.iter().for_each(|text| one.run(text));
        };
        within(&["begin"], "insert into t values (1)", &["commit"]);
        within(&["begin", deallocates], "insert into t values (1)", &["commit"]);
        within(&["begin", deallocates, "savepoint a"], "insert into t values (1)", &["rollback"]);
        within(&[deallocates, "begin"], "insert into t values (1)", &["commit"]);
        one.run(deallocates);
        drop(one);
        // Another session, which has done nothing.
        let mut other = stage.client();
        other.run("begin");
        other.run("insert into t values (1)");
        other.run("commit");
        count += 4;
        assert_eq!(direct.value("select count(*) from t"), count.to_string(), "{deallocates}");
    }
}

/// Without the right to ask for it there is no outcome, and all else goes on. The log says so once for each user.
#[test]
fn a_user_who_may_not_ask_for_the_number_has_no_outcome_and_writes_all_the_same() {
    let stage = Stage::primary_with("commit_outcome = on\npool_size = 4");
    let (database, mut direct) = (stage.ground.database.clone(), stage.ground.direct());
    direct.run(
        "drop role if exists asks_nothing; drop role if exists asks_by_right; \
         create role asks_nothing login; create role asks_by_right login; grant asks_nothing to asks_by_right; \
         grant all on t to asks_nothing, asks_by_right; grant usage on schema public to asks_nothing, asks_by_right; \
         grant execute on function pg_control_system() to asks_nothing, asks_by_right",
    );
    let log_in = |user: &str| Raw::tcp(stage.proxy.port()).log_in(user, &database, &[]).unwrap();
    for function in ["txid_current()", "txid_current_if_assigned()"] {
        direct.run(&format!(
            "revoke execute on function {function} from public; grant execute on function {function} to asks_by_right"
        ));
    }
    for user in ["asks_nothing", "asks_by_right"] {
        for within in [&[][..], &["set local role asks_nothing"], &["set role asks_nothing"]] {
            let mut client = log_in(user);
            for _ in 0..2 {
                client.run("begin");
                within.iter().for_each(|text| client.run(text));
                client.run("insert into t values (1)");
                client.run("commit");
            }
            // By the protocol, in one write.
            client.send(
                &[
                    wire::unnamed("begin", &[]),
                    wire::unnamed("insert into t values (2)", &[]),
                    wire::unnamed("commit", &[]),
                    wire::sync(),
                ]
                .concat(),
            );
            assert!(!seen(&client.until_ready()).iter().any(|word| word.starts_with("ERROR")), "{user} {within:?}");
        }
    }
    let said = |user: &str| stage.proxy.log().matches(&format!("commit_outcome has no effect for user \"{user}\"")).count();
    assert_eq!((said("asks_nothing"), said("asks_by_right")), (1, 0));
    // It has one, as long as it is itself.
    let mut client = log_in("asks_by_right");
    client.run("begin");
    client.run("insert into t values (3)");
    wait_run_on(&mut direct);
    stage.network.stall_present(&[Toward::Client]);
    client.send(&commit(false));
    wait_until("the commit", || direct.value("select count(*) from t where a = 3") == "1");
    stage.network.cut();
    stage.network.go_on();
    assert_eq!(heard(&client.until_ready()), "COMMIT");
    drop(client);
    for function in ["txid_current()", "txid_current_if_assigned()"] {
        direct.run(&format!(
            "revoke execute on function {function} from asks_by_right; grant execute on function {function} to public"
        ));
    }
}
