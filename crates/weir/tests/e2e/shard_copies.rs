//! Writes to reference tables: each shard carries them out on its copy, all of it is committed or nothing, and the copies stay equal.

use crate::support::ground::wait_until;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};

const TABLES: &str = "create table accounts (id int primary key, country int, note text);
    create table countries (id int primary key, name text not null, rank int default 1 + 1 check (rank < 1000));
    create table cities (id int primary key, country int references countries on delete cascade, name text);
    create table logs (id int primary key, at timestamptz default now(), token uuid default gen_random_uuid(), note text default 'none');
    create table plain (id int primary key, note text)";

const COUNTRIES: &str = "insert into countries select i, 'country ' || i from generate_series(1, 10) i";
const COPIES: [&str; 3] = ["countries", "cities", "logs"];

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query(COUNTRIES).unwrap();
    spread.whole().query("insert into accounts select i, i % 10 + 1, 'note ' || i % 7 from generate_series(1, 40) i").unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&COPIES);
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// All rows of a server's copies.
fn rows(server: &weir_demo::Server) -> Vec<String> {
    let text = |table| format!("select coalesce(string_agg({table}::text, ' ' order by id), '') from {table}");
    COPIES.map(|table| server.value(&text(table)).unwrap()).to_vec()
}

fn check_copies(spread: &Spread, what: &str) -> Vec<String> {
    wait_until("all parts to end", || is_over(spread));
    let first = rows(spread.server(0));
    for shard in 1..SHARDS {
        assert_eq!(rows(spread.server(shard)), first, "shard {shard}: {what}");
    }
    first
}

fn check_copies_of_whole(spread: &Spread, what: &str) {
    assert_eq!(check_copies(spread, what), rows(spread.whole()), "{what}");
}

fn is_over(spread: &Spread) -> bool {
    let text = "select (select count(*) from pg_prepared_xacts) \
        + (select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = 'postgres')";
    (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
}

/// Tag, or SQLSTATE.
fn said(answer: &Answer) -> String {
    answer.failure.clone().unwrap_or_else(|| answer.said.join(","))
}

const STATEMENTS: [&str; 24] = [
    "insert into countries values (11, 'eleven'), (12, upper('twelve'), 7)",
    "insert into countries (name, id) values ('a', 13) returning id, name, rank",
    "insert into countries values (1, 'again')",
    "insert into countries values (14, 'x', 2000)",
    "insert into countries values (11, 'new'), (15, 'fifteen') on conflict (id) do update set name = excluded.name, rank = default",
    "insert into countries values (11, 'new'), (16, 'sixteen') on conflict do nothing",
    "insert into countries (id, name) select i, 'made ' || 1 from (values (20), (21), (22)) v (i)",
    "insert into countries (id, name) select id, name from cities",
    "insert into cities values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')",
    "insert into cities values (4, 77, 'nowhere')",
    "insert into cities select id, id, name from countries where id between 5 and 8",
    "insert into logs (id, at, token) values (1, '2020-01-01 10:00+00', '00000000-0000-0000-0000-000000000001')",
    "update countries set name = name || '!', rank = rank + 1",
    "update countries set name = 'none' where id < 0",
    "update countries set rank = 5000 where id = 3",
    "update countries set name = 'x' where rank = 1 / (rank - rank)",
    "update countries set rank = (select c.id from cities c where c.id = countries.id) where id in (select id from cities)",
    "update countries set id = id + 100 where id = 9 returning *",
    "delete from cities using countries where countries.id = cities.id and cities.id = 2",
    "with c as (select id from cities where name like 'th%') delete from cities where id in (select id from c)",
    "delete from countries where id = 1",
    "update cities set name = 'city' where exists (select 1 from countries where countries.id = cities.country)",
    "delete from countries where name like '%1%' returning id",
    "delete from countries",
];

#[test]
fn all_copies_change_as_one_table_would() {
    for more in configs(&[
        "",
        "commit_outcome = on\ntransaction_replay = on\n",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\nstatement_statistics_max = 100\ncross_shard_reads = latest\n",
    ]) {
        let spread = ground(more);
        for how in [How::Simple, How::Extended] {
            for is_block in [false, true] {
                answers_as_one_server(&spread, how, is_block);
            }
        }
    }
}

fn answers_as_one_server(spread: &Spread, how: How, is_block: bool) {
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let mut both = |text: &str| {
        let (told, expected) = (ask(&mut client, how, text, &[]), ask(&mut direct, how, text, &[]));
        assert_eq!(said(&told), said(&expected), "{how:?} {is_block} {text}");
        assert_eq!(told.sorted(), expected.sorted(), "{how:?} {is_block} {text}");
    };
    for table in ["logs", "cities", "countries"] {
        both(&format!("delete from {table}"));
    }
    both("insert into countries (id, name) select i, 'country' from generate_series(1, 10) i");
    check_copies_of_whole(spread, "the ground");
    for text in STATEMENTS {
        for end in if is_block { &["rollback", "commit"][..] } else { &[""] } {
            if is_block {
                both("begin");
                both("update accounts set note = 'first' where id = 2");
            }
            both(text);
            if is_block {
                both("select c.name, a.note from accounts a join countries c on c.id = a.country where a.id = 3");
                both("select id, name, rank from countries order by id");
                both("insert into countries values (500, 'own') on conflict do nothing");
                both("update accounts set note = (select max(name) from countries where id = 500) where id = 5");
                both("select note from accounts where id = 5");
                both("delete from countries where id = 500");
                both(end);
            }
            check_copies_of_whole(spread, &format!("{how:?} {is_block} {end} {text}"));
        }
    }
}

#[test]
fn drivers_bind_values_and_prepare_such_writes() {
    let spread = ground("");
    let mut client = spread.client();
    let mut tell = |messages: &[Vec<u8>]| {
        client.send(&messages.concat());
        let answer = client.until_ready();
        (answer.iter().map(|message| char::from(message.tag)).collect::<String>(), said(&Answer::of(&answer)))
    };
    let text = "insert into countries (id, name) values ($1, $2) returning id";
    let told = [
        tell(&[wire::parse("s", text), wire::describe(b'S', "s"), wire::sync()]),
        tell(&[wire::bind("", "s", &["31", "a"]), wire::execute("", 0), wire::sync()]),
        tell(&[
            wire::bind("", "s", &["32", "b"]),
            wire::describe(b'P', ""),
            wire::execute("", 0),
            wire::close(b'P', ""),
            wire::sync(),
        ]),
        tell(&[wire::parse("", text), wire::bind("", "", &["33", "c"]), wire::execute("", 0), wire::sync()]),
        tell(&[wire::bind("", "s", &["34", "d"]), wire::execute("", 1), wire::sync()]),
        tell(&[wire::bind("", "s", &["31", "again"]), wire::execute("", 0), wire::sync()]),
    ];
    let told: Vec<(&str, &str)> = told.iter().map(|(tags, said)| (&**tags, &**said)).collect();
    assert_eq!(
        told,
        [
            ("1tTZ", ""),
            ("2DCZ", "INSERT 0 1"),
            ("2TDC3Z", "INSERT 0 1"),
            ("12DCZ", "INSERT 0 1"),
            ("EZ", "0A000"),
            ("EZ", "23505")
        ]
    );
    check_copies(&spread, "bound values");
    assert_eq!(client.rows("select count(*) from countries where id > 30"), [["3"]]);
}

#[test]
fn writes_that_might_leave_other_copies_are_refused() {
    let spread = ground("");
    spread.everywhere("create sequence numbers; create function own(int) returns int language sql immutable as 'select $1'");
    spread
        .define("create function changes() returns trigger language plpgsql as $$ begin new.note = random(); return new; end $$");
    let before = check_copies(&spread, "the ground");
    let mut client = spread.client();
    wait_until("the proxy to know the function", || client.try_rows("select own(1)").is_ok());
    for (text, why) in [
        ("insert into logs (id) values (1)", "default of column \"at\" is computed by each server: give the value"),
        ("insert into logs values (1, '2020-01-01', default)", "column \"token\""),
        ("update logs set at = default", "column \"at\""),
        ("insert into logs values (1, now(), '00000000-0000-0000-0000-000000000001')", "give the time as a value"),
        ("insert into logs values (1, 'now', '00000000-0000-0000-0000-000000000001')", "time of the transaction"),
        ("insert into countries values (50, random()::text)", "function \"random\" by itself"),
        ("insert into countries values (51, clock_timestamp()::text)", "clock_timestamp"),
        ("insert into countries values (52, 'x', nextval('numbers'))", "nextval"),
        ("insert into countries values (53, 'x', own(3))", "own"),
        ("insert into countries select id, note from plain", "no reference table"),
        ("insert into countries select id, note from accounts", "no reference table"),
        ("update countries set name = 'x' where id in (select country from accounts)", "no reference table"),
        ("update countries set rank = (select max(rank) from countries)", "groups, sorts out, limits"),
        ("update countries c set name = i.name from cities i where i.country = c.id", "write a subquery"),
        ("delete from countries where ctid = '(0,1)'", "ctid"),
        ("with d as (delete from cities returning id) delete from countries where id in (select id from d)", "not one INSERT"),
        ("explain analyze delete from countries", "EXPLAIN"),
    ] {
        let failure = client.error(text);
        let told = format!("{} {} {}", failure.message, failure.detail, failure.hint);
        assert!(failure.sqlstate == "0A000" && told.contains(why), "{text}: {told}");
    }
    let merge = "merge into countries using cities on false when not matched then insert values (1, 'x')";
    assert_eq!(client.error(merge).sqlstate, "0A000");
    // Changes past Weir count a moment later.
    spread.server(0).query("create trigger changes before insert on logs for each row execute function changes()").unwrap();
    let text = "insert into logs values (1, '2020-01-01', '00000000-0000-0000-0000-000000000001')";
    wait_until("the trigger to be known", || {
        client.run("begin");
        let told = client.try_rows(text);
        client.run("rollback");
        told.is_err_and(|failure| failure.sqlstate == "0A000" && failure.detail.contains("trigger"))
    });
    spread.server(0).query("drop trigger changes on logs").unwrap();
    assert_eq!(check_copies(&spread, "refused"), before);
    let route = client.rows("show route for 'delete from countries'");
    assert_eq!(route[0][..3], ["shards 0,1,2", "0,1,2", "all_shards"]);
    let route = client.rows("show route for 'insert into logs (id) values (1)'");
    assert!(route[0][0] == "refused" && route[0][3].contains("copies"), "{route:?}");
}

#[test]
fn savepoints_take_such_writes_back_on_all_shards() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for how in [How::Simple, How::Extended] {
        let refused = "alter table accounts alter column id type bigint";
        for text in [
            "begin",
            "savepoint a",
            "insert into countries values (30, 'thirty') returning id, name",
            "update accounts set note = 'x' where country = 3 returning id, note",
            "savepoint b",
            "insert into countries values (30, 'again')",
            "rollback to b",
            "update countries set rank = 3 where id = 30 returning rank",
            "savepoint c",
            "delete from countries where id in (30, 9) returning *",
            "rollback to c",
            "insert into accounts values (100, 1, 'a'), (101, 2, 'b'), (102, 3, 'c') returning id",
            "update countries set rank = 5000 where id = 30",
            "rollback to a",
            refused,
            "rollback to a",
            "insert into countries values (31, 'one') returning id",
            "update accounts set note = note || '!'",
            "release a",
            "commit",
            "delete from countries where id = 31",
        ] {
            let told = ask(&mut client, how, text, &[]);
            if text == refused {
                assert_eq!(said(&told), "0A000", "{how:?}");
                continue;
            }
            let expected = ask(&mut direct, how, text, &[]);
            assert_eq!(said(&told), said(&expected), "{how:?} {text}");
            assert_eq!(told.sorted(), expected.sorted(), "{how:?} {text}");
        }
        check_copies_of_whole(&spread, "after savepoints");
        let all = "select id, country, note from accounts order by id";
        assert_eq!(ask(&mut client, how, all, &[]), ask(&mut direct, how, all, &[]), "{how:?}");
    }
}

#[test]
fn copies_that_differ_are_told_and_nothing_remains() {
    let spread = ground("");
    for shard in 0..SHARDS {
        spread.server(shard).query("delete from countries where id = 7").unwrap();
        let before: Vec<_> = (0..SHARDS).map(|shard| rows(spread.server(shard))).collect();
        for how in [How::Simple, How::Extended] {
            let mut client = spread.client();
            let text = "update countries set rank = rank + 1 returning id";
            let told = ask(&mut client, how, text, &[]);
            assert_eq!((said(&told), told.said.len()), ("XX001".to_owned(), 0), "{how:?} {shard}");
            client.run("select 1");
            client.run("begin");
            client.run("update accounts set note = 'own' where id = 1");
            assert_eq!(said(&ask(&mut client, how, text, &[])), "XX001", "{how:?} {shard}");
            assert_eq!(said(&ask(&mut client, how, "select 1", &[])), "25P02", "{how:?} {shard}");
            assert_eq!(said(&ask(&mut client, how, "commit", &[])), "ROLLBACK", "{how:?} {shard}");
            wait_until("all parts to end", || is_over(&spread));
            let after: Vec<_> = (0..SHARDS).map(|shard| rows(spread.server(shard))).collect();
            assert_eq!(after, before, "{how:?} {shard}");
        }
        let failure = spread.client().error("delete from countries where id = 7");
        assert!(failure.message.contains("copies of a reference table differ") && failure.hint.contains("weir shard check"));
        spread.server(shard).query("insert into countries values (7, 'country 7')").unwrap();
    }
    check_copies(&spread, "the end");
}

#[test]
fn an_error_or_the_loss_of_one_shard_leaves_nothing() {
    let spread = ground("");
    let text = "update countries set rank = rank + 1";
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    for shard in 0..SHARDS {
        let before = check_copies(&spread, "before");
        spread.server(shard).query("alter table countries add constraint small check (rank < 3)").unwrap();
        for how in [How::Simple, How::Extended] {
            let mut client = spread.client();
            assert_eq!(said(&ask(&mut client, how, text, &[])), "23514", "{how:?} {shard}");
            client.run("select 1");
        }
        spread.server(shard).query("alter table countries drop constraint small").unwrap();
        assert_eq!(check_copies(&spread, "an error"), before);
        // Killed in the middle.
        let mut holder = Raw::tcp(spread.server(shard).port()).log_in("postgres", "postgres", &[]).unwrap();
        holder.run("begin");
        holder.run("update countries set name = name where id = 4");
        let mut client = spread.client();
        client.send(&wire::query(text));
        wait_until("the statement to wait", || spread.server(shard).value(waits).unwrap() != "0");
        spread.server(shard).kill9().unwrap();
        if shard == 1 {
            // The transaction has begun nowhere else: it begins anew.
            spread.server(shard).start().unwrap();
        }
        let told = said(&Answer::of(&client.until_ready()));
        assert_eq!(told, if shard == 1 { "UPDATE 10" } else { "40001" }, "{shard}");
        drop(holder);
        if shard != 1 {
            assert_ne!(said(&ask(&mut client, How::Simple, text, &[])), "UPDATE 10", "a shard is down");
            spread.server(shard).start().unwrap();
        }
        spread.wait_ready("select count(*) from accounts");
        client.run("select count(*) from plain");
        let after = check_copies(&spread, "a loss");
        assert_eq!(after == before, shard != 1, "{shard}");
        spread.everywhere("update countries set rank = 2");
    }
}

#[test]
fn writers_of_the_same_rows_leave_equal_copies() {
    for (more, writers) in [("", 4), ("worker_threads = 1\npool_size = 8\n", 4)] {
        let spread = ground(more);
        let began = std::time::Instant::now();
        let threads: Vec<_> = (0..writers)
            .map(|writer: usize| {
                let mut client = spread.client();
                std::thread::spawn(move || {
                    let mut told = std::collections::BTreeMap::<String, u32>::new();
                    for round in 0..30 {
                        let id = 1000 + (writer + round) % 3;
                        // Each finds rows by columns that others change.
                        let texts = [
                            format!("update countries set rank = rank % 5 + 1 where rank = {}", (writer + round) % 5),
                            format!("insert into countries values ({id}, 'w{writer}', 3) on conflict (id) do update set name = 'again', rank = countries.rank % 5"),
                            format!("insert into countries (id, name) select id + 0, 'x' from cities where id = {id}"),
                            format!("delete from countries where id = {id} and rank > 2"),
                            "update countries set name = 'n' || rank where rank in (select rank from countries where id < 4)".to_owned(),
                        ];
                        let text = &texts[(round + writer) % texts.len()];
                        let is_block = round % 3 == 0;
                        if is_block {
                            client.run("begin");
                            ask(&mut client, How::Simple, &texts[round % 2], &[]);
                        }
                        let answer = ask(&mut client, if round % 2 == 0 { How::Simple } else { How::Extended }, text, &[]);
                        let end = if is_block { said(&ask(&mut client, How::Simple, "commit", &[])) } else { String::new() };
                        let key = answer.failure.unwrap_or_else(|| format!("done {end}"));
                        *told.entry(key).or_default() += 1;
                    }
                    told
                })
            })
            .collect();
        let told: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        println!("{writers} writers in {:?}: {told:?}", began.elapsed());
        check_copies(&spread, "writers");
        let fails = |code: &String| !code.starts_with("done") && code != "40P01" && code != "0A000";
        assert!(!told.iter().flat_map(|told| told.keys()).any(fails), "{told:?}");
    }
}
