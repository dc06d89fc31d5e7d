//! Reads of several shards in transactions that have written: their rows are those of one server, own changes included.

use crate::dice::Dice;
use crate::shard_transactions::{ground, ids, prepared};
use crate::support::ground::wait_until;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};
use std::sync::atomic::{AtomicBool, Ordering};

const SUM: &str = "select sum(balance) from accounts";

const CONFIGS: [&str; 4] = [
    "",
    "cross_shard_reads = latest\ncommit_outcome = on\ntransaction_replay = on\n",
    "io_method = epoll\nworker_threads = 1\npool_size = 2\n",
    "log_statement = on\nreset_query_list = 'ABORT; DISCARD ALL'\n",
];

fn value(client: &mut Raw, how: How, text: &str) -> String {
    let answer = ask(client, how, text, &[]);
    let first = || answer.rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
    answer.failure.clone().unwrap_or_else(first)
}

#[test]
fn a_transaction_reads_its_own_changes_on_all_shards() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let ids = ids(&spread);
        for how in [How::Simple, How::Extended] {
            reads_its_own(&spread, &ids, how);
        }
        assert_eq!(prepared(&spread), 0, "{more}");
        wait_until("no transaction to be open", || {
            let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
            (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
        });
    }
}

fn reads_its_own(spread: &Spread, ids: &[String; SHARDS], how: How) {
    let (mut client, mut other) = (spread.client(), spread.client());
    let sum: i64 = value(&mut client, how, SUM).parse().unwrap();
    let add = |shard: usize| format!("update accounts set balance = balance + 5 where id = {}", ids[shard]);
    for shards in [&[1_usize][..], &[0, 2], &[2, 1, 0]] {
        value(&mut client, how, "begin");
        for (count, shard) in shards.iter().enumerate() {
            value(&mut client, how, &add(*shard));
            let expected = (sum + 5 * (count as i64 + 1)).to_string();
            assert_eq!(value(&mut client, how, SUM), expected, "{shards:?} {how:?}");
            assert_eq!(value(&mut other, how, SUM), sum.to_string(), "nobody else sees them");
            assert_eq!(value(&mut client, how, SUM), expected, "at once again");
        }
        // Commits of others meanwhile are seen, as under READ COMMITTED.
        value(&mut other, how, "insert into accounts values (2000, 1), (2001, 1), (2002, 1), (2003, 1)");
        assert_eq!(value(&mut client, how, "select count(*) from accounts where id between 2000 and 2003"), "4");
        value(&mut client, how, "delete from accounts where id = 2001");
        assert_eq!(value(&mut client, how, "select count(*) from accounts where id between 2000 and 2003"), "3");
        assert_eq!(value(&mut client, how, "rollback"), "");
        value(&mut other, how, "delete from accounts where id >= 2000");
        assert_eq!(value(&mut client, how, SUM), sum.to_string());
    }
    // An error fails the transaction, and a savepoint undoes it, with what was written behind it.
    value(&mut client, how, "begin");
    value(&mut client, how, &add(0));
    value(&mut client, how, "savepoint a");
    value(&mut client, how, &add(1));
    assert_eq!(value(&mut client, how, SUM), (sum + 10).to_string());
    for text in [
        "select 1 / (balance - balance) from accounts",
        "select sum(balance) from accounts where seen > now()",
        "select sum(nothing) from accounts",
    ] {
        let failure = value(&mut client, how, text);
        assert!(["22012", "0A000", "42703"].contains(&&*failure), "{text}: {failure}");
        assert_eq!(value(&mut client, how, SUM), "25P02", "{text}");
        assert_eq!(value(&mut client, how, &add(2)), "25P02", "{text}");
        assert_eq!(value(&mut client, how, "rollback to a"), "");
        assert_eq!(value(&mut client, how, SUM), (sum + 5).to_string(), "{text} {how:?}");
        value(&mut client, how, &add(1));
    }
    assert_eq!(value(&mut client, how, "commit"), "");
    assert_eq!(value(&mut client, how, SUM), (sum + 10).to_string(), "{how:?}");
    // A failed transaction ends by COMMIT, too.
    for end in ["commit", "rollback"] {
        value(&mut client, how, "begin");
        value(&mut client, how, &add(2));
        assert_eq!(value(&mut client, how, "select 1 / (balance - balance) from accounts"), "22012");
        assert_eq!(ask(&mut client, how, end, &[]).said, ["ROLLBACK"], "{end}");
        assert_eq!(value(&mut client, how, SUM), (sum + 10).to_string());
    }
    value(&mut client, how, "begin");
    for id in &ids[..2] {
        value(&mut client, how, &format!("update accounts set balance = balance - 5 where id = {id}"));
    }
    assert_eq!(value(&mut client, how, SUM), sum.to_string());
    assert_eq!(value(&mut client, how, "commit"), "");
    assert_eq!(value(&mut other, how, SUM), sum.to_string());
}

/// Statements that a transaction may have; `{}` stands for a number.
const WRITES: [&str; 5] = [
    "insert into orders (id, customer, note) values ({}, {} % 7, 'v')",
    "update orders set note = note || '{}' where id = {}",
    "update orders set customer = customer + 1 where customer = {} % 7",
    "delete from orders where id = {}",
    "update kinds set label = 'k{}' where id = {} % 4",
];

const READS: [&str; 12] = [
    "select count(*), sum(id), min(note) from orders",
    "select id, customer, note from orders where customer = {} % 7 order by id",
    "select o.customer, count(*) from orders o join kinds k on k.id = o.customer % 4 group by 1 order by 1",
    "select k.label, o.id from orders o, kinds k where k.id = o.customer % 4 and o.id > {} order by o.id limit 5",
    "select a.id, b.id from orders a join orders b on a.customer = b.customer and a.id < b.id where a.id < {} order by 1, 2",
    "select id from orders where note like 'v%' and id in (select customer from orders) order by id desc",
    "with big as (select * from orders where id > {}) select customer, max(note) from big group by customer order by 1",
    "select id, row_number() over (partition by customer order by id) from orders order by id offset 2 limit 7",
    "select exists (select 1 from orders where id = {} and note = 'v'), (select count(*) from orders where customer = 3)",
    "select id from orders where customer = 1 union select customer from orders where id > {} order by 1",
    "select o.* from orders o where not exists (select 1 from orders p where p.customer = o.customer and p.id > o.id) order by o.id",
    "select note, count(*) from orders where note is not null group by note having count(*) > 1 order by note collate \"C\"",
];

fn text_of(dice: &mut Dice, texts: &[&str]) -> String {
    dice.of(texts).split("{}").enumerate().fold(String::new(), |out, (at, part)| match at {
        0 => part.to_owned(),
        _ => format!("{out}{}{part}", dice.below(60)),
    })
}

#[test]
fn random_transactions_read_what_one_server_would() {
    for more in configs(&["", "cross_shard_reads = latest\nworker_threads = 1\nio_method = epoll\n"]) {
        let spread = Spread::start(more);
        spread.define(
            "create table orders (id int primary key, customer int not null, note text);
             create table kinds (id int primary key, label text)",
        );
        let fill = "insert into orders select i, i % 7, 'n' || i % 3 from generate_series(1, 40) i; \
                    insert into kinds select i, 'k' || i from generate_series(0, 3) i";
        spread.whole().query(fill).unwrap();
        spread.fill_first(&["kinds"]);
        spread.reference(&["kinds"]);
        spread.shard("orders", "id", "");
        spread.fill(&["orders"]);
        spread.make_ready("select count(*) from orders");
        let mut dice = Dice::new(7);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..40 {
            both(&mut client, &mut direct, How::Simple, "begin");
            for _ in 0..2 + dice.below(6) {
                let how = if dice.below(2) == 0 { How::Simple } else { How::Extended };
                let text = match dice.below(9) {
                    0..=3 => text_of(&mut dice, &WRITES),
                    _ => text_of(&mut dice, &READS),
                };
                let (here, there) = both(&mut client, &mut direct, how, &text);
                match here.failure.as_deref() {
                    // A refusal is no answer, and ends the transaction on both sides.
                    Some("0A000") => refused += 1,
                    _ => {
                        answered += 1;
                        assert_eq!(here, there, "{how:?} {text} ({more})");
                    }
                }
                if here.failure.is_some() {
                    break;
                }
            }
            let end = if dice.below(3) == 0 { "rollback" } else { "commit" };
            let (here, there) = (ask(&mut client, How::Simple, end, &[]), ask(&mut direct, How::Simple, end, &[]));
            if here.said != there.said {
                // The one that was refused is undone here only.
                assert_eq!(here.said, ["ROLLBACK"], "{there:?}");
                spread.whole().query("truncate orders, kinds").unwrap();
                let copied =
                    ["orders", "kinds"].map(|table| ask(&mut client, How::Simple, &format!("select * from {table}"), &[]));
                for (table, answer) in ["orders", "kinds"].into_iter().zip(copied) {
                    for row in answer.rows {
                        let values: Vec<String> =
                            row.into_iter().map(|cell| cell.map_or("null".into(), |cell| format!("'{cell}'"))).collect();
                        spread.whole().query(&format!("insert into {table} values ({})", values.join(", "))).unwrap();
                    }
                }
            }
        }
        assert!(answered > 10 * refused && answered > 100, "{answered} answered, {refused} refused ({more})");
    }
}

fn both(client: &mut Raw, direct: &mut Raw, how: How, text: &str) -> (Answer, Answer) {
    (ask(client, how, text, &[]), ask(direct, how, text, &[]))
}

#[test]
fn a_commit_of_others_on_several_shards_is_read_whole_or_not_at_all() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\n"]) {
        let spread = ground(more);
        let ids = ids(&spread);
        let is_over = AtomicBool::new(false);
        let sum: i64 = spread.client().value(SUM).parse().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (mut writer, ids, is_over) = (spread.client(), &ids, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        writer.run("begin");
                        writer.run(&format!("update accounts set balance = balance - 1 where id = {}", ids[0]));
                        writer.run(&format!("update accounts set balance = balance + 1 where id = {}", ids[2]));
                        writer.run("rollback");
                        writer.run("begin");
                        writer.run(&format!("update accounts set balance = balance + 1 where id = {}", ids[0]));
                        writer.run(&format!("update accounts set balance = balance - 1 where id = {}", ids[2]));
                        writer.run("commit");
                        writer.run("begin");
                        writer.run(&format!("update accounts set balance = balance - 1 where id = {}", ids[0]));
                        writer.run(&format!("update accounts set balance = balance + 1 where id = {}", ids[2]));
                        writer.run("commit");
                    }
                });
            }
            let mut reader = spread.client();
            for round in 0..60 {
                let how = if round % 2 == 0 { How::Simple } else { How::Extended };
                value(&mut reader, how, "begin");
                value(&mut reader, how, &format!("update accounts set balance = balance + 3 where id = {}", ids[1]));
                assert_eq!(value(&mut reader, how, SUM), (sum + 3).to_string(), "{more}");
                value(&mut reader, how, "rollback");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn parameters_and_what_is_refused() {
    let spread = ground("");
    let ids = ids(&spread);
    let mut client = spread.client();
    client.run("begin");
    client.run(&format!("update accounts set balance = 1000 where id = {}", ids[2]));
    // Values of each format, with formats of results, over a statement that was prepared before.
    let text = "select id, balance from accounts where balance > $1 order by id";
    let answer = ask(&mut client, How::Extended, text, &["999"]);
    assert_eq!(answer.rows, [[Some(ids[2].clone()), Some("1000".to_owned())]]);
    client.send(&[wire::parse("s", text), wire::sync()].concat());
    client.until_ready();
    for value in ["999", "5000"] {
        client.send(&[wire::bind("", "s", &[value]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()].concat());
        let rows = client.until_ready().iter().filter(|message| message.tag == b'D').count();
        assert_eq!(rows, usize::from(value == "999"), "{value}");
    }
    client.run("rollback");
    for (text, sqlstate) in [
        ("select count(*) from accounts where seen < now()", "0A000"),
        ("copy (select count(*) from accounts) to stdout", "0A000"),
        ("declare c cursor for select id from accounts", "0A000"),
        ("select id from accounts for update", "0A000"),
    ] {
        client.run("begin");
        client.run(&format!("update accounts set balance = 7 where id = {}", ids[0]));
        assert_eq!(value(&mut client, How::Simple, text), sqlstate, "{text}");
        assert_eq!(value(&mut client, How::Simple, "select 1"), "25P02", "{text}");
        client.run("rollback");
    }
}

#[test]
fn a_server_that_is_lost_fails_the_transaction_and_nothing_else() {
    let spread = ground("");
    let ids = ids(&spread);
    let sum: i64 = spread.client().value(SUM).parse().unwrap();
    let add = |shard: usize| format!("update accounts set balance = balance + 5 where id = {}", ids[shard]);
    // A shard hangs on which the transaction has a part, or none.
    for (writes, hangs) in [([0, 1], 1), ([0, 1], 2)] {
        let mut client = spread.client();
        client.run("begin");
        writes.iter().for_each(|shard| client.run(&add(*shard)));
        assert_eq!(client.value(SUM), (sum + 10).to_string());
        spread.server(hangs).freeze();
        let failure = client.error(SUM);
        assert!(["08006", "40001", "55P03"].contains(&&*failure.sqlstate), "{failure:?}");
        assert_eq!(client.error(SUM).sqlstate, "25P02");
        client.run("rollback");
        spread.server(hangs).thaw();
        wait_until("reads to go on", || spread.client().try_rows(SUM).is_ok());
        assert_eq!(client.value(SUM), sum.to_string(), "the session goes on");
    }
    // One is killed, and the engine's connection ends.
    let mut client = spread.client();
    client.run("begin");
    [1, 2].iter().for_each(|shard| client.run(&add(*shard)));
    spread.server(2).kill9().unwrap();
    client.error(SUM);
    assert_eq!(client.error(&add(0)).sqlstate, "25P02");
    client.run("rollback");
    spread.server(2).start().unwrap();
    spread.wait_ready(SUM);
    assert_eq!(client.value(SUM), sum.to_string());
    // A client that leaves takes all parts with it, whatever it waits for.
    for _ in 0..3 {
        let mut client = spread.client();
        client.run("begin");
        client.run(&add(0));
        client.send(&wire::query(SUM));
    }
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    wait_until("the transactions to end", || (0..SHARDS).all(|shard| spread.server(shard).value(open).unwrap() == "0"));
    // Messages that do not wait for answers.
    let mut client = spread.client();
    let texts = ["begin", &add(1), SUM, &add(2), SUM, SUM, "commit", SUM];
    client.send(&texts.map(wire::query).concat());
    let told: Vec<String> = texts.iter().map(|_| format!("{:?}", client.until_ready())).collect();
    for (at, expected) in [(2, sum + 5), (4, sum + 10), (5, sum + 10), (7, sum + 10)] {
        assert!(told[at].contains(&expected.to_string()), "{at}: {told:?}");
    }
    client.send(&texts.map(|text| How::Extended.messages(text, &[])).concat());
    let told: Vec<String> = texts.iter().map(|_| format!("{:?}", client.until_ready())).collect();
    for (at, expected) in [(2, sum + 15), (4, sum + 20), (5, sum + 20), (7, sum + 20)] {
        assert!(told[at].contains(&expected.to_string()), "{at}: {told:?}");
    }
    client.run("update accounts set balance = 100");
    // A cancel request while rows of another part, or of another shard, wait for a lock.
    for (write, locked) in [(add(0), 1), ("insert into plain values (9, 'x')".to_owned(), 0)] {
        let mut holder = Raw::tcp(spread.server(locked).port()).log_in("postgres", "postgres", &[]).unwrap();
        let mut client = spread.client();
        client.run("begin");
        client.run(&write);
        holder.run("begin; lock table accounts in access exclusive mode");
        client.send(&wire::query(SUM));
        wait_until("the statement to wait", || {
            holder.value("select count(*) from pg_locks where not granted and relation = 'accounts'::regclass") != "0"
        });
        let (request, is_over, port) = (wire::cancel(client.pid, &client.key), AtomicBool::new(false), spread.proxy.port());
        let failure = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // The proxy closes the connection once the request is passed on.
                    let mut line = Raw::tcp(port);
                    line.send(&request);
                    line.bytes_to_end();
                }
            });
            let failure = Answer::of(&client.until_ready()).failure;
            is_over.store(true, Ordering::Relaxed);
            failure.unwrap_or_default()
        });
        assert!(["57014", "08006", "40001"].contains(&&*failure), "{failure}");
        assert_eq!(client.error(SUM).sqlstate, "25P02");
        client.run("rollback");
        holder.run("rollback");
        wait_until("reads to go on", || client.try_value(SUM).is_ok());
    }
}

#[test]
fn values_rights_views_and_the_bound_of_rows() {
    let spread = Spread::start("");
    spread.define(
        "create table many (id int primary key, note text, at timestamptz, span interval, list text[], raw bytea, much numeric, low float4);
         create view seen as select id from many; create table heap (id int primary key)",
    );
    let fill = "insert into many select i, case when i % 3 = 0 then null else E'a\\b\t\"'',(' || i end, \
                timestamptz '2024-02-05 03:04:05.678+02' + i * interval '1 day', i * interval '-1 month 3 days -2 hours', \
                array['x', null, '{', 'a\"b', i::text], decode(lpad(to_hex(i), 8, '0'), 'hex'), i / 7.0, i / 3.0 from generate_series(1, 50) i";
    spread.whole().query(fill).unwrap();
    spread.whole().query("insert into heap select generate_series(1, 130000)").unwrap();
    spread.everywhere("create role reader login; create role writer login");
    spread.shard("many", "id", "");
    spread.shard("heap", "id", "");
    spread.fill(&["many", "heap"]);
    spread.everywhere("grant select, insert on many to reader; grant insert on many to writer");
    spread.make_ready("select count(*) from many");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for setting in [
        "set timezone = 'Asia/Tokyo'",
        "set intervalstyle = 'iso_8601'",
        "set bytea_output = 'escape'",
        "set datestyle = 'ISO, DMY'",
    ] {
        for text in ["begin", "update many set note = note || 'x' where id = 3", "select * from many order by id", "rollback"] {
            let (here, there) = (ask(&mut client, How::Extended, text, &[]), ask(&mut direct, How::Extended, text, &[]));
            assert_eq!(here, there, "{setting}: {text}");
        }
        client.run(setting);
        direct.run(setting);
    }
    client.run("reset all");
    // A role is not given rows that it may not read.
    for (user, expected) in [("reader", "51"), ("writer", "42501")] {
        let mut client = spread.client_of(user);
        client.run("begin");
        client.run("insert into many (id) values (100)");
        assert_eq!(value(&mut client, How::Simple, "select count(*) from many"), expected, "{user}");
        client.run("rollback");
    }
    // More rows than are copied, or fewer by a condition.
    client.run("begin");
    client.run("insert into heap values (130001)");
    assert_eq!(value(&mut client, How::Simple, "select count(*) from heap where id >= 129999"), "3");
    assert_eq!(value(&mut client, How::Extended, "select count(*) from heap"), "54000");
    assert_eq!(client.error("select 1").sqlstate, "25P02");
    client.run("rollback");
    assert_eq!(client.value("select count(*) from heap"), "130000");
    // A view, and a name with its schema, mean the table itself.
    for text in ["select count(*) from public.many", "select count(*) from seen"] {
        client.run("begin");
        client.run("insert into many (id) values (100)");
        assert_eq!(value(&mut client, How::Simple, text), "0A000", "{text}");
        client.run("rollback");
    }
}

#[test]
fn a_setting_behind_such_a_read_is_never_told_and_lost() {
    for more in configs(&CONFIGS[..3]) {
        let spread = ground(more);
        let ids = ids(&spread);
        let mut client = spread.client();
        for setting in ["set work_mem to '5MB'", "set role to pg_monitor", "reset work_mem", "set local work_mem to '6MB'"] {
            client.run("begin");
            client.run(&format!("update accounts set balance = balance + 1 where id = {}", ids[1]));
            let without_sync = |text: &str| {
                let messages = How::Extended.messages(text, &[]);
                messages.strip_suffix(wire::sync().as_slice()).unwrap().to_vec()
            };
            client.send(&[without_sync(SUM), without_sync(setting), wire::sync()].concat());
            let answer = Answer::of(&client.until_ready());
            let is_local = setting.contains("local");
            if answer.failure.is_none() && is_local {
                assert_eq!(client.rows("show work_mem"), [["6MB"]]);
            } else {
                assert_eq!(answer.failure.as_deref(), Some("0A000"), "{setting}: {answer:?}");
            }
            client.run("rollback");
            assert_eq!(
                client.rows("select current_user, current_setting('work_mem') <> '5MB'"),
                [["postgres", "t"]],
                "{setting}"
            );
        }
    }
}

#[test]
fn a_failed_transaction_is_not_followed_by_one_on_the_engine() {
    for more in configs(&CONFIGS[..3]) {
        let spread = ground(more);
        let ids = ids(&spread);
        let mut client = spread.client();
        let write = format!("update accounts set balance = balance + 1 where id = {}", ids[1]);
        for (begin, first) in [("begin isolation level repeatable read", SUM), ("begin", write.as_str())] {
            for how in [How::Simple, How::Extended] {
                client.run(begin);
                value(&mut client, how, first);
                assert_eq!(value(&mut client, how, "select sum(1 / (balance - balance)) from accounts"), "22012");
                assert_eq!(value(&mut client, how, "rollback and chain"), "0A000", "{begin} {how:?}");
                assert_eq!(value(&mut client, how, SUM), "25P02");
                client.run("rollback");
                // Nothing is left of it.
                client.run(&write);
                value(&mut client, how, SUM);
            }
        }
        assert_eq!(prepared(&spread), 0);
    }
}

#[test]
fn long_rows_and_transactions_that_read_only() {
    for more in configs(&CONFIGS[..3]) {
        let spread = ground(more);
        spread.define("create table docs (id int primary key, body text)");
        spread.shard("docs", "id", "");
        spread.wait_known("docs");
        spread.wait_ready("select count(*) from docs");
        let mut client = spread.client();
        for how in [How::Simple, How::Extended] {
            client.run("begin");
            client.run("insert into docs values (1, repeat('a', 3000000))");
            (2..8).for_each(|id| client.run(&format!("insert into docs values ({id}, 'short')")));
            assert_eq!(value(&mut client, how, "select max(length(body)) from docs"), "3000000");
            assert_eq!(value(&mut client, how, "select string_agg(id::text, ',' order by id) from docs"), "1,2,3,4,5,6,7");
            client.run("rollback");
            for begin in ["begin read only", "begin transaction isolation level read committed, read only"] {
                client.run(begin);
                // The transaction begins on shard 0.
                value(&mut client, how, "select count(*) from plain");
                assert_ne!(value(&mut client, how, SUM), "25006");
                assert_eq!(value(&mut client, how, "insert into plain values (77, 'x')"), "25006");
                client.run("rollback");
            }
        }
    }
}

#[test]
fn two_transactions_that_want_each_others_connections_end_also_behind_such_reads() {
    for more in
        configs(&["pool_size = 1\n", "pool_size = 1\ncross_shard_reads = latest\nio_method = epoll\nworker_threads = 1\n"])
    {
        let spread = ground(more);
        let ids = ids(&spread);
        let write = |shard: usize| wire::query(&format!("update accounts set balance = balance + 1 where id = {}", ids[shard]));
        // Without a read, behind one of another session, and behind reads of both.
        for reads in 0..3 {
            let (mut one, mut other) = (spread.client(), spread.client());
            if reads == 1 {
                spread.client().rows(SUM);
            }
            for (client, shard) in [(&mut one, 1), (&mut other, 2)] {
                client.run("begin");
                client.send(&write(shard));
                client.until_ready();
                if reads == 2 {
                    client.rows(SUM);
                }
            }
            one.send(&write(2));
            other.send(&write(1));
            let told = [&mut one, &mut other].map(|client| Answer::of(&client.until_ready()).failure.unwrap_or_default());
            assert!(told.iter().any(|failure| failure == "40001"), "{more} {reads}: {told:?}");
            assert!(told.iter().all(|failure| matches!(failure.as_str(), "40001" | "")), "{more} {reads}: {told:?}");
        }
    }
}
