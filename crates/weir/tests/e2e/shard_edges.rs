//! Statements over several shards that went wrong where nobody had looked: each has one server's answer, or is refused.

use crate::support::ground::wait_until;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask, configs};
use crate::support::wire;

const TABLES: &str = "create table items (id int primary key, v int, tags text[], at timestamptz, note text);
    create table keyed (k uuid primary key, v int);
    create table notes (id int primary key, note text);
    create schema other; create table other.items (id int primary key, title text)";

const ROWS: &str = "insert into items select i, i % 4 + 1, array['t' || i % 3, 'x'], timestamptz '2024-01-01 12:00 UTC' + i * interval '1 day', 'note ' || i \
    from generate_series(1, 30) i; insert into other.items select i, 'title ' || i from generate_series(1, 30) i";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query(&format!("{ROWS}; insert into notes values (1, 'one'), (2, 'two')")).unwrap();
    spread.fill_first(&["notes"]);
    spread.reference(&["notes"]);
    spread.shard("items", "id", "");
    spread.shard("keyed", "k", "");
    spread.command("table postgres other.items --key id");
    spread.fill(&["items"]);
    spread.make_ready("select count(*) from items");
    let mut client = spread.client();
    client.run("insert into other.items values (1, 'title 1'), (2, 'title 2'), (3, 'title 3'), (4, 'title 4'), (5, 'title 5')");
    spread.whole().query("delete from other.items where id > 5").unwrap();
    spread
}

const CONFIGS: [&str; 3] = [
    "",
    "io_method = epoll\nworker_threads = 1\npool_size = 2\ncross_shard_reads = latest\n",
    "commit_outcome = on\ntransaction_replay = on\n",
];

fn said(answer: &Answer) -> String {
    answer.failure.clone().unwrap_or_else(|| answer.said.join(","))
}

#[test]
fn functions_that_return_sets_give_each_row_once() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for (text, is_answered) in [
        ("select generate_series(1, v) from items order by 1", false),
        ("select id, unnest(tags) t from items order by t, id", false),
        ("select id, unnest(tags) t from items order by t desc, id limit 3", false),
        ("select generate_series(1, v) g, count(*) from items group by g order by g", false),
        ("select distinct id, unnest(tags) t from items order by t, id limit 5", false),
        ("select count(*) from (select unnest(tags) t from items order by 1) x", false),
        ("select unnest(tags) from items union select note from items", false),
        ("select id, unnest(tags) t from items order by id", true),
        ("select id, t from items, unnest(tags) t order by t, id", true),
        ("select count(*), min(t) from (select unnest(tags) t from items) x", true),
        ("select t, count(*) from items cross join lateral unnest(tags) t group by t order by t", true),
        ("select unnest(tags) t from items where id = 3 order by t desc", true),
        ("select id from items where id in (select id from other.items) order by id", true),
        ("select v from items where note in (select note from items) order by v, id limit 4", true),
    ] {
        for how in [How::Simple, How::Extended] {
            let told = ask(&mut client, how, text, &[]);
            if is_answered {
                assert_eq!(told, ask(&mut direct, how, text, &[]), "{text}");
            } else {
                assert_eq!(told.failure.as_deref(), Some("0A000"), "{text}");
            }
        }
    }
}

#[test]
fn what_each_server_tells_otherwise_is_written_nowhere_or_once() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for text in [
            "update notes set note = statement_timestamp()::text where id = 1",
            "insert into notes values (900, statement_timestamp()::text)",
            "update items set at = statement_timestamp()",
            "update items set v = inet_server_port()",
            "update items set v = pg_relation_size('items')",
            "insert into items (id, at) values (900, statement_timestamp()), (901, statement_timestamp()), (902, statement_timestamp()), (903, now())",
            "update items set at = now()",
            "update items set at = 'today'::timestamptz",
            "update items set at = note::timestamptz",
        ] {
            for how in [How::Simple, How::Extended] {
                assert_eq!(said(&ask(&mut client, how, text, &[])), "0A000", "{text}");
            }
        }
        // Times that are given are the same everywhere.
        for (text, values) in [
            ("update items set at = '2026-11-30 18:10:00+00'::timestamptz where v > 2", &[][..]),
            ("update items set at = timestamptz '2026-11-30 18:10:00+00' where at < '2024-01-10'::date", &[]),
            ("update items set at = $1::timestamptz where v = $2", &["2025-01-01 10:00:00+00", "1"]),
            ("delete from items where at < '2024-01-03 00:00:00+00'::timestamptz", &[]),
            (
                "insert into items (id, at) values (900, statement_timestamp() - statement_timestamp() + timestamptz '2020-01-01 00:00+00')",
                &[],
            ),
        ] {
            let how = if values.is_empty() { How::Simple } else { How::Extended };
            assert_eq!(said(&ask(&mut client, how, text, values)), said(&ask(&mut direct, how, text, values)), "{text}");
        }
        let rows = "select id, v, extract(epoch from at) from items order by id";
        assert_eq!(ask(&mut client, How::Simple, rows, &[]).rows, ask(&mut direct, How::Simple, rows, &[]).rows);
        spread.command("check postgres");
    }
}

#[test]
fn the_same_drop_of_an_index_means_what_its_name_means_now() {
    let spread = ground("");
    let mut client = spread.client();
    for _ in 0..5 {
        for text in
            ["drop index if exists ia", "create index ia on keyed (v)", "drop index if exists ia", "drop index if exists ia"]
        {
            // Right behind a change the name is looked for anew.
            wait_until("the statement to have an answer", || said(&ask(&mut client, How::Simple, text, &[])) != "57P03");
        }
        for shard in 0..SHARDS {
            assert_eq!(
                spread.server(shard).value("select count(*) from pg_indexes where indexname = 'ia'").unwrap(),
                "0",
                "{shard}"
            );
        }
    }
}

#[test]
fn a_statement_is_prepared_in_a_block_of_one_snapshot() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let mut client = spread.client();
        let texts = ["select count(*) from items", "select count(*) from items where v > 1", "select v from items where id = 3"];
        for (round, first) in [0, 1, 2, 0].into_iter().enumerate() {
            client.run("begin isolation level repeatable read");
            for at in [first, (first + 1) % 2] {
                let name = format!("s{round}_{at}");
                client.send(&[wire::parse(&name, texts[at]), wire::describe(b'S', &name), wire::sync()].concat());
                assert_eq!(Answer::of(&client.until_ready()).failure, None, "{more} {round} {}", texts[at]);
                client.send(&[wire::bind("", &name, &[]), wire::execute("", 0), wire::sync()].concat());
                let answer = Answer::of(&client.until_ready());
                let is_other_shard = first == 2 && at != 2;
                assert_eq!(answer.failure.is_some(), is_other_shard, "{more} {round} {}: {answer:?}", texts[at]);
            }
            client.run("rollback");
        }
    }
}

#[test]
fn uuids_in_all_forms_are_keys() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let forms = [
        "{00000000-0000-0000-0000-0000000000aa}",
        "000000000000000000000000000000ab",
        "0000-0000-0000-0000-0000-0000-0000-00ac",
        "00000000-0000-0000-0000-0000000000AD",
    ];
    for client in [&mut client, &mut direct] {
        client.send(&wire::query("copy keyed from stdin"));
        assert_eq!(client.read().tag, b'G');
        let rows: String = forms.iter().map(|form| format!("{form}\t1\n")).collect();
        client.send(&[wire::copy_data(rows.as_bytes()), wire::copy_done()].concat());
        assert_eq!(Answer::of(&client.until_ready()).said, ["COPY 4"]);
        for form in forms {
            assert_eq!(client.rows(&format!("select v from keyed where k = '{form}'")), [["1"]]);
            assert_eq!(client.error(&format!("insert into keyed values ('{form}', 2)")).sqlstate, "23505");
        }
        client.send(&wire::query("copy keyed from stdin"));
        assert_eq!(client.read().tag, b'G');
        client.send(&[wire::copy_data(b"nothing\t1\n"), wire::copy_done()].concat());
        assert_eq!(Answer::of(&client.until_ready()).failure.as_deref(), Some("22P02"));
    }
}

#[test]
fn tables_of_one_name_in_two_schemas_are_not_mixed_up() {
    let spread = ground("");
    let mut client = spread.client();
    client.run("begin");
    client.run("delete from other.items where id > 0");
    client.run("savepoint a");
    for text in [
        "select id, title from other.items union all select id, note from items where false",
        "select (select max(v) from items o where o.id between 21 and 4), count(*) from other.items",
    ] {
        assert_eq!(said(&ask(&mut client, How::Simple, text, &[])), "0A000", "{text}");
        client.run("rollback to a");
    }
    assert_eq!(client.rows("select count(*) from items"), [["30"]]);
    client.run("rollback");
}

#[test]
fn a_read_of_own_changes_behind_a_waiting_truncate_holds_nobody_for_long() {
    let spread = ground("");
    let (mut one, mut other, mut third) = (spread.client(), spread.client(), spread.client());
    let id = spread.server(2).value("select min(id) from items").unwrap();
    one.run("begin");
    one.run(&format!("update items set v = v + 1 where id = {id}"));
    other.send(&wire::query("truncate items"));
    wait_until("the truncate to wait", || {
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ilike 'truncate items%'";
        spread.server(2).value(waits).unwrap() == "1"
    });
    one.send(&wire::query("select sum(v) from items"));
    let told = Answer::of(&one.until_ready());
    assert!(matches!(told.failure.as_deref(), Some("55P03" | "40P01")), "{told:?}");
    one.run("rollback");
    assert_eq!(said(&Answer::of(&other.until_ready())), "TRUNCATE TABLE");
    // Nothing of the read is left on the shards.
    assert_eq!(third.rows("select count(*) from items"), [["0"]]);
    third.run(&format!("insert into items (id, v) values ({id}, 1)"));
    assert_eq!(third.rows("select sum(v) from items"), [["1"]]);
}
