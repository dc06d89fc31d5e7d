//! `pgbouncer.ini` as a `pgpool.conf`: the same setup, and for each line that has no equal, why.
//!
//! In: the bytes of the files. Out: texts of `pgpool.conf` and `pool_passwd`, and notes. No IO.

use crate::limits::read_overrides;
use std::collections::BTreeMap;
use std::fmt::Write as _;

mod ini;
mod users;

pub use users::read_users;

/// What a line of `pgbouncer.ini` has no equal for, or what to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// From 1; 0 stands for the whole file.
    pub line: u32,
    pub text: String,
}

/// A setup, translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The text of `pgpool.conf`.
    pub conf: String,
    /// `auth_file`, if the file names one: the users in it go to `pool_passwd`.
    pub auth_file: Option<String>,
    pub notes: Vec<Note>,
}

/// What becomes of a setting.
enum Fate {
    /// The parameter of this name, with the value brought into our form.
    Is(&'static str, fn(&str) -> String),
    /// Needed nothing: what it does comes without being asked for, or means nothing here.
    Needless(&'static str),
    /// There is nothing like it.
    Missing(&'static str),
    /// Looked at elsewhere.
    Known,
}

use Fate::{Is, Known, Missing, Needless};

fn same(value: &str) -> String {
    value.to_string()
}

/// Seconds, also broken ones, as PgBouncer writes times.
fn seconds(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(seconds) if seconds.fract() == 0.0 => format!("{seconds}s"),
        Ok(seconds) => format!("{}ms", (seconds * 1000.0).round()),
        Err(_) => value.to_string(),
    }
}

fn whole_seconds(value: &str) -> String {
    value.parse::<f64>().map_or_else(|_| value.to_string(), |seconds| format!("{}", seconds.ceil()))
}

fn list(value: &str) -> String {
    quoted(value)
}

fn flag(value: &str) -> String {
    if matches!(value, "0" | "off" | "no" | "false") { "off" } else { "on" }.to_string()
}

fn reset(value: &str) -> String {
    quoted(&format!("ABORT; {value}"))
}

fn facility(value: &str) -> String {
    value.to_ascii_uppercase()
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// Every setting of PgBouncer 1.25 that may stand in `[pgbouncer]`.
#[rustfmt::skip] // one line a row keeps the table readable as one
const SETTINGS: &[(&str, Fate)] = &[
    ("admin_users", Is("admin_users", list)),
    ("application_name_add_host", Missing("application_name is passed on as the client sends it")),
    ("auth_dbname", Is("auth_dbname", quoted)),
    ("auth_file", Known),
    ("auth_hba_file", Missing("name the file pool_hba.conf and put it beside pgpool.conf, or give it with -a")),
    ("auth_ident_file", Is("ident_file", quoted)),
    ("auth_ldap_options", Missing("write a rule with method ldap into pool_hba.conf")),
    ("auth_query", Is("auth_query", quoted)),
    ("auth_type", Known),
    ("auth_user", Is("auth_user", quoted)),
    ("autodb_idle_timeout", Needless("databases are not configured, so unused ones take no room")),
    ("cancel_wait_timeout", Needless("a cancel request waits for nothing")),
    ("client_idle_timeout", Is("client_idle_limit", whole_seconds)),
    ("client_login_timeout", Is("authentication_timeout", whole_seconds)),
    ("client_tls13_ciphers", Missing("ciphers of TLS 1.3 cannot be chosen")),
    ("client_tls_ca_file", Is("ssl_ca_cert", quoted)),
    ("client_tls_cert_file", Is("ssl_cert", quoted)),
    ("client_tls_ciphers", Is("ssl_ciphers", quoted)),
    ("client_tls_dheparams", Missing("give a file with ssl_dh_params_file")),
    ("client_tls_ecdhcurve", Missing("give a curve with ssl_ecdh_curve")),
    ("client_tls_key_file", Is("ssl_key", quoted)),
    ("client_tls_protocols", Missing("versions of TLS cannot be chosen")),
    ("client_tls_sslmode", Known),
    ("conffile", Needless("the console reads the file the proxy was started with")),
    ("default_pool_size", Is("pool_size", same)),
    ("disable_pqexec", Missing("several statements in one query cannot be forbidden")),
    ("dns_max_ttl", Needless("names are asked for each new server connection")),
    ("dns_nxdomain_ttl", Needless("names are asked for each new server connection")),
    ("dns_zone_check_period", Needless("names are asked for each new server connection")),
    ("idle_transaction_timeout", Is("idle_transaction_timeout", seconds)),
    ("ignore_startup_parameters", Needless("every startup parameter is passed on to the servers")),
    ("job_name", Needless("it names a Windows service")),
    ("listen_addr", Is("listen_addresses", list)),
    ("listen_backlog", Missing("the backlog is num_init_children times listen_backlog_multiplier")),
    ("listen_port", Is("port", same)),
    ("log_connections", Is("log_connections", flag)),
    ("log_disconnections", Is("log_disconnections", flag)),
    ("log_pooler_errors", Needless("errors told to clients are logged at level log")),
    ("log_stats", Missing("numbers are not logged: read them from metrics_port or the console")),
    ("logfile", Known),
    ("max_client_conn", Is("max_client_connections", same)),
    ("max_db_client_connections", Is("max_client_connections_per_database", same)),
    ("max_db_connections", Missing("server connections are not limited by database; pool_size, max_server_connections_per_node and max_server_connections are the limits")),
    ("max_packet_size", Needless("messages of any length pass in parts")),
    ("max_prepared_statements", Known),
    ("max_user_client_connections", Is("max_client_connections_per_user", same)),
    ("max_user_connections", Missing("server connections are not limited by user over all databases; pool_size is for each database")),
    ("min_pool_size", Is("min_pool_size", same)),
    ("peer_id", Missing("there are no peers; a cancel request must reach the process that serves the client")),
    ("pidfile", Is("pid_file_name", quoted)),
    ("pkt_buf", Missing("memory_buffer_size has another meaning; its default is right")),
    ("pool_mode", Is("pool_mode", same)),
    ("query_timeout", Is("query_timeout", seconds)),
    ("query_wait_notify", Missing("clients that wait are not told")),
    ("query_wait_timeout", Is("pool_wait_timeout", whole_seconds)),
    ("reserve_pool_size", Is("reserve_pool_size", same)),
    ("reserve_pool_timeout", Is("reserve_pool_timeout", seconds)),
    ("resolv_conf", Missing("names are asked of the system")),
    ("sbuf_loopcnt", Needless("clients take turns")),
    ("scram_iterations", Needless("verifiers are made by the servers")),
    ("server_check_delay", Needless("a server connection is looked at when it is given out")),
    ("server_check_query", Needless("a server connection is looked at when it is given out")),
    ("server_connect_timeout", Is("connect_timeout", seconds)),
    ("server_fast_close", Needless("a server connection goes back after each transaction")),
    ("server_idle_timeout", Is("server_idle_timeout", whole_seconds)),
    ("server_lifetime", Is("connection_life_time", whole_seconds)),
    ("server_login_retry", Needless("a server that refused is asked again when a client needs it")),
    ("server_reset_query", Is("reset_query_list", reset)),
    ("server_reset_query_always", Needless("what a session leaves on a server connection is followed")),
    ("server_round_robin", Missing("the connection used last is used first")),
    ("server_tls13_ciphers", Missing("ciphers of TLS 1.3 cannot be chosen")),
    ("server_tls_ca_file", Is("backend_sslrootcert", quoted)),
    ("server_tls_cert_file", Is("backend_sslcert", quoted)),
    ("server_tls_ciphers", Missing("ciphers towards servers cannot be chosen")),
    ("server_tls_key_file", Is("backend_sslkey", quoted)),
    ("server_tls_protocols", Missing("versions of TLS towards servers cannot be chosen")),
    ("server_tls_sslmode", Known),
    ("service_name", Needless("it names a Windows service")),
    ("so_reuseport", Missing("one process uses all cores (worker_threads); restart it with takeover_socket")),
    ("stats_period", Is("stats_period", same)),
    ("stats_users", Is("stats_users", list)),
    ("suspend_timeout", Needless("there is no SUSPEND")),
    ("syslog", Known),
    ("syslog_facility", Is("syslog_facility", facility)),
    ("syslog_ident", Is("syslog_ident", quoted)),
    ("tcp_defer_accept", Needless("clients that say nothing cost little")),
    ("tcp_keepalive", Needless("it is always on")),
    ("tcp_keepcnt", Missing("the system's values are used")),
    ("tcp_keepidle", Missing("the system's values are used")),
    ("tcp_keepintvl", Missing("the system's values are used")),
    ("tcp_socket_buffer", Missing("the system's values are used")),
    ("tcp_user_timeout", Missing("the system's values are used")),
    ("track_extra_parameters", Needless("all parameters of a session are followed")),
    ("transaction_timeout", Is("transaction_timeout", seconds)),
    ("unix_socket_dir", Is("unix_socket_directories", list)),
    ("unix_socket_group", Is("unix_socket_group", quoted)),
    ("unix_socket_mode", Is("unix_socket_permissions", same)),
    ("user", Missing("start it as the user it is to run as")),
    ("verbose", Missing("use log_min_messages")),
];

/// What a setting of PgBouncer's means here, for who sets it while the proxy runs.
pub enum Meaning {
    /// The parameter of this name, and how a value is brought into the form of its file.
    Is(&'static str, fn(&str) -> String),
    /// It has no effect, for this reason.
    Nothing(&'static str),
}

/// The meaning of a setting by PgBouncer's name; `None`: it has none, or one that hangs on its value.
pub fn meaning_of(name: &str) -> Option<Meaning> {
    match SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, fate)| fate)? {
        Is(ours, form) => Some(Meaning::Is(ours, *form)),
        Needless(why) | Missing(why) => Some(Meaning::Nothing(why)),
        Known => None,
    }
}

/// Names of all settings that have an equal, and that.
pub fn equals() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().filter_map(|(theirs, fate)| if let Is(ours, _) = fate { Some((*theirs, *ours)) } else { None })
}

/// What PgBouncer does when the file does not say so, and Weir would do otherwise.
const DEFAULTS: [(&str, &str); 9] = [
    ("listen_addr", ""),
    ("listen_port", "6432"),
    ("pool_mode", "session"),
    ("max_client_conn", "100"),
    ("default_pool_size", "20"),
    ("server_lifetime", "3600"),
    ("server_connect_timeout", "15"),
    ("server_reset_query", "DISCARD ALL"),
    ("pidfile", ""),
];

/// Translates `pgbouncer.ini`. `include` gives the bytes of an included file.
pub fn import(bytes: &[u8], include: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>) -> Import {
    let mut work = Work::default();
    let (lines, notes) = ini::read(bytes, include);
    work.notes = notes;
    for line in &lines {
        match line.section.as_str() {
            "pgbouncer" => work.setting(line),
            "databases" => work.database(line),
            "users" => work.user(line),
            "peers" => work.note(line.number, "there are no peers".to_string()),
            other => work.note(line.number, format!("section [{other}] is not known")),
        }
    }
    work.finish()
}

#[derive(Default)]
struct Work {
    /// Values by PgBouncer's names.
    given: BTreeMap<String, String>,
    /// Host and port of each server, in order.
    servers: Vec<(String, String)>,
    overrides: Vec<String>,
    notes: Vec<Note>,
    lines: Vec<(String, String)>,
}

impl Work {
    fn note(&mut self, line: u32, text: String) {
        self.notes.push(Note { line, text });
    }

    fn setting(&mut self, line: &ini::Line) {
        let (name, value) = (line.name.as_str(), line.value.as_str());
        self.given.insert(line.name.clone(), line.value.clone());
        match SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, fate)| fate) {
            Some(Is(ours, form)) => self.lines.push((ours.to_string(), form(value))),
            Some(Needless(why)) => self.note(line.number, format!("{name}: not needed: {why}")),
            Some(Missing(why)) => self.note(line.number, format!("{name}: no equal: {why}")),
            Some(Known) => self.known(line),
            None => self.note(line.number, format!("{name}: is no setting of PgBouncer 1.25")),
        }
    }

    /// Settings that become several, or depend on their value.
    fn known(&mut self, line: &ini::Line) {
        let (name, value) = (line.name.as_str(), line.value.as_str());
        let set = |work: &mut Work, name: &str, value: String| work.lines.push((name.to_string(), value));
        match (name, value) {
            ("auth_file", _) | ("auth_type", "md5" | "scram-sha-256" | "plain") => {}
            ("auth_type", "hba") => set(self, "enable_pool_hba", "on".into()),
            ("auth_type", "trust" | "any") => {
                let text = "leave users out of pool_passwd: they are let in as far as the servers trust them";
                self.note(line.number, format!("auth_type = {value}: {text}"));
            }
            ("auth_type", other) => self.note(line.number, format!("auth_type = {other}: no equal")),
            ("logfile", path) => {
                let (folder, file) = path.rsplit_once('/').unwrap_or((".", path));
                set(self, "logging_collector", "on".into());
                set(self, "log_directory", quoted(folder));
                set(self, "log_filename", quoted(&file.replace('%', "%%")));
                set(self, "log_rotation_age", "0".into());
                set(self, "log_rotation_size", "0".into());
            }
            ("syslog", value) if flag(value) == "on" => set(self, "log_destination", quoted("stderr,syslog")),
            ("max_prepared_statements", "0") => {
                self.note(line.number, "max_prepared_statements = 0: prepared statements are always followed".into());
            }
            ("max_prepared_statements", count) => set(self, "prepared_statements_max", count.to_string()),
            ("client_tls_sslmode", "disable") => {}
            ("client_tls_sslmode", mode) => {
                set(self, "ssl", "on".into());
                if mode != "allow" && mode != "prefer" {
                    self.note(line.number, format!("client_tls_sslmode = {mode}: hostssl rules of pool_hba.conf demand it"));
                }
            }
            // The words are the same.
            ("server_tls_sslmode", mode) => set(self, "backend_sslmode", mode.into()),
            _ => {}
        }
    }

    fn database(&mut self, line: &ini::Line) {
        let Ok(pairs) = ini::pairs(&line.value) else {
            return self.note(line.number, format!("{}: cannot be read", line.name));
        };
        let get = |name: &str| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let hosts = get("host").unwrap_or("/tmp");
        let ports = get("port").unwrap_or("5432");
        for (at, host) in hosts.split(',').enumerate() {
            let port = ports.split(',').nth(at).or(ports.split(',').next()).unwrap_or("5432");
            let server = (host.trim().to_string(), port.trim().to_string());
            if !self.servers.contains(&server) {
                self.servers.push(server);
            }
        }
        let mut limits = String::new();
        for (name, value) in &pairs {
            match name.as_str() {
                "host" | "port" => {}
                "dbname" if *value == line.name => {}
                "pool_mode" | "pool_size" | "min_pool_size" => push_limit(&mut limits, name, value),
                "reserve_pool" | "reserve_pool_size" => push_limit(&mut limits, "reserve_pool_size", value),
                "max_db_client_connections" => push_limit(&mut limits, "max_client_connections_per_database", value),
                other => {
                    let why = match other {
                        "dbname" => "a database has the same name for clients and on the servers",
                        "user" | "password" => "clients and servers know a user by the same name and password",
                        "auth_user" | "auth_query" | "auth_dbname" => "it is the same for all databases",
                        _ => "there is nothing like it for one database",
                    };
                    self.note(line.number, format!("{}: {other}: no equal: {why}", line.name));
                }
            }
        }
        if !limits.is_empty() && line.name == "*" {
            self.note(line.number, "*: limits of databases without a line of their own: set them for all".to_string());
        } else {
            self.limit("database", line, &limits);
        }
    }

    fn user(&mut self, line: &ini::Line) {
        let Ok(pairs) = ini::pairs(&line.value) else {
            return self.note(line.number, format!("{}: cannot be read", line.name));
        };
        let mut limits = String::new();
        for (name, value) in &pairs {
            match name.as_str() {
                "pool_mode"
                | "pool_size"
                | "reserve_pool_size"
                | "query_timeout"
                | "idle_transaction_timeout"
                | "transaction_timeout" => {
                    let value = if name.ends_with("timeout") { seconds(value) } else { value.clone() };
                    push_limit(&mut limits, name, &value);
                }
                "client_idle_timeout" => push_limit(&mut limits, "client_idle_limit", &whole_seconds(value)),
                "max_user_client_connections" => push_limit(&mut limits, "max_client_connections_per_user", value),
                other => self.note(line.number, format!("{}: {other}: no equal for one user", line.name)),
            }
        }
        self.limit("user", line, &limits);
    }

    fn limit(&mut self, of: &str, line: &ini::Line, limits: &str) {
        if limits.is_empty() {
            return;
        }
        let entry = format!("{of}=\"{}\":{limits}", line.name);
        match read_overrides(&entry) {
            Ok(_) => self.overrides.push(entry),
            Err(error) => self.note(line.number, error.to_string()),
        }
    }

    fn finish(mut self) -> Import {
        for (name, value) in DEFAULTS {
            if !self.given.contains_key(name)
                && let Some((_, Is(ours, form))) = SETTINGS.iter().find(|(known, _)| *known == name)
            {
                self.lines.push((ours.to_string(), form(value)));
            }
        }
        if self.servers.is_empty() {
            self.note(0, "there is no [databases] section that names a server: set backend_hostname0".to_string());
        }
        let mut conf = String::from("# Made from pgbouncer.ini by `weir import`.\n\n");
        for (at, (host, port)) in self.servers.iter().enumerate() {
            let _ = write!(conf, "backend_hostname{at} = {}\nbackend_port{at} = {port}\nbackend_weight{at} = 1\n", quoted(host));
        }
        if self.servers.len() > 1 {
            let text = "databases on several servers: Weir takes all of them for one cluster, a primary and its standbys. \
                        If they are not, run one Weir for each";
            self.note(0, text.to_string());
            conf += "sr_check_user = ''              # who may ask all servers for their role\n";
        } else {
            conf += "backend_clustering_mode = raw\n";
        }
        conf += "load_balance_mode = off         # as with PgBouncer, reads go where writes go; on spreads them over standbys\n";
        conf +=
            "max_server_connections_per_node = 10000   # PgBouncer has no such limit; yours is the servers' max_connections\n\n";
        for (name, value) in &self.lines {
            let _ = writeln!(conf, "{name} = {}", if value.is_empty() { "''" } else { value });
        }
        if !self.overrides.is_empty() {
            let _ = writeln!(conf, "limit_override_list = {}", quoted(&self.overrides.join("; ")));
        }
        self.notes.sort_by_key(|note| note.line);
        Import { conf, auth_file: self.given.get("auth_file").cloned(), notes: self.notes }
    }
}

fn push_limit(limits: &mut String, name: &str, value: &str) {
    let _ = write!(limits, " {name}={value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, params};
    use std::path::Path;

    fn run(text: &str) -> Import {
        import(text.as_bytes(), &mut |name| Err(format!("no file {name}")))
    }

    const SAMPLE: &str = "\
; a comment
[databases]
shop = host=10.0.0.1 port=5433 pool_size=50 pool_mode=transaction
old = host=10.0.0.1 port=5433 dbname=legacy user=app password='s e cret'
* = host=10.0.0.1 port=5433

[users]
joe = pool_mode=session max_user_connections=3 query_timeout=2.5

[pgbouncer]
listen_addr = *
listen_port = 6432
auth_type = scram-sha-256
auth_file = /etc/pgbouncer/userlist.txt
admin_users = boss, chief
pool_mode = transaction
default_pool_size = 25
query_wait_timeout = 10.5
server_round_robin = 1
logfile = /var/log/pgbouncer/pgbouncer.log
ignore_startup_parameters = extra_float_digits
nonsense = 1
";

    #[test]
    fn a_setup_becomes_a_configuration_that_says_the_same() {
        let import = run(SAMPLE);
        assert_eq!(import.auth_file.as_deref(), Some("/etc/pgbouncer/userlist.txt"));
        let outcome = config::read(Path::new("pgpool.conf"), &mut |_| Ok(import.conf.clone().into_bytes()));
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}\n{}", outcome.problems, import.conf));
        assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
        assert_eq!((config.nodes.len(), config.nodes[0].port, config.port), (1, 5433, 6432));
        assert_eq!((config.pool.size, config.pool.max_clients, config.pool.wait_timeout_ms), (25, 100, 11_000));
        assert_eq!(config.admin.users, ["boss", "chief"]);
        assert!(config.log.file.is_used && !config.routing.load_balance);
        let of = |user: &str, database: &str| crate::limits::of(&config, user, database);
        assert_eq!((of("ann", "shop").pool_size, of("joe", "x").query_ms), (50, 2500));
        assert_eq!(of("joe", "x").mode, config::PoolMode::Session);
    }

    #[test]
    fn what_has_no_equal_is_named_with_its_line() {
        let notes: Vec<String> = run(SAMPLE).notes.iter().map(|note| format!("{}: {}", note.line, note.text)).collect();
        let expected = [
            "4: old: dbname: no equal: a database has the same name for clients and on the servers",
            "4: old: user: no equal: clients and servers know a user by the same name and password",
            "4: old: password: no equal: clients and servers know a user by the same name and password",
            "8: joe: max_user_connections: no equal for one user",
            "19: server_round_robin: no equal: the connection used last is used first",
            "21: ignore_startup_parameters: not needed: every startup parameter is passed on to the servers",
            "22: nonsense: is no setting of PgBouncer 1.25",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn an_empty_file_means_what_pgbouncer_does_by_default() {
        let import = run("[databases]\na = host=h\n[pgbouncer]\nlisten_addr = 127.0.0.1\n");
        let outcome = config::read(Path::new("pgpool.conf"), &mut |_| Ok(import.conf.clone().into_bytes()));
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}\n{}", outcome.problems, import.conf));
        assert_eq!((config.pool.mode, config.pool.size, config.port), (config::PoolMode::Session, 20, 6432));
        assert_eq!(config.pool.connection_life_time_ms, 3_600_000);
        assert_eq!(import.notes, []);
    }

    #[test]
    fn every_parameter_named_here_is_one() {
        for (theirs, fate) in SETTINGS {
            if let Is(ours, _) = fate {
                assert!(params::find(ours).is_some(), "{theirs} -> {ours}");
            }
        }
        assert!(SETTINGS.is_sorted_by_key(|(name, _)| *name), "in order, so that a missing one is seen");
    }
}
