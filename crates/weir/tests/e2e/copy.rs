//! COPY in both directions and protocols, right and wrong.

use crate::support::raw::{Message, tags};
use crate::support::{Ground, Raw, wire};
use std::thread;

fn copied(messages: &[Message]) -> Vec<u8> {
    messages.iter().filter(|m| m.tag == b'd').flat_map(|m| m.body.clone()).collect()
}

fn ground() -> Ground {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    ground
}

#[test]
fn copy_in_through_a_simple_query() {
    let ground = ground();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("copy t from stdin"));
    assert_eq!(client.read().tag, b'G');
    client.send(&[wire::copy_data(b"1\n2"), wire::copy_data(b"\n3\n"), wire::copy_data(b""), wire::copy_done()].concat());
    let messages = client.until_ready();
    assert_eq!((tags(&messages).as_str(), messages[0].text().as_str()), ("CZ", "COPY 3"));
    // All sent at once, without waiting for CopyIn.
    client.send(&[wire::query("copy t from stdin"), wire::copy_data(b"4\n"), wire::copy_done()].concat());
    assert_eq!(client.tags(), "GCZ");
    assert_eq!(client.value("begin; select count(*) from t"), "4");
    client.run("commit");
}

#[test]
fn copy_in_through_the_extended_protocol() {
    let ground = ground();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let open = [wire::unnamed("copy t from stdin", &[]), wire::flush()].concat();
    let rest = [wire::copy_data(b"1\n2\n"), wire::copy_done(), wire::sync()].concat();
    for client in [&mut client, &mut direct] {
        client.send(&open);
        assert_eq!(tags(&(0..3).map(|_| client.read()).collect::<Vec<_>>()), "12G");
        client.send(&rest);
        assert_eq!(client.tags(), "CZ");
        // At once; a Sync that comes before CopyDone is ignored by the server, so drivers send it after.
        client
            .send(&[wire::unnamed("copy t from stdin", &[]), wire::copy_data(b"3\n"), wire::copy_done(), wire::sync()].concat());
        assert_eq!(client.tags(), "12GCZ");
        // And with a Sync right behind Execute, as libpq and others do: the server ignores it while it copies.
        client.send(&[wire::unnamed("copy t from stdin", &[]), wire::sync()].concat());
        assert_eq!(tags(&(0..3).map(|_| client.read()).collect::<Vec<_>>()), "12G");
        client.send(&[wire::copy_data(b"4\n"), wire::copy_done(), wire::sync()].concat());
        assert_eq!(client.tags(), "CZ");
        assert_eq!(client.value("begin; select count(*) from t"), "4");
        client.run("commit");
        client.run("truncate t");
    }
}

#[test]
fn copy_out_in_both_protocols() {
    let ground = ground();
    ground.prepare("insert into t select generate_series(1, 10000)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let expected: String = (1..=10000).map(|n| format!("{n}\n")).collect();
    for text in ["copy t to stdout", "copy (select a from t order by a) to stdout", "select 1; copy t to stdout"] {
        let messages = client.query(text);
        assert_eq!(copied(&messages), expected.as_bytes(), "{text}");
    }
    client.send(&[wire::unnamed("copy t to stdout", &[]), wire::unnamed("select 1", &[]), wire::sync()].concat());
    let messages = client.until_ready();
    assert_eq!(copied(&messages), expected.as_bytes());
    assert!(tags(&messages).ends_with("cC12DCZ"));
}

#[test]
fn a_client_that_gives_up_a_copy_leaves_nothing() {
    let ground = ground();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("copy t from stdin"));
    assert_eq!(client.read().tag, b'G');
    client.send(&[wire::copy_data(b"1\n"), wire::copy_fail("no more")].concat());
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "EZ");
    assert_eq!(messages[0].failure().sqlstate, "57014");
    client.send(&[wire::unnamed("copy t from stdin", &[]), wire::copy_data(b"1\n"), wire::copy_fail("x"), wire::sync()].concat());
    assert_eq!(client.tags(), "12GEZ");
    assert_eq!(client.value("select count(*) from t"), "0");
}

#[test]
fn data_sent_after_a_copy_has_failed_is_dropped() {
    let ground = ground();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    let data: Vec<u8> = (0..2000).flat_map(|n| wire::copy_data(format!("{n}\n").repeat(50).as_bytes())).collect();
    let wrong = wire::copy_data(b"not a number\n");
    for round in 0..5 {
        client.send(&wire::query("copy t from stdin"));
        assert_eq!(client.read().tag, b'G');
        client.send(&[wrong.as_slice(), &data, &wire::copy_done()].concat());
        let messages = client.until_ready();
        assert_eq!(tags(&messages), "EZ", "round {round}");
        assert_eq!(messages[0].failure().sqlstate, "22P02");
        assert_eq!(other.value("select 7"), "7", "the connection is clean for the next client");
        assert_eq!(client.value("select 8"), "8");
        // The copy does not even begin, and the data comes all the same.
        client.send(&[wire::query("copy nothing from stdin"), data.clone(), wire::copy_done(), wire::query("select 9")].concat());
        assert_eq!(client.tags(), "EZ");
        assert_eq!(client.tags(), "TDCZ");
        let bytes = [wire::unnamed("copy nothing from stdin", &[]), wire::sync(), data.clone(), wire::copy_done(), wire::sync()];
        client.send(&bytes.concat());
        assert_eq!(client.tags(), "12EZ", "round {round}");
        assert_eq!(client.tags(), "Z", "round {round}");
        client.send(
            &[wire::unnamed("copy t from stdin", &[]), wrong.clone(), data.clone(), wire::copy_done(), wire::sync()].concat(),
        );
        assert_eq!(client.tags(), "12GEZ", "round {round}");
    }
    assert_eq!(client.value("select count(*) from t"), "0");
}

#[test]
fn a_client_killed_in_a_copy_leaves_nothing() {
    let ground = ground();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    for _ in 0..5 {
        let mut client = ground.client(&proxy);
        client.send(&wire::query("copy t from stdin"));
        assert_eq!(client.read().tag, b'G');
        client.send(&wire::copy_data(b"1\n"));
        drop(client);
        let mut client = ground.client(&proxy);
        client.send(&wire::query("copy (select generate_series(1, 1000000)) to stdout"));
        client.read();
        drop(client);
    }
    assert_eq!(ground.client(&proxy).value("select count(*) from t"), "0");
}

#[test]
fn many_copies_at_once_do_not_mix() {
    let ground = ground();
    ground.prepare("create table u (client int, a int)");
    let proxy = ground.primary_proxy("pool_size = 3");
    thread::scope(|scope| {
        for number in 0..8 {
            let (ground, proxy) = (&ground, &proxy);
            scope.spawn(move || copy_in_and_out(&mut ground.client(proxy), number));
        }
    });
    assert_eq!(ground.direct().value("select count(*) from u"), (8 * 20_000).to_string());
}

fn copy_in_and_out(client: &mut Raw, number: u32) {
    client.send(&wire::query("copy u from stdin"));
    assert_eq!(client.read().tag, b'G');
    for part in 0..20 {
        let rows: String = (0..1000).map(|n| format!("{number}\t{}\n", part * 1000 + n)).collect();
        client.send(&wire::copy_data(rows.as_bytes()));
    }
    client.send(&wire::copy_done());
    assert_eq!(client.tags(), "CZ");
    let messages = client.query(&format!("begin; copy (select a from u where client = {number} order by a) to stdout; commit"));
    let expected: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(copied(&messages), expected.as_bytes());
}
