//! Blocks under REPEATABLE READ that read several shards: all of their statements have one snapshot of each shard.

use crate::shard_transactions::{SUM, ground, ids, prepared, shifter};
use crate::support::ground::wait_until;
use crate::support::spread::{How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const BEGIN: &str = "begin isolation level repeatable read";

const CONFIGS: [&str; 4] = [
    "",
    "cross_shard_reads = latest\ncommit_outcome = on\ntransaction_replay = on\n",
    "io_method = epoll\nworker_threads = 1\npool_size = 1\nstatement_statistics_max = 100\n",
    "causal_reads = global\nlog_statement = on\nreset_query_list = 'ABORT; DISCARD ALL'\n",
];

pub fn told(client: &mut Raw, how: How, text: &str) -> String {
    let answer = ask(client, how, text, &[]);
    let rows: Vec<String> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.clone().unwrap_or_default()).collect::<Vec<_>>().join("|"))
        .collect();
    answer.failure.unwrap_or_else(|| rows.join(","))
}

#[test]
fn all_statements_of_a_block_have_one_snapshot_of_each_shard() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let ids = ids(&spread);
        for how in [How::Simple, How::Extended] {
            has_one_snapshot(&spread, &ids, how);
            wait_until("no transaction to be open", || {
                let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
                (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
            });
        }
        assert_eq!(prepared(&spread), 0, "{more}");
    }
}

fn has_one_snapshot(spread: &Spread, ids: &[String; SHARDS], how: How) {
    let (mut reader, mut writer) = (spread.client(), spread.client());
    let by_key = |shard: usize| format!("select balance from accounts where id = {}", ids[shard]);
    for begin in [
        BEGIN,
        "begin isolation level repeatable read, read only",
        "set default_transaction_isolation = 'repeatable read'; begin",
    ] {
        begin.split("; ").for_each(|text| drop(told(&mut reader, how, text)));
        let sum = told(&mut reader, how, SUM);
        let before: Vec<String> = (0..SHARDS).map(|shard| told(&mut reader, how, &by_key(shard))).collect();
        for id in ids {
            writer.run(&format!("update accounts set balance = balance + 7 where id = {id}"));
        }
        writer.run("insert into accounts values (1000 , 1), (1001, 1), (1002, 1), (1003, 1), (1004, 1)");
        assert_eq!(told(&mut reader, how, SUM), sum, "{begin}");
        assert_eq!(told(&mut reader, how, "select count(*) from accounts where id >= 1000"), "0");
        assert_eq!((0..SHARDS).map(|shard| told(&mut reader, how, &by_key(shard))).collect::<Vec<_>>(), before);
        assert_eq!(told(&mut reader, how, "show transaction_isolation"), "repeatable read");
        assert_eq!(told(&mut reader, how, "select count(distinct now()) from accounts"), "1");
        // An error ends the block, or is undone by a savepoint.
        assert_eq!(told(&mut reader, how, "savepoint a"), "");
        for text in [
            "update accounts set balance = 0",
            "commit and chain",
            "select note from plain",
            "select 1",
            "select 1 / (balance - balance) from accounts",
        ] {
            let failure = told(&mut reader, how, text);
            assert!(["0A000", "22012"].contains(&&*failure), "{text}: {failure}");
            assert_eq!(told(&mut reader, how, SUM), "25P02");
            assert_eq!(told(&mut reader, how, "rollback to a"), "");
            assert_eq!(told(&mut reader, how, SUM), sum, "{text}");
        }
        assert_eq!(told(&mut reader, how, "commit"), "");
        let after = told(&mut reader, how, SUM).parse::<i64>().unwrap();
        assert_eq!(after, sum.parse::<i64>().unwrap() + 7 * SHARDS as i64 + 5, "{begin}");
        reader.run("reset all");
        assert_eq!(told(&mut reader, how, "update accounts set balance = balance where id > 0"), "");
        writer.run("delete from accounts where id >= 1000");
    }
    // A block that began elsewhere, and one that is serializable, stay there.
    for (begin, first) in [
        (BEGIN, format!("update accounts set balance = 1 where id = {}", ids[1])),
        ("begin isolation level serializable", by_key(1)),
    ] {
        told(&mut reader, how, begin);
        told(&mut reader, how, &first);
        assert_eq!(told(&mut reader, how, SUM), "0A000", "{begin}");
        reader.run("rollback");
    }
}

/// Reads the sum twice in a block until told to stop. Returns what was told; blocks that fail are left out.
fn block_reader(port: u16, how: How, is_over: &AtomicBool) -> Vec<(String, String)> {
    let (mut client, mut sums) = (None, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        if client.is_none() {
            client = Raw::try_tcp(port).and_then(|raw| raw.log_in("postgres", "postgres", &[]).ok());
        }
        let Some(raw) = &mut client else { continue };
        let mut sum = |text: &str| raw.try_rows_of(&how.messages(text, &[])).ok();
        let outcome = (|| {
            sum(BEGIN)?;
            let (one, other) = (sum(SUM)?, sum(SUM)?);
            sum("commit")?;
            Some((one[0][0].clone()?, other[0][0].clone()?))
        })();
        match outcome {
            Some(pair) => sums.push(pair),
            None => client = None,
        }
    }
    sums
}

#[test]
fn a_block_sees_a_commit_on_several_shards_as_a_whole_or_not_at_all() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\npool_size = 3\n"]) {
        let spread = ground(more);
        spread.everywhere("update accounts set balance = 1000000");
        let sum = spread.whole().value(SUM).unwrap();
        let (ids, port) = (ids(&spread), spread.proxy.port());
        let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let sums: Vec<(String, String)> = std::thread::scope(|scope| {
            let (ids, done, is_over) = (&ids, &done, &is_over);
            (0..2).for_each(|number| drop(scope.spawn(move || shifter(port, number, ids, (done, is_over)))));
            let readers: Vec<_> =
                [How::Simple, How::Extended].map(|how| scope.spawn(move || block_reader(port, how, is_over))).into();
            let count = |more: u64| {
                let before = done.load(Ordering::Relaxed);
                wait_until("commits", || done.load(Ordering::Relaxed) > before + more);
            };
            count(200);
            spread.server(2).kill9().unwrap();
            spread.server(2).start().unwrap();
            count(100);
            is_over.store(true, Ordering::Relaxed);
            readers.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sums.len() > 20, "{} blocks", sums.len());
        assert_eq!(sums.iter().find(|(one, other)| *one != sum || *other != sum), None, "{more}");
        eprintln!("{} transfers, {} blocks", done.into_inner(), sums.len());
    }
}

#[test]
fn a_server_that_is_lost_fails_the_block_and_nothing_else() {
    let spread = ground("");
    let ids = ids(&spread);
    let sum = spread.client().value(SUM);
    let mut client = spread.client();
    // A shard hangs before the snapshots are there.
    spread.server(2).freeze();
    client.run(BEGIN);
    let failure = client.error(SUM);
    assert!(failure.sqlstate.starts_with("08"), "{failure:?}");
    assert_eq!(client.error(SUM).sqlstate, "25P02");
    client.run("rollback");
    spread.server(2).thaw();
    wait_until("reads to go on", || spread.client().try_rows(SUM).is_ok());
    // A shard is lost behind them.
    client.run(BEGIN);
    assert_eq!(client.value(SUM), sum);
    spread.server(1).kill9().unwrap();
    client.error(&format!("select balance from accounts where id = {}", ids[1]));
    assert_eq!(client.error(SUM).sqlstate, "25P02");
    client.run("rollback");
    spread.server(1).start().unwrap();
    spread.wait_ready(SUM);
    // The engine's connection is lost.
    client.run(BEGIN);
    assert_eq!(client.value(SUM), sum);
    spread.server(0).query("select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname like '%engine'").unwrap();
    client.error(SUM);
    client.run("rollback");
    assert_eq!(client.value(SUM), sum);
    // A client leaves within a block.
    client.run(BEGIN);
    assert_eq!(client.value(SUM), sum);
    drop(client);
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    wait_until("the block to end", || (0..SHARDS).all(|shard| spread.server(shard).value(open).unwrap() == "0"));
    // Messages that do not wait for answers.
    let mut client = spread.client();
    client.send(
        &[wire::query(BEGIN), wire::query(SUM), How::Extended.messages(SUM, &[]), wire::query("commit"), wire::query(SUM)]
            .concat(),
    );
    let told: Vec<String> = (0..5).map(|_| format!("{:?}", client.until_ready())).collect();
    assert_eq!(told.iter().filter(|answer| answer.contains(&sum)).count(), 3, "{told:?}");
}
