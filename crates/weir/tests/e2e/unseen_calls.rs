//! Roles and settings left by functions that run although no text calls them are their session's, and nobody else's: those of domains,
//! operators, casts, aggregates, indexes and defaults of arguments, functions called like columns, and texts that PostgreSQL's own functions run.

use crate::support::ground::wait_for_catalog;
use crate::support::{Ground, Proxy, Raw, wire};

/// One connection that two clients of one login share.
const CONF: &str = "worker_threads = 1\npool_size = 1";

/// `leaves` sets a role, and the tenant for which rows are seen. A volatile one, and one that says that it is not.
const LEAVES: &str = "
    create function leaves(text) returns bool language plpgsql as
        $$ begin perform set_config('role', 'pg_monitor', false); perform set_config('app.tenant', 'a', false); return true; end $$;
    create function leaves_quietly(text) returns text language plpgsql immutable as
        $$ begin perform set_config('role', 'pg_monitor', false); perform set_config('app.tenant', 'a', false); return $1; end $$;
    create table plain (a text, b int); insert into plain values ('x', 1);
    create function harmless(text) returns bool language plpgsql as $$ begin return $1 <> ''; end $$;
    grant all on plain to pg_monitor;";

/// Two clients of one login that is no superuser: the server does not report a change of its role.
struct Stage<'g> {
    ground: &'g Ground,
    proxy: Proxy,
    user: String,
    client: Raw,
    other: Raw,
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ground.prepare(&format!("drop owned by {0} cascade; drop role {0}", self.user));
        }
    }
}

impl Stage<'_> {
    fn new<'g>(ground: &'g Ground, more: &str) -> Stage<'g> {
        let user = format!("unseen_{}", ground.database);
        ground.prepare(&format!(
            "create role {user} login; grant pg_monitor to {user}; grant all on schema public to {user}, pg_monitor;
             grant create on database {} to {user}",
            ground.database
        ));
        ground.prepare(&format!("set role {user}; {LEAVES} {more}"));
        let proxy = ground.primary_proxy(CONF);
        let log_in = || {
            let mut client = Raw::tcp(proxy.port()).log_in(&user, &ground.database, &[]).unwrap();
            wait_for_catalog(&mut client, &ground.database);
            client
        };
        let (client, other) = (log_in(), log_in());
        Stage { ground, proxy, user, client, other }
    }

    /// Defines something past Weir.
    fn define(&self, text: &str) {
        self.ground.prepare(&format!("set role {}; {text}", self.user));
    }

    /// The session has the role and the setting, and nobody else; then they are taken back.
    fn check(&mut self, what: &str) {
        const READ: &str = "select current_user, coalesce(current_setting('app.tenant', true), '')";
        let read = |client: &mut Raw| client.rows(READ).concat();
        let own = [self.user.as_str(), ""];
        assert_eq!(read(&mut self.other), own, "the other one has what was left by: {what}");
        assert_eq!(read(&mut self.client), ["pg_monitor", "a"], "lost is what was set by: {what}");
        self.client.run("reset role; reset app.tenant");
        assert_eq!(read(&mut self.client), own, "after {what}");
    }

    /// Three times: from the second time on functions are known.
    fn run(&mut self, text: &str) {
        for _ in 0..3 {
            self.client.run(text);
            self.check(text);
        }
    }

    fn extended(&mut self, text: &str, values: &[&str]) {
        // A statement that gives no row has no first value.
        let _ = self.client.extended(text, values);
        self.check(text);
    }

    /// Statements that leave nothing, and cost no question.
    fn check_costs_nothing(&mut self, texts: &[&str]) {
        wait_for_catalog(&mut self.client, &self.ground.database);
        // The first uses read the sources of the functions that they call.
        texts.iter().for_each(|text| self.client.run(text));
        let asked = self.proxy.metric("inventories_total");
        for text in texts {
            self.client.run(text);
            assert_eq!(self.proxy.metric("inventories_total"), asked, "{text}");
        }
    }
}

/// A Parse that says of which type its parameter is.
fn parse_with_type(text: &str, kind: u32) -> Vec<u8> {
    let mut body = b"\0".to_vec();
    body.extend_from_slice(text.as_bytes());
    body.extend_from_slice(&[0, 0, 1]);
    body.extend_from_slice(&kind.to_be_bytes());
    wire::message(b'P', &body)
}

const DOMAINS: &str = r#"
    create domain checked as text check (leaves(value));
    create domain "Odd one" as text check (leaves(value));
    create schema other; create domain other.away as text check (leaves(value));
    create domain over_it as checked; create domain own_call as text check (set_config('role', 'pg_monitor', false) is not null
        and set_config('app.tenant', 'a', false) is not null);
    create domain by_default as text default (case when leaves('') then 'd' end);
    create domain fine as text check (harmless(value));
    create type pair as (a checked, b int);
    create table direct (d checked, n int); create table indirect (d over_it, n int); create table listed (d checked[], n int);
    create table nested (d pair, n int); create table initial (d by_default, n int); create table safe (d fine, n int);
    create view seen as select d from direct; create view cast_in as select a::checked as d from plain;
    create function takes(checked) returns int language plpgsql as 'begin return 1; end';
    grant all on direct, indirect, listed, nested, initial, safe, seen, cast_in to pg_monitor; grant usage on schema other to pg_monitor;"#;

#[test]
fn checks_of_domains_that_a_text_names_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(&ground, DOMAINS);
    stage.run("select 'x'::checked");
    stage.run("select cast('x' as checked)");
    stage.run("select checked 'x'");
    stage.run("select checked('x'::text)");
    stage.run(r#"select 'x'::"Odd one""#);
    stage.run("select 'x'::other.away");
    stage.run("select 'x'::over_it");
    stage.run("select 'x'::own_call");
    stage.run("select '{x}'::checked[]");
    stage.run("select '{x}'::_checked");
    stage.run("select '(x,1)'::pair");
    stage.run("select row('x', 1)::pair");
    stage.run("select * from json_to_record('{\"d\": \"x\"}') as r (d checked)");
    stage.run("select * from json_populate_record(null::direct, '{\"d\": \"x\"}')");
    stage.run("select d from cast_in");
    stage.run("select takes('x')");
    stage.run("select ('x'::text).checked");
    stage.run("begin; select 1; select 'x'::checked; commit");
    stage.run("prepare p as select $1::checked; execute p ('x'); deallocate p");
    stage.run("prepare p (checked) as select $1; execute p ('x'); deallocate p");
    stage.run("prepare p as select '{x}'::checked[]; deallocate p");
    stage.run("set search_path = other; select 'x'::away; reset search_path");
    stage.extended("select $1::checked", &["x"]);
    stage.extended("select $1::checked[]", &["{x}"]);
    stage.extended("select takes($1)", &["x"]);
    for _ in 0..2 {
        stage.client.send(
            &[
                parse_with_type("select $1", oid(&ground, "checked")),
                wire::bind("", "", &["x"]),
                wire::execute("", 0),
                wire::sync(),
            ]
            .concat(),
        );
        stage.client.until_ready();
        stage.check("a parameter whose Parse has the domain's number");
    }
    stage.client.send(&[wire::parse("", "select '{x}'::checked[]"), wire::sync()].concat());
    stage.client.until_ready();
    stage.check("a Parse alone");
    if ground.direct().value("select current_setting('server_version_num')::int >= 160000") == "t" {
        stage.run("select pg_input_is_valid('x', 'checked')");
        stage.run("select message from pg_input_error_info('x', 'checked')");
    }
    stage.run(&format!("select domain_in('x', {}, -1) is null", oid(&ground, "checked")));
    stage.check_costs_nothing(&[
        "select 1",
        "select a::text from plain",
        "select lower(a) from plain p",
        "select p.a from plain p",
        "select 'x'::fine",
    ]);
}

fn oid(ground: &Ground, kind: &str) -> u32 {
    ground.direct().value(&format!("select '{kind}'::regtype::oid")).parse().unwrap()
}

#[test]
fn checks_of_domains_behind_columns_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(&ground, DOMAINS);
    stage.run("insert into direct values ('x', 1)");
    stage.run("insert into direct (n) values (1)");
    stage.run("update direct set d = 'y'");
    stage.run("insert into indirect values ('x', 1)");
    stage.run("insert into listed values ('{x}', 1)");
    stage.run("insert into nested values ('(x,1)', 1)");
    stage.run("update nested set d.a = 'y'");
    stage.run("insert into initial (n) values (1)");
    stage.run("insert into seen values ('x')");
    stage.run("select array_append(d, 'y') from listed");
    stage.run("select lag(d, 1, 'z') over () from direct");
    stage.run("create temp table brief on commit drop as select * from direct limit 0; insert into brief values ('x', 1)");
    stage.extended("insert into direct values ($1, 1)", &["x"]);
    stage.extended("insert into listed values ($1, 1)", &["{x}"]);
    stage.extended("update direct set d = $1", &["y"]);
    for _ in 0..2 {
        stage.client.send(&wire::query("copy direct from stdin"));
        assert_eq!(stage.client.read().tag, b'G');
        stage.client.send(&[wire::message(b'd', b"x\t1\n"), wire::message(b'c', b"")].concat());
        stage.client.until_ready();
        stage.check("copy");
    }
    stage.check_costs_nothing(&[
        "insert into plain values ('x', 1)",
        "insert into safe values ('x', 1)",
        "select d from safe",
        "update plain set a = 'y'",
    ]);
}

#[test]
fn functions_called_like_columns_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        r#"create function leaf(plain) returns bool language sql as $$ select leaves('') $$;
           create function "Leaf"(plain) returns bool language plpgsql as $$ begin return leaves(''); end $$;
           create function any_leaf(anyelement) returns bool language plpgsql as $$ begin return leaves(''); end $$;
           create function calls() returns bool language sql as $$ select p.leaf from plain p $$;
           create view by_row as select p.leaf as c from plain p; grant select on by_row to pg_monitor"#,
    );
    stage.run("select p.leaf from plain p");
    stage.run("select plain.leaf from plain");
    stage.run("select public.plain.leaf from plain");
    stage.run("select (p).leaf from plain p");
    stage.run(r#"select p."Leaf" from plain p"#);
    stage.run("select (row('x', 1)::plain).leaf");
    stage.run("select p.any_leaf from plain p");
    stage.run("select 1 from plain p where p.leaf");
    stage.run("select 1 from plain p order by p.leaf");
    stage.run("delete from plain p where p.leaf is null");
    stage.run("select c from by_row");
    stage.run("select calls()");
    stage.extended("select p.leaf, $1::text from plain p", &["x"]);
    stage.check_costs_nothing(&["select p.a from plain p", "select a from plain", "insert into plain values ('x', 1)"]);
}

#[test]
fn texts_that_functions_of_postgresql_run_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create view shows as select leaves(a) from plain; grant select on shows to pg_monitor;
         create function wraps(q text) returns int language sql as $$ select query_to_xml(q, true, true, ''); select 1 $$;
         create function updates() returns void language sql as $$ update pg_settings set setting = '13MB' where name = 'work_mem' $$;
         create schema xs; create view xs.v as select leaves('')",
    );
    let run = "select set_config(''role'', ''pg_monitor'', false), set_config(''app.tenant'', ''a'', false)";
    stage.run(&format!("select query_to_xml('{run}', true, true, '')"));
    stage.run(&format!("select query_to_xml_and_xmlschema('{run}', true, true, '')"));
    stage.run(&format!("select pg_catalog.query_to_xml('{run}', true, true, '')"));
    stage.run(&format!("select wraps('{run}')"));
    stage.run("select table_to_xml('shows', true, true, '')");
    stage.run("select schema_to_xml('xs', true, true, '')");
    stage.run("select * from ts_stat('select to_tsvector(leaves(''x'')::text)')");
    stage.run("select ts_rewrite('a'::tsquery, 'select ''a''::tsquery, leaves(''x'')::text::tsquery')");
    stage.extended("select query_to_xml($1, true, true, '')", &[&run.replace("''", "'")]);
    for _ in 0..3 {
        stage.client.run("select updates()");
        assert_eq!(stage.other.value("show work_mem"), "4MB", "an update of pg_settings within a function");
        assert_eq!(stage.client.value("show work_mem"), "13MB");
        stage.client.run("reset work_mem");
    }
}

#[test]
fn a_view_over_the_settings_counts() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create view mine as select name, setting from pg_settings; create view mine_too as select * from mine",
    );
    for view in ["mine", "mine_too"] {
        stage.client.run(&format!("update {view} set setting = '13MB' where name = 'work_mem'"));
        assert_eq!(stage.other.value("show work_mem"), "4MB", "{view}");
        assert_eq!(stage.client.value("show work_mem"), "13MB");
        stage.client.run("reset work_mem");
    }
}

#[test]
fn operators_casts_aggregates_and_defaults_of_arguments_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create function leaves_both(text, text) returns bool language sql as 'select leaves($1)';
         create operator === (leftarg = text, rightarg = text, function = leaves_both);
         create view operated as select a === 'x' as c from plain; grant select on operated to pg_monitor;
         create function step(text, text) returns text language plpgsql as $$ begin perform leaves($2); return $1; end $$;
         create aggregate gathers(text) (sfunc = step, stype = text, initcond = '');
         create aggregate sets(text, bool) (sfunc = set_config, stype = text, initcond = 'app.tenant');
         create view gathered as select gathers(a) from plain; grant select on gathered to pg_monitor;
         create function by_default(a int, b bool default leaves('')) returns int language plpgsql as 'begin return a; end';
         create function lower(plain) returns text language plpgsql as $$ begin perform leaves(''); return ''; end $$;
         create function pg_mine() returns bool language sql as $$ select leaves('') $$;
         create type mood as enum ('sad'); create type other_mood as enum ('glad');
         create function as_other(mood) returns other_mood language plpgsql as $$ begin perform leaves(''); return 'glad'; end $$;
         create cast (mood as other_mood) with function as_other(mood)",
    );
    stage.run("select 'a'::text === 'b'");
    stage.run("select 'a'::text operator(public.===) 'b'");
    stage.run("select c from operated");
    stage.run("select gathers(a) from plain");
    stage.run("select gathers(a) over () from plain");
    stage.run("select * from gathered");
    stage.run("select by_default(1)");
    stage.run("select lower(p) from plain p");
    stage.run("select pg_mine()");
    stage.run("select 'sad'::mood::other_mood");
    stage.client.run("select sets('b', false)");
    assert_eq!(stage.other.value("select coalesce(current_setting('app.tenant', true), '')"), "");
    stage.client.run("reset app.tenant");
    stage.check_costs_nothing(&["select p.a from plain p where a = 'x'", "insert into plain values ('x', 1)"]);
}

#[test]
fn casts_and_operators_that_no_text_shows_count() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create type mood as enum ('sad'); create function as_text(mood) returns text language plpgsql as $$ begin perform leaves(''); return ''; end $$;
         create cast (mood as text) with function as_text(mood) as assignment; create table moods (m mood); insert into moods values ('sad');
         grant all on moods to pg_monitor",
    );
    stage.run("insert into plain (a) select m from moods");
    stage.define("create function as_number(mood) returns int language plpgsql as $$ begin perform leaves(''); return 1; end $$");
    stage.define("create cast (mood as int) with function as_number(mood)");
    stage.run("select m::int from moods");
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create function same(text, int) returns bool language sql as 'select leaves($1)';
         create operator = (leftarg = text, rightarg = int, function = same)",
    );
    stage.run("select a = 1 from plain");
    stage.run("select 'x'::text = 1");
}

#[test]
fn checks_policies_indexes_and_triggers_count_whatever_they_call() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create table by_check (a text, check (a <> '' and set_config('role', 'pg_monitor', false) is not null and set_config('app.tenant', 'a', false) is not null));
         create table by_index (a text); create index on by_index (leaves_quietly(a));
         create table by_part_index (a text); create index on by_part_index (a) where leaves_quietly(a) <> '';
         create table by_key (a text) partition by list (leaves_quietly(a)); create table by_key_1 partition of by_key default;
         create table by_expression (a text, b text generated always as (leaves_quietly(a)) stored);
         create table by_when (a text); insert into by_when values ('a'); create trigger w before update on by_when for each row
            when (set_config('role', 'pg_monitor', false) is not null and set_config('app.tenant', new.a, false) is not null)
            execute function suppress_redundant_updates_trigger();
         create function nothing() returns trigger language plpgsql as $$ begin return new; end $$;
         create trigger w_too before insert on by_when for each row when (new.a::text = leaves_quietly(new.a)) execute function nothing();
         create table by_policy (a text); alter table by_policy enable row level security; insert into by_policy values ('a');
         create policy p on by_policy using (set_config('app.tenant', 'a', false) is not null);
         grant all on by_check, by_index, by_part_index, by_key, by_expression, by_when, by_policy to pg_monitor",
    );
    for table in ["by_check", "by_index", "by_part_index", "by_key", "by_expression", "by_when"] {
        stage.run(&format!("insert into {table} (a) values ('a')"));
    }
    stage.run("update by_when set a = 'a'");
    stage.run("alter table by_check alter a type text using a || 'a'");
    for _ in 0..2 {
        // A superuser's reads pass by policies.
        stage.client.run("set role pg_monitor");
        stage.client.run("select a from by_policy");
        stage.check("a policy");
    }
    stage.check_costs_nothing(&["insert into plain values ('x', 1)", "select a from plain"]);
}

#[test]
fn what_is_defined_later_counts_too() {
    let ground = Ground::new();
    let mut stage = Stage::new(&ground, "create table grows (a text, b text); grant all on grows to pg_monitor");
    stage.client.run("select 1");
    // Through Weir it counts at once.
    stage.client.run("create domain late as text check (leaves(value))");
    stage.run("select 'x'::late");
    stage.client.run("create function late_leaf(plain) returns bool language sql as $$ select leaves('') $$");
    stage.run("select p.late_leaf from plain p");
    stage.client.run("create view late_view as select leaves(a) from plain; grant select on late_view to pg_monitor");
    stage.run("select * from late_view");
    stage.client.run("alter table grows alter a type late");
    stage.run("insert into grows values ('x')");
    stage.client.run("begin; create domain within as text check (leaves(value)); select 'x'::within; commit");
    stage.check("a domain of the same transaction");
    // Past Weir it counts from the next look on.
    for (at, (define, text)) in [
        ("create domain past as text check (leaves(value))", "select 'x'::past"),
        ("alter table grows alter b type past", "insert into grows (b) values ('x')"),
        ("create type holds as (d past)", "select '(x)'::holds"),
        ("create table indexed (a text); grant all on indexed to pg_monitor", "select leaves(a) from plain"),
        ("create index on indexed (leaves_quietly(a))", "insert into indexed values ('x')"),
        ("create aggregate late_sum(text) (sfunc = leaves_two, stype = text)", "select late_sum(a) from plain"),
    ]
    .into_iter()
    .enumerate()
    {
        if define.contains("leaves_two") {
            stage.define("create function leaves_two(text, text) returns text language sql as $$ select leaves($1)::text $$");
        }
        stage.define(define);
        // A definition through Weir has it look at once, and the look finds the other one too.
        stage.client.run(&format!("create table mark_{at} ()"));
        wait_for_catalog(&mut stage.proxy.console(), &ground.database);
        stage.run(text);
    }
}

#[test]
fn a_name_put_together_counts_if_the_database_reads_it() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create function inner_one() returns void language plpgsql as $$ begin perform set_config('app.tenant', 'a', false); end $$;
         create function outer_one() returns void language plpgsql as $$ begin perform inner_one(); end $$;
         create function pieces(n text) returns void language plpgsql as $$ begin perform set_config('app' || '.' || n, 'a', false); end $$;
         create table rows_of (tenant text); insert into rows_of values ('a'), ('b');
         alter table rows_of enable row level security; create policy p on rows_of using (tenant = current_setting('app.tenant', true));
         create view by_view as select current_setting('app.viewed', true) as v",
    );
    const TENANT: &str = "select coalesce(current_setting('app.tenant', true), '')";
    for text in ["select outer_one()", "select pieces('tenant')", "do $$ begin perform pieces('tenant'); end $$"] {
        for _ in 0..3 {
            stage.client.run(text);
            assert_eq!(stage.other.value(TENANT), "", "{text}");
            assert_eq!(stage.client.value(TENANT), "a", "{text}");
            stage.client.run("reset app.tenant");
        }
    }
    stage.client.run("select pieces('viewed')");
    assert_eq!(stage.other.value("select coalesce(v, '') from by_view"), "");
    assert_eq!(stage.client.value("select v from by_view"), "a");
}

#[test]
fn a_name_that_nothing_shows_is_cleaned_away_where_the_operator_wants_it() {
    let ground = Ground::new();
    let mut stage = Stage::new(
        &ground,
        "create function pieces(n text) returns void language plpgsql as $$ begin perform set_config('app' || '.' || n, 'a', false); end $$",
    );
    const HIDDEN: &str = "select coalesce(current_setting('app.' || 'hidden', true), '')";
    stage.client.run("select pieces('hidden')");
    assert_eq!(stage.other.value(HIDDEN), "a", "a name that no text, source or expression shows is not known");
    let always = format!("limit_override_list = 'user={}: reset_query_always=on'\n", stage.user);
    stage.proxy.add_conf(&always);
    stage.proxy.reload();
    for text in ["select pieces('hidden')", "begin; select pieces('hidden'); commit"] {
        stage.client.run("set work_mem = '13MB'");
        let resets = stage.proxy.metric("server_connections_reset_total");
        stage.client.run(text);
        assert_eq!(stage.other.value(HIDDEN), "", "{text}");
        assert_eq!(stage.other.value("show work_mem"), "4MB");
        assert_eq!(stage.client.value("show work_mem"), "13MB", "known settings follow their session all the same");
        assert!(stage.proxy.metric("server_connections_reset_total") > resets);
    }
    stage.client.run("prepare p as select 7");
    assert_eq!(stage.client.value("execute p"), "7");
    for _ in 0..3 {
        assert_eq!(stage.client.extended("select $1::int + 1", &["6"]).unwrap(), "7");
    }
}
