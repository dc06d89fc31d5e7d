//! Drivers and tools that people use, with their default behaviour. Each runs a script of its language against a server itself
//! and through Weir, in transaction pooling with two server connections, reads on standbys and neighbours that take the
//! connections away. Its output must be the same.
//!
//! The scripts are in `drivers/`, with files that pin the drivers' versions. A test whose language is not installed, or whose packages
//! cannot be fetched, says so and is left out; `cargo xtask test` names those at the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "drivers/programs.rs"]
mod programs;
#[path = "drivers/shard_batches.rs"]
mod shard_batches;
#[path = "drivers/stage.rs"]
mod stage;
#[allow(dead_code, unused_imports, reason = "shared with the end-to-end tests, which use all of it")]
#[path = "support/mod.rs"]
mod support;
#[path = "drivers/toolbox.rs"]
mod toolbox;

use stage::{SMALL_POOL, Through};
use toolbox::{go, java, node, python, shell};
use weir_demo::Programs;

/// Runs a test, or says why it is left out.
fn try_out(play: impl FnOnce() -> Result<(), String>) {
    if let Err(why) = play() {
        support::leave_out(&why);
    }
}

/// The driver's prepared statements were met by server connections that did not have them, and its reads by standbys.
fn check_moved(through: &Through) {
    assert!(through.proxy.metric("parses_added_total") > 0, "no statement was brought to another connection");
    let counts = through.proxy.nodes("select_cnt");
    assert!(counts[1..].iter().any(|count| count != "0"), "no read went to a standby: {counts:?}");
    let locks = "select count(*) from pg_locks where locktype = 'advisory' and database = \
                 (select oid from pg_database where datname = current_database())";
    support::wait_until("advisory locks to go with their sessions", || through.ground.direct().value(locks) == "0");
}

#[test]
fn psycopg() {
    try_out(|| stage::check(|| python("with_psycopg.py"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn asyncpg() {
    try_out(|| stage::check(|| python("with_asyncpg.py"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn sqlalchemy() {
    try_out(|| stage::check(|| python("with_sqlalchemy.py"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn alembic() {
    try_out(|| stage::check(|| python("with_alembic.py"), SMALL_POOL).map(drop));
}

#[test]
fn pg_dump_and_pg_restore() {
    // Both with two jobs have three connections in transactions at the same time.
    try_out(|| {
        let major = Programs::find().map_err(|error| error.to_string())?.major();
        stage::check(|| shell("dump.sh", major), "pool_size = 4\n").map(drop)
    });
}

#[test]
fn pgx() {
    try_out(|| stage::check(|| go("pgx"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn lib_pq() {
    try_out(|| stage::check(|| go("pq"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn golang_migrate() {
    try_out(|| stage::check(|| go("migrate"), SMALL_POOL).map(drop));
}

#[test]
fn node_postgres() {
    try_out(|| stage::check(|| node("with_pg.js"), SMALL_POOL).map(|through| check_moved(&through)));
}

#[test]
fn pgjdbc() {
    try_out(|| stage::check(|| java("WithPgjdbc.java"), SMALL_POOL).map(|through| check_moved(&through)));
}
