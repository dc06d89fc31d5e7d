//! Batches of drivers whose rows lie on several shards: as on one server with all rows.

use crate::stage::{check_ended, check_same, run};
use crate::support::spread::{SHARDS, Spread};
use crate::toolbox::{java, python};
use crate::try_out;
use std::process::Command;

const TABLES: &str = "create table accounts (id int primary key, balance int not null, note text);
    create table logs (id bigserial, account int, note text, primary key (account, id));
    create table plain (id int primary key, note text)";

fn check(make: impl Fn() -> Result<Command, String>, more: &str) -> Result<(), String> {
    // First, so that no servers are started for a program that cannot be had.
    let command = make()?;
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query("insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, 40) i").unwrap();
    spread.shard("accounts", "id", "");
    spread.shard("logs", "account", "--with public.accounts");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    let direct = run(command, "postgres", spread.whole().port());
    check_ended(&direct);
    let through = run(make()?, "postgres", spread.proxy.port());
    check_same(&direct, &through);
    for shard in 0..SHARDS {
        let left = "select count(*) from pg_prepared_xacts";
        assert_eq!(spread.server(shard).value(left).unwrap(), "0", "{shard}");
    }
    Ok(())
}

#[test]
fn pgjdbc_sends_batches_for_several_shards() {
    try_out(|| check(|| java("WithShardBatches.java"), ""));
}

#[test]
fn psycopg_and_asyncpg_send_batches_for_several_shards() {
    try_out(|| check(|| python("with_shard_batches.py"), "pool_size = 1\nworker_threads = 1\n"));
}
