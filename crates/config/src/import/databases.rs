//! `[databases]`: the servers behind one Weir, and the databases that are on them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
    /// Databases with a forced user.
    pub forced: Vec<String>,
    /// The text of `database_file`; empty if no database needs it.
    pub entries: String,
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

    /// Its line in `database_file`, if it needs one, and notes on words that have no place there.
    fn exception(&self, notes: &mut Vec<(u32, String)>) -> Option<String> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        let mut note = |text: String| notes.push((self.line, format!("{}: {text}", self.name)));
        for word in ["dbname", "user", "password", "connect_query"] {
            match self.get(word) {
                Some(value) if word == "dbname" && value == self.name => {}
                Some(_) if word == "password" && self.get("user").is_none() => {
                    note("password: no equal: without a user it would be that of all users".to_string());
                }
                Some(value) => words.push((word, value)),
                None => {}
            }
        }
        while !words.is_empty() {
            let line = line(&self.name, &words);
            let (_, wrong) = crate::databases::read(&line);
            let Some((_, error)) = wrong.first() else { return Some(line) };
            // The last word is the one that may say something wrong.
            let Some((word, _)) = words.pop() else { break };
            note(format!("{word}: no equal: {error}"));
        }
        None
    }

    /// True if every client uses the server connections of one user.
    fn is_forced(&self) -> bool {
        self.get("user").is_some()
    }
}

/// One line of `database_file`.
fn line(name: &str, words: &[(&str, &str)]) -> String {
    let mut line = format!("\"{}\" =", name.replace('"', "\"\""));
    for (word, value) in words {
        let _ = write!(line, " {word}='{}'", value.replace('\'', "''"));
    }
    line
}

/// Takes the servers that most entries name, and refuses databases on others: they would not be the same databases.
pub(super) fn place(entries: &[Entry], folder: &str) -> Place {
    let servers_of = |entry: &Entry| entry.servers(folder);
    let count = |servers: &[Server]| entries.iter().filter(|entry| servers_of(entry) == servers).count();
    // The first of equals.
    let main = entries.iter().rev().max_by_key(|entry| count(&servers_of(entry)));
    let servers = main.map(servers_of).unwrap_or_default();
    let (mut taken, mut refused, mut notes, mut has_others) = (Vec::new(), Vec::new(), Vec::new(), false);
    let (mut exceptions, mut forced) = (String::new(), Vec::new());
    for entry in entries {
        let name = &entry.name;
        if servers_of(entry) != servers {
            let first = main.map_or("", |main| main.name.as_str());
            let text = format!("{name}: refused: its server is not that of {first}; run one Weir for each cluster of servers");
            notes.push((entry.line, text));
        } else if name != "*" {
            if let Some(line) = entry.exception(&mut notes) {
                exceptions += &line;
                exceptions.push('\n');
            }
            if entry.is_forced() {
                forced.push(name.clone());
            }
            taken.push(name.clone());
            continue;
        } else if let Some(word) = ["dbname", "user", "password", "connect_query"].iter().find(|word| entry.get(word).is_some()) {
            let text = format!("*: refused: {word}: no equal: write a line for each database");
            notes.push((entry.line, text));
        } else {
            has_others = true;
        }
        if name != "*" {
            refused.push(name.clone());
        }
    }
    let listed = if has_others { Listed::AllBut(refused) } else { Listed::Only(taken) };
    Place { servers, listed, forced, entries: exceptions, notes }
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
