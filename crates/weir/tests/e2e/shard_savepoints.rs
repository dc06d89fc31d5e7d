//! Savepoints of transactions on several shards: they nest, fail and are rolled back to as on one server.

use crate::support::ground::wait_until;
use crate::support::raw::Message;
use crate::support::spread::{Answer, How, SHARDS, Spread, configs};
use crate::support::{Raw, wire};

const ACCOUNTS: &str = "create table accounts (id int primary key, balance int not null check (balance >= 0), note text)";

const ROWS: &str = "select coalesce(string_agg(accounts::text, ' ' order by id), '') from accounts";

fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(ACCOUNTS);
    spread.whole().query("insert into accounts select i, 100 from generate_series(1, 40) i").unwrap();
    spread.shard("accounts", "id", "");
    spread.fill(&["accounts"]);
    spread.make_ready("select count(*) from accounts");
    spread
}

/// An account on each shard.
fn ids(spread: &Spread) -> [String; SHARDS] {
    std::array::from_fn(|shard| spread.server(shard).value("select min(id) from accounts").unwrap())
}

/// Rows of all shards, in order, and those of the server with all rows.
fn rows(spread: &Spread) -> [Vec<String>; 2] {
    let split = |rows: String| rows.split(") (").map(|row| row.trim_matches(['(', ')']).to_owned()).collect::<Vec<_>>();
    let mut sharded: Vec<String> = (0..SHARDS).flat_map(|shard| split(spread.server(shard).value(ROWS).unwrap())).collect();
    let mut whole = split(spread.whole().value(ROWS).unwrap());
    for rows in [&mut sharded, &mut whole] {
        rows.retain(|row| !row.is_empty());
        rows.sort();
    }
    [sharded, whole]
}

fn transactions(spread: &Spread, shard: usize) -> String {
    // Weir itself reads the catalogs in a transaction.
    let text =
        "select count(*) from pg_stat_activity where state like 'idle in transaction%' and application_name <> 'weir_catalog'";
    spread.server(shard).value(text).unwrap()
}

fn is_over(spread: &Spread) -> bool {
    let prepared = |shard: usize| spread.server(shard).value("select count(*) from pg_prepared_xacts").unwrap();
    (0..SHARDS).all(|shard| transactions(spread, shard) == "0" && prepared(shard) == "0")
}

/// The answer that the client hears to a statement: tag or SQLSTATE, rows, and the state of its transaction.
fn heard(messages: &[Message]) -> String {
    let answer = Answer::of(messages);
    let status = messages.iter().filter(|message| message.tag == b'Z').map(|message| message.body[0] as char);
    let rows: Vec<String> = answer.rows.iter().flatten().flatten().cloned().collect();
    let said = answer.said.iter().chain(&answer.failure).chain(&rows).cloned().collect::<Vec<_>>().join(",");
    format!("{said} {}", status.collect::<String>())
}

fn ask(client: &mut Raw, how: How, text: &str) -> String {
    client.send(&how.messages(text, &[]));
    heard(&client.until_ready())
}

/// Texts of a transaction. `#0`, `#1` and `#2` stand for accounts on the shards.
const STORIES: [&str; 24] = [
    "begin; savepoint a; +#1; release a; +#2; commit",
    "begin; savepoint a; +#1; +#2; rollback to a; +#0; commit",
    "begin; +#0; savepoint a; +#1; +#2; +#0; rollback to a; +#1; commit",
    "begin; +#0; savepoint a; -#1; +#0; rollback to a; +#2; commit",
    "begin; +#0; +#1; savepoint a; +#2; -#1; +#2; savepoint b; release a; rollback to b; rollback to a; +#1; +#2; commit",
    "begin; savepoint a; +#0; savepoint b; +#1; savepoint c; +#2; rollback to b; +#2; rollback to a; +#1; commit",
    "begin; savepoint a; +#0; savepoint a; +#1; savepoint a; +#2; rollback to a; +#2; release a; rollback to a; release a; +#1; rollback to a; commit",
    "begin; +#1; savepoint a; +#0; release a; rollback to a; +#1; commit",
    "begin; +#1; savepoint a; +#0; release b; rollback to a; +#2; commit",
    "begin; savepoint \"A b\"; +#2; +#1; savepoint \"\"\"\"; -#0; rollback to savepoint \"\"\"\"; +#0; rollback to a; rollback to \"A b\"; +#0; commit",
    "begin; +#0; +#1; savepoint a; -#1; commit; +#2",
    "begin; +#0; savepoint a; +#1; savepoint b; +#1; release b; +#2; rollback to a; +#1; savepoint b; +#0; rollback; +#1",
    "begin; +#0; +#1; -#1; rollback and chain; +#1; commit; +#0",
    "begin; +#1; +#0; -#0; commit and chain; +#0; rollback; +#2",
    "begin; +#1; +#2; savepoint a; -#0; prepare transaction 'own'; +#1",
    "begin; +#1; +#2; savepoint a; -#0; begin; savepoint b; rollback to a; +#2; commit",
    "savepoint a; release a; rollback to a; +#1",
    "begin; release a; rollback to a; savepoint a; +#1; rollback",
    "begin; savepoint a; select 1/0; savepoint b; +#1; rollback to a; +#1; +#2; commit",
    "begin; set local work_mem = '2MB'; show work_mem; +#1; show work_mem; +#2; show work_mem; +#0; show work_mem; commit; show work_mem",
    "begin; +#0; savepoint a; set local work_mem to 3000; +#1; show work_mem; rollback to a; show work_mem; +#0; show work_mem; +#2; show work_mem; commit; +#1; show work_mem",
    "begin; +#0; savepoint a; set local work_mem = '2MB'; savepoint b; set local lock_timeout = 7000; +#1; release a; +#2; show work_mem; show lock_timeout; rollback to a; rollback",
    "begin; +#0; +#1; savepoint a; set local work_mem = 'much'; rollback to a; set local work_mem = '2MB'; +#0; rollback to a; +#1; show work_mem; +#0; show work_mem; commit",
    "begin; +#0; savepoint a; all; +#1; rollback to a; all; savepoint b; bad; rollback to b; +#2; commit",
];

fn texts_of(story: &str, ids: &[String; SHARDS]) -> Vec<String> {
    let with_ids = |text: &str| (0..SHARDS).fold(text.to_owned(), |text, shard| text.replace(&format!("#{shard}"), &ids[shard]));
    let text_of = |text: &str| match text.split_at(1) {
        ("+", id) => format!("update accounts set balance = balance + 1 where id = {}", with_ids(id)),
        ("-", id) => format!("update accounts set balance = balance - 100000 where id = {}", with_ids(id)),
        _ if text == "all" => "update accounts set note = coalesce(note, '') || 'x'".to_owned(),
        _ if text == "bad" => "update accounts set balance = balance - 101 where balance = 100".to_owned(),
        _ => text.to_owned(),
    };
    story.split("; ").map(text_of).collect()
}

#[test]
fn savepoints_are_as_on_one_server() {
    for more in configs(&[
        "",
        "io_method = epoll\nworker_threads = 1\npool_size = 1\nstatement_statistics_max = 100\n",
        "cross_shard_reads = latest\ncommit_outcome = on\ntransaction_replay = on\n",
    ]) {
        let spread = ground(more);
        let ids = ids(&spread);
        for how in [How::Simple, How::Extended] {
            let (mut client, mut direct) = (spread.client(), spread.direct());
            for story in STORIES {
                for text in texts_of(story, &ids) {
                    let expected = ask(&mut direct, how, &text);
                    assert_eq!(ask(&mut client, how, &text), expected, "{more} {how:?} {story}: {text}");
                }
                wait_until("the transaction to end", || is_over(&spread));
                let [sharded, whole] = rows(&spread);
                assert_eq!(sharded, whole, "{more} {how:?} {story}");
            }
        }
    }
}

#[test]
fn a_savepoint_begins_the_transaction_nowhere() {
    let spread = ground("");
    let ids = ids(&spread);
    for how in [How::Simple, How::Extended] {
        let mut client = spread.client();
        for text in texts_of("begin; savepoint a; savepoint b; release b; +#1", &ids) {
            ask(&mut client, how, &text);
        }
        assert_eq!(std::array::from_fn(|shard| transactions(&spread, shard)), ["0", "1", "0"].map(str::to_owned), "{how:?}");
        assert_eq!(ask(&mut client, how, "commit"), "COMMIT I");
    }
}

#[test]
fn a_rollback_to_a_savepoint_gives_locks_back_on_all_shards() {
    let spread = ground("");
    let ids = ids(&spread);
    let (mut client, mut other) = (spread.client(), spread.client());
    other.run("set lock_timeout = '10s'");
    for text in texts_of("begin; +#0; savepoint a; +#1; +#2; rollback to a", &ids) {
        client.run(&text);
    }
    for text in texts_of("+#1; +#2", &ids) {
        other.run(&text);
    }
    client.run("rollback");
}

#[test]
fn messages_that_do_not_wait_for_answers_keep_their_savepoints() {
    let spread = ground("");
    let ids = ids(&spread);
    // Parts between bars are sent at once; a comma ends no pipeline.
    for story in [
        "begin, savepoint a, +#1, release a, +#1 | savepoint b, +#1, +#1 | +#2 | rollback to b | +#0 | commit",
        "begin | +#0 | savepoint a, -#0, savepoint b | rollback to b | rollback to a | +#1 | rollback to a, +#1, release a | +#2, commit",
        "begin | +#0, savepoint a, +#0 | +#1 | +#2 | -#2, rollback to a, +#2 | rollback to a, +#2, commit",
        "begin | savepoint a, savepoint b, +#2 | +#1 | rollback to b, release b, release a | +#0, savepoint c, rollback to c | commit",
    ] {
        let (mut client, mut direct) = (spread.client(), spread.direct());
        for part in story.split(" | ") {
            let messages: Vec<u8> = texts_of(&part.replace(", ", "; "), &ids)
                .iter()
                .flat_map(|text| wire::unnamed(text, &[]))
                .chain(wire::sync())
                .collect();
            for client in [&mut client, &mut direct] {
                client.send(&messages);
            }
            let expected = heard(&direct.until_ready());
            assert_eq!(heard(&client.until_ready()), expected, "{story}: {part}");
        }
        wait_until("the transaction to end", || is_over(&spread));
        let [sharded, whole] = rows(&spread);
        assert_eq!(sharded, whole, "{story}");
    }
    // Queries one behind the other.
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for story in STORIES {
        let texts = texts_of(story, &ids);
        let messages: Vec<u8> = texts.iter().flat_map(|text| wire::query(text)).collect();
        client.send(&messages);
        direct.send(&messages);
        for text in &texts {
            let expected = heard(&direct.until_ready());
            assert_eq!(heard(&client.until_ready()), expected, "{story}: {text}");
        }
    }
}

#[test]
fn a_transaction_that_lost_a_shard_cannot_be_rolled_back_to_its_savepoint() {
    let spread = ground("");
    let ids = ids(&spread);
    let before = rows(&spread);
    for how in [How::Simple, How::Extended] {
        let mut client = spread.client();
        for text in texts_of("begin; +#0; savepoint a; +#1; +#2", &ids) {
            ask(&mut client, how, &text);
        }
        spread.server(1).kill9().unwrap();
        spread.server(1).start().unwrap();
        assert_eq!(ask(&mut client, how, "rollback to a"), "40001 E", "{how:?}");
        assert_eq!(ask(&mut client, how, "rollback to a"), "3B001 E", "{how:?}");
        assert_eq!(ask(&mut client, how, "commit"), "ROLLBACK I", "{how:?}");
        wait_until("the transaction to end", || is_over(&spread));
        assert_eq!(rows(&spread), before, "{how:?}");
        spread.wait_ready("select count(*) from accounts");
    }
}

#[test]
fn what_is_refused_in_a_transaction_on_several_shards_may_be_rolled_back_to_a_savepoint() {
    let spread = ground("");
    let ids = ids(&spread);
    for how in [How::Simple, How::Extended] {
        for refused in
            ["set work_mem = '1MB'", "lock table accounts", "select sum(balance) from accounts where note < now()::text"]
        {
            let mut client = spread.client();
            for text in texts_of("begin; +#0; savepoint a; +#1", &ids) {
                ask(&mut client, how, &text);
            }
            assert_eq!(ask(&mut client, how, refused), "0A000 E", "{how:?} {refused}");
            assert_eq!(ask(&mut client, how, "savepoint b"), "25P02 E", "{how:?} {refused}");
            assert_eq!(ask(&mut client, how, "rollback to a"), "ROLLBACK T", "{how:?} {refused}");
            for (text, expected) in texts_of("+#2; +#0; rollback", &ids).iter().zip(["UPDATE 1 T", "UPDATE 1 T", "ROLLBACK I"]) {
                assert_eq!(ask(&mut client, how, text), expected, "{how:?} {refused}");
            }
        }
    }
}

#[test]
fn several_statements_in_one_text_do_not_end_a_failed_transaction_on_one_shard_only() {
    let spread = ground("");
    let ids = ids(&spread);
    let before = rows(&spread);
    for text in ["rollback; begin", "rollback to a; select 1", "commit; select 1"] {
        let mut client = spread.client();
        for text in texts_of("begin; +#0; savepoint a; +#1; -#0", &ids) {
            client.query(&text);
        }
        assert_eq!(ask(&mut client, How::Simple, text), "0A000 E", "{text}");
        assert_eq!(ask(&mut client, How::Simple, "commit"), "ROLLBACK I", "{text}");
        wait_until("the transaction to end", || is_over(&spread));
        assert_eq!(rows(&spread), before, "{text}");
    }
}

#[test]
fn a_savepoint_for_each_statement_is_set_by_drivers() {
    let spread = ground("");
    let ids = ids(&spread);
    let (mut client, mut direct) = (spread.client(), spread.direct());
    for client in [&mut client, &mut direct] {
        client.run("begin");
        for round in 0..900 {
            client.send(&wire::unnamed("savepoint autosave", &[]));
            client.send(&How::Extended.messages(&texts_of(&format!("+#{}", round % SHARDS), &ids)[0], &[]));
            assert_eq!(heard(&client.until_ready()), "SAVEPOINT,UPDATE 1 T", "{round}");
        }
        client.run("commit");
    }
    let [sharded, whole] = rows(&spread);
    assert_eq!(sharded, whole);
}
