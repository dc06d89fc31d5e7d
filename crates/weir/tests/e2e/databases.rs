//! Databases by another name, and forced users.

use super::auth::guarded;
use super::cache::{is_hit, warm};
use super::cancel;
use crate::support::driver::{self, Login};
use crate::support::proxy::{Backend, show};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// A proxy that reads these lines as its file of databases.
fn proxy_with(ground: &Ground, lines: &str, more: &str) -> Proxy {
    let files = [("databases", lines), ("pool_hba.conf", "host all all all trust\nlocal all all trust\n")];
    let more = format!("enable_pool_hba = on\ndatabase_file = 'databases'\n{more}");
    Proxy::with_files(&[ground.cluster.primary()], &more, &files, &[])
}

fn enter(proxy: &Proxy, user: &str, database: &str) -> Raw {
    let client = Raw::tcp(proxy.port()).log_in(user, database, &[]);
    client.unwrap_or_else(|failure| panic!("{user} cannot enter {database}: {failure:?}\n{}", proxy.log()))
}

#[test]
fn two_names_of_one_database_share_its_catalog_and_a_write_by_one_makes_the_others_answers_untrue() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1)");
    let lines = format!("other = dbname={}\n", ground.database);
    let proxy = proxy_with(&ground, &lines, "memory_cache_enabled = on");
    let mut own = ground.client(&proxy);
    let mut other = enter(&proxy, "postgres", "other");
    assert_eq!(other.value("select current_database()"), ground.database, "the servers know one name");
    warm(&proxy, &mut own, "select sum(a) from t");
    assert!(is_hit(&proxy, &mut other, "select sum(a) from t"));
    for (a, writer, reader) in [(2, 0, 1), (3, 1, 0)] {
        let both = [&mut own, &mut other];
        both[writer].run(&format!("insert into t values ({a})"));
        let expected = (1..=a).sum::<i32>().to_string();
        assert_eq!(both[reader].value("select sum(a) from t"), expected, "what the other name wrote is seen");
        warm(&proxy, both[reader], "select sum(a) from t");
    }
}

#[test]
fn a_notification_reaches_who_listens_by_another_name_and_a_cancel_request_its_statement() {
    let ground = Ground::new();
    let proxy = proxy_with(&ground, &format!("other = dbname={}\n", ground.database), "");
    let mut listener = enter(&proxy, "postgres", "other");
    listener.run("listen news");
    ground.client(&proxy).run("notify news, 'hello'");
    let message = listener.read();
    assert_eq!(message.tag, b'A');
    assert!(String::from_utf8_lossy(&message.body).contains("hello"));
    listener.send(&wire::query(cancel::SLEEP));
    cancel::wait_for_sleepers(&ground, 1);
    cancel::cancel(&proxy, listener.pid, &listener.key.clone());
    let answer = listener.until_ready();
    assert_eq!(answer.iter().find(|message| message.tag == b'E').unwrap().failure().sqlstate, "57014");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    let names = show(&mut console, "databases", "name");
    let databases = show(&mut console, "databases", "database");
    let at = names.iter().position(|name| name == "other").expect("an entry is shown");
    assert_eq!(databases[at], ground.database);
}

#[test]
fn clients_of_a_forced_user_have_its_rights_and_share_its_server_connections() {
    let ground = Ground::new();
    let role = format!("forced_{}", ground.database);
    ground.prepare(&format!("create role {role} login; create table mine (a int); create table open (a int)"));
    ground.prepare(&format!("grant usage on schema public to {role}; grant select on open to {role}"));
    let lines = format!("app = dbname={} user={role} pool_size=1\n", ground.database);
    let proxy = proxy_with(&ground, &lines, "memory_cache_enabled = on");
    let mut own = ground.client(&proxy);
    own.run("select count(*) from mine");
    let mut forced = enter(&proxy, "postgres", "app");
    assert_eq!(forced.value("select session_user"), role);
    assert_eq!(forced.value("select count(*) from open"), "0");
    assert_eq!(forced.error("select count(*) from mine").sqlstate, "42501", "the forced user's rights count");
    // Another user, who does not exist on the servers, is served by the same connection.
    let mut stranger = enter(&proxy, "stranger", "app");
    assert_eq!(stranger.value("select session_user"), role);
    assert_eq!(forced.value("select pg_backend_pid()"), stranger.value("select pg_backend_pid()"));
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    assert!(show(&mut console, "databases", "force_user").contains(&role));
    drop((forced, stranger, console));
    drop(proxy);
    ground.prepare(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_forced_user_logs_in_with_the_password_of_its_entry_which_nothing_shows() {
    let cluster = guarded();
    let files =
        [("databases", "app = dbname=postgres user=anna password='secret of anna'\n"), ("pool_passwd", "postgres:own secret\n")];
    let backends = [Backend::tcp(cluster.primary().port(), 1)];
    let proxy = Proxy::spawn_with_files(&backends, "database_file = 'databases'\nlog_min_messages = debug5", &files, &[]);
    proxy.wait_accepting();
    let ask = |user: &str, password: &str| {
        let login = Login { database: "app".into(), ..Login::new(proxy.port(), user, password) };
        driver::value(&login, "select session_user::text")
    };
    wait_until("servers to be found", || ask("postgres", "own secret") == Ok("anna".into()));
    assert_eq!(ask("postgres", "secret of anna"), Err("28P01: password authentication failed for user \"postgres\"".into()));
    // The entry's password is for clients that came through it and have proved their user.
    for database in ["postgres", "app"] {
        let login = Login { database: database.into(), ..Login::new(proxy.port(), "anna", "wrong") };
        let said = driver::value(&login, "select session_user::text");
        assert_eq!(said, Err("28P01: password authentication failed for user \"anna\"".into()), "{database}");
    }
    // Nobody here knows this user, and no server would be asked about it.
    assert_eq!(ask("nobody", "x"), Err("28P01: password authentication failed for user \"nobody\"".into()));
    assert!(!proxy.log().contains("secret of anna"), "{}", proxy.log());
}

#[test]
fn a_connect_query_runs_once_on_each_new_server_connection() {
    let ground = Ground::new();
    ground.prepare("create table greeted (pid int)");
    let lines = format!(
        "hello = dbname={} pool_size=1 connect_query='insert into greeted values (pg_backend_pid()); set timezone to ''Asia/Tokyo'''\n\
         wrong = dbname={} connect_query='select 1/0'\n",
        ground.database, ground.database
    );
    let proxy = proxy_with(&ground, &lines, "");
    for _ in 0..3 {
        assert_eq!(enter(&proxy, "postgres", "hello").value("show timezone"), "Asia/Tokyo");
    }
    assert_ne!(ground.client(&proxy).value("show timezone"), "Asia/Tokyo", "other names have pools of their own");
    assert_eq!(ground.direct().value("select count(*) = count(distinct pid) and count(*) > 0 from greeted"), "t");
    let failure = Raw::tcp(proxy.port()).log_in("postgres", "wrong", &[]).unwrap_err();
    assert_eq!(failure.sqlstate, "22012", "the client hears why");
}

#[test]
fn a_reload_adds_changes_and_removes_entries_and_a_wrong_line_changes_nothing() {
    let ground = Ground::new();
    let proxy = proxy_with(&ground, "# nothing yet\n", "");
    let is_known =
        |name: &str| Raw::tcp(proxy.port()).log_in("postgres", name, &[]).map(drop).map_err(|failure| failure.sqlstate);
    assert_eq!(is_known("late"), Err("3D000".into()));
    proxy.write_file("databases", &format!("late = dbname={}\n", ground.database));
    proxy.reload();
    assert_eq!(enter(&proxy, "postgres", "late").value("select current_database()"), ground.database);
    let mut staying = enter(&proxy, "postgres", "late");
    proxy.write_file("databases", "late = dbname=postgres\n");
    proxy.reload();
    wait_until("the entry to change", || enter(&proxy, "postgres", "late").value("select current_database()") == "postgres");
    assert_eq!(staying.value("select current_database()"), ground.database, "a session keeps what it was given");
    proxy.write_file("databases", "late = host=elsewhere\n");
    proxy.reload();
    assert!(proxy.log().contains("databases:1: \"host\" is not known here"), "{}", proxy.log());
    assert_eq!(is_known("late"), Ok(()));
    proxy.write_file("databases", "");
    proxy.reload();
    wait_until("the entry to go", || is_known("late").is_err());
    staying.send(&wire::terminate());
}

#[test]
fn the_star_serves_databases_without_an_entry_and_leaves_the_console_alone() {
    let ground = Ground::new();
    let role = format!("forced_{}", ground.database);
    ground.prepare(&format!("create role {role} login"));
    let lines = format!("own = dbname={}\n* = user={role} pool_size=1\n", ground.database);
    let proxy = proxy_with(&ground, &lines, "admin_users = 'postgres'");
    let mut own = enter(&proxy, "postgres", "own");
    assert_eq!(own.value("select session_user"), "postgres");
    let mut other = enter(&proxy, "stranger", &ground.database);
    assert_eq!(other.value("select session_user || ' ' || current_database()"), format!("{role} {}", ground.database));
    let mut console = enter(&proxy, "postgres", "pgbouncer");
    let names = show(&mut console, "databases", "name");
    let users = show(&mut console, "databases", "force_user");
    let of = |name: &str| users[names.iter().position(|known| known == name).expect("it is shown")].clone();
    assert_eq!((of(&ground.database), of("pgbouncer")), (role.clone(), "pgbouncer".into()));
    assert!(!names.contains(&"*".into()), "it is no database");
    // A reload that gives the database an entry, or takes the star away, serves later logins.
    proxy.write_file("databases", &format!("{} = \n* = user={role}\n", ground.database));
    proxy.reload();
    assert_eq!(enter(&proxy, "postgres", &ground.database).value("select session_user"), "postgres");
    assert_eq!(other.value("select session_user"), role, "a session keeps its user");
    drop((own, other, console, proxy));
    ground.prepare(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_database_with_a_forced_user_has_its_connections_before_a_client_comes() {
    let ground = Ground::new();
    let lines = format!("app = dbname={} user=postgres\nshared = dbname={0}\n", ground.database);
    let limits = "limit_override_list = 'database=app:min_pool_size=2; database=shared:min_pool_size=2'";
    let proxy = proxy_with(&ground, &lines, limits);
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    // The server counts a connection whose login goes on, too: a client that comes then opens a third one.
    wait_until("two to be at rest", || {
        let (open, known) = (ground.server_connections(), show(&mut console, "servers", "remote_pid"));
        open.len() == 2 && open.iter().all(|pid| known.contains(pid))
    });
    let before = ground.server_connections();
    let mut client = enter(&proxy, "somebody", "app");
    assert_eq!(client.value("select session_user"), "postgres");
    assert!(before.contains(&client.value("select pg_backend_pid()")), "the client has one of them");
    drop(client);
    console.run("DISABLE app");
    console.run("PAUSE app");
    wait_until("none to be left", || ground.server_connections().is_empty());
    console.run("RESUME app");
    console.run("ENABLE app");
    wait_until("two to be open again", || ground.server_connections().len() == 2);
}
