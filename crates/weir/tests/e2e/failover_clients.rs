//! The primary is lost and a standby becomes it, under clients in every state. The test promotes the standby by hand; each has servers of
//! its own. Only what cannot be made again may end a session, and nothing that may have been committed may be said to have failed.

use crate::support::ground::{self, Owned, cluster};
use crate::support::proxy::Backend;
use crate::support::raw::{Message, tags};
use crate::support::time::{check_never, check_within};
use crate::support::{Proxy, Raw, leave_out, wait_until, wire};
use std::collections::HashSet;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::Mode;

/// How a server is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    Stopped(Mode),
}

/// A COMMIT after a row of `slow` takes until its server is lost, and so does `write()`, which nobody knows to read only.
const SCHEMA: &str = "create table t (a int); create table slow (a int); \
    create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(100); return null; end'; \
    create constraint trigger wait after insert on slow deferrable initially deferred for each row execute function wait(); \
    create function write() returns int language plpgsql as 'begin insert into t values (7); perform pg_sleep(100); return 1; end'";

/// A primary, a standby and the proxy before both.
struct Stage {
    cluster: Owned,
    proxy: Proxy,
}

impl Stage {
    /// Reads go to the primary.
    fn new(more: &str) -> Stage {
        Stage::with_weights([1, 0], more)
    }

    fn with_weights(weights: [u32; 2], more: &str) -> Stage {
        let cluster = cluster(1);
        cluster.primary().query(SCHEMA).unwrap();
        cluster.wait_caught_up().unwrap();
        let backends: Vec<Backend> =
            cluster.servers().iter().zip(weights).map(|(server, weight)| Backend::tcp(server.port(), weight)).collect();
        let proxy = Proxy::spawn(&backends, &format!("pool_size = 60\n{more}"));
        proxy.wait_for_nodes(2);
        Stage { cluster, proxy }
    }

    fn client(&self) -> Raw {
        let mut client = self.proxy.console();
        ground::wait_for_catalog(&mut client, "postgres");
        client
    }

    fn lose_primary(&self, loss: Loss) {
        match loss {
            Loss::Killed => self.cluster.primary().kill9().unwrap(),
            Loss::Stopped(mode) => self.cluster.primary().stop(mode).unwrap(),
        }
    }

    fn promote(&self) {
        self.cluster.standbys()[0].promote().unwrap();
    }

    /// Waits until so many statements sleep on the primary.
    fn wait_asleep(&self, count: usize) {
        let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        wait_until("the statements to run", || self.cluster.primary().value(asleep).unwrap() == count.to_string());
    }
}

fn simple(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| wire::query(text)).collect()
}

/// One pipeline.
fn pipeline(texts: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = texts.iter().flat_map(|text| wire::unnamed(text, &[])).collect();
    bytes.extend(wire::sync());
    bytes
}

/// A pipeline for each.
fn extended(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| pipeline(&[text])).collect()
}

/// Errors and statuses, in order.
fn said(messages: &[Message]) -> Vec<String> {
    let one = |message: &Message| match message.tag {
        b'E' => Some(message.failure().sqlstate.to_string()),
        b'Z' => Some(char::from(message.body[0]).to_string()),
        b'C' if message.text().starts_with("ROLLBACK") || message.text().starts_with("COMMIT") => Some(message.text()),
        _ => None,
    };
    messages.iter().filter_map(one).collect()
}

/// A client whose statement is under way when its server is lost.
struct Busy {
    what: &'static str,
    client: Raw,
    /// ReadyForQuerys it waits for.
    readies: usize,
    expected: &'static [&'static str],
}

/// Statements that sleep, and what their clients hear. `before` is done when the server is lost.
#[rustfmt::skip]
const BUSY: &[(&str, &[&str], Send, &[&str])] = &[
    ("a transaction", &["begin", "insert into t values (1)"], Send::Simple(&["insert into t select 2 from pg_sleep(100)"]), &["40001", "E"]),
    ("its first statement", &["begin"], Send::Simple(&["insert into t select 2 from pg_sleep(100)"]), &["40001", "E"]),
    ("a transaction, extended", &["begin"], Send::Extended(&["insert into t select 2 from pg_sleep(100)"]), &["40001", "E"]),
    ("statements behind each other", &["begin"], Send::Simple(&["insert into t select 2 from pg_sleep(100)", "insert into t values (3)"]), &["40001", "E", "25P02", "E"]),
    ("a savepoint behind", &["begin"], Send::Extended(&["insert into t select 2 from pg_sleep(100)", "savepoint a"]), &["40001", "E", "25P02", "E"]),
    ("a pipeline in a transaction", &["begin", "select 1 from slow"], Send::Pipeline(&["insert into t values (1)", "insert into t select 2 from pg_sleep(100)"]), &["40001", "E"]),
    ("a single write", &[], Send::Simple(&["insert into t select 2 from pg_sleep(100)"]), &["08007", "I"]),
    ("a single write, extended", &[], Send::Extended(&["insert into t select 2 from pg_sleep(100)"]), &["08007", "I"]),
    ("a function that may write", &[], Send::Simple(&["select write()"]), &["08007", "I"]),
    ("statements in one string", &[], Send::Simple(&["insert into t values (4); select pg_sleep(100)"]), &["08007", "I"]),
    ("a transaction in one string", &[], Send::Simple(&["begin; insert into t values (5); select pg_sleep(100); commit"]), &["08007", "E"]),
    ("COMMIT", &["begin", "insert into slow values (1)"], Send::Simple(&["commit"]), &["08007", "I"]),
    ("COMMIT, extended", &["begin", "insert into slow values (1)"], Send::Extended(&["commit"]), &["08007", "I"]),
    ("COMMIT in a pipeline", &["begin"], Send::Pipeline(&["insert into slow values (1)", "commit"]), &["08007", "I"]),
    ("COMMIT behind statements", &["begin"], Send::Simple(&["insert into slow values (1)", "commit"]), &["I"]),
    ("COMMIT AND CHAIN", &["begin", "insert into slow values (1)"], Send::Simple(&["commit and chain"]), &["08007", "E"]),
    ("a pipeline without a transaction", &[], Send::Pipeline(&["insert into slow values (1)", "insert into t values (6)"]), &["08007", "I"]),
];

#[derive(Clone, Copy)]
enum Send {
    Simple(&'static [&'static str]),
    Extended(&'static [&'static str]),
    Pipeline(&'static [&'static str]),
}

impl Busy {
    fn begin(stage: &Stage, &(what, before, send, expected): &(&'static str, &[&str], Send, &'static [&'static str])) -> Busy {
        let mut client = stage.client();
        before.iter().for_each(|text| client.run(text));
        let (bytes, readies) = match send {
            Send::Simple(texts) => (simple(texts), texts.len()),
            Send::Extended(texts) => (extended(texts), texts.len()),
            Send::Pipeline(texts) => (pipeline(texts), 1),
        };
        client.send(&bytes);
        Busy { what, client, readies, expected }
    }

    fn check(&mut self, loss: Loss) {
        let heard: Vec<String> = (0..self.readies).flat_map(|_| said(&self.client.until_ready())).collect();
        let what = self.what;
        if what == "COMMIT behind statements" {
            // The first may have been answered before.
            assert!(heard.ends_with(&["08007".into(), "I".into()]), "{what}, {loss:?}: {heard:?}");
            assert!(!heard.iter().any(|word| word.starts_with("40")), "{what}, {loss:?}: {heard:?}");
            return;
        }
        assert_eq!(heard, self.expected, "{what}, {loss:?}");
        if heard.last().is_some_and(|status| status == "E") {
            assert_eq!(self.client.error("select 1").sqlstate, "25P02", "{what}, {loss:?}");
            // COMMIT of what has failed.
            assert_eq!(said(&self.client.query("commit")), ["ROLLBACK", "I"], "{what}, {loss:?}");
        }
    }
}

#[test]
fn what_was_under_way_fails_as_what_it_may_have_done_when_the_primary_is_killed() {
    check_under_way(Loss::Killed);
}

#[test]
fn what_was_under_way_fails_as_what_it_may_have_done_when_the_primary_is_stopped_fast() {
    check_under_way(Loss::Stopped(Mode::Fast));
}

#[test]
fn what_was_under_way_fails_as_what_it_may_have_done_when_the_primary_is_stopped_at_once() {
    check_under_way(Loss::Stopped(Mode::Immediate));
}

fn check_under_way(loss: Loss) {
    let stage = Stage::new("");
    let mut busy: Vec<Busy> = BUSY.iter().map(|row| Busy::begin(&stage, row)).collect();
    stage.wait_asleep(busy.len());
    stage.lose_primary(loss);
    busy.iter_mut().for_each(|busy| busy.check(loss));
    stage.promote();
    // Nobody had to log in again, and nothing that failed was done after all.
    for busy in &mut busy {
        busy.client.run("insert into t values (100)");
    }
    let written = format!("{}|", busy.len());
    let found =
        stage.cluster.standbys()[0].value("select count(*) || '|' || coalesce(sum(a) filter (where a <> 100)::text, '') from t");
    assert_eq!(found.unwrap(), written, "{loss:?}");
}

#[test]
fn who_was_idle_notices_nothing() {
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::new("");
        let mut idle = stage.client();
        idle.run("set work_mem = '7MB'");
        idle.run("prepare by_sql as insert into t values (8) returning a");
        idle.send(&[wire::parse("by_protocol", "insert into t values ($1) returning a"), wire::sync()].concat());
        idle.tags();
        let mut deferred = stage.client();
        deferred.run("begin");
        let mut listener = stage.client();
        listener.run("listen news");
        wait_until("the listening to be moved", || stage.proxy.metric("listens_moved_total") > 0);
        stage.cluster.wait_caught_up().unwrap();
        stage.lose_primary(loss);
        stage.promote();
        assert_eq!(idle.value("execute by_sql"), "8", "{loss:?}");
        assert_eq!(idle.value("show work_mem"), "7MB", "{loss:?}");
        idle.send(&[wire::run("by_protocol", &["9"]), wire::sync()].concat());
        assert_eq!(idle.tags(), "2DCZ", "{loss:?}");
        deferred.run("insert into t values (10)");
        deferred.run("commit");
        let notice = listener.read();
        assert_eq!(notice.tag, b'N', "{loss:?}");
        assert!(notice.failure().message.contains("notifications"), "{loss:?}: {:?}", notice.failure());
        idle.run("notify news");
        assert_eq!(listener.read().tag, b'A', "{loss:?}");
        assert_eq!(stage.cluster.standbys()[0].value("select string_agg(a::text, ',' order by a) from t").unwrap(), "8,9,10");
    }
}

#[test]
fn an_idle_transaction_is_told_of_its_loss_with_its_next_statement() {
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::new("");
        let next: [(&str, Vec<u8>, &[&str]); 8] = [
            ("a statement", simple(&["insert into t values (2)"]), &["40001", "E"]),
            ("a statement, extended", extended(&["insert into t values (2)"]), &["40001", "E"]),
            ("a pipeline with its COMMIT", pipeline(&["insert into t values (2)", "commit"]), &["40001", "E"]),
            // As one that fails for other reasons, a COMMIT ends its transaction.
            ("COMMIT", simple(&["commit"]), &["40001", "I"]),
            ("COMMIT, extended", extended(&["commit"]), &["40001", "I"]),
            ("ROLLBACK", simple(&["rollback"]), &["ROLLBACK", "I"]),
            ("ROLLBACK, extended", extended(&["rollback"]), &["ROLLBACK", "I"]),
            ("a savepoint", simple(&["savepoint a"]), &["40001", "E"]),
        ];
        let mut clients: Vec<Raw> = next.iter().map(|_| stage.client()).collect();
        for client in &mut clients {
            client.run("begin");
            client.run("insert into t values (1)");
        }
        stage.lose_primary(loss);
        for (client, (what, bytes, expected)) in clients.iter_mut().zip(&next) {
            client.send(bytes);
            assert_eq!(said(&client.until_ready()), *expected, "{what}, {loss:?}");
        }
        stage.promote();
        for (client, (what, ..)) in clients.iter_mut().zip(&next) {
            client.run("rollback");
            client.run("insert into t values (3)");
            assert_eq!(client.value("begin; select count(*) from t where a <> 3"), "0", "{what}, {loss:?}");
            client.run("commit");
        }
    }
}

#[test]
fn what_cannot_be_made_again_ends_its_session_with_the_reason() {
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::new("");
        let kept: [(&[&str], &str); 4] = [
            (&["create temp table mine (a int)"], "temporary object"),
            (&["begin", "declare c cursor with hold for select 1", "commit"], "cursor with hold"),
            (&["select pg_advisory_lock(1)"], "advisory lock"),
            // It outlives the transaction, which is rolled back.
            (&["begin", "select pg_advisory_lock(2)"], "advisory lock"),
        ];
        let mut clients: Vec<Raw> = kept.iter().map(|_| stage.client()).collect();
        for (client, (texts, _)) in clients.iter_mut().zip(&kept) {
            texts.iter().for_each(|text| client.run(text));
        }
        stage.lose_primary(loss);
        for (client, (texts, kind)) in clients.iter_mut().zip(&kept) {
            let messages = client.until_end();
            let failure = messages.iter().find(|message| message.tag == b'E').expect("it is told").failure();
            assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"), "{texts:?}, {loss:?}");
            assert!(failure.message.contains(kind), "{texts:?}, {loss:?}: {failure:?}");
        }
    }
}

#[test]
fn a_read_under_way_on_the_primary_runs_again_on_the_next_one() {
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::new("");
        let mut clients = [stage.client(), stage.client()];
        let text = "select count(*) from t, pg_sleep(3)";
        clients[0].send(&wire::query(text));
        clients[1].send(&pipeline(&[text]));
        stage.wait_asleep(2);
        let begun = Instant::now();
        stage.lose_primary(loss);
        stage.promote();
        assert_eq!(clients[0].tags(), "TDCZ", "{loss:?}");
        assert_eq!(tags(&clients[1].until_ready()), "12DCZ", "{loss:?}");
        assert!(begun.elapsed() >= Duration::from_secs(3), "it ran again");
        assert_eq!(stage.proxy.metric("reads_repeated_total"), 2, "{loss:?}");
    }
}

/// Data of a copy that come after it has failed mean nothing, also the rest of a message.
#[test]
fn a_copy_that_is_lost_fails_and_its_client_goes_on() {
    let stage = Stage::new("");
    let mut clients: Vec<(Raw, &str)> = [("", "I"), ("begin", "E")]
        .into_iter()
        .map(|(first, status)| {
            let mut client = stage.client();
            if !first.is_empty() {
                client.run(first);
            }
            client.send(&wire::query("copy t from stdin"));
            assert_eq!(client.read().tag, b'G');
            (client, status)
        })
        .collect();
    let rows = wire::copy_data("1\n".repeat(200_000).as_bytes());
    let (begin, rest) = rows.split_at(rows.len() / 2);
    clients.iter_mut().for_each(|(client, _)| client.send(begin));
    stage.lose_primary(Loss::Killed);
    for (client, status) in &mut clients {
        let code = if *status == "E" { "40001" } else { "08007" };
        assert_eq!(said(&client.until_ready()), [code, *status]);
        client.send(&[rest, &wire::copy_data(b"2\n"), &wire::copy_done()].concat());
    }
    stage.promote();
    for (client, _) in &mut clients {
        client.run("rollback");
        client.run("insert into t values (3)");
    }
    assert_eq!(stage.cluster.standbys()[0].value("select string_agg(a::text, ',') from t").unwrap(), "3,3");
}

/// A read whose client has seen a part of the answer fails, and so does a session all of whose state is on one connection.
#[test]
fn a_read_that_was_shown_in_part_fails_and_a_session_with_a_connection_of_its_own_ends() {
    let stage = Stage::new("limit_override_list = 'user=own: pool_mode=session'");
    stage.cluster.primary().query("create role own login").unwrap();
    stage.cluster.wait_caught_up().unwrap();
    let mut own = Raw::tcp(stage.proxy.port()).log_in("own", "postgres", &[]).unwrap();
    own.run("select 1");
    let mut reader = stage.client();
    // The rows of the first blocks are sent while the last one sleeps.
    let text = "select x, case when x = 5000 then pg_sleep(100)::text else repeat('x', 100) end from generate_series(1, 5000) x";
    reader.send(&wire::query(text));
    assert_eq!(reader.read().tag, b'T');
    stage.wait_asleep(1);
    stage.lose_primary(Loss::Killed);
    let mut messages = Vec::new();
    let begun = Instant::now();
    while let Ok(Some(message)) = reader.try_read() {
        let is_last = message.tag == b'Z';
        messages.push(message);
        if is_last {
            break;
        }
    }
    check_within("the end of the answer or of the connection", begun, Duration::ZERO);
    // Within a row nothing can be said.
    assert!(messages.iter().any(|message| message.tag == b'D') && !messages.iter().any(|message| message.tag == b'C'));
    let heard = said(&messages);
    assert!(heard.is_empty() || heard == ["40001", "I"], "{heard:?}");
    let messages = own.until_end();
    let failure = messages.iter().find(|message| message.tag == b'E').expect("it is told").failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"), "{failure:?}");
    assert!(failure.message.contains("pool_mode"), "{failure:?}");
}

#[test]
fn what_was_not_sent_waits_for_the_next_primary_and_can_be_cancelled() {
    let stage = Stage::new("");
    let mut clients: Vec<Raw> = (0..3).map(|_| stage.client()).collect();
    // Of a unix socket it is known when nobody listens any more.
    let leaver = Raw::unix(stage.proxy.folder(), stage.proxy.port()).log_in("postgres", "postgres", &[]);
    clients.push(leaver.unwrap());
    clients.iter_mut().for_each(|client| client.run("select 1"));
    let (pid, key) = (clients[2].pid, clients[2].key.clone());
    stage.lose_primary(Loss::Killed);
    clients[0].send(&wire::query("insert into t values (1)"));
    clients[1].send(&pipeline(&["insert into t values (2)"]));
    clients[2].send(&wire::query("insert into t values (3)"));
    clients[3].send(&wire::query("insert into t values (4)"));
    for client in &mut clients {
        assert!(client.is_silent_for(Duration::from_millis(200)));
    }
    // One is cancelled, one leaves.
    Raw::tcp(stage.proxy.port()).send(&wire::cancel(pid, &key));
    assert_eq!(said(&clients[2].until_ready()), ["57014", "I"]);
    drop(clients.pop());
    check_never("a statement fails while it may wait", Duration::from_secs(1), || {
        !clients[0].is_silent_for(Duration::from_millis(50))
    });
    stage.promote();
    assert_eq!(clients[0].tags(), "CZ");
    assert_eq!(clients[1].tags(), "12CZ");
    clients[2].run("insert into t values (5)");
    assert_eq!(stage.cluster.standbys()[0].value("select string_agg(a::text, ',' order by a) from t").unwrap(), "1,2,5");
}

#[test]
fn a_statement_waits_as_long_as_its_user_may_and_its_session_goes_on() {
    let stage = Stage::new("limit_override_list = 'user=postgres: failover_wait=1'");
    let mut client = stage.client();
    client.run("set work_mem = '7MB'");
    stage.lose_primary(Loss::Killed);
    let begun = Instant::now();
    let failure = client.error("insert into t values (1)");
    check_within("the end of the wait", begun, Duration::from_secs(1));
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "57P03"), "{failure:?}");
    assert!(failure.message.contains("failover_wait"), "{failure:?}");
    stage.promote();
    wait_until("the session to write", || client.try_value("insert into t values (2) returning a").is_ok());
    assert_eq!(client.value("show work_mem"), "7MB");
}

/// Standbys answer all the while.
#[test]
fn reads_on_standbys_go_on_without_a_primary() {
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::with_weights([0, 1], "");
        let mut client = stage.client();
        client.run("select count(*) from t");
        stage.lose_primary(loss);
        for _ in 0..20 {
            assert_eq!(client.value("select count(*) from t"), "0", "{loss:?}");
        }
    }
}

/// Drivers and pools say these when they take a connection back: psycopg says DEALLOCATE ALL behind a ROLLBACK.
#[test]
fn what_concerns_the_session_alone_needs_no_primary() {
    let stage = Stage::with_weights([1, 1], "failover_mode = off\nfailover_wait = 5s\ncausal_reads = session");
    let mut client = stage.client();
    client.run("insert into t values (1)");
    client.run("set work_mem = '7MB'");
    client.run("prepare p as select 1");
    // The state that it leaves is known when the next statement has been answered.
    client.run("select 1");
    stage.lose_primary(Loss::Killed);
    wait_until("the loss to be noticed", || stage.proxy.log().contains("is down, was primary"));
    for text in [
        "show work_mem",
        "set search_path = other",
        "set session characteristics as transaction read only",
        "set role postgres",
        "reset role",
        "reset search_path",
        "deallocate p",
        "deallocate all",
        "close all",
        "unlisten *",
        "discard plans",
        "discard temp",
        "discard sequences",
        "discard all",
        "reset all",
        "set work_mem = '9MB'",
    ] {
        client.run(text);
        let by_protocol = client.extended(text, &[]);
        assert!(by_protocol.is_ok() || text == "deallocate p", "{text}: {by_protocol:?}");
    }
    assert_eq!(client.value("show work_mem"), "9MB");
    // A write still waits.
    assert_eq!(client.error("insert into t values (2)").sqlstate, "57P03");
    assert_eq!(client.error("set work_mem = '1MB'; insert into t values (2)").sqlstate, "57P03");
    stage.promote();
    wait_until("the session to write", || client.try_value("insert into t values (3) returning a").is_ok());
    assert_eq!(client.value("show work_mem"), "9MB");
    let mut pinned = stage.client();
    assert_eq!(pinned.value("select current_setting('work_mem')"), "4MB", "another session has its own");
}

/// A session that read last on the primary, and has rested since.
#[test]
fn who_rested_reads_on_a_standby_without_a_primary() {
    let stage = Stage::with_weights([1, 1], "failover_mode = off\nfailover_wait = 5s\ncausal_reads = session");
    let mut clients: Vec<Raw> = (0..8).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.run("insert into t values (1)");
        client.run("/*primary*/ select count(*) from t");
    }
    stage.cluster.wait_caught_up().unwrap();
    crate::support::time::let_pass(std::time::Duration::from_secs(3));
    stage.lose_primary(Loss::Killed);
    wait_until("the loss to be noticed", || stage.proxy.log().contains("is down, was primary"));
    for client in &mut clients {
        assert_eq!(client.value("select count(*) from t"), "8");
    }
}

/// A standby that streams no more gets nothing of what the primary acknowledges.
#[test]
fn a_session_hears_that_the_next_primary_may_lack_what_it_was_shown() {
    for (mode, is_told) in [("warning", true), ("error", true), ("warning", false)] {
        let stage = Stage::with_weights([0, 1], &format!("failover_lost = {mode}"));
        let (primary, standby) = (stage.cluster.primary(), &stage.cluster.standbys()[0]);
        let mut writer = stage.client();
        let mut bystander = stage.client();
        writer.run("insert into t values (1)");
        wait_until("the write to be known on the standby", || {
            writer.value("select inet_server_port()") == standby.port().to_string()
        });
        bystander.run("select 1");
        if is_told {
            standby.query("alter system set primary_conninfo = ''").unwrap();
            standby.reload().unwrap();
            let streams = "select count(*) from pg_stat_wal_receiver";
            wait_until("the standby to stream no more", || standby.value(streams).unwrap() == "0");
            writer.run("insert into t values (2)");
        }
        primary.kill9().unwrap();
        stage.promote();
        let messages = writer.query("insert into t values (3)");
        match (is_told, mode) {
            (true, "error") => {
                assert_eq!(said(&messages), ["40001", "I"]);
                writer.run("insert into t values (3)");
            }
            (true, _) => assert_eq!((messages[0].tag, &*messages[0].failure().sqlstate), (b'N', "01000")),
            (false, _) => assert_eq!(messages[0].tag, b'C'),
        }
        assert_eq!(writer.query("insert into t values (4)")[0].tag, b'C', "it is told once");
        assert_eq!(stage.proxy.metric("sessions_told_of_loss_total"), u64::from(is_told));
    }
}

/// The server is asked about all of them over a connection for each worker.
#[test]
fn many_statements_that_take_too_long_at_once_cost_a_few_logins() {
    const CLIENTS: u64 = 30;
    let cluster = cluster(1);
    if cluster.primary().programs().major() < 14 {
        return leave_out("sessions are counted since PostgreSQL 14");
    }
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.primary().query("create database asked").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "query_timeout = 3s\nsr_check_period = 60\nauth_dbname = 'asked'\n");
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| proxy.console()).collect();
    clients.iter_mut().for_each(|client| client.send(&wire::query("insert into t select 1 from pg_sleep(1000)")));
    for client in &mut clients {
        assert_eq!(client.until_ready()[0].failure().sqlstate, "57014");
    }
    drop(proxy);
    let sessions = "select sessions from pg_stat_database where datname = 'asked'";
    wait_until("the sessions to be counted", || cluster.primary().value(sessions).unwrap() != "0");
    let count: u64 = cluster.primary().value(sessions).unwrap().parse().unwrap();
    assert!(count < CLIENTS / 2, "{count} logins");
}

/// No standby by that name exists.
#[test]
fn no_limit_on_time_cancels_what_waits_for_a_synchronous_standby() {
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "query_timeout = 1s\ntransaction_timeout = 2s");
    let mut clients: Vec<Raw> = (0..3).map(|_| proxy.console()).collect();
    clients[0].run("begin");
    clients[0].run("insert into t values (1)");
    cluster.primary().query("alter system set synchronous_standby_names = 'nobody'").unwrap();
    cluster.primary().reload().unwrap();
    wait_until("the server to wait for nobody", || {
        cluster.primary().value("show synchronous_standby_names").unwrap() == "nobody"
    });
    clients[0].send(&wire::query("commit"));
    clients[1].send(&wire::query("insert into t values (2)"));
    // A statement that only runs is cancelled as ever.
    assert_eq!(clients[2].error("insert into t select 3 from pg_sleep(100)").sqlstate, "57014");
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    check_never("a commit is given up", Duration::from_secs(4), || cluster.primary().value(waiting).unwrap() != "2");
    cluster.primary().query("alter system reset synchronous_standby_names").unwrap();
    cluster.primary().reload().unwrap();
    assert_eq!(clients[0].tags(), "CZ");
    assert_eq!(clients[1].tags(), "CZ");
}

/// The server lets nobody in who could ask if a statement waits for a standby.
#[test]
fn no_limit_on_time_cancels_what_waits_for_a_synchronous_standby_on_a_full_server() {
    let cluster = cluster(1);
    let primary = cluster.primary();
    primary.query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "query_timeout = 1s");
    let mut client = proxy.console();
    client.run("insert into t values (1)");
    primary.query("alter system set synchronous_standby_names = 'nobody'").unwrap();
    primary.reload().unwrap();
    wait_until("the server to wait for nobody", || primary.value("show synchronous_standby_names").unwrap() == "nobody");
    let mut others = Vec::new();
    wait_until("the server to be full", || match Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]) {
        Ok(other) => {
            others.push(other);
            false
        }
        Err(failure) => failure.sqlstate == "53300",
    });
    let mut observer = others.pop().unwrap();
    client.send(&wire::query("insert into t values (2)"));
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    wait_until("the insert to wait", || observer.value(waiting) == "1");
    check_never("it is given up", Duration::from_secs(4), || observer.value(waiting) != "1");
    observer.run("alter system reset synchronous_standby_names");
    observer.run("select pg_reload_conf()");
    assert_eq!(client.tags(), "CZ");
}

/// A row of a lost commit is not told again.
#[test]
fn the_query_cache_forgets_what_the_next_primary_may_lack() {
    let stage = Stage::with_weights([1, 1], "memory_cache_enabled = on\nfailover_lost = warning");
    let standby = &stage.cluster.standbys()[0];
    let mut client = stage.client();
    client.run("insert into t values (1)");
    stage.cluster.wait_caught_up().unwrap();
    standby.query("alter system set primary_conninfo = ''").unwrap();
    standby.reload().unwrap();
    wait_until("the standby to stream no more", || standby.value("select count(*) from pg_stat_wal_receiver").unwrap() == "0");
    client.run("insert into t values (2)");
    wait_until("an answer to be kept", || {
        assert_eq!(client.value("select count(*) from t"), "2");
        stage.proxy.metric("cache_hits_total") > 0
    });
    stage.lose_primary(Loss::Killed);
    stage.promote();
    client.run("insert into t values (3)");
    // Of the lost row no server knows.
    assert_eq!(client.value("select count(*) from t where a <> 3"), "1");
    assert_eq!(client.value("select count(*) from t"), "2");
    let mut other = stage.client();
    assert_eq!(other.value("select sum(a) from t"), "4");
}

#[test]
fn a_commit_that_was_bound_before_its_loss_is_one() {
    let stage = Stage::new("");
    let mut client = stage.client();
    client.run("begin");
    client.run("insert into slow values (1)");
    client.send(&[wire::parse("k", "commit"), wire::bind("c", "k", &[]), wire::sync()].concat());
    assert_eq!(client.tags(), "12Z");
    client.send(&[wire::execute("c", 0), wire::sync()].concat());
    stage.wait_asleep(1);
    stage.lose_primary(Loss::Killed);
    // Nobody knows whether a transaction is open behind it; that it has failed is safe.
    assert_eq!(said(&client.until_ready()), ["08007", "E"]);
    client.run("rollback");
}

/// The writes of a client, by the answers that it got.
#[derive(Default)]
struct Ledger {
    done: Vec<u32>,
    failed: Vec<u32>,
    unknown: Vec<u32>,
}

impl Ledger {
    fn note(&mut self, value: u32, errors: &[String]) {
        match errors.first().map(String::as_str) {
            None => self.done.push(value),
            Some("08007") => self.unknown.push(value),
            // Of a transaction that failed before its COMMIT was sent, and of what was not sent at all.
            Some("40001" | "25P02" | "57P03") => self.failed.push(value),
            Some(other) => panic!("{value} failed with {other}"),
        }
    }
}

/// Writes one value after the other, in all ways in turn, until it is over. A connection that ends fails the test.
fn write_on(mut client: Raw, first: u32, is_over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::default();
    for value in first.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let insert = format!("insert into t values ({value})");
        let (bytes, readies) = match value % 6 {
            0 => (simple(&[&insert]), 1),
            1 => (pipeline(&[&insert]), 1),
            2 => (simple(&["begin", &insert, "commit"]), 3),
            3 => (pipeline(&["begin", &insert, "commit"]), 1),
            4 => (extended(&["begin", &insert, "commit"]), 3),
            _ => {
                // One message after the other, each with its answer before.
                let mut errors = Vec::new();
                for text in ["begin", &insert, "commit"] {
                    errors.extend(client.query(text).iter().filter(|m| m.tag == b'E').map(|m| m.failure().sqlstate.to_string()));
                }
                ledger.note(value, &errors);
                client.run("rollback");
                continue;
            }
        };
        client.send(&bytes);
        let messages: Vec<Message> = (0..readies).flat_map(|_| client.until_ready()).collect();
        let errors: Vec<String> = messages.iter().filter(|m| m.tag == b'E').map(|m| m.failure().sqlstate.to_string()).collect();
        // The gravest counts.
        let errors = if errors.iter().any(|code| code == "08007") { vec!["08007".to_owned()] } else { errors };
        ledger.note(value, &errors);
        if messages.last().is_some_and(|ready| ready.body == b"E") {
            client.run("rollback");
        }
    }
    ledger
}

/// With a synchronous standby nothing that was acknowledged may be missing, and nothing that failed may be there.
#[test]
fn a_load_of_writes_goes_through_a_failover_without_a_new_login_and_is_told_the_truth() {
    const CLIENTS: u32 = 8;
    for loss in [Loss::Killed, Loss::Stopped(Mode::Fast), Loss::Stopped(Mode::Immediate)] {
        let stage = Stage::new("");
        stage.cluster.primary().query("alter system set synchronous_standby_names = '*'").unwrap();
        stage.cluster.primary().reload().unwrap();
        wait_until("the standby to be synchronous", || {
            stage.cluster.primary().value("select count(*) from pg_stat_replication where sync_state = 'sync'").unwrap() == "1"
        });
        let is_over = AtomicBool::new(false);
        let ledgers: Vec<Ledger> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, is_over) = (stage.client(), &is_over);
                    scope.spawn(move || write_on(client, number * 1_000_000, is_over))
                })
                .collect();
            let story = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let written = |server: &weir_demo::Server, at_least: u32| {
                    wait_until("writes to be made", || {
                        server.value("select count(*) from t").is_ok_and(|count| count.parse::<u32>().unwrap() > at_least)
                    });
                };
                written(stage.cluster.primary(), 200);
                stage.lose_primary(loss);
                stage.promote();
                let before: u32 = stage.cluster.standbys()[0].value("select count(*) from t").unwrap().parse().unwrap();
                written(&stage.cluster.standbys()[0], before + 200);
            }));
            is_over.store(true, Ordering::SeqCst);
            let ledgers = clients.into_iter().map(|client| client.join().unwrap()).collect();
            story.unwrap();
            ledgers
        });
        let rows = stage.cluster.standbys()[0].query("select a from t").unwrap();
        let there: Vec<u32> = rows.into_iter().flatten().flatten().map(|a| a.parse().unwrap()).collect();
        let unique: HashSet<u32> = there.iter().copied().collect();
        assert_eq!(unique.len(), there.len(), "{loss:?}: nothing was written twice");
        for ledger in &ledgers {
            let missing: Vec<_> = ledger.done.iter().filter(|value| !unique.contains(value)).collect();
            assert!(missing.is_empty(), "{loss:?}: acknowledged and missing: {missing:?}");
            let wrong: Vec<_> = ledger.failed.iter().filter(|value| unique.contains(value)).collect();
            assert!(wrong.is_empty(), "{loss:?}: said to have failed, and there: {wrong:?}");
            // The server was lost once.
            assert!(ledger.unknown.len() <= 2, "{loss:?}: {:?}", ledger.unknown);
        }
    }
}

/// A port behind which stands now one server, now another; who is connected stays so.
struct Door {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Door {
    fn to(port: u16) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Door { port: listener.local_addr().unwrap().port(), target: Arc::new(AtomicU16::new(port)) };
        let target = door.target.clone();
        // It ends with the test program, as its connections do.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target.load(Ordering::SeqCst))) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        door
    }
}

/// Its role was not asked for since; a login tells it, and the write is not sent.
#[test]
fn a_write_that_meets_a_server_which_was_just_demoted_waits_for_a_primary() {
    let cluster = cluster(1);
    cluster.primary().query(SCHEMA).unwrap();
    cluster.wait_caught_up().unwrap();
    let (primary, standby) = (cluster.primary().port(), cluster.standbys()[0].port());
    let door = Door::to(primary);
    let proxy = Proxy::spawn(&[Backend::tcp(door.port, 0), Backend::tcp(standby, 1)], "sr_check_period = 3600");
    proxy.wait_for_nodes(2);
    let (mut client, mut other) = (proxy.console(), proxy.console());
    // Connections at rest from the logins are taken: the next write needs another one.
    other.run("begin");
    other.run("insert into t values (2)");
    let mut holders: Vec<Raw> = (0..3).map(|_| proxy.console()).collect();
    for holder in &mut holders {
        holder.run("begin");
        holder.run("insert into t values (3)");
    }
    door.target.store(standby, Ordering::SeqCst);
    client.send(&wire::query("insert into t values (1)"));
    wait_until("the login to be refused", || proxy.log().contains("it counts as the primary, and is in recovery"));
    assert!(client.is_silent_for(Duration::from_millis(500)));
    door.target.store(primary, Ordering::SeqCst);
    assert_eq!(client.tags(), "CZ");
}
