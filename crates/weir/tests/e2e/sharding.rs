//! `parallel_mode`: tables over three servers behind one proxy, statements of one shard, and what is refused.

use crate::support::driver::{Login, block_on, connect, describe};
use crate::support::ground::{Owned, cluster_with, wait_until};
use crate::support::proxy::Backend;
use crate::support::raw::first_value;
use crate::support::{Proxy, Raw, wire};
use std::collections::BTreeSet;
use std::process::Command;
use tokio_postgres::types::Type;
use weir_demo::{Mode, Options, Server};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

const SHARDS: usize = 3;

const SHARDED: &str = "parallel_mode = on\n";

/// Three servers, `orders` and `items` spread by customer, `countries` on each, `single` on shard 0.
struct Spread {
    clusters: Vec<Owned>,
    proxy: Proxy,
}

impl Spread {
    fn start(more: &str) -> Spread {
        Spread::with_standbys(0, more)
    }

    /// Shard 0 has standbys, whose nodes come behind those of the shards.
    fn with_standbys(standbys: usize, more: &str) -> Spread {
        let extra = ("max_prepared_transactions".to_owned(), "10".to_owned());
        let one = |standbys| cluster_with(Options { standbys, extra_conf: vec![extra.clone()], ..Options::default() });
        let clusters: Vec<Owned> = (0..SHARDS).map(|shard| one(if shard == 0 { standbys } else { 0 })).collect();
        let servers = clusters.iter().map(|cluster| cluster.primary()).chain(clusters[0].standbys());
        let backends: Vec<Backend> = servers.map(|server| Backend::tcp(server.port(), 1)).collect();
        let proxy = Proxy::spawn(&backends, &format!("{SHARDED}backend_shard1 = 1\nbackend_shard2 = 2\n{more}"));
        let spread = Spread { clusters, proxy };
        spread.on(
            0,
            "create table orders (customer int not null, id int not null, note text, primary key (customer, id)); \
             create table items (customer int not null, item bigint not null, price numeric default 1, primary key (customer, item)); \
             create table countries (code text primary key, name text); \
             insert into countries values ('de', 'Germany'), ('jp', 'Japan'); \
             create table single (id int primary key, note text); insert into single values (1, 'one')",
        );
        spread.shard("table postgres public.orders --key customer");
        spread.shard("table postgres public.items --key customer --with public.orders");
        spread.shard("reference postgres public.countries");
        spread.wait_for_tables(3);
        spread
    }

    /// Runs `weir shard` as an operator would.
    fn shard(&self, arguments: &str) {
        let mut command = Command::new(WEIR);
        command.arg("shard").args(arguments.split(' ')).arg("-f").arg(self.proxy.conf_path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn wait_for_tables(&self, count: usize) {
        let mut client = self.client();
        wait_until("the definitions to be known", || client.rows("show pool_shard_tables").len() == count);
    }

    fn server(&self, shard: usize) -> &Server {
        self.clusters[shard].primary()
    }

    /// SELECTs over several shards are carried out from now on.
    fn make_engine_ready(&self) {
        self.shard("engine postgres --user weir_engine");
        let mut client = self.client();
        wait_until("the engine to be ready", || {
            let rows = client.rows("show pool_shard_tables");
            rows.len() == 3 && rows.iter().all(|row| row.iter().any(|cell| cell == "ready"))
        });
    }

    fn on(&self, shard: usize, text: &str) {
        self.server(shard).query(text).unwrap();
    }

    fn client(&self) -> Raw {
        Raw::tcp(self.proxy.port()).log_in("postgres", "postgres", &[]).unwrap()
    }

    /// Where rows with this key lie, as the servers themselves say.
    fn home(&self, customer: i32) -> usize {
        let has = |shard: &usize| {
            let text = format!("select count(*) from orders where customer = {customer}");
            self.server(*shard).value(&text).unwrap() != "0"
        };
        let homes: Vec<usize> = (0..SHARDS).filter(has).collect();
        assert_eq!(homes.len(), 1, "rows of customer {customer} lie on {homes:?}");
        homes[0]
    }

    /// A customer of each shard; rows of all of them are there.
    fn customers(&self, client: &mut Raw) -> [i32; SHARDS] {
        for customer in 1..=12 {
            client.run(&format!("insert into orders values ({customer}, 1, 'first') on conflict do nothing"));
        }
        let of = |shard| (1..=12).find(|customer| self.home(*customer) == shard).expect("each shard has one of a dozen");
        std::array::from_fn(of)
    }
}

#[test]
fn a_statement_about_rows_of_one_shard_goes_there_and_no_other_one_is_guessed() {
    let spread = Spread::start("");
    let mut client = spread.client();
    let [here, one, two] = spread.customers(&mut client);
    assert_eq!([here, one, two].map(|customer| spread.home(customer)), [0, 1, 2]);

    for customer in [here, one, two] {
        client.run(&format!("insert into items values ({customer}, 7, 2.5), ({customer}, 8, 1)"));
        let sum = format!("select sum(price) from orders o join items i using (customer) where o.customer = {customer}");
        assert_eq!(client.value(&sum), "3.5");
        let named = format!("select c.name from countries c, orders where code = 'jp' and customer = {customer} and id = 1");
        assert_eq!(client.value(&named), "Japan");
        assert_eq!(client.query(&format!("update orders set note = 'second' where customer = {customer}")).len(), 2);
        assert_eq!(client.value(&format!("select note from orders where {customer} = customer")), "second");
        let explained = client.value(&format!("explain select * from orders where customer = {customer}"));
        assert!(explained.contains("orders"), "{explained}");
    }
    let joined = format!("select s.note from single s join orders o on o.id = s.id where o.customer = {here}");
    assert_eq!(client.value(&joined), "one", "shard 0 has both");
    assert_eq!(client.value("select name from countries where code = 'de'"), "Germany");
    assert_eq!(client.value("select note from single"), "one");

    let mut route = |text: &str| client.rows(&format!("show route for '{text}'")).remove(0)[..3].join(" ");
    assert_eq!(route(&format!("select * from orders where customer = {two}")), "shard 2 2 one_shard");
    assert_eq!(route("select * from orders where customer = $1"), "the shard of its parameters  one_shard");
    assert_eq!(route("select * from orders"), "refused  ");
    let of_shard_0 = route(&format!("select * from orders where customer = {here}"));
    assert!(of_shard_0.starts_with("reader 0 "), "as a statement of the cluster: {of_shard_0}");

    spread.on(0, "create view all_orders as select * from orders");
    spread.on(0, "create function counted() returns bigint language sql stable as 'select count(*) from orders'");
    spread.on(0, "create function twice(int) returns int language sql immutable as 'select 2 * $1'");
    wait_until("the view to be known", || client.rows("show pool_shard_tables").len() == 4);
    assert_eq!(client.value("select twice(21)"), "42");
    let texts = [
        "select count(*) from orders".to_owned(),
        "table orders".into(),
        format!("select * from orders where customer = {one} or customer = {two}"),
        format!("select * from orders where customer = {one} union all select * from orders where customer = {two}"),
        format!("select * from orders o left join items i on o.customer = {one} and i.customer = {one}"),
        format!("select * from single s join orders o on o.id = s.id where o.customer = {one}"),
        format!("insert into orders values ({one}, 2), ({two}, 2)"),
        "insert into orders select customer, item from items".into(),
        format!("update orders set customer = {two} where customer = {one}"),
        format!("select * from all_orders where customer = {one}"),
        "select counted()".into(),
        format!("select ctid from orders where customer = {one}"),
        "truncate orders".into(),
        "copy orders from stdin".into(),
        "alter table orders add column more int".into(),
        "insert into countries values ('fr', 'France')".into(),
        format!("prepare p as select * from orders where customer = {one}"),
        "do $$ begin perform count(*) from orders; end $$".into(),
        format!("select 1; select * from orders where customer = {one}"),
        format!("select nextval('s'), note from orders where customer = {one}"),
        "create index on orders (note)".into(),
        "drop table orders".into(),
        "create table copied as select * from orders".into(),
        "select query_to_xml('select * from orders', true, true, '')".into(),
        format!("insert into orders values ({one}, 2) on conflict (customer, id) do update set customer = {two}"),
        "lock table orders".into(),
    ];
    for text in texts {
        assert_eq!(client.error(&text).sqlstate, "0A000", "{text}");
    }
    // Texts that differ in a string only are one to the memory of seen texts.
    for body in ["begin perform 1; end", "begin perform 2; end"] {
        client.run(&format!("do '{body}'"));
    }
    assert_eq!(client.error("do 'begin perform count(*) from orders; end'").sqlstate, "0A000");
    client.run("do 'begin perform 3; end'");
    assert_eq!(client.value("select 1"), "1", "the session goes on");
}

#[test]
fn a_driver_finds_the_shard_by_bound_values_in_binary_too() {
    let spread = Spread::start("");
    let login = Login::new(spread.proxy.port(), "postgres", "");
    let story = async {
        let (client, _mover) = connect(&login).await.unwrap();
        // Prepared before any value is known, and used on every shard.
        let insert = client.prepare("insert into orders values ($1, $2, $3)").await.unwrap();
        let read = client.prepare("select note from orders where customer = $1 and id = $2").await.unwrap();
        assert_eq!(read.params(), [Type::INT4, Type::INT4]);
        for customer in 0..60_i32 {
            client.execute(&insert, &[&customer, &1, &format!("of {customer}")]).await.unwrap();
        }
        for customer in (0..60_i32).rev() {
            let row = client.query_one(&read, &[&customer, &1]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("of {customer}"));
        }
        // As most drivers do: without a name, in one batch.
        let price = client.query_typed(
            "insert into items values ($1, $2) returning price::text",
            &[(&5_i32, Type::INT4), (&9_i64, Type::INT8)],
        );
        assert_eq!(price.await.unwrap()[0].get::<_, String>(0), "1");
        let none = client.query(&read, &[&None::<i32>, &1]).await.unwrap();
        assert!(none.is_empty(), "no row equals NULL");
        let refused = client.query("select * from orders where id = $1", &[&1]).await.unwrap_err();
        assert!(describe(&refused).starts_with("0A000"), "{}", describe(&refused));
    };
    block_on(story);
    let counts =
        (0..SHARDS).map(|shard| spread.server(shard).value("select count(*) from orders").unwrap().parse::<u32>().unwrap());
    let counts: Vec<u32> = counts.collect();
    assert!(counts.iter().sum::<u32>() == 60 && counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn a_transaction_stays_on_its_first_shard_and_a_pipeline_is_one() {
    let spread = Spread::start("");
    let mut client = spread.client();
    let [here, one, two] = spread.customers(&mut client);
    let note = |client: &mut Raw, customer: i32| client.value(&format!("select note from orders where customer = {customer}"));

    for customer in [here, one, two] {
        client.run("begin");
        client.run(&format!("update orders set note = 'kept' where customer = {customer}"));
        client.run("savepoint s");
        client.run(&format!("update orders set note = 'lost' where customer = {customer}"));
        client.run("rollback to s");
        assert_eq!(client.value("select 1"), "1", "a statement without tables runs there, too");
        assert_eq!(client.value("select count(*) from countries"), "2");
        client.run("commit");
        assert_eq!(note(&mut client, customer), "kept");
    }
    client.run("begin");
    client.run(&format!("update orders set note = 'undone' where customer = {one}"));
    assert_eq!(client.error(&format!("select * from orders where customer = {two}")).sqlstate, "0A000");
    assert_eq!(client.error("select 1").sqlstate, "25P02", "the transaction has failed");
    client.run("rollback");
    client.run("begin");
    client.run(&format!("update orders set note = 'undone' where customer = {one}"));
    assert_eq!(client.error("select note from single").sqlstate, "0A000", "it lies on shard 0");
    assert_eq!(client.query("commit").len(), 2);
    assert_eq!(note(&mut client, one), "kept");

    // Messages up to a Sync are one transaction.
    let update = |customer: i32| wire::unnamed(&format!("update orders set note = 'piped' where customer = {customer}"), &[]);
    client.send(&[update(one), update(one), wire::sync()].concat());
    let answer: String = client.until_ready().iter().map(|message| char::from(message.tag)).collect();
    assert!(!answer.contains('E'), "{answer}");
    assert_eq!(note(&mut client, one), "piped");
    client.send(&[update(two), update(one), wire::sync()].concat());
    let failed = client.until_ready().iter().any(|message| message.tag == b'E');
    assert!(failed);
    assert_eq!(note(&mut client, two), "kept", "nothing of the pipeline is left");
    // One after the other, each with its Sync, they go their ways without a wait between.
    client.send(&[update(two), wire::sync(), update(here), wire::sync(), update(one), wire::sync()].concat());
    for _ in 0..3 {
        let answer = client.until_ready();
        assert!(answer.iter().all(|message| message.tag != b'E'), "{answer:?}");
    }
    assert_eq!([here, one, two].map(|customer| note(&mut client, customer)), ["piped"; 3]);

    // A temporary table keeps the session on shard 0.
    client.run("create temp table mine (id int)");
    assert_eq!(client.value(&format!("select note from public.orders where customer = {here}")), "piped");
    assert_eq!(client.error(&format!("select note from orders where customer = {here}")).sqlstate, "0A000", "which one is it?");
    assert_eq!(client.error(&format!("select * from public.orders where customer = {one}")).sqlstate, "0A000");
    client.run("discard all");
    assert_eq!(note(&mut client, one), "piped");
}

#[test]
fn a_sessions_state_goes_along_to_each_shard() {
    let spread = Spread::start("");
    let mut client = spread.client();
    let [here, one, two] = spread.customers(&mut client);
    for shard in 0..SHARDS {
        spread.on(shard, "create role clerk; grant select on orders to clerk");
    }
    client.run("set timezone to 'Asia/Tokyo'");
    client.run("set role clerk");
    for customer in [here, one, two] {
        let text = format!("select current_user || ' ' || current_setting('timezone') from orders where customer = {customer}");
        assert_eq!(client.error(&text).sqlstate, "0A000", "a setting is the server's own");
        let text =
            format!("select current_user || ' ' || '2026-01-01 00:00 UTC'::timestamptz from orders where customer = {customer}");
        assert_eq!(client.value(&text), "clerk 2026-01-01 09:00:00+09");
        let denied = client.error(&format!("delete from orders where customer = {customer}"));
        assert_eq!(denied.sqlstate, "42501");
    }
    client.run("reset role");
    // A table of that name elsewhere in the path is another one.
    client.run("create schema other");
    client.run("create table other.orders (customer int)");
    client.run("set search_path to other, public");
    wait_until("the other table to be known", || client.try_rows("select count(*) from orders").is_ok());
    assert_eq!(client.value("select count(*) from orders"), "0");
    assert_eq!(client.value(&format!("select count(*) from public.orders where customer = {two}")), "1");
    client.run("set search_path to public");
    assert_eq!(client.error("select count(*) from orders").sqlstate, "0A000");
}

#[test]
fn a_shard_that_is_away_fails_its_own_statements_only() {
    let spread = Spread::start("failover_wait = 2s\n");
    let mut client = spread.client();
    let [here, one, two] = spread.customers(&mut client);
    let read = |customer: i32| format!("select note from orders where customer = {customer}");
    spread.server(1).stop(Mode::Immediate).unwrap();
    for customer in [here, two] {
        assert_eq!(client.value(&read(customer)), "first");
    }
    let mut other = spread.client();
    let failure = match other.try_rows(&read(one)) {
        Ok(rows) => panic!("{rows:?}"),
        Err(failure) => failure,
    };
    assert!(["57P03", "08006", "57P01", "08001"].contains(&failure.sqlstate.as_str()), "{failure:?}");
    assert_eq!(client.value(&read(two)), "first");
    spread.server(1).start().unwrap();
    let mut again = spread.client();
    wait_until("the shard to answer again", || match again.try_rows(&read(one)) {
        Ok(rows) => rows == [[Some("first".to_owned())]],
        Err(_) => {
            again = spread.client();
            false
        }
    });
    // A server that stands still holds up nobody else.
    spread.server(2).freeze();
    let mut waiting = spread.client();
    waiting.send(&wire::query(&read(two)));
    for customer in [here, one] {
        assert_eq!(again.value(&read(customer)), "first");
    }
    spread.server(2).thaw();
    let answer = waiting.until_ready();
    assert!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
}

#[test]
fn shard_0_keeps_its_standbys_and_each_session_sees_its_writes() {
    let spread = Spread::with_standbys(1, "pool_size = 2\nbackend_weight0 = 0\n");
    let mut client = spread.client();
    let [here, one, _] = spread.customers(&mut client);
    let standby = spread.clusters[0].standbys()[0].port().to_string();
    wait_until("reads on the standby", || client.value("select inet_server_port()") == standby);
    let mut others: Vec<Raw> = (0..4).map(|_| spread.client()).collect();
    for turn in 0..40 {
        let customer = if turn % 2 == 0 { here } else { one };
        client.run(&format!("update orders set note = '{turn}' where customer = {customer}"));
        let read = format!("select note from orders where customer = {customer}");
        assert_eq!(client.value(&read), turn.to_string());
        let other = &mut others[turn % 4];
        assert_eq!(other.value(&read), turn.to_string(), "a program's own pool");
    }
    // A transaction that begins with a read elsewhere goes on with the shard's rows.
    client.run("begin");
    client.run("select count(*) from single");
    assert_eq!(client.value(&format!("select note from orders where customer = {here}")), "38");
    client.run("commit");
}

#[test]
fn a_block_reads_several_shards_before_it_writes() {
    check_blocks(&Spread::start("pool_size = 1\n"));
}

/// Weights are 1 : 1 : 1, and causal reads are those of the default.
#[test]
fn a_block_reads_several_shards_beside_standbys() {
    check_blocks(&Spread::with_standbys(2, "pool_size = 2\n"));
}

fn check_blocks(spread: &Spread) {
    (0..SHARDS).for_each(|shard| spread.on(shard, "create role weir_engine login"));
    spread.make_engine_ready();
    let mut client = spread.client();
    let [here, one, two] = spread.customers(&mut client);
    for begin in ["begin", "begin read only"] {
        client.run(begin);
        for customer in [two, here, one, here] {
            let read = format!("select note from orders where customer = {customer}");
            assert_eq!(client.value(&read), "first");
            assert_eq!(
                client.extended("select note from orders where customer = $1::int", &[&customer.to_string()]).unwrap(),
                "first"
            );
        }
        assert_eq!(client.value("select count(*) from orders join countries on code = 'de'"), "12");
        assert_eq!(client.value(&format!("select count(*) from orders where customer in ({here}, {one})")), "2");
        client.run("commit");
    }
    client.run("begin");
    assert_eq!(client.value("select count(*) from orders"), "12");
    client.run(&format!("update orders set note = 'second' where customer = {one}"));
    assert_eq!(client.value(&format!("select note from orders where customer = {one}")), "second");
    assert_eq!(client.value("select count(*) from orders where note = 'second'"), "1", "its own row");
    client.run("rollback");
    client.run("begin isolation level repeatable read");
    assert_eq!(client.value(&format!("select note from orders where customer = {one}")), "first");
    assert_eq!(client.error(&format!("select note from orders where customer = {two}")).sqlstate, "0A000", "another moment");
    client.run("rollback");
    assert_eq!(client.value("select count(*) from orders where note = 'second'"), "0");
}

#[test]
fn reads_that_wait_for_a_hung_shard_hold_up_nothing_else() {
    // Without the gate, whose wait for a shard is bounded.
    let spread = Spread::start("pool_size = 2\nworker_threads = 2\ncross_shard_reads = latest\n");
    (0..SHARDS).for_each(|shard| spread.on(shard, "create role weir_engine login"));
    spread.make_engine_ready();
    let mut client = spread.client();
    let [here, one, _] = spread.customers(&mut client);
    let count = "select count(*) from orders";
    let mut readers: Vec<Raw> = (0..4).map(|_| spread.client()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.value(count), "12"));
    spread.server(2).freeze();
    readers.iter_mut().for_each(|reader| reader.send(&wire::query(count)));
    let waiting = "select count(*) from pg_stat_activity where datname = 'postgres_engine' and state = 'active'";
    wait_until("all of the engine's connections to wait", || spread.server(0).value(waiting).unwrap() == "2");
    for customer in [here, one] {
        client.run(&format!("update orders set note = 'meanwhile' where customer = {customer}"));
        assert_eq!(client.value(&format!("select note from orders where customer = {customer}")), "meanwhile");
    }
    assert_eq!(client.value("select note from single"), "one");
    spread.server(2).thaw();
    readers.iter_mut().for_each(|reader| assert_eq!(first_value(&reader.until_ready()).unwrap(), "12"));
}

#[test]
fn the_engine_is_not_read_on_a_new_primary_before_it_is_ready_there() {
    let failover = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 2\nhealth_check_max_retries = 1\n\
        health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nfailover_lag_max = -1\nfailover_alone = on\n";
    let spread = Spread::with_standbys(1, failover);
    (0..SHARDS).for_each(|shard| spread.on(shard, "create role weir_engine login"));
    spread.make_engine_ready();
    let mut client = spread.client();
    let [here, ..] = spread.customers(&mut client);
    let count = "select count(*) from orders";
    assert_eq!(client.value(count), "12");
    spread.clusters[0].wait_caught_up().unwrap();
    spread.server(0).kill9().unwrap();
    let insert = format!("insert into orders values ({here}, 2, 'after')");
    wait_until("a new primary", || {
        let read = client.try_value(count);
        assert!(read.as_ref().map_or_else(|failure| failure.sqlstate != "42P01", |rows| rows == "12"), "{read:?}");
        if read.is_err() {
            client = spread.client();
        }
        client.try_rows(&insert).is_ok()
    });
    // The new server listens elsewhere, and the engine would look for shard 0 where it was.
    let failure = client.error(count);
    assert!(["0A000", "57P03"].contains(&failure.sqlstate.as_str()), "{failure:?}");
    spread.make_engine_ready();
    assert_eq!(client.value(count), "13");
}

#[test]
fn definitions_that_are_not_known_refuse_statements_with_tables_only() {
    let spread = Spread::start("");
    (0..SHARDS).for_each(|shard| spread.on(shard, "create role plain login"));
    spread.on(0, "revoke connect on database postgres_engine from public");
    let backends: Vec<Backend> = spread.clusters.iter().map(|cluster| Backend::tcp(cluster.primary().port(), 1)).collect();
    let more = "parallel_mode = on\nbackend_shard1 = 1\nbackend_shard2 = 2\nsr_check_user = 'plain'\n";
    let proxy = Proxy::spawn(&backends, more);
    let mut client = Raw::tcp(proxy.port()).log_in("plain", "postgres", &[]).unwrap();
    assert_eq!(client.value("select 1"), "1");
    let failure = client.error("select * from orders where customer = 1");
    assert!(failure.sqlstate == "57P03" && failure.message.contains("not known"), "{failure:?}");
    assert_eq!(client.error("do 'begin perform count(*) from orders; end'").sqlstate, "57P03");
    assert!(proxy.log().contains("how the tables of database \"postgres\" are spread over shards cannot be read"));
    spread.on(0, "grant connect on database postgres_engine to public");
    wait_until("the definitions to be read", || {
        client.try_rows("select * from orders where customer = 1").err().is_none_or(|failure| failure.sqlstate == "42501")
    });
}

#[test]
fn a_database_without_sharded_tables_works_as_ever() {
    let spread = Spread::start("");
    spread.on(0, "create database plain");
    let mut client = Raw::tcp(spread.proxy.port()).log_in("postgres", "plain", &[]).unwrap();
    client.run("create table orders (customer int)");
    client.run("insert into orders values (1), (2)");
    assert_eq!(client.value("select count(*) from orders"), "2");
    client.run("do $$ begin perform count(*) from orders; end $$");
    client.run("truncate orders");
    let shards: BTreeSet<String> = client.rows("show pool_shards").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(shards.into_iter().collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(client.rows("show pool_shard_tables").is_empty());
}
