//! Weir's equal of each setting of `[pgbouncer]`.

use weir_config::Config;

pub(super) enum SettingTranslation {
    /// The parameter, and the conversion of the value.
    Is(&'static str, fn(&str) -> String),
    /// Done anyway, or without a meaning.
    Needless(&'static str),
    Missing(&'static str),
    /// Depends on its value (`by_value`) or on other settings.
    Known,
}

use SettingTranslation::{Is, Known, Missing, Needless};

fn same(value: &str) -> String {
    value.to_string()
}

/// Formats seconds, with fractions.
pub(super) fn seconds(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(seconds) if seconds.fract() == 0.0 => format!("{seconds}s"),
        Ok(seconds) => format!("{}ms", (seconds * 1000.0).round()),
        Err(_) => value.to_string(),
    }
}

pub(super) fn whole_seconds(value: &str) -> String {
    value.parse::<f64>().map_or_else(|_| value.to_string(), |seconds| format!("{}", seconds.ceil()))
}

fn list(value: &str) -> String {
    quoted(value)
}

pub(super) fn flag(value: &str) -> String {
    if matches!(value, "0" | "off" | "no" | "false") { "off" } else { "on" }.to_string()
}

fn reset(value: &str) -> String {
    quoted(&format!("ABORT; {value}"))
}

/// Translates the word for an empty query. Source: PgBouncer's manual, `server_check_query`.
fn check(value: &str) -> String {
    quoted(if value == "<empty>" { ";" } else { value })
}

fn facility(value: &str) -> String {
    value.to_ascii_uppercase()
}

pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// Values that name no cipher. Source: PgBouncer's manual, `client_tls_ciphers`.
const CIPHER_WORDS: [&str; 8] = ["", "default", "secure", "fast", "normal", "legacy", "compat", "all"];

fn ciphers(value: &str) -> String {
    quoted(if CIPHER_WORDS.contains(&value) { "HIGH:MEDIUM:+3DES:!aNULL" } else { value })
}

/// Every setting of `[pgbouncer]` in PgBouncer 1.25.
#[rustfmt::skip] // one line a row keeps the table readable as one
pub(super) const SETTINGS: &[(&str, SettingTranslation)] = &[
    ("admin_users", Is("admin_users", list)),
    ("application_name_add_host", Missing("application_name is passed on as the client sends it")),
    ("auth_dbname", Is("auth_dbname", quoted)),
    ("auth_file", Known),
    ("auth_hba_file", Known),
    ("auth_ident_file", Is("ident_file", quoted)),
    ("auth_ldap_options", Known),
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
    ("client_tls_ciphers", Is("ssl_ciphers", ciphers)),
    ("client_tls_dheparams", Needless("there are no ciphers that would use them")),
    ("client_tls_ecdhcurve", Known),
    ("client_tls_key_file", Is("ssl_key", quoted)),
    ("client_tls_protocols", Known),
    ("client_tls_sslmode", Known),
    ("conffile", Needless("the console reads the file the proxy was started with")),
    ("default_pool_size", Is("pool_size", same)),
    ("disable_pqexec", Missing("several statements in one query cannot be forbidden")),
    ("dns_max_ttl", Needless("names are asked for each new server connection")),
    ("dns_nxdomain_ttl", Needless("names are asked for each new server connection")),
    ("dns_zone_check_period", Needless("names are asked for each new server connection")),
    ("idle_transaction_timeout", Is("idle_transaction_timeout", seconds)),
    ("ignore_startup_parameters", Is("ignore_startup_parameters", list)),
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
    ("max_db_connections", Is("max_db_connections", same)),
    ("max_packet_size", Needless("messages of any length pass in parts")),
    ("max_prepared_statements", Known),
    ("max_user_client_connections", Is("max_client_connections_per_user", same)),
    ("max_user_connections", Is("max_user_connections", same)),
    ("min_pool_size", Is("min_pool_size", same)),
    ("peer_id", Needless("a cancel request goes to all of peer_list")),
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
    ("server_check_delay", Is("server_check_delay", seconds)),
    ("server_check_query", Is("server_check_query", check)),
    ("server_connect_timeout", Is("connect_timeout", seconds)),
    ("server_fast_close", Is("server_fast_close", flag)),
    ("server_idle_timeout", Is("server_idle_timeout", whole_seconds)),
    ("server_lifetime", Known),
    ("server_login_retry", Needless("a server that refused is asked again when a client needs it")),
    ("server_reset_query", Is("reset_query_list", reset)),
    ("server_reset_query_always", Needless("what a session leaves on a server connection is followed; reset_query_always cleans it each time nevertheless")),
    ("server_round_robin", Missing("the connection used last is used first")),
    ("server_tls13_ciphers", Missing("ciphers of TLS 1.3 cannot be chosen")),
    ("server_tls_ca_file", Is("backend_sslrootcert", quoted)),
    ("server_tls_cert_file", Is("backend_sslcert", quoted)),
    ("server_tls_ciphers", Missing("ciphers towards servers cannot be chosen")),
    ("server_tls_key_file", Is("backend_sslkey", quoted)),
    ("server_tls_protocols", Known),
    ("server_tls_sslmode", Known),
    ("service_name", Needless("it names a Windows service")),
    ("so_reuseport", Is("reuse_port", flag)),
    ("stats_period", Is("stats_period", same)),
    ("stats_users", Is("stats_users", list)),
    ("suspend_timeout", Needless("there is no SUSPEND")),
    ("syslog", Known),
    ("syslog_facility", Is("syslog_facility", facility)),
    ("syslog_ident", Is("syslog_ident", quoted)),
    ("tcp_defer_accept", Needless("clients that say nothing cost little")),
    ("tcp_keepalive", Is("tcp_keepalive", flag)),
    ("tcp_keepcnt", Is("tcp_keepcnt", same)),
    ("tcp_keepidle", Is("tcp_keepidle", whole_seconds)),
    ("tcp_keepintvl", Is("tcp_keepintvl", whole_seconds)),
    ("tcp_socket_buffer", Missing("the system's values are used")),
    ("tcp_user_timeout", Is("tcp_user_timeout", same)),
    ("track_extra_parameters", Needless("all parameters of a session are followed")),
    ("transaction_timeout", Is("transaction_timeout", seconds)),
    ("unix_socket_dir", Is("unix_socket_directories", list)),
    ("unix_socket_group", Is("unix_socket_group", quoted)),
    ("unix_socket_mode", Is("unix_socket_permissions", same)),
    ("user", Missing("start it as the user it is to run as")),
    ("verbose", Missing("use log_min_messages")),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingMeaning {
    /// Parameters with values as in the file, and a note on differences; empty: always so.
    Sets(Vec<(&'static str, String)>, Option<String>),
    Nothing(String),
}

/// Translates a setting while the proxy runs; `None`: unknown to PgBouncer.
pub fn meaning_of(name: &str, value: &str, config: &Config) -> Option<SettingMeaning> {
    Some(match SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, fate)| fate)? {
        Is(ours, form) => SettingMeaning::Sets(vec![(ours, form(value))], None),
        Needless(why) | Missing(why) => SettingMeaning::Nothing((*why).to_string()),
        Known => while_running(name, value, config).or_else(|| by_value(name, value))?,
    })
}

/// PgBouncer's system authorities on Debian.
pub(super) const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Translates a setting by its value; `None`: other settings decide too.
pub(super) fn by_value(name: &str, value: &str) -> Option<SettingMeaning> {
    let set = |name, value: &str| SettingMeaning::Sets(vec![(name, value.to_string())], None);
    let nothing = |why: &str| SettingMeaning::Nothing(why.to_string());
    Some(match (name, value) {
        ("logfile", "") => SettingMeaning::Sets(Vec::new(), None),
        ("logfile", path) => SettingMeaning::Sets(
            [("logging_collector", "on".to_string())]
                .into_iter()
                .chain(log_file(path))
                .chain([("log_rotation_age", "0".to_string()), ("log_rotation_size", "0".to_string())])
                .collect(),
            None,
        ),
        ("syslog", value) => set("log_destination", if flag(value) == "on" { "'stderr,syslog'" } else { "stderr" }),
        ("max_prepared_statements", "0") => nothing("prepared statements are always followed"),
        ("max_prepared_statements", count) => set("prepared_statements_max", count),
        ("client_tls_ecdhcurve", "" | "auto") => SettingMeaning::Sets(Vec::new(), None),
        ("client_tls_ecdhcurve", "none") => nothing("all key exchanges are by curves"),
        ("client_tls_ecdhcurve", curve) => set("ssl_ecdh_curve", &quoted(curve)),
        ("server_lifetime", value) if whole_seconds(value) == "0" => SettingMeaning::Sets(
            vec![("connection_life_time", "1".to_string())],
            // Weir's 0 keeps a connection for ever.
            Some("a server connection is closed when it is a second old, not after one use".to_string()),
        ),
        ("server_lifetime", value) => set("connection_life_time", &whole_seconds(value)),
        ("client_tls_protocols" | "server_tls_protocols", value) => protocols(name, &value.to_ascii_lowercase()),
        _ => return None,
    })
}

fn log_file(path: &str) -> [(&'static str, String); 2] {
    let (folder, file) = path.rsplit_once('/').unwrap_or((".", path));
    [("log_directory", quoted(folder)), ("log_filename", quoted(&file.replace('%', "%%")))]
}

/// Weir has one lowest version for both sides.
fn protocols(name: &str, value: &str) -> SettingMeaning {
    let has = |version: &str| value.contains(version);
    let lowest = |version: &str| vec![("ssl_min_protocol_version", version.to_string())];
    let is_old = value == "all" || has("tlsv1.0") || has("tlsv1.1");
    match (name, has("tlsv1.2"), has("tlsv1.3")) {
        ("client_tls_protocols", false, true) => SettingMeaning::Sets(
            lowest("TLSv1.3"),
            Some("ssl_min_protocol_version is that of connections to servers, too".to_string()),
        ),
        (_, false, true) => SettingMeaning::Nothing("set ssl_min_protocol_version, if clients can have TLSv1.3, too".to_string()),
        (_, true, false) => SettingMeaning::Nothing("TLSv1.3 cannot be turned off".to_string()),
        _ if is_old => SettingMeaning::Nothing("versions older than TLSv1.2 are never spoken".to_string()),
        ("client_tls_protocols", ..) => SettingMeaning::Sets(lowest("TLSv1.2"), None),
        _ => SettingMeaning::Sets(Vec::new(), None),
    }
}

/// Translates a setting that differs while running from a file.
fn while_running(name: &str, value: &str, config: &Config) -> Option<SettingMeaning> {
    let nothing = |why: &str| SettingMeaning::Nothing(why.to_string());
    Some(match name {
        "auth_type" if !config.auth.use_hba => nothing("enable_pool_hba is off, so that no rule asks for a method"),
        "auth_type" if matches!(value, "any" | "ldap") => {
            nothing("rules of pool_hba.conf say that, and RELOAD reads them; weir import makes them of auth_type")
        }
        "auth_type" => SettingMeaning::Sets(vec![("auth_type", value.to_string())], None),
        "auth_hba_file" | "auth_ldap_options" => nothing("pool_hba.conf says how users prove who they are, and RELOAD reads it"),
        "auth_file" => {
            nothing("users and passwords are those of pool_passwd, which RELOAD reads; weir import makes it of auth_file")
        }
        "logfile" if value.is_empty() || !config.log.file.is_used => {
            nothing("logging_collector, which says if there is a log file, needs a restart")
        }
        "logfile" => SettingMeaning::Sets(log_file(value).into(), None),
        "client_tls_sslmode" => {
            let demand = config.auth.use_hba.then(|| ("client_sslmode", value.to_string()));
            let rest = "enable_pool_hba is off, so that no client must use TLS, or show a certificate";
            let is_offer = matches!(value, "disable" | "allow" | "prefer");
            let note = (demand.is_none() && !is_offer).then(|| rest.to_string());
            SettingMeaning::Sets([("ssl", flag_of_tls(value))].into_iter().chain(demand).collect(), note)
        }
        // As in a file: PgBouncer checks certificates in these modes only.
        "server_tls_sslmode" if matches!(value, "verify-ca" | "verify-full") => {
            let is_checked = config.setting("backend_sslrootcert", None).is_some_and(|setting| setting.raw != "none");
            let mut sets = vec![("backend_sslmode", value.to_string())];
            if !is_checked {
                sets.push(("backend_sslrootcert", quoted(SYSTEM_AUTHORITIES)));
            }
            let note = format!("servers' certificates are checked by {SYSTEM_AUTHORITIES}: set server_tls_ca_file for others");
            SettingMeaning::Sets(sets, (!is_checked).then_some(note))
        }
        "server_tls_sslmode" => {
            SettingMeaning::Sets(vec![("backend_sslmode", value.to_string()), ("backend_sslrootcert", quoted("none"))], None)
        }
        _ => return None,
    })
}

fn flag_of_tls(mode: &str) -> String {
    if mode == "disable" { "off" } else { "on" }.to_string()
}

pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name)
}

/// Returns the settings with an equal parameter.
pub fn equals() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().filter_map(|(theirs, fate)| if let Is(ours, _) = fate { Some((*theirs, *ours)) } else { None })
}

/// PgBouncer's defaults that differ from Weir's.
pub(super) const DEFAULTS: [(&str, &str); 12] = [
    ("listen_addr", ""),
    ("listen_port", "6432"),
    ("pool_mode", "session"),
    ("max_client_conn", "100"),
    ("default_pool_size", "20"),
    ("server_connect_timeout", "15"),
    ("server_lifetime", "3600"),
    ("server_reset_query", "DISCARD ALL"),
    ("server_check_query", "<empty>"),
    ("pidfile", ""),
    ("log_connections", "1"),
    ("log_disconnections", "1"),
];
