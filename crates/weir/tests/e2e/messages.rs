//! Everything else that passes: notices, function calls, large objects, rows of any size and shape.

use crate::support::raw::{first_value, tags};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// Memory that Weir may need beyond what it had, however large the data.
const GROWTH_MAX_KB: u64 = 8 * 1024;

#[test]
fn notices_reach_the_client_in_their_place() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let messages = client.query("do $$ begin raise notice 'one'; raise warning 'two'; end $$");
    let notices: Vec<_> = messages.iter().filter(|m| m.tag == b'N').map(|m| m.failure().message).collect();
    assert_eq!(notices, ["one", "two"]);
    let messages = client.query("drop table if exists nothing");
    assert_eq!(messages[0].failure().severity, "NOTICE");
    assert_eq!(tags(&messages), "CZ");
}

#[test]
fn functions_are_called_by_number() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let add: u32 = client.value("select 'int4pl'::regproc::oid").parse().unwrap();
    client.send(&wire::function_call(add, &["2", "40"]));
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "VZ");
    assert_eq!(messages[0].body, b"\0\0\0\x0242");
    client.send(&[wire::function_call(1, &[]), wire::function_call(add, &["1", "1"])].concat());
    assert_eq!(client.tags(), "EZ");
    assert_eq!(client.tags(), "VZ");
    client.send(&[wire::function_call(add, &["1", "x"]), wire::query("select 1")].concat());
    assert_eq!(client.tags(), "EZ");
    assert_eq!(client.tags(), "TDCZ");
}

#[test]
fn large_objects_are_written_and_read_as_libpq_does() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let oid = client.value("select lo_create(0)");
    client.run("begin");
    let handle = client.value(&format!("select lo_open({oid}, 131072 | 262144)"));
    // libpq writes and reads by function calls.
    let write: u32 = client.value("select 'lowrite'::regproc::oid").parse().unwrap();
    client.send(&wire::function_call(write, &[&handle, "some bytes"]));
    assert_eq!(client.tags(), "VZ");
    client.run(&format!("select lo_close({handle})"));
    client.run("commit");
    assert_eq!(client.value(&format!("select convert_from(lo_get({oid}), 'UTF8')")), "some bytes");
    client.run(&format!("select lo_unlink({oid})"));
    assert_eq!(client.error(&format!("select lo_get({oid})")).sqlstate, "42704");
}

#[test]
fn a_row_of_100_megabytes_passes_without_being_held() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    client.run("select repeat('x', 1000000)");
    let before = proxy.peak_kb();
    let messages = client.query("select repeat('x', 100000000)");
    assert_eq!(tags(&messages), "TDCZ");
    let row = &messages[1].body;
    assert!(row.len() == 100_000_006 && row[6..].iter().all(|byte| *byte == b'x'));
    check_growth(&proxy, before);
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn a_parameter_and_a_statement_of_50_megabytes_pass_without_being_held() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    assert_eq!(client.extended("select length($1)", &["x"]).unwrap(), "1");
    let before = proxy.peak_kb();
    let value = "y".repeat(50_000_000);
    assert_eq!(client.extended("select length($1)", &[&value]).unwrap(), "50000000");
    assert_eq!(client.value(&format!("select length('{value}')")), "50000000");
    assert_eq!(client.extended(&format!("select length('{value}')"), &[]).unwrap(), "50000000");
    check_growth(&proxy, before);
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn statements_too_long_to_be_looked_at_pass_in_parts_whatever_their_length() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select 1");
    other.run("select 1");
    let before = proxy.peak_kb();
    for megabytes in [1, 5, 20, 30] {
        let bytes = megabytes * 1_000_000;
        let statement = wire::query(&format!("select length('{}')", "z".repeat(bytes)));
        let (head, rest) = statement.split_at(statement.len() / 2);
        client.send(head);
        // Half of it is on the way: the worker is free for others.
        assert_eq!(other.value("select 1"), "1");
        client.send(rest);
        assert_eq!(first_value(&client.until_ready()).unwrap(), bytes.to_string());
        check_growth(&proxy, before);
    }
}

#[test]
fn a_client_that_does_not_read_makes_the_proxy_hold_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = Raw::tcp_with_receive_buffer(proxy.port(), 8192).log_in("postgres", &ground.database, &[]).unwrap();
    client.run("select 1");
    let before = proxy.peak_kb();
    client.send(&wire::query("select repeat('x', 1000) from generate_series(1, 200000)"));
    wait_until_server_waits(&ground);
    check_growth(&proxy, before);
    let messages = client.until_ready();
    assert_eq!(messages.len(), 200_003, "all of it arrives in the end");
    check_growth(&proxy, before);
}

#[test]
fn a_client_that_asks_and_asks_but_does_not_read_makes_the_proxy_hold_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = Raw::tcp_with_receive_buffer(proxy.port(), 8192).log_in("postgres", &ground.database, &[]).unwrap();
    client.run("select 1");
    let before = proxy.peak_kb();
    let count = 3000;
    let sender = client.send_aside(wire::query("select repeat('x', 20000)").repeat(count));
    wait_until_server_waits(&ground);
    check_growth(&proxy, before);
    for _ in 0..count {
        assert_eq!(client.tags(), "TDCZ");
    }
    sender.join().unwrap().unwrap();
    // Also for answers of our own, which come from no server that could be made to wait.
    let count = 20_000;
    let sender = client.send_aside(wire::query("show pool_status").repeat(count));
    for _ in 0..3 {
        assert!(client.tags().ends_with("CZ"));
    }
    check_growth(&proxy, before);
    drop(client);
    // It was cut off; how much it could send does not matter.
    let _ = sender.join().unwrap();
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
}

/// Waits until the server cannot send more: all buffers on the way are full.
fn wait_until_server_waits(ground: &Ground) {
    let text = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'";
    wait_until("the server to wait for its client", || ground.direct().value(text) == "1");
}

#[track_caller]
fn check_growth(proxy: &Proxy, before_kb: u64) {
    // The system counts a thread's pages with some delay: it may have been less.
    let growth = proxy.peak_kb().saturating_sub(before_kb);
    assert!(growth <= GROWTH_MAX_KB, "the proxy grew by {growth} kB, limit is {GROWTH_MAX_KB} kB");
}

#[test]
fn rows_of_every_shape_are_the_same_through_the_proxy() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let many_columns: Vec<String> = (0..1600).map(|n| format!("{n} as column_{n}")).collect();
    let texts = [
        format!("select {}", many_columns.join(", ")),
        "select null, '', 'é', E'\\x01', repeat('ab', 40000)".to_string(),
        "select".to_string(),
        "select from generate_series(1, 1000)".to_string(),
        "select i, repeat('x', i % 3000) from generate_series(1, 20000) i".to_string(),
        "select 1; select 2; select 3 where false".to_string(),
        "begin; create temp table q (a int); insert into q select generate_series(1, 10); drop table q; commit; select 1"
            .to_string(),
    ];
    for text in &texts {
        assert_eq!(client.query(text), direct.query(text), "{}", &text[..text.len().min(60)]);
    }
    // Every size around those of buffers.
    for size in (0..300).chain(4000..4200).chain(8100..8300).chain(16_300..16_500).chain(32_600..32_900) {
        let value = "z".repeat(size);
        assert_eq!(client.extended("select $1::text", &[&value]).unwrap(), value, "{size} bytes");
    }
}

#[test]
fn thousands_of_idle_clients_cost_little_memory() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut first: Vec<Raw> = (0..100).map(|_| ground.client(&proxy)).collect();
    first.iter_mut().for_each(|client| client.run("select 1"));
    let before = proxy.rss_kb();
    let count = 1000;
    let mut clients: Vec<Raw> = (0..count).map(|_| ground.client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run("select 1"));
    let each = (proxy.rss_kb().saturating_sub(before)) * 1024 / count;
    // The aim is 4 to 8 kB with the release build; this bound only catches a buffer that stays with each client.
    assert!(each <= 16 * 1024, "{each} bytes for each idle client");
    clients.iter_mut().for_each(|client| assert_eq!(client.value("select 2"), "2"));
}
