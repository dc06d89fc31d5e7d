//! Messages that are whole and make no sense: PostgreSQL answers an error and goes on, and so does Weir.

use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wire};

/// A client's replies: tags, and the fields of errors.
fn heard(messages: &[Message]) -> Vec<String> {
    let tell = |message: &Message| match message.tag {
        b'E' => {
            let failure = message.failure();
            format!("E {} {} {}", failure.severity, failure.sqlstate, failure.message)
        }
        tag => (tag as char).to_string(),
    };
    messages.iter().filter(|message| !matches!(message.tag, b'S' | b'N')).map(tell).collect()
}

/// Up to ReadyForQuery, or the end of the connection.
fn until_ready_or_end(client: &mut Raw) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Ok(Some(message)) = client.try_read() {
        messages.push(message);
        if messages.last().is_some_and(|last| last.tag == b'Z') {
            break;
        }
    }
    messages
}

fn bind(rest: &[u8]) -> Vec<u8> {
    wire::message(b'B', &[b"\0s\0", rest].concat())
}

/// Name of a fault in a message, and the message.
type Case = (&'static str, Vec<u8>);

fn of_parse_and_bind() -> Vec<Case> {
    vec![
        ("parse without a name's end", wire::message(b'P', b"abc")),
        ("parse empty", wire::message(b'P', b"")),
        ("parse without a text's end", wire::message(b'P', b"\0select 1")),
        ("parse without a count", wire::message(b'P', b"\0select 1\0")),
        ("parse with half a count", wire::message(b'P', b"\0select 1\0\0")),
        ("parse with too few types", wire::message(b'P', b"\0select 1\0\0\x02\0\0\0\0")),
        ("parse with more behind it", wire::message(b'P', b"\0select 1\0\0\0x")),
        ("parse with a negative count", wire::message(b'P', b"\0select 1\0\xff\xff")),
        ("named parse without a count", wire::message(b'P', b"x\0select 1\0")),
        ("named parse with more behind it", wire::message(b'P', b"x\0select 1\0\0\0x")),
        ("named parse with too few types", wire::message(b'P', b"x\0select 1\0\0\x02\0\0\0\0")),
        ("bind empty", wire::message(b'B', b"")),
        ("bind without a portal's end", wire::message(b'B', b"abc")),
        ("bind without a statement's end", wire::message(b'B', b"\0s")),
        ("bind without counts", bind(b"")),
        ("bind with half a count", bind(b"\0")),
        ("bind with formats that are not there", bind(b"\0\x02\0\x01")),
        ("bind with two formats for one value", bind(b"\0\x02\0\0\0\0\0\x01\0\0\0\x011\0\0")),
        ("bind with a value that is not there", bind(b"\0\0\0\x01")),
        ("bind with a value cut off", bind(b"\0\0\0\x01\0\0\0\x091")),
        ("bind with a negative length", bind(b"\0\0\0\x01\xff\xff\xff\xfe\0\0")),
        ("bind without values", bind(b"\0\0\0\0\0\0")),
        ("bind with too many values", bind(b"\0\0\0\x02\0\0\0\x011\0\0\0\x011\0\0")),
        ("bind without result formats", bind(b"\0\0\0\x01\0\0\0\x011")),
        ("bind with an unknown format", bind(b"\0\x01\0\x07\0\x01\0\0\0\x011\0\0")),
        ("bind with an unknown result format", [bind(b"\0\0\0\x01\0\0\0\x011\0\x01\0\x07"), wire::execute("", 0)].concat()),
        ("bind with too many result formats", bind(b"\0\0\0\x01\0\0\0\x011\0\x02\0\0\0\0")),
        ("bind with more behind it", bind(b"\0\0\0\x01\0\0\0\x011\0\0x")),
    ]
}

fn of_the_others() -> Vec<Case> {
    vec![
        ("describe empty", wire::message(b'D', b"")),
        ("describe of a kind that is none", wire::message(b'D', b"Xs\0")),
        ("describe without a name", wire::message(b'D', b"S")),
        ("describe without a name's end", wire::message(b'D', b"Ss")),
        ("describe with more behind it", wire::message(b'D', b"Ss\0x")),
        ("describe of a portal without a name's end", wire::message(b'D', b"Px")),
        ("close empty", wire::message(b'C', b"")),
        ("close of a kind that is none", wire::message(b'C', b"Xs\0")),
        ("close without a name's end", wire::message(b'C', b"Sx")),
        ("close with more behind it", wire::message(b'C', b"Sx\0x")),
        ("close of a portal with more behind it", wire::message(b'C', b"Px\0x")),
        ("execute empty", wire::message(b'E', b"")),
        ("execute without a name's end", wire::message(b'E', b"x")),
        ("execute without a count", wire::message(b'E', b"\0")),
        ("execute with half a count", wire::message(b'E', b"\0\0\0")),
        ("execute with more behind it", wire::message(b'E', b"\0\0\0\0\0x")),
        ("flush with something in it", wire::message(b'H', b"x")),
        ("sync with something in it", wire::message(b'S', b"x")),
        ("query empty", wire::message(b'Q', b"")),
        ("query without its end", wire::message(b'Q', b"select 1")),
        ("query with more behind it", wire::message(b'Q', b"select 1\0select 2\0")),
        ("function call empty", wire::message(b'F', b"")),
        ("function call cut off", wire::message(b'F', &1598u32.to_be_bytes())),
        ("copy data at rest", wire::message(b'd', b"x")),
        ("copy done with something in it", wire::message(b'c', b"x")),
        ("copy fail without its end", wire::message(b'f', b"x")),
        ("an unknown message", wire::message(b'@', b"")),
        ("terminate with something in it", wire::message(b'X', b"x")),
    ]
}

#[test]
fn what_makes_no_sense_is_an_error_and_the_session_goes_on() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let cases = [of_parse_and_bind(), of_the_others()].concat();
    let mut differs = Vec::new();
    for (place, before) in [("at rest", ""), ("in a transaction", "begin; select 1")] {
        for (name, bytes) in &cases {
            let said = [ground.direct(), ground.client(&proxy)].map(|mut client| {
                client.run(before);
                client.send(&[wire::parse("s", "select $1::int"), wire::sync()].concat());
                client.until_ready();
                client.send(&[bytes.as_slice(), &wire::sync()].concat());
                let mut said = heard(&until_ready_or_end(&mut client));
                // A query is answered by a ReadyForQuery of its own, and so is a Sync.
                if matches!(bytes[0], b'Q' | b'F' | b'S') {
                    said.extend(heard(&until_ready_or_end(&mut client)));
                }
                if client.try_send(&wire::query("select 7")).is_ok() {
                    said.extend(heard(&until_ready_or_end(&mut client)));
                }
                said
            });
            if said[0] != said[1] {
                differs.push(format!("{name} {place}:\n  {:?}\n  {:?}", said[0], said[1]));
            }
        }
    }
    assert!(differs.is_empty(), "{}", differs.join("\n"));
}

#[test]
fn what_a_pipeline_did_before_nonsense_is_undone() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    for bytes in [wire::message(b'D', b"Xs\0"), wire::message(b'P', b""), wire::message(b'H', b"x"), wire::message(b'Q', b"")] {
        let mut client = ground.client(&proxy);
        client.send(&[wire::unnamed("insert into t values (1)", &[]), bytes, wire::sync()].concat());
        until_ready_or_end(&mut client);
        assert_eq!(ground.direct().value("select count(*) from t"), "0");
    }
}

/// Messages that end a pipeline, or stand in one, with wrong contents. A server undoes the messages before.
#[test]
fn nonsense_in_a_pipeline_is_answered_as_by_a_server() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxies = [ground.proxy("backend_weight0 = 0"), ground.primary_proxy("")];
    let (write, fails) = (wire::unnamed("insert into t values (1)", &[]), wire::unnamed("select 1/0", &[]));
    let (read, sync, flush) = (wire::unnamed("select 1", &[]), wire::sync(), wire::flush());
    let named = wire::parse("s", "select 2");
    let begin = wire::unnamed("begin", &[]);
    let kept = [wire::parse("", "select 3"), wire::flush()].concat();
    let again = [wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat();
    let count = wire::query("select count(*) from t");
    let garbled = wire::message(b'S', b"x");
    let (empty, endless) = (wire::message(b'Q', b""), wire::message(b'Q', b"select 1"));
    let two = wire::message(b'Q', b"select 1\0select 2\0");
    for proxy in &proxies {
        for (place, before) in
            [("at rest", ""), ("in a transaction", "begin"), ("after a write", "begin; insert into t values (7)")]
        {
            for (name, messages, rounds) in [
                ("sync", vec![&garbled, &read, &sync], 2),
                ("sync behind a write", vec![&write, &garbled, &read, &sync, &count], 3),
                ("sync behind a read", vec![&read, &garbled, &read, &sync, &count], 3),
                ("sync behind an error", vec![&fails, &read, &garbled, &read, &sync, &count], 3),
                ("sync behind a parse", vec![&named, &garbled, &named, &sync], 2),
                ("sync behind a flush", vec![&write, &flush, &garbled, &count], 2),
                ("sync behind a begin", vec![&begin, &garbled, &count], 2),
                ("several syncs", vec![&garbled, &garbled, &sync, &garbled, &count], 5),
                ("query behind a write", vec![&write, &empty, &sync, &count], 3),
                ("query behind a read", vec![&read, &endless, &read, &sync, &count], 3),
                ("query behind an error", vec![&fails, &two, &sync, &count], 2),
                ("query behind a flush", vec![&write, &flush, &two, &count], 2),
                ("query behind a begin", vec![&begin, &empty, &count], 2),
                ("query keeps the unnamed statement", vec![&kept, &empty, &again, &count], 3),
            ] {
                let messages: Vec<Vec<u8>> = messages.into_iter().cloned().collect();
                check_alike_after(&ground, proxy, &format!("{name}, {place}"), before, &messages, rounds);
            }
        }
    }
    assert_eq!(ground.direct().value("select count(*) from t"), "0");
}

/// Since version 14 a server ends a session that breaks into its own copy.
#[test]
fn a_message_that_is_no_part_of_a_copy_ends_the_session_as_it_does_with_a_server() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    if ground.direct().value("show server_version_num").parse::<u32>().unwrap() < 140_000 {
        return;
    }
    let others = [
        wire::query("select 1"),
        wire::parse("", "select 1"),
        wire::parse("s", "select 1"),
        wire::bind("", "", &[]),
        wire::describe(b'S', ""),
        wire::execute("", 0),
        wire::close(b'S', "s"),
        wire::message(b'F', b""),
        wire::message(b'@', b""),
    ];
    for copy in [wire::query("copy t from stdin"), [wire::unnamed("copy t from stdin", &[]), wire::flush()].concat()] {
        for other in &others {
            let said = [ground.direct(), ground.client(&proxy)].map(|mut client| {
                client.send(&copy);
                while client.read().tag != b'G' {}
                client.send(&[wire::copy_data(b"1\n"), other.clone()].concat());
                heard(&client.until_end())
            });
            assert_eq!(said[0], said[1], "{}", other.escape_ascii());
            // The others name objects that do not exist, which Weir knows before.
            if matches!(other[0], b'Q' | b'P' | b'C' | b'F') {
                let said = [ground.direct(), ground.client(&proxy)].map(|mut client| {
                    client.send(&[copy.clone(), other.clone()].concat());
                    heard(&client.until_end())
                });
                assert_eq!(said[0], said[1], "at once, {}", other.escape_ascii());
            }
        }
    }
}

/// Sends messages to a server and through Weir; the replies must be equal, up to the last ReadyForQuery, which tells if a
/// transaction is open.
fn check_alike(ground: &Ground, proxy: &Proxy, name: &str, messages: &[Vec<u8>], rounds: usize) {
    check_alike_after(ground, proxy, name, "", messages, rounds);
}

/// Like `check_alike`, with a statement that runs before.
fn check_alike_after(ground: &Ground, proxy: &Proxy, name: &str, before: &str, messages: &[Vec<u8>], rounds: usize) {
    let said = [ground.direct(), ground.client(proxy)].map(|mut client| {
        client.run(before);
        client.send(&messages.concat());
        (0..rounds)
            .map(|_| {
                let round = until_ready_or_end(&mut client);
                (heard(&round), round.last().map(|last| last.body.clone()).filter(|body| body.len() == 1))
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(said[0], said[1], "{name}");
}

#[test]
fn nonsense_about_what_weir_answers_itself_is_an_error() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let (parse, bind) = (wire::parse("", "begin"), wire::bind("", "", &[]));
    for (name, bytes) in [
        ("execute with half a count", [bind.clone(), wire::message(b'E', b"\0\0\0")].concat()),
        ("execute with more behind it", [bind.clone(), wire::message(b'E', b"\0\0\0\0\0x")].concat()),
        ("bind with more behind it", wire::message(b'B', b"\0\0\0\0\0\0\0\0x")),
        ("bind without result formats", wire::message(b'B', b"\0\0\0\0\0\0")),
        ("nothing", bind),
    ] {
        check_alike(&ground, &proxy, name, &[parse.clone(), bytes, wire::sync(), wire::query("select 1")], 2);
    }
}

#[test]
fn a_flush_within_a_copy_may_hold_what_it_likes() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let (copy, flush) = ("copy t from stdin", wire::message(b'H', b"x"));
    let data = [wire::copy_data(b"1\n"), flush.clone(), wire::copy_data(b"2\n"), wire::copy_done()].concat();
    let failing = [wire::copy_data(b"x\n"), flush.clone(), wire::copy_data(b"2\n"), wire::copy_done()].concat();
    for (name, messages, rounds) in [
        ("simple", vec![wire::query(copy), data.clone(), wire::query("select count(*) from t")], 2),
        ("first of all", vec![wire::query(copy), flush, data.clone(), wire::query("select count(*) from t")], 2),
        ("extended", vec![wire::unnamed(copy, &[]), data, wire::sync(), wire::query("select count(*) from t")], 2),
        ("extended, and it fails", vec![wire::unnamed(copy, &[]), failing, wire::sync(), wire::query("select 7")], 2),
    ] {
        ground.direct().run("truncate t");
        let said = [ground.direct(), ground.client(&proxy)].map(|mut client| {
            client.run("truncate t");
            client.send(&messages.concat());
            (0..rounds).map(|_| heard(&until_ready_or_end(&mut client))).collect::<Vec<_>>()
        });
        assert_eq!(said[0], said[1], "{name}");
    }
}
