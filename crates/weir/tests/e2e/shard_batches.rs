//! Statements that a client sends without waiting, up to one Sync, whose rows lie on several shards: as on one server, or refused with nothing left.

use crate::support::ground::wait_until;
use crate::support::raw::{Message, tags};
use crate::support::spread::{Answer, SHARDS, Spread};
use crate::support::{Raw, wire};

const TABLES: &str = "create table countries (id int primary key, name text);
    create table accounts (id int primary key, balance int not null check (balance >= 0), note text,
        country int references countries deferrable initially deferred);
    create table logs (id bigserial, account int, note text, primary key (account, id));
    create table plain (id int primary key, note text)";

const ACCOUNTS: usize = 40;

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query("insert into countries select i, 'country ' || i from generate_series(1, 10) i").unwrap();
    let rows = format!("insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, {ACCOUNTS}) i");
    spread.whole().query(&rows).unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("accounts", "id", "");
    spread.shard("logs", "account", "--with public.accounts");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// Rows as the servers have them, in order. Numbers of sequences differ.
fn rows<'s>(servers: impl Iterator<Item = &'s weir_demo::Server>) -> Vec<String> {
    let text = "select coalesce(string_agg(r, '|'), '') from (select a::text from accounts a union all \
        select 'log ' || account || note from logs) s (r)";
    let of = |server: &weir_demo::Server| server.value(text).unwrap().split('|').map(str::to_owned).collect::<Vec<_>>();
    let mut rows: Vec<String> = servers.flat_map(of).filter(|row| !row.is_empty()).collect();
    rows.sort();
    rows
}

fn is_over(spread: &Spread) -> bool {
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    let prepared = "select count(*) from pg_prepared_xacts";
    (0..SHARDS).all(|shard| [open, prepared].iter().all(|text| spread.server(shard).value(text).unwrap() == "0"))
}

fn rows_of_shards(spread: &Spread) -> Vec<String> {
    rows((0..SHARDS).map(|shard| spread.server(shard)))
}

fn check_rows(spread: &Spread, case: &str) {
    wait_until("all parts to end", || is_over(spread));
    assert_eq!(rows_of_shards(spread), rows([spread.whole()].into_iter()), "{case}");
    let plain = "select count(*) from plain";
    assert_eq!(spread.server(0).value(plain).unwrap(), spread.whole().value(plain).unwrap(), "{case}");
    let names = "select string_agg(name, ',' order by id) from countries";
    for shard in 0..SHARDS {
        assert_eq!(spread.server(shard).value(names).unwrap(), spread.whole().value(names).unwrap(), "{case}: {shard}");
    }
}

/// An answer with its messages' tags in their order, without those about parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    order: String,
    answer: Answer,
    errors: Vec<String>,
    status: u8,
}

fn told(messages: &[Message]) -> Told {
    let errors = messages.iter().filter(|message| message.tag == b'E').map(|message| message.failure().sqlstate);
    let status = messages.last().and_then(|message| message.body.first().copied()).unwrap_or_default();
    Told { order: tags(messages), answer: Answer::of(messages), errors: errors.collect(), status }
}

fn send(client: &mut Raw, messages: &[Vec<u8>]) -> Told {
    client.send(&messages.concat());
    told(&client.until_ready())
}

fn statement(text: &str, values: &[&str]) -> Vec<u8> {
    [wire::parse("", text), wire::bind("", "", values), wire::describe(b'P', ""), wire::execute("", 0)].concat()
}

const INSERT: &str = "insert into accounts values ($1, $2, $3)";

/// One with generated keys.
const RETURNING: &str = "insert into accounts values ($1, $2, $3) returning id, upper(note)";

const ROWS: &str = "insert into accounts values ($1, $2, $3), ($4, $5, $6), ($7, $8, $9), ($10, $11, $12)";

/// Inserts of one row each, with keys of all shards.
fn inserts(text: &str, ids: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    ids.map(|id| statement(text, &[&id.to_string(), "7", "x"])).collect()
}

/// Inserts of four rows each.
fn inserts_of_rows(text: &str, first: usize, count: usize) -> Vec<Vec<u8>> {
    let insert = |at: usize| {
        let values: Vec<String> =
            (0..4).flat_map(|row| [(first + 4 * at + row).to_string(), "3".into(), "rows".into()]).collect();
        statement(text, &values.iter().map(String::as_str).collect::<Vec<_>>())
    };
    (0..count).map(insert).collect()
}

/// The messages before the Sync, by name.
fn batches() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let returning_rows = format!("{ROWS} returning id, note");
    let named = |ids: std::ops::Range<usize>| ids.map(|id| wire::run("s", &[&id.to_string(), "7", "y"]));
    let by_key = [
        statement("update accounts set balance = balance + 1 where id = $1", &["1"]),
        statement("select id, balance from accounts where id = $1", &["1"]),
        statement("delete from accounts where id = $1", &["2"]),
        statement("select id, balance from accounts where id = $1", &["2"]),
        statement("insert into logs (account, note) values ($1, 'of three') returning account", &["3"]),
        statement("update accounts set note = note || $2 where id = $1 returning *", &["4", "!"]),
        statement("select a.note, c.name from accounts a left join countries c on c.id = a.country where a.id = $1", &["5"]),
        statement("select 1", &[]),
        statement("update accounts set balance = balance - 1 where id = $1", &["6"]),
    ];
    let reads: Vec<Vec<u8>> =
        (1..10).map(|id| statement("select id, balance from accounts where id = $1", &[&id.to_string()])).collect();
    let over_all = statement("update accounts set balance = balance + 1 where balance > $1", &["99"]);
    let over_all_returning = statement("delete from accounts where id = $1 or id = $2 or id = $3 returning id", &["1", "7", "8"]);
    vec![
        ("inserts", inserts(INSERT, 101..113)),
        ("inserts that return", inserts(RETURNING, 101..113)),
        ("named", [vec![wire::parse("s", INSERT)], named(101..113).collect()].concat()),
        (
            "named and described",
            [vec![wire::parse("s", INSERT), wire::describe(b'S', "s")], named(101..105).collect(), vec![wire::close(b'S', "s")]]
                .concat(),
        ),
        (
            "closed in the middle",
            [
                vec![wire::parse("s", INSERT)],
                named(101..105).collect(),
                vec![wire::close(b'S', "s"), wire::parse("s", RETURNING), wire::close(b'P', ""), wire::describe(b'S', "s")],
                named(105..109).collect(),
            ]
            .concat(),
        ),
        (
            "gone statement",
            [vec![wire::parse("s", INSERT)], named(101..104).collect(), vec![wire::close(b'S', "s")], named(104..107).collect()]
                .concat(),
        ),
        ("by key", by_key.to_vec()),
        ("reads", reads.clone()),
        (
            "reads, one of all shards",
            [&reads[..2], &[statement("select count(*) from accounts where id < $1", &["20"])], &reads[2..]].concat(),
        ),
        ("reads and one write", [reads.clone(), inserts(INSERT, 101..102)].concat()),
        ("error in the middle", [inserts(RETURNING, 101..107), inserts(INSERT, 5..6), inserts(INSERT, 107..112)].concat()),
        ("error at first", [inserts(INSERT, 5..6), inserts(INSERT, 107..112)].concat()),
        ("error at last", [inserts(INSERT, 107..112), inserts(INSERT, 5..6)].concat()),
        ("error in a Parse", [inserts(INSERT, 101..105), vec![statement("selec", &[])], inserts(INSERT, 105..109)].concat()),
        (
            "error in a Bind",
            [inserts(INSERT, 101..105), vec![statement(INSERT, &["105", "x", "y"])], inserts(INSERT, 106..109)].concat(),
        ),
        ("too few values", [inserts(INSERT, 101..105), vec![statement(INSERT, &["105"])], inserts(INSERT, 106..109)].concat()),
        ("no such statement", [inserts(INSERT, 101..105), vec![wire::run("gone", &[])], inserts(INSERT, 106..109)].concat()),
        (
            "error at the commit",
            [inserts(INSERT, 101..105), vec![statement("insert into accounts values ($1, 1, 'x', 99)", &["106"])]].concat(),
        ),
        (
            "error at a commit after the first shard",
            [vec![statement("insert into accounts values ($1, 1, 'x', 99)", &["101"])], inserts(INSERT, 102..109)].concat(),
        ),
        ("rows of several shards", inserts_of_rows(ROWS, 101, 3)),
        ("returned rows of several shards", inserts_of_rows(&returning_rows, 101, 3)),
        ("rows between", [inserts(INSERT, 101..104), inserts_of_rows(ROWS, 201, 2), inserts(RETURNING, 104..107)].concat()),
        ("rows at last", [inserts(INSERT, 101..104), inserts_of_rows(&returning_rows, 201, 1)].concat()),
        (
            "spread: rows, one of them twice",
            [inserts_of_rows(ROWS, 101, 2), inserts_of_rows(ROWS, 104, 1), inserts(INSERT, 301..303)].concat(),
        ),
        (
            "spread: a named insert of rows",
            [
                vec![wire::parse("r", ROWS), wire::describe(b'S', "r")],
                vec![wire::run("r", &["101", "1", "a", "102", "1", "b", "103", "1", "c", "104", "1", "d"])],
                vec![
                    wire::run("r", &["111", "1", "a", "112", "1", "b", "113", "1", "c", "114", "1", "d"]),
                    wire::close(b'P', ""),
                ],
                vec![wire::run("r", &["121", "1", "a", "122", "1", "b", "123", "1", "c", "124", "-1", "d"])],
            ]
            .concat(),
        ),
        ("a write over all", [inserts(INSERT, 101..104), vec![over_all.clone(), over_all], inserts(INSERT, 104..107)].concat()),
        ("a write over all that returns", [vec![over_all_returning], inserts(INSERT, 104..107)].concat()),
        (
            "a reference table",
            [
                inserts(INSERT, 101..104),
                vec![statement("update countries set name = $1 where id = 3", &["new"])],
                vec![statement("insert into countries values ($1, 'eleven') returning *", &["11"])],
                inserts(INSERT, 104..107),
            ]
            .concat(),
        ),
        (
            "spread: rows of a reference table by a named insert",
            [
                vec![wire::parse("r", "insert into countries values ($1, $2)")],
                (21..27).map(|id: u32| wire::run("r", &[&id.to_string(), "more"])).collect(),
                inserts(INSERT, 101..104),
                vec![wire::run("r", &["27", "last"])],
            ]
            .concat(),
        ),
        (
            "spread: one of the rows of a reference table is there",
            [
                vec![wire::parse("r", "insert into countries values ($1, $2)")],
                [31, 3, 32].map(|id: u32| wire::run("r", &[&id.to_string(), "more"])).to_vec(),
            ]
            .concat(),
        ),
        (
            "other tables",
            [inserts(INSERT, 101..104), vec![statement("insert into plain values ($1, 'p')", &["1"])], inserts(INSERT, 104..107)]
                .concat(),
        ),
        ("no statement", vec![wire::parse("", INSERT)]),
        (
            "a limit of rows",
            vec![
                wire::parse("", "select generate_series(1, 3) from accounts where id = $1"),
                wire::bind("", "", &["1"]),
                wire::execute("", 2),
                wire::execute("", 2),
                inserts(INSERT, 101..107).concat(),
            ],
        ),
    ]
}

fn check_batches(spread: &Spread, more: &str) {
    let (mut client, mut direct) = (spread.client(), spread.direct());
    let mut failed = Vec::new();
    for (name, batch) in batches() {
        for block in [&[][..], &["begin"], &["begin", "update accounts set note = 'first' where id = 9"]] {
            if name.ends_with("one of all shards") && block.len() == 2 {
                // The engine does not see what the transaction wrote.
                continue;
            }
            let end = if block.len() == 2 { "rollback" } else { "commit" };
            let mut both = |messages: &[Vec<u8>], what: &str| {
                let (told, expected) = (send(&mut client, messages), send(&mut direct, messages));
                let is_sorted = what.contains("write over all that returns");
                let of = |told: &Told| if is_sorted { told.answer.clone().sorted() } else { told.answer.clone() };
                // A shard before the last one has failed: the client hears no end of the Bind.
                let order = |told: &Told| {
                    if what.starts_with("spread") { told.order.replace(['1', '2', 'n', 'T'], "") } else { told.order.clone() }
                };
                if (order(&told), of(&told), &told.errors, told.status)
                    != (order(&expected), of(&expected), &expected.errors, expected.status)
                {
                    failed.push(format!("{more} {block:?} {what}:\n  {told:?}\n  {expected:?}"));
                }
            };
            block.iter().for_each(|text| both(&[wire::query(text)], name));
            both(&[batch.concat(), wire::sync()], name);
            if !block.is_empty() {
                both(&[wire::query(end)], name);
            }
            both(&[statement("select 1", &[]), wire::sync()], "it goes on");
            ["s", "r"].iter().for_each(|name| both(&[wire::close(b'S', name), wire::sync()], "close"));
            wait_until("all parts to end", || is_over(spread));
            if rows_of_shards(spread) != rows([spread.whole()].into_iter()) {
                failed.push(format!("{more} {block:?} {name}: rows differ"));
            }
            for text in [
                "delete from accounts where id > 100 or id < 11",
                "insert into accounts values (1,100,'n'),(2,100,'n'),(3,100,'n'),(4,100,'n'),(5,100,'n'),(6,100,'n'),(7,100,'n'),(8,100,'n'),(9,100,'n'),(10,100,'n')",
                "delete from countries where id > 10",
                "update countries set name = 'three' where id = 3",
                "delete from plain",
                "delete from logs",
            ] {
                client.run(text);
                direct.run(text);
            }
            check_rows(spread, name);
        }
    }
    assert!(failed.is_empty(), "{} differ:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_batch_is_answered_as_by_one_server() {
    check_batches(&ground(""), "");
}

#[test]
fn a_batch_is_answered_over_one_connection_to_each_shard() {
    let more = "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\nstatement_statistics_max = 100\n";
    check_batches(&ground(more), more);
}

#[test]
fn a_batch_is_answered_with_replay_and_reset() {
    let more = "cross_shard_reads = latest\ntransaction_replay = on\nreset_query_list = 'ABORT; DISCARD ALL'\nlog_statement = on\npool_size = 3\n";
    check_batches(&ground(more), more);
}

/// A key of a shard that no row has.
fn free_ids(spread: &Spread) -> [String; SHARDS] {
    let mut client = spread.client();
    let mut shard_of =
        |id: &usize| client.rows(&format!("show route for 'select 1 from accounts where id = {id}'"))[0][1].clone();
    let ids: Vec<(String, usize)> = (1000..1100).map(|id| (shard_of(&id), id)).collect();
    std::array::from_fn(|shard| ids.iter().find(|(of, _)| *of == shard.to_string()).expect("each shard has keys").1.to_string())
}

fn insert(id: &str) -> Vec<u8> {
    statement(INSERT, &[id, "7", "x"])
}

fn count(spread: &Spread) -> u32 {
    let count =
        |shard| spread.server(shard).value("select count(*) from accounts where id > 100").unwrap().parse::<u32>().unwrap();
    (0..SHARDS).map(count).sum()
}

/// Messages that cannot be a part of such a transaction.
#[test]
fn what_is_refused_leaves_nothing() {
    let spread = ground("");
    let ids = free_ids(&spread);
    let both = |behind: Vec<u8>| [insert(&ids[2]), insert(&ids[1]), behind, insert(&ids[0])];
    let named = |id: &str| [wire::parse("", INSERT), wire::bind("p", "", &[id, "7", "x"]), wire::execute("p", 0)].concat();
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("begin", both(statement("begin", &[])).into()),
        ("commit", both(statement("commit", &[])).into()),
        ("rollback", both(statement("rollback", &[])).into()),
        ("savepoint", both(statement("savepoint s", &[])).into()),
        ("set", both(statement("set work_mem = '1MB'", &[])).into()),
        ("set local", vec![insert(&ids[2]), statement("set local work_mem = '1MB'", &[]), insert(&ids[0])]),
        ("set on one shard", vec![insert(&ids[2]), statement("set work_mem = '1MB'", &[]), insert(&ids[2])]),
        ("temporary table", both(statement("create temp table t (id int)", &[])).into()),
        ("temporary table before", vec![statement("create temp table t (id int)", &[]), insert(&ids[0]), insert(&ids[1])]),
        ("definition", both(statement("alter table accounts add column more int", &[])).into()),
        ("engine", both(statement("select count(*) from accounts", &[])).into()),
        ("time", vec![insert(&ids[2]), statement("insert into accounts values ($1, 1, now()::text)", &[&ids[0]])]),
        ("named portal", vec![insert(&ids[2]), named(&ids[1]), insert(&ids[0])]),
        ("named portal before", vec![named(&ids[1]), insert(&ids[0])]),
        ("listen", both(statement("listen news", &[])).into()),
    ];
    for (name, messages) in cases {
        let mut client = spread.client();
        client.send(&[messages.concat(), wire::sync()].concat());
        let answer = told(&client.until_ready());
        assert_eq!((answer.errors, answer.status), (vec!["0A000".to_owned()], b'I'), "{name}");
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(count(&spread), 0, "{name}");
        assert_eq!(client.value("select 1"), "1");
    }
    // A Query ends the messages as a Sync does.
    let mut client = spread.client();
    client.send(&[insert(&ids[2]), insert(&ids[1]), wire::query("select 1"), insert(&ids[0]), wire::sync()].concat());
    let answer = told(&client.until_ready());
    assert_eq!((answer.errors, answer.status), (vec!["0A000".to_owned()], b'I'));
    assert_eq!(told(&client.until_ready()).errors, Vec::<String>::new());
    wait_until("all parts to end", || is_over(&spread));
    assert_eq!(count(&spread), 1, "the statement behind the Query is one of its own");
}

#[test]
fn answers_come_at_each_flush_and_many_batches_may_wait() {
    let spread = ground("pool_size = 1\n");
    let ids = free_ids(&spread);
    let mut client = spread.client();
    for shard in [2, 0, 1] {
        client.send(&[insert(&ids[shard]), wire::flush()].concat());
        let tags: Vec<u8> = (0..4).map(|_| client.read().tag).collect();
        assert_eq!(tags, *b"12nC");
        assert_eq!(count(&spread), 0, "nothing is committed before the Sync");
    }
    client.send(&wire::sync());
    assert_eq!(told(&client.until_ready()).order, "Z");
    assert_eq!(count(&spread), 3);
    // Without a wait between: a batch, one that fails, and another one.
    let delete = |shard: usize| statement("delete from accounts where id = $1", &[&ids[shard]]);
    let [first, fails, last] = [
        [delete(2), delete(1), wire::sync()],
        [delete(0), insert("5"), wire::sync()],
        [insert(&ids[1]), insert(&ids[2]), wire::sync()],
    ];
    client.send(&[first.concat(), fails.concat(), last.concat(), first.concat(), wire::query("select 7")].concat());
    for errors in [&[][..], &["23505"], &[], &[], &[]] {
        let answer = told(&client.until_ready());
        assert_eq!((answer.errors, answer.status), (errors.iter().map(|code| (*code).to_owned()).collect(), b'I'));
    }
    assert_eq!(count(&spread), 1);
    wait_until("all parts to end", || is_over(&spread));
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_nothing() {
    let spread = ground("pool_size = 1\n");
    let ids = free_ids(&spread);
    let rows = ids.iter().map(|id| format!("({id}, 1, 'r')")).collect::<Vec<_>>().join(", ");
    for messages in [
        vec![insert(&ids[2]), insert(&ids[1]), wire::flush()],
        vec![insert(&ids[2]), insert(&ids[1]), insert(&ids[0]), wire::terminate()],
        vec![statement(&format!("insert into accounts values {rows}"), &[]), wire::flush()],
        vec![insert(&ids[0]), wire::terminate()],
    ] {
        let mut client = spread.client();
        client.send(&messages.concat());
        if messages.last() == Some(&wire::flush()) {
            while client.read().tag != b'C' {}
        }
        drop(client);
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(count(&spread), 0);
    }
    // A client that has ended only its sending gets all answers.
    let mut client = spread.client();
    client.send(&[insert(&ids[2]), insert(&ids[1]), insert(&ids[0]), wire::sync()].concat());
    client.half_close_if_open();
    assert_eq!(tags(&client.until_end()), "12nC12nC12nCZ");
    assert_eq!(count(&spread), 3);
    wait_until("all parts to end", || is_over(&spread));
}

#[test]
fn a_shard_that_is_lost_in_the_middle_leaves_nothing() {
    let spread = ground("");
    let ids = free_ids(&spread);
    // A connection ends on the shard in use, and on one that is parked, before the next statement and before the Sync.
    for (used, lost, then) in
        [(1, 1, insert(&ids[0])), (1, 2, insert(&ids[2])), (1, 1, Vec::new()), (1, 2, Vec::new()), (0, 2, insert(&ids[1]))]
    {
        let mut client = spread.client();
        client.send(&[insert(&ids[2]), insert(&ids[used]), wire::flush()].concat());
        let mut tags = (0..8).map(|_| client.read().tag);
        assert!(tags.all(|tag| b"12nC".contains(&tag)));
        let text = "select count(pg_terminate_backend(pid)) > 0 from pg_stat_activity where state <> 'idle' and pid <> pg_backend_pid() \
            and backend_type = 'client backend'";
        assert_eq!(spread.server(lost).value(text).unwrap(), "t");
        let gone = "select count(*) from pg_stat_activity where state <> 'idle' and pid <> pg_backend_pid() \
            and backend_type = 'client backend'";
        wait_until("the connection to end", || spread.server(lost).value(gone).unwrap() == "0");
        client.send(&[then.clone(), wire::sync()].concat());
        let answer = told(&client.until_ready());
        assert_eq!((answer.errors.len(), answer.status), (1, b'I'), "{used} {lost} {answer:?}");
        assert!(["40001", "57P01", "08006"].contains(&answer.errors[0].as_str()), "{answer:?}");
        wait_until("all parts to end", || is_over(&spread));
        assert_eq!(count(&spread), 0, "{used} {lost}");
        assert_eq!(client.value("select 1"), "1", "the session goes on");
        assert_eq!(send(&mut client, &[insert(&ids[1]), insert(&ids[2]), wire::sync()]).errors, Vec::<String>::new());
        client.run("delete from accounts where id > 100");
        wait_until("all parts to end", || is_over(&spread));
    }
}

#[test]
fn a_batch_behind_messages_that_are_not_answered_yet_waits_for_their_end() {
    let spread = ground("transaction_replay = on\n");
    let ids = free_ids(&spread);
    for before in [
        wire::query("update accounts set balance = balance where id = 3"),
        wire::query("show work_mem"),
        [statement("select 1", &[]), wire::sync()].concat(),
    ] {
        for end in [insert(&ids[1]), statement("select 1", &[])] {
            let mut client = spread.client();
            client.send(&[before.clone(), statement("show work_mem", &[]), insert(&ids[2]), end, wire::sync()].concat());
            assert_eq!(told(&client.until_ready()).errors, Vec::<String>::new());
            let answer = told(&client.until_ready());
            assert_eq!((answer.errors, answer.status), (Vec::new(), b'I'));
            assert_eq!(answer.answer.said[..2], ["SHOW", "INSERT 0 1"]);
            let delete = format!("delete from accounts where id in ({}, {})", ids[1], ids[2]);
            client.run(&delete);
            assert_eq!(count(&spread), 0);
        }
    }
}
