//! Tables of statements over shards, their rows, statements about types of values, and settings that change how values are written.

/// Name, columns, key and the rows as a query over `i`.
pub const TABLES: &[(&str, &str, &str, &str)] = &[
    (
        "orders",
        "id int, customer int, day date, amount numeric(10,2), note text, tags int[], doc jsonb, at timestamp, paid boolean",
        "id",
        "select i, nullif(i * 7 % 11, 4), nullif(date '2024-02-01' + i % 20, date '2024-02-07'), nullif(i * 37 % 100 / 4.0, 6), \
         (array['a', 'B', 'ab', 'Ab', '', '_x', 'é', 'Z', 'a b', null])[i % 10 + 1], \
         case when i % 5 > 0 then array[i % 4, null, i % 3] end, \
         case i % 4 when 0 then null when 1 then jsonb_build_object('n', i % 6, 'word', chr(97 + i % 5)) else jsonb_build_object('n', 3) end, \
         timestamp '2024-01-31 23:30:00' + i * interval '17 hours', nullif(i % 3, 2) = 1 from generate_series(-3, 40) i",
    ),
    (
        "items",
        "order_id int, position smallint, name text, quantity int, price numeric",
        "order_id",
        "select i / 2, i % 3, (array['a', 'Ab', null, 'ä', 'zz'])[i % 5 + 1], nullif(i * 5 % 9, 3), i * 13 % 50 / 8.0 from generate_series(0, 70) i",
    ),
    (
        "logs",
        "key text, number bigint, at timestamp, name text",
        "key",
        "select chr(97 + i % 8), nullif(i % 10, 5), timestamp '2024-02-01' + i * interval '5 hours', nullif(upper(chr(97 + i % 6)), 'C') \
         from generate_series(0, 30) i",
    ),
    // A column of each type whose values are written in more than one way.
    (
        "odd",
        "id int, tz timestamptz, span interval, clock time, zoned timetz, mark uuid, part int4range, days daterange, raw bytea, half real, \
         whole double precision, fixed char(5), short varchar(3), label name, plain json, words text[], bits bit(4), more varbit, net inet, place point, \
         vector tsvector, double_up int generated always as (id * 2) stored",
        "id",
        "select i, timestamptz '2024-03-30 22:30:00+00' + i * interval '25 minutes', i * interval '-1 day 02:00:03.5', time '23:59:59.25' - i * interval '61 minutes', \
         timetz '12:00:00+05:30' + i * interval '1 hour', ('00000000-0000-0000-0000-0000000000' || to_char(10 + i % 80, 'FM00'))::uuid, int4range(i, i + 3), \
         daterange(date '2024-02-27', date '2024-02-28' + i), decode(to_char(i % 90, 'FM00') || '5c00', 'hex'), i / 3.0, case i % 7 when 0 then 'NaN' when 1 then '-Infinity' else i / 7.0::float8 end, \
         'a' || i % 3, 'b' || i % 4, 'c' || i % 5, json_build_object('i', i), array['x, ' || i, null, '\"', '\\'], (i % 16)::bit(4), (i % 4)::bit(3)::varbit, \
         inet '10.0.0.1' + i, point(i, i / 2.0), to_tsvector('simple', 'a b ' || i) from generate_series(0, 40) i",
    ),
];

/// The type of each has a constant in a SELECT list that goes to the shards as a text.
pub const FIXED: &[&str] = &[
    "select * from odd order by id",
    "select id % 3, max(tz), min(tz), max(timestamptz '2024-02-05 03:04:05') from odd group by id % 3",
    "select id, tz + interval '1 day', tz::date, date_trunc('day', tz), tz at time zone 'America/New_York', extract(hour from tz) from odd order by tz, id",
    "select id % 3, max(interval '-1 day 02:00'), sum(span), avg(span), max(justify_hours(span)) from odd group by 1 order by 1",
    "select id % 4, max(clock), max(zoned), min(time '03:04'), min(timetz '03:04+07') from odd group by id % 4",
    "select mark, max(date '2024-02-05'), count(*) from odd where mark > uuid '00000000-0000-0000-0000-000000000020' group by mark",
    "select part, days, part * int4range(3, 20), days && daterange '[2024-02-28,2024-03-05)' from odd where part @> 7 or isempty(days)",
    "select id % 2, range_merge(int4range(min(id), max(id)), int4range '[1,2)'), max(lower(days)) from odd group by id % 2",
    "select raw, raw || '\\x00ff'::bytea, encode(raw, 'base64'), length(raw) from odd where raw > '\\x10'::bytea",
    "select id % 3, min(1.1::real), max(0.1::double precision), max(half), max(whole), min(whole) from odd group by id % 3",
    "select whole, count(*), max('NaN'::numeric), max('infinity'::double precision) from odd group by whole",
    "select fixed, short, label, max(fixed || '|'), max('x'::char(3)), count(distinct label) from odd where fixed = 'a1' or short <> 'b2' group by 1, 2, 3",
    "select id, plain ->> 'i', words[1], cardinality(words), array_to_string(words, '|', '-'), words @> array['\"'] from odd",
    "select words, max(array['{', null, 'NULL', ' x ']::text[]) from odd group by words",
    "select bits, more, bits & b'0110', max(b'101'::bit(3)::text), count(*) from odd group by bits, more",
    "select net, host(net), net << inet '10.0.0.0/28', max(inet '::1') from odd group by net",
    "select id, place, place <-> point '(0,0)' from odd order by place <-> point '(1,1)', id limit 5",
    "select vector, vector @> 'a'::tsquery from odd where id < 5",
    "select double_up, id from odd where double_up between 4 and 10 order by double_up",
    "select max('it''s \\ '), max(E'\\t\\\\'), max(U&'\\0041') from odd group by id % 2",
    "select distinct on (id % 5) id % 5, id, tz from odd order by id % 5, id desc",
    "select o.id, z.* from odd o, lateral (select x.id as other, x.tz from odd x where x.id > o.id order by x.id limit 2) z",
    "select a.id, b.id from odd a full join odd b on a.id = b.id + 30 and a.half < b.half order by 1, 2",
    "select id, lag(id, 2, -1) over w, lead(tz) over w, ntile(4) over w, sum(id) over (w rows between 2 preceding and current row) from odd window w as (order by id)",
    "select id, count(*) over (order by tz range between interval '1 hour' preceding and current row) from odd",
    "select id % 3 as id, count(*) from odd group by 1 having bool_and(half >= 0) order by id",
    "select count(*) from odd where row(id, short) = any (select id, short from odd where id % 2 = 0)",
    "select count(*) from odd where id = null or id is null",
    "select id from odd where id in (select customer from orders where note collate \"C\" > 'B') order by id desc nulls last",
    "select note, count(*) from orders group by note order by note collate \"C\" nulls first",
    "select upper(note), lower(note), initcap(note), note ~ '^[a-z]', note similar to '(a|b)%', note like E'\\\\_%' from orders",
    "select sum(amount) filter (where paid), regr_count(amount, id), string_agg(note, ',' order by id) from orders",
    "select (o).id, (o).tags[1], o is null, row_to_json(o)->>'note', count(o) over () from orders o order by id",
    "select * from orders o natural join items i where o.id = i.order_id",
    "select * from orders join items on id = order_id left join logs on number = id right join countries using (id) order by 1, 2, 3, position",
    "table orders order by id offset 3 limit 4",
    "select 1 from orders limit 0",
    "select id, (select count(*) from items where order_id = o.id), exists (select from logs where number = o.id) from orders o",
    "select jsonb_agg(doc order by id), jsonb_object_agg(id, note) filter (where note is not null) from orders",
    "select doc -> 'n', doc @? '$.n ? (@ > 2)', jsonb_path_query_first(doc, '$.word') from orders",
    "select width_bucket(amount, 0, 30, 4), count(*), sum(amount) / nullif(count(*), 0) from orders group by 1 order by 1 nulls first",
    "select 1 / (id - 3) from orders",
    "select sum(9223372036854775807 + number) from logs",
    "select note::int from orders where note = 'a'",
    "select nothing from orders",
    "select id from orders group by note",
    "select count(*) from orders, items, logs where false",
    "with recursive t (n) as (select 1 union all select n + 1 from t join orders on orders.id = t.n where n < 20) select max(n) from t",
    "with recursive t (n, path) as (select id, array[id] from orders where id < 2 union all select order_id, path || order_id from t join items on quantity = n where cardinality(path) < 3) \
     search depth first by n set way select n, path from t order by way, path",
    "select * from (values (1, 'a'), (2, 'b')) v (a, b) left join orders on id = a order by a",
    "select * from rows from (generate_series(1, 3), unnest(array['a', 'b'])) with ordinality r (a, b, c) join orders on id = a order by a",
    "select g, count(*) from orders, unnest(tags) g group by g order by g nulls first",
    "select grouping(paid, day), paid, day, count(*) from orders group by grouping sets ((paid), (day), (paid, day), ()) order by 1, 2, 3",
];

/// On every shard.
pub const REFERENCE: &str = "id int, code text, area numeric";
pub const REFERENCE_ROWS: &str =
    "select nullif(i, 5), (array['a', 'B', 'é', null])[i % 4 + 1], i * 2.5 from generate_series(0, 9) i";

/// Other styles of dates, and array_nulls = off, are refused by `weir_session::sharding::engine_settings`.
pub const SETTINGS: &str = "set statement_timeout = '30s'; set timezone = 'Europe/Berlin'; set datestyle = 'ISO, DMY'; set intervalstyle = 'iso_8601'; \
     set extra_float_digits = 2; set bytea_output = 'escape'; set transform_null_equals = on; set quote_all_identifiers = on";

/// Writes a number without the zeros at its end.
pub fn shorten(value: &mut String) {
    let is_decimal = value.contains('.') && value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    if is_decimal && value.matches('.').count() == 1 {
        value.truncate(value.trim_end_matches('0').trim_end_matches('.').len());
    }
}
