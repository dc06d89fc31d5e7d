//! Transactions on several shards: committed everywhere or nowhere, and seen as a whole or not at all.

use crate::dice::Dice;
use crate::support::ground::wait_until;
use crate::support::raw::first_value;
use crate::support::spread::{How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_demo::Mode;

const ACCOUNTS: &str =
    "create table accounts (id int primary key, balance int not null check (balance >= 0), seen timestamptz default now());
    create table plain (id int primary key, note text)";

pub fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(ACCOUNTS);
    spread.whole().query("insert into accounts select i, 100 from generate_series(1, 40) i").unwrap();
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// An account on each shard.
pub fn ids(spread: &Spread) -> [String; SHARDS] {
    std::array::from_fn(|shard| spread.server(shard).value("select min(id) from accounts").unwrap())
}

fn balances(spread: &Spread, ids: &[String; SHARDS]) -> [String; SHARDS] {
    std::array::from_fn(|shard| {
        spread.server(shard).value(&format!("select balance from accounts where id = {}", ids[shard])).unwrap()
    })
}

pub fn prepared(spread: &Spread) -> usize {
    let count = |shard| spread.server(shard).value("select count(*) from pg_prepared_xacts").unwrap().parse::<usize>().unwrap();
    (0..SHARDS).map(count).sum()
}

fn said(client: &mut Raw, how: How, text: &str, values: &[&str]) -> String {
    let answer = ask(client, how, text, values);
    match answer.failure {
        Some(failure) => failure,
        None => answer.said.join(","),
    }
}

#[test]
fn a_transaction_on_several_shards_is_committed_everywhere_or_nowhere() {
    for more in configs(&[
        "",
        "cross_shard_reads = latest\ncommit_outcome = on\ntransaction_replay = on\n",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\nstatement_statistics_max = 100\n",
        "causal_reads = global\nlog_statement = on\nreset_query_list = 'ABORT; DISCARD ALL'\n",
    ]) {
        is_committed_everywhere_or_nowhere(&ground(more));
    }
}

fn is_committed_everywhere_or_nowhere(spread: &Spread) {
    let ids = ids(spread);
    for how in [How::Simple, How::Extended] {
        let mut client = spread.client();
        let update = |client: &mut Raw, shard: usize, by: i32| {
            said(client, how, &format!("update accounts set balance = balance + {by} where id = {}", ids[shard]), &[])
        };
        let before = balances(spread, &ids);
        let plus =
            |by: [i32; SHARDS]| std::array::from_fn(|shard| (before[shard].parse::<i32>().unwrap() + by[shard]).to_string());
        // There and back again.
        assert_eq!(said(&mut client, how, "begin", &[]), "BEGIN");
        for (shard, by) in [(2, 5), (0, -2), (1, -3), (2, 1), (0, -1)] {
            assert_eq!(update(&mut client, shard, by), "UPDATE 1", "{how:?} {shard}");
        }
        let own = format!("select balance from accounts where id = {}", ids[1]);
        assert_eq!(ask(&mut client, how, &own, &[]).rows, [[Some(plus([0, -3, 0])[1].clone())]], "its own write");
        assert_eq!(balances(spread, &ids), before, "nothing is committed");
        assert_eq!(
            said(&mut client, how, "insert into plain values (1, 'on shard 0') on conflict do nothing", &[]).get(..6),
            Some("INSERT")
        );
        assert_eq!(said(&mut client, how, "commit", &[]), "COMMIT");
        assert_eq!((balances(spread, &ids), prepared(spread)), (plus([-3, -3, 6]), 0), "{how:?}");
        // Taken back.
        let before = balances(spread, &ids);
        assert_eq!(said(&mut client, how, "begin", &[]), "BEGIN");
        (0..SHARDS).for_each(|shard| assert_eq!(update(&mut client, shard, 1), "UPDATE 1"));
        assert_eq!(said(&mut client, how, "rollback", &[]), "ROLLBACK");
        assert_eq!(balances(spread, &ids), before);
        // An error on one shard fails all.
        assert_eq!(said(&mut client, how, "begin", &[]), "BEGIN");
        (0..SHARDS).for_each(|shard| assert_eq!(update(&mut client, shard, 1), "UPDATE 1"));
        assert_eq!(update(&mut client, 1, -100_000), "23514");
        assert_eq!(update(&mut client, 0, 1), "25P02");
        assert_eq!(said(&mut client, how, "commit", &[]), "ROLLBACK");
        assert_eq!((balances(spread, &ids), prepared(spread)), (before, 0), "{how:?}");
        assert_eq!(update(&mut client, 1, 0), "UPDATE 1", "the session goes on");
    }
    let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    wait_until("open transactions to end", || (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0"));
}

/// Begins a transaction that visits shards 2, 1 and 0, so that 2 is prepared before 1, and 0 decides.
fn moves_money(client: &mut Raw, ids: &[String; SHARDS]) {
    client.run("begin");
    for (shard, by) in [(2, -2), (1, 1), (0, 1)] {
        client.run(&format!("update accounts set balance = balance + {by} where id = {}", ids[shard]));
    }
}

fn prepared_on(spread: &Spread, shard: usize) -> String {
    spread.server(shard).value("select count(*) from pg_prepared_xacts").unwrap()
}

fn has_committed(spread: &Spread, ids: &[String; SHARDS], after: &[String; SHARDS]) -> bool {
    spread.server(0).value(&format!("select balance from accounts where id = {}", ids[0])).unwrap() == after[0]
}

/// Where the fault comes in the middle of a commit, and what it may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokenOff {
    /// Weir ends while the second part is to be prepared.
    WeirPreparing,
    /// Weir ends while the server that decides has the COMMIT.
    WeirDeciding,
    /// A server ends that was to prepare its part.
    Participant,
    /// The server that decides ends before it has read the COMMIT.
    Decider,
    /// A server ends with its part prepared, and the server that decides has committed.
    ParticipantBehind,
    /// Weir ends after the server that decides has committed, which then makes a checkpoint.
    WeirBehind,
}

#[test]
fn a_commit_that_is_broken_off_ends_everywhere_or_nowhere() {
    // With `latest` nothing is asked of the server that decides before the COMMIT: the number of the transaction is known.
    let all = [
        BrokenOff::ParticipantBehind,
        BrokenOff::WeirBehind,
        BrokenOff::WeirPreparing,
        BrokenOff::WeirDeciding,
        BrokenOff::Participant,
        BrokenOff::Decider,
    ];
    breaks_off("cross_shard_reads = latest\ncommit_outcome = on\n", &all);
    breaks_off("commit_outcome = on\n", &[BrokenOff::WeirPreparing, BrokenOff::Participant]);
}

fn breaks_off(more: &str, cases: &[BrokenOff]) {
    let mut spread = ground(more);
    let ids = ids(&spread);
    for &case in cases {
        let before = balances(&spread, &ids);
        let after = [1, 1, -2].map(|by| by);
        let after: [String; SHARDS] =
            std::array::from_fn(|shard| (before[shard].parse::<i32>().unwrap() + after[shard]).to_string());
        let (mut client, mut operator) = (spread.client(), spread.client());
        wait_until("SHOW to list no parts", || operator.rows("show pool_prepared").is_empty());
        moves_money(&mut client, &ids);
        let frozen = match case {
            BrokenOff::WeirPreparing | BrokenOff::Participant => 1,
            BrokenOff::WeirDeciding | BrokenOff::Decider | BrokenOff::ParticipantBehind | BrokenOff::WeirBehind => 0,
        };
        spread.server(frozen).freeze();
        client.send(&wire::query("commit"));
        wait_until("parts to be prepared", || prepared_on(&spread, 2) == "1" && (frozen == 1 || prepared_on(&spread, 1) == "1"));
        match case {
            BrokenOff::WeirPreparing | BrokenOff::WeirDeciding => {
                spread.proxy.crash_and_start();
                spread.server(frozen).thaw();
            }
            BrokenOff::Participant => {
                spread.server(1).kill9().unwrap();
                assert_eq!(first_value(&client.until_ready()).unwrap_err().sqlstate, "40001");
                spread.server(1).start().unwrap();
            }
            BrokenOff::Decider => {
                spread.server(0).kill9().unwrap();
                assert_eq!(first_value(&client.until_ready()).unwrap_err().sqlstate, "08007");
                spread.server(0).start().unwrap();
            }
            BrokenOff::WeirBehind => {
                [1, 2].iter().for_each(|shard| spread.server(*shard).freeze());
                spread.server(0).thaw();
                wait_until("the server that decides to commit", || has_committed(&spread, &ids, &after));
                spread.server(0).query("checkpoint").unwrap();
                spread.proxy.crash_and_start();
                [1, 2].iter().for_each(|shard| spread.server(*shard).thaw());
            }
            BrokenOff::ParticipantBehind => {
                wait_until("SHOW to list the parts", || operator.rows("show pool_prepared").len() == 2);
                let parts = operator.rows("show pool_prepared");
                assert!(parts.iter().all(|part| part[3].starts_with("weir_") && part[5] == "0"), "{parts:?}");
                spread.server(2).freeze();
                spread.server(0).thaw();
                wait_until("the server that decides to commit", || has_committed(&spread, &ids, &after));
                spread.server(2).kill9().unwrap();
                spread.server(2).start().unwrap();
                let answer = client.until_ready();
                assert!(answer.iter().any(|message| message.tag == b'C' && message.text() == "COMMIT"), "{answer:?}");
                assert_eq!(
                    (balances(&spread, &ids), prepared(&spread)),
                    (after.clone(), 0),
                    "all have ended when the client hears of it"
                );
            }
        }
        wait_until("all parts to end", || prepared(&spread) == 0);
        let now = balances(&spread, &ids);
        match case {
            BrokenOff::WeirPreparing | BrokenOff::Participant | BrokenOff::Decider => assert_eq!(now, before, "{case:?}"),
            BrokenOff::ParticipantBehind | BrokenOff::WeirBehind => assert_eq!(now, after, "{case:?}"),
            BrokenOff::WeirDeciding => assert!(now == before || now == after, "{case:?}: {before:?}, now {now:?}"),
        }
        spread.wait_ready("select count(*) from accounts");
    }
}

#[test]
fn statements_that_a_transaction_on_several_shards_cannot_have_are_refused() {
    let spread = ground("");
    let ids = ids(&spread);
    let write = |shard: usize| format!("update accounts set balance = balance + 1 where id = {}", ids[shard]);
    let before = balances(&spread, &ids);
    for text in [
        "set local time zone 'UTC'",
        "set work_mem = '1MB'",
        "declare c cursor for select 1",
        "prepare transaction 'own'",
        "commit and chain",
        "rollback and chain",
        "select sum(balance) from accounts where seen < now()",
        "listen a",
        "create temp table t (a int)",
        "select set_config('work_mem', '1MB', true)",
        "lock table plain",
        "prepare p as select 1",
        &format!("update accounts set seen = now() where id = {}", ids[1]),
    ] {
        let mut client = spread.client();
        client.run("begin");
        client.run(&write(0));
        client.run(&write(1));
        assert_eq!(client.error(text).sqlstate, "0A000", "{text}");
        assert_eq!(client.error(&write(2)).sqlstate, "25P02", "{text}");
        client.run("rollback");
        client.run(&write(2));
    }
    // An earlier statement ties the transaction to its server.
    for text in ["set local time zone 'UTC'", "declare c cursor for select 1", "create temp table t (a int) on commit drop"] {
        let mut client = spread.client();
        client.run("begin");
        client.run(&write(0));
        client.run(text);
        assert_eq!(client.error(&write(1)).sqlstate, "0A000", "{text}");
        client.run("rollback");
    }
    for begin in ["begin isolation level repeatable read", "begin isolation level serializable"] {
        let mut client = spread.client();
        client.run(begin);
        client.run(&write(0));
        assert_eq!(client.error(&write(1)).sqlstate, "0A000", "{begin}");
        client.run("rollback");
    }
    // The time of the transaction is told where it began, also after a way around.
    let mut client = spread.client();
    client.run("begin");
    client.run(&write(1));
    client.run(&write(0));
    client.run(&format!("update accounts set seen = now() where id = {}", ids[1]));
    client.run("rollback");
    let now = balances(&spread, &ids);
    assert_eq!((&now[0], &now[1], prepared(&spread)), (&before[0], &before[1], 0));
}

#[test]
fn parts_are_prepared_at_once() {
    let spread = ground("");
    let ids = ids(&spread);
    for (hangs, other) in [(1, 2), (2, 1)] {
        let mut client = spread.client();
        moves_money(&mut client, &ids);
        spread.server(hangs).freeze();
        client.send(&wire::query("commit"));
        wait_until("the other part to be prepared", || prepared_on(&spread, other) == "1");
        spread.server(hangs).thaw();
        assert!(client.until_ready().iter().any(|message| message.tag == b'C' && message.text() == "COMMIT"));
        assert_eq!(prepared(&spread), 0, "the parts have ended when the client hears of it");
    }
}

#[test]
fn a_part_that_cannot_be_prepared_rolls_all_back() {
    let spread = Spread::start("");
    spread.define("create table accounts (id int primary key, balance int)");
    spread.whole().query("insert into accounts select i, 100 from generate_series(1, 40) i").unwrap();
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    let ids = ids(&spread);
    spread.server(1).query("create function stops() returns trigger language plpgsql as $$ begin raise exception 'too late' using errcode = '22000'; end $$").unwrap();
    spread.server(1).query("create constraint trigger late after update on accounts deferrable initially deferred for each row when (new.balance = 666) execute function stops()").unwrap();
    for how in [How::Simple, How::Extended] {
        let mut client = spread.client();
        let before = balances(&spread, &ids);
        assert_eq!(said(&mut client, how, "begin", &[]), "BEGIN");
        for shard in [2, 1, 0] {
            let balance = if shard == 1 { 666 } else { 7 };
            assert_eq!(
                said(&mut client, how, &format!("update accounts set balance = {balance} where id = {}", ids[shard]), &[]),
                "UPDATE 1"
            );
        }
        assert_eq!(said(&mut client, how, "commit", &[]), "22000", "{how:?}");
        assert_eq!(said(&mut client, how, "rollback", &[]), "ROLLBACK", "the transaction is over");
        wait_until("all parts to end", || prepared(&spread) == 0);
        assert_eq!(balances(&spread, &ids), before, "{how:?}");
        assert_eq!(
            said(&mut client, how, &format!("update accounts set balance = balance where id = {}", ids[2]), &[]),
            "UPDATE 1"
        );
    }
    spread.server(2).query("alter system set max_prepared_transactions = 0").unwrap();
    spread.server(2).stop(Mode::Fast).unwrap();
    spread.server(2).start().unwrap();
    spread.wait_ready("select count(*) from accounts");
    let before = balances(&spread, &ids);
    let mut client = spread.client();
    moves_money(&mut client, &ids);
    assert_eq!(client.error("commit").sqlstate, "55000");
    assert_eq!(balances(&spread, &ids), before);
}

/// As `PQprepare` does: the statement's first use tells the shard.
#[test]
fn a_statement_that_is_only_prepared_begins_no_transaction() {
    for more in configs(&["", "cross_shard_reads = latest\n"]) {
        let spread = ground(more);
        let ids = ids(&spread);
        let mut client = spread.client();
        client.run("begin");
        client.send(&[wire::parse("s", "update accounts set balance = balance + 1 where id = $1"), wire::sync()].concat());
        client.until_ready();
        for _ in 0..2 {
            client.send(&[wire::bind("", "s", &[&ids[1]]), wire::execute("", 0), wire::sync()].concat());
            let answer = client.until_ready();
            assert!(answer.iter().any(|message| message.tag == b'C'), "{answer:?}");
        }
        let open = "select count(*) from pg_stat_activity where state = 'idle in transaction'";
        assert_eq!([0, 1].map(|shard| spread.server(shard).value(open).unwrap()), ["0", "1"], "{more}");
        client.run("commit");
        assert_eq!(balances(&spread, &ids)[1], "102");
    }
}

#[test]
fn a_ring_of_waits_over_servers_ends() {
    let spread = ground("");
    let ids = ids(&spread);
    let write = |shard: usize| format!("update accounts set balance = balance + 1 where id = {}", ids[shard]);
    for (how, ways) in [(How::Simple, vec![[0, 1], [1, 0]]), (How::Extended, vec![[0, 1], [1, 2], [2, 0]])] {
        let mut clients: Vec<Raw> = ways.iter().map(|_| spread.client()).collect();
        for (client, [first, _]) in clients.iter_mut().zip(&ways) {
            assert_eq!(said(client, how, "begin", &[]), "BEGIN");
            assert_eq!(said(client, how, &write(*first), &[]), "UPDATE 1");
        }
        let threads: Vec<_> = clients
            .into_iter()
            .zip(&ways)
            .map(|(mut client, [_, second])| {
                let text = write(*second);
                std::thread::spawn(move || {
                    let outcome = said(&mut client, how, &text, &[]);
                    (said(&mut client, how, "commit", &[]), outcome)
                })
            })
            .collect();
        let outcomes: Vec<(String, String)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let count = |wanted: (&str, &str)| outcomes.iter().filter(|(end, said)| (&**end, &**said) == wanted).count();
        assert_eq!(count(("ROLLBACK", "40P01")), 1, "{outcomes:?}");
        assert_eq!(count(("COMMIT", "UPDATE 1")), ways.len() - 1, "{outcomes:?}");
    }
    assert_eq!(prepared(&spread), 0);
}

#[test]
fn a_shard_or_a_client_that_is_lost_within_a_transaction_rolls_it_back() {
    let spread = ground("");
    let ids = ids(&spread);
    let before = balances(&spread, &ids);
    let idle = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    let is_over = |spread: &Spread| (0..SHARDS).all(|shard| spread.server(shard).value(idle).unwrap() == "0");
    let mut client = spread.client();
    moves_money(&mut client, &ids);
    drop(client);
    wait_until("the transaction of a client that left to end", || is_over(&spread));
    assert_eq!(balances(&spread, &ids), before);
    for (lost, goes_on) in [(2, false), (2, true), (0, false)] {
        let mut client = spread.client();
        moves_money(&mut client, &ids);
        spread.server(lost).kill9().unwrap();
        let next = format!("update accounts set balance = balance + 1 where id = {}", ids[lost]);
        let failure = client.error(if goes_on { &next } else { "commit" });
        assert_eq!(failure.sqlstate, "40001", "{lost} {goes_on}: {failure:?}");
        if goes_on {
            client.run("rollback");
        }
        spread.server(lost).start().unwrap();
        spread.wait_ready("select count(*) from accounts");
        wait_until("its parts to end", || is_over(&spread) && prepared(&spread) == 0);
        assert_eq!(balances(&spread, &ids), before, "{lost} {goes_on}");
    }
}

#[test]
fn transactions_that_hold_each_others_connections_end() {
    let spread = ground("pool_size = 1\n");
    let ids = ids(&spread);
    let write = |shard: usize| format!("update accounts set balance = balance + 1 where id = {}", ids[shard]);
    let (mut one, mut other) = (spread.client(), spread.client());
    for (client, shard) in [(&mut one, 0), (&mut other, 1)] {
        client.run("begin");
        client.run(&write(shard));
    }
    one.send(&wire::query(&write(1)));
    other.send(&wire::query(&write(0)));
    let outcomes = [first_value(&one.until_ready()), first_value(&other.until_ready())];
    let failures: Vec<String> = outcomes.into_iter().filter_map(|outcome| Some(outcome.err()?.sqlstate)).collect();
    assert!(failures.contains(&"40001".to_owned()), "{failures:?}");
    for client in [&mut one, &mut other] {
        client.run("rollback");
        client.run(&write(2));
    }
}

const MOVERS: usize = 4;
const CRASHES: usize = 6;

/// The outcome of a transfer, as its client heard it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Committed,
    RolledBack,
    /// The connection, or the answer to the COMMIT, was lost.
    Nothing,
}

/// Moves money between accounts of shard 0 and of others until told to stop. Each transfer leaves a row with its number beside each account.
/// Shard 0 decides: the outcome stays provable while others crash.
fn mover(port: u16, number: usize, accounts: &[Vec<i64>], is_over: &AtomicBool) -> Vec<(i64, Heard)> {
    let mut dice = Dice::new(number as u64 + 77);
    let (mut heard, mut client) = (Vec::new(), None);
    for at in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let transfer = (number * 1_000_000 + at) as i64;
        let shards = [0, 1 + dice.below(SHARDS - 1)];
        let [from, to] = if dice.once_in(2) { shards } else { [shards[1], shards[0]] };
        let (from, to) = (dice.of(&accounts[from]), dice.of(&accounts[to]));
        if client.is_none() {
            client = Raw::try_tcp(port).and_then(|raw| raw.log_in("postgres", "postgres", &[]).ok());
        }
        let Some(raw) = &mut client else { continue };
        let texts = [
            "begin".to_owned(),
            format!("update accounts set balance = balance - 1 where id = {from}"),
            format!("insert into entries values ({from}, {transfer}, -1)"),
            format!("update accounts set balance = balance + 1 where id = {to}"),
            format!("insert into entries values ({to}, {transfer}, 1)"),
        ];
        let failed = texts.iter().find_map(|text| raw.try_rows(text).err());
        let is_taken_back = failed.is_some() || dice.once_in(8);
        let end = if is_taken_back { "rollback" } else { "commit" };
        let ended = raw.try_rows(end);
        heard.push((
            transfer,
            match &ended {
                _ if is_taken_back => Heard::RolledBack,
                Ok(_) => Heard::Committed,
                Err(failure) if failure.sqlstate == "08007" || failure.severity == "FATAL" => Heard::Nothing,
                Err(_) => Heard::RolledBack,
            },
        ));
        if ended.is_err() {
            client = None;
        }
    }
    heard
}

#[test]
fn no_transfer_between_shards_is_done_in_part_while_servers_crash() {
    let spread = Spread::start("pool_size = 8\n");
    spread.define(ACCOUNTS);
    spread.define("create table entries (account int, transfer bigint, by int, primary key (account, transfer))");
    spread.whole().query("insert into accounts select i, 1000 from generate_series(1, 60) i").unwrap();
    spread.shard("accounts", "id", "");
    spread.shard("entries", "account", "--with public.accounts");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    let accounts: Vec<Vec<i64>> = (0..SHARDS)
        .map(|shard| {
            let ids = spread.server(shard).value("select string_agg(id::text, ',') from accounts").unwrap();
            ids.split(',').map(|id| id.parse().unwrap()).collect()
        })
        .collect();
    let is_over = AtomicBool::new(false);
    let port = spread.proxy.port();
    let heard: Vec<(i64, Heard)> = std::thread::scope(|scope| {
        let movers: Vec<_> = (0..MOVERS)
            .map(|number| {
                scope.spawn({
                    let (accounts, is_over) = (&accounts, &is_over);
                    move || mover(port, number, accounts, is_over)
                })
            })
            .collect();
        for crash in 0..CRASHES {
            let shard = 1 + crash % (SHARDS - 1);
            let done = || spread.server(0).value("select count(*) from entries").unwrap().parse::<u64>().unwrap();
            let before = done();
            wait_until("more transfers", || done() > before + 5);
            spread.server(shard).kill9().unwrap();
            spread.server(shard).start().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        movers.into_iter().flat_map(|mover| mover.join().unwrap()).collect()
    });
    wait_until("all parts to end", || prepared(&spread) == 0);
    let mut rows = std::collections::BTreeMap::<i64, usize>::new();
    for shard in 0..SHARDS {
        let transfers = spread.server(shard).value("select coalesce(string_agg(transfer::text, ','), '') from entries").unwrap();
        transfers
            .split(',')
            .filter_map(|number| number.parse().ok())
            .for_each(|number: i64| *rows.entry(number).or_default() += 1);
    }
    let wrong: Vec<_> = heard
        .iter()
        .map(|(transfer, heard)| (*transfer, *heard, rows.get(transfer).copied().unwrap_or(0)))
        .filter(|(_, heard, rows)| {
            let may = match heard {
                Heard::Committed => *rows == 2,
                Heard::RolledBack => *rows == 0,
                Heard::Nothing => *rows == 0 || *rows == 2,
            };
            !may
        })
        .collect();
    assert!(wrong.is_empty(), "transfer, what its client heard, its rows: {wrong:?}");
    let committed = heard.iter().filter(|(_, heard)| *heard == Heard::Committed).count();
    assert!(committed > 20, "{committed} of {} were committed", heard.len());
    let sum: i64 = (0..SHARDS)
        .map(|shard| spread.server(shard).value("select sum(balance) from accounts").unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(sum, 60 * 1000);
    eprintln!("{} transfers between shards: {committed} committed", heard.len());
}

/// Moves money between shards, whose sum stays, until told to stop. Counts the transfers that were committed. Shard 0 comes
/// first: no two wait for each other, and the outcome stays provable while others crash.
pub fn shifter(port: u16, number: usize, ids: &[String; SHARDS], (done, is_over): (&AtomicU64, &AtomicBool)) {
    let (mut dice, mut client) = (Dice::new(number as u64 + 5), None);
    while !is_over.load(Ordering::Relaxed) {
        if client.is_none() {
            client = Raw::try_tcp(port).and_then(|raw| raw.log_in("postgres", "postgres", &[]).ok());
        }
        let Some(raw) = &mut client else { continue };
        let (second, by) = (1 + dice.below(SHARDS - 1), if dice.once_in(2) { 1 } else { -1 });
        let texts = [
            "begin".to_owned(),
            format!("update accounts set balance = balance - {by} where id = {}", ids[0]),
            format!("update accounts set balance = balance + {by} where id = {}", ids[second]),
            "commit".to_owned(),
        ];
        match texts.iter().find_map(|text| raw.try_rows(text).err()) {
            None => drop(done.fetch_add(1, Ordering::Relaxed)),
            // The client may be in a failed transaction, or without a server.
            Some(_) => client = None,
        }
    }
}

pub const SUM: &str = "select sum(balance) from accounts";

/// Asks for the sum over all shards until told to stop. Returns the sums that were told.
fn adder(port: u16, how: How, is_over: &AtomicBool) -> Vec<String> {
    let (mut client, mut sums) = (None, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        if client.is_none() {
            client = Raw::try_tcp(port).and_then(|raw| raw.log_in("postgres", "postgres", &[]).ok());
        }
        let Some(raw) = &mut client else { continue };
        match raw.try_rows_of(&how.messages(SUM, &[])) {
            Ok(rows) => sums.push(rows[0][0].clone().unwrap()),
            Err(_) => client = None,
        }
    }
    sums
}

/// Runs shifters through one proxy and adders through both while `faults` goes on, which is given the number of transfers. Returns that number and the
/// sums.
fn shifted_and_added(spread: &Spread, ports: [u16; 2], faults: impl FnOnce(&dyn Fn() -> u64)) -> (u64, Vec<String>) {
    let ids = ids(spread);
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let sums = std::thread::scope(|scope| {
        let (ids, done, is_over) = (&ids, &done, &is_over);
        (0..3).for_each(|number| drop(scope.spawn(move || shifter(ports[0], number, ids, (done, is_over)))));
        let adders = [(ports[0], How::Simple), (ports[1], How::Extended)];
        let adders: Vec<_> = adders.into_iter().map(|(port, how)| scope.spawn(move || adder(port, how, is_over))).collect();
        faults(&|| done.load(Ordering::Relaxed));
        is_over.store(true, Ordering::Relaxed);
        adders.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    (done.into_inner(), sums)
}

#[test]
fn a_read_of_several_shards_sees_a_commit_as_a_whole_or_not_at_all() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\ncommit_outcome = on\n"]) {
        let mut spread = ground(more);
        let other = spread.other_proxy(more);
        spread.everywhere("update accounts set balance = 1000000");
        let sum = spread.whole().value(SUM).unwrap();
        wait_until("the other proxy to know the tables", || {
            Raw::tcp(other.port()).log_in("postgres", "postgres", &[]).unwrap().try_rows(SUM).is_ok()
        });
        let ports = [spread.proxy.port(), other.port()];
        let (committed, sums) = shifted_and_added(&spread, ports, |done| {
            let before = done();
            wait_until("commits", || done() > before + 300);
        });
        assert!(sums.len() > 20, "{committed} transfers, {} sums", sums.len());
        assert_eq!(sums.iter().find(|told| **told != sum), None, "{more}");
        eprintln!("{committed} transfers, {} sums", sums.len());
        // A shard ends, and both answer again.
        let (_, sums) = shifted_and_added(&spread, ports, |done| {
            let before = done();
            wait_until("commits", || done() > before + 50);
            spread.server(2).kill9().unwrap();
            spread.server(2).start().unwrap();
            let before = done();
            wait_until("commits", || done() > before + 50);
        });
        assert_eq!(sums.iter().find(|told| **told != sum), None, "{more}: a shard ended");
        // The proxy of the transfers ends in the middle: its parts are ended by the other one.
        for _ in 0..3 {
            let ids = ids(&spread);
            let mut client = spread.client();
            moves_money(&mut client, &ids);
            spread.server(1).freeze();
            client.send(&wire::query("commit"));
            wait_until("a part to be prepared", || prepared_on(&spread, 2) == "1");
            spread.proxy.crash_and_start();
            spread.server(1).thaw();
            let mut reader = Raw::tcp(other.port()).log_in("postgres", "postgres", &[]).unwrap();
            wait_until("the other proxy to answer", || {
                let told = reader.try_rows(SUM);
                told.is_ok_and(|rows| rows == [[Some(sum.clone())]] || panic!("{rows:?} instead of {sum}"))
            });
            assert_eq!(prepared(&spread), 0, "the parts had ended when the sum was told");
        }
    }
}

#[test]
fn a_shard_that_hangs_fails_reads_and_lets_commits_of_other_shards_go_on() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\npool_size = 2\n"]) {
        let spread = ground(more);
        let ids = ids(&spread);
        let (mut reader, mut writer) = (spread.client(), spread.client());
        let sum = reader.value(SUM);
        spread.server(2).freeze();
        for round in 0..2 {
            reader.send(&How::Extended.messages(SUM, &[]));
            writer.run("begin");
            (0..2).for_each(|shard| writer.run(&format!("update accounts set balance = balance + 0 where id = {}", ids[shard])));
            writer.run("commit");
            let failure = first_value(&reader.until_ready()).unwrap_err();
            assert!(failure.sqlstate.starts_with("08"), "{round}: {failure:?}");
        }
        spread.server(2).thaw();
        wait_until("reads to go on", || reader.try_rows(SUM).is_ok_and(|rows| rows == [[Some(sum.clone())]]));
        // Sessions with other settings share few connections of the engine.
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let name = format!("client {number}");
                let port = spread.proxy.port();
                std::thread::spawn(move || {
                    let named = [("application_name", &*name), ("TimeZone", if number % 2 == 0 { "UTC" } else { "Asia/Tokyo" })];
                    let mut client = Raw::tcp(port).log_in("postgres", "postgres", &named).unwrap();
                    (0..10).map(|_| client.value(SUM)).collect::<Vec<_>>()
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), vec![sum.clone(); 10]);
        }
    }
}

#[test]
fn reads_of_several_shards_that_do_not_wait_for_answers_have_snapshots_of_their_own() {
    for more in configs(&["", "cross_shard_reads = latest\n"]) {
        let spread = ground(more);
        let mut client = spread.client();
        let (query, pipeline) = (wire::query(SUM), [wire::unnamed(SUM, &[]), wire::sync()].concat());
        // The second read of a pipeline is refused.
        let refused = [wire::unnamed(SUM, &[]), wire::unnamed(SUM, &[]), wire::sync()].concat();
        for messages in [
            [&query, &query, &query],
            [&pipeline, &query, &pipeline],
            [&refused, &query, &refused],
            [&refused, &pipeline, &query],
        ] {
            client.send(&messages.map(Vec::as_slice).concat());
            for _ in messages {
                assert_eq!(first_value(&client.until_ready()).unwrap(), "4000", "{more}");
            }
        }
    }
}

const ENDS_GATES: &str = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'weir_gate'";

#[test]
fn a_check_user_without_superuser_rights_holds_the_gate() {
    let spread = Spread::encrypting("");
    spread.everywhere("create role checker login; grant pg_monitor to checker");
    spread.proxy.add_conf("sr_check_user = 'checker'\nhealth_check_user = 'checker'");
    spread.proxy.reload();
    spread.define(ACCOUNTS);
    spread.whole().query("insert into accounts select i, 100 from generate_series(1, 40) i").unwrap();
    spread.shard("accounts", "id", "--user postgres");
    spread.fill(&["accounts"]);
    spread.command("engine postgres --user weir_engine --login postgres");
    spread.wait_ready(SUM);
    spread.proxy.add_conf("backend_sslmode = require");
    spread.proxy.reload();
    spread.server(0).query(ENDS_GATES).unwrap();
    let ids = ids(&spread);
    let mut client = spread.client();
    moves_money(&mut client, &ids);
    client.run("commit");
    let encrypted =
        "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) where application_name = 'weir_gate'";
    assert_eq!(spread.server(0).value(encrypted).unwrap(), "t");
    assert_eq!((client.value(SUM), balances(&spread, &ids)), ("4000".to_owned(), ["101", "101", "98"].map(str::to_owned)));
    // Nobody else may lock it.
    let mut other = Raw::tcp(spread.server(0).port()).log_in("weir_engine", "postgres_engine", &[]).unwrap();
    other.run("begin");
    assert_eq!(other.error("lock table weir_shard.gate in share mode").sqlstate, "42501");
    // A commit or read without the gate is none.
    spread.server(0).query("revoke connect on database postgres_engine from public, checker").unwrap();
    spread.server(0).query(ENDS_GATES).unwrap();
    moves_money(&mut client, &ids);
    assert_eq!(client.error("commit").sqlstate, "42501");
    assert_eq!(balances(&spread, &ids), ["101", "101", "98"].map(str::to_owned));
}
