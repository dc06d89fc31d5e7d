//! Recipes of the pages, as they stand: the blocks of `docs/` are the files and commands of a machine on which Weir is a service (`unit`). Only hosts,
//! ports and addresses are others, and what a page leaves to its reader, which is said where it is done.

mod page;
mod unit;

use crate::support::ground::{Owned, cluster_with};
use crate::support::{leave_out, wait_until};
use page::{Page, with};
use unit::{Machine, Service, has_machine};
use weir_demo::{Auth, HbaMethod, Options, Server, WalLevel};

/// The password of the user joe in getting-started.md.
const JOE: &str = "his password";
const HERE: &str = "127.0.0.1/32";

/// Servers that let in nobody but by these lines of `pg_hba.conf`, beside their standbys and their superuser over the unix socket; with a user and a database
/// of theirs.
fn servers(standbys: usize, wal_level: WalLevel, hba: &str) -> Owned {
    let auth = Auth { method: HbaMethod::Scram, hba_lines: hba.lines().map(str::to_owned).collect(), ..Auth::default() };
    let cluster = cluster_with(Options { standbys, wal_level, auth, ..Options::default() });
    cluster.primary().query(&format!("create role joe login password '{JOE}'")).unwrap();
    cluster.primary().query("create database shop owner joe").unwrap();
    cluster
}

/// The lines of getting-started.md that let Weir's machine in.
fn hba_of_start() -> String {
    with(&Page::read("getting-started.md").block("2. Let Weir ask the servers", ""), &[("10.0.0.9/32", HERE)])
}

/// `pgpool.conf` of getting-started.md, before the first two servers.
fn conf_of_start(machine: &Machine, cluster: &Owned) -> String {
    let [first, second, ..] = cluster.servers() else { panic!("two servers at least") };
    let number = |server: &Server, at: u32| format!("backend_port{at} = {}", server.port());
    with(
        &Page::read("getting-started.md").block("3. Write pgpool.conf", ""),
        &[
            ("port = 9999", &format!("port = {}", machine.port())),
            ("backend_hostname0 = 'db1'", "backend_hostname0 = '127.0.0.1'"),
            ("backend_port0 = 5432", &number(first, 0)),
            ("backend_application_name0 = 'db1'", &format!("backend_application_name0 = '{}'", first.name())),
            ("backend_hostname1 = 'db2'", "backend_hostname1 = '127.0.0.1'"),
            ("backend_port1 = 5432", &number(second, 1)),
            ("backend_application_name1 = 'db2'", &format!("backend_application_name1 = '{}'", second.name())),
        ],
    )
}

/// All of getting-started.md up to the start of the unit.
fn started(cluster: &Owned) -> Machine {
    let page = Page::read("getting-started.md");
    cluster.primary().query(&page.block("2. Let Weir ask the servers", "sql")).unwrap();
    cluster.wait_caught_up().unwrap();
    let mut machine = Machine::new();
    machine.write("pgpool.conf", &conf_of_start(&machine, cluster));
    machine.write("pool_passwd", &page.block("4. Write pool_passwd", ""));
    machine.run(&page.block("4. Write pool_passwd", "sh"));
    machine.run(&page.block("7. As a service", "sh"));
    machine
}

/// The operator changes `pgpool.conf` of the running service, checks it and starts the service anew. The unit's folders are there since its first start.
fn reconfigure(machine: &mut Machine, conf: &str, passwd: &str) {
    machine.make_folders();
    machine.write("pgpool.conf.2", conf);
    machine.write("pool_passwd.2", passwd);
    machine.run(
        "install -m 644 pgpool.conf.2 /etc/weir/pgpool.conf\n\
         install -m 600 -o weir -g weir pool_passwd.2 /etc/weir/pool_passwd\n\
         runuser -u weir -- weir check -f /etc/weir/pgpool.conf\n",
    );
}

fn joe(service: &Service, statement: &str) -> String {
    service.psql("joe", JOE, statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// Waits until a write goes through: a service that just began does not know the primary yet.
fn wait_writable(service: &Service) {
    joe(service, "create table if not exists written (number int)");
    joe(service, "insert into written values (1)");
}

#[test]
fn getting_started_leads_to_a_service_that_reads_and_writes() {
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    if !has_machine(cluster.primary()) {
        return;
    }
    let page = Page::read("getting-started.md");
    let service = started(&cluster).start();
    let look = page.block("6. Look", "sh");
    let look = with(&look, &[("-p 9999", &format!("-p {}", service.port()))]);
    let mut shown = String::new();
    wait_until("both servers to be up, and one the primary", || {
        let said = service.shell(&look, JOE);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        shown = String::from_utf8(said.stdout).unwrap();
        let has = |word: &str| shown.lines().filter(|line| line.split('|').any(|field| field.trim() == word)).count();
        has("up") == 2 && has("primary") == 1 && has("standby") == 1
    });
    wait_writable(&service);
    cluster.wait_caught_up().unwrap();
    assert_eq!(joe(&service, "select number from written"), "1");
    page.says("`psql -h /run/weir`");
    let sockets = service.path("/run/weir").display().to_string();
    assert_eq!(service.psql_at(&sockets, "joe", JOE, "select 1").unwrap(), "1");
    let refused = service.psql("joe", "another", "select 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
    for line in service.log().lines() {
        assert!(!line.contains("WARNING") && !line.contains("ERROR"), "{line}");
    }
    // Neither do the servers have anything to complain of.
    for server in cluster.servers() {
        let log = server.log();
        assert!(!log.contains("monitor@") && !log.contains("joe@"), "{log}");
    }
}

/// The reader lets the user in on all servers, writes its password to `pool_passwd`, and has a third server.
#[test]
fn the_recipe_of_failover_replaces_a_primary_and_tells_the_way_back() {
    let hba = format!("host postgres weir {HERE} scram-sha-256\nhost replication weir {HERE} scram-sha-256\n");
    let cluster = servers(2, WalLevel::Replica, &(hba_of_start() + &hba));
    if !has_machine(cluster.primary()) {
        return;
    }
    if cluster.primary().programs().major() < 15 {
        return leave_out("rights of failover.md take PostgreSQL 15");
    }
    let page = Page::read("failover.md");
    cluster.primary().query(&page.block("Turn it on", "sql")).unwrap();
    let mut machine = started(&cluster);
    let third = &cluster.servers()[2];
    let names: Vec<(String, String)> = cluster
        .servers()
        .iter()
        .enumerate()
        .map(|(at, server)| {
            (
                format!("backend_application_name{at} = 'server{at}'"),
                format!("backend_application_name{at} = '{}'", server.name()),
            )
        })
        .collect();
    let names: Vec<(&str, &str)> = names.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    let recipe = with(&page.block("Turn it on", "ini"), &names);
    let third = format!("backend_hostname2 = '127.0.0.1'\nbackend_port2 = {}\nbackend_weight2 = 1\n", third.port());
    let conf = conf_of_start(&machine, &cluster) + &third + &recipe;
    let passwd = Page::read("getting-started.md").block("4. Write pool_passwd", "") + "weir:...\n";
    reconfigure(&mut machine, &conf, &passwd);
    let service = machine.start();
    wait_writable(&service);
    let stored = service.path("/var/lib/weir").join(format!("weir_failover.{}", service.port()));
    wait_until("the state to be stored where the recipe says", || stored.exists());
    let forecast = || joe(&service, "show pool_failover");
    wait_until("the forecast to name a standby", || forecast().contains("would be promoted"));
    let old = cluster.primary();
    old.kill9().unwrap();
    joe(&service, "insert into written values (2)");
    let is_primary = |server: &&Server| server.is_running() && !server.in_recovery().unwrap();
    let new = cluster.servers().iter().find(is_primary).expect("a standby is the primary now");
    let down = "show pool_nodes";
    assert_eq!(joe(&service, down).lines().filter(|line| line.contains("|down|")).count(), 1, "{}", joe(&service, down));
    // Without an agent the operator makes a copy of the new primary.
    old.clone_from(new).unwrap();
    wait_until("the log to tell the way back", || {
        service.log().contains("it streams from the primary and is out of use: attach it")
    });
    page.says("`ATTACH 0`");
    page.says("`pcp_attach_node -n 0`");
    joe(&service, "insert into written values (3)");
}

/// A read that was cached, a write through Weir, and what the page has one look at.
fn check_cache(service: &Service, page: &Page) {
    joe(service, "create table products (id int primary key, name text)");
    joe(service, "insert into products values (7, 'chair')");
    let read = "select name from products where id = 7";
    let hits = || joe(service, "show pool_cache").split('|').next().map(str::to_owned).unwrap_or_default();
    wait_until("the read to be answered from memory", || {
        assert_eq!(joe(service, read), "chair");
        hits() != "0"
    });
    joe(service, "update products set name = 'table' where id = 7");
    assert_eq!(joe(service, read), "table");
    for line in page.block("See that it works", "").lines() {
        let statement = line.trim_start_matches("=> ").split("--").next().unwrap_or_default();
        joe(service, statement);
    }
}

#[test]
fn the_cache_of_one_weir_is_turned_on_as_its_page_says() {
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    if !has_machine(cluster.primary()) {
        return;
    }
    let page = Page::read("cache.md");
    let mut machine = started(&cluster);
    let conf = conf_of_start(&machine, &cluster) + &page.blocks("Turn it on", "")[0];
    reconfigure(&mut machine, &conf, &Page::read("getting-started.md").block("4. Write pool_passwd", ""));
    let service = machine.start();
    check_cache(&service, &page);
}

/// `wal_level` is set where the servers are made: the page's ALTER SYSTEM takes a restart.
#[test]
fn the_cache_that_reads_the_log_is_turned_on_as_its_page_says() {
    let cluster = servers(1, WalLevel::Logical, &hba_of_start());
    if !has_machine(cluster.primary()) {
        return;
    }
    let page = Page::read("cache.md");
    page.says("`wal_level = logical` on all nodes");
    let mut machine = started(&cluster);
    cluster.primary().query(page.says("ALTER ROLE monitor REPLICATION")).unwrap();
    let conf = conf_of_start(&machine, &cluster) + &page.blocks("Turn it on", "")[1];
    reconfigure(&mut machine, &conf, &Page::read("getting-started.md").block("4. Write pool_passwd", ""));
    let service = machine.start();
    check_cache(&service, &page);
    wait_until("the log to be followed", || joe(&service, "show pool_cache_wal").contains("following"));
    // Past Weir.
    let mut direct = cluster.primary().connect("postgres", "shop").unwrap();
    direct.query("update products set name = 'lamp' where id = 7").unwrap();
    wait_until("the write past Weir to be seen", || joe(&service, "select name from products where id = 7") == "lamp");
}

/// The reader gives the start from scratch its servers and its port.
#[test]
fn a_start_from_scratch_lets_in_users_whose_passwords_only_the_servers_know() {
    let page = Page::read("authentication.md");
    let scratch = "A start from scratch";
    let blocks = page.blocks(scratch, "");
    let [hba, conf, passwd, pool_hba] = &blocks[..] else { panic!("four files: {blocks:?}") };
    let cluster = servers(1, WalLevel::Replica, &with(hba, &[("WEIRS_ADDRESS/32", HERE)]));
    if !has_machine(cluster.primary()) {
        return;
    }
    cluster.primary().query(&page.block("auth_query", "sql")).unwrap();
    cluster.primary().query(&page.block(scratch, "sql")).unwrap();
    cluster.wait_caught_up().unwrap();
    let mut machine = Machine::new();
    let of_start = conf_of_start(&machine, &cluster);
    // `sr_check_user` is this page's.
    let of_start: String =
        of_start.lines().filter(|line| !line.starts_with("sr_check_user")).map(|line| format!("{line}\n")).collect();
    machine.write("pgpool.conf", &(of_start + conf));
    machine.write("pool_passwd", passwd);
    machine.write("pool_hba.conf", pool_hba);
    machine.run("chmod 600 pool_passwd");
    machine.run(page.says("weir check -f pgpool.conf"));
    machine.run("install -d -m 755 /etc/weir\ninstall -m 644 pool_hba.conf /etc/weir/");
    machine.run(&Page::read("getting-started.md").block("7. As a service", "sh"));
    let service = machine.start();
    wait_writable(&service);
    let sockets = service.path("/run/weir").display().to_string();
    for host in ["127.0.0.1", &sockets] {
        assert_eq!(service.psql_at(host, "joe", JOE, "select session_user").unwrap(), "joe");
        let refused = service.psql_at(host, "joe", "another", "select 1").unwrap_err();
        assert!(refused.contains("password authentication failed"), "{host}: {refused}");
        let unknown = service.psql_at(host, "nobody", JOE, "select 1").unwrap_err();
        assert!(unknown.contains("password authentication failed"), "{host}: {unknown}");
    }
    cluster.primary().query("alter role joe password 'a new one'").unwrap();
    wait_until("the new password to be taken", || service.psql("joe", "a new one", "select 1").is_ok());
}
