//! Several proxies as one group, on one host: its members are killed and frozen, alone and together with servers.

use super::*;
use crate::support::proxy::{Folder, configuration, show};
use std::net::{TcpListener, UdpSocket};

const HOSTS: usize = 3;
/// The lease is the default one, 2 s.
const GROUP: &str = "use_watchdog = on\nwd_heartbeat_keepalive = 1\n";

/// PCP over a socket in the folder of each; `admin` with password `secret`.
const PCP: &str = "pcp_listen_addresses = ''\npcp_socket_dir = 'FOLDER'\n";
const PCP_USERS: &str = "admin:5ebe2294ecd0e0f08eab7690d2a6ee69\n";

pub struct Group {
    pub proxies: Vec<Proxy>,
}

/// Free ports for TCP and UDP. Others may take them until they are used.
fn ports(count: usize) -> Vec<u16> {
    let sockets: Vec<(TcpListener, UdpSocket)> = std::iter::from_fn(|| {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok();
        Some(udp.map(|udp| (tcp, udp)))
    })
    .flatten()
    .take(count)
    .collect();
    sockets.iter().map(|(tcp, _)| tcp.local_addr().unwrap().port()).collect()
}

/// Configuration of three hosts.
fn lines(cluster: &Owned) -> String {
    let ports = ports(HOSTS);
    let hosts: String = ports
        .iter()
        .enumerate()
        .map(|(host, port)| {
            format!(
                "hostname{host} = '127.0.0.1'\nwd_port{host} = {port}\npgpool_port{host} = {}\nheartbeat_hostname{host} = '127.0.0.1'\n\
                 heartbeat_port{host} = {port}\n",
                20_000 + host
            )
        })
        .collect();
    let names: String = NAMES.lines().take(cluster.servers().len()).map(|line| format!("{line}\n")).collect();
    format!("{BUILTIN}{GROUP}{hosts}{names}")
}

impl Group {
    /// In `more`, `HOST_ADDRESS` stands for an address of this machine that each host has for itself.
    pub fn start(cluster: &Owned, more: &str) -> Group {
        Group::begin(cluster, &format!("{}{more}", lines(cluster)), HOSTS)
    }

    /// `port`: the one by which a host reaches a server.
    pub(super) fn start_over(cluster: &Owned, more: &str, port: impl Fn(usize, &Server) -> u16) -> Group {
        Group::begin_over(cluster, &format!("{}{more}", lines(cluster)), HOSTS, port)
    }

    /// The first hosts; others that `lines` name are begun elsewhere.
    fn begin(cluster: &Owned, lines: &str, hosts: usize) -> Group {
        Group::begin_over(cluster, lines, hosts, |_, server| server.port())
    }

    fn begin_over(cluster: &Owned, lines: &str, hosts: usize, port: impl Fn(usize, &Server) -> u16) -> Group {
        let lines = format!("{lines}{PCP}");
        let start = |host: usize| {
            let backends: Vec<Backend> = cluster.servers().iter().map(|server| Backend::tcp(port(host, server), 1)).collect();
            let lines = lines.replace("HOST_ADDRESS", &format!("127.0.1.{}", host + 1));
            let files = [("pgpool_node_id", host.to_string()), ("pcp.conf", PCP_USERS.to_owned())];
            Proxy::spawn_with_files(&backends, &lines, &files.each_ref().map(|(name, text)| (*name, text.as_str())), &[])
        };
        let group = Group { proxies: (0..hosts).map(start).collect() };
        for proxy in &group.proxies {
            wait_until("writes to go through each proxy", || proxy.log().contains("writes go to node 0, in epoch 1"));
            wait_until("clients to come in", || writes(proxy));
        }
        group
    }

    pub fn leaders(&self) -> Vec<usize> {
        let leads = |proxy: &Proxy| {
            let log = proxy.log();
            let lines = || {
                log.lines().filter(|line| line.contains("I am the cluster leader") || line.contains("does not lead the group"))
            };
            lines().next_back().is_some_and(|line| line.contains("I am"))
        };
        (0..self.proxies.len()).filter(|host| leads(&self.proxies[*host])).collect()
    }

    fn leader(&self) -> usize {
        let [leader] = self.leaders()[..] else { panic!("one leader, not {:?}", self.leaders()) };
        leader
    }
}

/// True if a write through the proxy succeeds.
pub fn writes(proxy: &Proxy) -> bool {
    let Ok(mut client) = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]) else { return false };
    let answer = client.query("insert into readable values (7)");
    answer.iter().any(|message| message.tag == b'C')
}

fn crew(host: usize) -> Crew {
    Crew { writers: 2, transactions: 1, readers: 1, first: 10_000_000 * host as i64, ..Crew::default() }
}

/// A load at each of these proxies.
pub(super) fn loads(group: &Group, hosts: &[usize]) -> Vec<Load> {
    hosts.iter().map(|host| Load::with(&group.proxies[*host], crew(*host))).collect()
}

pub(super) fn check_nothing_is_missing(cluster: &Owned, group: &Group, loads: Vec<Load>) {
    wait_until("one primary", || primaries(cluster).len() == 1);
    let [new] = primaries(cluster)[..] else { panic!("one primary") };
    for load in loads {
        load.wait_acknowledged(50);
        let noted = load.end();
        let missing = noted.missing_on(new);
        eprintln!("{} acknowledged, {} ms without writes", noted.acknowledged.len(), noted.gap().as_millis());
        assert!(missing.is_empty(), "{missing:?}\n{}", group.proxies[0].log());
    }
}

#[test]
fn three_proxies_form_a_group_and_clients_write_through_each() {
    let cluster = servers(1, &[]);
    let group = Group::start(&cluster, "");
    assert_eq!(group.leaders(), [0], "the lowest host founds the group");
    let before = loads(&group, &[0, 1, 2]);
    check_nothing_is_missing(&cluster, &group, before);
}

#[test]
fn a_primary_that_dies_is_replaced_for_all_proxies_of_a_group() {
    let cluster = servers(2, &[ANY]);
    let group = Group::start(&cluster, "");
    let before = loads(&group, &[0, 1, 2]);
    cluster.primary().kill9().unwrap();
    check_nothing_is_missing(&cluster, &group, before);
    let found = group.proxies.iter().filter(|proxy| proxy.log().contains("is the primary after")).count();
    assert!(found >= 1);
    assert_eq!(group.leaders().len(), 1);
}

#[test]
fn a_leader_that_dies_is_followed_by_another_and_clients_of_the_others_write_on() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let leader = group.leader();
    let others: Vec<usize> = (0..HOSTS).filter(|host| *host != leader).collect();
    let before = loads(&group, &others);
    group.proxies[leader].signal(Signal::KILL);
    group.proxies[leader].wait_end();
    wait_until("another to lead", || group.leaders().iter().any(|host| *host != leader));
    check_nothing_is_missing(&cluster, &group, before);
    group.proxies[leader].crash_and_start();
    wait_until("the dead one to be back", || writes(&group.proxies[leader]));
}

#[test]
fn a_primary_and_the_leader_that_die_at_once_are_both_replaced() {
    let cluster = servers(2, &[ANY]);
    let mut group = Group::start(&cluster, "");
    let leader = group.leader();
    let others: Vec<usize> = (0..HOSTS).filter(|host| *host != leader).collect();
    let before = loads(&group, &others);
    cluster.primary().kill9().unwrap();
    group.proxies[leader].signal(Signal::KILL);
    group.proxies[leader].wait_end();
    wait_until("another to lead", || group.leaders().iter().any(|host| *host != leader));
    check_nothing_is_missing(&cluster, &group, before);
}

#[test]
fn a_frozen_leader_tells_no_success_of_a_primary_that_was_replaced_meanwhile() {
    let cluster = servers(2, &[ANY]);
    let group = Group::start(&cluster, "");
    let leader = group.leader();
    let all = loads(&group, &[0, 1, 2]);
    group.proxies[leader].signal(Signal::STOP);
    cluster.primary().freeze();
    wait_until("another to lead", || group.leaders().iter().any(|host| *host != leader));
    wait_until("a standby to be promoted", || {
        let is_primary = |server: &&Server| server.in_recovery().is_ok_and(|recovers| !recovers);
        cluster.standbys().iter().any(|server| is_primary(&server))
    });
    let others: Vec<usize> = (0..HOSTS).filter(|host| *host != leader).collect();
    for host in others {
        wait_until("writes at the new primary", || writes(&group.proxies[host]));
    }
    cluster.primary().thaw();
    group.proxies[leader].signal(Signal::CONT);
    wait_until("the old primary to be no primary, or out of use", || writes(&group.proxies[leader]));
    cluster.primary().kill9().unwrap();
    check_nothing_is_missing(&cluster, &group, all);
}

#[test]
fn the_last_of_three_proxies_writes_nothing_and_answers_reads() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "failover_wait = 2s\n");
    for host in [0, 1] {
        group.proxies[host].signal(Signal::KILL);
        group.proxies[host].wait_end();
    }
    let last = &group.proxies[2];
    let mut client = last.console();
    wait_until("writes to be refused", || {
        client.query("insert into readable values (8)").iter().any(|message| message.tag == b'E')
    });
    // Nobody wrote to this table, so that a standby shows all of it.
    assert_eq!(last.console().rows("select count(*) from written"), [["0"]], "a standby answers");
    assert_eq!(show(&mut client, "pool_nodes", "status").len(), 2);
    group.proxies[0].crash_and_start();
    let last = &group.proxies[2];
    wait_until("writes to go on with two of three", || writes(last));
}

#[test]
fn a_leader_that_waits_for_its_clients_gives_the_lead_away_at_once() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let leader = group.leader();
    let mut client = Raw::tcp(group.proxies[leader].port()).log_in("postgres", "postgres", &[]).unwrap();
    group.proxies[leader].signal(Signal::TERM);
    let follows = |host: usize| group.proxies[host].log().contains("I am the cluster leader");
    wait_until("another one to lead", || (0..HOSTS).any(|host| host != leader && follows(host)));
    let answer = client.query("insert into readable values (7)");
    assert!(answer.iter().any(|message| message.tag == b'C'), "a client writes on: {answer:?}");
    drop(client);
    group.proxies[leader].wait_end();
}

#[test]
fn a_reload_tells_a_group_when_to_remove_lost_hosts() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let (leader, lost) = (group.leader(), (group.leader() + 1) % HOSTS);
    for proxy in &group.proxies {
        let lines = std::fs::read_to_string(proxy.conf_path()).unwrap() + "wd_lost_node_removal_timeout = 1\n";
        std::fs::write(proxy.conf_path(), lines).unwrap();
        proxy.reload();
    }
    group.proxies[lost].signal(Signal::KILL);
    group.proxies[lost].wait_end();
    let others: Vec<String> = (0..HOSTS).filter(|host| *host != lost).map(|host| host.to_string()).collect();
    let words = format!("the group has the hosts {}\n", others.join(", "));
    wait_until("the lost host to be removed", || group.proxies[leader].log().contains(&words));
}

#[test]
fn a_member_that_lost_its_state_file_is_admitted_again_as_a_new_one() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let host = (group.leader() + 1) % HOSTS;
    let before = loads(&group, &[(host + 1) % HOSTS]);
    let file = group.proxies[host].folder().join(format!("weir_group.{}", 20_000 + host));
    group.proxies[host].signal(Signal::KILL);
    group.proxies[host].wait_end();
    std::fs::remove_file(file).unwrap();
    group.proxies[host].crash_and_start();
    wait_until("it to be a member again", || writes(&group.proxies[host]));
    check_nothing_is_missing(&cluster, &group, before);
}

#[test]
fn hosts_that_all_lost_their_state_files_found_a_group_anew_that_replaces_a_dead_primary() {
    let cluster = servers(2, &[ANY]);
    let mut group = Group::start(&cluster, "");
    for proxy in &mut group.proxies {
        proxy.signal(Signal::KILL);
        proxy.wait_end();
    }
    for (host, proxy) in group.proxies.iter_mut().enumerate() {
        std::fs::remove_file(proxy.folder().join(format!("weir_group.{}", 20_000 + host))).unwrap();
        proxy.crash_and_start();
    }
    for proxy in &group.proxies {
        wait_until("writes in the new group", || writes(proxy));
    }
    let before = loads(&group, &[0, 1, 2]);
    cluster.primary().kill9().unwrap();
    check_nothing_is_missing(&cluster, &group, before);
}

#[test]
fn a_state_file_that_is_damaged_stops_the_start_and_says_the_way_out() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let file = group.proxies[2].folder().join("weir_group.20002");
    group.proxies[2].signal(Signal::KILL);
    group.proxies[2].wait_end();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    group.proxies[2].crash_and_start();
    wait_until("the start to be refused", || !group.proxies[2].is_running());
    let log = group.proxies[2].log();
    assert!(log.contains("weir_group.20002") && log.contains("delete"), "{log}");
}

/// `weir witness` as the third host.
struct Witness {
    process: std::process::Child,
    _folder: Folder,
}

impl Witness {
    fn start(cluster: &Owned, lines: &str) -> Witness {
        let folder = Folder::new();
        std::fs::write(folder.0.join("pgpool_node_id"), "2\n").unwrap();
        let backends: Vec<Backend> = cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect();
        let conf = folder.0.join("pgpool.conf");
        std::fs::write(&conf, configuration(&folder.0, 9_999, &backends, lines)).unwrap();
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        let process = command.arg("witness").arg("-f").arg(conf).stderr(log).spawn().unwrap();
        Witness { process, _folder: folder }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn two_proxies_and_a_witness_survive_the_loss_of_one_proxy() {
    let cluster = servers(1, &[]);
    let lines = format!("{}failover_wait = 2s\n", lines(&cluster));
    let witness = Witness::start(&cluster, &lines);
    let mut group = Group::begin(&cluster, &lines, 2);
    group.proxies[0].signal(Signal::KILL);
    group.proxies[0].wait_end();
    wait_until("the other to lead", || group.leaders().contains(&1));
    wait_until("writes through it", || writes(&group.proxies[1]));
    let before = loads(&group, &[1]);
    check_nothing_is_missing(&cluster, &group, before);
    // Without the witness, too, one of three is left.
    drop(witness);
    let mut client = group.proxies[1].console();
    client.run("set statement_timeout = '3s'");
    wait_until("writes to be refused", || {
        client.query("insert into readable values (8)").iter().any(|message| message.tag == b'E')
    });
}
