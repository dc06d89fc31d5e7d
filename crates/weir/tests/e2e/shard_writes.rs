//! Statements that write rows of several shards: each shard carries them out, and all of it is committed or nothing.

use crate::support::ground::wait_until;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask, configs};
use crate::support::{Raw, wire};

const TABLES: &str = "create table accounts (id int primary key, balance int not null check (balance >= 0), note text);
    create table countries (id int primary key, name text);
    create table plain (id int primary key, note text)";

const ACCOUNTS: usize = 40;

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(TABLES);
    spread.whole().query("insert into countries select i, 'country ' || i from generate_series(1, 10) i").unwrap();
    spread.whole().query(&rows_of_accounts()).unwrap();
    spread.fill_first(&["countries"]);
    spread.reference(&["countries"]);
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

fn rows_of_accounts() -> String {
    format!("insert into accounts select i, 100, 'note ' || i % 7 from generate_series(1, {ACCOUNTS}) i")
}

const ROWS: &str = "select coalesce(string_agg(accounts::text, ' ' order by id), '') from accounts";

/// All rows of all shards, in order.
fn rows(spread: &Spread) -> Vec<String> {
    let of_shard = |shard: usize| {
        let rows = spread.server(shard).value(ROWS).unwrap();
        rows.split(") (").map(|row| row.trim_matches(['(', ')']).to_owned()).filter(|row| !row.is_empty()).collect::<Vec<_>>()
    };
    let mut rows: Vec<String> = (0..SHARDS).flat_map(of_shard).collect();
    rows.sort();
    rows
}

fn rows_of_whole(spread: &Spread) -> Vec<String> {
    let rows = spread.whole().value(ROWS).unwrap();
    let mut rows: Vec<String> =
        rows.split(") (").map(|row| row.trim_matches(['(', ')']).to_owned()).filter(|row| !row.is_empty()).collect();
    rows.sort();
    rows
}

fn prepared(spread: &Spread) -> usize {
    let count = |shard| spread.server(shard).value("select count(*) from pg_prepared_xacts").unwrap().parse::<usize>().unwrap();
    (0..SHARDS).map(count).sum()
}

fn is_over(spread: &Spread) -> bool {
    let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0") && prepared(spread) == 0
}

/// Tag, or SQLSTATE.
fn said(answer: &Answer) -> String {
    answer.failure.clone().unwrap_or_else(|| answer.said.join(","))
}

const STATEMENTS: [&str; 14] = [
    "update accounts set balance = balance + 1",
    "update accounts set balance = balance + 1 where note = 'note 3' or id in (1, 2, 3, 4, 5)",
    "update accounts set note = 'changed' where id between 10 and 30",
    "update accounts set note = 'none' where id < 0",
    "update accounts set balance = -1 where note = 'note 5'",
    "update accounts set balance = 1 / (balance - balance)",
    "update accounts a set note = c.name from countries c where c.id = a.id % 10 + 1 and a.balance > 50",
    "delete from accounts using countries where countries.id = accounts.balance - 95",
    "update accounts set note = (select name from countries where countries.id = accounts.balance % 10 + 1)",
    "with c as (select id, name from countries) update accounts set note = c.name from c where c.id = accounts.id",
    "update accounts set balance = v.by from (values (3, 7), (4, 9)) v (old, by) where v.old = accounts.id % 5",
    "delete from accounts where note like '%1%'",
    "update accounts set balance = balance * 2 where exists (select 1 from countries where countries.id = accounts.id)",
    "delete from accounts",
];

/// They read rows of several shards beside those that they change.
const READING: [&str; 9] = [
    "update accounts set balance = balance + 3 where id in (select b.id from accounts b join countries c on c.id = b.id where b.note <> 'note 4')",
    "delete from accounts where (note, id) in (select note, id from accounts where balance % 5 = 1) and id > any (select id from countries)",
    "update accounts a set note = b.note || '!' from accounts b where b.id = a.id and b.balance > 50",
    "update accounts a set note = c.name from accounts b join countries c on c.id = b.id where (a.id, 100) = (b.id, b.balance)",
    "update accounts a set balance = (select sum(b.balance) + count(*) from accounts b where b.id = a.id) where a.id % 3 = 0",
    "delete from accounts a where not exists (select from accounts b where b.id = a.id and b.note <> 'note 2')",
    "insert into accounts select * from accounts on conflict (id) do update set balance = accounts.balance + excluded.balance",
    "insert into accounts (note, id, balance) select name, a.id, 7 from accounts a, countries c where c.id = a.id",
    "insert into accounts select id, balance - 1, note from accounts where id > 100 returning id",
];

#[test]
fn each_shard_carries_out_what_one_server_would() {
    for more in configs(&[
        "",
        "commit_outcome = on\ntransaction_replay = on\n",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\nstatement_statistics_max = 100\n",
        "causal_reads = global\nlog_statement = on\nreset_query_list = 'ABORT; DISCARD ALL'\n",
    ]) {
        let spread = ground(more);
        for how in [How::Simple, How::Extended] {
            for is_block in [false, true] {
                answers_as_one_server(&spread, &STATEMENTS, (how, is_block));
            }
        }
    }
}

#[test]
fn each_shard_reads_the_rows_of_equal_keys_where_no_moment_is_promised() {
    for more in configs(&["", "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\n"]) {
        let spread = ground(&format!("cross_shard_reads = latest\n{more}"));
        for how in [How::Simple, How::Extended] {
            for is_block in [false, true] {
                answers_as_one_server(&spread, &READING, (how, is_block));
            }
        }
    }
}

#[test]
fn a_table_that_is_spread_once_the_engine_is_ready_gets_rows_of_a_query_as_soon_as_it_is_known() {
    let spread = ground("cross_shard_reads = latest\n");
    spread.define("create table lines (account int, number int, worth int)");
    let mut early = spread.client();
    let text = "insert into lines select id, 1, balance from accounts";
    let failure = early.error(text);
    assert_eq!(failure.sqlstate, "0A000");
    assert!(failure.detail.contains("knows on shard 0 only"), "{failure:?}");
    spread.shard("lines", "account", "--with public.accounts");
    spread.wait_known("lines");
    for client in [&mut early, &mut spread.client()] {
        assert_eq!(said(&ask(client, How::Simple, text, &[])), format!("INSERT 0 {ACCOUNTS}"));
    }
    spread.make_ready("select count(*) from lines");
    assert_eq!(said(&ask(&mut early, How::Simple, text, &[])), format!("INSERT 0 {ACCOUNTS}"));
    let sum = "select count(*), sum(worth) from lines join accounts on account = id";
    assert_eq!(early.rows(sum), [[(3 * ACCOUNTS).to_string(), (300 * ACCOUNTS).to_string()]]);
}

fn answers_as_one_server(spread: &Spread, texts: &[&str], (how, is_block): (How, bool)) {
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for client in [&mut client, &mut direct] {
        client.run("delete from accounts");
    }
    spread.whole().query(&rows_of_accounts()).unwrap();
    spread.fill(&["accounts"]);
    for text in texts {
        let both = |client: &mut Raw, direct: &mut Raw, text: &str| {
            let (told, expected) = (ask(client, how, text, &[]), ask(direct, how, text, &[]));
            assert_eq!(said(&told), said(&expected), "{how:?} {is_block} {text}");
            assert_eq!(told, expected, "{how:?} {is_block} {text}");
        };
        for end in if is_block { &["rollback", "commit"][..] } else { &[""] } {
            if is_block {
                both(&mut client, &mut direct, "begin");
                both(&mut client, &mut direct, "update accounts set note = 'first' where id = 2");
            }
            both(&mut client, &mut direct, text);
            if is_block {
                both(&mut client, &mut direct, "update accounts set note = note || '.' where id = 3");
                both(&mut client, &mut direct, "update accounts set note = note || '.' where balance > 3");
                both(&mut client, &mut direct, end);
            }
            wait_until("all parts to end", || is_over(spread));
            assert_eq!(rows(spread), rows_of_whole(spread), "{how:?} {is_block} {end} {text}");
        }
    }
}

const INSERTS: [&str; 9] = [
    "insert into accounts values (101, 1, 'a'), (102, 2, 'b,('), (103, 3, null), (104, 1 + 1, 'it''s ('), (105, 5, '')",
    "INSERT INTO public.accounts (note, id, balance) VALUES ('x', 201, abs(-7)), ('y', 202, length(')')), ('z', '203', 4);",
    "insert into accounts (id, balance) values (-5, 1), (-6, 2), (-7, 3), (-8, 4)",
    "insert into accounts as \"values\" (id, balance, note) values (301, 1, 'values (1, 2)'), (302, 1, default), (303, 2, 'x')",
    "insert into accounts values (401, 1, 'x'), (402, 1, 'y'), (403, 1, 'z'), (1, 1, 'again')",
    "insert into accounts values (501, 1, 'x'), (502, -1, 'y'), (503, 1, 'z')",
    "insert into accounts values (601, 1, 'x'), (602, 1 / 0, 'y'), (603, 1, 'z')",
    "insert into accounts values (701, 1, 'x'), (702, 1, 'y'), (703, 1)",
    "insert into accounts values (801, 1, 'x'), (802, 1, 'y'), (null, 1, 'z')",
];

#[test]
fn rows_of_an_insert_go_each_to_its_shard() {
    for more in
        ["", "io_method = epoll\nworker_threads = 1\npool_size = 1\ncommit_outcome = on\n", "cross_shard_reads = latest\n"]
    {
        let spread = ground(more);
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for text in INSERTS {
            for begin in [&[][..], &["begin", "update accounts set note = 'first' where id = 2"]] {
                let mut both = |text: &str| {
                    let (told, expected) = (ask(&mut client, How::Simple, text, &[]), ask(&mut direct, How::Simple, text, &[]));
                    assert_eq!(said(&told), said(&expected), "{more} {text}");
                };
                begin.iter().for_each(|text| both(text));
                both(text);
                if !begin.is_empty() {
                    both("rollback");
                }
                wait_until("all parts to end", || is_over(&spread));
                assert_eq!(rows(&spread), rows_of_whole(&spread), "{more} {text}");
                if begin.is_empty() {
                    both("delete from accounts where id > 100 or id < 0");
                }
            }
        }
    }
}

#[test]
fn rows_of_an_insert_that_cannot_be_told_apart_stay_together() {
    let spread = ground("");
    let mut client = spread.client();
    for (text, why) in [
        ("insert into accounts values (901, 1, 'x'), /* and */ (902, 1, 'y'), (903, 1, 'z')", "comments"),
        ("insert into accounts values (901, 1, E'x'), (902, 1, 'y'), (903, 1, 'z')", "prefixes"),
        ("insert into accounts values (901, 1, now()::text), (902, 1, 'y'), (903, 1, 'z')", "time of the transaction"),
        (
            "insert into accounts values (901, 1, (select name from countries where id = 1)), (902, 1, 'y'), (903, 1, 'z')",
            "shard keys",
        ),
    ] {
        let failure = client.error(text);
        assert!(failure.sqlstate == "0A000" && failure.message.contains(why), "{text}: {failure:?}");
    }
    let text = "insert into accounts values (901, 1, 'x'), (902, 1, 'y'), (903, 1, 'z'), (904, 1, 'z'), (905, 1, 'z')";
    let route = client.rows(&format!("show route for '{}'", text.replace('\'', "''")));
    assert_eq!(route[0][..2], ["shards 0,1,2".to_owned(), "0,1,2".to_owned()].map(|of| of));
    assert_eq!(rows(&spread), rows_of_whole(&spread));
}

#[test]
fn drivers_send_such_statements_in_several_ways() {
    let spread = ground("");
    let mut client = spread.client();
    let tag = |client: &mut Raw, messages: &[Vec<u8>]| {
        client.send(&messages.concat());
        let answer = client.until_ready();
        let tags: String = answer.iter().map(|message| char::from(message.tag)).collect();
        (tags, said(&Answer::of(&answer)))
    };
    let text = "update accounts set balance = balance + $1 where balance < $2";
    let ways: [(&[Vec<u8>], &str); 6] = [
        // As pgx, tokio-postgres and PQprepare do.
        (&[wire::parse("s", text), wire::describe(b'S', "s"), wire::sync()], "1tnZ"),
        (&[wire::bind("", "s", &["1", "1000"]), wire::execute("", 0), wire::sync()], "2CZ"),
        // As sqlx does.
        (&[wire::bind("", "s", &["1", "1000"]), wire::execute("", 0), wire::close(b'P', ""), wire::sync()], "2C3Z"),
        // As JDBC does.
        (
            &[
                wire::parse("", text),
                wire::bind("", "", &["1", "1000"]),
                wire::describe(b'P', ""),
                wire::execute("", 1),
                wire::sync(),
            ],
            "12nCZ",
        ),
        (
            &[
                wire::close(b'S', "other"),
                wire::parse("t", text),
                wire::bind("", "t", &["1", "1000"]),
                wire::execute("", 0),
                wire::sync(),
            ],
            "312CZ",
        ),
        (&[wire::bind("", "t", &["1", "1000"]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()], "2nCZ"),
    ];
    let all = format!("UPDATE {ACCOUNTS}");
    let mut runs = 0;
    for block in [false, true] {
        if block {
            client.run("begin");
            client.send(&[wire::close(b'S', "s"), wire::close(b'S', "t"), wire::sync()].concat());
            client.until_ready();
        }
        for (messages, tags) in &ways {
            let (seen, tag) = tag(&mut client, messages);
            assert_eq!(seen, *tags, "{block} {tag}");
            if tags.contains('C') {
                runs += 1;
                assert_eq!(tag, all, "{block} {tags}");
            }
        }
    }
    client.run("commit");
    assert_eq!(rows(&spread).iter().filter(|row| row.contains(&format!(",{},", 100 + runs))).count(), ACCOUNTS);
    // Several queries one behind the other, without waiting.
    let queries =
        ["update accounts set balance = 1", "update accounts set balance = balance + 1", "select count(*) from countries"];
    client.send(&queries.map(wire::query).concat());
    let answers = queries.map(|_| said(&Answer::of(&client.until_ready())));
    assert_eq!(answers, [all.clone(), all, "SELECT 1".to_owned()]);
    assert_eq!(rows(&spread).iter().filter(|row| row.contains(",2,")).count(), ACCOUNTS);
}

fn balances(spread: &Spread) -> Vec<String> {
    rows(spread).iter().filter_map(|row| Some(row.split(',').nth(1)?.to_owned())).collect()
}

#[test]
fn statements_that_the_shards_cannot_carry_out_together_are_refused() {
    let spread = ground("");
    let before = rows(&spread);
    let refused = |text: &str, why: &str| {
        let mut client = spread.client();
        let failure = client.error(text);
        let told = format!("{} {} {}", failure.message, failure.detail, failure.hint);
        assert_eq!(failure.sqlstate, "0A000", "{text}: {told}");
        assert!(told.contains(why), "{text}: {told}");
        client.run("begin");
        client.run("update accounts set note = 'own' where id = 1");
        assert_eq!(client.error(text).sqlstate, "0A000", "{text}");
        assert_eq!(client.error("select 1").sqlstate, "25P02", "{text}");
        client.run("rollback");
    };
    for (text, why) in [
        ("update accounts set balance = 1 returning now()", "time of the transaction"),
        ("update accounts set balance = 1 returning ctid", "ctid"),
        ("update accounts set id = id + 1", "sets the shard key"),
        ("update accounts set note = p.note from plain p where p.id = accounts.balance", "a table of shard 0 only"),
        ("update accounts set balance = (select max(b.balance) from accounts b)", "some may lie on another shard"),
        ("delete from accounts where id in (select id from accounts limit 3)", "some may lie on another shard"),
        ("delete from accounts where ctid in (select ctid from accounts limit 3)", "ctid"),
        ("delete from accounts where balance in (select id from countries limit 1)", "groups, sorts, limits"),
        ("update accounts set note = now()::text", "time of the transaction"),
        ("update accounts set note = current_date::text", "time of the transaction"),
        ("update accounts set note = 'x' where balance < extract(year from timestamptz 'today')", "time of the transaction"),
        ("update accounts set note = c.name from countries c where random() < 0.5", "would be called on each shard"),
        ("update accounts set note = nextval('accounts_seq')::text", "may answer otherwise on each shard"),
        ("explain update accounts set balance = 1", "EXPLAIN is about one server"),
        ("with d as (delete from accounts where balance < 3) update accounts set balance = 4", "writes to several tables"),
        ("update accounts set note = set_config('work_mem', '1MB', false)", ""),
    ] {
        refused(text, why);
    }
    READING.iter().for_each(|text| refused(text, "cross_shard_reads = snapshot promises at one moment"));
    // By the state of the session.
    let text = "update accounts set balance = balance + 1";
    for (earlier, why) in [
        (&["begin isolation level repeatable read"][..], "READ COMMITTED"),
        (&["begin", "declare c cursor for select 1"], "READ COMMITTED"),
        (&["set default_transaction_isolation = serializable"], "READ COMMITTED"),
        (&["begin", "lock table plain"], "READ COMMITTED"),
        (&["listen a"], "listens"),
        (&["create temp table t (a int)"], ""),
        (&["set weir.plan = one_shard"], "weir.plan"),
    ] {
        let mut client = spread.client();
        earlier.iter().for_each(|text| client.run(text));
        let failure = client.error(text);
        assert_eq!(failure.sqlstate, "0A000", "{earlier:?}: {failure:?}");
        assert!(failure.message.contains(why), "{earlier:?}: {failure:?}");
    }
    // By the messages of the extended protocol.
    for messages in [
        [wire::bind("p", "s", &[]), wire::execute("p", 0), wire::sync()].concat(),
        [wire::bind("", "s", &[]), wire::flush(), wire::execute("", 0), wire::sync()].concat(),
    ] {
        for is_block in [false, true] {
            let mut client = spread.client();
            if is_block {
                client.run("begin");
            }
            client.send(&[wire::parse("s", text), wire::sync()].concat());
            client.until_ready();
            client.send(&messages);
            assert_eq!(Answer::of(&client.until_ready()).failure.as_deref(), Some("0A000"));
            if is_block {
                client.run("rollback");
            }
            client.run("select 1");
        }
    }
    let mut client = spread.client();
    client.run("begin");
    client.send(&[wire::parse("", text), wire::bind("", "", &["now"]), wire::execute("", 0), wire::sync()].concat());
    assert_ne!(Answer::of(&client.until_ready()).failure, None);
    client.run("rollback");
    wait_until("all parts to end", || is_over(&spread));
    assert_eq!(rows(&spread), before);
}

#[test]
fn statements_over_all_shards_need_the_engines_gate() {
    let spread = Spread::start("");
    spread.define(TABLES);
    spread.whole().query(&rows_of_accounts()).unwrap();
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    let mut client = spread.client();
    wait_until("the proxy to know the table", || client.try_rows("select count(*) from accounts where id = 1").is_ok());
    let failure = client.error("update accounts set balance = 1");
    assert_eq!(failure.sqlstate, "0A000");
    assert!(failure.message.contains("weir shard engine has run"), "{failure:?}");
    assert!(rows(&spread).iter().all(|row| row.contains(",100,")));
    let route = client.rows("show route for 'update accounts set balance = 1'");
    assert!(route[0][0] == "refused" && route[0][3].contains("weir shard engine has run"), "{route:?}");
}

#[test]
fn the_rule_of_such_a_statement_is_shown_and_counted() {
    let spread = ground("");
    let mut client = spread.client();
    let route = client.rows("show route for 'update accounts set balance = 1'");
    assert_eq!(route[0][..3], ["shards 0,1,2", "0,1,2", "all_shards"]);
    let count = |client: &mut Raw| {
        let rows = client.rows("show pool_rules");
        let row = rows.iter().find(|row| row.contains(&"all_shards".to_owned()));
        row.map(|row| format!("{row:?}"))
    };
    let before = count(&mut client);
    client.run("update accounts set balance = 1");
    assert!(before.is_some() && before != count(&mut client), "{before:?}");
}

#[test]
fn an_error_of_one_shard_rolls_back_all_of_them() {
    let spread = ground("");
    let first = |shard: usize| spread.server(shard).value("select min(id) from accounts").unwrap();
    for shard in 0..SHARDS {
        spread.server(shard).query(&format!("update accounts set balance = 0 where id = {}", first(shard))).unwrap();
        let before = rows(&spread);
        for how in [How::Simple, How::Extended] {
            let mut client = spread.client();
            let text = "update accounts set balance = balance - 1";
            assert_eq!(said(&ask(&mut client, how, text, &[])), "23514", "{how:?} {shard}");
            assert_eq!(said(&ask(&mut client, how, "select 1", &[])), "SELECT 1");
            client.run("begin");
            client.run("update accounts set note = 'own' where id = 1");
            assert_eq!(said(&ask(&mut client, how, text, &[])), "23514", "{how:?} {shard}");
            assert_eq!(said(&ask(&mut client, how, text, &[])), "25P02", "{how:?} {shard}");
            assert_eq!(said(&ask(&mut client, how, "commit", &[])), "ROLLBACK");
            wait_until("all parts to end", || is_over(&spread));
            assert_eq!(rows(&spread), before, "{how:?} {shard}");
        }
        spread.server(shard).query("update accounts set balance = 100").unwrap();
    }
    // An error of the commit: where parts are prepared, and on the server that decides.
    for shard in [0, 2] {
        spread.server(shard).query("create function stops() returns trigger language plpgsql as $$ begin raise exception 'too late' using errcode = '22000'; end $$").unwrap();
        spread.server(shard).query("create constraint trigger late after update on accounts deferrable initially deferred for each row execute function stops()").unwrap();
        let before = rows(&spread);
        for how in [How::Simple, How::Extended] {
            let mut client = spread.client();
            let told = ask(&mut client, how, "update accounts set balance = 7", &[]);
            assert_eq!((said(&told), told.said.len()), ("22000".to_owned(), 0), "{how:?} {shard}");
            client.run("select 1");
            wait_until("all parts to end", || is_over(&spread));
            assert_eq!(rows(&spread), before, "{how:?} {shard}");
        }
        spread.server(shard).query("drop trigger late on accounts; drop function stops()").unwrap();
    }
}

#[test]
fn a_server_or_a_client_that_is_lost_leaves_all_or_nothing() {
    let spread = ground("");
    let text = "update accounts set balance = balance + 1";
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    for lost in [1, 2, 0] {
        for (how, is_block) in [(How::Simple, false), (How::Extended, false), (How::Simple, true)] {
            let before = balances(&spread);
            let id = spread.server(lost).value("select max(id) from accounts").unwrap();
            let mut holder = Raw::tcp(spread.server(lost).port()).log_in("postgres", "postgres", &[]).unwrap();
            holder.run("begin");
            holder.run(&format!("update accounts set note = note where id = {id}"));
            let mut client = spread.client();
            if is_block {
                client.run("begin");
            }
            client.send(&match how {
                How::Simple => wire::query(text),
                How::Extended => [wire::unnamed(text, &[]), wire::sync()].concat(),
            });
            wait_until("the statement to wait", || spread.server(lost).value(waits).unwrap() != "0");
            spread.server(lost).kill9().unwrap();
            if lost == 1 {
                // The transaction has begun nowhere else: it begins anew.
                spread.server(lost).start().unwrap();
            }
            let told = said(&Answer::of(&client.until_ready()));
            assert_eq!(told, if lost == 1 { "UPDATE 40" } else { "40001" }, "{lost} {how:?} {is_block}");
            if is_block {
                client.run("rollback");
            }
            drop(holder);
            if lost != 1 {
                spread.server(lost).start().unwrap();
            }
            spread.wait_ready("select count(*) from accounts");
            client.run("select count(*) from plain");
            wait_until("all parts to end", || is_over(&spread));
            let after = balances(&spread);
            let is_changed = lost == 1 && !is_block;
            assert!(
                before.iter().zip(&after).all(|(before, after)| (before != after) == is_changed),
                "{lost} {how:?} {is_block}: {before:?} {after:?}"
            );
        }
    }
    // A client that leaves meanwhile, and one that cancels.
    let id = spread.server(2).value("select max(id) from accounts").unwrap();
    let mut holder = Raw::tcp(spread.server(2).port()).log_in("postgres", "postgres", &[]).unwrap();
    holder.run("begin");
    holder.run(&format!("update accounts set note = note where id = {id}"));
    let mut client = spread.client();
    client.send(&wire::query("set statement_timeout = 200"));
    client.until_ready();
    assert_eq!(client.error(text).sqlstate, "57014");
    client.run("set statement_timeout = 0");
    client.send(&wire::query(text));
    wait_until("the statement to wait", || spread.server(2).value(waits).unwrap() != "0");
    drop(client);
    holder.run("commit");
    wait_until("all parts to end", || is_over(&spread));
    let now = balances(&spread);
    assert!(now.iter().all(|balance| *balance == now[0]), "{now:?}");
    // A server that is down.
    spread.server(2).kill9().unwrap();
    let mut client = spread.client();
    assert_ne!(said(&ask(&mut client, How::Simple, text, &[])), "UPDATE 40");
    client.run("select count(*) from countries");
    spread.server(2).start().unwrap();
    spread.wait_ready("select count(*) from accounts");
    wait_until("all parts to end", || is_over(&spread));
    assert_eq!(balances(&spread), now);
    assert_eq!(said(&ask(&mut client, How::Simple, text, &[])), "UPDATE 40");
}

#[test]
fn statements_that_wait_for_each_other_end() {
    let spread = ground("");
    let id = |shard: usize| spread.server(shard).value("select min(id) from accounts").unwrap();
    let ids = [id(0), id(1)];
    for how in [How::Simple, How::Extended] {
        let (mut one, mut other) = (spread.client(), spread.client());
        one.run("begin");
        one.run(&format!("update accounts set balance = balance + 1 where id = {}", ids[0]));
        let whole = std::thread::spawn(move || said(&ask(&mut other, how, "update accounts set balance = balance + 1", &[])));
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        wait_until("the statement to wait", || spread.server(0).value(waits).unwrap() != "0");
        let second = said(&ask(&mut one, how, &format!("update accounts set balance = balance + 1 where id = {}", ids[1]), &[]));
        let end = said(&ask(&mut one, how, "commit", &[]));
        let outcomes = (whole.join().unwrap(), second, end);
        let whole_lost = ("40P01", "UPDATE 1", "COMMIT");
        let one_lost = ("UPDATE 40", "40P01", "ROLLBACK");
        let told = (&*outcomes.0, &*outcomes.1, &*outcomes.2);
        assert!(told == whole_lost || told == one_lost, "{outcomes:?}");
        wait_until("all parts to end", || is_over(&spread));
    }
}

/// Lost while the server that decides has the commit of Weir's transaction, and all parts are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostAtCommit {
    Decider,
    Participant,
    Weir,
}

#[test]
fn a_commit_of_weirs_own_that_is_broken_off_ends_everywhere_or_nowhere() {
    for more in configs(&["", "commit_outcome = on\n"]) {
        let mut spread = ground(more);
        spread.server(0).query("create function waits() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(77); return null; end $$").unwrap();
        spread.server(0).query("create constraint trigger late after update on accounts deferrable initially deferred for each row execute function waits()").unwrap();
        for lost in [LostAtCommit::Participant, LostAtCommit::Decider, LostAtCommit::Weir] {
            let before = balances(&spread);
            let mut holder = Raw::tcp(spread.server(0).port()).log_in("postgres", "postgres", &[]).unwrap();
            holder.run("select pg_advisory_lock(77)");
            let mut client = spread.client();
            client.send(&wire::query("update accounts set balance = balance + 1"));
            wait_until("all parts to be prepared", || prepared(&spread) == SHARDS - 1);
            let told = match lost {
                LostAtCommit::Participant => {
                    spread.server(2).kill9().unwrap();
                    spread.server(2).start().unwrap();
                    holder.run("select pg_advisory_unlock(77)");
                    said(&Answer::of(&client.until_ready()))
                }
                LostAtCommit::Decider => {
                    spread.server(0).kill9().unwrap();
                    let told = said(&Answer::of(&client.until_ready()));
                    spread.server(0).start().unwrap();
                    told
                }
                LostAtCommit::Weir => {
                    spread.proxy.crash_and_start();
                    holder.run("select pg_advisory_unlock(77)");
                    String::new()
                }
            };
            wait_until("all parts to end", || is_over(&spread));
            let after = balances(&spread);
            let is_changed = after != before;
            assert!(before.iter().zip(&after).all(|(before, after)| (before != after) == is_changed), "{before:?} {after:?}");
            match lost {
                LostAtCommit::Participant => assert!(told == format!("UPDATE {ACCOUNTS}") && is_changed, "{told}"),
                LostAtCommit::Decider => assert!(told == "08007" && !is_changed, "{told}"),
                LostAtCommit::Weir => {}
            }
            spread.wait_ready("select count(*) from accounts");
        }
    }
}

#[test]
fn a_statement_that_takes_too_long_is_cancelled_on_the_shard_that_has_it() {
    let spread = ground("query_timeout = 500ms\n");
    let before = rows(&spread);
    for shard in 0..SHARDS {
        for how in [How::Simple, How::Extended] {
            let mut holder = Raw::tcp(spread.server(shard).port()).log_in("postgres", "postgres", &[]).unwrap();
            holder.run("begin");
            holder.run("update accounts set note = note");
            let mut client = spread.client();
            assert_eq!(said(&ask(&mut client, how, "update accounts set balance = 1", &[])), "57014", "{shard} {how:?}");
            client.run("select 1");
            // While a cancel request is under way, a BEGIN is not deferred, and its transaction stays on one shard.
            let mut client = spread.client();
            client.run("begin");
            assert_eq!(said(&ask(&mut client, how, "delete from accounts", &[])), "57014", "{shard} {how:?}");
            assert_eq!(client.error("select 1").sqlstate, "25P02");
            client.run("rollback");
            holder.run("rollback");
            wait_until("all parts to end", || is_over(&spread));
            assert_eq!(rows(&spread), before, "{shard} {how:?}");
        }
    }
}

/// The fields of the error that is the answer, without those that tell of places in a text and in the server's source.
fn error_fields(client: &mut Raw, text: &str) -> Vec<String> {
    let answer = client.query(text);
    let error = answer.iter().find(|message| message.tag == b'E').unwrap();
    let fields = error.body.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned());
    let mut fields: Vec<String> =
        fields.filter(|field| !field.is_empty() && !field.starts_with(['P', 'F', 'L', 'R', 'q', 'p'])).collect();
    fields.sort();
    fields
}

#[test]
fn an_error_of_any_shard_names_its_constraint_and_row() {
    let spread = ground("");
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for shard in 0..SHARDS {
        let id = spread.server(shard).value("select min(id) from accounts").unwrap();
        for text in [
            format!("update accounts set balance = 100 - 101 * (id = {id})::int"),
            format!("insert into accounts values (1001, 1, 'a'), (1002, 1, 'b'), (1003, 1, 'c'), (1004, 1, 'd'), ({id}, 1, 'e')"),
            format!("delete from accounts where 1 / (id - {id}) = 7"),
        ] {
            let told = [&mut client, &mut direct].map(|client| error_fields(client, &text));
            assert_eq!(told[0], told[1], "{shard}: {text}");
        }
    }
}
