//! The text of postgresql.conf and pg_hba.conf.

use std::path::Path;

/// How the servers authenticate clients that no line of [`Auth::hba_lines`] matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HbaMethod {
    /// Everyone is believed.
    #[default]
    Trust,
    /// SCRAM-SHA-256; passwords are stored that way.
    Scram,
    /// MD5; passwords are stored that way.
    Md5,
}

impl HbaMethod {
    /// The word in pg_hba.conf, and the value of `password_encryption` that suits it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            HbaMethod::Trust => ("trust", "scram-sha-256"),
            HbaMethod::Scram => ("scram-sha-256", "scram-sha-256"),
            HbaMethod::Md5 => ("md5", "md5"),
        }
    }
}

/// A role that may log in. `postgres` exists always and is a superuser; naming it gives it a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
}

/// Access rules of the servers.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// For everyone no line matches.
    pub method: HbaMethod,
    /// Roles to create.
    pub users: Vec<User>,
    /// Lines of pg_hba.conf that come before `method`.
    ///
    /// Two things stay trusted before all of them: the user `postgres` over the unix socket, by which this crate talks to its
    /// servers, and `postgres` as a standby from 127.0.0.1.
    pub hba_lines: Vec<String>,
}

/// How much the servers write to their log of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WalLevel {
    /// Enough for standbys.
    #[default]
    Replica,
    /// Also enough for logical replication.
    Logical,
}

/// Settings all servers share: (name, value). fsync is off because a crash of the machine ends the cluster anyway; a
/// crash of a server loses nothing without it.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("max_connections", "200"),
    ("fsync", "off"),
    ("hot_standby", "on"),
    ("hot_standby_feedback", "on"),
    ("max_wal_senders", "20"),
    ("max_replication_slots", "20"),
    ("max_prepared_transactions", "100"),     // two-phase commit over shards
    ("max_worker_processes", "20"),           // subscriptions take one each
    ("wal_log_hints", "on"),                  // pg_rewind needs it
    ("wal_keep_size", "256MB"),               // a standby that was away comes back without a slot
    ("wal_retrieve_retry_interval", "100ms"), // standbys notice at once that their primary is back
    ("wal_receiver_status_interval", "1s"),   // and tell it often how far they are
    ("dynamic_shared_memory_type", "mmap"),   // files inside the data folder: a killed server leaves none in /dev/shm
    ("logging_collector", "off"),             // stderr is our log file
    ("log_line_prefix", "%m [%p] %q%u@%d/%a "),
];

/// Text that is appended to postgresql.conf of every server. Later lines win, so `extra` may override anything above it.
pub(crate) fn shared_settings(sockets: &Path, wal_level: WalLevel, auth: &Auth, extra: &[(String, String)]) -> String {
    let wal_level = match wal_level {
        WalLevel::Replica => "replica",
        WalLevel::Logical => "logical",
    };
    let mut text = String::from("\n# Settings of all servers of this cluster.\n");
    for (name, value) in SETTINGS {
        text += &setting(name, value);
    }
    text += &setting("unix_socket_directories", &quote_list_item(&sockets.to_string_lossy()));
    text += &setting("wal_level", wal_level);
    text += &setting("password_encryption", auth.method.words().1);
    for (name, value) in extra {
        text += &setting(name, value);
    }
    text
}

/// Settings of this server only.
pub(crate) fn own_settings(name: &str, port: u16) -> String {
    let mut text = String::from("# Settings of this server.\n");
    text += &setting("port", &port.to_string());
    text += &setting("cluster_name", name);
    text
}

/// How the standby `name` connects to the server on `port`.
pub(crate) fn upstream_setting(name: &str, port: u16) -> String {
    let value = format!("host=127.0.0.1 port={port} user=postgres application_name={name}");
    setting("primary_conninfo", &value)
}

/// One line of a configuration file.
pub(crate) fn setting(name: &str, value: &str) -> String {
    format!("{name} = '{}'\n", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// The whole of pg_hba.conf.
pub(crate) fn hba(auth: &Auth) -> String {
    let method = auth.method.words().0;
    let mut text = String::from("local all postgres trust\nlocal replication postgres trust\n");
    text += "host replication postgres 127.0.0.1/32 trust\n";
    for line in &auth.hba_lines {
        text += line;
        text.push('\n');
    }
    for kind in ["local", "host"] {
        for database in ["all", "replication"] {
            let address = if kind == "host" { " samehost" } else { "" };
            text += &format!("{kind} {database} all{address} {method}\n");
        }
    }
    text
}

/// A text in quotes, as SQL writes it.
pub(crate) fn quote_text(text: &str) -> String {
    // The E form, because a backslash means the same in it with any `standard_conforming_strings`.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name in quotes, as SQL writes it.
pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An item of a list setting: folders may hold commas and spaces.
fn quote_list_item(item: &str) -> String {
    quote_name(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_settings_come_last_and_are_quoted() {
        let extra = [("work_mem".to_owned(), "1MB".to_owned()), ("x.y".to_owned(), "it's \\".to_owned())];
        let text = shared_settings(Path::new("/tmp/a b"), WalLevel::Logical, &Auth::default(), &extra);
        assert!(text.ends_with("work_mem = '1MB'\nx.y = 'it''s \\\\'\n"), "{text}");
        assert!(text.contains("unix_socket_directories = '\"/tmp/a b\"'\nwal_level = 'logical'\n"), "{text}");
    }

    #[test]
    fn given_hba_lines_come_before_the_method() {
        let auth = Auth { method: HbaMethod::Md5, hba_lines: vec!["local all joe reject".into()], ..Default::default() };
        let text = hba(&auth);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "local all postgres trust");
        assert_eq!(lines[3..5], ["local all joe reject", "local all all md5"]);
        assert_eq!(lines[6], "host all all samehost md5");
    }
}
