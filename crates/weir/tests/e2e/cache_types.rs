//! Types whose values run functions of users, or hang on the moment.

use super::cache::{is_hit, warm};
use crate::support::ground::wait_for_catalog;
use crate::support::{Ground, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

const CHECKED: &str = "create table goal (a int);
    create function is_fine(a int) returns boolean language sql as 'insert into public.goal values (a); select true';
    create function seven() returns int language sql as 'insert into public.goal values (7) returning a';
    create domain chk as int check (is_fine(value)); create type pair as (x chk, y int); create domain chk2 as chk;
    create domain by_cast as int check (value::chk > 0); create type span as range (subtype = chk2);
    create type nested as (p pair[]); create domain dd as int default seven();
    create table tarr (a chk[]); create table tpair (p pair); create table tchk2 (a chk2); create table tdd (a dd, b int);
    create table tspan (s span); create table plain (a int, j json); insert into plain values (5, '{\"a\": 5}');
    create table defaulted (a int default (5::chk + 0), b int); create view casting as select a::chk2 as a from plain;";

#[test]
fn checks_of_domains_write_wherever_the_domain_is() {
    let ground = Ground::new();
    ground.prepare(CHECKED);
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    wait_for_catalog(&mut writer, &ground.database);
    let read = "select count(*) from goal";
    for write in [
        "insert into tarr values ('{5}')",
        "copy tarr from program 'echo {5}'",
        "insert into tpair values ('(5,6)')",
        "insert into tchk2 values (5)",
        "insert into tspan values ('[1,5)')",
        "insert into tdd (b) values (5)",
        "insert into defaulted (b) values (5)",
        "select '(5,6)'::pair",
        "select row(5, 6)::pair",
        "select '{5}'::chk[]",
        "select '{5}'::_chk",
        "select 5::chk2",
        "select 5::by_cast",
        "select '[1,5)'::span",
        "select '(\"{\"\"(5,6)\"\"}\")'::nested",
        "select * from json_to_record('{\"a\":5}') as x (a chk)",
        "select * from json_populate_record(null::pair, '{\"x\":5}')",
        "select json_populate_record(t, '{\"a\":[5]}') from (select * from tarr limit 1) t",
        "select * from casting",
    ] {
        let before = direct.rows(read);
        assert!(!is_hit(&proxy, &mut reader, read), "{write}: nothing is kept of the database");
        writer.run(write);
        assert_eq!(reader.rows(read), direct.rows(read), "{write}");
        assert_ne!(before, direct.rows(read), "{write} writes nothing");
    }
    assert!(writer.extended("insert into tarr values ($1)", &["{5}"]).is_ok());
    let number: u32 = direct.value("select 'chk'::regtype::oid").parse().unwrap();
    let typed = [b"\0select $1\0\0\x01".as_slice(), &number.to_be_bytes()].concat();
    for name in [&b""[..], b"named"] {
        let before = reader.rows(read);
        let parse = wire::message(b'P', &[name, &typed[..]].concat());
        let name = std::str::from_utf8(name).unwrap();
        writer.send(&[parse, wire::bind("", name, &["5"]), wire::execute("", 0), wire::sync()].concat());
        writer.until_ready();
        assert_eq!(reader.rows(read), direct.rows(read), "a parameter's type that the client names");
        assert_ne!(before, direct.rows(read), "a parameter writes nothing");
    }
    // Its maker says that it does not write, though defaults still do.
    ground.prepare("alter function is_fine(int) immutable");
    for (write, is_kept) in
        [("select a from plain", true), ("insert into plain values (1)", true), ("insert into tdd (b) values (5)", false)]
    {
        warm(&proxy, &mut reader, read);
        writer.run(write);
        assert_eq!(is_hit(&proxy, &mut reader, read), is_kept, "{write}");
        assert_eq!(reader.rows(read), direct.rows(read), "{write}");
    }
}

#[test]
fn what_a_check_says_tomorrow_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table allowed (a int); insert into allowed values (5); create table r (a int, j json); insert into r values (5, '{\"a\": 5}');
         create function is_allowed(v int) returns boolean language sql stable as 'select exists (select from public.allowed where a = v)';
         create domain sd as int check (is_allowed(value)); create type sp as (x sd, y int); create view v as select a::sd as a from r",
    );
    let proxy = ground.primary_proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    warm(&proxy, &mut reader, "select a from r");
    for read in [
        "select 5::sd, a from r",
        "select '(5,6)'::sp, a from r",
        "select '{5}'::sd[], a from r",
        "select * from v",
        "select x.a from r, json_to_record(r.j) as x (a sd)",
        "select json_populate_record(null::sp, '{\"x\": 5}'), a from r",
    ] {
        for _ in 0..3 {
            reader.rows(read);
        }
        writer.run("delete from allowed");
        assert_eq!(reader.query(read), direct.query(read), "{read}");
        writer.run("insert into allowed values (5)");
    }
}

#[test]
fn times_of_today_are_not_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table zoned (a int, z timetz); insert into zoned values (1, '10:00'); create table times (t time); insert into times values ('10:00');
         create domain z as timetz; create type zs as (z timetz); create type zspan as range (subtype = timetz); create table stamps (at timestamptz); insert into stamps values ('2020-01-01 10:00+00');
         create view v as select timetz '10:00+00' at time zone 'Europe/Berlin' as z from stamps; create view w as select t::timetz as z from times;
         create function hour_of(z timetz) returns float8 language sql immutable as 'select extract(hour from z)';
         create function at_zone(t time) returns timetz language sql immutable as 'select timetz ''10:00+02''';
         create function zones(out z timetz, out n int) language sql immutable as 'select timetz ''10:00+00'', 1';
         create function in_row(t time) returns zs language sql immutable as 'select row(timetz ''10:00+00'')::zs';
         create function at_noon(a timestamptz) returns time language sql immutable as 'select time ''12:00''';
         create operator @@@ (rightarg = time, function = at_zone); create operator @@@@ (rightarg = time, function = pg_catalog.timetz)",
    );
    let proxy = ground.primary_proxy(ON);
    let mut client = ground.client(&proxy);
    for kept in [
        "select at at time zone 'Europe/Berlin' from stamps",
        "select max(at), date_trunc('day', max(at at time zone 'UTC')) from stamps",
        "select t from times where t = '10:00'",
        "select time '10:00', t from times",
    ] {
        warm(&proxy, &mut client, kept);
    }
    let reads = [
        "select timetz '10:00', t from times",
        "select '10:00'::time with time zone, t from times",
        "select '{10:00}'::timetz[], t from times",
        "select extract(timezone from timetz '10:00'), t from times",
        "select coalesce(t, timetz '10:00') from times",
        "select t::timetz from times",
        "select t at time zone 'Europe/Berlin' from times",
        "select timezone('UTC', t) from times",
        "select time '10:00' at time zone 'UTC', at from stamps",
        "select make_time(1, 2, 3) at time zone 'UTC', at from stamps",
        "select '10:00'::z, t from times",
        "select '(10:00)'::zs, t from times",
        "select '[10:00,11:00)'::zspan, t from times",
        "select a from zoned where z = '10:00'",
        "select timetz_cmp('10:00', '11:00'), t from times",
        "select hour_of('10:00'), t from times",
        "select at_zone('9:00') at time zone 'UTC', at from stamps",
        "select timezone('UTC', z), at from stamps, zones()",
        "select (in_row('9:00')).z at time zone 'Europe/Berlin', at from stamps",
        "select at_noon(at) at time zone 'Europe/Berlin' from stamps",
        "select (@@@ time '9:00') at time zone 'Europe/Berlin', at from stamps",
        "select @@@@ t from times",
        "select z from v",
        "select z from w",
    ];
    for _ in 0..4 {
        for read in reads {
            assert!(!is_hit(&proxy, &mut client, read), "{read}");
        }
    }
}
