//! The recipes of watchdog.md as they stand, with the addresses and folders of these hosts in place of the page's.

use super::host_group::check_nothing_is_missing;
use super::*;
use crate::etcd::etcd_servers::EtcdServers;
use crate::pages::page::{Page, with};
use crate::support::certs::Authority;
use crate::support::proxy::Folder;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use weir_demo::HostNetwork;

/// Longer than a lease, after which an address could move.
const NOTHING_MOVES: Duration = Duration::from_secs(4);

/// The file under "Three hosts".
fn file_of_the_page(network: &HostNetwork) -> String {
    let mut file = Page::read("watchdog.md").block("Three hosts", "ini");
    let places = (0..3).map(|host| (format!("'10.0.0.{}'", host + 1), network.address(host, 0)));
    for (written, here) in places.chain([("'10.0.0.100'".to_owned(), network.virtual_address())]) {
        file = with(&file, &[(&written, &format!("'{here}'"))]);
    }
    file + "\n"
}

#[test]
fn three_hosts_form_a_group_by_the_file_of_the_page() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 1, &[]);
    let group = HostGroup::begin_with(&network, &cluster, &file_of_the_page(&network));
    group.wait_whole();
    let log = group.weirs[0].log();
    assert!(log.contains("the group has the hosts 0, 1, 2") && !log.contains("has other values"), "{log}");
    group.check("the page's file", Instant::now());
}

#[test]
fn two_hosts_and_the_witness_of_the_page_survive_the_loss_of_any_one() {
    let Some(network) = host_network(3, 1) else { return };
    assert_eq!(Page::read("watchdog.md").block("Two hosts", "sh"), "weir witness -f /etc/weir/pgpool.conf\n");
    let cluster = servers_for(&network, 1, &[]);
    let (mut group, mut beside) = HostGroup::begin_beside(&network, &cluster, &file_of_the_page(&network), &[&["witness"]]);
    let witness = &mut beside[0];
    group.wait_whole();
    let shown = group.weirs[0].ask("show pool_watchdog").unwrap();
    let of_witness = shown.iter().find(|row| row[0].as_deref() == Some("2")).unwrap();
    assert!(of_witness.iter().flatten().any(|value| value == "witness"), "{of_witness:?}");
    let loads = vec![group.load_at(0), group.load_at(1)];
    let fault = Instant::now();

    // The witness: nothing moves.
    let leader = group.leader();
    witness.kill();
    check_never("the address moves", NOTHING_MOVES, || group.watch.holders() != [leader]);
    wait_until("writes to go on", || group.weirs.iter().all(|weir| weir.writes()));
    witness.start_again();
    wait_until("the witness to be back", || group.weirs.iter().all(|weir| weir.voters() == 3));

    // The host that leads, then the other one.
    for _ in 0..2 {
        let leader = group.leader();
        group.weirs[leader].kill();
        let other = group.wait_another(leader);
        wait_until("writes to go on", || group.weirs[other].writes());
        group.weirs[leader].start_again();
        group.wait_whole();
        wait_until("all to be members", || group.weirs.iter().all(|weir| weir.voters() == 3));
    }
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("two hosts and a witness", fault);
    check_nothing_is_missing("two hosts and a witness", &cluster, loads);
}

/// With users, as the page has it: each member may use its group's key only.
#[test]
fn three_hosts_form_a_group_by_the_lines_of_the_page_about_etcd() {
    let Some(network) = host_network(3, 1) else { return };
    let (folder, authority, outside) = (Folder::new(), Authority::new("etcd"), network.outside(0).to_string());
    let server = authority.sign(&[("CN", "server of etcd")], &["127.0.0.1", &outside], 1);
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [ca, cert, key] =
        [("ca", authority.pem()), ("cert", server.cert), ("key", server.key)].map(|(name, text)| file(name, &text));
    let options = ["--cert-file", &cert, "--key-file", &key, "--bcrypt-cost", "4"];
    let Some(etcd) = EtcdServers::start_encrypted_at(&outside, 3, &options) else { return };
    let curl = |path: &str, body: &str| {
        let url = format!("{}{path}", etcd.url(0));
        let output = std::process::Command::new("curl").args(["-sS", "--cacert", &ca, "-d", body, &url]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("etcd to serve", || curl("/v3/kv/range", "{\"key\":\"YQ==\"}").contains("header"));
    let written = Page::read("watchdog.md").block("etcd", "ini");
    let key_name = "/weir/group";
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"root"}"#.to_owned()),
        ("role/add", r#"{"name":"root"}"#.to_owned()),
        ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
        ("user/add", r#"{"name":"weir","password":"..."}"#.to_owned()),
        ("role/add", r#"{"name":"weir"}"#.to_owned()),
        (
            "role/grant",
            format!(
                r#"{{"name":"weir","perm":{{"permType":"READWRITE","key":"{}"}}}}"#,
                crate::etcd::etcd_servers::encoded(key_name)
            ),
        ),
        ("user/grant", r#"{"user":"weir","role":"weir"}"#.to_owned()),
        ("enable", "{}".to_owned()),
    ] {
        let answer = curl(&format!("/v3/auth/{path}"), &body);
        assert!(answer.contains("header"), "{path}: {answer}");
    }

    let urls = etcd.outside_urls();
    let endpoints = "https://10.0.0.11:2379, https://10.0.0.12:2379, https://10.0.0.13:2379";
    assert!(written.contains(key_name));
    let lines = with(&written, &[(endpoints, &urls.join(", ")), ("etcd_ca.pem", &ca)]);
    let cluster = servers_for(&network, 1, &[]);
    let mut group = HostGroup::begin_with(&network, &cluster, &format!("{}{lines}\n", file_of_the_page(&network)));
    group.wait_whole();
    let loads = vec![group.load_at_address()];
    let (fault, leader) = (Instant::now(), group.leader());
    group.weirs[leader].kill();
    group.wait_another(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.weirs[leader].start_again();
    group.wait_whole();
    group.check("the page's etcd", fault);
    check_nothing_is_missing("the page's etcd", &cluster, loads);
}

/// Stands for a script of a cloud: sets and removes the address, and notes its words.
fn cloud_script(network: &HostNetwork, folder: &Folder) {
    let script = format!(
        "#!/bin/sh\nset -e\necho \"$*\" >> {notes}\ncase \"$1\" in\n\
         up) ip addr add \"$2/24\" dev eth0; arping -U -c 1 -I eth0 -S \"$2\" \"$2\" >/dev/null 2>&1 || true ;;\n\
         down) ip addr del \"$2/24\" dev eth0 ;;\nesac\n",
        notes = folder.0.join("notes").display()
    );
    let path = folder.0.join("aws_eip_if_cmd.sh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(network.paths(), 1);
}

#[test]
fn the_scripts_of_the_page_about_clouds_move_the_address() {
    let Some(network) = host_network(3, 1) else { return };
    let folder = Folder::new();
    cloud_script(&network, &folder);
    let block = Page::read("watchdog.md").block("Clouds", "ini");
    let lines = with(&block, &[("/etc/weir", &folder.0.display().to_string())]);
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::begin_with(&network, &cluster, &format!("{}{lines}\n", file_of_the_page(&network)));
    group.wait_whole();
    let (leader, fault) = (group.leader(), Instant::now());
    let loads = vec![group.load_at(group.others()[0])];
    group.weirs[leader].signal(Signal::TERM);
    group.wait_another(leader);
    group.weirs[leader].wait_end();
    group.weirs[leader].start_again();
    group.wait_whole();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("the page's scripts", fault);
    let notes = fs::read_to_string(folder.0.join("notes")).unwrap();
    let address = network.virtual_address();
    let expected = [format!("up {address}"), format!("down {address}"), format!("up {address}")];
    assert_eq!(notes.lines().collect::<Vec<_>>(), expected);
    check_nothing_is_missing("the page's scripts", &cluster, loads);
}
