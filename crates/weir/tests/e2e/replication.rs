//! Replication connections: backups, streams of WAL, subscriptions.

use crate::support::ground::{cluster_with, wait_until};
use crate::support::proxy::{Folder, show};
use crate::support::{Proxy, Raw, has_programs, wire};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use weir_demo::{Options, Server, WalLevel};

/// Where one of PostgreSQL's programs finds the proxy.
fn program(server: &Server, proxy: &Proxy, name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(server.programs().bin().join(name));
    command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &proxy.port().to_string()]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A client of the replication protocol; `kind` is `true` or `database`.
fn replicating(proxy: &Proxy, kind: &str) -> Raw {
    let client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[("replication", kind), ("application_name", "raw")]);
    client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}\n{}", proxy.log()))
}

fn walsenders(server: &Server, name: &str) -> String {
    server.value(&format!("select count(*) from pg_stat_replication where application_name = '{name}'")).unwrap()
}

fn logical() -> crate::support::ground::Owned {
    cluster_with(Options { wal_level: WalLevel::Logical, ..Options::default() })
}

/// A server started on a folder; ends with the value.
struct Started(Child);

impl Started {
    fn on(data: &Path, server: &Server, port: u16) -> Started {
        let owner = std::fs::metadata(server.data_dir()).unwrap();
        let whose = format!("{}:{}", owner.uid(), owner.gid());
        run(Command::new("chown").args(["-R", &whose]).arg(data));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]).arg(server.programs().bin().join("postgres"));
        command.arg("-D").arg(data).args(["-p", &port.to_string(), "-k", "", "-c", "listen_addresses=127.0.0.1"]);
        command
            .current_dir(data)
            .uid(owner.uid())
            .gid(owner.gid())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Started(command.spawn().unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-QUIT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_backup_taken_through_the_proxy_starts_and_wal_is_received() {
    let cluster = logical();
    let server = cluster.primary();
    if !has_programs(server, &["pg_basebackup"]) {
        return;
    }
    let proxy = Proxy::before(&[server], "pool_size = 1\nquery_timeout = 100ms");
    server.query("create table kept as select generate_series(1, 1000) n").unwrap();
    let folder = Folder::new();
    let (data, wal) = (folder.0.join("data"), folder.0.join("wal"));
    // With a second connection that streams the WAL written meanwhile.
    let target = data.display().to_string();
    run(&mut program(server, &proxy, "pg_basebackup", &["-D", &target, "-X", "stream", "-c", "fast"]));
    run(Command::new(server.programs().bin().join("pg_verifybackup")).arg(&data));
    assert!(proxy.metric("replications_total") >= 2);
    let port = weir_demo::ReservedPort::any().unwrap();
    let started = Started::on(&data, server, port.number());
    wait_until("the backup to start", || {
        Raw::try_tcp(port.number()).is_some_and(|client| client.log_in("postgres", "postgres", &[]).is_ok())
    });
    let mut restored = Raw::tcp(port.number()).log_in("postgres", "postgres", &[]).unwrap();
    assert_eq!(restored.value("select count(*) from kept"), "1000");
    drop((restored, started));

    std::fs::create_dir(&wal).unwrap();
    let target = wal.display().to_string();
    let mut receiver = program(server, &proxy, "pg_receivewal", &["-D", &target, "--no-loop"]).spawn().unwrap();
    wait_until("WAL to be streamed", || walsenders(server, "pg_receivewal") == "1");
    wait_until("a whole file of WAL", || {
        server.query("insert into kept select generate_series(1, 1000)").unwrap();
        server.query("select pg_switch_wal()").unwrap();
        let names = std::fs::read_dir(&wal).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| !name.to_string_lossy().ends_with(".partial"))
    });
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    wait_until("its walsender to end", || walsenders(server, "pg_receivewal") == "0");
}

#[test]
fn changes_reach_a_logical_client_and_a_subscription() {
    let cluster = logical();
    let server = cluster.primary();
    if !has_programs(server, &["pg_recvlogical"]) {
        return;
    }
    let proxy = Proxy::before(&[server], "");
    server.query("create database there").unwrap();
    server.query("create table items (id int primary key, what text)").unwrap();
    server.query("insert into items values (1, 'before')").unwrap();
    server.query("create publication all_of_it for all tables").unwrap();
    let text = "select pg_create_logical_replication_slot('sub', 'pgoutput'), pg_create_logical_replication_slot('dec', 'test_decoding')";
    server.query(text).unwrap();
    let mut there = Raw::tcp(server.port()).log_in("postgres", "there", &[]).unwrap();
    there.run("create table items (id int primary key, what text)");
    let source = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", proxy.port());
    // On one server the slot must be there before, or the command waits for itself.
    there.run(&format!(
        "create subscription sub connection '{source}' publication all_of_it with (create_slot = false, slot_name = 'sub')"
    ));
    wait_until("the rows that were there to be copied", || there.value("select count(*) from items") == "1");
    server.query("insert into items values (2, 'ünï'); update items set what = 'after' where id = 1").unwrap();
    wait_until("changes to arrive", || there.value("select string_agg(what, ' ' order by id) from items") == "after ünï");
    let reasons = show(&mut proxy.console(), "pool_pools", "status");
    assert!(reasons.iter().any(|status| status.starts_with("Execute command (kept: replication) for ")), "{reasons:?}");

    let end = server.value("select pg_current_wal_lsn()").unwrap();
    let folder = Folder::new();
    let file = folder.0.join("out").display().to_string();
    let arguments = ["-d", "postgres", "-S", "dec", "--start", "-f", &file, "--endpos", &end, "--no-loop"];
    run(&mut program(server, &proxy, "pg_recvlogical", &arguments));
    let decoded = std::fs::read_to_string(&file).unwrap();
    assert!(decoded.contains("UPDATE: id[integer]:1 what[text]:'after'"), "{decoded}");

    there.run("alter subscription sub disable");
    wait_until("the subscription's walsender to end", || walsenders(server, "sub") == "0");
    there.run("alter subscription sub set (slot_name = none); drop subscription sub");
}

#[test]
fn a_replication_client_that_vanishes_frees_its_walsender() {
    let cluster = logical();
    let server = cluster.primary();
    let proxy = Proxy::before(&[server], "client_idle_limit = 1");
    let mut client = replicating(&proxy, "true");
    let messages = client.query("IDENTIFY_SYSTEM");
    assert_eq!(messages.iter().map(|message| message.tag as char).collect::<String>(), "TDCZ");
    let start = messages[1].row()[2].clone().unwrap();
    client.send(&wire::query(&format!("START_REPLICATION PHYSICAL {start}")));
    assert_eq!(client.read().tag, b'W');
    // The limit ends an idle session, and not this one.
    let mut idle = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    assert_eq!(idle.until_end().last().unwrap().failure().sqlstate, "57P05");
    assert_eq!(walsenders(server, "raw"), "1");
    server.query("create table t as select generate_series(1, 10000)").unwrap();
    wait_until("WAL to be streamed", || client.read().body.first() == Some(&b'w'));
    // It leaves without reading the rest.
    server.query("insert into t select generate_series(1, 100000)").unwrap();
    drop(client);
    wait_until("the walsender to end", || walsenders(server, "raw") == "0");
    assert!(!show(&mut proxy.console(), "pool_pools", "status").iter().any(|status| status.contains("replication")));
}

#[test]
fn a_logical_replication_client_may_query_be_cancelled_and_is_told_of_the_end() {
    let cluster = logical();
    let server = cluster.primary();
    let mut proxy = Proxy::before(&[server], "max_server_connections_per_node = 1\npool_wait_timeout = 1");
    wait_until("an unused connection to be closed or taken", || proxy.console().value("select 1") == "1");
    let mut client = replicating(&proxy, "database");
    assert_eq!(client.value("select current_database()"), "postgres");
    assert_eq!(client.value("SHOW application_name"), "raw");
    client.send(&wire::query("select pg_sleep(50)"));
    wait_until("the query to run", || {
        server.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'").unwrap() == "1"
    });
    let mut line = Raw::tcp(proxy.port());
    line.send(&wire::cancel(client.pid, &client.key));
    assert!(line.bytes_to_end().is_empty());
    assert_eq!(client.until_ready().iter().find(|m| m.tag == b'E').unwrap().failure().sqlstate, "57014");
    // It counts among the connections of its node.
    let refused = Raw::tcp(proxy.port()).log_in("postgres", "template1", &[]).unwrap().error("select 1");
    assert_eq!(refused.sqlstate, "53300", "{refused:?}");
    proxy.signal(rustix::process::Signal::INT);
    assert_eq!(client.until_end().last().unwrap().failure().sqlstate, "57P01");
    proxy.wait_end();
}

#[test]
fn rules_for_replication_hold_and_the_servers_refusal_is_told() {
    let cluster = logical();
    let server = cluster.primary();
    server.query("create role plain login").unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all plain 127.0.0.1/32 trust\n";
    let files = [("pool_hba.conf", rules)];
    let proxy = Proxy::with_files(&[server], "enable_pool_hba = on", &files, &[]);
    let enter = |user: &str, kind: &str| {
        let parameters = [("replication", kind)];
        Raw::tcp(proxy.port()).log_in(user, "postgres", &parameters).map(|_| ()).map_err(|failure| failure.message)
    };
    let missing = "no pool_hba.conf entry for replication connection from host \"127.0.0.1\", user \"postgres\", no encryption";
    assert_eq!(enter("postgres", "true"), Err(missing.into()), "all is not meant to include replication");
    assert_eq!(enter("postgres", "database"), Ok(()));
    assert_eq!(enter("postgres", "o"), Err("invalid value for parameter \"replication\": \"o\"".into()));
    assert_eq!(enter("postgres", "f"), Ok(()), "no replication at all");
    let refusal = enter("plain", "database").unwrap_err();
    // PostgreSQL 16 and later name the process.
    assert!(refusal.contains("replication") || refusal.contains("WAL sender"), "{refusal}");
    proxy.write_file("pool_hba.conf", &format!("{rules}host replication postgres 127.0.0.1/32 trust\n"));
    proxy.reload();
    assert_eq!(enter("postgres", "true"), Ok(()));
    assert!(Raw::tcp(proxy.port()).is_silent_for(Duration::from_millis(10)));
}

#[test]
fn a_physical_replication_client_never_becomes_a_forced_user_nor_passes_by_him() {
    let cluster = cluster_with(Options::default());
    let server = cluster.primary();
    server.query("create role app login replication").unwrap();
    let rules = "host all all all trust\nhost replication all all trust\n";
    let enter = |proxy: &Proxy, database: &str| {
        let client = Raw::tcp(proxy.port()).log_in("postgres", database, &[("replication", "true"), ("application_name", "raw")]);
        client.map(|_| ()).map_err(|failure| failure.message)
    };
    let start = |lines: &str| {
        let files = [("pool_hba.conf", rules), ("databases", lines)];
        Proxy::with_files(&[server], "enable_pool_hba = on\ndatabase_file = 'databases'", &files, &[])
    };
    let proxy = start("forced = dbname=postgres user=app\nplain = dbname=postgres\n");
    let refused = |name: &str| Err(format!("database \"{name}\" has a user of its own, as whom nobody replicates"));
    assert_eq!(enter(&proxy, "forced"), refused("forced"));
    assert_eq!(enter(&proxy, "plain"), Ok(()));
    assert_eq!(enter(&proxy, "invented"), Ok(()), "the servers look at no name");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    console.run("DISABLE plain");
    let closed = "database \"plain\" takes no new clients: it was disabled by an administrator";
    assert_eq!(enter(&proxy, "plain"), Err(closed.into()));
    drop((console, proxy));
    let proxy = start("plain = dbname=postgres\n* = user=app\n");
    assert_eq!(enter(&proxy, "invented"), refused("replication"));
    assert_eq!(enter(&proxy, "plain"), Ok(()));
}

#[test]
fn logical_replication_clients_of_a_user_and_database_wait_for_one_of_pool_size_and_physical_ones_do_not() {
    let cluster = logical();
    let proxy = Proxy::with_files(&[cluster.primary()], "pool_size = 2\npool_wait_timeout = 1", &[], &[]);
    let enter = |kind: &str| {
        let parameters = [("replication", kind), ("application_name", "raw")];
        Raw::tcp(proxy.port()).log_in("postgres", "postgres", &parameters).map_err(|failure| failure.message)
    };
    let physical: Vec<Raw> = (0..3).map(|_| enter("true").unwrap()).collect();
    let mut logical: Vec<Raw> = (0..2).map(|_| enter("database").unwrap()).collect();
    let refused = enter("database").map(|_| ()).unwrap_err();
    assert!(refused.contains("pool_size"), "{refused}");
    assert_eq!(
        Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap().value("select 1"),
        "1",
        "others have their own"
    );
    logical.pop();
    wait_until("the next one to have its place", || enter("database").is_ok());
    drop(physical);
}
