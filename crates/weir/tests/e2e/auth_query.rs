//! Users whose verifiers are asked of the servers.

use super::auth::{guarded, guarded_with};
use crate::support::driver::{self, Login};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use weir_demo::{Mode, Server};

const WRONG: &str = "28P01: password authentication failed for user";

fn asking(server: &Server, more: &str) -> Proxy {
    server.query("create role asker login superuser password 'secret of asker'").unwrap();
    let files = [("pool_passwd", "asker:secret of asker\n"), ("pool_hba.conf", HBA)];
    Proxy::with_files(&[server], &format!("enable_pool_hba = on\nauth_user = 'asker'\n{more}"), &files, &[])
}

const HBA: &str = "host all postgres all trust\nhost all all all scram-sha-256\n";

fn current_user(proxy: &Proxy, user: &str, password: &str) -> Result<String, String> {
    driver::value(&Login::new(proxy.port(), user, password), "select current_user::text")
}

#[test]
fn a_user_without_an_entry_is_asked_for_at_the_server() {
    let cluster = guarded();
    let proxy = asking(cluster.primary(), "auth_cache_time = 0\n");
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(current_user(&proxy, "ünï", "pässwörd 密"), Ok("ünï".into()));
    let long = "x".repeat(5000);
    for user in ["anna", "nobody", "guest", "O'Brien\\", &long] {
        let name: String = user.chars().take(63).collect();
        assert_eq!(current_user(&proxy, user, "wrong"), Err(format!("{WRONG} \"{name}\"")));
    }
    // A changed password counts at once without a cache.
    cluster.primary().query("alter role anna password 'another'").unwrap();
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err(format!("{WRONG} \"anna\"")));
    assert_eq!(current_user(&proxy, "anna", "another"), Ok("anna".into()));
}

#[test]
fn without_rules_users_are_asked_for_as_well_and_md5_works_with_servers_that_ask_for_it() {
    let cluster = guarded();
    cluster.primary().query("create role asker login superuser password 'secret of asker'").unwrap();
    let files = [("pool_passwd", "asker:secret of asker\npostgres:none of your business\n")];
    let backends = [Backend::tcp(cluster.primary().port(), 1)];
    let proxy = Proxy::spawn_with_files(&backends, "auth_user = 'asker'\n", &files, &[]);
    wait_until("the proxy to let anna in", || current_user(&proxy, "anna", "secret of anna").is_ok());
    assert_eq!(current_user(&proxy, "old", "secret of old"), Ok("old".into()));
    for user in ["old", "anna", "nobody", "guest"] {
        assert_eq!(current_user(&proxy, user, "wrong"), Err(format!("{WRONG} \"{user}\"")));
    }
}

/// PgBouncer's CVE-2025-2291: the query looked at the password only.
#[test]
fn a_password_that_has_expired_or_a_role_that_may_not_log_in_lets_nobody_in() {
    let cluster = guarded();
    let primary = cluster.primary();
    let proxy = asking(primary, "auth_cache_time = 3600\n");
    primary
        .query(
            "create role late login password 'x' valid until '2001-01-01'; create role always login password 'x' valid until 'infinity';
             create role soon login password 'x' valid until '2100-01-01'; create role locked nologin password 'x';
             create role never login password 'x' valid until '-infinity'; create role empty login",
        )
        .unwrap();
    for user in ["always", "soon"] {
        assert_eq!(current_user(&proxy, user, "x"), Ok(user.into()));
    }
    for user in ["late", "never", "locked", "empty"] {
        assert_eq!(current_user(&proxy, user, "x"), Err(format!("{WRONG} \"{user}\"")), "{user}");
    }
    // An end within the time for which answers are believed ends that time.
    primary.query("create role brief login password 'x'; select 1").unwrap();
    primary.query("do $$ begin execute format('alter role brief valid until %L', now() + interval '5 s'); end $$").unwrap();
    assert_eq!(current_user(&proxy, "brief", "x"), Ok("brief".into()));
    wait_until("the password to expire", || current_user(&proxy, "brief", "x") == Err(format!("{WRONG} \"brief\"")));
}

/// PgBouncer's CVE-2025-12819: a client's search_path reached the connection the query runs on.
#[test]
fn nothing_a_client_or_a_user_sets_changes_what_the_query_means() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary
        .query(
            "create schema evil; grant usage on schema evil to public;
             create table evil.pg_authid as select 'anna'::name as rolname, 'md5' || md5('guess' || 'anna') as rolpassword;
             create table evil.pg_roles as select 'anna'::name as rolname, true as rolcanlogin, null::timestamptz as rolvaliduntil;
             create function evil.now() returns timestamptz language sql as $$ select pg_catalog.now() - interval '99 years' $$;
             create function evil.eq(name, name) returns bool language sql as $$ select true $$;
             create operator evil.= (leftarg = name, rightarg = name, function = evil.eq);
             grant all on all tables in schema evil to public",
        )
        .unwrap();
    let proxy = asking(primary, "auth_cache_time = 0\n");
    primary
        .query("alter role asker set search_path = evil, pg_catalog; alter database postgres set search_path = evil, pg_catalog")
        .unwrap();
    primary.query("alter role anna set search_path = evil, pg_catalog").unwrap();
    for parameters in [
        vec![("search_path", "evil, pg_catalog")],
        vec![("options", "-c search_path=evil,pg_catalog")],
        vec![("options", "--search_path=evil"), ("application_name", "'; drop table x; --")],
    ] {
        let mut client = Raw::tcp(proxy.port());
        let parameters = [vec![("user", "anna"), ("database", "postgres")], parameters].concat();
        client.send(&wire::startup(wire::V3_0, &parameters));
        assert_eq!(client.read().body[..4], [0, 0, 0, 10], "SCRAM, and not the md5 of the false table");
    }
    assert_eq!(current_user(&proxy, "anna", "guess"), Err(format!("{WRONG} \"anna\"")));
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
}

#[test]
fn the_query_may_be_a_function_and_is_asked_once_in_the_time_an_answer_is_believed() {
    let cluster = guarded();
    let primary = cluster.primary();
    primary
        .query(
            "create schema weir; create sequence weir.asked; create role plain login password 'secret of plain';
             create function weir.look_up(text, out name, out text) language sql security definer as
             $$ select rolname, rolpassword from pg_authid, nextval('weir.asked') where rolname = $1 $$;
             revoke all on function weir.look_up from public; grant usage on schema weir to plain;
             grant execute on function weir.look_up to plain",
        )
        .unwrap();
    let files = [("pool_passwd", "plain:secret of plain\n"), ("pool_hba.conf", HBA)];
    let more = "enable_pool_hba = on\nauth_user = 'plain'\nauth_query = 'select * from weir.look_up($1)'\nauth_cache_time = 3600\nworker_threads = 1\n";
    let proxy = Proxy::with_files(&[primary], more, &files, &[]);
    for _ in 0..10 {
        assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    }
    assert_eq!(primary.value("select last_value from weir.asked").unwrap(), "1");
    proxy.reload();
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    assert_eq!(primary.value("select last_value from weir.asked").unwrap(), "2");
}

#[test]
fn a_query_that_fails_or_a_server_that_is_silent_refuses_the_login_in_time_and_the_log_says_why() {
    let cluster = guarded();
    let primary = cluster.primary();
    let proxy = asking(primary, "auth_query = 'select 1/0, $1::text'\n");
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err("57P03: the user cannot be looked up now".into()));
    assert!(proxy.log().contains("auth_query for user \"anna\" failed"), "{}", proxy.log());
    for (query, said) in [
        ("select 'joe', $1::text", "a row of another user"),
        ("select $1::text, 'hunter2'", "neither md5 nor a SCRAM-SHA-256 verifier"),
        ("select $1::text, 'x' from generate_series(1, 2)", "more than one row"),
        ("select $1::text", "a row without name and verifier"),
    ] {
        proxy.add_conf(&format!("auth_query = '{}'", query.replace('\'', "''")));
        proxy.reload();
        let refused = current_user(&proxy, "anna", "secret of anna");
        assert_eq!(refused, Err("28000: the user cannot be looked up now".into()), "{query}");
        let log = proxy.log();
        assert!(log.contains(said) && !log.contains("hunter2"), "{said} in {log}");
    }
    proxy.add_conf("auth_query_timeout = 1");
    proxy.reload();
    primary.freeze();
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err("57P03: the user cannot be looked up now".into()));
    primary.thaw();
}

#[test]
fn a_standby_is_asked_while_the_primary_is_gone_and_a_login_waits_until_a_server_is_known() {
    let cluster = guarded_with(1);
    let primary = cluster.primary();
    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    cluster.wait_caught_up().unwrap();
    let files = [("pool_passwd", "asker:secret of asker\n"), ("pool_hba.conf", HBA)];
    let backends = cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect::<Vec<_>>();
    let more = "enable_pool_hba = on\nauth_user = 'asker'\nauth_cache_time = 0\nauth_query_timeout = 30\n";
    let proxy = Proxy::spawn_with_files(&backends, more, &files, &[]);
    // The first client comes before any server's role is known, as soon as the proxy accepts.
    wait_until("the proxy to accept", || Raw::try_tcp(proxy.port()).is_some());
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    primary.stop(Mode::Immediate).unwrap();
    assert_eq!(current_user(&proxy, "ünï", "wrong"), Err(format!("{WRONG} \"ünï\"")));
    wait_until("a login by the standby", || current_user(&proxy, "ünï", "pässwörd 密") == Ok("ünï".into()));
}

/// Each tenant says who its users are, by a function of its own.
#[test]
fn a_database_with_its_own_auth_query_says_it_for_itself_alone() {
    let cluster = guarded();
    let primary = cluster.primary();
    for tenant in ["one", "two"] {
        primary.query(&format!("create database tenant_{tenant}")).unwrap();
        primary.query(&format!("create role asker_{tenant} login password 'secret of {tenant}'")).unwrap();
        let mut owner = crate::support::Raw::tcp(primary.port()).log_in("postgres", &format!("tenant_{tenant}"), &[]).unwrap();
        let user = if tenant == "one" { "anna" } else { "ünï" };
        owner.run("create schema own");
        owner.run(&format!(
            "create function own.look_up(text, out name, out text) language sql security definer as \
             $$ select rolname, rolpassword from pg_catalog.pg_authid where rolname = $1 and rolname = '{user}' $$"
        ));
        owner.run(&format!("grant usage on schema own to asker_{tenant}"));
    }
    let lines = "one = dbname=tenant_one auth_user=asker_one auth_query='select * from own.look_up($1)' auth_dbname=one\n\
                 two = dbname=tenant_two auth_user=asker_two auth_query='select * from own.look_up($1)' auth_dbname=tenant_two\n\
                 closed = dbname=tenant_one auth_user=''\n";
    let passwords = "asker_one:secret of one\nasker_two:secret of two\nasker:secret of asker\n";
    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    let files = [("pool_passwd", passwords), ("pool_hba.conf", HBA), ("databases", lines)];
    let more =
        "enable_pool_hba = on\ndatabase_file = 'databases'\nauth_user = 'asker'\nauth_dbname = 'postgres'\nworker_threads = 1\n";
    let proxy = Proxy::with_files(&[primary], more, &files, &[]);
    let enter = |user: &str, password: &str, database: &str| {
        let login = Login { database: database.into(), ..Login::new(proxy.port(), user, password) };
        driver::value(&login, "select current_database()::text")
    };
    let (anna, uni) = (("anna", "secret of anna"), ("ünï", "pässwörd 密"));
    for ((user, password), database, expected) in
        [(anna, "one", Some("tenant_one")), (uni, "one", None), (anna, "two", None), (uni, "two", Some("tenant_two"))]
    {
        let refused = Err(format!("{WRONG} \"{user}\""));
        assert_eq!(enter(user, password, database), expected.map_or(refused, |name| Ok(name.into())), "{user} {database}");
    }
    // Answers and proofs of the tenants count for nobody else.
    assert_eq!(enter("anna", "secret of anna", "closed"), Err(format!("{WRONG} \"anna\"")));
    assert_eq!(enter("anna", "secret of anna", "tenant_two"), Ok("tenant_two".into()), "the parameters' own way");
}

#[test]
fn a_tenants_look_up_that_hangs_holds_up_no_login_elsewhere() {
    let cluster = guarded();
    let primary = cluster.primary();
    let lines = "slow = dbname=postgres auth_query='select $1::text, null from pg_sleep(60)' auth_user=postgres\n";
    primary.query("create role asker login superuser password 'secret of asker'").unwrap();
    let files = [("pool_passwd", "asker:secret of asker\n"), ("pool_hba.conf", HBA), ("databases", lines)];
    let more =
        "enable_pool_hba = on\ndatabase_file = 'databases'\nauth_user = 'asker'\nauth_query_timeout = 60\nworker_threads = 1\n";
    let proxy = Proxy::with_files(&[primary], more, &files, &[]);
    let mut hanging = Raw::tcp(proxy.port());
    hanging.send(&wire::startup(wire::V3_0, &[("user", "anna"), ("database", "slow")]));
    wait_until("the question to be asked", || {
        primary
            .value("select count(*) from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()")
            .is_ok_and(|count| count == "1")
    });
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    drop(hanging);
}

#[test]
fn each_login_may_ask_the_query_while_all_else_is_believed_and_a_disabled_database_answers_nobody() {
    let cluster = guarded();
    let proxy = asking(cluster.primary(), "auth_query_cache_time = 0\nauth_cache_time = 3600\n");
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    cluster.primary().query("alter role anna valid until '2001-01-01'").unwrap();
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Err(format!("{WRONG} \"anna\"")));
    cluster.primary().query("alter role anna valid until 'infinity'").unwrap();
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("DISABLE postgres");
    let closed = "55000: the user cannot be looked up now";
    let login = Raw::tcp(proxy.port()).log_in("anna", "template1", &[]).map(|_| ()).expect_err("nobody is looked up there");
    assert_eq!(format!("{}: {}", login.sqlstate, login.message), closed);
    console.run("ENABLE postgres");
    assert_eq!(current_user(&proxy, "anna", "secret of anna"), Ok("anna".into()));
}
