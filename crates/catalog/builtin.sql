-- Makes the two lists of src/builtin.rs: names of pg_catalog that may be answered by a standby.
--
-- Run with `psql -XAt -f builtin.sql` in an empty database of PostgreSQL 15 and one of 18 (the lists are from 15.20 and 18.6).
-- A line is `kind verdict name`. A name goes into a list when at least one server says `yes` and none says `no`:
--
--     cat 15.txt 18.txt | sort -u | awk '{seen[$1 " " $3] = seen[$1 " " $3] $2} END {for (n in seen) if (seen[n] == "yes") print n}' | LC_ALL=C sort
--
-- The rule: every overload that SQL can call is immutable or stable, or the name is on the list of volatile ones that only read; and
-- the name is not among those whose answer is about this server, this session or the primary, or that read whatever a string names.
-- Left out without loss: functions that no query can call, as they take or return the server's internal types.

with reading_though_volatile (name) as (values
    ('array_sample'), ('array_shuffle'), ('clock_timestamp'), ('gen_random_uuid'), ('pg_partition_ancestors'), ('pg_partition_tree'),
    ('pg_database_size'), ('pg_indexes_size'), ('pg_relation_size'), ('pg_sleep'),
    ('pg_sleep_for'), ('pg_sleep_until'), ('pg_table_size'), ('pg_tablespace_size'), ('pg_total_relation_size'), ('random'),
    ('random_normal'), ('timeofday'), ('uuidv4'), ('uuidv7')
), about_this_server (pattern) as (values
    -- the session
    ('current_setting'), ('inet\_client\_%'), ('pg_backend_pid'), ('pg_cursor'), ('pg_is_other_temp_schema'),
    ('pg_listening_channels'), ('pg_my_temp_schema'), ('pg_prepared\_%'), ('pg_show\_%'), ('pg_settings\_%'), ('pg_trigger_depth'),
    ('set_config'), ('setseed'), ('pg_event_trigger\_%'),
    -- the server: its processes, files, version
    ('%\_actual\_version'), ('pg_available\_%'), ('pg_conf_load_time'), ('pg_config'), ('pg_extension_update_paths'), ('pg_get_aios'),
    ('pg_get_backend\_%'), ('pg_get_loaded_modules'), ('pg_get_replication\_%'), ('pg_get_shmem\_%'), ('pg_get_wait_events'),
    ('pg_jit_available'), ('pg_lock\_%'), ('pg_ls\_%'), ('pg_numa\_%'), ('pg_postmaster_start_time'), ('pg_read\_%'), ('pg_stat\_%'),
    ('pg_tablespace_databases'), ('pg_tablespace_location'), ('version'),
    -- transactions, WAL, replication, sequences
    ('lastval'), ('mxid_age'), ('nextval'), ('pg_advisory\_%'), ('pg_control\_%'), ('pg_current\_%'), ('pg_export\_%'),
    ('pg_get_multixact\_%'), ('pg_get_wal\_%'), ('pg_is_in\_%'), ('pg_is_wal\_%'), ('pg_last\_%'), ('pg_logical\_%'),
    ('pg_replication\_%'), ('pg_sequence_last_value'), ('pg_snapshot\_%'), ('pg_split_walfile_name'), ('pg_visible_in_snapshot'),
    ('pg_wal\_%'), ('pg_walfile\_%'), ('pg_xact\_%'), ('setval'), ('txid\_%'),
    -- what reads relations that the text does not show
    ('%\_to\_xml%'), ('lo\_%'), ('loread'), ('ts_rewrite'), ('ts_stat')
), callable as (
    select p.proname as name, p.provolatile <> 'v' as steady
    from pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind <> 'p'
      and not p.proargtypes::oid[] && array['internal', 'cstring']::regtype[]::oid[]
      and p.prorettype <> all (array['internal', 'cstring', 'trigger', 'event_trigger', 'language_handler', 'fdw_handler',
                                     'index_am_handler', 'table_am_handler', 'tsm_handler']::regtype[])
), functions as (
    select name,
           (bool_and(steady) or name in (table reading_though_volatile))
           and not exists (select from about_this_server s where c.name like s.pattern) as fine
    from callable c group by name
), operators as (
    select o.oprname as name, bool_and(p.provolatile <> 'v') as fine
    from pg_operator o join pg_proc p on p.oid = o.oprcode
    where o.oprnamespace = 'pg_catalog'::regnamespace group by o.oprname
)
select concat_ws(' ', 'function', case when fine then 'yes' else 'no' end, name) from functions
union all
select concat_ws(' ', 'operator', case when fine then 'yes' else 'no' end, name) from operators
order by 1;
