//! Recipes about a Weir that runs: PCP, a restart that nobody notices, TLS to the servers.

use super::page::{Page, with};
use super::unit::{Machine, Service, has_machine};
use super::{
    JOE, WithAgents, conf_of_start, down, hba_of_start, installed, joe, reconfigure, servers, started, wait_agents,
    wait_forecast, wait_writable,
};
use crate::support::certs::Authority;
use crate::support::ground::{Owned, cluster_with};
use crate::support::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use weir::process::pid_file::lives;
use weir_demo::{Auth, HbaMethod, Options, ReservedPort, Server, WalLevel};

fn passwd_of_start() -> String {
    Page::read("getting-started.md").block("4. Write pool_passwd", "")
}

/// The recipe of pcp.md. Another port stands for 9898.
pub struct Pcp {
    page: Page,
    port: ReservedPort,
}

impl Pcp {
    pub fn set_up(machine: &mut Machine) -> Pcp {
        let page = Page::read("pcp.md");
        machine.run(&page.block("Set it up", "sh"));
        machine.run(&page.block("Clients", "sh"));
        Pcp { page, port: ReservedPort::any().unwrap() }
    }

    pub fn conf(&self) -> String {
        format!("pcp_port = {}\n", self.port.number())
    }

    /// The user who asks writes the password down.
    pub fn remember_password(&self, service: &Service) {
        let line = with(&self.page.block("Set it up", "text"), &[("9898", &self.port.number().to_string())]);
        self.page.says("`~/.pcppass`, with mode 0600");
        service.said(&format!("umask 077; cat > ~/.pcppass << 'END'\n{line}END"));
    }

    /// The command of a page at the port of this test.
    pub fn at_its_port(&self, command: &str) -> String {
        with(command, &[("-h localhost", &format!("-h localhost -p {}", self.port.number()))])
    }
}

#[test]
fn pcp_answers_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let mut machine = started(&cluster);
    let pcp = Pcp::set_up(&mut machine);
    let conf = conf_of_start(&machine, &cluster) + &pcp.conf();
    reconfigure(&mut machine, &conf, &passwd_of_start());
    let service = machine.start();
    wait_writable(&service);
    pcp.remember_password(&service);
    let shown = pcp.page.block("Set it up", "console");
    let ask = pcp.at_its_port(shown.lines().find_map(|line| line.strip_prefix("$ ")).unwrap());
    wait_until("both nodes to be up", || service.said(&ask).matches(" up up ").count() == 2);
    let nodes = service.said(&ask);
    let fields = |text: &str| text.lines().map(|line| line.split(' ').count()).collect::<Vec<_>>();
    assert_eq!(fields(&nodes)[..], fields(&shown)[1..], "{nodes}");
    for (line, server) in nodes.lines().zip(cluster.servers()) {
        assert!(line.starts_with(&format!("127.0.0.1 {} ", server.port())), "{line}");
    }
    // The links of the page.
    assert_eq!(service.said(&pcp.at_its_port("pcp_node_count -h localhost -U admin -w")).trim(), "2");
    service.said(&pcp.at_its_port("pcp_reload_config -h localhost -U admin -w"));
    service.said("pg_md5 'a long password'; pg_enc --help > /dev/null");
    let detach = pcp.at_its_port("pcp_detach_node -h localhost -U admin -w -n 1");
    service.said(&detach);
    assert_eq!(down(&service), 1);
    service.said(&detach.replace("detach", "attach"));
    assert_eq!(down(&service), 0);
    let wrong = "echo 'localhost:*:admin:another' > ~/.pcppass; ";
    assert!(!service.inside(&format!("{wrong}{ask}")).status.success());
}

/// Two Weirs, of which one is asked. With several, the pages have `failover_alone` left off, and `auto_failback` on.
#[test]
fn a_rolling_upgrade_before_two_weirs_starts_each_server_anew_and_fails_no_statement() {
    let Some(stand) = WithAgents::new() else { return };
    let cluster = &stand.cluster;
    Page::read("failover.md").says("With several Weirs leave it `off`");
    let mut machines = [started(cluster), installed(cluster)];
    let pcp = Pcp::set_up(&mut machines[0]);
    let alone = [("failover_alone = on ", "failover_alone = off ")];
    let more = "auto_failback = on\nauto_failback_interval = 1\n";
    Page::read("switchover.md").says("set `auto_failback = on` and `auto_failback_interval = 1` for all");
    stand.configure(&mut machines[0], &alone, &(pcp.conf() + more));
    stand.configure(&mut machines[1], &alone, more);
    let services = machines.map(Machine::start);
    for service in &services {
        wait_writable(service);
        wait_agents(service);
        wait_forecast(service);
    }
    let began = |server: &Server| server.value("select pg_postmaster_start_time()").unwrap();
    let before: Vec<String> = cluster.servers().iter().map(began).collect();
    pcp.remember_password(&services[0]);
    let commands = Page::read("switchover.md").block("Rolling upgrades", "sh");
    let walk = pcp.at_its_port(commands.lines().find(|line| line.starts_with("weir pcp ")).unwrap());
    let is_over = AtomicBool::new(false);
    let written: usize = thread::scope(|scope| {
        let write = |service| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                joe(service, "insert into written values (2)");
                count += 1;
            }
            count
        };
        let writers: Vec<_> = services.iter().map(|service| scope.spawn(move || write(service))).collect();
        let said = services[0].inside(&walk);
        is_over.store(true, Ordering::Relaxed);
        let written = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(said.status.success(), "{}\n{}", String::from_utf8_lossy(&said.stderr), services[0].log());
        written
    });
    for (server, before) in cluster.servers().iter().zip(&before) {
        assert_ne!(began(server), *before, "the server on port {}", server.port());
    }
    let is_standby = |server: &Server| server.in_recovery().unwrap();
    assert!(is_standby(cluster.primary()), "the old primary follows the new one");
    for service in &services {
        wait_until("all nodes to be in use", || down(service) == 0);
        let count = joe(service, "/*NO LOAD BALANCE*/ select count(*) from written where number = 2");
        assert_eq!(count, written.to_string());
    }
}

const RESTART: &str = "A restart nobody notices";

/// The first line of a block. `runuser` would leave its process behind where it is killed.
fn as_weir(block: &str) -> String {
    let command = block.lines().next().unwrap();
    with(command, &[("runuser -u weir --", "setpriv --reuid weir --regid weir --clear-groups --pdeathsig KILL")])
}

/// The page's service, which can be restarted, once it takes writes.
fn restartable_service(cluster: &Owned, page: &Page) -> Service {
    let mut machine = started(cluster);
    let conf = conf_of_start(&machine, cluster) + &page.block(RESTART, "ini");
    reconfigure(&mut machine, &conf, &passwd_of_start());
    let service = machine.start();
    wait_writable(&service);
    service
}

#[test]
fn a_new_weir_takes_over_and_nobody_notices() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let page = Page::read("operations.md");
    let mut service = restartable_service(&cluster, &page);
    let mut client = Command::new("psql");
    client.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", "host=127.0.0.1 user=joe dbname=shop"]);
    client.env("PGPORT", service.port().to_string()).env("PGPASSWORD", JOE).env("LC_ALL", "C");
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut typed = client.stdin.take().unwrap();
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut ask = |statement: &str| {
        writeln!(typed, "{statement};").unwrap();
        said.next().unwrap().unwrap()
    };
    assert_eq!(ask("set application_name = 'older'; select 1"), "1");

    let mut new = service.begin_inside(&as_weir(&page.blocks(RESTART, "sh")[0]));
    wait_until("the old process to give up its sockets", || {
        assert!(new.end().is_none(), "{}", new.log());
        service.log().contains("has taken over")
    });
    assert_eq!(joe(&service, "select count(*) from written"), "1", "{}", new.log());
    let sockets = service.path("/run/weir").display().to_string();
    assert_eq!(service.psql_at(&sockets, "joe", JOE, "select 1").unwrap(), "1");
    assert_eq!(ask("show application_name"), "older");
    drop(typed);
    assert!(client.wait().unwrap().success());
    let mut end = None;
    wait_until("the old process to end with its last client", || {
        end = service.end();
        end.is_some()
    });
    assert!(end.unwrap().success(), "{}", service.log());
    joe(&service, "insert into written values (2)");
    for line in new.log().lines() {
        assert!(!line.contains("WARNING") && !line.contains("ERROR"), "{line}");
    }
}

#[test]
fn the_unit_is_renewed_as_the_page_says() {
    if !has_machine() {
        return;
    }
    let cluster = servers(1, WalLevel::Replica, &hba_of_start());
    let page = Page::read("operations.md");
    let mut service = restartable_service(&cluster, &page);
    let mut asked = service.begin_inside(&as_weir(&page.blocks(RESTART, "sh")[1]));
    wait_until("the renewal to be told", || asked.end().is_some());
    let said = asked.log();
    let renewed = said.lines().find_map(|line| line.strip_prefix("process ")?.split(' ').next()?.parse().ok());
    let renewed = Pid::from_raw(renewed.unwrap_or_else(|| panic!("{said}{}", service.log()))).unwrap();
    wait_until("the process before it to end", || service.end().is_some());
    assert_eq!(joe(&service, "select count(*) from written"), "1", "{said}");
    kill_process(renewed, Signal::TERM).unwrap();
    wait_until("the renewed process to end", || !lives(renewed));
}

/// The reader has servers with certificates, and lets nobody in without TLS.
#[test]
fn servers_are_reached_by_tls_as_its_page_says() {
    if !has_machine() {
        return;
    }
    let (page, authority) = (Page::read("tls.md"), Authority::new("authority"));
    let certificate = authority.server();
    let files = [("server.crt", certificate.cert), ("server.key", certificate.key)];
    let conf = [("ssl", "on"), ("full_page_writes", "on")];
    let hba_lines = hba_of_start().lines().map(|line| line.replacen("host ", "hostssl ", 1)).collect();
    let cluster = cluster_with(Options {
        standbys: 1,
        auth: Auth { method: HbaMethod::Scram, hba_lines, ..Auth::default() },
        extra_conf: conf.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        extra_files: files.map(|(name, text)| (name.into(), text.into_bytes())).into(),
        ..Options::default()
    });
    cluster.primary().query(&format!("create role joe login password '{JOE}'")).unwrap();
    cluster.primary().query("create database shop owner joe").unwrap();
    let mut machine = started(&cluster);
    machine.write("servers-ca.crt", &authority.pem());
    machine.run("install -m 644 servers-ca.crt /etc/weir/");
    let conf = conf_of_start(&machine, &cluster) + &page.block("Servers", "ini");
    reconfigure(&mut machine, &conf, &passwd_of_start());
    let service = machine.start();
    wait_writable(&service);
    assert_eq!(joe(&service, "select ssl from pg_stat_ssl where pid = pg_backend_pid()"), "t");
    wait_until("the other server to be up", || joe(&service, "show pool_nodes").matches("|up|up|").count() == 2);
}
