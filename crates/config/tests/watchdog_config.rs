//! The watchdog's part of `pgpool.conf`: files of Pgpool-II as they stand, settings, and problems in the operator's words.
use std::net::IpAddr;
use std::path::Path;

use weir_config::watchdog_settings::{
    AddressCommands, EtcdEndpoint, EtcdScheme, FailoverVotes, HeartbeatPath, LifecheckMethod, MonitoredInterfaces,
    QuorumLossPolicy, WatchdogEngine,
};
use weir_config::{self as config, Config, ConfigReadResult, ProblemSeverity, WatchdogSettings};

/// Reads a configuration with this content of `pgpool_node_id`; `None`: no such file.
fn read(text: &str, number: Option<&str>) -> ConfigReadResult {
    config::read(Path::new("/etc/weir/pgpool.conf"), &mut |path| match path.to_str() {
        Some("/etc/weir/pgpool.conf") => Ok(text.as_bytes().to_vec()),
        Some("/etc/weir/pgpool_node_id") => number.map(|text| text.as_bytes().to_vec()).ok_or("no such file".to_owned()),
        Some(_) | None => Err(format!("{} is not asked for", path.display())),
    })
}

fn config_of(text: &str, number: &str) -> Config {
    let outcome = read(text, Some(number));
    outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.problems))
}

fn watchdog_of(text: &str, number: &str) -> WatchdogSettings {
    config_of(text, number).watchdog.expect("use_watchdog is on")
}

/// Three hosts without a problem, and these lines (`;` for line ends).
fn three(more: &str) -> String {
    let hosts = "backend_hostname0 = 'db';use_watchdog = on;hostname0 = 'a';hostname1 = 'b';hostname2 = 'c';wd_authkey = 'key';\
                 wd_state_dir = '/state'";
    format!("{hosts};{more}").replace(';', "\n")
}

#[test]
fn a_file_of_pgpool_4_3_is_read_as_it_stands() {
    let outcome = read(include_str!("pgpool_4_3_watchdog.conf"), Some("1\n"));
    let errors: Vec<_> = outcome.problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let old: Vec<_> = outcome.problems.iter().filter(|problem| !problem.message.contains("is now called")).collect();
    assert!(old.is_empty(), "{old:?}");
    let watchdog = outcome.config.and_then(|config| config.watchdog).expect("use_watchdog is on");
    assert_eq!(watchdog.own().map(|own| own.hostname.as_str()), Some("server2"));
    let hosts: Vec<_> =
        watchdog.hosts.iter().map(|host| (host.number, host.hostname.as_str(), host.port, host.pgpool_port)).collect();
    assert_eq!(hosts, [(0, "server1", 9000, 9999), (1, "server2", 9000, 9999), (2, "server3", 9000, 9999)]);
    assert_eq!(watchdog.others().map(|host| host.number).collect::<Vec<_>>(), [0, 2]);
    let path = |hostname: &str| vec![HeartbeatPath { hostname: hostname.into(), device: None }];
    assert_eq!((&watchdog.hosts[2].heartbeat_paths, watchdog.hosts[2].heartbeat_port), (&path("server3"), 9694));
    assert_eq!(watchdog.listen_place(), ("*", 9000));
    assert_eq!((watchdog.heartbeat_listen_addresses(), watchdog.heartbeat_listen_port()), (vec!["*"], 9694));
    assert_eq!(watchdog.authkey.expose(), "shared by all three");
    assert_eq!(watchdog.addresses, ["192.168.100.50".parse::<IpAddr>().unwrap()]);
    let commands = AddressCommands {
        up: Some("/usr/bin/sudo /sbin/ip addr add $_IP_$/24 dev enp0s8 label enp0s8:0".into()),
        down: Some("/usr/bin/sudo /sbin/ip addr del $_IP_$/24 dev enp0s8".into()),
        announce: Some("/usr/bin/sudo /usr/sbin/arping -U $_IP_$ -w 1 -I enp0s8".into()),
    };
    assert_eq!(watchdog.address_commands, commands);
    assert_eq!(watchdog.escalation_command, "/etc/pgpool-II/escalation.sh");
    assert_eq!((watchdog.priority, watchdog.failover_votes), (1, FailoverVotes::OneEach));
    assert_eq!((watchdog.lost_removal_ms, watchdog.no_show_removal_ms, watchdog.removes_shut_down), (None, None, false));
    assert_eq!((watchdog.engine, watchdog.lease_ms), (WatchdogEngine::Builtin, 2000));
    assert_eq!(watchdog.state_dir, Path::new("/var/log/postgresql"), "that of weir_failover.PORT");
    assert_eq!((watchdog.trusted_command.as_str(), watchdog.trusted_servers.len()), ("/bin/ping -q -c3 %h", 0));
}

#[test]
fn a_file_of_pgpool_4_7_is_read_as_it_stands() {
    let outcome = read(include_str!("pgpool_4_7_watchdog.conf"), Some("2"));
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    let watchdog = outcome.config.and_then(|config| config.watchdog).expect("use_watchdog is on");
    assert_eq!(watchdog.own().map(|own| own.hostname.as_str()), Some("server3"));
    let path = |hostname: &str, device: &str| HeartbeatPath { hostname: hostname.into(), device: Some(device.into()) };
    assert_eq!(watchdog.hosts[0].heartbeat_paths, [path("10.1.0.1", "eth0"), path("10.2.0.1", "eth1")]);
    assert_eq!(watchdog.address_commands, AddressCommands::default(), "Weir holds the address itself");
    assert_eq!((watchdog.listen_place(), watchdog.heartbeat_listen_port()), (("*", 9000), 9694));
    assert_eq!(watchdog.trusted_command, "ping -q -c3 %h");
}

#[test]
fn without_use_watchdog_nothing_is_read_nor_checked() {
    let outcome = read("backend_hostname0 = 'db'\nwd_port7 = 9001\ndelegate_ip = 'no address'\nwd_engine = etcd", None);
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    assert_eq!(outcome.config.and_then(|config| config.watchdog), None);
}

#[test]
fn settings_of_ours_and_defaults_that_lean_on_others() {
    let watchdog = watchdog_of(&three(""), " 0 ");
    assert_eq!(watchdog.address_commands, AddressCommands::default());
    assert_eq!((watchdog.trusted_command.as_str(), &watchdog.interfaces), ("ping -q -c3 %h", &MonitoredInterfaces::Unwatched));
    assert_eq!((watchdog.without_quorum, watchdog.lifecheck), (QuorumLossPolicy::Reads, LifecheckMethod::Heartbeat));
    assert!(watchdog.hosts.iter().all(|host| host.heartbeat_paths.is_empty()));
    let watchdog = watchdog_of(
        &three(
            "delegate_ip = '10.0.0.9, fd00::9';if_cmd_path = '/opt/';if_up_cmd = 'up $_IP_$';if_down_cmd = '';ping_path = '/opt/bin';\
             wd_lease = 5s;wd_without_quorum = refuse;failover_require_consensus = on;allow_multiple_failover_requests_from_node = on;\
             wd_monitoring_interfaces_list = 'eth0, eth1';wd_lost_node_removal_timeout = 1min;enable_consensus_with_half_votes = on;\
             wd_listen_address = '10.0.0.1';wd_listen_port = 9100;wd_port0 = 9200;trusted_servers = 'x , y'",
        ),
        "0",
    );
    assert_eq!(watchdog.addresses, ["10.0.0.9", "fd00::9"].map(|text| text.parse::<IpAddr>().unwrap()));
    let up = AddressCommands { up: Some("/opt/up $_IP_$".into()), down: None, announce: None };
    assert_eq!((watchdog.address_commands.clone(), watchdog.trusted_command.as_str()), (up, "/opt/bin/ping -q -c3 %h"));
    assert_eq!((watchdog.lease_ms, watchdog.without_quorum), (5000, QuorumLossPolicy::Refuse));
    assert_eq!((watchdog.failover_votes, watchdog.half_is_enough), (FailoverVotes::Repeated, true));
    assert_eq!(watchdog.interfaces, MonitoredInterfaces::Named(vec!["eth0".into(), "eth1".into()]));
    assert_eq!((watchdog.lost_removal_ms, watchdog.no_show_removal_ms), (Some(60_000), None));
    assert_eq!((watchdog.listen_place(), watchdog.trusted_servers.len()), (("10.0.0.1", 9100), 2));
    let any = watchdog_of(&three("wd_monitoring_interfaces_list = 'any';allow_multiple_failover_requests_from_node = on"), "0");
    assert_eq!((any.interfaces, any.failover_votes), (MonitoredInterfaces::Any, FailoverVotes::Repeated));
    let leaders = watchdog_of(&three("failover_require_consensus = off;allow_multiple_failover_requests_from_node = on"), "0");
    assert_eq!(leaders.failover_votes, FailoverVotes::Needless, "votes that nobody needs are not repeated");
    let ranked = |priority: &str| watchdog_of(&three(&format!("wd_priority = {priority}")), "0").priority;
    assert_eq!([ranked("0"), ranked("7"), ranked("255"), ranked("2147483647")], [0, 7, 255, 255]);
}

#[test]
fn without_a_key_peers_are_accepted_on_loopback_only() {
    let own =
        "backend_hostname0 = 'db'\nuse_watchdog = on\nhostname0 = 'localhost'\nhostname1 = '127.0.0.2'\nhostname2 = '::1'\n";
    let watchdog = watchdog_of(own, "1");
    assert_eq!((watchdog.listen_place(), watchdog.heartbeat_listen_addresses()), (("127.0.0.2", 9000), vec!["127.0.0.2"]));
    for more in [
        "wd_listen_address = '*'",
        "wd_listen_address = '10.0.0.1'",
        "heartbeat_hostname1 = 'b'",
        "hostname2 = 'c'",
        "wd_heartbeat_listen_addresses = '*'",
    ] {
        let problems = read(&format!("{own}{more}"), Some("1")).problems;
        assert!(problems.iter().any(|problem| problem.message.contains("set wd_authkey, the same on all hosts")), "{more}");
        let with_key = read(&format!("{own}{more}\nwd_authkey = 'key'"), Some("1"));
        assert!(with_key.config.is_some(), "{more} {:?}", with_key.problems);
    }
}

#[test]
fn etcd_is_found_by_its_endpoints() {
    let settings = "wd_engine = etcd;wd_etcd_endpoints = 'http://e1:2379, https://[::1]:2380/ ,HTTPS://10.0.0.1:1';\
                    wd_etcd_user = 'weir';wd_etcd_password = 'hush';wd_etcd_key = '/here';wd_etcd_ca_file = 'ca.pem'";
    let config = config_of(&three(settings), "0");
    let watchdog = config.watchdog.clone().expect("use_watchdog is on");
    let endpoint = |scheme, host: &str, port| EtcdEndpoint { scheme, host: host.into(), port };
    assert_eq!(
        watchdog.etcd.endpoints,
        [
            endpoint(EtcdScheme::Http, "e1", 2379),
            endpoint(EtcdScheme::Https, "::1", 2380),
            endpoint(EtcdScheme::Https, "10.0.0.1", 1)
        ]
    );
    let etcd = &watchdog.etcd;
    assert_eq!((watchdog.engine, etcd.user.as_str(), etcd.password.expose()), (WatchdogEngine::Etcd, "weir", "hush"));
    assert_eq!((etcd.key.as_str(), etcd.tls.root_cert.as_deref()), ("/here", Some(Path::new("ca.pem"))));
    let shown = format!("{config:?}");
    assert!(!shown.contains("hush") && !shown.contains("\"key\""), "{shown}");
}

const KEYLESS: &str = "every user of this machine can speak for a host";

#[test]
fn a_group_without_a_key_is_warned_of() {
    let lines = "backend_hostname0 = 'db'\nwd_state_dir = '/state'\nuse_watchdog = on\nhostname0 = 'localhost'\nhostname1 = 'localhost'\nwd_port1 = 9001\n";
    let warned = |more: &str| read(&format!("{lines}{more}"), Some("0")).problems.iter().any(|one| one.message.contains(KEYLESS));
    assert!(warned("") && !warned("wd_authkey = 'shared'\n"));
}

/// The one problem of these settings, with its line (0: none), and its severity as `!` or `?`.
fn check_problem(settings: &str, number: Option<&str>, expected: &str) {
    let problems = read(&settings.replace(';', "\n"), number).problems;
    let shown: Vec<String> = problems
        .iter()
        // Two hosts on one machine without a key have this warning, too; `a_group_without_a_key_is_warned_of` is about it.
        .filter(|problem| !problem.message.contains(KEYLESS))
        .map(|problem| {
            let sign = if problem.severity == ProblemSeverity::Error { '!' } else { '?' };
            format!("{sign}{} {}", problem.line.unwrap_or(0), problem.message)
        })
        .collect();
    let [one] = shown.as_slice() else { panic!("{settings}: {shown:?}") };
    assert!(one.starts_with(expected), "{settings}: {one}");
}

#[test]
fn the_number_of_this_host_is_that_of_a_host() {
    let file = "use_watchdog: could not read \"/etc/weir/pgpool_node_id\": no such file; write the number of this host there";
    check_problem(&three(""), None, &format!("!2 {file}"));
    for wrong in ["", "one", "-1", "256", "0 1", "99999999999999999999"] {
        check_problem(&three(""), Some(wrong), "!2 use_watchdog: \"/etc/weir/pgpool_node_id\" holds no number from 0 to 127");
    }
    check_problem(&three(""), Some("3"), "!2 use_watchdog: \"/etc/weir/pgpool_node_id\" says 3, but \"hostname3\" is not set");
}

#[test]
fn a_problem_says_what_to_do() {
    let db = "backend_hostname0 = 'db';wd_state_dir = '/state'";
    for (settings, expected) in [
        (
            three("hostname3 = 'B';wd_port3 = 9000"),
            "!8 hosts 1 and 3 of the watchdog are the same, B with wd_port 9000: each needs",
        ),
        (three("wd_port3 = 9001"), "!8 \"hostname3\" is not set: name the host, or remove all lines of number 3"),
        (three("pgpool_port3 = 9001;hostname3 = ' '"), "!9 \"hostname3\" is not set"),
        (three("delegate_ip = '10.0.0.1/24'"), "!8 \"delegate_ip\": \"10.0.0.1/24\" is no IP address; write one without"),
        (three("delegate_ip = '10.0.0.1,::1,10.0.0.1'"), "!8 \"delegate_ip\": \"10.0.0.1\" stands there twice"),
        (three("delegate_ip = '0.0.0.0'"), "!8 \"delegate_ip\": \"0.0.0.0\" is no address that a host can hold"),
        (three("wd_engine = etcd"), "!0 \"wd_etcd_endpoints\": wd_engine = etcd needs it, for example 'http://10.0.0.1:2379'"),
        (three("wd_engine = etcd;wd_etcd_endpoints = 'e:2379'"), "!9 \"wd_etcd_endpoints\": \"e:2379\" is no http://host:port"),
        (three("wd_engine = etcd;wd_etcd_endpoints = 'http://e:2379';wd_etcd_key = ''"), "!10 \"wd_etcd_key\" has 0 bytes"),
        (
            three("wd_engine = etcd;wd_etcd_endpoints = 'http://e:1';wd_etcd_client_cert_file = 'c'"),
            "!10 \"wd_etcd_client_cert_file\" and \"wd_etcd_client_key_file\" belong together",
        ),
        (three("wd_state_dir = 'state'"), "!8 \"wd_state_dir\" is \"state\": the watchdog's folder must begin with a slash"),
        (three("wd_state_dir = '';work_dir = 'here'"), "?9 \"work_dir\" is \"here\": the watchdog's folder must begin with"),
        (three("wd_state_dir = ''"), "?0 \"work_dir\" is /tmp, which is emptied at a restart of the machine"),
        (three("wd_authkey = ''"), "!8 \"wd_authkey\" is empty, and \"a\" is not this machine alone: set wd_authkey"),
        (three("failover_when_quorum_exists = off"), "?8 \"failover_when_quorum_exists\" = off is ignored"),
        (three("wd_lifecheck_method = query"), "?8 \"wd_lifecheck_method\" query means heartbeat here"),
        (three("failover_alone = on"), "?8 \"failover_alone\" means nothing in a group"),
        (three("wd_priority = 1000"), "?8 \"wd_priority\" 1000 counts as 255"),
        (three("wd_lease = 1s"), "!8 1000 ms is outside the valid range for parameter \"wd_lease\" (1500 ms .. 60000 ms)"),
        (
            format!("{db};use_watchdog = on;hostname0 = 'localhost';hostname1 = 'localhost';wd_port1 = 9001"),
            "?3 two hosts survive the loss of neither: add a third one, on which \"weir witness\" is enough, or etcd",
        ),
    ] {
        check_problem(&settings, Some("0"), expected);
    }
    let two = format!("{db};use_watchdog = on;hostname0 = 'localhost';hostname1 = '127.0.0.2'");
    for enough in ["enable_consensus_with_half_votes = on", "wd_engine = etcd;wd_etcd_endpoints = 'http://e:2379'"] {
        let problems = read(&format!("{two};{enough}").replace(';', "\n"), Some("0")).problems;
        assert!(problems.iter().all(|one| one.message.contains(KEYLESS)), "{problems:?}");
    }
}

#[test]
fn heartbeats_of_no_host_are_ignored() {
    let problems = read(&three("heartbeat_port3 = 9001;heartbeat_hostname4 = 'd';heartbeat_device4 = 'e'"), Some("0")).problems;
    let mut shown: Vec<_> = problems.iter().map(|problem| (problem.severity, problem.line, problem.message.as_str())).collect();
    shown.sort_by_key(|(_, line, _)| *line);
    let ignored = |name: &str, host: &str| format!("\"{name}\" is ignored because \"{host}\" is not set");
    let (third, fourth) = (ignored("heartbeat_port3", "hostname3"), ignored("heartbeat_hostname4", "hostname4"));
    assert_eq!(shown, [(ProblemSeverity::Warning, Some(8), third.as_str()), (ProblemSeverity::Warning, Some(9), &fourth)]);
}

#[test]
fn the_number_of_hosts_has_limits() {
    check_hosts(0, &["!0 \"use_watchdog\" is on and no host is named", "!0 use_watchdog: \"/etc/weir/pgpool_node_id\" says 0"]);
    check_hosts(1, &[]);
    check_hosts(32, &[]);
    check_hosts(33, &["!0 the watchdog has 33 hosts, the limit is 32"]);
}

fn check_hosts(hosts: u16, expected: &[&str]) {
    let mut text = "backend_hostname0 = 'db'\nuse_watchdog = on\nwd_authkey = 'key'\nwd_state_dir = '/state'\n".to_owned();
    for host in 0..hosts {
        text += &format!("hostname{host} = 'host{host}'\n");
    }
    let problems = read(&text, Some("0")).problems;
    let mut texts: Vec<String> = problems.iter().map(|problem| format!("!0 {}", problem.message)).collect();
    texts.sort();
    assert_eq!(texts.len(), expected.len(), "{texts:?}");
    assert!(texts.iter().zip(expected).all(|(text, expected)| text.starts_with(expected)), "{texts:?}");
}

#[test]
fn hosts_and_the_own_number_stay_until_a_restart() {
    let old = config_of(&three("wd_port1 = 9001;heartbeat_hostname2 = 'c';wd_without_quorum = reads"), "0");
    let text =
        "backend_hostname0 = 'db';use_watchdog = on;hostname0 = 'a';hostname1 = 'moved';wd_authkey = 'other';hostname3 = 'd';\
                wd_state_dir = '/state';wd_without_quorum = refuse"
            .replace(';', "\n");
    let (merged, mut waiting) = config::reload(&old, config_of(&text, "1"));
    waiting.sort();
    let expected = [
        "heartbeat_hostname2",
        "hostname1",
        "hostname2",
        "hostname3",
        "pgpool_node_id",
        "pgpool_port3",
        "wd_authkey",
        "wd_port1",
        "wd_port3",
    ];
    assert_eq!(waiting, expected);
    let (was, is) = (old.watchdog.expect("it was on"), merged.watchdog.expect("it is on"));
    assert_eq!((is.own_number, &is.hosts, &is.authkey), (0, &was.hosts, &was.authkey));
    assert_eq!(is.without_quorum, QuorumLossPolicy::Refuse);
    let session = config_of(&three(""), "2").set_for_session("log_statement", "on").expect("a session may");
    assert_eq!(session.watchdog.map(|watchdog| watchdog.own_number), Some(2));
}
