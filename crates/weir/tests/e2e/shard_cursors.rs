//! Cursors and portals over several shards: their transaction is the engine's.

use crate::shard_blocks::{BEGIN, told};
use crate::shard_transactions::{SUM, ground, ids};
use crate::support::ground::wait_until;
use crate::support::spread::{How, SHARDS, Spread, configs};
use crate::support::{Raw, wire};

const CONFIGS: [&str; 4] = [
    "",
    "cross_shard_reads = latest\nstatement_level_load_balance = off\n",
    "io_method = epoll\nworker_threads = 1\npool_size = 1\n",
    "commit_outcome = on\ntransaction_replay = on\nlog_statement = on\n",
];

const READ: &str = "select id, balance from accounts order by id";

fn no_transaction_is_open(spread: &Spread) {
    wait_until("no transaction to be open", || {
        let text = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
        (0..SHARDS).all(|shard| spread.server(shard).value(text).unwrap() == "0")
    });
}

#[test]
fn a_cursor_over_several_shards_gives_the_rows_of_one_server() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let (mut client, mut whole, mut writer) = (spread.client(), spread.direct(), spread.client());
        for (begin, how) in [("begin", How::Simple), ("begin", How::Extended), (BEGIN, How::Simple), (BEGIN, How::Extended)] {
            for text in [
                begin,
                &format!("declare c cursor for {READ}"),
                "fetch 3 from c",
                "move 2 in c",
                "savepoint a",
                "fetch forward 2 from c",
                "fetch from d",
                "fetch from c",
                "rollback to a",
                "show transaction_isolation",
                "close d",
                "rollback to a",
                "fetch all from c",
                "fetch from c",
                "close c",
                "fetch from c",
                "commit",
                "fetch from c",
                begin,
                &format!("declare c scroll cursor for {READ}"),
                "fetch last from c",
                "fetch prior from c",
                "fetch absolute 2 from c",
                "close all",
                "rollback",
            ] {
                assert_eq!(told(&mut client, how, text), told(&mut whole, how, text), "{more}: {begin}: {text}");
            }
            // The cursor has the snapshot of its declaration, and other reads of a block under READ COMMITTED would need others.
            client.run(begin);
            client.run("declare c cursor for select count(*) from accounts where id >= 1000");
            writer.run("insert into accounts values (1000, 1), (1001, 1), (1002, 1), (1003, 1), (1004, 1)");
            assert_eq!(told(&mut client, how, "fetch from c"), "0", "{more}: {begin}");
            client.run("savepoint a");
            let again = if begin == BEGIN { told(&mut whole, how, SUM) } else { "0A000".to_owned() };
            assert_eq!(told(&mut client, how, SUM), again, "{more}: {begin}");
            client.run("rollback to a");
            for text in ["update accounts set balance = 0", "select note from plain", "declare d cursor with hold for select 1"] {
                assert_eq!(told(&mut client, how, text), "0A000", "{more}: {begin}: {text}");
                client.run("rollback to a");
            }
            client.run("commit");
            writer.run("delete from accounts where id >= 1000");
        }
        // Outside of a block, and behind a write.
        for text in ["declare c cursor for select sum(balance) from accounts", "declare c cursor for select 1 from plain"] {
            for how in [How::Simple, How::Extended] {
                assert_eq!(told(&mut client, how, text), "25P01", "{more}: {text}");
            }
        }
        let hold = format!("declare c cursor with hold for {READ}");
        assert_eq!(told(&mut client, How::Simple, &hold), "0A000");
        client.run("begin");
        client.run(&format!("update accounts set balance = balance where id = {}", ids(&spread)[1]));
        assert_eq!(told(&mut client, How::Simple, &format!("declare c cursor for {READ}")), "0A000");
        client.run("rollback");
        assert_eq!(told(&mut client, How::Simple, SUM), told(&mut whole, How::Simple, SUM));
        no_transaction_is_open(&spread);
    }
}

/// An answer without its description, which has the table's number.
fn rows_of(client: &mut Raw, messages: &[Vec<u8>]) -> String {
    client.send(&messages.concat());
    let answer = format!("{:?}", client.until_ready());
    answer.split("), ").filter(|message| !message.starts_with("T(")).collect::<Vec<_>>().join("), ")
}

#[test]
fn a_portal_over_several_shards_is_read_in_parts() {
    for more in configs(&CONFIGS) {
        let spread = ground(more);
        let (mut client, mut whole) = (spread.client(), spread.direct());
        for begin in ["begin", "begin read only", BEGIN] {
            client.run(begin);
            whole.run(begin);
            // As drivers do: in one message, with a prepared statement, with a limit alone.
            for (prepared, portal) in [("", "C_1"), ("s", "C_2"), ("", "")] {
                let first = [
                    wire::parse(prepared, READ),
                    wire::bind(portal, prepared, &[]),
                    wire::describe(b'P', portal),
                    wire::execute(portal, 3),
                    wire::sync(),
                ];
                let is_second = prepared == "s" || portal.is_empty();
                if is_second && begin != BEGIN {
                    // Another statement of a block under READ COMMITTED would need another snapshot.
                    assert!(rows_of(&mut client, &first).contains("0A000"), "{more}: {begin}");
                    client.run("rollback");
                    client.run(begin);
                }
                assert_eq!(rows_of(&mut client, &first), rows_of(&mut whole, &first), "{more}: {begin}: {portal}");
                for limit in [1, 2, 100] {
                    let next = [wire::execute(portal, limit), wire::sync()];
                    assert_eq!(rows_of(&mut client, &next), rows_of(&mut whole, &next), "{more}: {begin}: {portal}");
                }
                let end = [wire::close(b'P', portal), wire::sync()];
                assert_eq!(rows_of(&mut client, &end), rows_of(&mut whole, &end), "{more}: {begin}");
            }
            client.run("commit");
            whole.run("commit");
            [&mut client, &mut whole].into_iter().for_each(|raw| raw.run("deallocate all"));
        }
        // A read whose messages come one by one is one as any other: the block goes on to a write.
        client.run("begin");
        let messages = [wire::parse("", SUM), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat();
        for byte in messages.chunks(7) {
            client.send(byte);
        }
        assert!(format!("{:?}", client.until_ready()).contains(&told(&mut whole, How::Simple, SUM)));
        assert_eq!(told(&mut client, How::Simple, "update accounts set balance = balance where id > 0"), "");
        client.run("commit");
        no_transaction_is_open(&spread);
    }
}

#[test]
fn a_shard_that_is_lost_fails_the_cursor_and_nothing_else() {
    let spread = ground("");
    let rows: Vec<String> = (10_000..12_000).map(|id| format!("({id}, 1)")).collect();
    spread.client().run(&format!("insert into accounts values {}", rows.join(", ")));
    let sum = spread.client().value(SUM);
    let mut client = spread.client();
    client.run("begin");
    client.run("declare c no scroll cursor for select id from accounts");
    assert_eq!(client.rows("fetch 2 from c").len(), 2);
    spread.server(1).kill9().unwrap();
    assert!(!client.error("fetch all from c").sqlstate.starts_with("0A"));
    assert_eq!(client.error("fetch 1 from c").sqlstate, "25P02");
    client.run("rollback");
    spread.server(1).start().unwrap();
    spread.wait_ready(SUM);
    assert_eq!(client.value(SUM), sum);
    // A client leaves with an open cursor.
    client.run("begin");
    client.run("declare c cursor for select id from accounts");
    client.rows("fetch 2 from c");
    drop(client);
    no_transaction_is_open(&spread);
}
