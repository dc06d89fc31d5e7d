//! COPY FROM STDIN into a table that is spread over shards: each row goes to its shard, and all of it is committed or nothing.

use crate::support::ground::wait_until;
use crate::support::raw::{Message, tags};
use crate::support::spread::{SHARDS, Spread, configs};
use crate::support::{Raw, wire};
use std::fmt::Write;
use std::thread;

const TABLES: &str = "create table items (id int primary key, name text, price numeric(10, 2) check (price >= 0));
    create table words (word varchar(40) primary key, number int default 7);
    create table sums (id int primary key, half int, double int generated always as (half * 2) stored);
    create table countries (id int primary key, name text)";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.reference(&["countries"]);
    spread.shard("items", "id", "");
    spread.shard("words", "word", "");
    spread.shard("sums", "id", "");
    spread.make_ready("select count(*) from items");
    spread
}

fn rows_of(spread: &Spread, shard: Option<usize>, table: &str) -> Vec<String> {
    let server = shard.map_or(spread.whole(), |shard| spread.server(shard));
    let rows =
        server.value(&format!("select coalesce(string_agg(encode(t::text::bytea, 'hex'), ' '), '') from {table} t")).unwrap();
    rows.split(' ').filter(|row| !row.is_empty()).map(str::to_owned).collect()
}

/// All rows of all shards, and those of one server with all rows, in order.
fn rows(spread: &Spread, table: &str) -> (Vec<String>, Vec<String>) {
    let mut all: Vec<String> = (0..SHARDS).flat_map(|shard| rows_of(spread, Some(shard), table)).collect();
    let mut whole = rows_of(spread, None, table);
    all.sort();
    whole.sort();
    (all, whole)
}

fn prepared(spread: &Spread) -> usize {
    let count = |shard| spread.server(shard).value("select count(*) from pg_prepared_xacts").unwrap().parse::<usize>().unwrap();
    (0..SHARDS).map(count).sum()
}

fn is_over(spread: &Spread) -> bool {
    let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%' or state = 'active' and query like 'copy%'";
    (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0") && prepared(spread) == 0
}

/// The tag or the SQLSTATE, and the state of the transaction.
fn said(messages: &[Message]) -> String {
    let words = messages.iter().filter_map(|message| match message.tag {
        b'C' => Some(message.text()),
        b'E' => Some(message.failure().sqlstate),
        b'Z' => Some(String::from_utf8_lossy(&message.body).into_owned()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Data in messages of `step` bytes, and how it ends.
fn copy(client: &mut Raw, text: &str, (data, step): (&[u8], usize), end: &[u8]) -> String {
    client.send(&wire::query(text));
    let first = client.read();
    if first.tag != b'G' {
        let mut messages = vec![first];
        messages.extend(client.until_ready());
        return said(&messages);
    }
    for piece in data.chunks(step) {
        client.send(&wire::copy_data(piece));
    }
    client.send(end);
    format!("{} {}", first.body.escape_ascii(), said(&client.until_ready()))
}

fn binary(rows: &[(i32, &str)]) -> Vec<u8> {
    let mut out = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for (id, name) in rows {
        out.extend(2i16.to_be_bytes());
        out.extend(4i32.to_be_bytes());
        out.extend(id.to_be_bytes());
        out.extend((name.len() as i32).to_be_bytes());
        out.extend(name.as_bytes());
    }
    out.extend([0xff, 0xff]);
    out
}

fn data_of_texts() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("copy items from stdin", b"1\ta\t1.5\n2\tb\\tc\t2\n3\t\\N\t\\N\n4\td\\\ne\t4\n 5 \tf\t5\n".to_vec()),
        ("copy items (name, id) from stdin", b"x\t11\ny\t12\nz\t\\61\\63\n".to_vec()),
        (
            "copy public.items from stdin with (format csv, header)",
            b"id,name,price\n21,\"a,\n\"\"b\"\"\",1\n22,,\n23,\"\",3".to_vec(),
        ),
        ("COPY \"items\" (id, name) FROM STDIN DELIMITER ';' NULL 'nothing'", b"31;nothing\r\n32;b\r\n33;c\r\n".to_vec()),
        ("copy items (id, name) from stdin binary", binary(&[(41, "a"), (42, "b\nc"), (43, ""), (44, "d")])),
        ("copy words from stdin csv quote '''' escape '\\'", b"'it\\'s',1\n'b,c',2\nd,3\n".to_vec()),
        ("copy words (word) from stdin", "ä\nö\nü\n\\\\x\n\\x41\n".as_bytes().to_vec()),
        ("copy sums (half, id) from stdin", b"1\t1\n2\t2\n3\t3\n".to_vec()),
        ("copy items from stdin", b"".to_vec()),
        ("copy items from stdin", b"51\tx\t1\n\\.\n52\tx\t2\n".to_vec()),
        // Errors.
        ("copy items from stdin", b"61\tx\t1\n62\tx\t-1\n63\tx\t1\n".to_vec()),
        ("copy items from stdin", b"71\tx\t1\n72\tx\n73\tx\t1\n".to_vec()),
        ("copy items from stdin", b"81\tx\t1\nabc\tx\t1\n83\tx\t1\n".to_vec()),
        ("copy items from stdin", b"91\tx\t1\n92\tx\t1\n93\tx\t1\n1\tagain\t1\n".to_vec()),
        ("copy items from stdin", b"101\tx\t1\n102\tx\t1\n\\N\tx\t1\n".to_vec()),
        ("copy items from stdin", b"111\tx\t1\n112\tx\t1\r\n113\tx\t1\n".to_vec()),
        ("copy items (id, name) from stdin binary", binary(&[(121, "a"), (122, "b")])[..30].to_vec()),
        ("copy items (id, name) from stdin binary", b"121\tx\n".to_vec()),
        ("copy items (id, name) from stdin binary", [binary(&[(123, "a"), (124, "b")]), b"x".to_vec()].concat()),
        ("copy items (id, nothing) from stdin", b"1\t2\n".to_vec()),
        ("copy items from stdin (format parquet)", b"".to_vec()),
        ("copy items from stdin (format csv, quote 'ab')", b"".to_vec()),
    ]
}

#[test]
fn rows_of_a_copy_go_each_to_its_shard() {
    for more in configs(&[
        "",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\n",
        "cross_shard_reads = latest\nlog_client_messages = on\nstatement_statistics_max = 100\ntransaction_replay = on\n",
    ]) {
        let spread = ground(more);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for (text, data) in data_of_texts() {
            for begin in [&[][..], &["begin", "update items set name = 'first' where id = 2"]] {
                let steps = if more.is_empty() { [1, 7, data.len().max(1)].to_vec() } else { vec![5] };
                for step in steps {
                    let what = format!("{text} {} {}", begin.len(), data.escape_ascii());
                    for both in [&mut client, &mut direct] {
                        begin.iter().for_each(|text| both.run(text));
                    }
                    let done = wire::copy_done();
                    let told = [&mut client, &mut direct].map(|client| copy(client, text, (&data, step), &done));
                    // A refusal of Weir's own has another SQLSTATE.
                    let is_own = told[0].contains("0A000") && told[1].contains("22023");
                    assert!(is_own || told[0] == told[1], "{what}: {told:?}");
                    let end = if told[1].ends_with('E') { "rollback" } else { "delete from items where id = 2" };
                    for both in [&mut client, &mut direct] {
                        begin.iter().take(1).for_each(|_| both.run(end));
                        begin.iter().take(1).for_each(|_| both.run("commit"));
                    }
                    wait_until("all parts to end", || is_over(&spread));
                    for table in ["items", "words", "sums"] {
                        let (all, whole) = rows(&spread, table);
                        assert_eq!(all, whole, "{what}");
                        for both in [&mut client, &mut direct] {
                            both.run(&format!(
                                "delete from {table} where {} not in ('1', '2')",
                                if table == "words" { "word" } else { "id::text" }
                            ));
                        }
                    }
                }
            }
        }
    }
}

fn many(count: usize) -> Vec<u8> {
    let mut data = String::new();
    for id in 0..count {
        let _ = writeln!(data, "{id}\tname of the item number {id}, which is long\t{}.25", id % 1000);
    }
    data.into_bytes()
}

#[test]
fn a_long_copy_goes_in_blocks_that_are_one_transaction() {
    const ROWS: usize = 60_000;
    let spread = ground("");
    let mut client = spread.client();
    let data = many(ROWS);
    for step in [1000, 70_000, data.len()] {
        client.run("delete from items");
        let pieces = data.chunks(step).map(wire::copy_data).collect::<Vec<_>>().concat();
        client.send(&wire::query("copy items from stdin"));
        assert_eq!(client.read().tag, b'G');
        let sender = client.send_aside([pieces, wire::copy_done(), wire::query("select 1")].concat());
        let answer = client.until_ready();
        assert_eq!(said(&answer), format!("COPY {ROWS} I"));
        assert_eq!(tags(&client.until_ready()), "TDCZ");
        sender.join().unwrap().unwrap();
        assert_eq!(client.value("select count(*) || ' ' || sum(id) from items"), format!("{ROWS} {}", ROWS * (ROWS - 1) / 2));
    }
    // A duplicate at the end leaves nothing of all that came before, also after blocks were sent.
    client.run("delete from items where id <> 5");
    client.send(&wire::query("copy items from stdin"));
    assert_eq!(client.read().tag, b'G');
    let later = many(ROWS).split_off(many(6).len());
    let sender = client.send_aside([wire::copy_data(&later), wire::copy_data(b"5\tagain\t1\n"), wire::copy_done()].concat());
    assert_eq!(said(&client.until_ready()), "23505 I");
    sender.join().unwrap().unwrap();
    assert_eq!(client.value("select count(*) from items"), "1");
    // One that fails early does not wait for the rest.
    client.send(&wire::query("copy items from stdin"));
    assert_eq!(client.read().tag, b'G');
    let sender = client.send_aside([wire::copy_data(b"abc\tx\t1\n"), wire::copy_data(&later), wire::copy_done()].concat());
    assert_eq!(said(&client.until_ready()), "22P02 I");
    sender.join().unwrap().unwrap();
    assert_eq!(client.value("select count(*) from items"), "1");
    wait_until("all parts to end", || is_over(&spread));
}

#[test]
fn a_copy_that_its_client_gives_up_leaves_nothing() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let fail = wire::copy_fail("no more");
    for begin in [false, true] {
        for data in [&b""[..], b"1\ta\t1\n2\tb\t2\n3\tc\t3\n4\t"] {
            let told = [&mut client, &mut direct].map(|client| {
                if begin {
                    client.run("begin");
                }
                let told = copy(client, "copy items from stdin", (data, 5), &fail);
                if begin {
                    client.run("rollback");
                }
                told
            });
            assert_eq!(told[0], told[1]);
            assert!(told[0].contains("57014"), "{}", told[0]);
            wait_until("all parts to end", || is_over(&spread));
        }
    }
    // A client that goes away within a COPY, and one that sends other messages.
    client.send(&[wire::query("copy items from stdin"), wire::copy_data(&many(30_000))].concat());
    assert_eq!(client.read().tag, b'G');
    drop(client);
    wait_until("all parts to end", || is_over(&spread));
    let mut client = spread.client();
    client.send(&[wire::query("copy items from stdin"), wire::copy_data(b"1\ta\t1\n"), wire::query("select 1")].concat());
    assert_eq!(client.read().tag, b'G');
    assert_eq!(said(&client.until_ready()), "08P01 I");
    assert_eq!(client.value("select count(*) from items"), "0");
    // Sync and Flush within a COPY mean nothing.
    client.send(
        &[wire::query("copy items from stdin"), wire::sync(), wire::copy_data(b"1\ta\t1\n2\ta\t1\n"), wire::flush()].concat(),
    );
    assert_eq!(client.read().tag, b'G');
    client.send(&[wire::sync(), wire::copy_done()].concat());
    assert_eq!(said(&client.until_ready()), "COPY 2 I");
}

#[test]
fn a_shard_that_is_lost_within_a_copy_rolls_it_back() {
    let spread = ground("");
    for (lost, sqlstates) in [(1, ["40001", "08006"]), (2, ["40001", "08006"]), (0, ["40001", "57P03"])] {
        let mut client = spread.client();
        client.send(&[wire::query("copy items from stdin"), wire::copy_data(&many(40_000))].concat());
        assert_eq!(client.read().tag, b'G');
        wait_until("blocks to be sent", || {
            let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
            (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "1")
        });
        spread.server(lost).kill9().unwrap();
        client.send(&[wire::copy_data(b"100001\tx\t1\n100002\tx\t1\n100003\tx\t1\n100004\tx\t1\n"), wire::copy_done()].concat());
        let answer = said(&client.until_ready());
        assert!(sqlstates.iter().any(|sqlstate| answer == format!("{sqlstate} I")), "{lost}: {answer}");
        spread.server(lost).start().unwrap();
        spread.wait_ready("select count(*) from items");
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(spread.client().value("select count(*) from items"), "0");
        client.run("select 1");
    }
}

#[test]
fn copies_that_cannot_be_split_are_refused() {
    let spread = ground("");
    let mut client = spread.client();
    for (text, why) in [
        ("copy items (name) from stdin", "the key is not among its columns"),
        ("copy items from stdin where id > 3", "it has a WHERE"),
        ("copy items from stdin (format csv, header match)", "HEADER MATCH"),
        ("copy items from stdin (format csv, force_null (name))", "FORCE_NULL"),
        ("copy items from stdin (encoding 'latin1')", "ENCODING"),
        ("copy items from stdin (freeze)", "one of its options"),
        ("copy sums from stdin", "name its columns"),
        ("copy countries from stdin", "reference table"),
    ] {
        let failure = client.error(text);
        assert_eq!(failure.sqlstate, "0A000", "{text}");
        assert!(failure.message.contains(why), "{text}: {}", failure.message);
    }
    assert_eq!(client.extended("copy items from stdin", &[]).unwrap_err().sqlstate, "0A000");
    client.run("set client_encoding = latin1");
    assert!(client.error("copy items from stdin").message.contains("encoding"));
    client.run("reset client_encoding");
    let unread = copy(
        &mut client,
        "copy words from stdin",
        (b"a\t1\nmuch longer than the forty letters of the column\t2\n", 9),
        &wire::copy_done(),
    );
    assert!(unread.ends_with("0A000 I"), "{unread}");
    let marked = copy(&mut client, "copy items from stdin", (b"1\ta\t1\n2\tb\\.\n3\tc\t1\n", 4), &wire::copy_done());
    assert!(marked.ends_with("0A000 I"), "{marked}");
    client.run("begin isolation level repeatable read");
    assert_eq!(client.error("copy items from stdin").sqlstate, "0A000");
    client.run("rollback");
    assert_eq!(client.value("select count(*) from items"), "0");
}

#[test]
fn several_clients_copy_at_a_time() {
    let spread = ground("pool_size = 3\n");
    thread::scope(|scope| {
        for number in 0..6 {
            let spread = &spread;
            scope.spawn(move || {
                let mut client = spread.client();
                for round in 0..5 {
                    let from = 1000 * number + 100 * round;
                    let data: String = (from..from + 100).map(|id| format!("{id}\tx\t1\n")).collect();
                    let told = copy(&mut client, "copy items from stdin", (data.as_bytes(), 300), &wire::copy_done());
                    assert!(told.ends_with("COPY 100 I"), "{told}");
                }
            });
        }
    });
    assert_eq!(spread.client().value("select count(*) from items"), "3000");
}
