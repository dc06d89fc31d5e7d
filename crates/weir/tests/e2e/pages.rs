//! Recipes of the pages, as they stand: the blocks of `docs/` are the files and commands of a machine on which Weir is a service (`unit`). Only hosts,
//! ports and addresses are others, and what a page leaves to its reader, which is said where it is done.

pub mod page;
mod running;
mod unit;

use crate::agent::stand::{Agent, SECRET, wait_streams};
use crate::stores::{Kind, Store};
use crate::support::certs::Authority;
use crate::support::ground::{Owned, cluster_with};
use crate::support::{has_programs, leave_out, wait_until};
use page::{Page, with};
use std::fs;
use std::path::Path;
use std::process::Command;
use unit::{Machine, Service, has_machine};
use weir_demo::{Auth, HbaMethod, Options, ReservedPort, Server, WalLevel};

/// The password of the user joe in getting-started.md.
const JOE: &str = "his password";
const HERE: &str = "127.0.0.1/32";

/// Servers that let in nobody but by these lines of `pg_hba.conf`, beside their standbys and their superuser over the unix socket; with a user and a database
/// of theirs.
fn servers(standbys: usize, wal_level: WalLevel, hba: &str) -> Owned {
    let auth = Auth { method: HbaMethod::Scram, hba_lines: hba.lines().map(str::to_owned).collect(), ..Auth::default() };
    // Without it nothing can be rewound.
    let extra_conf = vec![("full_page_writes".to_owned(), "on".to_owned())];
    let cluster = cluster_with(Options { standbys, wal_level, auth, extra_conf, ..Options::default() });
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
    cluster.primary().query(&Page::read("getting-started.md").block("2. Let Weir ask the servers", "sql")).unwrap();
    cluster.wait_caught_up().unwrap();
    installed(cluster)
}

/// Its part on Weir's machine.
fn installed(cluster: &Owned) -> Machine {
    let page = Page::read("getting-started.md");
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
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
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

/// Servers of failover.md: its user is let in everywhere. `None`: the test is left out.
fn servers_of_failover() -> Option<Owned> {
    if !has_machine() {
        return None;
    }
    let hba = format!("host postgres weir {HERE} scram-sha-256\nhost replication weir {HERE} scram-sha-256\n");
    let cluster = servers(2, WalLevel::Replica, &(hba_of_start() + &hba));
    if cluster.primary().programs().major() < 15 {
        leave_out("rights of failover.md take PostgreSQL 15");
        return None;
    }
    cluster.primary().query(&Page::read("failover.md").block("Turn it on", "sql")).unwrap();
    Some(cluster)
}

/// The recipe of failover.md. The reader has a third server.
fn conf_of_failover(machine: &Machine, cluster: &Owned) -> String {
    let mut recipe = Page::read("failover.md").block("Turn it on", "ini");
    for (at, server) in cluster.servers().iter().enumerate() {
        let name = |name: &str| format!("backend_application_name{at} = '{name}'");
        recipe = with(&recipe, &[(&name(&format!("server{at}")), &name(server.name()))]);
    }
    let port = cluster.servers()[2].port();
    let third = format!("backend_hostname2 = '127.0.0.1'\nbackend_port2 = {port}\nbackend_weight2 = 1\n");
    conf_of_start(machine, cluster) + &third + &recipe
}

fn passwd_of_failover() -> String {
    Page::read("getting-started.md").block("4. Write pool_passwd", "") + "weir:...\n"
}

fn wait_forecast(service: &Service) {
    wait_until("the forecast to name a standby", || joe(service, "show pool_failover").contains("would be promoted"));
}

fn down(service: &Service) -> usize {
    joe(service, "show pool_nodes").lines().filter(|line| line.contains("|down|")).count()
}

/// The only server that takes writes.
fn primary(cluster: &Owned) -> &Server {
    let is_primary = |server: &&Server| server.is_running() && server.in_recovery().is_ok_and(|recovers| !recovers);
    let [primary] = cluster.servers().iter().filter(is_primary).collect::<Vec<_>>()[..] else { panic!("one primary") };
    primary
}

#[test]
fn the_recipe_of_failover_replaces_a_primary_and_tells_the_way_back() {
    let Some(cluster) = servers_of_failover() else { return };
    let page = Page::read("failover.md");
    let mut machine = started(&cluster);
    let conf = conf_of_failover(&machine, &cluster);
    reconfigure(&mut machine, &conf, &passwd_of_failover());
    let service = machine.start();
    wait_writable(&service);
    let stored = service.path("/var/lib/weir").join(format!("weir_failover.{}", service.port()));
    wait_until("the state to be stored where the recipe says", || stored.exists());
    wait_forecast(&service);
    let old = cluster.primary();
    old.kill9().unwrap();
    joe(&service, "insert into written values (2)");
    assert_eq!(down(&service), 1);
    // Without an agent the operator makes a copy of the new primary.
    old.clone_from(primary(&cluster)).unwrap();
    wait_until("the log to tell the way back", || {
        service.log().contains("it streams from the primary and is out of use: attach it")
    });
    page.says("`ATTACH 0`");
    page.says("`pcp_attach_node -n 0`");
    joe(&service, "insert into written values (3)");
}

/// Servers of failover.md with the agents of agent.md beside them. The reader chooses ports for the agents, writes the same secret everywhere, and names
/// himself in `admin_users`.
struct WithAgents {
    cluster: Owned,
    agents: Vec<Agent>,
}

impl WithAgents {
    /// `None`: the test is left out.
    fn new() -> Option<WithAgents> {
        let cluster = servers_of_failover()?;
        if !has_programs(cluster.primary(), &["pg_rewind", "pg_basebackup", "psql"]) {
            return None;
        }
        let page = Page::read("agent.md");
        let sql = page.block("Install", "sql");
        // The user is there already, as the page says it may be.
        let rights = sql.split_once(';').unwrap().1.split_once('\n').unwrap().1;
        cluster.primary().query(rights).unwrap();
        let passfile = with(&page.block("Install", "text"), &[("5432", "*"), ("the password", "...")]);
        let options = ["--allow", "127.0.0.1", "--passfile", "FOLDER/pgpass"];
        let beside = |server| Agent::with(server, &[("pgpass", &passfile)], &options);
        let agents = cluster.servers().iter().map(beside).collect();
        Some(WithAgents { cluster, agents })
    }

    /// Weir's machine gets the secret and the configuration; the user then changes some of it.
    fn configure(&self, machine: &mut Machine, others: &[(&str, &str)], more: &str) {
        let page = Page::read("agent.md");
        let address = |at: usize| format!("127.0.0.1:{}", self.agents[at].port.number());
        let of_agents = with(&page.block("Install", "ini"), &[("10.0.0.1:9797", &address(0)), ("10.0.0.2:9797", &address(1))]);
        machine.write("agent_secret", SECRET);
        let secret = page.blocks("Install", "sh")[0].lines().find(|line| line.starts_with("chmod ")).unwrap().to_owned();
        machine.run(&format!("install agent_secret /etc/weir/agent_secret\n{secret}\nchown weir /etc/weir/agent_secret\n"));
        let conf = with(&conf_of_failover(machine, &self.cluster), others) + &of_agents;
        let conf = conf + &format!("backend_agent2 = '{}'\nadmin_users = 'joe'\n", address(2)) + more;
        reconfigure(machine, &conf, &passwd_of_failover());
    }
}

fn wait_agents(service: &Service) {
    wait_until("all agents to be connected", || joe(service, "show pool_agents").matches("|connected|").count() == 3);
}

#[test]
fn with_agents_a_primary_that_was_killed_comes_back_and_a_switchover_moves_the_writes() {
    let Some(stand) = WithAgents::new() else { return };
    let cluster = &stand.cluster;
    let mut machine = started(cluster);
    stand.configure(&mut machine, &[], "");
    let service = machine.start();
    wait_writable(&service);
    wait_agents(&service);
    wait_forecast(&service);
    let old = cluster.primary();
    old.kill9().unwrap();
    joe(&service, "insert into written values (2)");
    let new = primary(cluster);
    wait_streams(old, new);
    wait_until("all nodes to be in use", || down(&service) == 0);
    let switchover = Page::read("switchover.md");
    let [command] = &switchover.blocks("Do it", "sh")[..] else { panic!("one block of commands") };
    assert!(command.contains("psql -d pgbouncer -c 'SWITCHOVER 2'"), "{command}");
    let next = cluster.servers().iter().position(|server| server.port() != new.port() && server.port() != old.port()).unwrap();
    let console = "host=127.0.0.1 user=joe dbname=pgbouncer";
    service.psql_to(console, JOE, &format!("SWITCHOVER {next}")).unwrap();
    joe(&service, "insert into written values (3)");
    assert_eq!(primary(cluster).port(), cluster.servers()[next].port());
    assert_eq!(joe(&service, "/*NO LOAD BALANCE*/ select count(*) from written"), "3");
    wait_streams(new, primary(cluster));
}

/// The first column of `SHOW pool_cache`.
fn cache_hits(service: &Service) -> String {
    joe(service, "show pool_cache").split('|').next().map(str::to_owned).unwrap_or_default()
}

/// A read that was cached, a write through Weir, and what the page has one look at.
fn check_cache(service: &Service, page: &Page) {
    joe(service, "create table products (id int primary key, name text)");
    joe(service, "insert into products values (7, 'chair')");
    let read = "select name from products where id = 7";
    wait_until("the read to be answered from memory", || {
        assert_eq!(joe(service, read), "chair");
        cache_hits(service) != "0"
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
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
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
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Logical, &hba_of_start());
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

#[test]
fn several_weirs_share_a_cache_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Logical, &hba_of_start());
    let start = || Store::start_with(Kind::Redis, &["--requirepass", "secret"]);
    let (Some(one), Some(other)) = (start(), start()) else { return };
    let page = Page::read("cache.md");
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", one.port.number(), other.port.number());
    let shared = with(&page.blocks("Turn it on", "")[2], &[("cache1:6379,cache2:6379", &hosts)]);
    let passwd = Page::read("getting-started.md").block("4. Write pool_passwd", "");
    let mut machines = vec![started(&cluster), installed(&cluster)];
    cluster.primary().query(page.says("ALTER ROLE monitor REPLICATION")).unwrap();
    for machine in &mut machines {
        let conf = conf_of_start(machine, &cluster) + &shared;
        reconfigure(machine, &conf, &passwd);
    }
    let services: Vec<Service> = machines.into_iter().map(Machine::start).collect();
    check_cache(&services[0], &page);
    let read = "select name from products where id = 7";
    wait_until("the other Weir to answer from the store", || {
        assert_eq!(joe(&services[1], read), "table");
        cache_hits(&services[1]) != "0"
    });
    joe(&services[1], "update products set name = 'lamp' where id = 7");
    wait_until("a write through the other Weir to be seen", || joe(&services[0], read) == "lamp");
}

/// The reader gives the start from scratch its servers and its port.
#[test]
fn a_start_from_scratch_lets_in_users_whose_passwords_only_the_servers_know() {
    if !has_machine() {
        return;
    }
    let page = Page::read("authentication.md");
    let scratch = "A start from scratch";
    let blocks = page.blocks(scratch, "");
    let [hba, conf, passwd, pool_hba] = &blocks[..] else { panic!("four files: {blocks:?}") };
    let cluster = servers(1, WalLevel::Replica, &with(hba, &[("WEIRS_ADDRESS/32", HERE)]));
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

#[test]
fn databases_are_served_by_the_names_of_their_page() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let page = Page::read("databases.md");
    let blocks = page.blocks("Databases by another name", "");
    let [entries, conf] = &blocks[..] else { panic!("two files: {blocks:?}") };
    cluster.primary().query("create role reader login password 'secret'").unwrap();
    cluster.primary().query("create database shop_2024").unwrap();
    let mut machine = started(&cluster);
    machine.write("databases", entries);
    machine.run("install -m 600 -o weir -g weir databases /etc/weir/");
    let conf = conf_of_start(&machine, &cluster) + conf;
    reconfigure(&mut machine, &conf, &Page::read("getting-started.md").block("4. Write pool_passwd", ""));
    let service = machine.start();
    let ask = |database: &str, statement: &str| {
        service.psql_to(&format!("host=127.0.0.1 user=joe dbname={database}"), JOE, statement).unwrap()
    };
    assert_eq!(ask("shop", "select current_database(), session_user"), "shop_2024|joe");
    assert_eq!(ask("reports", "select current_database(), session_user"), "shop_2024|reader");
    assert_eq!(ask("batch", "show statement_timeout"), "1h");
    assert_eq!(ask("shop_2024", "select current_database()"), "shop_2024", "under its own name, too");
}

#[test]
fn tls_is_offered_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let page = Page::read("tls.md");
    let authority = Authority::new("authority");
    let certificate = authority.server();
    let mut machine = started(&cluster);
    machine.write("server.crt", &certificate.cert);
    machine.write("server.key", &certificate.key);
    machine.write("root.crt", &authority.pem());
    machine.run("install -m 644 server.crt /etc/weir/\ninstall -m 600 -o weir -g weir server.key /etc/weir/");
    let conf = conf_of_start(&machine, &cluster) + &page.block("Clients", "");
    reconfigure(&mut machine, &conf, &Page::read("getting-started.md").block("4. Write pool_passwd", ""));
    let root = machine.file("root.crt");
    let service = machine.start();
    page.says("`channel_binding=require`");
    for words in ["sslmode=require", "sslmode=verify-full", "sslmode=require channel_binding=require", "sslmode=disable"] {
        let target = format!("host=localhost user=joe dbname=shop {words} sslrootcert={}", root.display());
        let said = service.psql_to(&target, JOE, "select 1").unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(said, "1", "{words}");
    }
}

/// The reader has a `pgbouncer.ini` with a file of users.
#[test]
fn a_pgbouncer_is_taken_over_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let page = Page::read("from-pgbouncer.md");
    let mut machine = Machine::new();
    let (server, port) = (cluster.primary().port(), machine.port());
    machine.write(
        "pgbouncer.ini",
        &format!(
            "[databases]\nshop = host=127.0.0.1 port={server} dbname=shop\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = scram-sha-256\nauth_file = /etc/pgbouncer/userlist.txt\npool_mode = transaction\n"
        ),
    );
    machine.write("userlist.txt", &format!("\"joe\" \"{JOE}\"\n"));
    machine.run("install -d /etc/pgbouncer\ninstall -m 644 pgbouncer.ini userlist.txt /etc/pgbouncer/");
    machine.run(Page::read("getting-started.md").says("useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin weir"));
    machine.run("install -d -m 755 /etc/weir");
    machine.run(&page.block("From PgBouncer", "sh"));
    let service = machine.start();
    wait_writable(&service);
    let refused = service.psql("joe", "another", "select 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
}

/// Of Debian's package `pgpool2`, as it is installed to /etc/pgpool2.
const STOCK: &str = "/usr/share/pgpool2/pgpool.conf";

/// The package's file with the lines of an operator who has two servers and one user.
fn conf_of_pgpool2(machine: &Machine, cluster: &Owned, pcp: &ReservedPort) -> String {
    let mut conf = fs::read_to_string(STOCK).unwrap();
    conf += &format!("\nport = {}\npcp_port = {}\n", machine.port(), pcp.number());
    for (at, server) in cluster.servers().iter().enumerate() {
        conf += &format!(
            "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\nbackend_weight{at} = 1\n\
             backend_application_name{at} = '{}'\n",
            server.port(),
            server.name()
        );
    }
    conf + "sr_check_user = 'monitor'\nhealth_check_period = 10\nhealth_check_user = 'monitor'\n"
}

#[test]
fn debians_pgpool2_is_taken_over_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let has_user = Command::new("id").arg("postgres").output().is_ok_and(|said| said.status.success());
    if !Path::new(STOCK).exists() || !has_user {
        leave_out("there is no Pgpool-II of Debian's (apt-get install pgpool2)");
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    cluster.primary().query(&Page::read("getting-started.md").block("2. Let Weir ask the servers", "sql")).unwrap();
    cluster.wait_caught_up().unwrap();
    let page = Page::read("from-pgpool.md");
    let (mut machine, pcp) = (Machine::new(), ReservedPort::any().unwrap());
    let said = Command::new("/usr/sbin/pcp_node_info").arg("--version").output().unwrap();
    let is_old = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).contains("(pgpool-II) 4.3");
    let line = page.block("On Debian", "ini");
    let line = if is_old { line.as_str() } else { "" };
    machine.write("pgpool.conf", &(conf_of_pgpool2(&machine, &cluster, &pcp) + line));
    // The digest of `admin`.
    machine.write("pcp.conf", "admin:21232f297a57a5a743894a0e4a801fc3\n");
    machine.write("pool_passwd", &format!("joe:TEXT{JOE}\nmonitor:TEXTsecret\n"));
    // As the package and systemd-tmpfiles leave them.
    machine.run(
        "install -d /etc/pgpool2\ninstall -m 640 -g postgres pgpool.conf pool_passwd /etc/pgpool2/\n\
         install -m 644 pcp.conf /etc/pgpool2/\ninstall -d -o postgres -g postgres -m 2775 /run/postgresql\n\
         install -d -o root -g postgres -m 1775 /var/log/postgresql\n",
    );
    // The command that starts a daemon is not for a unit, and those that act on one come below.
    let [check, commands] = &page.blocks("Try your file", "sh")[..] else { panic!("two blocks") };
    machine.run(check);
    machine.run(page.says(commands.lines().next().unwrap()));
    machine.run(&page.block("On Debian", "sh"));
    let mut service = machine.start_pgpool2();
    wait_writable(&service);
    wait_until("both servers to be up", || joe(&service, "show pool_nodes").matches("|up|up|").count() == 2);
    // Where Debian's clients look: /var/run is a link to /run.
    let sockets = service.path("/run/postgresql").display().to_string();
    assert_eq!(service.psql_at(&sockets, "joe", JOE, "select 1").unwrap(), "1");
    let refused = service.psql("joe", "another", "select 1").unwrap_err();
    assert!(refused.contains("password authentication failed"), "{refused}");
    let ask = format!(
        "umask 77; echo '*:*:admin:admin' > /run/pcppass; PCPPASSFILE=/run/pcppass /usr/sbin/pcp_node_info -h 127.0.0.1 -p {} -U admin -w -n 1",
        pcp.number()
    );
    // A node waits, for PCP, until a client that came is counted.
    wait_until("Debian's tool to show the standby", || {
        let said = service.inside(&ask);
        let shown = String::from_utf8_lossy(&said.stdout).into_owned();
        let is_shown = shown.contains(" standby standby 0 streaming async 20");
        assert!(is_shown, "{shown}{}", String::from_utf8_lossy(&said.stderr));
        shown.contains(" up up standby")
    });
    let [_, _, reload, stop] = commands.lines().collect::<Vec<_>>()[..] else { panic!("four commands") };
    let reloaded = service.inside(reload);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    wait_until("the reload", || service.log().contains("reload"));
    for line in service.log().lines() {
        assert!(!line.contains("WARNING") && !line.contains("ERROR"), "{line}");
    }
    assert!(service.inside(stop).status.success());
    wait_until("it to end", || service.end().is_some());
}
