//! Several proxies as one.
use std::path::PathBuf;

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamIndexing, ParamKind, ParamLikeness, ParamValue};
use crate::Config;
use crate::visibility::ValueVisibility::{Everyone, Nobody, Operators};
use crate::watchdog_settings::{
    FailoverVotes, LifecheckMethod, MonitoredInterfaces, QuorumLossPolicy, WatchdogEngine, WatchdogSettings, addresses, endpoints,
};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Watchdog, ..super::ROW };
/// Rows with a field. `ParamEffect::Built` once the watchdog runs: then no notice says that there is none.
const READ: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };
const ALIKE: ConfigParam = ConfigParam { likeness: ParamLikeness::Alike, ..READ };
const NEEDLESS: ConfigParam = ConfigParam { effect: ParamEffect::Needless, ..ROW };

/// With `use_watchdog = off` there is nothing to set.
fn watched(config: &mut Config, set: impl FnOnce(&mut WatchdogSettings)) {
    if let Some(watchdog) = &mut config.watchdog {
        set(watchdog);
    }
}

/// 0: never.
fn time(value: &ParamValue) -> Option<u64> {
    Some(value.millis()).filter(|ms| *ms > 0)
}

fn file(value: &ParamValue) -> Option<PathBuf> {
    Some(value.text()).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Names with commas or semicolons between them.
fn names(value: &ParamValue) -> Vec<String> {
    value.text().split([',', ';']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "use_watchdog", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart,
        set: |c, _, v| c.watchdog = v.bool().then(WatchdogSettings::empty),
        help: "Work as one of several proxies. The file pgpool_node_id beside this one holds the number of this host (0 for hostname0).", ..READ },
    ConfigParam { name: "hostname", kind: ParamKind::Text(Everyone), default: "localhost", applies: ParamContext::AtStart, indexed: ParamIndexing::Watchdog,
        set: |c, n, v| watched(c, |w| w.set_host(n, |host| host.hostname = v.text().trim().to_owned())),
        help: "Host name or address of a watchdog peer. The file pgpool_node_id says which peer we are.", ..ALIKE },
    ConfigParam { name: "wd_port", kind: ParamKind::Int { min: 1024, max: 65535 }, default: "9000", applies: ParamContext::AtStart, indexed: ParamIndexing::Watchdog,
        set: |c, n, v| watched(c, |w| w.set_host(n, |host| host.port = v.port())),
        help: "Port on which a peer talks to the others.", ..ALIKE },
    ConfigParam { name: "pgpool_port", kind: ParamKind::Int { min: 1024, max: 65535 }, default: "9999", applies: ParamContext::AtStart, indexed: ParamIndexing::Watchdog,
        set: |c, n, v| watched(c, |w| w.set_host(n, |host| host.pgpool_port = v.port())),
        help: "Port on which a peer serves clients.", ..ALIKE },
    ConfigParam { name: "wd_listen_address", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, since: "4.7",
        set: |c, _, v| watched(c, |w| w.set_listen_address(v.text())),
        help: "Address to accept peers on; *: all. Empty: all, or without wd_authkey our own hostname.", ..READ },
    ConfigParam { name: "wd_listen_port", kind: ParamKind::Int { min: 0, max: 65535 }, default: "0", applies: ParamContext::AtStart, since: "4.7",
        set: |c, _, v| watched(c, |w| w.set_listen_port(v.port())),
        help: "Port to accept peers on, if not our own wd_port. 0: wd_port.", ..READ },
    ConfigParam { name: "wd_authkey", kind: ParamKind::Text(Nobody), default: "", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.authkey = v.text().into()),
        help: "Secret that all peers share: each proves that it knows it, and all that they say is sealed with it. Empty: peers are not checked, and all of them must be on this machine (localhost).", ..READ },
    ConfigParam { name: "wd_priority", kind: ParamKind::Int { min: 0, max: INT_MAX }, default: "1", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.priority = u8::try_from(v.int()).unwrap_or(u8::MAX)),
        help: "Rank among hosts that could lead: the higher one does. 0: never. No leader is unseated. Numbers above 255 count as 255.", ..READ },
    ConfigParam { name: "wd_ipc_socket_dir", kind: ParamKind::Text(Operators), default: "/tmp", applies: ParamContext::AtStart,
        help: "Not needed: commands come by PCP and the console.", ..NEEDLESS },
    ConfigParam { name: "trusted_servers", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.trusted_servers = names(v)),
        help: "Hosts to reach, with commas between them. A leader that reaches none of them hands over; it goes on voting.", ..READ },
    ConfigParam { name: "trusted_server_command", kind: ParamKind::Text(Operators), default: "ping -q -c3 %h", applies: ParamContext::OnReload, since: "4.4",
        help: "Command that tries to reach such a host; %h stands for it.", ..READ },
    ConfigParam { name: "delegate_ip", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, since: "4.4",
        set: |c, _, v| watched(c, |w| w.addresses = addresses(&v.text()).unwrap_or_default()),
        help: "Virtual IP address that the leader holds, or several, IPv4 and IPv6, with commas between them. Empty: none.", ..ALIKE },
    ConfigParam { name: "delegate_IP", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, hidden: true, alias_of: Some("delegate_ip"),
        help: "Old name of delegate_ip.", ..ROW },
    ConfigParam { name: "if_cmd_path", kind: ParamKind::Text(Operators), default: "/sbin", applies: ParamContext::AtStart,
        help: "Directory of the next two commands, unless they begin with a slash.", ..READ },
    ConfigParam { name: "if_up_cmd", kind: ParamKind::Text(Operators), default: "/usr/bin/sudo /sbin/ip addr add $_IP_$/24 dev eth0 label eth0:0", applies: ParamContext::AtStart,
        help: "Command that takes the virtual address; $_IP_$ stands for it. Not set or empty: Weir does so itself, so that the kernel removes the address if Weir dies or stands still. With a command, a process that stands still keeps the address.", ..READ },
    ConfigParam { name: "if_down_cmd", kind: ParamKind::Text(Operators), default: "/usr/bin/sudo /sbin/ip addr del $_IP_$/24 dev eth0", applies: ParamContext::AtStart,
        help: "Command that gives the virtual address up; $_IP_$ stands for it. Not set or empty: Weir does so itself.", ..READ },
    ConfigParam { name: "arping_path", kind: ParamKind::Text(Operators), default: "/usr/sbin", applies: ParamContext::AtStart,
        help: "Directory of arping_cmd, unless it begins with a slash.", ..READ },
    ConfigParam { name: "arping_cmd", kind: ParamKind::Text(Operators), default: "/usr/bin/sudo /usr/sbin/arping -U $_IP_$ -w 1 -I eth0", applies: ParamContext::AtStart,
        help: "Command that tells the network who holds the virtual address now. Not set or empty: Weir does so itself.", ..READ },
    ConfigParam { name: "ping_path", kind: ParamKind::Text(Operators), default: "/bin", applies: ParamContext::AtStart,
        help: "Directory of the ping command, if trusted_server_command is not set. Not set: the first in PATH.", ..READ },
    ConfigParam { name: "wd_escalation_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| watched(c, |w| w.escalation_command = v.text()),
        help: "Command run when we become the leader, before the virtual address is taken.", ..READ },
    ConfigParam { name: "wd_de_escalation_command", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        set: |c, _, v| watched(c, |w| w.de_escalation_command = v.text()),
        help: "Command run when we stop being the leader, before the virtual address is given up.", ..READ },
    ConfigParam { name: "clear_memqcache_on_escalation", kind: ParamKind::Bool, default: "on", applies: ParamContext::OnReload,
        help: "Not needed: no answer is kept that a failover could make wrong, and none is given without a lease.", ..NEEDLESS },
    ConfigParam { name: "failover_when_quorum_exists", kind: ParamKind::Bool, default: "on", applies: ParamContext::AtStart,
        help: "Always on: without a quorum nothing is decided. off is ignored, with a warning.", ..NEEDLESS },
    ConfigParam { name: "failover_require_consensus", kind: ParamKind::Bool, default: "on", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.failover_votes = if v.bool() { FailoverVotes::OneEach } else { FailoverVotes::Needless }),
        help: "A failover needs the votes of a majority of the peers that watch the server. off: the sight of the leader is enough.", ..ALIKE },
    ConfigParam { name: "allow_multiple_failover_requests_from_node", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| match w.failover_votes {
            FailoverVotes::OneEach if v.bool() => w.failover_votes = FailoverVotes::Repeated,
            FailoverVotes::OneEach | FailoverVotes::Needless | FailoverVotes::Repeated => {}
        }),
        help: "A peer may give more than one of these votes.", ..ALIKE },
    ConfigParam { name: "enable_consensus_with_half_votes", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.half_is_enough = v.bool()),
        help: "Half of an even number of peers is enough to decide, with the one of the lowest number in it. The other half decides nothing.", ..ALIKE },
    ConfigParam { name: "wd_remove_shutdown_nodes", kind: ParamKind::Bool, default: "off", applies: ParamContext::OnReload,
        set: |c, _, v| watched(c, |w| w.removes_shut_down = v.bool()),
        help: "A peer that was shut down no longer counts. The majority of before decides so.", ..ALIKE },
    ConfigParam { name: "wd_lost_node_removal_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::OnReload,
        set: |c, _, v| watched(c, |w| w.lost_removal_ms = time(v)),
        help: "Time after which a lost peer no longer counts, if the majority of before decides so. 0: it always counts.", ..ALIKE },
    ConfigParam { name: "wd_no_show_node_removal_timeout", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::OnReload, since: "4.4",
        set: |c, _, v| watched(c, |w| w.no_show_removal_ms = time(v)),
        help: "Time after which a majority of the peers begins without those that never appeared. 0: all of them are waited for.", ..ALIKE },
    ConfigParam { name: "wd_lifecheck_method", kind: ParamKind::Enum { values: &["heartbeat", "query", "external"], also: &[] }, default: "heartbeat", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.lifecheck = LifecheckMethod::from_word(v.word())),
        help: "How peers see that the others live. query and external are accepted, with a warning, and mean heartbeat.", ..READ },
    ConfigParam { name: "wd_interval", kind: ParamKind::Seconds { min: 0, max: INT_MAX }, default: "10", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.interval_ms = v.millis()),
        help: "Time between two tries to reach the trusted_servers. Peers ask each other several times within wd_lease.", ..READ },
    ConfigParam { name: "wd_monitoring_interfaces_list", kind: ParamKind::List { separator: ',', seen_by: Everyone }, default: "", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.interfaces = MonitoredInterfaces::of_list(v.list())),
        help: "Network devices to watch, with commas between them; a leader hands over when all are down. any stands for all of them but loopback.", ..READ },
    ConfigParam { name: "heartbeat_hostname", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, indexed: ParamIndexing::Heartbeat,
        set: |c, n, v| watched(c, |w| w.set_heartbeat(n, |host| host.set_paths(&v.text()))),
        help: "Where to send heartbeats: addresses of a peer, one for each network, with semicolons between them.", ..ALIKE },
    ConfigParam { name: "heartbeat_port", kind: ParamKind::Int { min: 1024, max: 65535 }, default: "9694", applies: ParamContext::AtStart, indexed: ParamIndexing::Heartbeat,
        set: |c, n, v| watched(c, |w| w.set_heartbeat(n, |host| host.heartbeat_port = v.port())),
        help: "UDP port for heartbeats.", ..ALIKE },
    ConfigParam { name: "heartbeat_device", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, indexed: ParamIndexing::Heartbeat,
        set: |c, n, v| watched(c, |w| w.set_heartbeat(n, |host| host.set_devices(&v.text()))),
        help: "Network devices for heartbeats, in the order of heartbeat_hostname, with semicolons between them; may need root.", ..READ },
    ConfigParam { name: "wd_heartbeat_listen_addresses", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, since: "4.7",
        set: |c, _, v| watched(c, |w| w.set_heartbeat_addresses(names(v))),
        help: "Addresses to accept heartbeats on, with commas between them; *: all. Empty: all, or without wd_authkey our own hostname.", ..READ },
    ConfigParam { name: "wd_heartbeat_listen_port", kind: ParamKind::Int { min: 0, max: 65535 }, default: "0", applies: ParamContext::AtStart, since: "4.7",
        set: |c, _, v| watched(c, |w| w.set_heartbeat_listen_port(v.port())),
        help: "Port to accept heartbeats on. 0: our own heartbeat_port.", ..READ },
    ConfigParam { name: "wd_heartbeat_keepalive", kind: ParamKind::Seconds { min: 1, max: INT_MAX }, default: "2", applies: ParamContext::AtStart,
        help: "Not needed: peers hear of each other several times within wd_lease.", ..NEEDLESS },
    ConfigParam { name: "wd_heartbeat_deadtime", kind: ParamKind::Seconds { min: 1, max: INT_MAX }, default: "30", applies: ParamContext::AtStart,
        set: |c, _, v| watched(c, |w| w.heartbeat_deadtime_ms = v.millis()),
        help: "Time without a heartbeat after which a peer is shown as dead. Taking over depends on wd_lease only.", ..READ },
    ConfigParam { name: "wd_life_point", kind: ParamKind::Int { min: 0, max: INT_MAX }, default: "3", applies: ParamContext::AtStart,
        help: "Not needed: there is no lifecheck by query.", ..NEEDLESS },
    ConfigParam { name: "wd_lifecheck_query", kind: ParamKind::Text(Operators), default: "SELECT 1", applies: ParamContext::AtStart,
        help: "Not needed: there is no lifecheck by query.", ..NEEDLESS },
    ConfigParam { name: "wd_lifecheck_dbname", kind: ParamKind::Text(Everyone), default: "template1", applies: ParamContext::OnReload,
        help: "Not needed: there is no lifecheck by query.", ..NEEDLESS },
    ConfigParam { name: "wd_lifecheck_user", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::OnReload,
        help: "Not needed: there is no lifecheck by query.", ..NEEDLESS },
    ConfigParam { name: "wd_lifecheck_password", kind: ParamKind::Text(Nobody), default: "", applies: ParamContext::OnReload,
        help: "Not needed: there is no lifecheck by query.", ..NEEDLESS },
    ConfigParam { name: "wd_lease", kind: ParamKind::Millis { min: 1500, max: 60_000 }, default: "2s", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.lease_ms = v.millis()),
        help: "Time for which what the group has decided may be relied on without asking again. Nobody takes over from a peer that fell silent before it is over; writes that were not answered by then are not told to have succeeded. A group keeps the time that it was made with.", ..ALIKE },
    ConfigParam { name: "wd_without_quorum", kind: ParamKind::Enum { values: &["reads", "refuse"], also: &[] }, default: "reads", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.without_quorum = QuorumLossPolicy::from_word(v.word())),
        help: "Statements of clients of a peer that cannot ask the majority. reads: those that only read are served, by what was known last; writes wait (failover_wait), then fail. refuse: all of them wait and fail.", ..ALIKE },
    ConfigParam { name: "wd_state_dir", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.state_dir = PathBuf::from(v.text())),
        help: "Directory of weir_group.PORT, in which this peer keeps its vote. It must be on a disk that outlives a restart of the machine: a peer without that file is a new one. Empty: work_dir.", ..READ },
    ConfigParam { name: "wd_engine", kind: ParamKind::Enum { values: &["builtin", "etcd"], also: &[] }, default: "builtin", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.engine = WatchdogEngine::from_word(v.word())),
        help: "Where the group keeps what it decides. builtin: on a majority of the peers. etcd: in one key of wd_etcd_endpoints.", ..ALIKE },
    ConfigParam { name: "wd_etcd_endpoints", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.endpoints = endpoints(v.list().iter().map(String::as_str)).unwrap_or_default()),
        help: "Members of etcd, as http://host:port or https://host:port, with commas between them.", ..READ },
    ConfigParam { name: "wd_etcd_user", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.user = v.text()),
        help: "User of etcd. Empty: no login.", ..READ },
    ConfigParam { name: "wd_etcd_password", kind: ParamKind::Text(Nobody), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.password = v.text().into()),
        help: "Password of that user.", ..READ },
    ConfigParam { name: "wd_etcd_key", kind: ParamKind::Text(Operators), default: "/weir/group", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.key = v.text()),
        help: "Key in etcd, the same for all peers. Each group of an etcd needs one of its own.", ..ALIKE },
    ConfigParam { name: "wd_etcd_ca_file", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.tls.root_cert = file(v)),
        help: "File, relative to the directory of the configuration file, of the authorities that etcd's certificates are checked against. Empty: ssl_ca_cert and ssl_ca_cert_dir.", ..READ },
    ConfigParam { name: "wd_etcd_client_cert_file", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.tls.cert = file(v)),
        help: "File of the certificate shown to etcd. Empty: none.", ..READ },
    ConfigParam { name: "wd_etcd_client_key_file", kind: ParamKind::Text(Operators), default: "", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| watched(c, |w| w.etcd.tls.key = file(v)),
        help: "File of its private key.", ..READ },
];
