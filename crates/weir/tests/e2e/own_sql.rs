//! Weir's own texts under paths that others chose: no name in them reaches an object of a user.

use crate::support::ground::{cluster_with, wait_until};
use crate::support::{Proxy, Raw};
use std::collections::BTreeSet;
use weir::auth::own_login::{self, OwnUse};
use weir::commands::own_sql::{CATALOG, PLACES, SentOver, SqlPlace};
use weir_demo::{Options, Server, WalLevel};

/// Makes the traps; the database is `app`, its owner an ordinary user.
const TRAPS: &str = include_str!("own_sql/traps.sql");
const OWNER: &str = "mallory";
const SPRUNG: &str = "weir_trap";

/// Texts that a trap must catch: the table of paths below proves something only if each of them is caught.
const BENT: [&str; 5] = [
    "select relname from pg_class",
    "select extract(epoch from pg_catalog.now()) * 1000000",
    "select 1 where current_setting('role') = 'x'",
    "select pg_catalog.now()::text",
    "select lower('A')",
];

fn array(names: &BTreeSet<String>) -> String {
    format!("array['{}']", names.iter().cloned().collect::<Vec<_>>().join("', '"))
}

/// The script with the names of all own texts, and of the texts that must be caught.
fn traps() -> String {
    let (mut functions, mut relations) = (BTreeSet::new(), BTreeSet::new());
    let texts = PLACES.iter().flat_map(|place| (place.texts)()).chain(BENT.map(str::to_owned));
    for text in texts {
        let named = weir_sql::facts(text.as_bytes()).named;
        functions.extend(named.functions.iter().map(|name| name.name.clone()));
        relations.extend(named.relations.iter().map(|name| name.name.clone()));
    }
    assert!(functions.contains("set_config") && relations.contains("pg_settings"), "{functions:?} {relations:?}");
    let operators =
        ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "||", "~", "~*", "!~", "&&", "->", "->>", "?", "~~", "!~~"];
    let operators: BTreeSet<String> = operators.into_iter().map(str::to_owned).collect();
    TRAPS
        .replace("FUNCTIONS)", &format!("{})", array(&functions)))
        .replace("RELATIONS)", &format!("{})", array(&relations)))
        .replace("OPERATORS)", &format!("{})", array(&operators)))
}

/// A server whose database `app` is full of traps. `public`: they stand in the schema in which all names are looked for.
fn set_traps(server: &Server, public: bool) {
    for text in [&*format!("create role {OWNER} login; create role joe login"), &format!("create database app owner {OWNER}")] {
        server.query(text).unwrap();
    }
    let mut owner = server.connect(OWNER, "app").unwrap();
    owner.query(&traps()).unwrap_or_else(|error| panic!("{error:#}"));
    match public {
        true => {
            // The owner of a database owns its schema `public` only since version 15.
            let mut admin = server.connect("postgres", "app").unwrap();
            admin.query("drop schema public; alter schema evil rename to public").unwrap();
        }
        false => drop(owner.query("alter database app set search_path = evil, pg_catalog").unwrap()),
    }
}

/// The outcome of a text: its SQLSTATE, or none. A trap fails the test.
fn outcome(client: &mut Raw, text: &str) -> Option<String> {
    let said = match text.contains("$1") {
        true => client.extended(text, &["1"]).map(drop),
        false => client.try_rows(text).map(drop),
    };
    said.err().map(|failure| {
        assert!(!failure.message.contains(SPRUNG), "{}: {text}", failure.message);
        failure.sqlstate
    })
}

/// Begins a session as Weir does for a place.
fn session(server: &Server, place: &SqlPlace, database: &str) -> Raw {
    let of = if place.file == CATALOG { OwnUse::Catalog } else { OwnUse::Questions };
    let parameters: Vec<(&str, &str)> = match place.over {
        SentOver::Own => own_login::in_packet(of).collect(),
        SentOver::Clients => Vec::new(),
    };
    let mut client = Raw::tcp(server.port()).log_in("postgres", database, &parameters).unwrap();
    if place.over == SentOver::Own {
        let (version, encoding) =
            (client.parameter("server_version").map(str::to_owned), client.parameter("server_encoding").map(str::to_owned));
        if let Some(words) = own_login::after_login(of, version.as_deref(), encoding.as_deref()) {
            client.run(&words);
        }
    }
    client
}

/// Texts that act on the server as a whole, leave something behind, would end the test's own sessions, or belong to a walsender.
fn is_left_out(text: &str) -> bool {
    ["IDENTIFY_SYSTEM", "TIMELINE_HISTORY", "ALTER SYSTEM", "pg_terminate_backend", "PREPARE TRANSACTION"]
        .iter()
        .any(|word| text.contains(word))
}

/// Plays every text, as its place would, in the database of traps and in one without. The outcome must be the same.
fn check_texts(server: &Server, prepare: impl Fn(&mut Raw)) {
    for place in PLACES {
        let (mut plain, mut trapped) = (session(server, place, "postgres"), session(server, place, "app"));
        prepare(&mut trapped);
        for text in (place.texts)().into_iter().filter(|text| !is_left_out(text)) {
            let [there, here] = [&mut trapped, &mut plain].map(|client| {
                // A command that may not run in a transaction fails in both.
                client.run("BEGIN");
                let said = outcome(client, &text);
                client.run("ROLLBACK");
                server.query("select pg_drop_replication_slot(slot_name) from pg_replication_slots").unwrap();
                said
            });
            assert_eq!(there, here, "{}: {text}", place.file);
        }
    }
}

fn check_caught(server: &Server, texts: &[&str]) {
    let mut client = Raw::tcp(server.port()).log_in("postgres", "app", &[]).unwrap();
    for text in texts {
        let said = client.error(text).message;
        assert!(said.contains(SPRUNG), "not caught: {text}: {said}");
    }
}

fn own_server() -> weir_demo::Options {
    Options { standbys: 0, ..Options::default() }
}

#[test]
fn no_text_of_weirs_reaches_a_name_on_a_path_that_the_databases_owner_chose() {
    let cluster = cluster_with(own_server());
    let server = cluster.primary();
    set_traps(server, false);
    check_caught(server, &BENT);
    check_texts(server, |_| {});
}

#[test]
fn no_text_of_weirs_reaches_a_name_that_fits_better_in_public() {
    let cluster = cluster_with(own_server());
    let server = cluster.primary();
    set_traps(server, true);
    // A type, a relation and a function that fit as well as PostgreSQL's are not found behind it.
    check_caught(server, &BENT[1..2]);
    check_texts(server, |_| {});
}

#[test]
fn no_text_of_weirs_reaches_a_temporary_name_of_its_session() {
    let cluster = cluster_with(own_server());
    let server = cluster.primary();
    set_traps(server, false);
    server.query("alter database app reset search_path").unwrap();
    let relations = "do $$ declare known record; begin for known in select relname from pg_class where relnamespace = 'evil'::regnamespace \
        and relkind = 'v' loop execute format('create temp view %I as select * from evil.%I', known.relname, known.relname); end loop; \
        create domain pg_temp.text as pg_catalog.text check (evil.sprung('type text')); end $$";
    check_texts(server, |client| {
        // Weir's own connections make nothing; they are given it for the proof, which needs a transaction that writes.
        client.run("BEGIN READ WRITE");
        client.run(relations);
        client.run("COMMIT");
    });
    let mut client = Raw::tcp(server.port()).log_in("postgres", "app", &[]).unwrap();
    client.run(relations);
    assert!(client.error(BENT[0]).message.contains(SPRUNG));
}

/// All parts of Weir that send something, in the database of the traps, asked as a superuser.
const ALL_ON: &str = "sr_check_database = 'app'\nhealth_check_user = 'postgres'\nhealth_check_database = 'app'\nauth_user = 'postgres'\n\
    auth_dbname = 'app'\nenable_pool_hba = on\nhealth_check_period = 1\nhealth_check_timeout = 5\nfailover_mode = builtin\nfailover_alone = on\n\
    failover_lag_max = -1\ncommit_outcome = on\nmemory_cache_enabled = on\nmemqcache_invalidation = wal\nquery_timeout = 20s\n\
    backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\npool_size = 4";
/// Groups are looked up for the first rule.
const HBA: &str = "host all +pg_monitor 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n";

/// The work of a client that has Weir ask for all that it may have left, without a name in its own texts that a trap has.
const WORK: [&str; 12] = [
    "create table evil.own (a int)",
    "set work_mem = '1MB'",
    "set app.tenant = '7'",
    "set role joe",
    "reset role",
    "listen events",
    "unlisten *",
    "prepare p as select 1",
    "do $$ begin null; end $$",
    "begin; insert into evil.own values (1); commit",
    "declare c cursor with hold for select 1",
    "close c; deallocate all; discard all; drop table evil.own",
];

#[test]
fn a_running_weir_reaches_no_name_of_others_whatever_it_does() {
    let cluster = cluster_with(Options { standbys: 1, wal_level: WalLevel::Logical, ..Options::default() });
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    set_traps(primary, false);
    primary
        .query("alter role postgres set search_path = evil, pg_catalog; alter role joe set search_path = evil, pg_catalog")
        .unwrap();
    if primary.programs().major() >= 17 {
        let mut admin = primary.connect("postgres", "app").unwrap();
        admin
            .query(
                "create function evil.on_login() returns event_trigger language plpgsql as $$ begin \
                 perform pg_catalog.set_config('search_path', 'evil, pg_catalog', false); end $$; \
                 create event trigger on_login on login execute function evil.on_login()",
            )
            .unwrap();
    }
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::with_files(&[primary, standby], ALL_ON, &[("pool_hba.conf", HBA)], &[]);
    let mut operator = proxy.console();
    for user in [OWNER, "postgres", "joe", "postgres"] {
        let mut client = Raw::tcp(proxy.port()).log_in(user, "app", &[("application_name", user)]).unwrap();
        wait_until("the catalog to be read", || {
            let known = operator.rows("show pool_catalogs");
            known.iter().any(|row| row[0] == "app" && row[1] == "current")
        });
        for text in if user == "postgres" { &WORK[..] } else { &WORK[1..3] } {
            client.query(text);
        }
    }
    assert_eq!(proxy.nodes("role"), ["primary", "standby"]);
    primary.kill9().unwrap();
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "app", &[]).unwrap();
    wait_until("the standby to be promoted", || proxy.nodes("role")[1] == "primary");
    WORK.iter().for_each(|text| drop(client.query(text)));
    for server in [primary, standby] {
        let log = server.log();
        let sprung: Vec<&str> = log.lines().filter(|line| line.contains(SPRUNG)).collect();
        assert!(sprung.is_empty(), "{sprung:#?}");
    }
    // They would have been seen.
    check_caught(standby, &BENT[..1]);
    assert!(standby.log().contains(SPRUNG));
}

/// A catalog that a user made up for whoever reads along his path: views read no table, and have no triggers.
const OWN_CATALOG: &str = "create schema evil; create table evil.pg_rewrite as select * from pg_catalog.pg_rewrite where false; \
    create table evil.pg_class as select oid, relname, relnamespace, relkind, relpersistence, relrowsecurity, relnatts from pg_catalog.pg_class where false; \
    grant usage on schema evil to public; grant select on evil.pg_rewrite, evil.pg_class to public; \
    create table items (a int); create view shown as select a from items; insert into items values (1); \
    grant select, insert on items, shown to public";

#[test]
fn a_users_path_does_not_decide_what_is_known_of_a_database() {
    let cluster = cluster_with(own_server());
    let server = cluster.primary();
    server.query(&format!("create role {OWNER} login; create role nobody login; grant pg_monitor to nobody")).unwrap();
    server.query("create database app").unwrap();
    server.connect("postgres", "app").unwrap().query(OWN_CATALOG).unwrap();
    server.query(&format!("alter role {OWNER} set search_path = evil, pg_catalog, public")).unwrap();
    // With a user of its own that may log in there, and with one that may not.
    for (checker, reader) in [("postgres", "postgres"), ("nobody", OWNER)] {
        server.query("revoke connect on database app from public; grant connect on database app to mallory").unwrap();
        let more = format!("memory_cache_enabled = on\ncausal_reads = global\nsr_check_user = '{checker}'");
        let proxy = Proxy::before(&[server], &more);
        let _owner = Raw::tcp(proxy.port()).log_in(OWNER, "app", &[]).unwrap();
        let mut operator = proxy.console();
        wait_until("the catalog to be read", || {
            let known = operator.rows("show pool_catalogs");
            known.iter().any(|row| row[0] == "app" && row[1] == "current" && row[9] == reader && row[2] != "0")
        });
        let mut writer = Raw::tcp(proxy.port()).log_in("postgres", "app", &[]).unwrap();
        let count = |client: &mut Raw| client.value("select count(*) from shown").parse::<u32>().unwrap();
        let before = count(&mut writer);
        // Read along his own path, the default path of others is not known, and nothing is kept.
        match checker == reader {
            true => wait_until("the answer to be kept", || {
                let hits = proxy.metric("cache_hits_total");
                assert_eq!(count(&mut writer), before);
                proxy.metric("cache_hits_total") > hits
            }),
            false => (0..20).for_each(|_| assert_eq!(count(&mut writer), before)),
        }
        writer.run("insert into items values (2)");
        assert_eq!(count(&mut writer), before + 1, "read as {reader}");
    }
}

#[test]
fn a_user_of_weirs_with_a_path_of_his_own_leaves_the_catalog_to_a_client_without_one() {
    let cluster = cluster_with(own_server());
    let server = cluster.primary();
    server.query("create role joe login; alter role postgres set search_path = 'elsewhere'").unwrap();
    server.query("create database app").unwrap();
    let grant = "create table public.items (a int); grant select on public.items to joe";
    server.connect("postgres", "app").unwrap().query(grant).unwrap();
    let proxy = Proxy::before(&[server], "memory_cache_enabled = on");
    let mut client = Raw::tcp(proxy.port()).log_in("joe", "app", &[]).unwrap();
    let mut operator = proxy.console();
    wait_until("the catalog to be read", || {
        let known = operator.rows("show pool_catalogs");
        known.iter().any(|row| row[0] == "app" && row[1] == "current" && row[9] == "joe")
    });
    wait_until("an answer to be kept", || {
        let hits = proxy.metric("cache_hits_total");
        client.query("select a from items");
        proxy.metric("cache_hits_total") > hits
    });
}
