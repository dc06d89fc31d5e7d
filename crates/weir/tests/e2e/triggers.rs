//! Settings made by triggers, rules, views and defaults are their session's, and nobody else's, although no text shows them.

use crate::support::{Ground, Proxy, Raw};

/// One connection that two clients share: each would see the other's leftovers, and its own settings must be brought there.
const CONF: &str = "worker_threads = 1\npool_size = 1\nbackend_weight1 = 0\nbackend_weight2 = 0";

/// Something that sets parameters for the session: one the server lists and one that an application makes up.
const SETS: &str = "create function sets() returns trigger language plpgsql as
    $$ begin perform set_config('habit.seen', 'by trigger', false); set statement_timeout = '77s'; return new; end $$;
    create table watched (a int); create trigger sets before insert or update or delete on watched for each row execute function sets();
    insert into watched values (1); set statement_timeout = 0;";

struct Stage {
    _proxy: Proxy,
    client: Raw,
    other: Raw,
}

impl Stage {
    fn new(ground: &Ground, proxy: Proxy) -> Stage {
        let (client, other) = (ground.client(&proxy), ground.client(&proxy));
        Stage { _proxy: proxy, client, other }
    }

    /// After this the session has the settings, and nobody else; then they are taken back.
    fn check(&mut self, what: &str) {
        const READ: &str =
            "/*NO LOAD BALANCE*/ select coalesce(current_setting('habit.seen', true), ''), current_setting('statement_timeout')";
        let read = |client: &mut Raw| client.rows(READ).concat();
        assert_eq!(read(&mut self.other), ["", "0"], "the other one sees what was left by: {what}");
        assert_eq!(read(&mut self.client), ["by trigger", "77s"], "lost is what was set by: {what}");
        self.client.run("reset habit.seen; reset statement_timeout");
        assert_eq!(read(&mut self.client), ["", "0"]);
    }

    fn run(&mut self, text: &str) {
        self.client.run(text);
        self.check(text);
    }

    fn extended(&mut self, text: &str, values: &[&str]) {
        // A statement that gives no row has no first value.
        let _ = self.client.extended(text, values);
        self.check(text);
    }
}

/// With several nodes and with one, where nothing else needs the catalog.
fn stages(ground: &Ground) -> [Stage; 2] {
    [Stage::new(ground, ground.proxy(CONF)), Stage::new(ground, ground.primary_proxy(CONF))]
}

#[test]
fn what_triggers_set_is_their_sessions_and_nobody_elses() {
    let ground = Ground::new();
    ground.prepare(SETS);
    ground.prepare("create table plain (a int); create table copied (a int)");
    for mut stage in stages(&ground) {
        stage.run("insert into watched values (1)");
        stage.extended("insert into watched values ($1::int)", &["2"]);
        stage.run("begin; insert into watched values (3); commit");
        stage.run("with w as (update watched set a = 4 returning a) select count(*) from w");
        let asked = stage._proxy.metric("inventories_total");
        stage.client.run("insert into plain values (1)");
        stage.other.run("insert into plain values (2)");
        assert_eq!(stage._proxy.metric("inventories_total"), asked, "other tables cost nothing");
    }
}

#[test]
fn triggers_behind_functions_other_triggers_and_prepared_statements_count_too() {
    let ground = Ground::new();
    ground.prepare(SETS);
    ground.prepare(
        "create table outer_one (a int);
         create function audits() returns trigger language plpgsql as $$ begin insert into watched values (1); return new; end $$;
         create trigger audits after insert on outer_one for each row execute function audits();
         create function writes(a int) returns int language sql as 'insert into outer_one values (a) returning a';
         create function calls(a int) returns int language plpgsql as $$ begin return writes(a); end $$;
         create procedure does(a int) language plpgsql as $$ begin delete from watched; insert into watched values (a); end $$",
    );
    for mut stage in stages(&ground) {
        stage.run("insert into outer_one values (1)");
        for _ in 0..3 {
            // From the second time on it is known that the function itself leaves nothing.
            stage.run("select calls(1)");
            stage.extended("select calls($1::int)", &["1"]);
            stage.run("call does(1)");
        }
        stage.run("do $$ begin insert into outer_one values (1); end $$");
        stage.client.run("prepare p as insert into watched values (1)");
        stage.run("execute p");
        stage.extended("execute p", &[]);
        stage.run("prepare q as insert into outer_one values (1); execute q");
        stage.client.run("deallocate all");
    }
}

#[test]
fn triggers_of_what_is_written_with_a_table_count_too() {
    let ground = Ground::new();
    ground.prepare(SETS);
    ground.prepare(
        "create table parent (a int) partition by list (a);
         create table part partition of parent for values in (1);
         create table other_part partition of parent for values in (2);
         create trigger p before insert on part for each row execute function sets();
         create table of_all (a int) partition by list (a);
         create table of_one partition of of_all for values in (1);
         create trigger p before insert on of_all for each row execute function sets();
         create table keys (a int primary key); insert into keys values (1), (2);
         create table referring (a int references keys on delete cascade); insert into referring values (1), (2);
         create trigger r before delete on referring for each row execute function sets();
         create view seen as select * from watched;
         create table ruled (a int); create rule r as on insert to ruled do also insert into watched values (1)",
    );
    for (mut stage, key) in stages(&ground).into_iter().zip(["1", "2"]) {
        stage.run("insert into parent values (1)");
        stage.run("insert into of_one values (1)");
        stage.run("insert into seen values (1)");
        stage.run("insert into ruled values (1)");
        // The row's trigger returns another row than it should: it keeps the referring row, which no constraint allows in the
        // end.
        stage.client.run("create or replace function sets() returns trigger language plpgsql as $$ begin \
            perform set_config('habit.seen', 'by trigger', false); set statement_timeout = '77s'; return coalesce(new, old); end $$");
        stage.run(&format!("delete from keys where a = {key}"));
    }
}

/// Through Weir nothing is missed between a definition and the reading of it.
#[test]
fn triggers_that_were_just_defined_or_replaced_count_too() {
    let ground = Ground::new();
    ground.prepare(SETS);
    ground.prepare(
        "create function calm() returns trigger language plpgsql as $$ begin return new; end $$;
         create table quiet (a int); create trigger t before insert on quiet for each row execute function calm()",
    );
    for mut stage in stages(&ground) {
        // Version 13 cannot replace one.
        let can_replace = !stage.client.parameter("server_version").is_some_and(|version| version.starts_with("13."));
        let begin = if can_replace { "create or replace trigger" } else { "drop trigger t on quiet; create trigger" };
        stage.client.run(&format!("{begin} t before insert on quiet for each row execute function sets()"));
        stage.run("insert into quiet values (1)");
        stage.run(
            "begin; create table fresh (a int); create trigger t before insert on fresh for each row execute function sets(); \
             insert into fresh values (1); commit",
        );
        stage.client.run("begin; drop trigger t on fresh; create trigger t after insert on fresh execute function sets()");
        stage.run("insert into fresh values (2); commit");
        stage.client.run(&format!("drop table fresh; {begin} t before insert on quiet for each row execute function calm()"));
    }
}

#[test]
fn views_defaults_checks_and_event_triggers_count_too() {
    let ground = Ground::new();
    ground.prepare(SETS);
    ground.prepare(
        "create function set_it(a int) returns int language plpgsql as
         $$ begin perform set_config('habit.seen', 'by trigger', false); set statement_timeout = '77s'; return a; end $$;
         create view setting as select set_it(1) as a; create view over_it as select a + 1 as b from setting;
         create view plainly as select set_config('habit.seen', 'by trigger', false) as a, set_config('statement_timeout', '77s', false) as b;
         create table with_default (a int default set_it(1), b int);
         create table with_check (a int check (set_it(a) > 0));
         create domain checked as int check (set_it(value) > 0); create table with_domain (a checked);
         create function reads() returns bigint language sql as 'select sum(b) from over_it'",
    );
    for mut stage in stages(&ground) {
        stage.run("select * from setting");
        stage.run("select * from over_it");
        stage.extended("select * from over_it", &[]);
        stage.run("select * from plainly");
        stage.run("insert into with_default (b) values (1)");
        stage.run("insert into with_default (b) select a from setting");
        stage.run("insert into with_check values (1)");
        stage.run("insert into with_domain values (1)");
        for _ in 0..2 {
            stage.run("select reads()");
        }
    }
    ground.prepare(
        "create function on_command() returns event_trigger language plpgsql as $$ begin perform set_it(1); end $$;
         create event trigger habit on ddl_command_end execute function on_command()",
    );
    for mut stage in stages(&ground) {
        stage.run("create table defined (a int)");
        stage.run("create index on defined (a)");
        stage.run("drop table defined; create temp table x (a int); drop table x");
    }
    ground.prepare("drop event trigger habit");
}
