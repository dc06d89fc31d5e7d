//! Logging and files.
use std::path::PathBuf;

use crate::config::LogLevel;

use super::{Applies, Effect, Group, INT_MAX, Kind, Param};

/// A row of this area that nothing reads yet.
const ROW: Param = Param { group: Group::Log, ..super::ROW };
/// A row of this area that does what its help says.
const BUILT: Param = Param { effect: Effect::Built, ..ROW };

/// The rows, related ones together.
#[rustfmt::skip] // two or three lines a row keep the table readable as one
pub(super) const ROWS: &[Param] = &[
    Param { name: "log_destination", kind: Kind::Words { separator: ',', values: &["stderr", "syslog"] }, default: "stderr", applies: Applies::OnReload,
        help: "Where the log goes: stderr, syslog, or both with a comma between them.", ..ROW },
    Param { name: "syslog_facility", kind: Kind::Enum { values: &["LOCAL0", "LOCAL1", "LOCAL2", "LOCAL3", "LOCAL4", "LOCAL5", "LOCAL6", "LOCAL7"], also: &[] }, default: "LOCAL0", applies: Applies::OnReload,
        help: "Facility in syslog.", ..ROW },
    Param { name: "syslog_ident", kind: Kind::Text, default: "pgpool", applies: Applies::OnReload,
        help: "Name in syslog.", ..ROW },
    Param { name: "logging_collector", kind: Kind::Bool, default: "off", applies: Applies::AtStart,
        help: "Write the log to files instead of stderr.", ..ROW },
    Param { name: "log_directory", kind: Kind::Text, default: "/tmp/pgpool_logs", applies: Applies::OnReload,
        help: "Directory of these files.", ..ROW },
    Param { name: "log_filename", kind: Kind::Text, default: "pgpool-%Y-%m-%d_%H%M%S.log", applies: Applies::OnReload,
        help: "Names of these files, with the % signs of strftime.", ..ROW },
    Param { name: "log_file_mode", kind: Kind::Octal { max: 0o777 }, default: "0600", applies: Applies::OnReload,
        help: "Permissions of these files, in octal.", ..ROW },
    Param { name: "log_rotation_age", kind: Kind::Minutes { min: 0, max: INT_MAX / 60 }, default: "1440", applies: Applies::OnReload,
        help: "Age at which a new file begins. 0: no limit.", ..ROW },
    Param { name: "log_rotation_size", kind: Kind::Kilobytes { min: 0, max: INT_MAX / 1024 }, default: "10240", applies: Applies::OnReload,
        help: "Size at which a new file begins. 0: no limit.", ..ROW },
    Param { name: "log_truncate_on_rotation", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Overwrite a file of the same name instead of adding to it.", ..ROW },
    Param { name: "log_line_prefix", kind: Kind::Text, default: "%m: %a pid %p: ", applies: Applies::OnReload,
        set: |c, _, v| c.log.line_prefix = v.text(),
        help: "Begin of every line: %a application, %u user, %d database, %p process number, %P process name, %t time, %m time with milliseconds, %l session number, %% for %.", ..BUILT },
    Param { name: "log_min_messages", kind: Kind::Enum { values: &["debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"], also: &[("debug", "debug2")] }, default: "warning", applies: Applies::PerSession,
        set: |c, _, v| c.log.min_messages = LogLevel::from_word(v.word()),
        help: "Least severe messages that are logged, in this order.", ..BUILT },
    Param { name: "client_min_messages", kind: Kind::Enum { values: &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "info", "notice", "warning", "error", "fatal", "panic"], also: &[("debug", "debug2")] }, default: "notice", applies: Applies::PerSession,
        help: "Least severe messages of ours that a client gets, in this order.", ..ROW },
    Param { name: "log_error_verbosity", kind: Kind::Enum { values: &["terse", "default", "verbose"], also: &[] }, default: "default", applies: Applies::PerSession,
        help: "How much of a message is logged: less, the usual, or the place in the program too.", ..ROW },
    Param { name: "log_connections", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        set: |c, _, v| c.log.connections = v.bool(),
        help: "Log every client that connects.", ..BUILT },
    Param { name: "log_disconnections", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        set: |c, _, v| c.log.disconnections = v.bool(),
        help: "Log every client that leaves.", ..BUILT },
    Param { name: "log_hostname", kind: Kind::Bool, default: "off", applies: Applies::OnReload,
        help: "Log host names instead of addresses; asks the name server for each client.", ..ROW },
    Param { name: "log_statement", kind: Kind::Bool, default: "off", applies: Applies::PerSession,
        set: |c, _, v| c.log.statement = v.bool(),
        help: "Log every statement of a client.", ..BUILT },
    Param { name: "log_per_node_statement", kind: Kind::Bool, default: "off", applies: Applies::PerSession,
        set: |c, _, v| c.log.per_node_statement = v.bool(),
        help: "Log every statement with the node it went to, also our own ones.", ..ROW },
    Param { name: "notice_per_node_statement", kind: Kind::Bool, default: "off", applies: Applies::PerSession, since: "4.5",
        set: |c, _, v| c.log.notice_per_node_statement = v.bool(),
        help: "Tell the client with a NOTICE which node each of its statements went to.", ..ROW },
    Param { name: "log_client_messages", kind: Kind::Bool, default: "off", applies: Applies::PerSession,
        help: "Log every protocol message of a client.", ..ROW },
    Param { name: "log_backend_messages", kind: Kind::Enum { values: &["none", "terse", "verbose"], also: &[] }, default: "none", applies: Applies::PerSession, since: "4.6",
        help: "Log the protocol messages of servers: none, each kind once in a row, or all.", ..ROW },
    Param { name: "log_pcp_processes", kind: Kind::Bool, default: "off", applies: Applies::OnReload, since: "4.5",
        help: "Log administration (PCP) connections.", ..ROW },
    Param { name: "pid_file_name", kind: Kind::Text, default: "/var/run/pgpool/pgpool.pid", applies: Applies::AtStart,
        set: |c, _, v| c.pid_file = PathBuf::from(v.text()),
        help: "File with our process number.", ..BUILT },
    Param { name: "work_dir", kind: Kind::Text, default: "/tmp", applies: Applies::AtStart, since: "4.7",
        set: |c, _, v| c.work_dir = PathBuf::from(v.text()),
        help: "Directory for files of ours, such as the state of the nodes.", ..ROW },
    Param { name: "logdir", kind: Kind::Text, default: "", applies: Applies::AtStart, hidden: true, alias_of: Some("work_dir"),
        help: "Old name of work_dir.", ..ROW },
];
