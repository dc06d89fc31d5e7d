//! The language of the administration console, PgBouncer's: one command per message.

use weir_config::Config;
use weir_config::params::{ConfigParam, ParamKind};
use weir_import::SettingMeaning;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleCommand {
    /// In lower case.
    Show(String),
    Set {
        name: String,
        value: String,
    },
    Reload,
    /// `None`: all databases.
    Pause(Option<String>),
    Resume(Option<String>),
    Disable(String),
    Enable(String),
    Reconnect(Option<String>),
    Kill(Option<String>),
    KillClient(u32),
    /// Cancels the statement that a client runs.
    CancelClient(u32),
    WaitClose(Option<String>),
    /// All sessions stop between two statements.
    Suspend,
    Shutdown(ShutdownMode),
    Attach(u16),
    Detach(u16),
    /// Names the primary.
    Promote(u16),
    SwitchOver(u16),
    /// Restarts a standby's server; `UpgradeWalk`: all, one by one.
    Restart(u16),
    UpgradeWalk,
    /// Begins the statistics of statements anew.
    ResetStatements,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    Now,
    /// After all server connections have come back.
    WaitForServers,
    /// After the last client has left.
    WaitForClients,
}

/// An administrator's mistake (42601).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("invalid command \"{0}\", use SHOW HELP")]
    Unknown(String),
    #[error("{0} needs the name of a database")]
    NoDatabase(&'static str),
    #[error("\"{0}\" is not the id of a client, see SHOW CLIENTS")]
    BadClient(String),
    #[error("{0} needs the number of a node, see SHOW POOL_NODES")]
    NoNode(&'static str),
}

const SHOWN_CHARS: usize = 80;

impl ConsoleCommand {
    pub fn parse(text: &str) -> Result<ConsoleCommand, CommandError> {
        let unknown = || CommandError::Unknown(text.trim().chars().take(SHOWN_CHARS).collect());
        let words = words(text).ok_or_else(unknown)?;
        let plain: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((verb, rest)) = plain.split_first() else { return Err(unknown()) };
        let verb = verb.to_ascii_lowercase();
        if verb == "set" {
            return match rest {
                [name, sign, value] if *sign == "=" || sign.eq_ignore_ascii_case("to") => {
                    Ok(ConsoleCommand::Set { name: name.to_ascii_lowercase(), value: value.to_string() })
                }
                _ => Err(unknown()),
            };
        }
        let ([] | [_]) = rest else { return Err(unknown()) };
        let argument = rest.first().map(|word| word.to_string());
        let node = |verb| argument.as_ref().and_then(|id| id.parse().ok()).ok_or(CommandError::NoNode(verb));
        let client = || {
            let id = argument.clone().unwrap_or_default();
            id.parse().map_err(|_| CommandError::BadClient(id))
        };
        let needed = |verb| argument.clone().ok_or(CommandError::NoDatabase(verb));
        match (verb.as_str(), &argument) {
            ("show", Some(name)) => Ok(ConsoleCommand::Show(name.to_ascii_lowercase())),
            ("reload", None) => Ok(ConsoleCommand::Reload),
            ("pause", _) => Ok(ConsoleCommand::Pause(argument)),
            ("resume", _) => Ok(ConsoleCommand::Resume(argument)),
            ("disable", _) => needed("DISABLE").map(ConsoleCommand::Disable),
            ("enable", _) => needed("ENABLE").map(ConsoleCommand::Enable),
            ("reconnect", _) => Ok(ConsoleCommand::Reconnect(argument)),
            ("kill", _) => Ok(ConsoleCommand::Kill(argument)),
            ("kill_client", _) => client().map(ConsoleCommand::KillClient),
            ("cancel_client", _) => client().map(ConsoleCommand::CancelClient),
            ("attach", _) => node("ATTACH").map(ConsoleCommand::Attach),
            ("detach", _) => node("DETACH").map(ConsoleCommand::Detach),
            ("promote", _) => node("PROMOTE").map(ConsoleCommand::Promote),
            ("switchover", _) => node("SWITCHOVER").map(ConsoleCommand::SwitchOver),
            ("restart", _) => node("RESTART").map(ConsoleCommand::Restart),
            ("upgrade_walk", None) => Ok(ConsoleCommand::UpgradeWalk),
            ("reset_statements", None) => Ok(ConsoleCommand::ResetStatements),
            ("wait_close", _) => Ok(ConsoleCommand::WaitClose(argument)),
            ("suspend", None) => Ok(ConsoleCommand::Suspend),
            ("shutdown", None) => Ok(ConsoleCommand::Shutdown(ShutdownMode::Now)),
            ("shutdown", Some(how)) if how.eq_ignore_ascii_case("wait_for_servers") => {
                Ok(ConsoleCommand::Shutdown(ShutdownMode::WaitForServers))
            }
            ("shutdown", Some(how)) if how.eq_ignore_ascii_case("wait_for_clients") => {
                Ok(ConsoleCommand::Shutdown(ShutdownMode::WaitForClients))
            }
            _ => Err(unknown()),
        }
    }

    /// Returns the command for the log, without values: one may be a password.
    pub fn without_values(&self) -> String {
        let of = |verb: &str, database: &Option<String>| match database {
            Some(name) => format!("{verb} {name}"),
            None => verb.to_owned(),
        };
        match self {
            ConsoleCommand::Show(name) => format!("SHOW {name}"),
            ConsoleCommand::Set { name, .. } => format!("SET {name}"),
            ConsoleCommand::Reload => "RELOAD".into(),
            ConsoleCommand::Pause(database) => of("PAUSE", database),
            ConsoleCommand::Resume(database) => of("RESUME", database),
            ConsoleCommand::Disable(database) => format!("DISABLE {database}"),
            ConsoleCommand::Enable(database) => format!("ENABLE {database}"),
            ConsoleCommand::Reconnect(database) => of("RECONNECT", database),
            ConsoleCommand::Kill(database) => of("KILL", database),
            ConsoleCommand::KillClient(pid) => format!("KILL_CLIENT {pid}"),
            ConsoleCommand::CancelClient(pid) => format!("CANCEL_CLIENT {pid}"),
            ConsoleCommand::WaitClose(database) => of("WAIT_CLOSE", database),
            ConsoleCommand::Suspend => "SUSPEND".into(),
            ConsoleCommand::Shutdown(ShutdownMode::Now) => "SHUTDOWN".into(),
            ConsoleCommand::Shutdown(ShutdownMode::WaitForServers) => "SHUTDOWN WAIT_FOR_SERVERS".into(),
            ConsoleCommand::Shutdown(ShutdownMode::WaitForClients) => "SHUTDOWN WAIT_FOR_CLIENTS".into(),
            ConsoleCommand::Attach(node) => format!("ATTACH {node}"),
            ConsoleCommand::Detach(node) => format!("DETACH {node}"),
            ConsoleCommand::Promote(node) => format!("PROMOTE {node}"),
            ConsoleCommand::SwitchOver(node) => format!("SWITCHOVER {node}"),
            ConsoleCommand::Restart(node) => format!("RESTART {node}"),
            ConsoleCommand::UpgradeWalk => "UPGRADE_WALK".into(),
            ConsoleCommand::ResetStatements => "RESET_STATEMENTS".into(),
        }
    }

    pub fn is_show(&self) -> bool {
        matches!(self, ConsoleCommand::Show(_))
    }
}

/// Splits at blanks and around `=`; quotes keep their contents together. `None`: an open quote, or text after a semicolon.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            ';' => {
                chars.next();
                return chars.all(|c| c.is_whitespace() || c == ';' || c == '\0').then_some(words);
            }
            '=' => {
                chars.next();
                words.push("=".to_string());
            }
            '\'' | '"' => {
                chars.next();
                words.push(quoted(&mut chars, c)?);
            }
            _ if c.is_whitespace() => {
                chars.next();
            }
            _ => {
                let mut word = String::new();
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !matches!(c, ';' | '=' | '\'' | '"')) {
                    word.push(c);
                }
                words.push(word);
            }
        }
    }
    Some(words)
}

/// Reads up to the closing quote; a doubled quote counts as one character.
fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, quote: char) -> Option<String> {
    let mut text = String::new();
    loop {
        let c = chars.next()?;
        if c != quote {
            text.push(c);
        } else if chars.next_if_eq(&quote).is_some() {
            text.push(quote);
        } else {
            return Some(text);
        }
    }
}

/// Beside those of [`weir_import::meaning_of`].
const MORE_SETTINGS: [(&str, &str); 5] = [
    ("client_tls_ecdhcurve", "ssl_ecdh_curve"),
    ("max_prepared_statements", "prepared_statements_max"),
    ("pkt_buf", "memory_buffer_size"),
    ("server_lifetime", "connection_life_time"),
    ("server_tls_sslmode", "backend_sslmode"),
];

pub fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    weir_import::equals().chain(MORE_SETTINGS)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetRequest {
    /// With values as in `pgpool.conf`, and the part of the setting without an equivalent.
    Parameters(Vec<(&'static str, String)>, Option<String>),
    Own,
    /// A setting without effect here, with the reason.
    Nothing(String),
}

/// Reads a setting in PgBouncer's units: a plain time is in seconds. A value with a unit is Weir's.
pub fn set_request(name: &str, value: &str, config: &Config) -> SetRequest {
    if name == "pkt_buf" {
        return SetRequest::Parameters(vec![("memory_buffer_size", value.to_string())], None);
    }
    match weir_import::meaning_of(name, value, config) {
        Some(SettingMeaning::Sets(parameters, None)) if parameters.is_empty() => {
            SetRequest::Nothing("it is so already".to_string())
        }
        Some(SettingMeaning::Sets(parameters, note)) => {
            SetRequest::Parameters(parameters.into_iter().map(|(ours, value)| (ours, bare(&value))).collect(), note)
        }
        Some(SettingMeaning::Nothing(why)) => SetRequest::Nothing(why),
        None => SetRequest::Own,
    }
}

fn bare(text: &str) -> String {
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'").replace("\\\\", "\\"),
        None => text.to_string(),
    }
}

/// Formats a value as PgBouncer does: times in seconds.
pub fn shown(param: &ConfigParam, raw: &str) -> String {
    let is_time = matches!(param.kind, ParamKind::Millis { .. } | ParamKind::Seconds { .. } | ParamKind::Minutes { .. });
    match param.kind.parse(param.name, raw) {
        Ok(value) if is_time && value.int() % 1000 == 0 => (value.int() / 1000).to_string(),
        Ok(value) if is_time => format!("{}", value.int() as f64 / 1000.0),
        Ok(_) | Err(_) => param.kind.show(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_commands_as_they_are_typed_without_values() {
        for text in [
            "RELOAD",
            "PAUSE",
            "PAUSE shop",
            "RESUME",
            "DISABLE shop",
            "ENABLE shop",
            "RECONNECT shop",
            "KILL",
            "KILL_CLIENT 7",
            "CANCEL_CLIENT 7",
            "WAIT_CLOSE",
            "SUSPEND",
            "SHUTDOWN",
            "SHUTDOWN WAIT_FOR_SERVERS",
            "SHUTDOWN WAIT_FOR_CLIENTS",
            "ATTACH 0",
            "DETACH 1",
            "PROMOTE 2",
            "SWITCHOVER 2",
            "RESTART 1",
            "UPGRADE_WALK",
            "SHOW pools",
        ] {
            assert_eq!(ConsoleCommand::parse(text).map(|command| command.without_values()).as_deref(), Ok(text));
        }
        assert_eq!(ConsoleCommand::parse("set sr_check_password = 'x'").unwrap().without_values(), "SET sr_check_password");
    }

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        let database = || Some("My db".to_string());
        for (text, expected) in [
            ("SHOW pools", ConsoleCommand::Show("pools".into())),
            (" show  STATS_TOTALS ; ", ConsoleCommand::Show("stats_totals".into())),
            ("PAUSE", ConsoleCommand::Pause(None)),
            ("pause \"My db\";", ConsoleCommand::Pause(database())),
            ("RESUME shop", ConsoleCommand::Resume(Some("shop".into()))),
            ("KILL 'My db'", ConsoleCommand::Kill(database())),
            ("kill", ConsoleCommand::Kill(None)),
            ("KILL_CLIENT 1048577", ConsoleCommand::KillClient(1_048_577)),
            ("cancel_client 7;", ConsoleCommand::CancelClient(7)),
            ("DISABLE a-b.c", ConsoleCommand::Disable("a-b.c".into())),
            ("SHUTDOWN wait_for_clients", ConsoleCommand::Shutdown(ShutdownMode::WaitForClients)),
            ("shutdown", ConsoleCommand::Shutdown(ShutdownMode::Now)),
            ("ATTACH 1", ConsoleCommand::Attach(1)),
            ("detach 0;", ConsoleCommand::Detach(0)),
            ("Promote 2", ConsoleCommand::Promote(2)),
            ("SWITCHOVER 2", ConsoleCommand::SwitchOver(2)),
            ("restart 1", ConsoleCommand::Restart(1)),
            ("upgrade_walk", ConsoleCommand::UpgradeWalk),
            ("Reset_Statements;", ConsoleCommand::ResetStatements),
            ("suspend;", ConsoleCommand::Suspend),
            ("SET Query_Timeout=5", ConsoleCommand::Set { name: "query_timeout".into(), value: "5".into() }),
            ("set a to 'b''c; d'", ConsoleCommand::Set { name: "a".into(), value: "b'c; d".into() }),
            ("RECONNECT;;", ConsoleCommand::Reconnect(None)),
        ] {
            assert_eq!(ConsoleCommand::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_command_is_named() {
        for (text, expected) in [
            ("", "invalid command \"\", use SHOW HELP"),
            (";", "invalid command \";\", use SHOW HELP"),
            ("SELECT 1", "invalid command \"SELECT 1\", use SHOW HELP"),
            ("SHOW a b", "invalid command \"SHOW a b\", use SHOW HELP"),
            ("SHOW HELP; SHOW VERSION", "invalid command \"SHOW HELP; SHOW VERSION\", use SHOW HELP"),
            ("PAUSE \"a", "invalid command \"PAUSE \"a\", use SHOW HELP"),
            ("SET a b", "invalid command \"SET a b\", use SHOW HELP"),
            ("SHUTDOWN soon", "invalid command \"SHUTDOWN soon\", use SHOW HELP"),
            ("RELOAD x", "invalid command \"RELOAD x\", use SHOW HELP"),
            ("DISABLE", "DISABLE needs the name of a database"),
            ("ATTACH", "ATTACH needs the number of a node, see SHOW POOL_NODES"),
            ("DETACH x", "DETACH needs the number of a node, see SHOW POOL_NODES"),
            ("KILL_CLIENT x", "\"x\" is not the id of a client, see SHOW CLIENTS"),
            ("SUSPEND shop", "invalid command \"SUSPEND shop\", use SHOW HELP"),
        ] {
            assert_eq!(ConsoleCommand::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn every_name_of_pgbouncers_stands_for_a_parameter() {
        for (theirs, ours) in settings() {
            assert!(weir_config::params::find(ours).is_some(), "{theirs} -> {ours}");
        }
    }

    #[test]
    fn a_value_is_read_and_shown_in_pgbouncers_units() {
        let is = |name, value: &str| SetRequest::Parameters(vec![(name, value.to_string())], None);
        let set_request = |name: &str, value: &str| set_request(name, value, &Config::default());
        for (name, value, expected) in [
            ("query_timeout", "30", is("query_timeout", "30s")),
            ("query_timeout", "0.5", is("query_timeout", "500ms")),
            ("query_timeout", "2min", is("query_timeout", "2min")),
            ("max_client_conn", "7", is("max_client_connections", "7")),
            ("listen_addr", "a,b", is("listen_addresses", "a,b")),
            ("server_reset_query", "SELECT 'x'", is("reset_query_list", "ABORT; SELECT 'x'")),
            ("connection_life_time", "7", SetRequest::Own),
            ("server_lifetime", "7", is("connection_life_time", "7")),
            ("syslog", "1", is("log_destination", "stderr,syslog")),
            ("client_tls_sslmode", "allow", is("ssl", "on")),
            ("client_tls_sslmode", "disable", is("ssl", "off")),
            ("client_tls_protocols", "secure", is("ssl_min_protocol_version", "TLSv1.2")),
            ("client_tls_ecdhcurve", "secp384r1", is("ssl_ecdh_curve", "secp384r1")),
            ("max_prepared_statements", "5", is("prepared_statements_max", "5")),
        ] {
            assert_eq!(set_request(name, value), expected, "{name} = {value}");
        }
        let partly = |name: &str, value: &str| match set_request(name, value) {
            SetRequest::Parameters(parameters, Some(note)) => (parameters, note),
            other => panic!("{name} = {value}: {other:?}"),
        };
        let (parameters, note) = partly("client_tls_sslmode", "verify-full");
        assert!(parameters == [("ssl", "on".to_string())] && note.contains("enable_pool_hba"), "{parameters:?} {note}");
        let conf = b"backend_hostname0 = 'a'\nenable_pool_hba = on\n";
        let with_rules = weir_config::read(std::path::Path::new("c"), &mut |_| Ok(conf.to_vec())).config.expect("it is one");
        let set_with_rules = |name, value| super::set_request(name, value, &with_rules);
        let both = |ssl: &str, mode: &str| vec![("ssl", ssl.to_string()), ("client_sslmode", mode.to_string())];
        for (mode, ssl) in [("verify-full", "on"), ("require", "on"), ("prefer", "on"), ("disable", "off")] {
            assert_eq!(set_with_rules("client_tls_sslmode", mode), SetRequest::Parameters(both(ssl, mode), None));
        }
        assert_eq!(set_with_rules("auth_type", "trust"), is("auth_type", "trust"));
        assert!(matches!(set_with_rules("auth_type", "any"), SetRequest::Nothing(why) if why.contains("pool_hba.conf")));
        // For ever is what 0 would mean here.
        assert_eq!(partly("server_lifetime", "0").0, [("connection_life_time", "1".to_string())]);
        // An imported setup checks no certificates before.
        let conf = b"backend_hostname0 = 'a'\nbackend_sslrootcert = 'none'\n";
        let unchecked = weir_config::read(std::path::Path::new("c"), &mut |_| Ok(conf.to_vec())).config.expect("it is one");
        let names = |request: SetRequest| match request {
            SetRequest::Parameters(parameters, note) => (parameters.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), note),
            other => panic!("{other:?}"),
        };
        let (parameters, note) = names(super::set_request("server_tls_sslmode", "verify-full", &unchecked));
        assert_eq!(parameters, ["backend_sslmode", "backend_sslrootcert"]);
        assert!(note.is_some_and(|note| note.contains("server_tls_ca_file")));
        assert_eq!(names(set_request("server_tls_sslmode", "verify-full")), (vec!["backend_sslmode"], None));
        for (name, value, expected) in [
            ("server_round_robin", "1", "used last"),
            ("auth_type", "trust", "enable_pool_hba"),
            ("auth_file", "x", "pool_passwd"),
            ("auth_hba_file", "x", "pool_hba.conf"),
            ("auth_ldap_options", "x", "pool_hba.conf"),
            ("logfile", "/x/y", "restart"),
            ("server_tls_protocols", "tlsv1.2", "TLSv1.3 cannot"),
            ("server_tls_protocols", "secure", "already"),
            ("max_prepared_statements", "0", "always"),
        ] {
            let request = set_request(name, value);
            assert!(matches!(&request, SetRequest::Nothing(why) if why.contains(expected)), "{name} = {value}: {request:?}");
        }
    }

    #[test]
    fn no_setting_of_pgbouncers_is_unknown_to_set() {
        for name in weir_import::names() {
            assert_ne!(set_request(name, "1", &Config::default()), SetRequest::Own, "{name}");
        }
    }

    #[test]
    fn values_are_shown_in_pgbouncers_units() {
        let shown = |name: &str, raw: &str| shown(weir_config::params::find(name).expect("a parameter"), raw);
        assert_eq!([shown("query_timeout", "1min"), shown("query_timeout", "1500ms")], ["60", "1.5"]);
        assert_eq!([shown("pool_wait_timeout", "2min"), shown("pool_size", "7")], ["120", "7"]);
    }
}
