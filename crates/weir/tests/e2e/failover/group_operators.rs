//! Operators ask any member of a group: its leader decides, or all of them do it.

use super::group_takeovers::check_none_failed;
use super::grouped::{Group, check_nothing_is_missing, loads, writes};
use super::*;
use crate::support::proxy::{Folder, show};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DEBIANS_RELOAD: &str = "/usr/sbin/pcp_reload_config";

/// The operator's password.
pub(super) struct Desk(Folder);

impl Desk {
    pub(super) fn new() -> Desk {
        let folder = Folder::new();
        let file = folder.0.join("pcppass");
        fs::write(&file, "*:*:admin:secret\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        Desk(folder)
    }

    /// Runs a client of PCP on the socket of a host.
    fn ask(&self, folder: &Path, program: &str, arguments: &[&str]) -> Output {
        let folder = folder.display().to_string();
        let mut command = Command::new(program);
        command.args(arguments).args(["-h", &folder, "-p", "9898", "-U", "admin", "-w"]);
        command.env("PCPPASSFILE", self.0.0.join("pcppass")).output().unwrap()
    }

    fn weir(&self, group: &Group, host: usize, arguments: &[&str]) -> Result<String, String> {
        self.weir_in(group.proxies[host].folder(), arguments)
    }

    /// At the host of this folder.
    pub(super) fn weir_in(&self, folder: &Path, arguments: &[&str]) -> Result<String, String> {
        let said = self.ask(folder, env!("CARGO_BIN_EXE_weir"), arguments);
        let errors = String::from_utf8_lossy(&said.stderr).into_owned();
        if said.status.success() { Ok(errors) } else { Err(errors) }
    }

    #[track_caller]
    fn do_it(&self, group: &Group, host: usize, arguments: &[&str]) {
        if let Err(said) = self.weir(group, host, arguments) {
            let logs: Vec<String> = group.proxies.iter().map(Proxy::log).collect();
            panic!("{arguments:?} at host {host}: {said}\n{}", logs.join("\n----\n"));
        }
    }
}

/// In the administration console of a host.
fn administrator(group: &Group, host: usize) -> Raw {
    let proxy = &group.proxies[host];
    Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap()
}

/// Waits until these hosts show the nodes in these states.
fn wait_statuses(group: &Group, hosts: &[usize], expected: &[&str]) {
    for host in hosts {
        wait_until(&format!("host {host} to show {expected:?}"), || group.proxies[*host].nodes("status") == expected);
    }
}

#[test]
fn nodes_are_detached_and_attached_for_all_whichever_host_is_asked() {
    let cluster = servers(1, &[]);
    let (group, desk) = (Group::start(&cluster, ""), Desk::new());
    for host in [1, 0, 2] {
        wait_statuses(&group, &[0, 1, 2], &["up", "up"]);
        desk.do_it(&group, host, &["pcp", "detach_node", "1"]);
        wait_statuses(&group, &[host], &["up", "down"]);
        wait_statuses(&group, &[0, 1, 2], &["up", "down"]);
        desk.do_it(&group, (host + 1) % 3, &["pcp", "attach_node", "1"]);
    }
    wait_statuses(&group, &[0, 1, 2], &["up", "up"]);
    administrator(&group, 2).run("DETACH 1");
    wait_statuses(&group, &[0, 1, 2], &["up", "down"]);
    let why = desk.weir(&group, 2, &["pcp", "promote_node", "0"]).unwrap_err();
    assert!(why.contains("node 0 is the primary already"), "the leader's own words: {why}");
}

#[test]
fn a_primary_that_one_host_detaches_takes_no_writes_of_any() {
    let cluster = servers(1, &[]);
    let (group, desk) = (Group::start(&cluster, "failover_wait = 1s\n"), Desk::new());
    desk.do_it(&group, 2, &["pcp", "detach_node", "0"]);
    for proxy in &group.proxies {
        wait_until("writes to be refused", || !writes(proxy));
    }
    assert_eq!(primaries(&cluster).len(), 1, "nobody is promoted for it");
    desk.do_it(&group, 1, &["pcp", "attach_node", "0"]);
    for proxy in &group.proxies {
        wait_until("writes to go on", || writes(proxy));
    }
}

#[test]
fn an_act_that_is_asked_while_the_leader_is_dead_is_done_by_the_next_one() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    group.proxies[0].signal(Signal::KILL);
    group.proxies[0].wait_end();
    desk.do_it(&group, 2, &["pcp", "detach_node", "1"]);
    wait_statuses(&group, &[1, 2], &["up", "down"]);
    group.proxies[0].crash_and_start();
    wait_statuses(&group, &[0], &["up", "down"]);
}

#[test]
fn all_hosts_read_their_configuration_again_and_the_asker_hears_who_did_not() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    if Path::new(DEBIANS_RELOAD).exists() {
        let said = desk.ask(group.proxies[2].folder(), DEBIANS_RELOAD, &["-s", "c"]);
        assert!(String::from_utf8_lossy(&said.stdout).contains("Command Successful"), "{said:?}");
        assert!(group.proxies.iter().all(|proxy| proxy.log().contains("reloaded")));
    } else {
        leave_out("pgpool2 is not installed");
    }
    let right = group.proxies[0].conf();
    group.proxies[0].add_conf("health_check_period = nonsense");
    let why = desk.weir(&group, 1, &["pcp", "reload_config", "-s", "cluster"]).unwrap_err();
    assert!(why.contains("host 0: ") && why.contains("health_check_period") && !why.contains("host 2"), "{why}");
    desk.do_it(&group, 1, &["pcp", "reload_config", "-s", "local"]);
    group.proxies[2].signal(Signal::KILL);
    group.proxies[2].wait_end();
    fs::write(group.proxies[0].conf_path(), right).unwrap();
    let mut client = group.proxies[1].console();
    wait_until("the dead host to be lost", || show(&mut client, "pool_watchdog", "lost")[2] == "true");
    let notes = desk.weir(&group, 1, &["pcp", "reload_config", "-s", "cluster"]).unwrap();
    assert!(notes.contains("host 2 is lost, and was not asked"), "{notes}");
}

#[test]
fn a_stop_for_all_hosts_ends_them() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    desk.do_it(&group, 1, &["pcp", "stop_pgpool", "-m", "fast", "-s", "cluster"]);
    group.proxies.iter_mut().for_each(|proxy| assert!(proxy.wait_end().success()));
}

#[test]
fn a_pause_holds_the_clients_of_all_hosts() {
    let cluster = servers(1, &[]);
    let group = Group::start(&cluster, "pool_wait_timeout = 1s\n");
    let mut operator = administrator(&group, 1);
    operator.run("PAUSE");
    assert!(group.proxies.iter().all(|proxy| !writes(proxy)), "clients wait in vain");
    administrator(&group, 0).run("RESUME");
    for proxy in &group.proxies {
        wait_until("clients to go on", || writes(proxy));
    }
}

#[test]
fn the_lead_goes_where_an_operator_says() {
    let cluster = servers(1, &[]);
    let (group, desk) = (Group::start(&cluster, ""), Desk::new());
    for (asked, host) in [(0, 2), (1, 1), (0, 0)] {
        let number = host.to_string();
        desk.do_it(&group, asked, &["watchdog", "lead", &number]);
        wait_until("the log to say so", || group.leaders() == [host]);
        let again = desk.weir(&group, 2, &["watchdog", "lead", &number]).unwrap();
        assert!(again.contains("leads already"), "{again}");
    }
    assert!(desk.weir(&group, 1, &["watchdog", "lead", "7"]).unwrap_err().contains("host 7 is no member"));
}

#[test]
fn a_host_that_is_stopped_is_removed_and_is_a_member_again_when_it_runs() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    let why = desk.weir(&group, 1, &["watchdog", "remove", "2"]).unwrap_err();
    assert!(why.contains("host 2 is heard, and would be admitted again: stop it first"), "{why}");
    group.proxies[2].signal(Signal::KILL);
    group.proxies[2].wait_end();
    wait_until("the host to be removed", || desk.weir(&group, 1, &["watchdog", "remove", "2"]).is_ok());
    let mut client = group.proxies[1].console();
    wait_until("two members", || show(&mut client, "pool_watchdog", "votes") == ["yes", "yes", "no"]);
    let why = desk.weir(&group, 1, &["watchdog", "remove", "1"]).unwrap_err();
    assert!(why.contains("stop it first"), "{why}");
    group.proxies[2].crash_and_start();
    desk.do_it(&group, 0, &["watchdog", "add", "2"]);
    wait_until("three members", || show(&mut client, "pool_watchdog", "votes") == ["yes"; 3]);
    let why = desk.weir(&group, 0, &["watchdog", "add", "9"]).unwrap_err();
    assert!(why.contains("host 9 is not in the configuration"), "{why}");
}

/// Kills a host under load, removes it, and adds it again.
fn check_removed_and_added(group: &mut Group, desk: &Desk, host: usize, loads: &[Load]) {
    let asked = (host + 1) % group.proxies.len();
    let number = host.to_string();
    group.proxies[host].signal(Signal::KILL);
    group.proxies[host].wait_end();
    wait_until("the host to be removed", || desk.weir(group, asked, &["watchdog", "remove", &number]).is_ok());
    loads.iter().for_each(|load| load.wait_acknowledged(100));
    let mut client = group.proxies[asked].console();
    wait_until("two members", || show(&mut client, "pool_watchdog", "votes")[host] == "no");
    group.proxies[host].crash_and_start();
    desk.do_it(group, asked, &["watchdog", "add", &number]);
    wait_until("three members", || show(&mut client, "pool_watchdog", "votes") == ["yes"; 3]);
    wait_until("the host to take writes", || writes(&group.proxies[host]));
    loads.iter().for_each(|load| load.wait_acknowledged(100));
}

#[test]
fn members_are_removed_and_added_while_clients_write_through_the_others() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    let loads = loads(&group, &[1]);
    for host in [2, group.leaders()[0]] {
        check_removed_and_added(&mut group, &desk, host, &loads);
    }
    assert_ne!(group.leaders(), [0], "another one leads since the leader was killed");
    check_none_failed(&cluster, loads);
}

impl Group {
    /// Kills hosts, and empties their disks.
    fn lose(&mut self, hosts: &[usize]) {
        for host in hosts {
            self.proxies[*host].signal(Signal::KILL);
            self.proxies[*host].wait_end();
            fs::remove_file(self.state_file(*host)).unwrap();
        }
    }

    fn state_file(&self, host: usize) -> PathBuf {
        self.proxies[host].folder().join(format!("weir_group.{}", 20_000 + host))
    }
}

/// Once the leases of before are over.
fn form_by_force(desk: &Desk, group: &Group, host: usize) -> String {
    let mut said = String::new();
    wait_until("the group to be formed by force", || match desk.weir(group, host, &["watchdog", "form", "--force"]) {
        Ok(note) => {
            said = note;
            true
        }
        Err(why) => {
            assert!(why.contains("did within the last lease") || why.contains("was started less than"), "{why}");
            false
        }
    });
    said
}

#[test]
fn the_last_of_three_hosts_forms_a_group_by_force_and_the_others_become_members_of_it() {
    let cluster = servers(2, &[ANY]);
    let (mut group, desk) = (Group::start(&cluster, "failover_wait = 1s\n"), Desk::new());
    desk.do_it(&group, 0, &["pcp", "detach_node", "2"]);
    wait_statuses(&group, &[2], &["up", "up", "down"]);
    group.lose(&[0, 1]);
    wait_until("writes to be refused", || !writes(&group.proxies[2]));
    let why = desk.weir(&group, 2, &["watchdog", "form"]).unwrap_err();
    assert!(why.contains("1 of the 3 members of the group answer") && why.contains("--force"), "{why}");
    let note = form_by_force(&desk, &group, 2);
    assert!(note.contains("delete weir_group.PORT"), "{note}");
    let begun = Instant::now();
    wait_until("writes to go on", || writes(&group.proxies[2]));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    wait_statuses(&group, &[2], &["up", "up", "down"]);
    desk.do_it(&group, 2, &["pcp", "attach_node", "2"]);
    for host in [0, 1] {
        group.proxies[host].crash_and_start();
    }
    let mut client = group.proxies[2].console();
    wait_until("three members", || show(&mut client, "pool_watchdog", "votes") == ["yes"; 3]);
    for proxy in &group.proxies {
        wait_until("clients to come in", || writes(proxy));
    }
    let before = loads(&group, &[0, 1, 2]);
    cluster.primary().kill9().unwrap();
    check_nothing_is_missing(&cluster, &group, before);
}

#[test]
fn a_group_that_works_is_not_formed_anew() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, ""), Desk::new());
    for arguments in [&["watchdog", "form", "--force"][..], &["watchdog", "form"]] {
        let why = desk.weir(&group, 1, arguments).unwrap_err();
        assert!(why.contains("the group works: 3 of its 3 members answer"), "{why}");
    }
    group.lose(&[0]);
    let mut client = group.proxies[2].console();
    wait_until("the dead host to be lost", || show(&mut client, "pool_watchdog", "lost")[0] == "true");
    wait_until("the host that is asked to miss it, too", || {
        let why = desk.weir(&group, 1, &["watchdog", "form", "--force"]).unwrap_err();
        why.contains("the group works: 2 of its 3 members answer")
    });
    assert!(writes(&group.proxies[1]));
}

#[test]
fn hosts_that_come_back_with_files_of_a_group_that_was_replaced_by_force_do_nothing_and_say_why() {
    let cluster = servers(1, &[]);
    let (mut group, desk) = (Group::start(&cluster, "failover_wait = 1s\n"), Desk::new());
    for host in [0, 1] {
        group.proxies[host].signal(Signal::KILL);
        group.proxies[host].wait_end();
    }
    form_by_force(&desk, &group, 2);
    for host in [0, 1] {
        group.proxies[host].crash_and_start();
    }
    for host in [0, 1] {
        let words = "another group was formed by force on host 2";
        wait_until("its log to say so", || group.proxies[host].log().contains(words));
        wait_until("it to take no writes", || !writes(&group.proxies[host]));
    }
    assert!(writes(&group.proxies[2]));
    // The log of a host that was killed tells of a lead that it had before.
    assert!(group.leaders().contains(&2));
    // As the log says.
    group.lose(&[0, 1]);
    for host in [0, 1] {
        group.proxies[host].crash_and_start();
    }
    for proxy in &group.proxies {
        wait_until("clients to come in", || writes(proxy));
    }
}
