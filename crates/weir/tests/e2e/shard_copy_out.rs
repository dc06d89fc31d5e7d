//! COPY TO STDOUT of spread tables, and of queries about them: the client gets what one server with all rows would send.

use crate::cancel::cancel;
use crate::support::ground::wait_until;
use crate::support::raw::Message;
use crate::support::spread::{SHARDS, Spread, configs};
use crate::support::{Raw, wire};

const TABLES: &str =
    "create table items (id int primary key, name text, price numeric(10, 2), made timestamptz, \"Two Words\" bytea);
    create table sums (id int primary key, half int, double int generated always as (half * 2) stored);
    create table countries (id int primary key, name text);
    create table plain (id int primary key)";

const ROWS: &str = "insert into items select i, case when i % 7 = 0 then null else E'name\\t\"' || i || E'\\n;' end, i / 3.0, \
    timestamptz '2024-01-01 00:00+00' + i * interval '1 hour', decode(lpad(to_hex(i), 4, '0'), 'hex') from generate_series(1, 60) i;
    insert into sums select i, i from generate_series(1, 30) i; insert into countries select i, 'country ' || i from generate_series(1, 5) i";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query(ROWS).unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("items", "id", "");
    spread.shard("sums", "id", "");
    spread.fill(&["items", "sums"]);
    spread.make_ready("select count(*) from items");
    spread
}

/// An answer to a COPY, with its data in pieces as they came.
#[derive(Debug, PartialEq, Eq)]
struct Copied {
    /// Formats of the columns.
    response: Vec<u8>,
    rows: Vec<Vec<u8>>,
    /// The tag or the SQLSTATE, and the state of the transaction.
    said: String,
    /// Kinds of messages, those of data left out.
    tags: String,
}

impl Copied {
    fn of(messages: &[Message]) -> Copied {
        let of = |tag: u8| messages.iter().filter(move |message| message.tag == tag);
        let words = messages.iter().filter_map(|message| match message.tag {
            b'C' => Some(message.text()),
            b'E' => Some(message.failure().sqlstate),
            b'Z' => Some(String::from_utf8_lossy(&message.body).into_owned()),
            _ => None,
        });
        Copied {
            response: of(b'H').flat_map(|message| message.body.clone()).collect(),
            rows: of(b'd').map(|message| message.body.clone()).collect(),
            said: words.collect::<Vec<_>>().join(" "),
            tags: messages.iter().filter(|message| message.tag != b'd').map(|message| char::from(message.tag)).collect(),
        }
    }

    /// Rows in an order of their own; a header stays the first one.
    fn sorted(mut self) -> Copied {
        if let Some((_, rest)) = self.rows.split_first_mut() {
            rest.sort();
        }
        self
    }
}

fn copied(client: &mut Raw, text: &str) -> Copied {
    client.send(&wire::query(text));
    Copied::of(&client.until_ready())
}

const TEXTS: [&str; 27] = [
    "copy items to stdout (header)",
    "COPY public.items (id, name) TO STDOUT (HEADER true);",
    "copy items (price, id) to stdout with csv header delimiter ';' null 'nothing' force quote id",
    "copy items to stdout (format csv, header, force_quote *, quote '''', escape '!')",
    "copy items (\"Two Words\", made) to stdout (header, encoding 'utf8')",
    "copy sums to stdout (header)",
    "copy sums (half, id) to stdout csv header",
    "copy countries to stdout",
    "copy countries (name) to stdout binary",
    "copy (select * from items order by id) to stdout",
    "copy (select id, name, price from items order by id desc limit 7) to stdout (format csv, header)",
    "copy (select count(*), sum(price) from items) to stdout",
    "copy (select i.id, c.name from items i join countries c on c.id = i.id order by i.id) to stdout (format binary)",
    "copy (select * from items where id = 3) to stdout",
    "copy (select id, name from items where id in (1, 2, 3, 4, 5) order by 1) to stdout with (format binary)",
    "copy (select id from items where id < 0) to stdout",
    "copy (select name from countries order by 1) to stdout",
    "copy (values (1, 'x')) to stdout",
    // Errors.
    "copy items (nothing) to stdout",
    "copy items to stdout (format parquet)",
    "copy items to stdout (delimiter 'ab')",
    "copy items to stdout (header, header)",
    "copy items to stdout (format csv, force_quote (nothing))",
    "copy nowhere to stdout",
    "copy (select 1 / (id - 40) from items order by id) to stdout",
    "copy (select nothing from items) to stdout",
    "copy items to stdout (format binary, header)",
];

#[test]
fn a_copy_to_the_client_sends_what_one_server_would() {
    for more in configs(&[
        "",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\ntransaction_replay = on\n",
        "cross_shard_reads = latest\nlog_client_messages = on\nlog_statement = on\nstatement_statistics_max = 100\n",
    ]) {
        let spread = ground(more);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for text in TEXTS {
            for begin in [&[][..], &["begin"]] {
                for both in [&mut client, &mut direct] {
                    begin.iter().for_each(|text| both.run(text));
                }
                let (told, expected) = (copied(&mut client, text).sorted(), copied(&mut direct, text).sorted());
                assert!(text.contains('/') || told.said == expected.said, "{more} {text}: {told:?}");
                if !expected.tags.contains('E') {
                    assert_eq!(told, expected, "{more} {text}");
                } else {
                    assert!(told.tags.contains('E') && told.said == expected.said, "{more} {text}: {told:?} {expected:?}");
                }
                if !begin.is_empty() {
                    [&mut client, &mut direct].into_iter().for_each(|both| both.run("rollback"));
                }
            }
        }
        // Without a header the first row has no place of its own.
        let all = |client: &mut Raw| {
            let mut rows = copied(client, "copy items to stdout").rows;
            rows.sort();
            rows
        };
        assert_eq!(all(&mut client), all(&mut direct));
        let escaped = "copy items to stdout (format csv, header, force_quote *, escape '\\')";
        assert_eq!(copied(&mut client, escaped).sorted(), copied(&mut direct, escaped).sorted());
        assert_eq!(client.rows("select count(*) from items"), [["60"]]);
    }
}

#[test]
fn copies_of_one_shard_and_of_reference_tables_are_a_part_of_their_transaction() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for both in [&mut client, &mut direct] {
        both.run("begin");
        both.run("update items set name = 'own' where id = 3");
    }
    for text in [
        "copy (select * from items where id = 3) to stdout",
        "copy (select * from items where id = 4) to stdout",
        "copy (select id, name from items where id = 5) to stdout (format csv)",
        "copy countries to stdout",
    ] {
        assert_eq!(copied(&mut client, text), copied(&mut direct, text), "{text}");
    }
    let failure = client.error("copy items to stdout");
    assert!(failure.sqlstate == "0A000" && failure.message.contains("several shards"), "{failure:?}");
    assert_eq!(client.error("copy items to stdout").sqlstate, "25P02");
    client.run("rollback");
    direct.run("rollback");
    let text = "copy (select id, price from items where id = 7) to stdout";
    assert_eq!(copied(&mut client, text), copied(&mut direct, text));
}

#[test]
fn copies_come_one_behind_the_other_and_in_the_extended_protocol() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let texts = [
        "copy items (id) to stdout (header)",
        "select count(*) from items",
        "copy (select id from items where id = 3) to stdout",
        "copy sums to stdout (header)",
        "insert into items (id) values (1000)",
        "copy (select id from items order by id) to stdout",
    ];
    let answers = |client: &mut Raw| {
        client.send(&texts.map(wire::query).concat());
        texts.map(|_| Copied::of(&client.until_ready()).sorted())
    };
    let (told, expected) = (answers(&mut client), answers(&mut direct));
    for (at, (told, expected)) in told.into_iter().zip(expected).enumerate() {
        assert_eq!((told.said, told.rows, told.response), (expected.said, expected.rows, expected.response), "{}", texts[at]);
    }
    let extended = |client: &mut Raw, text: &str| {
        client.send(&[wire::parse("", text), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        Copied::of(&client.until_ready())
    };
    for text in [
        "copy (select id from items order by id) to stdout",
        "copy (select id from items where id = 3) to stdout",
        "copy countries to stdout",
    ] {
        assert_eq!(extended(&mut client, text), extended(&mut direct, text), "{text}");
    }
    assert_eq!(extended(&mut client, "copy items to stdout").said, "0A000 I");
}

#[test]
fn rights_count_as_on_one_server() {
    let spread = ground("");
    spread.everywhere("create role reader login; create role clerk login; create role stranger login");
    for shard in 0..SHARDS {
        spread.server(shard).query("grant select on items to reader; grant select (id, name) on items to clerk").unwrap();
    }
    spread.whole().query("grant select on items to reader; grant select (id, name) on items to clerk").unwrap();
    wait_until("the engine to have the rights", || spread.client_of("clerk").try_value("select count(id) from items").is_ok());
    for user in ["reader", "clerk", "stranger"] {
        for text in [
            "copy items to stdout (header)",
            "copy items (name, id) to stdout (header)",
            "copy (select price from items order by id) to stdout",
            "copy (select id from items where id = 3) to stdout",
        ] {
            let (mut client, mut direct) = (spread.client_of(user), spread.direct_of(user));
            let (told, expected) = (copied(&mut client, text).sorted(), copied(&mut direct, text).sorted());
            assert_eq!((told.said, told.rows), (expected.said, expected.rows), "{user} {text}");
        }
    }
}

#[test]
fn a_copy_is_cancelled_and_outlives_neither_its_client_nor_a_lost_shard() {
    let spread = ground("pool_size = 2\n");
    let long = "copy (select i.id, repeat('x', 1000) from items i, generate_series(1, 1000000)) to stdout";
    let active = |spread: &Spread| {
        let text = "select count(*) from pg_stat_activity where datname = 'postgres_engine' and state = 'active'";
        spread.server(0).value(text).unwrap()
    };
    let mut client = spread.client();
    client.send(&wire::query(long));
    while client.read().tag != b'd' {}
    cancel(&spread.proxy, client.pid, &client.key.clone());
    let end = client.until_ready();
    assert!(end.iter().any(|message| message.tag == b'E' && message.failure().sqlstate == "57014"));
    assert_eq!(client.rows("select count(*) from items"), [["60"]]);
    let mut gone = spread.client();
    gone.send(&wire::query(long));
    while gone.read().tag != b'd' {}
    drop(gone);
    wait_until("the engine to be at rest", || active(&spread) == "0");
    client.send(&wire::query(long));
    while client.read().tag != b'd' {}
    spread.server(2).kill9().unwrap();
    spread.server(2).start().unwrap();
    cancel(&spread.proxy, client.pid, &client.key.clone());
    let end = client.until_ready();
    assert!(end.iter().any(|message| message.tag == b'E'));
    spread.wait_ready("select count(*) from items");
    assert_eq!(client.rows("select count(*) from items"), [["60"]]);
}

#[test]
fn copies_that_the_engine_does_not_send_are_refused() {
    let spread = ground("");
    let mut client = spread.client();
    for (text, why) in [
        ("copy items (id, id) to stdout", "a column is named twice"),
        ("copy items (id, ctid) to stdout", "ctid"),
        ("copy (select ctid from items) to stdout", "ctid"),
        ("copy (select * from items, plain) to stdout", "a table of shard 0 only"),
        ("copy (update items set name = 'x' returning id) to stdout", "COPY is not carried out"),
        ("copy (with d as (delete from items returning id) select * from d) to stdout", "key"),
        ("copy (select id from items for update) to stdout", "locks rows"),
        ("copy items to '/tmp/x'", "COPY is not carried out"),
        ("copy items to program 'cat'", "COPY is not carried out"),
        ("copy (select * from items where id = 1) to '/tmp/x'", "COPY is not carried out"),
        ("copy items to stdout; select 1", "several statements"),
    ] {
        let failure = client.error(text);
        let told = format!("{} {} {} {}", failure.sqlstate, failure.message, failure.detail, failure.hint);
        assert_eq!(failure.sqlstate, "0A000", "{text}: {told}");
        assert!(told.contains(why), "{text}: {told}");
    }
    let route = client.rows("show route for 'copy items to stdout'");
    assert_eq!(route[0][2], "engine", "{route:?}");
    client.run("set client_encoding = latin1");
    assert_eq!(copied(&mut client, "copy items (id) to stdout").said, "COPY 60 I");
}
