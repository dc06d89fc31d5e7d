#!/bin/sh
# pg_dump in its formats, alone and with jobs; what was dumped is restored to another database and must be the same there.
set -eu

copy="${PGDATABASE}_copy"
ask() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

# A database that was used before has a schema public without its comment and rights; a dump tells of both.
ask -c 'set client_min_messages = warning' -c 'drop schema public cascade' -c 'create schema public'
ask <<'SQL'
create type mood as enum ('sad', 'happy');
create domain small as int check (value < 1000);
create table items (a int primary key, b text not null default 'x', m mood, s small, at timestamptz default '2024-02-03 04:05+00');
insert into items select n, repeat('item ' || n || E' \\ "''\t', 20), 'happy', n % 1000 from generate_series(1, 5000) n;
create index items_b on items (md5(b)) where s > 5;
create table parts (a int, b bytea) partition by range (a);
create table parts_1 partition of parts for values from (0) to (100);
create table parts_2 partition of parts for values from (100) to (1000);
insert into parts select n, decode(md5(n::text), 'hex') from generate_series(0, 999) n;
create table lines (id bigint generated always as identity, item int references items, total numeric check (total >= 0));
insert into lines (item, total) select n, n / 7.0 from generate_series(1, 3000) n;
create view happy as select a, b from items where m = 'happy';
create materialized view sums as select item % 10 as k, sum(total) as total from lines group by 1;
create sequence counter start 50; select from nextval('counter');
create function twice(n int) returns int language plpgsql as $$ begin return 2 * n; end $$;
create function note() returns trigger language plpgsql as $$ begin new.b := coalesce(new.b, 'none'); return new; end $$;
create trigger note before insert on items for each row execute function note();
comment on table items is 'it''s "commented"';
create schema "Other One"; create table "Other One"."Mixed Case" ("The Key" int);
insert into "Other One"."Mixed Case" select generate_series(1, 10);
alter table items enable row level security; create policy "some" on items for select using (a > 0);
SQL
ask -c "select lo_from_bytea(4000000, '\\x0102030405')" >/dev/null

# Contents of a database, in one line each.
look() {
    ask -d "$1" -c "select 'items', count(*), md5(string_agg(i::text, ',' order by a)) from items i
        union all select 'parts', count(*), md5(string_agg(p::text, ',' order by a)) from parts p
        union all select 'lines', count(*), md5(string_agg(l::text, ',' order by id)) from lines l
        union all select 'sums', count(*), md5(string_agg(s::text, ',' order by k)) from sums s
        union all select 'mixed', count(*), sum(\"The Key\")::text from \"Other One\".\"Mixed Case\"
        union all select 'large objects', count(*), string_agg(encode(lo_get(oid), 'hex'), ',') from pg_largeobject_metadata
        union all select 'counter', twice(last_value::int), is_called::text from counter order by 1"
}

# A dump as text, without what names versions and without the key that differs each time.
text() { pg_dump "$@" | grep -v -e '^-- Dumped' -e '^\\restrict' -e '^\\unrestrict'; }

anew() { ask -d postgres -c "drop database if exists \"$copy\"" -c "create database \"$copy\" template template0"; }

echo "a text: $(text --create | sed "s/$PGDATABASE/NAME/g" | md5sum)"
echo "only the schema: $(text -s | md5sum)"
echo "only data, as inserts: $(text -a --inserts --rows-per-insert=50 -t lines | md5sum)"
echo "serializable: $(text --serializable-deferrable | md5sum)"

anew; text | psql -Xq -v ON_ERROR_STOP=1 -d "$copy" >/dev/null
echo "restored by psql"; look "$copy"

pg_dump -Fc -f custom
anew; pg_restore -d "$copy" custom
echo "restored from the custom format"; look "$copy"
anew; pg_restore -j2 -d "$copy" custom
echo "restored from the custom format by two"; look "$copy"

pg_dump -Fd -j2 -f folder
anew; pg_restore -j2 --exit-on-error -d "$copy" folder
echo "dumped and restored by two"; look "$copy"
pg_restore --clean --if-exists --single-transaction -d "$copy" folder
echo "restored over it, in one transaction"; look "$copy"

pg_dump -Ft -d "$copy" | pg_restore -l | grep -c -v '^;' 
echo "the same text again: $([ "$(text | md5sum)" = "$(text -d "$copy" | md5sum)" ] && echo yes)"
pg_dumpall --globals-only | grep -c '^CREATE ROLE'
vacuumdb -j2 -z -q -d "$copy"; reindexdb -q -j2 -d "$copy"; clusterdb -q -d "$copy"
echo "vacuumed, reindexed, clustered"; look "$copy"
ask -d postgres -c "drop database \"$copy\""
echo done
