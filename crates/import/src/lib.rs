//! `pgbouncer.ini` as a `pgpool.conf`: the same setup, with a reason for each line without an equal.
//!
//! In: files' bytes. Out: texts of `pgpool.conf`, `pool_hba.conf` and `pool_passwd`, and notes. No IO.

use crate::imported_databases::{ImportedDatabase, ImportedTopology};
use crate::imported_settings::{
    DEFAULTS, SETTINGS, SYSTEM_AUTHORITIES, SettingTranslation, by_value, quoted, seconds, whole_seconds,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_config::databases::OTHERS;
use weir_config::limits::read_overrides;

mod imported_access;
mod imported_databases;
mod imported_settings;
mod ini;
mod users;

pub use crate::imported_settings::{SettingMeaning, equals, meaning_of, names};
pub use users::read_users;

/// A line without an equal, or to review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNote {
    /// From 1; 0: the whole file.
    pub line: u32,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedSetup {
    pub conf: String,
    pub rules: String,
    /// `database_file`, if needed. May hold passwords.
    pub databases: Option<String>,
    /// Users for `pool_passwd`.
    pub auth_file: Option<String>,
    pub notes: Vec<ImportNote>,
}

/// Reads another file of the setup.
pub type Load<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

pub fn import(bytes: &[u8], load: &mut Load<'_>) -> ImportedSetup {
    let mut work = ImportBuilder::default();
    let (lines, notes) = ini::read(bytes, load);
    work.notes = notes;
    for line in &lines {
        match line.section.as_str() {
            "pgbouncer" => work.setting(line),
            "databases" => work.database(line),
            "users" => work.user(line),
            "peers" => work.peer(line),
            other => work.note(line.number, format!("section [{other}] is not known")),
        }
    }
    work.finish(load)
}

#[derive(Default)]
struct ImportBuilder {
    /// By PgBouncer's names, with lines.
    given: BTreeMap<String, (String, u32)>,
    entries: Vec<ImportedDatabase>,
    overrides: Vec<String>,
    peers: Vec<String>,
    notes: Vec<ImportNote>,
    /// By Weir's names.
    lines: Vec<(String, String)>,
}

impl ImportBuilder {
    fn note(&mut self, line: u32, text: String) {
        self.notes.push(ImportNote { line, text });
    }

    /// The last value counts, as in PgBouncer.
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.lines.retain(|(known, _)| known != name);
        self.lines.push((name.to_string(), value.into()));
    }

    fn value(&self, name: &str) -> &str {
        self.given.get(name).map_or("", |(value, _)| value)
    }

    fn line_of(&self, name: &str) -> u32 {
        self.given.get(name).map_or(0, |(_, line)| *line)
    }

    fn setting(&mut self, line: &ini::IniLine) {
        let (name, value) = (line.name.as_str(), line.value.as_str());
        if value == "<system default>" {
            return;
        }
        self.given.insert(line.name.clone(), (line.value.clone(), line.number));
        match SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, fate)| fate) {
            Some(SettingTranslation::Is(ours, form)) => self.set(ours, form(value)),
            Some(SettingTranslation::Needless(why)) => self.note(line.number, format!("{name}: not needed: {why}")),
            Some(SettingTranslation::Missing(why)) => self.note(line.number, format!("{name}: no equal: {why}")),
            Some(SettingTranslation::Known) => self.known(line.number, name, value),
            None => self.note(line.number, format!("{name}: is no setting of PgBouncer 1.25")),
        }
    }

    /// Translates settings that depend on their value.
    fn known(&mut self, line: u32, name: &str, value: &str) {
        match by_value(name, value) {
            Some(SettingMeaning::Sets(parameters, note)) => {
                parameters.into_iter().for_each(|(ours, value)| self.set(ours, value));
                if let Some(why) = note {
                    self.note(line, format!("{name} = {value}: no equal: {why}"));
                }
            }
            Some(SettingMeaning::Nothing(why)) => self.note(line, format!("{name} = {value}: no equal: {why}")),
            None => {}
        }
    }

    fn database(&mut self, line: &ini::IniLine) {
        let Ok(pairs) = ini::pairs(&line.value) else {
            return self.note(line.number, format!("{}: cannot be read", line.name));
        };
        let mut limits = String::new();
        for (name, value) in &pairs {
            match name.as_str() {
                "host" | "port" | "dbname" | "user" | "password" | "connect_query" => {}
                "auth_user" | "auth_query" | "auth_dbname" => {}
                // Written to the line in `database_file`.
                "pool_mode" | "pool_size" if line.name == OTHERS => {}
                "pool_mode" | "pool_size" | "min_pool_size" | "max_db_connections" => push_limit(&mut limits, name, value),
                "reserve_pool" | "reserve_pool_size" => push_limit(&mut limits, "reserve_pool_size", value),
                // 0: one use per connection in PgBouncer, no limit in Weir.
                "server_lifetime" => {
                    let value = Some(whole_seconds(value)).filter(|value| value != "0").unwrap_or_else(|| "1".to_string());
                    push_limit(&mut limits, "connection_life_time", &value);
                }
                "max_db_client_connections" => push_limit(&mut limits, "max_client_connections_per_database", value),
                other => {
                    self.note(
                        line.number,
                        format!("{}: {other}: no equal: there is nothing like it for one database", line.name),
                    );
                }
            }
        }
        // The last entry of a name counts, as in PgBouncer.
        self.entries.retain(|entry| entry.name != line.name);
        self.entries.push(ImportedDatabase::new(line.number, &line.name, pairs));
        if !limits.is_empty() && line.name == OTHERS {
            self.note(line.number, "*: limits of databases without a line of their own: set them for all".to_string());
        } else {
            self.limit("database", line, &limits);
        }
    }

    /// PgBouncer's peer numbers are parts of its cancel keys; not needed.
    fn peer(&mut self, line: &ini::IniLine) {
        let pairs: BTreeMap<String, String> = ini::pairs(&line.value).unwrap_or_default().into_iter().collect();
        let Some(host) = pairs.get("host") else {
            return self.note(line.number, format!("peer {}: has no host", line.name));
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        self.peers.push(format!("{host}:{}", pairs.get("port").map_or("6432", String::as_str)));
    }

    fn user(&mut self, line: &ini::IniLine) {
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
                "max_user_connections" => push_limit(&mut limits, name, value),
                "max_user_client_connections" => push_limit(&mut limits, "max_client_connections_per_user", value),
                other => self.note(line.number, format!("{}: {other}: no equal for one user", line.name)),
            }
        }
        self.limit("user", line, &limits);
    }

    fn limit(&mut self, of: &str, line: &ini::IniLine, limits: &str) {
        if limits.is_empty() {
            return;
        }
        let entry = format!("{of}=\"{}\":{limits}", line.name);
        match read_overrides(&entry) {
            Ok(_) => self.overrides.push(entry),
            Err(error) => self.note(line.number, error.to_string()),
        }
    }

    fn finish(mut self, load: &mut Load<'_>) -> ImportedSetup {
        for (name, value) in DEFAULTS {
            if self.given.contains_key(name) {
                continue;
            }
            match SETTINGS.iter().find(|(known, _)| *known == name) {
                Some((_, SettingTranslation::Is(ours, form))) => self.set(ours, form(value)),
                Some((_, SettingTranslation::Known)) => self.known(0, name, value),
                Some((_, SettingTranslation::Needless(_) | SettingTranslation::Missing(_))) | None => {}
            }
        }
        self.tls_of_clients();
        self.tls_of_servers();
        self.look_ups();
        let place = self.place();
        let rules = self.rules(&place, load);
        let conf = self.conf(&place);
        self.notes.sort_by_key(|note| note.line);
        let auth_file = Some(self.value("auth_file").to_string()).filter(|file| !file.is_empty());
        let databases = Some(place.entries).filter(|text| !text.is_empty());
        ImportedSetup { conf, rules, databases, auth_file, notes: self.notes }
    }

    fn tls_of_clients(&mut self) {
        let mode = self.value("client_tls_sslmode").to_string();
        if !matches!(mode.as_str(), "" | "disable") {
            self.set("ssl", "on");
            self.set("client_sslmode", mode);
        }
    }

    /// PgBouncer checks servers' certificates with `verify-ca` and `verify-full` only, and never by the authorities of clients.
    fn tls_of_servers(&mut self) {
        let mode = Some(self.value("server_tls_sslmode")).filter(|mode| !mode.is_empty()).unwrap_or("prefer").to_string();
        let file = self.value("server_tls_ca_file").to_string();
        let verifies = matches!(mode.as_str(), "verify-ca" | "verify-full");
        self.set("backend_sslmode", mode.as_str());
        if !verifies {
            self.set("backend_sslrootcert", quoted("none"));
            if !file.is_empty() {
                let text = format!("server_tls_ca_file: not needed: server_tls_sslmode = {mode} checks no certificate");
                self.note(self.line_of("server_tls_ca_file"), text);
            }
        } else if file.is_empty() {
            self.set("backend_sslrootcert", quoted(SYSTEM_AUTHORITIES));
            let text =
                format!("server_tls_sslmode = {mode}: see whether {SYSTEM_AUTHORITIES} is this system's file of authorities");
            self.note(self.line_of("server_tls_sslmode"), text);
        } else {
            self.set("backend_sslrootcert", quoted(&file));
        }
    }

    /// PgBouncer asks `auth_query` in the client's database, with its `search_path`, unless `auth_dbname` names another entry.
    fn look_ups(&mut self) {
        self.look_ups_of_others();
        let is_placed = !self.value("auth_dbname").is_empty();
        for entry in &mut self.entries {
            if entry.looks_up() && !is_placed && entry.name != OTHERS {
                let own = entry.name.clone();
                entry.complete("auth_dbname", &own);
            }
        }
        for (name, query, line) in self.queries() {
            if let Some(word) = weir_config::look_up::unqualified(&query) {
                self.note(line, format!("{name}auth_query: write \"{word}\" with its schema: only pg_catalog is searched"));
            }
        }
        if self.value("auth_user").is_empty() || is_placed {
            return;
        }
        if let Some(named) = self.entries.iter().find(|entry| entry.name != OTHERS).map(|entry| entry.name.clone()) {
            self.set("auth_dbname", quoted(&named));
            if self.entries.iter().any(|entry| entry.name != named && !entry.looks_up()) {
                let text = format!("auth_user: auth_query is asked in one database, \"{named}\", not in each client's");
                self.note(self.line_of("auth_user"), text);
            }
        }
    }

    /// Moves the look-ups of `*` to the parameters, which hold for databases without an entry; other entries get the former parameters.
    fn look_ups_of_others(&mut self) {
        let Some(others) = self.entries.iter().find(|entry| entry.name == OTHERS && entry.looks_up()).cloned() else { return };
        let default = |word: &str| weir_config::params::find(word).map_or("", |param| param.default).to_string();
        for word in imported_databases::LOOK_UPS {
            let Some(value) = others.look_up(word) else { continue };
            let line = others.line;
            let former = self.given.insert(word.to_string(), (value.to_string(), line)).map(|(former, _)| former);
            self.set(word, quoted(value));
            // Without another word, a database asks in itself.
            if word == "auth_dbname" && former.is_none() {
                self.entries
                    .iter_mut()
                    .filter(|entry| entry.name != OTHERS)
                    .for_each(|entry| entry.complete(word, &entry.name.clone()));
                continue;
            }
            let former = former.unwrap_or_else(|| default(word));
            self.entries.iter_mut().filter(|entry| entry.name != OTHERS).for_each(|entry| entry.complete(word, &former));
        }
    }

    /// Returns all texts of `auth_query`, with a note prefix and a line.
    fn queries(&self) -> Vec<(String, String, u32)> {
        let own = self.entries.iter().filter(|entry| entry.name != OTHERS);
        let own =
            own.filter_map(|entry| Some((format!("{}: ", entry.name), entry.look_up("auth_query")?.to_string(), entry.line)));
        [(String::new(), self.value("auth_query").to_string(), self.line_of("auth_query"))].into_iter().chain(own).collect()
    }

    fn place(&mut self) -> ImportedTopology {
        let folder = if self.given.contains_key("unix_socket_dir") { self.value("unix_socket_dir") } else { "/tmp" };
        let place = imported_databases::place(&self.entries, folder);
        for (line, text) in &place.notes {
            self.note(*line, text.clone());
        }
        let named = |name: &str, line| (name.to_string(), line);
        let look_ups = self.entries.iter().filter_map(|entry| Some(named(entry.look_up("auth_dbname")?, entry.line)));
        let all: Vec<(String, u32)> = look_ups.chain([named(self.value("auth_dbname"), self.line_of("auth_dbname"))]).collect();
        for (name, line) in all {
            if place.refused.contains(&name) {
                self.note(line, format!("auth_dbname: \"{name}\" is on another server, so that nobody can be looked up there"));
            }
        }
        if place.servers.is_empty() {
            self.note(0, "there is no [databases] section that names a server: set backend_hostname0".to_string());
        }
        if place.servers.len() > 1 {
            let text = "there are several servers: Weir takes them for one cluster, a primary and its standbys. Set sr_check_user \
                        and sr_check_password, a user with the rights of pg_monitor who may log in to all of them";
            self.note(0, text.to_string());
        }
        place
    }

    fn rules(&mut self, place: &ImportedTopology, load: &mut Load<'_>) -> String {
        let setup = imported_access::AccessSettings {
            auth_type: Some(self.value("auth_type")).filter(|word| !word.is_empty()).unwrap_or("md5"),
            tls: self.value("client_tls_sslmode"),
            hba_file: self.value("auth_hba_file"),
            ldap_options: self.value("auth_ldap_options"),
            databases: &place.listed,
            forced: &place.forced,
            replication: place.replication,
        };
        let (text, notes) = imported_access::rules(&setup, load);
        let auth_type = setup.auth_type.to_string();
        let line = self.line_of("auth_type");
        notes.into_iter().for_each(|text| self.note(line, text));
        self.set("auth_type", if imported_access::is_by_parameter(&auth_type) { auth_type.as_str() } else { "hba" });
        text
    }

    fn conf(&self, place: &ImportedTopology) -> String {
        let mut conf = String::from("# Made from pgbouncer.ini by `weir import`.\n\n");
        for (at, (host, port)) in place.servers.iter().enumerate() {
            let _ = write!(conf, "backend_hostname{at} = {}\nbackend_port{at} = {port}\nbackend_weight{at} = 1\n", quoted(host));
        }
        if place.servers.len() > 1 {
            conf += "#sr_check_user = ''             # who asks all servers for their role; without it postgres does\n";
        } else {
            conf += "backend_clustering_mode = raw\n";
        }
        if place.readers.is_empty() {
            conf +=
                "load_balance_mode = off         # as with PgBouncer, reads go where writes go; on spreads them over standbys\n";
        } else {
            let readers = place.readers.iter().map(|name| format!("{}:standby", escaped(name))).collect::<Vec<_>>().join(", ");
            conf += "load_balance_mode = on          # for databases whose reads go to standbys; those of others go where writes go\n";
            let _ = writeln!(conf, "database_redirect_preference_list = {}", quoted(&format!("{readers}, .*:primary")));
        }
        conf +=
            "max_server_connections_per_node = 10000   # PgBouncer has no such limit; yours is the servers' max_connections\n\n";
        conf += "enable_pool_hba = on            # pool_hba.conf says who may log in, by the method that auth_type names\n";
        conf += "sigint_stop = wait_for_servers  # as PgBouncer's SIGINT, by which packages stop it: transactions end first\n";
        conf += "auth_query_cache_time = 0       # as with PgBouncer, each login asks auth_query\n";
        if !place.entries.is_empty() {
            conf += "database_file = 'databases'     # databases by another name, and forced users\n";
        }
        for (name, value) in &self.lines {
            let _ = writeln!(conf, "{name} = {}", if value.is_empty() { "''" } else { value });
        }
        if !self.peers.is_empty() {
            let _ = writeln!(conf, "peer_list = {}", quoted(&self.peers.join(", ")));
        }
        if !self.overrides.is_empty() {
            let _ = writeln!(conf, "limit_override_list = {}", quoted(&self.overrides.join("; ")));
        }
        conf
    }
}

fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| (!c.is_alphanumeric() && c != '_').then_some('\\').into_iter().chain([c])).collect()
}

fn push_limit(limits: &mut String, name: &str, value: &str) {
    let _ = write!(limits, " {name}={value}");
}

#[cfg(test)]
mod tests;
