//! The place of a value, by Weir and by a server: random values of each type lie in partitioned tables, and the server says where each of them is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use weir_demo::{Cluster, Options, Server};
use weir_shard::{KeyKind, KeyOrder, KeyValue, PartitionBound, PartitionMap, PartitionPlace};

/// Rows of one table.
const ROWS: u32 = 1_500;
/// Values in the bounds of a table by list, or by range.
const BOUNDS: u32 = 12;

struct KeyType {
    kind: KeyKind,
    name: &'static str,
    oid: u32,
    /// Makes a value of `i`, the number of a row, and of random numbers.
    value: &'static str,
    /// Makes the binary form of `k`.
    send: &'static str,
    order: KeyOrder,
}

const fn of(kind: KeyKind, name: &'static str, oid: u32, value: &'static str, send: &'static str) -> KeyType {
    KeyType { kind, name, oid, value, send, order: KeyOrder::Known }
}

const fn by_collation(kind: KeyKind, name: &'static str, oid: u32, value: &'static str, send: &'static str) -> KeyType {
    KeyType { kind, name, oid, value, send, order: KeyOrder::ByCollation }
}

/// A text of 0 to 40 characters, also of several bytes.
const TEXT: &str = "left(md5(random()::text) || repeat('é’', (i % 4)), (random() * 40)::int)";

const TYPES: &[KeyType] = &[
    of(KeyKind::Bool, "bool", 16, "random() < 0.5", "boolsend(k)"),
    of(KeyKind::Int2, "int2", 21, "(random() * 65535 - 32768)::int2", "int2send(k)"),
    of(KeyKind::Int4, "int4", 23, "case i % 3 when 0 then i when 1 then -i else (random() * 4e9 - 2e9)::int end", "int4send(k)"),
    of(
        KeyKind::Int8,
        "int8",
        20,
        "case i % 3 when 0 then i when 1 then -i else (random() * 1.8e19 - 9e18)::int8 end",
        "int8send(k)",
    ),
    of(KeyKind::Oid, "oid", 26, "(random() * 4294967295)::int8::oid", "oidsend(k)"),
    by_collation(KeyKind::Text, "text", 25, TEXT, "textsend(k)"),
    by_collation(KeyKind::Text, "varchar(60)", 1043, TEXT, "varcharsend(k)"),
    of(KeyKind::Text, "text collate \"C\"", 25, TEXT, "textsend(k)"),
    of(KeyKind::Bpchar, "char(50) collate \"C\"", 1042, TEXT, "bpcharsend(k)"),
    of(KeyKind::Name, "name", 19, TEXT, "namesend(k)"),
    of(
        KeyKind::Bytea,
        "bytea",
        17,
        "substr(decode(md5(random()::text) || md5(i::text), 'hex'), 1, (random() * 32)::int)",
        "byteasend(k)",
    ),
    of(KeyKind::Uuid, "uuid", 2950, "md5(random()::text)::uuid", "uuid_send(k)"),
    of(
        KeyKind::Float4,
        "float4",
        700,
        "case i % 9 when 0 then '-0' when 1 then '0' else random() * i - 7 end::float4",
        "float4send(k)",
    ),
    of(
        KeyKind::Float8,
        "float8",
        701,
        "case i % 9 when 0 then '-0' when 1 then '0' else exp(random() * 200 - 100) * (1 - 2 * (i % 2)) end::float8",
        "float8send(k)",
    ),
    of(
        KeyKind::Numeric,
        "numeric",
        1700,
        "case i % 7 when 0 then i * 10000 when 1 then -i when 2 then 0.000 when 3 then 1e-30 * i
         else round((random() * exp(random() * 60 - 20))::numeric * (1 - 2 * (i % 2)), i % 25) end::numeric",
        "numeric_send(k)",
    ),
    of(
        KeyKind::Date,
        "date",
        1082,
        "case i when 1 then 'infinity' when 2 then '-infinity' else date '0001-01-01' + (random() * 3600000)::int end",
        "date_send(k)",
    ),
    of(KeyKind::Time, "time", 1083, "time '00:00' + make_interval(secs => random() * 86399)", "time_send(k)"),
    of(
        KeyKind::Timestamp,
        "timestamp",
        1114,
        "timestamp '0001-01-01' + make_interval(days => (random() * 3600000)::int, secs => random() * 86400)",
        "timestamp_send(k)",
    ),
    of(
        KeyKind::Timestamptz,
        "timestamptz",
        1184,
        "timestamptz '1950-01-01' + make_interval(days => (random() * 2900000)::int, secs => random() * 86400)",
        "timestamptz_send(k)",
    ),
];

/// Values that only their binary form names: Weir does not read their text.
fn has_words(text: &str) -> bool {
    text.contains("infinity") || text == "NaN"
}

fn value_of_hex(kind: KeyKind, hex: &str) -> KeyValue {
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    kind.of_binary(&bytes).unwrap_or_else(|| panic!("{kind:?} {hex}"))
}

fn script(server: &Server, text: &str) {
    server.query(text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
}

/// Bounds of the table's partitions by their names, in the order of the names.
fn bounds_of(server: &Server, kind: KeyKind) -> (Vec<String>, Vec<PartitionBound>) {
    let rows = server
        .query(
            "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid \
             where i.inhparent = 'keyed'::regclass order by 1",
        )
        .unwrap();
    let bound = |row: &weir_demo::Row| {
        let text = row[1].as_deref().unwrap();
        PartitionBound::of_text(kind, text).unwrap_or_else(|error| panic!("{error}"))
    };
    (rows.iter().map(|row| row[0].clone().unwrap()).collect(), rows.iter().map(bound).collect())
}

/// Fills the table `keyed`, and holds each row's place against the server's.
fn check(server: &Server, of: &KeyType, what: &str) {
    let KeyType { kind, name, value, send, order, .. } = of;
    script(server, &format!("insert into keyed select v from (select {value} v, i from generate_series(1, {ROWS}) i) rows"));
    let (names, bounds) = bounds_of(server, *kind);
    let map = PartitionMap::new(*kind, *order, &bounds).unwrap_or_else(|error| panic!("{name} by {what}: {error}"));
    let rows = server.query(&format!("select tableoid::regclass, k::text, encode({send}, 'hex') from keyed")).unwrap();
    assert!(rows.len() as u32 >= ROWS, "{name} by {what}: {} rows", rows.len());
    let mut used = vec![0_u32; names.len()];
    for row in &rows {
        let at = names.iter().position(|partition| Some(partition) == row[0].as_ref()).unwrap();
        used[at] += 1;
        let Some((text, hex)) = row[1].as_deref().zip(row[2].as_deref()) else {
            assert_eq!(map.place_of(&KeyValue::Null), PartitionPlace::At(at), "NULL of {name} by {what}");
            continue;
        };
        let by_binary = value_of_hex(*kind, hex);
        assert_eq!(map.place_of(&by_binary), PartitionPlace::At(at), "{name} {text} ({hex}) by {what}");
        match kind.of_text(text) {
            Some(by_text) => assert_eq!(map.place_of(&by_text), PartitionPlace::At(at), "{name} {text} by {what}"),
            None => assert!(has_words(text), "{name} {text} is not read"),
        }
    }
    let count = used.iter().filter(|count| **count > 0).count();
    assert!(count > 1 || *kind == KeyKind::Bool, "{name} by {what}: all rows lie in one of {} partitions", names.len());
}

fn by_hash(server: &Server, of: &KeyType) {
    script(server, &format!("drop table if exists keyed; create table keyed (k {}) partition by hash (k)", of.name));
    // Moduli of three sizes.
    for (at, (modulus, remainder)) in [(2, 0), (4, 1), (12, 3), (12, 7), (12, 11)].into_iter().enumerate() {
        script(
            server,
            &format!("create table hash_{at} partition of keyed for values with (modulus {modulus}, remainder {remainder})"),
        );
    }
    script(server, "insert into keyed values (null)");
    check(server, of, "hash");
}

/// Distinct values of the type in their order, as literals.
fn literals(server: &Server, of: &KeyType) -> Vec<String> {
    let KeyType { name, value, .. } = of;
    script(server, &format!("drop table if exists bound; create table bound (k {name})"));
    script(
        server,
        &format!("insert into bound select v from (select {value} v, i from generate_series(1, {}) i) rows", 8 * BOUNDS),
    );
    let rows = server
        .query(&format!(
            "select quote_literal(k) from (select distinct k from bound where k::text !~ 'infinity') b order by k limit {BOUNDS}"
        ))
        .unwrap();
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
}

fn by_list(server: &Server, of: &KeyType) {
    let values = literals(server, of);
    script(server, &format!("drop table if exists keyed; create table keyed (k {}) partition by list (k)", of.name));
    let half = values.len().div_ceil(2);
    let (one, other) = values.split_at(half);
    script(server, &format!("create table list_0 partition of keyed for values in ({}, null)", one.join(", ")));
    script(server, &format!("create table list_1 partition of keyed for values in ({})", other.join(", ")));
    script(server, "create table list_2 partition of keyed default");
    script(server, "insert into keyed values (null)");
    script(server, "insert into keyed select k from bound");
    check(server, of, "list");
}

fn by_range(server: &Server, of: &KeyType) {
    let values = literals(server, of);
    script(server, &format!("drop table if exists keyed; create table keyed (k {}) partition by range (k)", of.name));
    let mut text = String::new();
    let ends = ["minvalue"].into_iter().chain(values.iter().map(String::as_str)).chain(["maxvalue"]);
    let ends: Vec<&str> = ends.collect();
    // Every third range is missing: the default partition has its rows.
    for (at, pair) in ends.windows(2).enumerate().filter(|(at, _)| at % 3 != 1) {
        write!(text, "create table range_{at} partition of keyed for values from ({}) to ({});", pair[0], pair[1]).unwrap();
    }
    script(server, &text);
    script(server, "create table range_default partition of keyed default");
    script(server, "insert into keyed values (null)");
    script(server, "insert into keyed select k from bound");
    check(server, of, "range");
}

#[test]
fn a_server_puts_each_value_where_weir_says() {
    let extra_conf = vec![("timezone".to_owned(), "Asia/Kolkata".to_owned())];
    let cluster = Cluster::start(Options { extra_conf, ..Options::default() }).unwrap();
    let server = cluster.primary();
    for of in TYPES {
        assert_eq!(KeyKind::of_type(of.oid), Some(of.kind));
        by_hash(server, of);
        by_list(server, of);
        if of.kind.has_order(of.order) {
            by_range(server, of);
        }
    }
}
