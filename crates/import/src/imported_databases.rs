//! `[databases]`: the servers behind one Weir, and their databases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use weir_config::databases::OTHERS;

pub(super) const LOOK_UPS: [&str; 3] = ["auth_user", "auth_query", "auth_dbname"];

/// Words that `database_file` also has. A password needs its user first.
const EXCEPTIONS: [&str; 7] = ["dbname", "user", "password", LOOK_UPS[0], LOOK_UPS[1], LOOK_UPS[2], "connect_query"];

/// Limits of `*`, which have no list of their own.
const EXCEPTIONS_OF_OTHERS: [&str; 6] = ["dbname", "user", "password", "pool_mode", "pool_size", "connect_query"];

#[derive(Clone, Debug)]
pub(super) struct ImportedDatabase {
    pub line: u32,
    /// `*`: all databases without a line.
    pub name: String,
    words: BTreeMap<String, String>,
}

/// Users who may open physical replication connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhysicalReplication {
    /// All databases have a forced user, who does not count for these.
    OfNobody,
    /// Users who may enter a database under their own name.
    OfUsers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReachableDatabases {
    AllBut(Vec<String>),
    Only(Vec<String>),
}

pub(super) struct ImportedTopology {
    pub servers: Vec<Server>,
    pub listed: ReachableDatabases,
    /// Databases on other servers.
    pub refused: Vec<String>,
    pub readers: Vec<String>,
    /// Listed databases with a forced user.
    pub forced: Vec<String>,
    pub replication: PhysicalReplication,
    /// `database_file`; empty if not needed.
    pub entries: String,
    pub notes: Vec<(u32, String)>,
}

const LOOPBACK: &str = "127.0.0.1";

type Server = (String, String);

impl ImportedDatabase {
    pub fn new(line: u32, name: &str, pairs: Vec<(String, String)>) -> ImportedDatabase {
        ImportedDatabase { line, name: name.to_string(), words: pairs.into_iter().collect() }
    }

    fn get(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the name on the server.
    fn database(&self) -> &str {
        self.get("dbname").unwrap_or(&self.name)
    }

    /// Without a host, the unix socket in PgBouncer's folder.
    fn servers(&self, folder: &str) -> Vec<Server> {
        let (hosts, ports) = (self.get("host").unwrap_or(folder), self.get("port").unwrap_or("5432"));
        let port = |at: usize| ports.split(',').nth(at).or(ports.split(',').next()).unwrap_or("5432");
        let mut servers: Vec<Server> = Vec::new();
        for (at, host) in hosts.split(',').enumerate() {
            let host = host.trim();
            // Names of this machine mean one server. A unix socket may belong to another.
            let host = if matches!(host, "localhost" | "::1") { LOOPBACK } else { host };
            let server = (host.to_string(), port(at).trim().to_string());
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }

    /// Formats the line in `database_file`, if needed, and notes words without a place there.
    fn exception(&self, notes: &mut Vec<(u32, String)>) -> Option<String> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        let mut note = |text: String| notes.push((self.line, format!("{}: {text}", self.name)));
        let exceptions = if self.name == OTHERS { &EXCEPTIONS_OF_OTHERS[..] } else { &EXCEPTIONS[..] };
        for &word in exceptions {
            // An empty `auth_user` has a meaning: no look-ups.
            let value = if word == "auth_user" { self.words.get(word).map(String::as_str) } else { self.get(word) };
            let Some(value) = value.filter(|value| word != "dbname" || *value != self.name) else { continue };
            if word == "password" && self.get("user").is_none() {
                note("password: no equal: without a user it would be that of all users".to_string());
                continue;
            }
            words.push((word, value));
            let (_, wrong) = weir_config::databases::read(&line(&self.name, &words));
            if let Some((_, error)) = wrong.first() {
                note(format!("{word}: no equal: {error}"));
                words.pop();
            }
        }
        (!words.is_empty()).then(|| line(&self.name, &words))
    }

    pub fn looks_up(&self) -> bool {
        LOOK_UPS.iter().any(|word| self.words.contains_key(*word))
    }

    /// Adds a word, unless present.
    pub fn complete(&mut self, word: &str, value: &str) {
        self.words.entry(word.to_string()).or_insert_with(|| value.to_string());
    }

    pub fn look_up(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str)
    }

    /// True if all clients share one user's server connections.
    fn is_forced(&self) -> bool {
        self.get("user").is_some()
    }
}

/// Returns the most frequent name of this machine: certificates are checked by it.
fn own_name(entries: &[ImportedDatabase]) -> &'static str {
    let names = [LOOPBACK, "localhost", "::1"];
    let count = |name: &&str| {
        let hosts = entries.iter().filter_map(|entry| entry.get("host"));
        hosts.flat_map(|hosts| hosts.split(',')).filter(|host| host.trim() == *name).count()
    };
    // A tie goes to the first.
    names.into_iter().rev().max_by_key(count).unwrap_or(LOOPBACK)
}

fn line(name: &str, words: &[(&str, &str)]) -> String {
    let mut line = if name == OTHERS { "* =".to_string() } else { format!("\"{}\" =", name.replace('"', "\"\"")) };
    for (word, value) in words {
        let _ = write!(line, " {word}='{}'", value.replace('\'', "''"));
    }
    line
}

/// Takes the most frequent servers. Refuses databases on others, except replicas.
pub(super) fn place(entries: &[ImportedDatabase], folder: &str) -> ImportedTopology {
    let servers_of = |entry: &ImportedDatabase| entry.servers(folder);
    let count = |servers: &[Server]| entries.iter().filter(|entry| servers_of(entry) == servers).count();
    let main = entries.iter().rev().max_by_key(|entry| count(&servers_of(entry)));
    let mut servers = main.map(servers_of).unwrap_or_default();
    let main_servers = servers.clone();
    // PgBouncer may use each host of an entry.
    let is_served = |entry: &ImportedDatabase| {
        servers_of(entry) == main_servers || servers_of(entry).iter().any(|one| main_servers == [one.clone()])
    };
    let served: BTreeSet<&str> = entries.iter().filter(|entry| is_served(entry)).map(ImportedDatabase::database).collect();
    let (mut taken, mut refused, mut readers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut notes, mut has_others) = (Vec::new(), false);
    let (mut exceptions, mut forced) = (String::new(), Vec::new());
    let mut replication = PhysicalReplication::OfNobody;
    for entry in entries {
        let name = &entry.name;
        let is_reader = !is_served(entry) && name != OTHERS && served.contains(entry.database()) && says_that_it_reads(name);
        if !is_served(entry) && !is_reader {
            let first = main.map_or("", |main| main.name.as_str());
            let text = format!("{name}: refused: its server is not that of {first}; run one Weir for each cluster of servers");
            notes.push((entry.line, text));
        } else {
            if !entry.is_forced() {
                replication = PhysicalReplication::OfUsers;
            }
            if is_reader {
                let others: Vec<Server> = servers_of(entry).into_iter().filter(|one| !servers.contains(one)).collect();
                servers.extend(others);
                readers.push(name.clone());
                let text = "its servers are taken for standbys of the others: its reads go to standbys, and what writes goes to the primary, where a standby would refuse it";
                notes.push((entry.line, format!("{name}: {text}")));
            } else if servers_of(entry) != main_servers {
                let all: Vec<String> = main_servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
                notes.push((
                    entry.line,
                    format!("{name}: of its hosts {} alone serves it, as it serves the other databases", all.join(", ")),
                ));
            }
            if let Some(line) = entry.exception(&mut notes) {
                exceptions += &line;
                exceptions.push('\n');
            }
            if name == OTHERS {
                has_others = true;
                continue;
            }
            if entry.is_forced() {
                forced.push(name.clone());
            }
            taken.push(name.clone());
            continue;
        }
        if name != OTHERS {
            refused.push(name.clone());
        }
    }
    servers.iter_mut().filter(|(host, _)| host == LOOPBACK).for_each(|(host, _)| own_name(entries).clone_into(host));
    let listed = if has_others { ReachableDatabases::AllBut(refused.clone()) } else { ReachableDatabases::Only(taken) };
    ImportedTopology { servers, listed, refused, readers, forced, replication, entries: exceptions, notes }
}

/// Marks of a replica in a database name. Other servers with a database of the same name may be another cluster, such as test and
/// production, which must never become one.
const READER_WORDS: [&str; 11] =
    ["ro", "read", "reader", "readonly", "reads", "replica", "replicas", "standby", "standbys", "secondary", "slave"];

fn says_that_it_reads(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| READER_WORDS.contains(&word))
}
