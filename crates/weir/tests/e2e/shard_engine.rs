//! `weir shard engine`: the engine reads all shards, with the rights and settings of its database, and Weir knows while it does.

use crate::shard_command::{Shards, check_one_takes};
use crate::support::Proxy;
use crate::support::Raw;
use crate::support::ground::wait_until;
use crate::support::proxy::Backend;
use std::fs;
use weir_demo::{Auth, Sql};

const ENGINE: &str = "postgres_engine";

const READY: &str = "engine --user weir_engine";

/// `orders` spread over three servers with the keys 1 to 30, and `countries` on each.
fn spread(shards: &Shards) {
    for shard in 0..3 {
        shards.on(
            shard,
            "create role weir_engine login password 'it''s secret'; create role reader login; create role clerk login; create role \"Its owner\" login; \
             create role stranger login; grant create, usage on schema public to \"Its owner\"",
        );
    }
    shards.on(
        0,
        "create schema s; create table orders (id int not null, note text default 'n', hidden text default 'h'); \
         alter table orders owner to \"Its owner\"; grant select on orders to reader; grant select (id, note), insert on orders to clerk; \
         create table s.countries (code text, name text); insert into s.countries values ('de', 'Germany'), ('jp', 'Japan'); \
         grant usage on schema s to reader; grant select on s.countries to public",
    );
    shards.done("table orders --key id");
    shards.done("reference s.countries");
    let keys: Vec<String> = (1..=30).map(|key| key.to_string()).collect();
    check_one_takes(shards, "orders", "id", &keys.iter().map(String::as_str).collect::<Vec<_>>());
}

fn engine_as(shards: &Shards, role: &str) -> Sql {
    shards.server(0).connect(role, ENGINE).unwrap()
}

fn value(sql: &mut Sql, text: &str) -> String {
    sql.query(text).unwrap().remove(0).remove(0).unwrap()
}

fn check_fails(sql: &mut Sql, text: &str, reason: &str) {
    let said = format!("{:#}", sql.query(text).unwrap_err());
    assert!(said.contains(reason), "{text}: {said}");
}

#[test]
fn the_engine_reads_all_shards_for_those_who_may_and_writes_nothing() {
    let shards = Shards::start();
    spread(&shards);
    let said = shards.done(READY);
    assert_eq!(said, "the engine of \"postgres\" is ready: 2 tables on 3 shards, read as \"weir_engine\"\n");
    let mut reader = engine_as(&shards, "reader");
    assert_eq!(value(&mut reader, "select count(*) from orders"), "30");
    assert_eq!(value(&mut reader, "select sum(id) from orders, s.countries where code = 'jp'"), "465");
    assert_eq!(value(&mut engine_as(&shards, "Its owner"), "select count(hidden) from orders"), "30");
    let mut clerk = engine_as(&shards, "clerk");
    assert_eq!(value(&mut clerk, "select max(id)::text || max(note) from orders"), "30n");
    let orders = "permission denied for table orders";
    check_fails(&mut clerk, "select hidden from orders", orders);
    check_fails(&mut clerk, "insert into orders values (31)", orders);
    check_fails(&mut clerk, "select * from s.countries", "permission denied for schema s");
    let mut stranger = engine_as(&shards, "stranger");
    check_fails(&mut stranger, "select count(*) from orders", orders);
    check_fails(&mut reader, "select * from orders_0", "permission denied for foreign table orders_0");
    check_fails(&mut reader, "delete from orders", orders);
    // As in the database itself, whose temporary tables are nobody else's.
    reader.query("create temp table t (a int)").unwrap();
    check_fails(&mut reader, "create schema t", "permission denied for database");
    let mut owner = engine_as(&shards, "postgres");
    for text in ["insert into orders values (31)", "update orders set note = 'x'", "delete from orders"] {
        check_fails(&mut owner, text, "does not allow");
    }
    check_fails(&mut owner, "truncate orders", "\"orders_");
    // Weir sees row security of shard 0. Elsewhere it is an error, and never a part of the rows.
    shards.on(1, "alter table orders enable row level security");
    check_fails(&mut reader, "select count(*) from orders", "query would be affected by row-level security policy");
    shards.on(1, "alter table orders disable row level security");
    let secrets = "select count(*) from pg_user_mappings where umoptions is not null";
    assert_eq!(value(&mut reader, secrets), "0", "the password of the engine's role is shown to everyone");
    shards.check_alike();
    shards.on(2, "revoke select on orders from weir_engine");
    let (success, text) = shards.run("check");
    assert!(
        !success && text.contains("shard_2 of the engine, table \"public\".\"orders_2\": permission denied for table orders"),
        "{text}"
    );
}

#[test]
fn another_run_changes_nothing_and_new_tables_are_ready_at_once() {
    let shards = Shards::start();
    spread(&shards);
    shards.on(
        0,
        "alter database postgres set work_mem = '7MB'; alter role reader in database postgres set search_path = '$user', \"s\", public; \
         alter database postgres set enable_partitionwise_join = off; revoke connect, temporary on database postgres from public; \
         grant connect on database postgres to reader",
    );
    shards.done(READY);
    let mut reader = engine_as(&shards, "reader");
    let shown = "select concat_ws(' ', current_setting('work_mem'), current_setting('search_path'), current_setting('enable_partitionwise_join'), \
        current_setting('enable_partitionwise_aggregate'))";
    assert_eq!(value(&mut reader, shown), "7MB \"$user\", s, public off on");
    check_fails(&mut reader, "create temp table t (a int)", "permission denied to create temporary tables");
    assert!(shards.server(0).connect("clerk", ENGINE).is_err(), "a role without CONNECT to the database came into its engine");
    let versions = "select string_agg(x, ' ') from (select xmin::text from pg_foreign_server union all select xmin::text from pg_user_mapping \
        union all select xmin::text from pg_class where oid > 16384 union all select xmin::text from pg_namespace \
        union all select xmin::text || ctid from weir_shard.engine_state union all select xmin::text from pg_proc where oid > 16384 \
        union all select xmin::text from pg_db_role_setting union all select xmin::text from pg_database) as v (x)";
    let before = shards.engine(versions);
    let on_shard = "select string_agg(xmin::text, ' ') from pg_class where oid > 16384";
    let shard_before = shards.value(1, on_shard);
    shards.done(READY);
    assert_eq!(shards.engine(versions), before);
    assert_eq!(shards.value(1, on_shard), shard_before);

    shards.on(0, "create table more (id int); grant select on more to reader");
    shards.done("table more --key id --hash 3");
    assert_eq!(value(&mut engine_as(&shards, "reader"), "select count(*) from more"), "0");
    shards.done("drop more");
    shards.check_alike();
    shards.on(0, "alter database postgres reset work_mem; revoke select on orders from reader");
    let (success, text) = shards.run("check");
    assert!(!success && text.contains("the engine is behind: rights changed on shard 0"), "{text}");
    shards.done(READY);
    assert_eq!(value(&mut engine_as(&shards, "reader"), "show work_mem"), "4MB");
    check_fails(&mut engine_as(&shards, "reader"), "select count(*) from orders", "permission denied");
}

#[test]
fn an_address_a_password_or_a_role_that_is_wrong_is_named_and_changes_nothing() {
    let lines = ["local all weir_engine scram-sha-256", "host all weir_engine all scram-sha-256"];
    let shards = Shards::with(Auth { hba_lines: lines.map(str::to_owned).to_vec(), ..Auth::default() });
    shards.on(0, "create table orders (id int)");
    shards.done("table orders --key id");
    shards.check_refused(READY, "shard 1 (node 1");
    shards.check_refused(READY, "there is no role \"weir_engine\": CREATE ROLE \"weir_engine\" LOGIN");
    for shard in 0..3 {
        shards.on(shard, "set password_encryption = 'scram-sha-256'; create role weir_engine password 'it''s secret' superuser");
    }
    shards.check_refused(READY, "may not log in: ALTER ROLE \"weir_engine\" LOGIN");
    for shard in 0..3 {
        shards.on(shard, "alter role weir_engine login");
    }
    shards.check_refused(READY, "may do more than read");
    for shard in 0..3 {
        shards.on(shard, "alter role weir_engine nosuperuser");
    }
    shards.check_refused(READY, "password");
    let passwd = shards.folder.0.join("pool_passwd");
    fs::write(&passwd, "weir_engine:TEXTother\n").unwrap();
    shards.check_refused(READY, "password authentication failed for user \"weir_engine\"");
    fs::write(&passwd, "weir_engine:TEXTit's secret\n").unwrap();
    let elsewhere = format!("{READY} --address 2=127.0.0.1:{}", shards.server(1).port());
    shards.check_refused(&elsewhere, "the server shard_2 of the engine leads to another server");
    shards.check_refused(&format!("{READY} --address 2=127.0.0.1:1"), "Connection refused");
    shards.check_refused(&format!("{READY} --address 7=127.0.0.1:1"), "there is no shard 7");
    assert_eq!(shards.engine("select count(*) from pg_namespace where nspname = 'weir_shard'")[0][0].as_deref(), Some("0"));
    let here = format!("{READY} --address 2=localhost:{}", shards.server(2).port());
    shards.done(&here);
    shards.on(0, "create table more (id int)");
    shards.done("table more --key id");
    let host = "select (select substr(o, 6) from unnest(srvoptions) o where o like 'host=%') from pg_foreign_server where srvname = 'shard_2'";
    assert_eq!(shards.engine(host)[0][0].as_deref(), Some("localhost"), "the address of the engine was forgotten");
    for server in 0..3 {
        assert!(!shards.server(server).log().contains("it''s secret'"), "a password stands in the log of shard {server}");
    }
    shards.on(1, "alter role weir_engine password 'new'");
    let (success, text) = shards.run("check");
    assert!(!success && text.contains("shard 1 (node 1") && text.contains("password authentication failed"), "{text}");
}

#[test]
fn weir_knows_at_once_that_rights_settings_or_row_security_have_changed() {
    let shards = Shards::start();
    spread(&shards);
    let backends: Vec<Backend> = (0..3).map(|shard| Backend::tcp(shards.server(shard).port(), 1)).collect();
    let proxy = Proxy::spawn(&backends, "parallel_mode = on\nbackend_shard1 = 1\nbackend_shard2 = 2\n");
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    let mut is_said = |what: &str| {
        let rows = client.rows("show pool_shard_tables");
        rows.len() == 2 && rows.iter().all(|row| row.last().is_some_and(|engine| engine.starts_with(what)))
    };
    let mut wait_for = |what: &str| wait_until(what, || is_said(what));
    wait_for("not made ready");
    shards.done(READY);
    wait_for("ready");
    for (harm, mend, what) in [
        ("revoke select on orders from reader", "", "rights changed"),
        ("revoke select (note) on orders from clerk", "", "rights changed"),
        ("revoke usage on schema s from reader", "", "rights changed"),
        ("alter table orders owner to reader", "", "rights changed"),
        ("grant connect on database postgres to stranger", "", "rights changed"),
        ("alter database postgres set statement_timeout = '1h'", "", "settings of the database changed"),
        ("alter role reader in database postgres set work_mem = '1MB'", "", "settings of the database changed"),
        ("alter table orders enable row level security", "alter table orders disable row level security", "row security changed"),
        ("alter table orders add extra int", "alter table orders drop extra", "the tables and their columns changed"),
    ] {
        let followed = || proxy.log().matches("have changed: the engine of \"postgres\" is ready").count();
        let before = followed();
        shards.on(0, harm);
        if mend.is_empty() {
            wait_until(what, || followed() > before);
        } else {
            wait_for(&format!("behind: {what} on shard 0 after the engine was made: "));
            let (success, text) = shards.run(READY);
            assert!(!success && text.contains("the engine cannot be made ready"), "{harm}: {text}");
            shards.on(0, mend);
        }
        wait_for("ready");
    }
    // A run that is under way takes a change with it, of which no look tells then: one of each kind is told of.
    for what in
        ["rights changed", "settings of the database changed", "row security changed", "the tables and their columns changed"]
    {
        assert!(proxy.log().contains(&format!("database \"postgres\" wait for its engine: {what}")), "{what}: {}", proxy.log());
    }
    // A run of Weir's that is under way would take this change with it, too.
    let (what, mut size) = ("behind: servers, rights or settings of the engine were changed", 7);
    wait_until(what, || {
        size += 1;
        shards.engine(&format!("alter server shard_1 options (set fetch_size '{size}')"));
        is_said(what)
    });
    let mut wait_for = |what: &str| wait_until(what, || is_said(what));
    shards.done(READY);
    wait_for("ready");
    assert!(
        proxy.log().contains(
            "WARNING:  the engine of database \"postgres\" answers no statements over several shards: servers, rights or settings"
        ),
        "{}",
        proxy.log()
    );
}
