//! `[databases]`: the servers behind one Weir, and the databases that are on them under their own names.

use std::collections::BTreeMap;

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub line: u32,
    /// The clients' name; `*` stands for all databases without a line.
    pub name: String,
    words: BTreeMap<String, String>,
}

/// The databases that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// All but these.
    AllBut(Vec<String>),
    /// These and no others.
    Only(Vec<String>),
}

/// Where everything goes.
pub(super) struct Place {
    /// Host and port of each server of the cluster.
    pub servers: Vec<Server>,
    pub listed: Listed,
    /// With their lines.
    pub notes: Vec<(u32, String)>,
}

/// Host and port.
type Server = (String, String);

impl Entry {
    pub fn new(line: u32, name: &str, pairs: Vec<(String, String)>) -> Entry {
        Entry { line, name: name.to_string(), words: pairs.into_iter().collect() }
    }

    fn get(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Its name on the server.
    pub fn database(&self) -> &str {
        self.get("dbname").unwrap_or(&self.name)
    }

    /// Its servers; without a host that of the unix socket in PgBouncer's own folder.
    fn servers(&self, folder: &str) -> Vec<Server> {
        let (hosts, ports) = (self.get("host").unwrap_or(folder), self.get("port").unwrap_or("5432"));
        let port = |at: usize| ports.split(',').nth(at).or(ports.split(',').next()).unwrap_or("5432");
        let mut servers: Vec<Server> = Vec::new();
        for (at, host) in hosts.split(',').enumerate() {
            let server = (host.trim().to_string(), port(at).trim().to_string());
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }

    /// Why clients do not find there what PgBouncer gives them.
    fn obstacle(&self) -> Option<&'static str> {
        match () {
            () if self.database() != self.name && self.name != "*" => Some("dbname"),
            () if self.get("dbname").is_some() && self.name == "*" => Some("dbname"),
            () if self.get("user").is_some() => Some("user"),
            () if self.get("password").is_some() => Some("password"),
            () => None,
        }
    }
}

/// Takes the servers that most entries name, and refuses databases on others: they would not be the same databases.
pub(super) fn place(entries: &[Entry], folder: &str) -> Place {
    let servers_of = |entry: &Entry| entry.servers(folder);
    let count = |servers: &[Server]| entries.iter().filter(|entry| servers_of(entry) == servers).count();
    // Of equals the first.
    let main = entries.iter().rev().max_by_key(|entry| count(&servers_of(entry)));
    let servers = main.map(servers_of).unwrap_or_default();
    let (mut taken, mut refused, mut notes, mut has_others) = (Vec::new(), Vec::new(), Vec::new(), false);
    for entry in entries {
        let name = &entry.name;
        if servers_of(entry) != servers {
            let first = main.map_or("", |main| main.name.as_str());
            let text = format!("{name}: refused: its server is not that of {first}; run one Weir for each cluster of servers");
            notes.push((entry.line, text));
        } else if let Some(word) = entry.obstacle() {
            let why = match word {
                "dbname" => "a database has the same name for clients and on the servers",
                _ => "clients and servers know a user by the same name and password",
            };
            notes.push((entry.line, format!("{name}: refused: {word}: no equal: {why}")));
        } else if name == "*" {
            has_others = true;
            continue;
        } else {
            taken.push(name.clone());
            continue;
        }
        refused.push(name.clone());
    }
    let listed = if has_others { Listed::AllBut(refused) } else { Listed::Only(taken) };
    Place { servers, listed, notes }
}

/// A function or table in a query that is named without its schema and is none of the system's.
pub(super) fn unqualified(query: &str) -> Option<&str> {
    let mut words = query.split_whitespace();
    while let Some(word) = words.next() {
        if !word.eq_ignore_ascii_case("from") && !word.eq_ignore_ascii_case("join") {
            continue;
        }
        let name = words.next()?.split(['(', ',', ';', ')']).next()?;
        if !name.is_empty() && !name.contains('.') && !name.to_ascii_lowercase().starts_with("pg_") {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_schema_are_found() {
        let cases = [
            ("SELECT usename, passwd FROM pg_shadow WHERE usename=$1", None),
            ("SELECT * FROM look_up($1)", Some("look_up")),
            ("SELECT * FROM pgbouncer.look_up($1)", None),
            ("SELECT * FROM pgbouncer.a JOIN b ON true", Some("b")),
            ("", None),
        ];
        for (query, expected) in cases {
            assert_eq!(unqualified(query), expected, "{query}");
        }
    }
}
