//! Statements about rows of several shards, subject by subject: each has the answer of one server with all rows, or is refused.

use crate::support::driver::{Login, block_on, connect};
use crate::support::ground::wait_until;
use crate::support::spread::{Answer, How, SHARDS, Spread, ask};
use crate::support::{Failure, Raw, wire};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::Mode;

/// `visits` lie beside the people who made them, not beside their shops; `days` and `marks` are spread by ranges and lists; `plain` lies on shard 0.
const SCHEMA: &str = "create table cities (id int primary key, name text, country char(2));
    create table people (gone int, id int primary key, name text, born date, city int, score numeric(8, 2), tags text[], about jsonb,
        seen timestamptz, height float8, member bool, code uuid, nick varchar(10) collate \"C\",
        raw bytea, twice int generated always as (id * 2) stored);
    alter table people drop column gone;
    create table visits (person int references people, number int, shop bigint, paid numeric, at timestamp, note char(6), length interval,
        primary key (person, number));
    create table shops (id bigint primary key, name text, owner int, boss bigint);
    create table days (day date not null, n int);
    create table marks (code text collate \"C\", n int);
    create table parts (id int primary key, n int);
    create table plain (id int primary key, note text)";

const ROWS: &str = "insert into cities select i, 'City ' || chr(65 + i), case when i % 2 = 0 then 'de' else 'jp' end from generate_series(0, 9) i;
    insert into people select i, case i % 7 when 0 then null when 1 then 'anna ' || i % 5 when 2 then 'Anna ' || i % 5 when 3 then 'Äsop' when 4 then 'Zoë' when 5 then '' else 'zed_' || i % 3 end,
        case i when 77 then 'infinity' else date '1960-01-31' + i * 97 end, nullif(i % 11, 10), i * 37 % 1000 / 8.0, case when i % 4 > 0 then array['a' || i % 3, null, 'c'] end,
        jsonb_build_object('n', i % 6, 'of', jsonb_build_array(i % 2, 'x')), timestamptz '2024-03-30 20:00 UTC' + i * interval '3 hours',
        case i when 41 then '-0'::float8 when 42 then 'NaN' when 43 then '-Infinity' else i / 4.0 end, nullif(i % 5, 3) > 1, md5(i::text)::uuid,
        nullif(chr(97 + i % 26), 'q'), decode(repeat(to_hex(i % 16 + 240), i % 4), 'hex') from generate_series(1, 120) i;
    insert into visits select i % 120 + 1, i, i * 7 % 40, nullif(i % 17, 4) * 1.25, timestamp '2024-01-01' + i * interval '5 hours', chr(65 + i % 4), i % 9 * interval '20 minutes'
        from generate_series(1, 400) i;
    insert into shops select i, 'Shop ' || i % 12, i * 3 % 120 + 1, nullif(i / 3, 0) from generate_series(0, 39) i;
    insert into days select date '2019-11-01' + i * 5, i % 8 from generate_series(0, 80) i;
    insert into marks select (array['a', 'b', 'c', null, 'd', 'Z', 'ä'])[1 + i % 7], i from generate_series(1, 30) i;
    insert into parts select i, i % 3 from generate_series(1, 50) i;
    insert into plain values (1, 'one'), (2, 'two')";

/// The order of rows in an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The statement decides it.
    Told,
    Open,
}
use Order::{Open, Told};

/// Subject, order and statements.
const READS: &[(&str, Order, &[&str])] = &[
    (
        "keys of several shards",
        Told,
        &[
            "select city, count(*), sum(score) from people where id in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) group by city order by city",
            "select id, name from people where id = 3 or id = 4 or id = 5 or id = 60 order by id",
            "select * from people where id = any ('{1, 2, 30, 31}') order by id desc",
            "select id from people where id between 10 and 30 order by id",
            "select day, sum(n) from days where day >= '2019-12-25' and day < '2020-01-20' group by day order by day",
            "select code, sum(n), count(*) from marks where code in ('a', 'b', 'ä') or code is null group by code order by code nulls first",
        ],
    ),
    (
        "ORDER BY",
        Told,
        &[
            "select name from people order by score, id",
            "select id from people order by name nulls first, id desc",
            "select id, name from people order by lower(name) desc nulls last, id limit 20 offset 5",
            "select id from people order by name collate \"C\", id",
            "select id, nick from people order by nick desc nulls first, id fetch first 30 rows only",
            "select id, upper(name) as up from people order by up, -id",
            "select id from people order by floor(height) nulls first, score * -1, id",
            "select distinct on (city) city, id, name from people order by city, score desc, id",
            "select city from people order by city nulls first fetch first 3 rows with ties",
            "table shops order by id",
            "select tags, id from people order by tags, id",
            "select about, id from people order by about -> 'of', about, id",
            "select day from days order by extract(dow from day), day",
        ],
    ),
    (
        "plain aggregates",
        Told,
        &[
            "select count(*), count(name), sum(score), avg(score), min(name), max(name), min(born), max(seen) from people",
            "select stddev(score), stddev_pop(score), variance(score), var_pop(id), stddev_samp(id) from people",
            "select sum(height), avg(height), max(height), regr_count(id, city) from people where id < 40",
            "select max(height), min(height), max(born), min(seen) from people",
            "select city, avg(score), stddev(score), bool_and(member), bool_or(member), bit_or(id) from people group by city order by city",
            "select max(paid), min(at), sum(length), avg(length) from visits",
            "select count(*) from people where false",
            "select sum(score) filter (where member), count(*) filter (where city is null) from people",
            "select max(name collate \"C\"), min(nick) from people",
            "select count(*), (select count(*) from visits), (select max(n) from days) from people",
        ],
    ),
    (
        "aggregates of all values",
        Told,
        &[
            "select count(distinct city), count(distinct name), sum(distinct city) from people",
            "select city, count(distinct shop) from people join visits on person = id group by city order by city",
            "select percentile_cont(0.5) within group (order by score), percentile_disc(array[0.1, 0.9]) within group (order by name) from people",
            "select mode() within group (order by city), rank(50) within group (order by score) from people",
            "select string_agg(name, ',' order by id), array_agg(id order by score desc, id) from people",
            "select city, string_agg(distinct nick, '' order by nick) from people group by city order by city",
            "select jsonb_agg(about order by id), json_object_agg(id, name order by id) from people where id < 20",
            "select array_agg(distinct city order by city nulls first) from people",
        ],
    ),
    (
        "HAVING and GROUP BY",
        Told,
        &[
            "select city, count(*) from people group by city having count(*) > 10 order by city",
            "select city, sum(paid) from people, visits where person = id group by 1 having sum(paid) > (select avg(paid) * 10 from visits) order by 2 desc, 1",
            "select extract(year from born) / 10 as decade, count(*) from people group by decade having bool_or(member) order by decade",
            "select count(*) from people having count(*) > 1",
            "select member, about ->> 'n', count(*) from people group by member, about ->> 'n' order by 1, 2",
        ],
    ),
    (
        "GROUPING SETS",
        Told,
        &[
            "select city, member, count(*), grouping(city, member) from people group by grouping sets ((city), (member), ()) order by 4, 1, 2",
            "select city, member, sum(score) from people group by cube (city, member) order by grouping(city, member), 1, 2",
            "select shop % 4, note, count(*) from visits group by rollup (shop % 4, note) order by grouping(shop % 4), grouping(note), 1, 2",
        ],
    ),
    (
        "windows",
        Told,
        &[
            "select id, row_number() over (order by score, id), rank() over (order by city), sum(score) over (partition by city order by id) from people order by id",
            "select id, lag(name) over (order by id), first_value(id) over (partition by member order by score desc, id), ntile(7) over (order by id) from people order by id",
            "select person, number, avg(paid) over w, count(*) over w from visits window w as (partition by shop order by number rows between 2 preceding and 1 following) order by number",
            "select * from (select city, id, dense_rank() over (partition by city order by score desc, id) as place from people) r where place <= 2 order by 1, 3",
            "select day, n, sum(n) over (order by day range between '10 days' preceding and current row) from days order by day",
        ],
    ),
    (
        "subqueries and recursion",
        Told,
        &[
            "select id, (select count(*) from visits where person = id), (select max(s.name) from shops s where s.owner = people.id) from people order by id",
            "select id from people p where exists (select from shops where owner = p.id) and not exists (select from visits where person = p.id and note = 'A') order by id",
            "select id from people where score > (select avg(score) from people) and city in (select id from cities where country = 'de') order by id",
            "select id from people where city not in (select city from people where city > 7) order by id",
            "select id, x.number from people, lateral (select number from visits where shop = people.id order by number desc limit 2) x order by id, number",
            "with recursive up (id, boss, depth) as (select id, boss, 0 from shops where id = 39 union all select s.id, s.boss, depth + 1 from shops s join up on s.id = up.boss) \
         select * from up order by depth",
            "with recursive t as (select id, boss, array[id] as way from shops where boss is null union all select s.id, s.boss, way || s.id from shops s join t on s.boss = t.id) select * from t order by way",
            "with spent as materialized (select person, sum(paid) as sum from visits group by person) select a.person, b.person from spent a, spent b where a.sum = b.sum and a.person < b.person order by 1, 2 limit 50",
            "with a as (select id from people where id < 50), b as (select id from a where id > 20) select count(*), max(id) from b",
            "select array(select id from people where city = c.id order by id) from cities c order by c.id",
        ],
    ),
    (
        "joins",
        Told,
        &[
            "select p.id, v.number from people p join visits v on v.person = p.id order by v.number",
            "select p.name, s.name, v.paid, v.number from visits v join people p on p.id = v.person join shops s on s.id = v.shop order by v.number",
            "select c.name, count(v.number), sum(v.paid) from cities c left join people p on p.city = c.id left join visits v on v.person = p.id and v.note = 'B' group by c.name order by c.name",
            "select a.id, b.id from shops a full join people b on a.id = b.id + 30 order by 1, 2",
            "select a.id, b.id from shops a right join shops b on b.boss = a.id order by b.id",
            "select count(*) from people a, people b where a.city = b.city and a.id < b.id",
            "select s.id, p.id from shops s join people p on p.id = s.owner where p.city = 3 order by s.id",
            "select d.day, m.code, m.n from days d join marks m on d.n = m.n order by d.day, m.n",
            "select x.i, p.id from generate_series(118, 123) x (i) left join people p on p.id = x.i order by x.i",
            "select v.i, p.name from (values (1, 'a'), (2, 'b')) v (i, t), people p where p.id = v.i order by 1",
            "select * from people natural join (select id, boss from shops) s order by id",
            "select p.id, j.value from people p, jsonb_array_elements(p.about -> 'of') j order by p.id, j.value",
            "select id, t.tag, t.place from people, unnest(tags) with ordinality t (tag, place) order by id, place",
        ],
    ),
    (
        "whole rows",
        Told,
        &[
            "select count(p), count(*) from people p",
            "select p.id, row_to_json(s) from people p left join shops s on s.owner = p.id order by p.id, s.id",
            "select p.id, s is null, s.* is distinct from null from people p left join shops s on s.owner = p.id order by p.id, s.id",
            "select p.*, s.* from people p full join shops s on s.id = p.id + 100 order by p.id, s.id",
            "select to_jsonb(d) ->> 'day', d::text from days d order by d",
        ],
    ),
    (
        "set operations",
        Told,
        &[
            "select id from people union select id from shops order by id",
            "select city from people except select id from cities where country = 'jp' order by city",
            "select id from people intersect all select person from visits where shop > 20 order by id",
            "(select id, name from people order by id limit 3) union all (select id, name from shops order by id desc limit 3) order by id, name",
            "select name from people union select name from cities union all select nick from people order by name nulls first",
        ],
    ),
    (
        "types and settings",
        Told,
        &[
            "select id, seen, seen at time zone 'Asia/Tokyo', seen::date, at from people join visits on person = id where number < 30 order by number",
            "select id, height, height / 3, score / 7, born + 1, seen + interval '1 month', age(timestamp '2024-01-01', born) from people order by id",
            "select to_char(seen, 'YYYY-MM-DD HH24:MI TZ'), to_char(score, '999.9'), date_trunc('month', seen) from people order by id",
            "select id from people where seen > '2024-04-01 00:00' and born < '1980-02-01' order by id",
            "select code, length, note || '|', note = 'A', nick::char(3), raw, raw > '\\xf1' from people join visits on person = id order by number limit 40",
            "select about @> '{\"n\": 2}', about #>> '{of,1}', about ? 'n', tags @> array['a1'], tags[1], cardinality(tags) from people order by id",
            "select case when member then 'yes' when not member then 'no' end, coalesce(city, -1), nullif(id, 4), greatest(id, city) from people order by id",
            "select id, name ~ '^[aä]', name like '%\\_%', name ilike 'ANNA%', name similar to '(z|Z)%', position('n' in name), left(name, 2) from people order by id",
            "select current_user, session_user, 1 + 1 as two, null, 'text', '\\x00ff'::bytea, count(*) from people",
            "select id, member is true, member is unknown, name is distinct from nick, (id, city) < (50, 2) from people order by id",
        ],
    ),
    (
        "rows in no order",
        Open,
        &[
            "select * from people",
            "select id, name from people where name > 'B'",
            "select distinct city, member from people",
            "select city, count(*) from people group by city",
            "select p.id, s.id from people p left join shops s on s.owner = p.id",
            "select person from visits where paid is null",
            "select * from visits, cities where shop = id",
            "select distinct on (city) city from people",
            "select 1 from people",
            "select from people",
        ],
    ),
];

/// Subject and statements that no shard alone can answer, nor the engine.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "INSERT of rows of several shards",
        &["insert into shops values (1001), (1002), (1003), (1004) returning now()", "insert into shops default values"],
    ),
    (
        "INSERT ... SELECT",
        &["insert into shops select id + 1000 from people", "insert into shops (id) select 1 + max(id) from shops"],
    ),
    (
        "COPY",
        &[
            "copy cities from stdin",
            "copy shops from stdin where id > 3",
            "copy (select * from people order by id) to '/tmp/people'",
            "copy people to program 'cat'",
            "copy (delete from people returning id) to stdout",
        ],
    ),
    ("UPDATE of a key", &["update shops set id = 9 where id = 3", "update people set id = id + 1000"]),
    (
        "writes to several shards",
        &[
            "update people set name = 'x' returning ctid",
            "update people set name = now()::text where id in (1, 2, 3, 4, 5)",
            "delete from visits using people where people.city = shop and paid is null",
            "update visits set paid = 1 from shops where shop = shops.id",
            "with gone as (delete from visits returning *) select count(*) from gone",
            "with gone as (delete from visits where person = 1 returning *) select count(*) from gone, people",
        ],
    ),
    (
        "locks of rows and samples",
        &[
            "select * from people for update",
            "select * from people where id in (1, 2, 3, 4, 5) for share",
            "select * from (select * from people for key share) p",
            "select count(*) from people tablesample system (100)",
            "select count(*) from people tablesample bernoulli (50) repeatable (1)",
        ],
    ),
    (
        "MERGE, and ON CONFLICT that sets the key or inserts rows of a query",
        &[
            "merge into shops using (select 1 as id) n on shops.id = n.id when matched then do nothing",
            "insert into shops select 1 on conflict do nothing",
            "insert into people (id) values (1), (2), (3), (4) on conflict (id) do update set id = 7",
        ],
    ),
    (
        "views and functions",
        &["select * from seen", "select count(*) from seen where id = 1", "select counted()", "select counted() from people"],
    ),
    (
        "users' functions and operators",
        &[
            "select twice(id) from people",
            "select id <+> 1 from people",
            "select total(id) from people",
            "select id::pair from people",
        ],
    ),
    ("tables of shard 0", &["select * from plain, people", "select count(*) from people where id in (select id from plain)"]),
    (
        "writes to reference tables",
        &["update cities set name = random()::text", "insert into cities select id from plain", "truncate cities, plain"],
    ),
    (
        "DDL",
        &[
            "alter table people add column more int unique",
            "alter table people alter id type bigint",
            "create index on people (name)",
            "alter table people owner to postgres",
            "alter table people rename to persons",
            "create table copied as select * from people",
        ],
    ),
    (
        "what is a server's own",
        &[
            "select ctid from people",
            "select tableoid::regclass, count(*) from people group by 1",
            "select xmin from people",
            "select count(*), current_database() from people",
            "select current_catalog from people",
            "select current_schema from people",
            "select current_setting('port') from people",
            "select inet_server_port(), count(*) from people",
            "select pg_backend_pid() from people",
            "select 'people'::regclass from people",
            "select nextval('s') from people",
            "select txid_current() from people",
            "select count(*) from only people",
            "select people from people",
        ],
    ),
    (
        "SQL's PREPARE, cursors, EXECUTE",
        &[
            "prepare p as select count(*) from people",
            "declare c cursor with hold for select * from people",
            "do 'begin perform count(*) from people; end'",
            "select * from people; select 1",
        ],
    ),
];

const SETTINGS: &[&str] = &[
    "set timezone = 'Asia/Kolkata'",
    "set datestyle = 'ISO, DMY'",
    "set intervalstyle = 'iso_8601'",
    "set extra_float_digits = 3",
    "set bytea_output = 'escape'",
];

/// Three shards with an engine, and one server with all rows.
fn ground(more: &str) -> Spread {
    let spread = Spread::start(more);
    spread.define(SCHEMA);
    spread.whole().query(ROWS).unwrap();
    spread.fill_first(&["cities", "plain"]);
    spread.reference(&["cities"]);
    spread.shard("people", "id", "");
    spread.shard("visits", "person", "--with public.people");
    spread.shard("shops", "id", "");
    spread.shard("days", "day", "--range ..2020-01-01=0,2020-01-01..2020-06-01=2,default=1");
    spread.shard("marks", "code", "--list a,b,ä=0;c,d,Z=1;null=2");
    spread.shard("parts", "id", "--hash 7");
    spread.fill(&["people", "visits", "shops", "days", "marks", "parts"]);
    spread.make_ready("select count(*) from people");
    spread
}

/// A ground whose rows nobody changes, for all tests that only read. It ends with the last one.
fn shared() -> Arc<Spread> {
    static SHARED: Mutex<Weak<Spread>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let (give, take) = mpsc::channel();
        // A proxy ends with the thread that started it. The test that comes first may not be the last.
        thread::spawn(move || {
            give.send(Arc::new(ground(""))).unwrap();
            drop(give);
            loop {
                thread::park();
            }
        });
        let spread = take.recv().expect("the ground is made");
        *shared = Arc::downgrade(&spread);
        spread
    })
}

fn in_order(answer: Answer, order: Order) -> Answer {
    match order {
        Told => answer,
        Open => answer.sorted(),
    }
}

/// Compares the answers of both sides; returns those that differ.
fn differences(direct: &mut Raw, through: &mut Raw) -> Vec<String> {
    let mut wrong = Vec::new();
    for (subject, order, texts) in READS {
        for text in *texts {
            for how in [How::Simple, How::Extended] {
                let expected = in_order(ask(direct, how, text, &[]), *order);
                assert_eq!(expected.failure, None, "{text}");
                let got = in_order(ask(through, how, text, &[]), *order);
                if got != expected {
                    wrong.push(format!("{subject}, {how:?}: {text}\n  one server {expected:?}\n  through    {got:?}"));
                }
            }
        }
    }
    wrong
}

fn check_alike(direct: &mut Raw, through: &mut Raw) {
    let wrong = differences(direct, through);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The answer must be that of one server, whose rows come in any order.
fn check_same(direct: &mut Raw, through: &mut Raw, text: &str) {
    for how in [How::Simple, How::Extended] {
        let expected = ask(direct, how, text, &[]).sorted();
        assert_eq!(ask(through, how, text, &[]).sorted(), expected, "{how:?}: {text}");
    }
}

#[test]
fn reads_over_shards_have_the_answers_of_one_server() {
    let spread = shared();
    let (mut direct, mut through) = (spread.direct(), spread.client());
    check_alike(&mut direct, &mut through);
    // Settings that choose how values are read and written go along, but for some that postgres_fdw would not hand on. Statements of one shard may be the engine's, too.
    for set in SETTINGS {
        [&mut direct, &mut through].iter_mut().for_each(|client| client.run(set));
    }
    through.run("set weir.plan = engine");
    check_alike(&mut direct, &mut through);
    through.run("set datestyle = 'German'");
    assert_eq!(through.error("select max(date '2024-02-05') from people").sqlstate, "0A000");
}

#[test]
fn a_table_with_several_partitions_on_one_shard_has_each_row_once() {
    let spread = shared();
    let (mut direct, mut through) = (spread.direct(), spread.client());
    for text in [
        "select count(*), sum(n) from parts",
        "select * from parts order by id",
        "select count(*) from parts join people using (id)",
    ] {
        for how in [How::Simple, How::Extended] {
            let got = ask(&mut through, how, text, &[]);
            assert!(
                got == ask(&mut direct, how, text, &[]) || got.failure.as_deref() == Some("0A000"),
                "{how:?}: {text}: {got:?}"
            );
        }
    }
}

#[test]
fn what_neither_a_shard_nor_the_engine_answers_alike_is_refused() {
    let spread = shared();
    let objects = "create view seen as select * from people; create function counted() returns bigint language sql stable as 'select count(*) from people';
        create function twice(int) returns int language sql immutable as 'select 2 * $1'; create operator <+> (function = int4pl, leftarg = int, rightarg = int);
        create aggregate total(int) (sfunc = int4pl, stype = int, initcond = '0'); create type pair as (a int); create sequence s;
        create function to_pair(int) returns pair language sql immutable as 'select row($1)::pair'; create cast (int as pair) with function to_pair(int)";
    spread.everywhere(objects);
    let mut client = spread.client();
    wait_until("the objects to be known", || {
        client.try_rows("select twice(21)").is_ok_and(|rows| rows == [[Some("42".to_owned())]])
    });
    wait_until("the view to be known", || client.try_rows("select * from seen").is_err());
    let before = ask(&mut client, How::Simple, "select count(*), sum(id), count(distinct name) from people", &[]);
    let mut wrong = Vec::new();
    for (subject, texts) in REFUSED {
        for text in *texts {
            for how in [How::Simple, How::Extended] {
                // Several statements are a matter of the simple protocol.
                if how == How::Extended && text.contains(';') && !text.starts_with("do") {
                    continue;
                }
                let answer = ask(&mut client, how, text, &[]);
                if answer.failure.as_deref() != Some("0A000") {
                    wrong.push(format!("{subject}, {how:?}: {text}: {answer:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} were not refused:\n{}", wrong.len(), wrong.join("\n"));
    let after = ask(&mut client, How::Simple, "select count(*), sum(id), count(distinct name) from people", &[]);
    assert_eq!(after, before, "nothing was written");
}

#[test]
fn parameters_choose_one_shard_or_several() {
    let spread = shared();
    let (mut direct, mut through) = (spread.direct(), spread.client());
    let by_values: &[(&str, &[&[&str]])] = &[
        ("select id, name from people where id in ($1, $2) order by id", &[&["1", "2"], &["3", "3"], &["5", "60"], &["7", "-1"]]),
        ("select count(*), sum(paid) from visits where person = any ($1::int[])", &[&["{1,2,3,4,5,6,7,8}"], &["{9}"], &["{}"]]),
        (
            "select id from people where score > $1 and ($2::text is null or name > $2) order by id limit $3",
            &[&["50", "Z", "10"], &["1.5", "a", "3"]],
        ),
        (
            "select p.id, v.number from people p, visits v where p.id = $1 and v.shop = $2 order by 2",
            &[&["4", "7"], &["8", "21"]],
        ),
        (
            "select day, n from days where day between $1 and $2 order by day",
            &[&["2019-11-01", "2019-11-30"], &["2019-12-20", "2020-07-01"]],
        ),
        ("select $1::int + count(*) from people", &[&["1"], &["41"]]),
    ];
    for (text, all) in by_values {
        for values in *all {
            let expected = ask(&mut direct, How::Extended, text, values);
            assert_eq!(expected.failure, None, "{text}");
            assert_eq!(ask(&mut through, How::Extended, text, values), expected, "{text} {values:?}");
        }
    }
    // Prepared once, with its values later; a description before any value is known.
    let prepare = |text: &str| [wire::parse("p", text), wire::describe(b'S', "p"), wire::sync()].concat();
    for (text, all) in by_values {
        let described = [&mut direct, &mut through].map(|client| {
            client.send(&prepare(text));
            let messages = client.until_ready();
            let parameters = messages.iter().find(|message| message.tag == b't').map(|message| message.body.clone());
            (parameters, Answer::of(&messages))
        });
        assert_eq!(described[1], described[0], "{text}");
        for values in *all {
            let both = [&mut direct, &mut through].map(|client| {
                client.send(&[wire::run("p", values), wire::sync()].concat());
                Answer::of(&client.until_ready())
            });
            assert_eq!(both[1], both[0], "{text} {values:?}");
        }
        [&mut direct, &mut through].iter_mut().for_each(|client| {
            client.send(&[wire::close(b'S', "p"), wire::sync()].concat());
            client.until_ready();
        });
    }
    // Part of the rows at a time.
    let portal = [
        wire::parse("", "select id from people order by id"),
        wire::bind("", "", &[]),
        wire::execute("", 50),
        wire::execute("", 0),
        wire::sync(),
    ];
    let both = [&mut direct, &mut through].map(|client| {
        client.send(&portal.concat());
        let messages = client.until_ready();
        (Answer::of(&messages), messages.iter().filter(|message| message.tag == b's').count())
    });
    assert_eq!(both[1], both[0]);
    assert_eq!((both[0].0.rows.len(), both[0].1), (120, 1));
    // Several statements before one Sync.
    let count = |table: &str| wire::unnamed(&format!("select count(*) from {table}"), &[]);
    let both = [&mut direct, &mut through].map(|client| {
        client.send(&[count("people"), wire::sync(), count("shops"), wire::sync()].concat());
        [client.until_ready(), client.until_ready()].map(|messages| Answer::of(&messages))
    });
    assert_eq!(both[1], both[0]);
}

#[test]
fn a_driver_reads_over_shards_in_binary() {
    let spread = shared();
    let rows = |port: u16| {
        block_on(async move {
            let (client, _mover) = connect(&Login::new(port, "postgres", "")).await.unwrap();
            let read = client
                .prepare("select id, name, height, member, tags from people where id = any ($1) and height > $2 order by id")
                .await
                .unwrap();
            let mut found = Vec::new();
            for (ids, height) in
                [((1..=40).collect::<Vec<i32>>(), 2.5_f64), (vec![7], 0.0), ((60..=90).collect(), 16.0), (vec![], 0.0)]
            {
                for row in client.query(&read, &[&ids, &height]).await.unwrap() {
                    let member: Option<bool> = row.get(3);
                    let tags: Option<Vec<Option<String>>> = row.get(4);
                    found.push(format!(
                        "{} {:?} {} {member:?} {tags:?}",
                        row.get::<_, i32>(0),
                        row.get::<_, Option<String>>(1),
                        row.get::<_, f64>(2)
                    ));
                }
            }
            let sum = client
                .query_one("select count(*), avg(height) from visits join people on person = id where number <> $1", &[&3_i32])
                .await
                .unwrap();
            found.push(format!("{} {}", sum.get::<_, i64>(0), sum.get::<_, f64>(1)));
            found
        })
    };
    let expected = rows(spread.whole().port());
    assert!(expected.len() > 40, "{expected:?}");
    assert_eq!(rows(spread.proxy.port()), expected);
}

#[test]
fn a_transaction_that_wrote_gets_no_answer_without_its_writes() {
    let spread = ground("");
    let mut client = spread.client();
    let count = "select count(*) from people where name = 'changed'";
    for key in 1..=6 {
        client.run("begin");
        client.run(&format!("update people set name = 'changed' where id = {key}"));
        assert_eq!(client.value(&format!("{count} and id = {key}")), "1");
        assert_eq!(client.value(count), "1", "its own write");
        client.run("rollback");
        assert_eq!(client.value(count), "0");
    }
    client.run("update people set name = 'changed' where id = 1");
    client.run("update people set name = 'changed' where id = 2");
    assert_eq!(client.value(count), "2", "what is committed is seen at once");
    // Before its first statement on a shard a transaction has nothing of its own to see.
    client.run("begin");
    assert_eq!(client.value(count), "2");
    client.run("update people set name = 'changed' where id = 3");
    client.run("commit");
    assert_eq!(client.value(count), "3");
    // A transaction of one moment cannot be had over shards.
    client.run("begin isolation level repeatable read");
    client.run("select count(*) from people where id = 1");
    assert_eq!(client.error(count).sqlstate, "0A000");
    client.run("rollback");
    // Batches of writes up to one Sync are a transaction, too.
    let write = wire::unnamed("update people set name = 'changed' where id = 4", &[]);
    client.send(&[write, wire::unnamed(count, &[]), wire::sync()].concat());
    let failure = client.until_ready().iter().find(|message| message.tag == b'E').map(|message| message.failure().sqlstate);
    assert_eq!(failure.as_deref(), Some("0A000"));
    assert_eq!(client.value(count), "3", "nothing is left of the batch");
}

#[test]
fn rights_and_roles_are_those_of_the_session() {
    let spread = ground("");
    let rights = "create role clerk login; create role guest login; grant select on people, cities to clerk; grant select (person, shop) on visits to clerk";
    spread.everywhere(rights);
    spread.make_ready("select count(*) from people");
    let texts = [
        "select count(*) from people",
        "select count(*) from people, cities where city = cities.id",
        "select count(*) from visits",
        "select sum(shop) from visits",
        "select * from visits",
        "select count(*) from shops",
        "select current_user, count(*) from people",
    ];
    for user in ["clerk", "guest"] {
        let (mut direct, mut through) = (spread.direct_of(user), spread.client_of(user));
        wait_until("the rights to be known", || through.try_rows("select count(*) from people").is_ok() == (user == "clerk"));
        texts.iter().for_each(|text| check_same(&mut direct, &mut through, text));
    }
    let (mut direct, mut through) = (spread.direct(), spread.client());
    [&mut direct, &mut through].iter_mut().for_each(|client| client.run("set role clerk"));
    texts.iter().for_each(|text| check_same(&mut direct, &mut through, text));
    [&mut direct, &mut through].iter_mut().for_each(|client| client.run("reset role"));
    texts.iter().for_each(|text| check_same(&mut direct, &mut through, text));
}

/// Texts that fail; each session goes on afterwards.
const FAILING: &[(&str, &str)] = &[
    ("selct * from people", "42601"),
    ("select count(*) form people where", "42601"),
    ("update people set n = where id = 1", "42601"),
    ("select 1 / (id - 50) from people", "22012"),
    ("select sum(1 / city) from people", "22012"),
    ("select name::int from people", "22P02"),
    ("select (about ->> 'n')::date from people", "22007"),
    ("select nothing from people", "42703"),
    ("select count(*) from nowhere, people", "42P01"),
    ("select name + 1 from people", "42883"),
    ("select nofunction(id) from people", "42883"),
    ("select id from people group by city", "42803"),
    ("select count(*) from people where sum(id) > 1", "42803"),
    ("select id from people union select name from people", "42804"),
    ("select count(*) frm people,", "42601"),
    ("select (select id from people) from shops", "21000"),
    ("select id from people, shops", "42702"),
    ("select 'x'::nokind from people", "42704"),
    ("select id from people limit -1", "2201W"),
    ("select sqrt(-id) from people", "2201F"),
    ("select 2147483647 + id from people", "22003"),
];

#[test]
fn errors_are_those_of_one_server_and_the_session_goes_on() {
    let spread = shared();
    let (mut direct, mut through) = (spread.direct(), spread.client());
    let mut wrong = Vec::new();
    for (text, sqlstate) in FAILING {
        for how in [How::Simple, How::Extended] {
            let expected = ask(&mut direct, how, text, &[]).failure;
            assert_eq!(expected.as_deref(), Some(*sqlstate), "{text}");
            let got = ask(&mut through, how, text, &[]).failure;
            // A name that nobody knows may be refused before a server is asked.
            if got != expected && !(got.as_deref() == Some("0A000") && sqlstate.starts_with("42") && *sqlstate != "42601") {
                wrong.push(format!("{how:?}: {text}: one server {expected:?}, through {got:?}"));
            }
            assert_eq!(through.value("select count(*) from people"), "120", "after {text}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The engine's tables have no primary keys that columns could depend on.
    assert_eq!(through.error("select id, name from people group by id").sqlstate, "42803");
}

/// Never ends in the time of a test, and reads each shard.
const ENDLESS: &str = "select count(*) from visits a, visits b, visits c, visits d, visits e where a.number + b.number + c.number + d.number > e.number";
/// A statement that is to end early takes no longer.
const SOON: Duration = Duration::from_secs(10);

/// Waits until no server does anything for the engine.
fn wait_idle(spread: &Spread) {
    let busy = "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid() \
        and (datname = 'postgres_engine' or usename = 'weir_engine')";
    wait_until("the engine's statements to end", || (0..SHARDS).all(|shard| spread.server(shard).value(busy).unwrap() == "0"));
}

#[test]
fn a_statement_of_the_engine_ends_by_its_timeout_and_when_it_is_cancelled() {
    let spread = ground("");
    let mut client = spread.client();
    client.run("set statement_timeout = '500ms'");
    for how in [How::Simple, How::Extended] {
        let begin = Instant::now();
        assert_eq!(ask(&mut client, how, ENDLESS, &[]).failure.as_deref(), Some("57014"));
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(client.value("select count(*) from people"), "120");
    }
    client.run("reset statement_timeout");
    for how in [How::Simple, How::Extended] {
        wait_idle(&spread);
        let bytes = match how {
            How::Simple => wire::query(ENDLESS),
            How::Extended => [wire::unnamed(ENDLESS, &[]), wire::sync()].concat(),
        };
        client.send(&bytes);
        let runs = "select count(*) from pg_stat_activity where state = 'active' and datname = 'postgres_engine'";
        wait_until("the statement to run", || spread.server(0).value(runs).unwrap() == "1");
        let begin = Instant::now();
        Raw::tcp(spread.proxy.port()).send(&wire::cancel(client.pid, &client.key));
        let answer = Answer::of(&client.until_ready());
        assert_eq!(answer.failure.as_deref(), Some("57014"), "{answer:?}");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(client.value("select count(*) from people"), "120");
    }
}

/// Asks until there is an answer, with new sessions after errors.
fn wait_answer(spread: &Spread, text: &str, expected: &str) {
    let mut client = None;
    wait_until("an answer", || {
        let asked = client.get_or_insert_with(|| spread.client()).try_value(text);
        if asked.is_err() {
            client = None;
        }
        asked.is_ok_and(|value| value == expected)
    });
}

fn is_of_connection(failure: &Failure) -> bool {
    ["08", "57P"].iter().any(|class| failure.sqlstate.starts_with(class))
}

#[test]
fn a_shard_that_is_away_fails_what_reads_it_and_comes_back() {
    let spread = ground("failover_wait = 2s\n");
    let count = "select count(*) from people";
    let homes = |key: i32| {
        (0..SHARDS).find(|shard| spread.server(*shard).value(&format!("{count} where id = {key}")).unwrap() == "1").unwrap()
    };
    let at = |shard: usize| (1..=120).find(|key| homes(*key) == shard).unwrap();
    let (here, there) = (at(0), at(1));
    let mut client = spread.client();
    assert_eq!(client.value(count), "120");
    spread.server(1).stop(Mode::Immediate).unwrap();
    // The engine's connection to the shard is lost, then none can be had.
    for _ in 0..2 {
        let failure = client.error(count);
        assert!(is_of_connection(&failure), "{failure:?}");
    }
    assert_eq!(client.value(&format!("{count} where id = {here}")), "1", "other shards answer");
    let others = "select count(*) from days where day < '2019-12-01' and n < 100 or day > '2020-01-01' and day < '2020-02-01'";
    let failure = client.error(others);
    assert!(is_of_connection(&failure) && failure.detail.contains("all shards are asked"), "{failure:?}");
    spread.proxy.add_conf("cross_shard_reads = latest");
    spread.proxy.reload();
    assert_eq!(client.value(others), "12", "partitions of shards that are there");
    spread.server(1).start().unwrap();
    wait_answer(&spread, count, "120");
    wait_answer(&spread, &format!("{count} where id = {there}"), "1");
    assert_eq!(client.value(count), "120", "the session goes on");
}

#[test]
fn the_engines_server_restarts() {
    let spread = ground("failover_wait = 2s\n");
    let count = "select count(*) from visits join people on id = person";
    let mut client = spread.client();
    assert_eq!(client.value(count), "400");
    spread.server(0).stop(Mode::Immediate).unwrap();
    let failure = client.error(count);
    assert!(is_of_connection(&failure), "{failure:?}");
    spread.server(0).start().unwrap();
    wait_answer(&spread, count, "400");
}
