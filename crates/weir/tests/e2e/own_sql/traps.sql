-- Objects named as those of pg_catalog that Weir's own texts use, and more that would fit better than those. A session that reaches one is told of in the
-- server's log, and gets an error. FUNCTIONS, RELATIONS and OPERATORS stand for arrays of names.
create schema evil;
grant usage on schema evil to public;
create function evil.sprung(what text) returns bool language plpgsql set search_path = pg_catalog as $$
begin raise log 'weir_trap: % for %', what, session_user; raise exception 'weir_trap: %', what; end $$;
create function evil.trap(name text, takes text, gives text, what text) returns void language plpgsql as $$
begin
  execute format('create function evil.%I(%s) returns %s language plpgsql set search_path = pg_catalog as %L', name, takes, gives,
    format('begin raise log ''weir_trap: %%'', %L; raise exception ''weir_trap: %%'', %L; end', what, what));
exception when duplicate_function or invalid_function_definition or feature_not_supported then null; end $$;
do $do$
declare
  known record; kind text;
  simple text[] := array['text', 'name', 'oid', 'int4', 'int8', 'numeric', 'float8', 'xid', '"char"', 'interval', 'timestamptz', 'pg_lsn'];
begin
  -- Each function that is there, and for one that takes anything some simple types.
  for known in
    select p.proname, coalesce((select r.oid::regtype::text from pg_type r where r.oid = p.prorettype and r.typtype <> 'p'), 'bool') as gives,
      array(select t.oid::regtype::text from unnest(p.proargtypes::oid[]) with ordinality a (o, n) join pg_type t on t.oid = a.o order by a.n) as takes,
      exists (select from pg_type t where t.oid = any (p.proargtypes::oid[]) and t.typtype = 'p') as is_any
    from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any (FUNCTIONS)
  loop
    if known.is_any then
      foreach kind in array simple loop perform evil.trap(known.proname, kind, known.gives, 'function ' || known.proname); end loop;
      perform evil.trap(known.proname, 'variadic text[]', known.gives, 'function ' || known.proname);
    else
      perform evil.trap(known.proname, array_to_string(known.takes, ', '), known.gives, 'function ' || known.proname);
    end if;
  end loop;
  -- Each operator that is there, and those of arithmetic and comparison for all pairs of simple types.
  for known in
    select o.oprname as name, o.oprleft::regtype::text as l, o.oprright::regtype::text as r, o.oprresult::regtype::text as gives from pg_operator o
      join pg_type l on l.oid = o.oprleft and l.typtype <> 'p' join pg_type r on r.oid = o.oprright and r.typtype <> 'p'
      where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = any (OPERATORS)
    union all
    select o.name, l.name, r.name, case when o.name ~ '^[-+*/]$' then 'numeric' else 'bool' end
      from unnest(array['=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '/']) o (name), unnest(simple) l (name), unnest(simple) r (name)
  loop
    perform evil.trap('of_' || known.gives, known.l || ', ' || known.r, known.gives, 'operator ' || known.name);
    begin
      execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.%I)', known.name, known.l, known.r, 'of_' || known.gives);
    exception when duplicate_function then null; end;
  end loop;
  -- Relations and types.
  for known in select relname as name from pg_class where relnamespace = 'pg_catalog'::regnamespace and relname = any (RELATIONS) loop
    execute format('create view evil.%I as select %s from pg_catalog.%I where evil.sprung(%L)', known.name,
      (select string_agg(case when atttypid = 'anyarray'::regtype then format('null::text as %I', attname) else quote_ident(attname) end, ', ')
        from pg_attribute where attrelid = ('pg_catalog.' || quote_ident(known.name))::regclass and attnum > 0), known.name, 'relation ' || known.name);
    execute format('grant select on evil.%I to public', known.name);
  end loop;
  foreach kind in array array['text', 'name', 'oid', 'int4', 'int8', 'numeric', 'bool', 'regclass', 'timestamptz'] loop
    execute format('create domain evil.%I as pg_catalog.%I check (evil.sprung(%L))', kind, kind, 'type ' || kind);
  end loop;
end $do$;
