-- What the random statements of one session are about. MINE stands for the session's own schema; all others' are made the same way.
create schema MINE;
set search_path = MINE;

-- Every function that writes leaves a row here, so that a call that was lost, or made twice, shows.
create table log (id serial, what text, n int);

create table t0 (id int primary key, n int default 0, s text default 'new');
insert into t0 select i, i * 3 % 7, 'text ' || i from generate_series(1, 9) i;
create table t1 (id int primary key, n int default 0, k int references t0 on delete set null, s text);
insert into t1 select i, i % 4, i / 2 + 1, repeat('x', i) from generate_series(1, 6) i;
create unlogged table u0 (id int primary key, n int);
insert into u0 values (1, 1), (2, 4), (3, 9);
create table p0 (id int, n int) partition by list (id);
create table p0_a partition of p0 for values in (1, 2, 3);
create table p0_b partition of p0 default;
insert into p0 select i, i + 10 from generate_series(1, 6) i;
create table parent (id int, n int);
create unlogged table child () inherits (parent);
insert into parent values (1, 1), (2, 2);
insert into child values (3, 3);
create sequence sq;
create table drawn (id int default nextval('sq'), n int generated always as identity);

-- Functions that are what they say.
create function pure(int) returns int language sql immutable as 'select $1 * 2 + 1';
create function reads(int) returns int language sql stable as 'select count(*)::int + $1 from MINE.t0';
create function reads_more(int) returns int language plpgsql stable as
    'declare r int; begin select MINE.reads(max(n)) into r from MINE.t1 where id < $1; return coalesce(r, -1); end';
create function rows_of(int) returns table (id int, n int) language sql stable as 'select id, n from MINE.t0 where id <= $1';
create function writes(int) returns int language sql as 'insert into MINE.log (what, n) values (''writes'', $1) returning n';
create function hidden(int) returns int language plpgsql as
    $$ begin execute format('insert into MINE.log (what, n) values (%L, %s)', 'hidden', coalesce($1::text, 'null')); return $1; end $$;
create function draws() returns int language sql as 'select nextval(''MINE.sq'')::int';
create function definer(int) returns int language sql security definer as 'update MINE.t1 set n = n + 1 where id = $1 returning n';
create function rows_written(int) returns table (id int, n int) language sql as
    'insert into MINE.log (what, n) select ''rows_written'', i from generate_series(1, least($1, 3)) i returning n, n';
create function tries(int) returns int language plpgsql as
    'begin insert into MINE.t0 (id) values ($1); return 1; exception when unique_violation then return 0; end';

-- Two of one name, one of which writes.
create function twice(int) returns int language sql stable as 'select $1 + 2';
create function twice(text) returns int language sql as 'insert into MINE.log (what, n) values ($1, 0) returning n';

-- Functions that say they only read, and do not.
create function liar(int) returns int language sql stable as 'select MINE.writes($1)';
create function liar_drawing() returns int language plpgsql immutable as 'begin return nextval(''MINE.sq''); end';
create function liar_unlogged() returns int language sql stable as 'select count(*)::int from MINE.u0';
create function locks(int) returns int language sql as 'select n from MINE.t0 where id = $1 for update';
create function liar_locking(int) returns int language sql stable as 'select MINE.locks($1)';

create aggregate total(int) (sfunc = int4pl, stype = int, initcond = '0');
create function collect(int, int) returns int language sql as 'insert into MINE.log (what, n) values (''collect'', $2) returning $1 + 1';
create aggregate collected(int) (sfunc = collect, stype = int, initcond = '0');

create function both_write(int, int) returns int language sql as
    'insert into MINE.log (what, n) values (''<+>'', $1) returning $1 operator(pg_catalog.+) $2';
create function both_read(int, int) returns int language sql immutable as 'select $1 * 10 + $2';
create operator <+> (function = both_write, leftarg = int, rightarg = int);
create operator <*> (function = both_read, leftarg = int, rightarg = int);

-- Writing where no function is named: a cast, a default of an argument.
create type pair as (a int);
create function pair_int(pair) returns int language sql as 'insert into MINE.log (what, n) values (''cast'', $1.a) returning n';
create cast (pair as int) with function pair_int(pair);
create function defaulted(a int, b int default writes(7)) returns int language sql stable as 'select $1 + $2';

-- Functions that change the session.
create function sets_path(text) returns int language plpgsql as
    $$ begin perform set_config('search_path', $1, false); return 1; end $$;
create function makes_temporary() returns int language plpgsql as
    'begin create temp table if not exists kept (id int, n int); insert into kept values (8, 8); return 1; end';

create view v_plain as select id, n from t0 where n > 1;
create view v_deep as select v.id, v.n + t.n as n from v_plain v join t1 t on t.id = v.id;
create view v_deeper as select id, max(n) as n from (select * from v_deep union all select * from v_plain) s group by id;
create view v_function as select id, reads(n) as n from t0;
create view v_writes as select id, writes(n) as n from t1;
create view v_on_writes as select id, n from v_writes where id < 4;
create view v_liar as select id, liar(id) as n from t1 where id = 1;
create view v_unlogged as select id, n from u0;
create view v_on_unlogged as select t.id, v.n from t0 t left join v_unlogged v using (id);
create view v_draws as select id, nextval('sq')::int as n from t1;
create view v_operator as select id, id <+> n as n from t1;
create view v_catalog as select 1 as id, count(*)::int * 0 as n from pg_catalog.pg_class;
create view v_partitions as select id, n from p0 union all select id, n from parent;
create materialized view m0 as select id, n from v_deeper;

create table ruled (id int, n int);
create rule also as on insert to ruled do also insert into log (what, n) values ('ruled', new.n);
create view v_ruled as select id, n from ruled;
create rule instead as on insert to v_ruled do instead insert into ruled values (new.id, new.n);

create function on_insert() returns trigger language plpgsql as
    $$ begin insert into log (what, n) values ('trigger', new.id); return new; end $$;
alter function on_insert() set search_path = MINE;
create trigger told after insert on t1 for each row execute function on_insert();

create procedure writes_and_commits(int) language plpgsql as
    $$ begin insert into MINE.log (what, n) values ('procedure', $1); commit; insert into MINE.log (what, n) values ('after', $1); end $$;
create procedure only_reads(inout a int) language plpgsql as 'begin select count(*) into a from MINE.t0; end';

-- Names that mean something else once this schema is searched first.
create schema MINE_odd;
create table MINE_odd.t0 (id int, n int, s text);
insert into MINE_odd.t0 values (100, 1, 'odd');
create function MINE_odd.pure(int) returns int language sql as 'insert into MINE.log (what, n) values (''odd pure'', $1) returning n';
create function MINE_odd.lower(text) returns text language sql as 'insert into MINE.log (what, n) values ($1, -1) returning what';
create function MINE_odd.abs(int) returns int language sql as 'insert into MINE.log (what, n) values (''odd abs'', $1) returning n';
create operator MINE_odd.+ (function = both_write, leftarg = int, rightarg = int);
create view MINE_odd.v_plain as select id, MINE.writes(n) as n from MINE.t1;
create unlogged table MINE_odd.t1 (id int, n int, k int, s text);

-- What a role without rights sees is decided by a policy, which may write.
create table guarded (id int, n int);
insert into guarded values (1, 1), (2, 2);
create table watched (id int, n int);
insert into watched values (1, 1), (2, 2);
alter table guarded enable row level security;
alter table watched enable row level security;
create policy p on guarded using (reads(id) > 0 and id < 2);
create policy p on watched using (writes(id) > 0);
grant usage on schema MINE, MINE_odd to weir_random;
grant all on all tables in schema MINE, MINE_odd to weir_random;
grant all on all sequences in schema MINE, MINE_odd to weir_random;
