//! Where clients connect to.
use std::path::PathBuf;

use super::{ConfigParam, INT_MAX, ParamContext, ParamEffect, ParamGroup, ParamKind};
use crate::visibility::ValueVisibility::{Everyone, Operators};

const ROW: ConfigParam = ConfigParam { group: ParamGroup::Listen, ..super::ROW };
const BUILT: ConfigParam = ConfigParam { effect: ParamEffect::Built, ..ROW };

#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[ConfigParam] = &[
    ConfigParam { name: "listen_addresses", kind: ParamKind::List { separator: ',', seen_by: Everyone }, default: "localhost", applies: ParamContext::AtStart,
        set: |c, _, v| c.listen_addresses = v.list(),
        help: "Addresses to accept clients on, with commas between them. * stands for all, an empty value for unix sockets only.", ..BUILT },
    ConfigParam { name: "port", kind: ParamKind::Int { min: 1024, max: 65535 }, default: "9999", applies: ParamContext::AtStart,
        set: |c, _, v| c.port = v.port(),
        help: "Port clients connect to; also the number in the name of the unix socket.", ..BUILT },
    ConfigParam { name: "unix_socket_directories", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "/tmp", applies: ParamContext::AtStart, since: "4.4",
        set: |c, _, v| c.unix_socket_directories = v.list().into_iter().map(PathBuf::from).collect(),
        help: "Directories in which a unix socket for clients is made, with commas between them. Empty: no unix socket. Under systemd, RuntimeDirectory stands for the default; for a file in /etc/pgpool2, /var/run/postgresql, as in Debian's package.", ..BUILT },
    ConfigParam { name: "socket_dir", kind: ParamKind::Text(Operators), default: "/tmp", applies: ParamContext::AtStart, hidden: true, alias_of: Some("unix_socket_directories"),
        help: "Old name of unix_socket_directories, up to Pgpool-II 4.3.", ..ROW },
    ConfigParam { name: "unix_socket_group", kind: ParamKind::Text(Everyone), default: "", applies: ParamContext::AtStart, since: "4.4",
        set: |c, _, v| c.unix_socket_group = v.text(),
        help: "Group that owns the unix sockets. Empty: the group of the process.", ..BUILT },
    ConfigParam { name: "unix_socket_permissions", kind: ParamKind::Octal { max: 0o777 }, default: "0777", applies: ParamContext::AtStart, since: "4.4",
        set: |c, _, v| c.unix_socket_permissions = v.count(),
        help: "Permissions of the unix sockets, in octal. Connecting needs the right to write.", ..BUILT },
    ConfigParam { name: "pcp_listen_addresses", kind: ParamKind::List { separator: ',', seen_by: Everyone }, default: "localhost", applies: ParamContext::AtStart,
        set: |c, _, v| c.pcp.addresses = v.list(),
        help: "Addresses to accept administration (PCP) connections on. * stands for all, an empty value for unix sockets only. Without pcp.conf PCP is not served.", ..BUILT },
    ConfigParam { name: "pcp_port", kind: ParamKind::Int { min: 1024, max: 65535 }, default: "9898", applies: ParamContext::AtStart,
        set: |c, _, v| c.pcp.port = v.port(),
        help: "Port for administration (PCP) connections; also the number in the name of its unix socket.", ..BUILT },
    ConfigParam { name: "pcp_socket_dir", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "/tmp", applies: ParamContext::AtStart,
        set: |c, _, v| c.pcp.socket_directories = v.list().into_iter().map(PathBuf::from).collect(),
        help: "Directories of the unix sockets for administration (PCP), with commas between them. Empty: no unix socket. Under systemd, RuntimeDirectory stands for the default; for a file in /etc/pgpool2, /var/run/postgresql, as in Debian's package.", ..BUILT },
    ConfigParam { name: "ignore_startup_parameters", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.ignored_parameters = v.list(),
        help: "Parameters in clients' startup packets, or in their options, that are not passed on to servers, in new sessions.", ..BUILT },
    ConfigParam { name: "reuse_port", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart, since: "Weir 0.1",
        set: |c, _, v| c.reuse_port = v.bool(),
        help: "Other processes of the same system user may listen on the same TCP port, if they say so too: the system spreads new clients over them.", ..BUILT },
    ConfigParam { name: "peer_list", kind: ParamKind::List { separator: ',', seen_by: Operators }, default: "", applies: ParamContext::OnReload, since: "Weir 0.1",
        set: |c, _, v| c.peers = crate::peers::read(v.list().iter().map(String::as_str)).unwrap_or_default(),
        help: "Other Weirs behind the address that clients know, as host:port; a folder of unix sockets stands for a host. A cancel request for a session that is not of this Weir goes to all of them. Its own place may stand there too.", ..BUILT },
    ConfigParam { name: "listen_backlog_multiplier", kind: ParamKind::Int { min: 1, max: INT_MAX }, default: "2", applies: ParamContext::AtStart,
        set: |c, _, v| c.listen_backlog_multiplier = v.count(),
        help: "Connections the kernel keeps waiting to be accepted: num_init_children times this number.", ..BUILT },
    ConfigParam { name: "serialize_accept", kind: ParamKind::Bool, default: "off", applies: ParamContext::AtStart,
        help: "Let only one process at a time wait for a new client. Of use to a server of many processes only.", ..ROW },
    ConfigParam { name: "reserved_connections", kind: ParamKind::Int { min: 0, max: INT_MAX }, default: "0", applies: ParamContext::AtStart,
        help: "Above 0: clients beyond num_init_children minus this number are turned away instead of being made to wait.", ..ROW },
];
